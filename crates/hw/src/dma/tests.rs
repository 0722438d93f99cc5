use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use nvme::{CqSlots, Cqe, RingIndex, SqSlots, Sqe, Status};
use proptest::prelude::*;

use nvme::BusError;

use super::*;
use super::{CHUNK, MAX_POOL, MIN_BLOCK};

const POOL: u64 = 2 * CHUNK;

fn pool() -> DmaPool {
    DmaPool::new(POOL).unwrap()
}

#[test]
fn buffers_and_rings_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<DmaPool>();
    crosses::<DmaBuf>();
    crosses::<Lent>();
    crosses::<SqRing>();
    crosses::<CqRing>();
}

#[test]
fn device_writes_reach_the_host() {
    let pool = pool();
    let mut buf = pool.alloc(5000).unwrap();
    buf.fill(7);
    let (addr, lent) = (buf.addr(), buf.lend());
    assert_eq!((lent.addr(), lent.len()), (addr, 5000));
    let mut seen = [0; 3];
    pool.dma_read(addr + 4095, &mut seen).unwrap();
    assert_eq!(seen, [7; 3]);
    pool.dma_write(addr + 4095, &[1, 2]).unwrap();
    let buf = lent.take_back();
    assert_eq!((buf.addr(), &buf[4094..4098]), (addr, &[7, 1, 2, 7][..]));
}

#[test]
fn only_lent_memory_is_accessible() {
    let pool = pool();
    let (held, small, large) = (
        pool.alloc(512).unwrap(),
        pool.alloc(512).unwrap().lend(),
        pool.alloc(8192).unwrap().lend(),
    );
    let ring = pool.alloc_ring(4096).unwrap();
    let refused = [
        (held.addr(), 1),                        // the application holds it
        (held.as_ptr() as u64, 1),               // a pointer is not a bus address
        (ring.addr(), 16),                       // a ring
        (small.addr(), 513),                     // runs into what is not lent
        (small.addr() - 1, 2),                   // begins before
        (large.addr() + 8191, 2),                // leaves at the end
        (pool.base() + pool.len(), 1),           // behind the pool
        (pool.base() + pool.len() - 1, 1),       // free
        (pool.base() - 1, 1),                    // before the pool
        (0, 1),                                  // null
        (u64::MAX, u64::MAX),                    // overflows
        (large.addr(), u64::MAX),                // overflows
        (DmaPool::new(POOL).unwrap().base(), 1), // another pool
    ];
    for (addr, len) in refused {
        assert_eq!(pool.check(addr, len), Err(BusError { addr, len }), "{addr:#x}..+{len:#x}");
    }
    assert_eq!(pool.dma_read(held.addr(), &mut [0]), Err(BusError { addr: held.addr(), len: 1 }));
    assert_eq!(pool.dma_write(held.addr(), &[0]), Err(BusError { addr: held.addr(), len: 1 }));
    assert_eq!(
        (pool.check(small.addr(), 512), pool.check(large.addr() + 1, 8191)),
        (Ok(()), Ok(()))
    );
    let (addr, _) = (small.addr(), (small.take_back(), large.take_back()));
    assert!(pool.check(addr, 1).is_err());
}

#[test]
fn adjacent_lent_blocks_are_one_range() {
    let pool = pool();
    let lent: Vec<Lent> =
        [512, 512, 1024, 2048, 4096].map(|len| pool.alloc(len).unwrap().lend()).into();
    let first = lent.iter().map(Lent::addr).min().unwrap();
    assert_eq!(pool.check(first, 8192), Ok(()));
    let _held: Vec<DmaBuf> = lent.into_iter().map(Lent::take_back).collect();
}

#[test]
fn dropped_lent_buffers_are_counted() {
    let pool = pool();
    let lent = pool.alloc(3000).unwrap().lend();
    let addr = lent.addr();
    drop(lent);
    assert_eq!(pool.leaked(), 4096);
    // The device may still write there, so it is never allocated again.
    assert_eq!(pool.dma_write(addr, &[1]), Ok(()));
    let others: Vec<DmaBuf> = std::iter::from_fn(|| pool.alloc(4096).ok()).collect();
    assert_eq!(others.len() as u64, POOL / 4096 - 1);
    assert!(others.iter().all(|buf| buf.addr() != addr));
}

#[test]
fn full_pools_name_the_remedy() {
    let pool = pool();
    let _all: Vec<DmaBuf> = std::iter::from_fn(|| pool.alloc(CHUNK as usize).ok()).collect();
    assert_eq!(
        pool.alloc(512).unwrap_err().to_string(),
        "the DMA pool of 8388608 bytes has no 512 contiguous bytes left; make it larger or keep fewer buffers"
    );
    assert!(matches!(pool.alloc(usize::MAX), Err(AllocError::Full { wanted: usize::MAX, .. })));
    assert!(pool.alloc_ring(usize::MAX).is_err());
}

#[test]
fn pool_sizes_are_checked() {
    assert_eq!(DmaPool::new(1).unwrap().len(), CHUNK);
    assert_eq!(DmaPool::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(
        DmaPool::new(0).unwrap_err().to_string(),
        "a DMA pool holds 1 byte to 1 TiB, not 0 bytes"
    );
    assert_eq!(DmaPool::new(MAX_POOL + 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    // Address space only, for the marks too.
    let pool = DmaPool::new(64 << 30).unwrap();
    assert_eq!(pool.alloc(1 << 20).unwrap()[12345], 0);
}

#[test]
fn bus_addresses_fit_the_device() {
    let narrow = PoolOptions { address_bits: 39, ..PoolOptions::default() };
    for _ in 0..70 {
        let pool = narrow.open(256 << 20).unwrap();
        let region = pool.register(Pages::new(8192).unwrap()).unwrap();
        let buf = region.buffer(4096..8192).unwrap();
        let last = [pool.base() + pool.len(), buf.addr() + 4096];
        assert!(last.iter().all(|&end| end <= 1 << 39) && pool.base() >= 1 << 32, "{last:x?}");
    }
    assert_eq!(
        narrow.open(1 << 39).unwrap_err().to_string(),
        "a DMA pool of 549755813888 bytes does not fit: bus addresses have 39 bits, and the largest range that the IOMMU does not reserve has 545460846592 bytes"
    );
    let tiny = PoolOptions { address_bits: 33, ..PoolOptions::default() }.open(4 << 20).unwrap();
    let (why, _) = tiny.register(Pages::new(4 << 30).unwrap()).unwrap_err();
    assert_eq!(
        why.to_string(),
        "no 4294967296 contiguous bus addresses are free below 0x200000000, the limit of the device"
    );
}

#[test]
fn rings_are_zeroed_and_stay() {
    let pool = pool();
    let mut buf = pool.alloc(4096).unwrap();
    buf.fill(0xff);
    let addr = buf.addr();
    drop(buf);
    let memory = pool.alloc_ring(100).unwrap();
    assert_eq!((memory.addr(), memory.len), (addr, 4096));
    let ring = pool.cq(addr, 256).unwrap();
    assert!((0..256).all(|slot| !ring.is_new(slot, true)));
    // The controller still has the ring mapped: its block is not reused.
    drop(memory);
    assert_ne!(pool.alloc(4096).unwrap().addr(), addr);
    assert!(pool.cq(addr, 1).is_some());
    drop(ring);
    assert!(pool.cq(addr, 1).is_none());
    assert_eq!(pool.alloc(4096).unwrap().addr(), addr);
}

#[test]
fn rings_need_ring_memory() {
    let pool = pool();
    let memory = pool.alloc_ring(8192).unwrap();
    let at = memory.addr();
    assert!(
        pool.sq(at, 128).is_some()
            && pool.sq(at + 4096, 64).is_some()
            && pool.cq(at, 512).is_some()
    );
    for (addr, entries) in [
        (at, 129),
        (at + 4096, 65),
        (at + 4, 1),
        (at, 0),
        (at - 64, 1),
        (at + 8192, 1),
        (0, 1),
        (u64::MAX - 7, 1),
        (at, u32::MAX),
    ] {
        assert!(pool.sq(addr, entries).is_none(), "{addr:#x} × {entries}");
    }
    let lent = pool.alloc(4096).unwrap().lend();
    assert!(pool.sq(lent.addr(), 1).is_none());
    drop(lent.take_back());
}

#[test]
#[should_panic = "slot 4 of a ring of 4 entries"]
fn slots_outside_the_ring_panic() {
    let pool = pool();
    let memory = pool.alloc_ring(4096).unwrap();
    pool.cq(memory.addr(), 4).unwrap().is_new(4, true);
}

proptest! {
    #[test]
    fn entries_come_back_as_stored(words in any::<[u64; 8]>(), slot in 0..64u32) {
        let pool = pool();
        let memory = pool.alloc_ring(4096).unwrap();
        let (sq, cq) = (pool.sq(memory.addr(), 64).unwrap(), pool.cq(memory.addr(), 256).unwrap());
        sq.store(slot, &Sqe::from_words(words));
        prop_assert_eq!(sq.load(slot).to_words(), words);
        let cqe = Cqe::from_words([words[0], words[1]]);
        cq.store(slot, &cqe);
        prop_assert_eq!(cq.load(slot, cqe.phase()), Some(cqe));
        prop_assert_eq!((cq.load(slot, !cqe.phase()), cq.is_new(slot, !cqe.phase())), (None, false));
    }
}

/// Lends, takes back and drops at random, and compares what the device can access with a map of
/// bytes.
fn access_matches_model(
    steps: &[(u8, usize)],
    probes: &[(u64, u64)],
    check: impl Fn(&DmaPool, u64, u64) -> bool,
) -> Result<(), String> {
    let pool = DmaPool::new(CHUNK).unwrap();
    let (mut held, mut lent): (Vec<DmaBuf>, Vec<Lent>) = (Vec::new(), Vec::new());
    let mut reachable = vec![false; CHUNK as usize];
    for &(step, n) in steps {
        match step {
            0 => held.extend(pool.alloc(n)),
            1 if !held.is_empty() => lent.push(held.swap_remove(n % held.len()).lend()),
            2 if !lent.is_empty() => held.push(lent.swap_remove(n % lent.len()).take_back()),
            3 if !held.is_empty() => drop(held.swap_remove(n % held.len())),
            _ => {}
        }
    }
    for one in &lent {
        // Whole pages of a paged block are accessible, otherwise units of 512 bytes.
        let unit = if one.len() < 4096 { 512 } else { 4096 };
        let start = (one.addr() - pool.base()) as usize;
        reachable[start..start + one.len().next_multiple_of(unit)].fill(true);
    }
    let edges = lent.iter().flat_map(|one| {
        [
            (one.addr() - pool.base(), one.len() as u64),
            (one.addr() - pool.base(), 1 + one.len() as u64),
        ]
    });
    for (offset, len) in probes.iter().copied().chain(edges) {
        let want = (offset..offset + len).all(|at| reachable.get(at as usize) == Some(&true));
        let got = check(&pool, pool.base() + offset, len);
        if want != got {
            return Err(format!("{offset:#x}..+{len:#x}: {got}, but {want} byte by byte"));
        }
    }
    held.extend(lent.into_iter().map(Lent::take_back));
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<(u8, usize)>> {
    prop::collection::vec((0..4u8, prop_oneof![1..6000usize, 1..40_000usize]), 1..60)
}

proptest! {
    #[test]
    fn random_copies_keep_to_lent_memory(
        steps in steps(),
        probes in prop::collection::vec((0..CHUNK / 8, 1..9000u64), 20),
    ) {
        let checked = access_matches_model(&steps, &probes, |pool, addr, len| pool.check(addr, len).is_ok());
        prop_assert_eq!(checked, Ok(()));
    }
}

#[test]
fn range_check_mutant_is_caught() {
    let inside = |pool: &DmaPool, addr: u64, len: u64| addr - pool.base() + len <= pool.len();
    assert!(access_matches_model(&[(0, 512), (1, 0)], &[], inside).is_err());
}

#[test]
fn first_byte_mutant_is_caught() {
    let first = |pool: &DmaPool, addr: u64, _| pool.check(addr, 1).is_ok();
    assert!(access_matches_model(&[(0, 4096), (1, 0)], &[], first).is_err());
}

/// A device thread takes SQEs, writes the data that they name and completes them. The host checks
/// each completion and its data once. 4 slots, so that the rings wrap often. Limited to ten
/// seconds: with other load a time slice is long.
#[test]
fn host_and_device_threads_share_rings() {
    const ENTRIES: u32 = 4;
    const ROUNDS: u64 = 20_000;
    let pool = pool();
    let memory = pool.alloc_ring(8192).unwrap();
    let (sq, cq) =
        (pool.sq(memory.addr(), ENTRIES).unwrap(), pool.cq(memory.addr() + 4096, ENTRIES).unwrap());
    let (tail, start) = (AtomicU64::new(0), Barrier::new(2));
    const OVER: u64 = u64::MAX;
    thread::scope(|scope| {
        let (device_pool, device_sq, device_cq) = (pool.clone(), sq.clone(), cq.clone());
        scope.spawn(|| {
            let (pool, sq, cq) = (device_pool, device_sq, device_cq);
            let (mut consumer, mut producer) = (RingIndex::new(ENTRIES), RingIndex::new(ENTRIES));
            start.wait();
            for done in 0..ROUNDS {
                let posted = loop {
                    match tail.load(Ordering::Acquire) {
                        posted if posted == done => thread::yield_now(),
                        posted => break posted,
                    }
                };
                if posted == OVER {
                    break;
                }
                let sqe = sq.load(consumer.slot());
                consumer.advance();
                pool.dma_write(sqe.prp1, &done.to_ne_bytes()).unwrap();
                let cqe =
                    Cqe { result: done as u32, dw1: !done as u32, cid: sqe.cid, ..Cqe::default() };
                cq.store(producer.slot(), &cqe.with_status(Status::SUCCESS, producer.phase()));
                producer.advance();
            }
        });
        let (mut producer, mut consumer) = (RingIndex::new(ENTRIES), RingIndex::new(ENTRIES));
        let mut buf = pool.alloc(512).unwrap();
        start.wait();
        let begun = std::time::Instant::now();
        for round in 0..ROUNDS {
            if begun.elapsed() > std::time::Duration::from_secs(10) {
                break;
            }
            let lent = buf.lend();
            sq.store(
                producer.slot(),
                &Sqe { cid: round as u16, prp1: lent.addr(), ..Sqe::default() },
            );
            producer.advance();
            tail.store(round + 1, Ordering::Release);
            let cqe = loop {
                match cq.load(consumer.slot(), consumer.phase()) {
                    Some(cqe) => break cqe,
                    None => thread::yield_now(),
                }
            };
            consumer.advance();
            buf = lent.take_back();
            assert_eq!((cqe.result, cqe.dw1, cqe.cid), (round as u32, !round as u32, round as u16));
            assert_eq!(buf[..8], round.to_ne_bytes());
        }
        tail.store(OVER, Ordering::Release);
    });
}

#[test]
fn empty_buffers_take_no_memory() {
    let pool = pool();
    for _ in 0..=POOL / MIN_BLOCK {
        assert_eq!(pool.alloc(0).unwrap().len(), 0);
    }
    let first = pool.alloc(CHUNK as usize).unwrap().lend();
    assert_eq!(pool.leaked(), 0);
    // Lending an empty buffer changes no marks of others.
    drop(pool.alloc(0).unwrap().lend().take_back());
    assert!(pool.check(first.addr(), CHUNK).is_ok());
    drop(first.take_back());
    let nothing = pool.alloc(0).unwrap().lend();
    assert!(pool.check(nothing.addr(), 1).is_err());
    drop(nothing.take_back());
}

/// A device that copies just as the host takes the buffer back, without having completed the
/// command: that breaks the rules, but the host's bytes stay the host's.
#[test]
fn take_back_waits_for_copies() {
    const BYTES: usize = 1 << 20;
    let pool = DmaPool::new(8 << 20).unwrap();
    let mut buf = pool.alloc(BYTES).unwrap();
    let (addr, copied, ended) = (buf.addr(), AtomicU64::new(0), AtomicBool::new(false));
    let changed = thread::scope(|scope| {
        scope.spawn(|| {
            let zeroes = vec![0; BYTES];
            while !ended.load(Ordering::Relaxed) {
                // Refused while it is not lent.
                copied.fetch_add(pool.dma_write(addr, &zeroes).is_ok().into(), Ordering::Relaxed);
            }
        });
        let changed = (0..50).find(|_| {
            let before = copied.load(Ordering::Relaxed);
            let lent = std::mem::replace(&mut buf, pool.empty()).lend();
            // Then it is in the middle of its next copy.
            while copied.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
            buf = lent.take_back();
            let last = &mut buf[BYTES - 4096..];
            last.fill(7);
            (0..20_000).for_each(|_| std::hint::spin_loop());
            // The compiler may assume that no one else writes there.
            std::hint::black_box(&mut buf)[BYTES - 4096..].iter().any(|&byte| byte != 7)
        });
        ended.store(true, Ordering::Relaxed);
        changed
    });
    assert_eq!(changed, None, "a buffer changed in this round while the host owned it");
}
