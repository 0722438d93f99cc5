use proptest::prelude::*;

use super::*;

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

/// The answer of Linux 6.12 with QEMU's intel-iommu: IOVA ranges, then the number of mappings left.
fn iommu(nr: u32, next: u32) -> Vec<u8> {
    let fixed = [24, bind::VFIO_IOMMU_INFO_PGSIZES | bind::VFIO_IOMMU_INFO_CAPS, 0x1000, 0, 24, 0];
    let ranges = [
        header(1, next).to_vec(),
        vec![nr, 0],
        pair(0, 0xfedf_ffff),
        pair(0xfef0_0000, (1 << 39) - 1),
    ]
    .concat();
    words(&[fixed.to_vec(), ranges, header(3, 0).to_vec(), vec![65535, 0]].concat())
}

#[test]
fn iommu_ranges_are_parsed() {
    assert_eq!(
        iommu_info(&iommu(2, 72)).unwrap(),
        (vec![0..0xfee0_0000, 0xfef0_0000..1 << 39], 0x1000)
    );
    let old = words(&[24, bind::VFIO_IOMMU_INFO_PGSIZES, 0x1000, 0, 0, 0]);
    assert_eq!(iommu_info(&old).unwrap(), (vec![], 0x1000));
}

#[test]
fn bad_capability_chains_are_malformed() {
    assert!(
        iommu_info(&iommu(2, 24)).unwrap_err().to_string().contains("at byte 28 of"),
        "to itself"
    );
    assert!(iommu_info(&iommu(2, 8)).unwrap_err().to_string().contains("at byte 28 of"), "back");
    assert!(iommu_info(&iommu(2, 4000)).is_err(), "outside");
    assert!(iommu_info(&iommu(u32::MAX, 72)).is_err(), "more ranges than there are");
    for len in 0..iommu(2, 72).len() - 8 {
        assert!(iommu_info(&iommu(2, 72)[..len]).is_err(), "cut off at {len}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), flags: u32, first in 0u32..210) {
        // Most random flags would mean no capabilities, or a chain outside the bytes.
        for (at, value) in [(4, flags), (16, first)] {
            if let Some(place) = bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_ne_bytes());
            }
        }
        _ = iommu_info(&bytes);
    }
}
