use hw::{DmaBuf, Pages};
use nvme::prp::{PageSize, Walker};
use proptest::prelude::*;

use super::*;

/// Where a controller finds the data, by the independent walker of the other side.
fn walked(pool: &DmaPool, prp1: u64, prp2: u64, bytes: u32) -> Vec<u64> {
    let mut walker = Walker::new(Dptr { prp1, prp2 }, u64::from(bytes), PageSize::from_mps(0))
        .expect("valid pointers");
    let mut pages = Vec::new();
    let mut fetch = |addr: u64, into: &mut [u8]| pool.dma_read(addr, into);
    while let Some(segment) = walker.next(&mut fetch).expect("a valid list") {
        pages.extend((segment.addr..segment.addr + segment.len).step_by(4));
    }
    pages
}

fn every_4_bytes(addr: u64, bytes: u32) -> Vec<u64> {
    (addr..addr + u64::from(bytes)).step_by(4).collect()
}

fn offset() -> impl Strategy<Value = u64> {
    (0u64..1024).prop_map(|o| o * 4)
}

fn bytes() -> impl Strategy<Value = u32> {
    (1u32..=PrpTable::MAX_BYTES / 4).prop_map(|b| b * 4)
}

proptest! {
    #[test]
    fn pool_lists_name_whole_buffers(page in 0u64..1024, offset in offset(), bytes in bytes()) {
        let pool = DmaPool::new(16 << 20).unwrap();
        let table = PrpTable::new(&pool).unwrap();
        let addr = pool.base() + page * PAGE + offset;
        prop_assume!(addr + u64::from(bytes) <= pool.base() + pool.len());
        let Dptr { prp1, prp2 } = table.data(addr, bytes, &None, || false).0;
        prop_assert_eq!(walked(&pool, prp1, prp2, bytes), every_4_bytes(addr, bytes));
    }

    #[test]
    fn region_lists_name_whole_buffers(pages in 1usize..1500, start in 0u64..1500, offset in offset(), bytes in bytes()) {
        let pool = DmaPool::new(4 << 20).unwrap();
        let table = PrpTable::new(&pool).unwrap();
        // Two regions, so that one's table is not the other's.
        let [_other, region] = [3 * PAGE as usize, pages * PAGE as usize].map(|bytes| register(&pool, Pages::new(bytes).unwrap()).unwrap());
        let start = start * PAGE + offset;
        prop_assume!(start + u64::from(bytes) <= region.len() as u64);
        let lent = region.buffer(0..region.len()).unwrap().lend();
        let (addr, lent) = (lent.addr() + start, Some(lent));
        let Dptr { prp1, prp2 } = table.data(addr, bytes, &lent, || false).0;
        prop_assert_eq!(walked(&pool, prp1, prp2, bytes), every_4_bytes(region.base() + start, bytes));
        drop(lent.map(Lent::take_back));
    }
}

proptest! {
    /// Where there are SGLs no list is written or read, and what a command holds is the same
    /// buffer.
    #[test]
    fn sgl_controllers_need_no_list(page in 0u64..1024, offset in offset(), bytes in bytes()) {
        let pool = DmaPool::new(16 << 20).unwrap();
        let table = PrpTable::new(&pool).unwrap();
        let addr = pool.base() + page * PAGE + offset;
        prop_assume!(addr + u64::from(bytes) <= pool.base() + pool.len());
        let (dptr, psdt) = table.data(addr, bytes, &None, || true);
        prop_assert!(table.written.iter().all(|written| !written.load(Acquire)));
        let mut found = Vec::new();
        let add = |segment: nvme::prp::Segment| found.extend((segment.addr..segment.addr + segment.len).step_by(4));
        match psdt {
            Sqe::PSDT_SGL => nvme::sgl::walk(dptr, bytes.into(), |_, _| Err(()), add).expect("nothing to fetch"),
            _ => found = walked(&pool, dptr.prp1, dptr.prp2, bytes),
        }
        prop_assert_eq!(psdt == Sqe::PSDT_SGL, offset + u64::from(bytes) > 2 * PAGE);
        prop_assert_eq!(found, every_4_bytes(addr, bytes));
    }
}

/// Negative test: in a table whose pages do not overlap, a run would cross the end of a page.
#[test]
fn disjoint_runs_leave_their_page() {
    let last = ENTRIES - 1;
    let in_overlapping_table = entry_of(0, last) % PAGE;
    assert!(in_overlapping_table + (RUN - 1) * 8 < PAGE);
    assert!(last * 8 % PAGE + (RUN - 1) * 8 >= PAGE);
}

#[test]
fn regions_own_their_prp_table() {
    let pool = DmaPool::new(4 << 20).unwrap();
    let region = register(&pool, Pages::new(1 << 20).unwrap()).unwrap();
    let buf: DmaBuf = region.buffer(0..1 << 20).unwrap();
    drop(region);
    let lent = buf.lend();
    let table = lent.attachment().unwrap().addr;
    assert!(pool.check(table, PAGE).is_ok());
    drop(lent.take_back());
    assert!(pool.check(table, 1).is_err());
    assert_eq!(pool.leaked(), 0);
}

#[test]
fn failed_tables_return_memory() {
    let pool =
        hw::PoolOptions { address_bits: 33, ..hw::PoolOptions::default() }.open(4 << 20).unwrap();
    // All that is left of the bus addresses: none for the table. Memory is not touched.
    let all = Pages::new((4 << 30) - (4 << 20)).unwrap();
    let (why, all) = register(&pool, all).unwrap_err();
    assert!(matches!(why, RegisterError::NoAddresses { bytes: 16_760_832, .. }), "{why}");
    assert!(pool.register(all).is_ok());
}

/// What of the mapping that `memory` lies in is there, in bytes (proc(5), smaps).
fn resident(memory: *const u8) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let holds = |line: &str| {
        let (from, to) = line.split_ascii_whitespace().next()?.split_once('-')?;
        let ends = [from, to].map(|hex| usize::from_str_radix(hex, 16).ok());
        Some((ends[0]?..ends[1]?).contains(&memory.addr()))
    };
    let mut lines = smaps.lines().skip_while(|line| holds(line) != Some(true));
    let rss = lines.find_map(|line| {
        line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    rss.expect("the pool is mapped") << 10
}

/// A table over 1 GiB has 4 MiB, of which there is as much as commands have needed.
#[test]
fn opening_writes_nothing_of_the_table() {
    let pool = DmaPool::new(1 << 30).unwrap();
    let buf = pool.alloc(512).unwrap();
    let before = resident(buf.as_ptr());
    let table = PrpTable::new(&pool).unwrap();
    assert_eq!(resident(buf.as_ptr()), before);
    let (addr, bytes) = (pool.base() + pool.len() - (1 << 20), 1 << 20);
    let Dptr { prp1, prp2 } = table.data(addr, bytes, &None, || false).0;
    assert_eq!(walked(&pool, prp1, prp2, bytes), every_4_bytes(addr, bytes));
    // A huge page at most.
    assert!(resident(buf.as_ptr()) <= before + (2 << 20));
}

/// The same of a region's: registering it writes nothing, wherever the table lies.
#[test]
fn registering_writes_nothing_of_the_table() {
    let pool = DmaPool::new(4 << 20).unwrap();
    let table = PrpTable::new(&pool).unwrap();
    let region = register(&pool, Pages::new(1 << 30).unwrap()).unwrap();
    let lent = Some(region.buffer(0..region.len()).unwrap().lend());
    let written =
        |k: usize| lent.as_ref().and_then(Lent::attachment).unwrap().written[k].load(Acquire);
    let pages = (region.len() as u64).div_ceil(RUN * PAGE) as usize;
    assert!(!(0..pages).any(written));
    let (addr, bytes) = (region.base() + region.len() as u64 - (1 << 20), 1 << 20);
    for _ in 0..2 {
        let Dptr { prp1, prp2 } = table.data(addr, bytes, &lent, || false).0;
        assert_eq!(walked(&pool, prp1, prp2, bytes), every_4_bytes(addr, bytes));
        assert_eq!((0..pages).filter(|&k| written(k)).collect::<Vec<_>>(), [pages - 1]);
    }
    drop(lent.map(Lent::take_back));
}

/// Threads that need the same page of the table at once each find it whole.
#[test]
fn table_pages_serve_all_threads() {
    let pool = DmaPool::new(64 << 20).unwrap();
    let table = PrpTable::new(&pool).unwrap();
    for part in 0..64 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (table, pool) = (&table, &pool);
                scope.spawn(move || {
                    let (addr, bytes) = (pool.base() + part * (1 << 20) + thread * PAGE, 256 << 10);
                    let Dptr { prp1, prp2 } = table.data(addr, bytes, &None, || false).0;
                    assert_eq!(walked(pool, prp1, prp2, bytes), every_4_bytes(addr, bytes));
                });
            }
        });
    }
}
