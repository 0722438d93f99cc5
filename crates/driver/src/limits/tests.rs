use nvme::identify::LbaFormat;
use proptest::prelude::*;

use super::*;
use crate::testing::controller::{Script, namespace};

fn caps() -> impl Strategy<Value = Cap> {
    (any::<u16>(), 0u8..16, 0u8..16, any::<u8>()).prop_map(|(mqes, min, max, css)| {
        Cap::new().with_mqes(mqes).with_mpsmin(min).with_mpsmax(max).with_css(css)
    })
}

proptest! {
    /// For any controller data, queues cannot overrun and respect its limits.
    #[test]
    fn queues_keep_to_every_limit(cap in caps(), maxcmd in prop_oneof![Just(0u16), Just(1), any::<u16>()], mdts: u8, depth in prop_oneof![0u32..70_000, any::<u32>()]) {
        let mut identify = Script::default().identify;
        (identify.maxcmd, identify.mdts) = (maxcmd, mdts);
        let Ok(limits) = Limits::new(cap, &identify) else {
            prop_assert!(cap.mqes() == 0 || cap.mpsmin() > 0 || cap.css() & 0x41 == 0 && cap.css() != 0);
            return Ok(());
        };
        let sizes = limits.queue_sizes(depth);
        let (pair_sq, pair_cq) = (sizes.sq_entries, sizes.cq_entries);
        prop_assert!((2..=u32::from(cap.mqes()) + 1).contains(&pair_sq) && (2..=u32::from(cap.mqes()) + 1).contains(&pair_cq));
        prop_assert!(sizes.tags <= QueueSizes::MAX_TAGS, "a queue pair of these sizes is refused");
        prop_assert!(sizes.tags >= 1 && sizes.tags < pair_sq && sizes.tags < pair_cq && sizes.tags <= depth.max(1));
        prop_assert!(maxcmd == 0 || sizes.tags <= u32::from(maxcmd));
        // MDTS counts pages of CAP.MPSMIN; 0 is no limit.
        let expected = (mdts != 0 && mdts < 52).then(|| 4096u64 << mdts);
        prop_assert_eq!(limits.max_transfer, expected);
    }

    /// Only supported formats are accepted, and no Identify page causes a panic.
    #[test]
    fn formats_are_taken_or_refused(blocks: u64, flbas: u8, lbads in prop_oneof![0u8..40, any::<u8>()], ms in prop_oneof![3 => Just(0u16), 1 => any::<u16>()], dps in prop_oneof![3 => Just(0u8), 1 => any::<u8>()], noiob: u16, nlbaf: u8) {
        let mut identify = namespace(blocks, 9);
        (identify.flbas, identify.dps, identify.noiob, identify.nlbaf) = (flbas, dps, noiob, nlbaf);
        identify.lbaf = [LbaFormat::new().with_lbads(lbads).with_ms(ms); 64];
        match Namespace::new(Nsid(5), &identify) {
            Ok(namespace) => {
                prop_assert!(ms == 0 && dps & 7 == 0 && (9..=31).contains(&lbads) && blocks > 0);
                prop_assert_eq!(u128::from(namespace.bytes()), u128::from(blocks) << lbads);
                let limits = Limits::new(Script::default().cap, &Script::default().identify).unwrap();
                match namespace.splitter(&limits, 1 << 30) {
                    Ok(splitter) => prop_assert!(u64::from(splitter.max_blocks()) << lbads <= 4096 << 5),
                    Err(_) => prop_assert!(lbads > 17),
                }
            }
            Err(refused) => {
                prop_assert!(ms != 0 || dps & 7 != 0 || !(9..=31).contains(&lbads) || blocks == 0 || blocks > u64::MAX >> lbads, "{}", refused);
            }
        }
    }
}

#[test]
fn dlfeat_bit_decides_zeroing_deallocate() {
    for (dlfeat, frees) in [(0, false), (1, false), (8, true), (9, true), (0xf7, false)] {
        let mut identify = namespace(100, 9);
        identify.dlfeat = dlfeat;
        assert_eq!(
            Namespace::new(Nsid(1), &identify).unwrap().deallocates_zeroes,
            frees,
            "{dlfeat:#x}"
        );
    }
}

#[test]
fn refusals_name_what_was_found() {
    let mut identify = namespace(100, 12);
    identify.lbaf[0].set_ms(8);
    let refused = Namespace::new(Nsid(2), &identify).unwrap_err().to_string();
    assert!(refused.starts_with("namespace 2 is formatted with 8 bytes of metadata"), "{refused}");
    identify.dps = 1;
    let refused = Namespace::new(Nsid(2), &identify).unwrap_err().to_string();
    assert!(refused.contains("protection information of type 1"), "{refused}");

    let mut list = DescriptorList::default();
    list.push(descriptor::UUID, &[7; 16]);
    let namespace = Namespace::new(Nsid(1), &namespace(100, 12)).unwrap();
    assert_eq!(namespace.with_descriptors(&list).unwrap().uuid, [7; 16]);
    list.push(descriptor::CSI, &[2]);
    assert_eq!(
        namespace.with_descriptors(&list),
        Err(UnsupportedNamespace::CommandSet { nsid: Nsid(1), csi: 2 })
    );
}

#[test]
fn dataless_commands_have_controller_limits() {
    let script = Script::default();
    let mut identify = script.identify.clone();
    let all = |identify: &identify::Controller| Limits::new(script.cap, identify).unwrap();
    let mut page = identify::NvmController::default();
    (page.wzsl, page.dmrl, page.dmrsl, page.dmsl) = (8, 4, 1000, 3000);
    let none = all(&identify).with_command_set(script.cap, &page);
    assert_eq!((none.write_zeroes, none.deallocate), (None, None));
    identify.oncs =
        identify::Controller::ONCS_WRITE_ZEROES | identify::Controller::ONCS_DATASET_MANAGEMENT;
    let unsaid = all(&identify).with_command_set(script.cap, &identify::NvmController::default());
    assert_eq!(
        (unsaid.write_zeroes, unsaid.deallocate),
        (Some(4096 << 5), Some(DeallocateLimits::UNLIMITED))
    );
    let said = all(&identify).with_command_set(script.cap, &page);
    assert_eq!(said.write_zeroes, Some(1 << 20));
    assert_eq!(
        said.deallocate,
        Some(DeallocateLimits { ranges: 4, range_blocks: 1000, blocks: 3000 })
    );
    page.wzsl = 255;
    assert_eq!(all(&identify).with_command_set(script.cap, &page).write_zeroes, Some(u64::MAX));

    let namespace = Namespace::new(Nsid(1), &namespace(100, 12)).unwrap();
    let splitter = |limits: &Limits| {
        let splitter = namespace.splitter(limits, 1 << 20).unwrap();
        [units::Op::WriteZeroes, units::Op::Deallocate].map(|op| splitter.max_optional_blocks(op))
    };
    assert_eq!(
        [&none, &unsaid, &said].map(splitter),
        [[None, None], [Some(32), Some(1 << 30)], [Some(256), Some(256)]]
    );
}

/// Each is there by itself, and a Verify has a limit of its own.
#[test]
fn compare_and_verify_have_limits() {
    let script = Script::default();
    let of = |oncs, vsl| {
        let identify = identify::Controller { oncs, ..script.identify.clone() };
        let page = identify::NvmController { vsl, ..Default::default() };
        let limits =
            Limits::new(script.cap, &identify).unwrap().with_command_set(script.cap, &page);
        let namespace = Namespace::new(Nsid(1), &namespace(100, 12)).unwrap();
        let splitter = namespace.splitter(&limits, 1 << 20).unwrap();
        [units::Op::Compare, units::Op::Verify].map(|op| splitter.max_optional_blocks(op))
    };
    let (compare, verify) = (identify::Controller::ONCS_COMPARE, identify::Controller::ONCS_VERIFY);
    // Without VSL as many as MDTS allows.
    assert_eq!(
        [of(0, 8), of(compare, 8), of(verify, 0)],
        [[None, None], [Some(32), None], [None, Some(32)]]
    );
    assert_eq!(
        [1, 8, 16, 255].map(|vsl| of(verify, vsl)[1]),
        [Some(2), Some(256), Some(65_536), Some(65_536)]
    );
}

/// Where the controller does not say how much, as much as a Write.
#[test]
fn wusl_or_mdts_limits_write_uncorrectable() {
    let script = Script::default();
    let of = |oncs, wusl| {
        let identify = identify::Controller { oncs, ..script.identify.clone() };
        let page = identify::NvmController { wusl, ..Default::default() };
        let limits =
            Limits::new(script.cap, &identify).unwrap().with_command_set(script.cap, &page);
        let namespace = Namespace::new(Nsid(1), &namespace(100, 12)).unwrap();
        namespace
            .splitter(&limits, 1 << 20)
            .unwrap()
            .max_optional_blocks(units::Op::WriteUncorrectable)
    };
    let there = identify::Controller::ONCS_WRITE_UNCORRECTABLE;
    assert_eq!(
        [of(!there, 8), of(there, 0), of(there, 8), of(there, 255)],
        [None, Some(32), Some(256), Some(65_536)]
    );
}

#[test]
fn unusable_controllers_are_refused() {
    let script = Script::default();
    let new = |cap, identify: &identify::Controller| Limits::new(cap, identify).unwrap_err();
    assert_eq!(new(script.cap.with_mqes(0), &script.identify), Unusable::NoEntries);
    assert_eq!(
        new(script.cap.with_css(Cap::CSS_ADMIN_ONLY), &script.identify),
        Unusable::CommandSet(0x80)
    );
    assert!(matches!(
        new(script.cap.with_mpsmin(1).with_mpsmax(4), &script.identify),
        Unusable::PageSize { min: 8192, .. }
    ));
    let mut discovery = script.identify.clone();
    discovery.cntrltype = 2;
    assert_eq!(new(script.cap, &discovery), Unusable::ControllerType(2));
    let mut large = script.identify;
    large.sqes = 0x77;
    assert_eq!(new(script.cap, &large), Unusable::EntrySize { sqes: 0x77, cqes: 0x44 });
}
