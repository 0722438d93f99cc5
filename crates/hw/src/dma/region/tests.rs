use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use nvme::BusError;

use super::super::{Chunk, DmaPool, Pages, Pinner, PoolOptions};
use super::*;

mod lifetimes;

/// Pages that count when they are freed.
type Tracked = (Pages, Count);

#[derive(Debug)]
pub(super) struct Count(Arc<AtomicU32>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn tracked(bytes: usize) -> (Tracked, Arc<AtomicU32>) {
    let freed = Arc::new(AtomicU32::new(0));
    ((Pages::new(bytes).unwrap(), Count(freed.clone())), freed)
}

/// Part of an allocation of pages.
#[derive(Debug)]
struct Part(Pages, Range<usize>);

// SAFETY: the pages are, and so is each part of them.
unsafe impl Memory for Part {
    fn bytes(&mut self) -> NonNull<[u8]> {
        NonNull::from(&mut self.0[self.1.clone()])
    }
}

fn pool() -> DmaPool {
    DmaPool::new(4 << 20).unwrap()
}

#[test]
fn regions_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<Region<Tracked>>();
}

#[test]
fn partial_pages_are_refused() {
    let pool = pool();
    for range in [0..0, 0..4095, 512..4608, 1..4097] {
        let (why, part) =
            pool.register(Part(Pages::new(8192).unwrap(), range.clone())).unwrap_err();
        assert!(matches!(why, RegisterError::Shape { .. }), "{range:?}: {why}");
        assert_eq!(part.1, range);
    }
    let (why, _) = pool.register(Part(Pages::new(4096).unwrap(), 0..512)).unwrap_err();
    assert!(
        why.to_string()
            .ends_with(" are not 1 page to 1 TiB of whole pages; align address and length to 4096"),
        "{why}"
    );
    assert!(pool.register(Part(Pages::new(8192).unwrap(), 4096..8192)).is_ok());
}

/// Pages whose owner claims this file.
#[derive(Debug)]
struct Filed(Pages, OwnedFd);

// SAFETY: the pages are; that they are of the file is not true, and no device here reaches them by
// it.
unsafe impl Memory for Filed {
    fn bytes(&mut self) -> NonNull<[u8]> {
        self.0.bytes()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.1.as_fd(), 0))
    }
}

/// A pinner for a device in another process, which receives the files.
#[derive(Debug)]
struct Elsewhere {
    trusted: bool,
}

impl Pinner for Elsewhere {
    fn pin(&self, _: Chunk, _: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        Ok(())
    }

    fn needs_file(&self) -> bool {
        true
    }

    fn is_trusted(&self) -> bool {
        self.trusted
    }

    fn unpin(&self, _: Chunk) {}
}

/// A process that receives an unsealed file can take pages away from its owner.
#[test]
fn shared_memory_is_sealed() {
    let sealed = |flags, seals| {
        let file =
            memfd_create("memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags).ok()?;
        ftruncate(&file, 2 << 20).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        Some(file)
    };
    let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    for (flags, seals, why) in [
        (MemfdFlags::empty(), SealFlags::SHRINK, None),
        (MemfdFlags::empty(), SealFlags::GROW, Some("F_SEAL_SHRINK")),
        (huge, SealFlags::SHRINK, Some("huge pages")),
    ] {
        for trusted in [false, true] {
            let Some(file) = sealed(flags, seals) else {
                println!("SKIPPED: this kernel has no hugetlbfs");
                continue;
            };
            let pool = PoolOptions {
                pinner: Some(Arc::new(Elsewhere { trusted })),
                ..PoolOptions::default()
            }
            .open(4 << 20)
            .unwrap();
            match (pool.register(Filed(Pages::new(4096).unwrap(), file)), why.filter(|_| !trusted))
            {
                (Ok(_), None) => {}
                (Err((error @ RegisterError::MayLosePages(_), _)), Some(why)) => {
                    assert!(error.to_string().contains(why), "{error}")
                }
                (registered, why) => panic!("{registered:?}, {why:?}"),
            }
        }
    }
}

#[test]
fn failed_registration_returns_the_memory() {
    let pool = pool();
    let (memory, freed) = tracked(4096);
    let base = pool.register(Pages::new(4096).unwrap()).unwrap().base();
    let (why, memory) = pool
        .register_with(memory, |bytes| {
            assert_eq!(bytes, 4096);
            Err(io::Error::other("no room").into())
        })
        .unwrap_err();
    assert_eq!(why.to_string(), "cannot set up the memory for the device: no room");
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    // Its bus addresses are free.
    assert_eq!(pool.register(memory).unwrap().base(), base);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn ranges_are_used_once() {
    let pool = pool();
    let region = pool.register(Pages::new(16384).unwrap()).unwrap();
    let middle = region.buffer(4096..8192).unwrap();
    for range in [4096..8192, 0..4608, 7680..8704, 0..16384, 4608..5120] {
        assert!(
            matches!(
                region.buffer(range.clone()),
                Err(RangeError::Taken { start: 4096, end: 8192 })
            ),
            "{range:?}"
        );
    }
    let taken = region.buffer(0..16384).unwrap_err();
    assert_eq!(
        taken.to_string(),
        "bytes 4096..8192 of the region are in use until their buffer is dropped"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "bad input")]
    for range in [0..0, 8192..4096, 0..511, 100..612, 16384..16896, 0..usize::MAX] {
        assert!(
            matches!(region.buffer(range.clone()), Err(RangeError::Shape { bytes: 16384, .. })),
            "{range:?}"
        );
    }
    let shape = region.buffer(0..100).unwrap_err();
    assert_eq!(
        shape.to_string(),
        "bytes 0..100 are not whole units of 512 bytes in a region of 16384 bytes"
    );
    assert_eq!((middle.addr(), middle.len()), (region.base() + 4096, 4096));
    let sides = [region.buffer(0..4096).unwrap(), region.buffer(8192..16384).unwrap()];
    drop(middle);
    let again = region.buffer(4608..5120).unwrap();
    assert!(again.is_of(pool.key()) && sides.iter().all(|buf| buf.is_of(pool.key())));
    assert!(!again.is_of(self::pool().key()));
}

#[test]
fn pages_are_lent_in_part() {
    let pool = pool();
    let region = pool.register(Pages::new(8192).unwrap()).unwrap();
    let held = region.buffer(1024..1536).unwrap();
    // Longer than a page, but not whole pages.
    let lent = region.buffer(1536..8192).unwrap().lend();
    assert_eq!(pool.check(region.base() + 1536, 6656), Ok(()));
    assert!(pool.check(held.addr(), 1).is_err() && pool.check(region.base() + 1535, 2).is_err());
    let first = region.buffer(0..1024).unwrap().lend();
    assert!(pool.check(first.addr(), 1024).is_ok() && pool.check(first.addr(), 1025).is_err());
    let _buffers = [lent.take_back(), first.take_back(), held];
    assert!(pool.check(region.base(), 1).is_err());
}

#[test]
fn copies_stay_in_their_region() {
    let pool = pool();
    let [one, two] = [(); 2].map(|()| pool.register(Pages::new(4096).unwrap()).unwrap());
    assert_eq!((one.base(), two.base()), (pool.base() + pool.len(), one.base() + 4096));
    let lent = [&one, &two].map(|region| region.buffer(0..4096).unwrap().lend());
    assert!(pool.check(one.base(), 4096).is_ok() && pool.check(two.base(), 4096).is_ok());
    for (addr, len) in
        [(one.base() + 4095, 2), (one.base() - 1, 2), (two.base(), 4097), (two.base() + 4096, 1)]
    {
        assert_eq!(pool.check(addr, len), Err(BusError { addr, len }));
    }
    assert!(self::pool().check(one.base(), 1).is_err());
    drop(lent.map(Lent::take_back));
}

#[test]
fn region_descriptions_stay_lent() {
    let pool = pool();
    let region = pool.register_with(Pages::new(8192).unwrap(), |bytes| {
        let mut attached = pool.alloc(512).unwrap();
        attached[..8].copy_from_slice(&bytes.to_le_bytes());
        Ok(Some(attached.lend()))
    });
    let region = region.unwrap();
    let lent = region.buffer(0..4096).unwrap().lend();
    let &Attachment { base, addr, ref written, .. } = lent.attachment().unwrap();
    assert!(written.len() == 1 && !written[0].load(std::sync::atomic::Ordering::Relaxed));
    let mut seen = [0; 8];
    pool.dma_read(addr, &mut seen).unwrap();
    assert_eq!((base, u64::from_le_bytes(seen)), (region.base(), 8192));
    drop(region);
    assert!(pool.check(addr, 512).is_ok());
    drop(lent.take_back());
    assert!(pool.check(addr, 512).is_err());
    assert!(pool.alloc(512).unwrap().lend().take_back().len() == 512 && pool.leaked() == 0);
}

/// A device that accesses memory at any time, against the rules, never accesses freed memory.
#[test]
fn probes_of_changing_regions_are_refused() {
    const ROUNDS: u32 = 2000;
    let pool = pool();
    let (over, met) = (AtomicBool::new(false), AtomicU32::new(0));
    let first = pool.base() + pool.len();
    let freed = Arc::new(AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let reached = pool.dma_write(first, &[1]).is_ok()
                    || pool.dma_read(first + 4095, &mut [0]).is_ok();
                met.fetch_add(reached.into(), Ordering::Relaxed);
            }
        });
        for _ in 0..ROUNDS {
            let pages = (Pages::new(4096).unwrap(), Count(freed.clone()));
            let region = pool.register(pages).unwrap();
            let buf = region.buffer(0..4096).unwrap();
            drop(region);
            assert!(buf.iter().all(|&byte| byte == 0));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!((met.load(Ordering::Relaxed), freed.load(Ordering::Relaxed)), (0, ROUNDS));
}
