use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{CAPS, MMAP, READ, SPARSE_MMAP, WRITE, region_data};
use crate::{Area, DeviceInfo, Interrupts, Region, RegionAccess};

/// A reply to GET_REGION_INFO: flags, first capability, size, offset in the file, and the rest.
fn info(flags: u32, first: u32, bytes: u64, offset: u64, more: &[u8]) -> Vec<u8> {
    let words = [32 + more.len() as u32, flags, 0, first].map(u32::to_ne_bytes).concat();
    [&words, &[bytes, offset].map(u64::to_ne_bytes).concat(), more].concat()
}

/// A capability with its header.
fn capability(id: u16, next: u32, areas: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = [id, 1].map(u16::to_ne_bytes).concat();
    bytes.extend([next, areas.len() as u32, 0].map(u32::to_ne_bytes).concat());
    areas
        .iter()
        .for_each(|(offset, len)| bytes.extend([*offset, *len].map(u64::to_ne_bytes).concat()));
    bytes
}

#[test]
fn areas_follow_other_capabilities() {
    let mut more = capability(7, 32 + 16, &[]);
    more.extend(capability(SPARSE_MMAP, 0, &[(0x1000, 0x1000), (0, 0x800)]));
    let region =
        Region::from_reply(0, &info(READ | WRITE | MMAP | CAPS, 32, 0x2000, 0x9000, &more))
            .expect("a region");
    assert_eq!(
        region.areas,
        [Area { offset: 0x1000, bytes: 0x1000 }, Area { offset: 0, bytes: 0x800 }]
    );
    assert_eq!(
        (region.readable, region.writable, region.bytes, region.file_offset),
        (true, true, 0x2000, 0x9000)
    );
    let whole = Region::from_reply(0, &info(MMAP, 0, 0x2000, 0, &[])).expect("a region");
    assert_eq!(whole.areas, [Area { offset: 0, bytes: 0x2000 }]);
    // What did not fit was left out; that does not make the whole region mappable.
    let mut cut = info(MMAP, 0, 0x2000, 0, &[]);
    cut[..4].copy_from_slice(&(Region::MAX_BYTES + 1).to_ne_bytes());
    assert_eq!(Region::from_reply(0, &cut).map(|region| region.areas), Ok(Vec::new()));
}

#[test]
fn inconsistent_replies_are_refused() {
    let sparse =
        |areas: &[(u64, u64)]| info(MMAP | CAPS, 32, 0x2000, 0, &capability(SPARSE_MMAP, 0, areas));
    let many: Vec<_> = (0..17).map(|n| (n, 1)).collect();
    for (what, body) in [
        ("beyond the region", sparse(&[(0x1000, 0x1001)])),
        ("around the end of all numbers", sparse(&[(u64::MAX, 2)])),
        ("more parts than descriptors", sparse(&many)),
        ("beyond a file of 64 bits", info(MMAP, 0, 0x2000, u64::MAX - 0x1000, &[])),
        ("a chain that turns back", info(MMAP | CAPS, 32, 0x2000, 0, &capability(7, 32, &[]))),
        ("a chain beyond the answer", info(MMAP | CAPS, 4000, 0x2000, 0, &[])),
        (
            "a capability that is cut off",
            info(MMAP | CAPS, 32, 0x2000, 0, &capability(SPARSE_MMAP, 0, &[(0, 1)])[..24]),
        ),
    ] {
        assert!(Region::from_reply(0, &body).is_err(), "{what}");
    }
    assert!(Region::from_reply(1, &info(READ, 0, 0x2000, 0, &[])).is_err(), "another region");
    let asked = RegionAccess { offset: 0x14, region: 0, count: 4 };
    for (offset, region, count, data, good) in [
        (0x14, 0, 4, 4, true),
        (0x14, 0, 4, 3, false),
        (0x10, 0, 4, 4, false),
        (0x14, 1, 4, 4, false),
        (0x14, 0, 8, 8, false),
        (0x14, 0, 4, 9, true),
    ] {
        let words = [region, count].map(u32::to_ne_bytes).concat();
        let body = [&u64::to_ne_bytes(offset)[..], &words, &vec![7; data]].concat();
        assert_eq!(region_data(&asked, &body).is_ok(), good, "{offset:#x} {region} {count} {data}");
    }
}

proptest! {
    /// Any bytes are refused or parsed to areas within the region.
    #[test]
    fn any_bytes_are_parsed_or_refused(mut body in vec(any::<u8>(), 0..200), flags in 0u32..16, first in 0u32..64) {
        if body.len() >= 16 {
            body[..4].copy_from_slice(&100u32.to_ne_bytes());
            body[4..8].copy_from_slice(&flags.to_ne_bytes());
            body[8..12].copy_from_slice(&0u32.to_ne_bytes());
            body[12..16].copy_from_slice(&first.to_ne_bytes());
        }
        if let Ok(region) = Region::from_reply(0, &body) {
            prop_assert!(region.areas.len() <= Region::MAX_AREAS);
            prop_assert!(region.areas.iter().all(|area| area.offset + area.bytes <= region.bytes));
        }
        _ = DeviceInfo::from_reply(&body);
        _ = Interrupts::from_reply(2, &body);
        _ = region_data(&RegionAccess { offset: 0, region: 0, count: 4 }, &body);
    }
}
