use hw::DmaPool;
use nvme::prp::{Dptr, PageSize, Walker};
use proptest::prelude::*;

use super::*;

/// Where a controller finds the data, by the independent walker of the other side.
fn walked(pool: &DmaPool, prp1: u64, prp2: u64, bytes: u32) -> Vec<u64> {
    let mut walker = Walker::new(Dptr { prp1, prp2 }, u64::from(bytes), PageSize::from_mps(0)).expect("valid pointers");
    let mut pages = Vec::new();
    let mut fetch = |addr: u64, into: &mut [u8]| pool.dma_read(addr, into);
    while let Some(segment) = walker.next(&mut fetch).expect("a valid list") {
        pages.extend((segment.addr..segment.addr + segment.len).step_by(4));
    }
    pages
}

proptest! {
    #[test]
    fn a_controller_finds_the_whole_buffer(page in 0u64..1024, offset in (0u64..1024).prop_map(|o| o * 4), bytes in (1u32..=PrpTable::MAX_BYTES / 4).prop_map(|b| b * 4)) {
        let pool = DmaPool::new(16 << 20).unwrap();
        let table = PrpTable::new(&pool).unwrap();
        let addr = pool.base() + page * PAGE + offset;
        prop_assume!(addr + u64::from(bytes) <= pool.base() + pool.len());
        let (prp1, prp2) = table.pointers(addr, bytes);
        prop_assert_eq!(walked(&pool, prp1, prp2, bytes), (addr..addr + u64::from(bytes)).step_by(4).collect::<Vec<_>>());
    }
}

/// The twin: a table whose pages do not overlap sends a run across the end of a page of the list.
#[test]
fn without_overlap_a_run_leaves_its_list_page() {
    let pool = DmaPool::new(16 << 20).unwrap();
    let table = PrpTable::new(&pool).unwrap();
    let last = ENTRIES - 1;
    let in_overlapping_table = table.entry_of(last) % PAGE;
    assert!(in_overlapping_table + (RUN - 1) * 8 < PAGE);
    assert!(last * 8 % PAGE + (RUN - 1) * 8 >= PAGE);
}
