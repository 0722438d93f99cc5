use proptest::prelude::*;

use super::*;
use crate::regs::Cap;
use crate::tests::{counterexample, offsets};
use crate::{Nsid, Page, Text};

#[test]
fn identify_controller_field_offsets() {
    offsets!(Controller: sn 4, mn 24, fr 64, cmic 76, mdts 77, cntlid 78, ver 80, rtd3e 88, oaes 92, ctratt 96, cntrltype 111, oacs 256, acl 258, aerl 259, lpa 261, elpe 262, wctemp 266, tnvmcap 280, kas 320, anatt 342, anacap 343, anagrpmax 344, nanagrpid 348, cqt 386, sqes 512, cqes 513, maxcmd 514, nn 516, oncs 520, vwc 525, awun 526, sgls 536, mnan 540, subnqn 768);
}

#[test]
fn identify_namespace_field_offsets() {
    offsets!(IdentifyNamespace: nuse 16, nlbaf 25, flbas 26, dps 29, nmic 30, dlfeat 33, noiob 46, nvmcap 48, nulbaf 82, anagrpid 92, nsattr 99, nguid 104, eui64 120, lbaf 128);
    offsets!(IndependentNamespace: nmic 1, anagrpid 4, nstat 14);
    offsets!(NvmNamespace: elbaf 12);
    // PIF at 8:7, QPIF at 12:9.
    assert_eq!(ExtendedFormat::from_bits(0x7f | 1 << 7).guard(), "32b Guard");
    assert_eq!(ExtendedFormat::from_bits(3 << 7 | 2 << 9).guard(), "64b Guard");
    offsets!(NvmController: dmrsl 4, dmsl 8);
}

#[test]
fn mdts_counts_smallest_pages() {
    let limit = |mdts, mpsmin| {
        Controller { mdts, ..Controller::default() }.max_transfer(Cap::new().with_mpsmin(mpsmin))
    };
    assert_eq!([limit(0, 0), limit(5, 0), limit(5, 2)], [None, Some(128 << 10), Some(512 << 10)]);
    assert_eq!(limit(255, 15), None);
    assert_eq!(limit(51, 0), Some(1 << 63));
    assert_eq!(limit(52, 0), None);
}

#[test]
fn entry_sizes_are_a_range() {
    let controller = Controller { sqes: 0x66, cqes: 0x54, ..Controller::default() };
    assert!(
        controller.supports_entries(6, 4)
            && !controller.supports_entries(5, 4)
            && !controller.supports_entries(7, 4)
    );
    assert!(
        controller.supports_entries(6, 5)
            && !controller.supports_entries(6, 6)
            && !controller.supports_entries(6, 3)
    );
    let backwards = Controller { sqes: 0x46, cqes: 0x54, ..Controller::default() };
    assert!((0..16).all(|log2| !backwards.supports_entries(log2, 4)));
}

#[test]
fn controller_display_names_model_and_serial() {
    let controller =
        Controller { mn: Text::ascii("Reap"), sn: Text::ascii("1"), ..Controller::default() };
    assert_eq!(format!("{controller:?}"), r#"Controller { mn: "Reap", sn: "1", fr: "", .. }"#);
}

#[test]
fn sharing_is_read_bit_by_bit() {
    let bits = |cmic: MultiPath| (cmic.ports(), cmic.controllers(), cmic.ana());
    assert_eq!(bits(MultiPath::from_bits(0b1001)), (true, false, true));
    assert_eq!(bits(MultiPath::from_bits(0b0110)), (false, true, false));
}

#[test]
fn upper_format_bits_need_many_formats() {
    let namespace =
        |nlbaf, flbas| IdentifyNamespace { nlbaf, flbas, ..IdentifyNamespace::default() };
    assert_eq!(namespace(15, 0b0110_0011).format_index(), 3);
    assert_eq!(namespace(16, 0b0110_0011).format_index(), 0x33);
    assert_eq!(namespace(0, 1 << 4).format_index(), 0);
}

#[test]
fn only_usable_block_sizes_remain() {
    let size = |lbads| LbaFormat::new().with_lbads(lbads).block_size();
    assert_eq!(
        [0, 8, 9, 12, 31, 32, 255].map(size),
        [None, None, Some(512), Some(4096), Some(1 << 31), None, None]
    );
    assert_eq!(
        LbaFormat::from_bits(0x010c_0008),
        LbaFormat::new().with_ms(8).with_lbads(12).with_rp(1)
    );
}

#[test]
fn namespace_list_ends_at_zero() {
    let law = |ids: &Vec<u32>| {
        let list = NamespaceList::of(ids.iter().map(|&id| Nsid(id)));
        let read = NamespaceList::from_page(list.as_page()).expect("it is whole");
        let expected =
            ids.iter().take(NamespaceList::CAPACITY).take_while(|&&id| id != 0).map(|&id| Nsid(id));
        read.iter().eq(expected)
    };
    assert_eq!(counterexample(300, proptest::collection::vec(0..5000u32, 0..1100), law), None);
}

#[test]
fn namespace_identifiers_round_trip() {
    let law = |ids: &Vec<(u8, Vec<u8>)>| {
        let mut list = DescriptorList::default();
        let mut room = 4096;
        let mut kept = Vec::new();
        for (kind, id) in ids {
            let fits = !id.is_empty() && id.len() <= 255 && 4 + id.len() <= room;
            if list.push(*kind, id) != fits {
                return false;
            }
            if fits {
                room -= 4 + id.len();
                kept.push((*kind, &id[..]));
            }
        }
        let read = DescriptorList::from_page(list.as_page()).expect("it is whole");
        read.iter().map(|d| (d.kind, d.id)).eq(kept)
    };
    let ids = proptest::collection::vec(
        (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..270)),
        0..30,
    );
    assert_eq!(counterexample(300, ids, law), None);
}

#[test]
fn a_descriptor_is_found_by_kind() {
    let mut list = DescriptorList::default();
    assert!(list.push(descriptor::UUID, &[7; 16]) && list.push(descriptor::CSI, &[0]));
    assert_eq!(
        (list.find(descriptor::UUID), list.find(descriptor::CSI)),
        (Some(&[7; 16][..]), Some(&[0][..]))
    );
    assert_eq!(list.find(descriptor::NGUID), None);
}

#[test]
fn any_page_decodes_without_panic() {
    let law = |bytes: &Vec<u8>| {
        let controller = Controller::from_page(bytes).expect("it is whole");
        let namespace = IdentifyNamespace::from_page(bytes).expect("it is whole");
        let list = NamespaceList::from_page(bytes).expect("it is whole");
        let descriptors = DescriptorList::from_page(bytes).expect("it is whole");
        let _ = format!("{controller:?} {namespace:?} {list:?}");
        let _ =
            (controller.max_transfer(Cap::from_bits(u64::MAX)), controller.supports_entries(6, 4));
        let _ =
            (controller.abort_limit(), controller.async_event_limit(), namespace.protection_type());
        let _ = namespace.format().block_size();
        namespace.format_index() < 64
            && list.iter().count() <= NamespaceList::CAPACITY
            && descriptors.iter().map(|d| 4 + d.id.len()).sum::<usize>() <= 4096
            && NvmController::from_page(bytes).is_ok()
            && NvmNamespace::from_page(bytes).is_ok()
            && controller.as_page() == bytes
    };
    assert_eq!(counterexample(200, proptest::collection::vec(any::<u8>(), 4096), law), None);
}
