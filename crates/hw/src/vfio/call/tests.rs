#![allow(clippy::single_range_in_vec_init)] // a list of ranges may have one

use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A word of 64 bits as two of 32.
fn long(value: u64) -> [u32; 2] {
    let bytes = value.to_ne_bytes();
    [0, 4].map(|at| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()))
}

fn header(id: u16, next: u32) -> [u32; 2] {
    let [a, b] = id.to_ne_bytes();
    let [c, d] = 1u16.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), next]
}

fn pair(from: u64, to: u64) -> Vec<u32> {
    [long(from), long(to)].concat()
}

/// What Linux 6.12 answers behind QEMU's intel-iommu: ranges, then the mappings left.
fn iommu(nr: u32, next: u32) -> Vec<u8> {
    let fixed = [24, bind::VFIO_IOMMU_INFO_PGSIZES | bind::VFIO_IOMMU_INFO_CAPS, 0x1000, 0, 24, 0];
    let ranges = [header(1, next).to_vec(), vec![nr, 0], pair(0, 0xfedf_ffff), pair(0xfef0_0000, (1 << 39) - 1)].concat();
    words(&[fixed.to_vec(), ranges, header(3, 0).to_vec(), vec![65535, 0]].concat())
}

#[test]
fn an_iommu_says_what_it_maps() {
    let info = iommu_info(&iommu(2, 72)).unwrap();
    assert_eq!(info, IommuInfo { windows: vec![0..0xfee0_0000, 0xfef0_0000..1 << 39], page_sizes: 0x1000, mappings_left: Some(65535) });
    let old = words(&[24, bind::VFIO_IOMMU_INFO_PGSIZES, 0x1000, 0, 0, 0]);
    assert_eq!(iommu_info(&old).unwrap(), IommuInfo { page_sizes: 0x1000, ..IommuInfo::default() });
}

#[test]
fn bad_capability_chains_are_malformed() {
    assert!(iommu_info(&iommu(2, 24)).unwrap_err().to_string().contains("at byte 28 of"), "to itself");
    assert!(iommu_info(&iommu(2, 8)).unwrap_err().to_string().contains("at byte 28 of"), "back");
    assert!(iommu_info(&iommu(2, 4000)).is_err(), "outside");
    assert!(iommu_info(&iommu(u32::MAX, 72)).is_err(), "more ranges than there are");
    for len in 0..iommu(2, 72).len() - 4 {
        assert!(iommu_info(&iommu(2, 72)[..len]).is_err(), "cut off at {len}");
    }
}

fn bar(flags: u32, bytes: u64, areas: &[(u64, u64)]) -> Vec<u8> {
    let fixed = [vec![32, flags, 0, 32], long(bytes).to_vec(), long(0).to_vec()].concat();
    let areas: Vec<u32> = [header(1, 0).to_vec(), vec![areas.len() as u32, 0]]
        .into_iter()
        .chain(areas.iter().map(|&(from, bytes)| pair(from, bytes)))
        .flatten()
        .collect();
    words(&[fixed, areas].concat())
}

#[test]
fn mappable_areas_are_parsed() {
    let (map, caps) = (bind::VFIO_REGION_INFO_FLAG_MMAP, bind::VFIO_REGION_INFO_FLAG_CAPS);
    let mappable = |answer: &[u8]| region_info(answer, PAGE).unwrap().mappable;
    assert_eq!(mappable(&bar(0, 0x4000, &[])), [], "by the file alone");
    assert_eq!(mappable(&bar(map, 0x4000, &[])), [0..0x4000], "all of it");
    let around = bar(map | caps, 0x4000, &[(0x3000, 0x1000), (0, 0x2000)]);
    assert_eq!(mappable(&around), [0..0x2000, 0x3000..0x4000], "around the MSI-X table");
    let odd = bar(map | caps, 0x3800, &[(0x800, 0x1800), (0x3000, 0x9000), (0x1000, 8)]);
    assert_eq!(mappable(&odd), [0x1000..0x2000], "whole pages inside the region, none twice");
    assert_eq!(mappable(&bar(map | caps, 0x4000, &[])), [], "a list without areas");
}

fn inside(ranges: &[Range<u64>], end: u64) -> bool {
    let ordered = ranges.windows(2).all(|two| two[0].end <= two[1].start);
    ordered && ranges.iter().all(|range| range.start < range.end && range.end <= end)
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), flags: u32, first in 0u32..210) {
        // Most of what is drawn would have no capabilities, or none within the bytes.
        for (at, value) in [(4, flags), (12, first), (16, first)] {
            if let Some(place) = bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_ne_bytes());
            }
        }
        if let Ok(info) = iommu_info(&bytes) {
            prop_assert!(inside(&info.windows, u64::MAX), "{:x?}", info);
        }
        if let Ok(info) = region_info(&bytes, PAGE) {
            prop_assert!(inside(&info.mappable, info.bytes), "{:x?}", info);
            prop_assert!(info.mappable.iter().all(|area| area.start % PAGE == 0 && area.end % PAGE == 0));
        }
    }
}
