use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::{DmaPool, PoolOptions};
use super::*;

#[test]
fn pages_are_whole_aligned_and_zero() {
    let mut pages = Pages::new(5000).unwrap();
    assert_eq!((pages.len(), pages.as_ptr() as u64 % 4096), (8192, 0));
    assert!(pages.iter().all(|&byte| byte == 0));
    pages[8191] = 3;
    let at = pages.bytes();
    let moved = Box::new(pages);
    assert_eq!((moved.as_ptr(), moved[8191]), (at.cast::<u8>().as_ptr().cast_const(), 3));
    assert_eq!(Pages::new(0).unwrap().len(), 4096);
    assert_eq!(Pages::new(usize::MAX).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
}

#[test]
fn raw_memory_is_freed_once() {
    let freed = Arc::new(AtomicU32::new(0));
    let mut pages = Pages::new(4096).unwrap();
    let (at, count) = (pages.bytes(), freed.clone());
    let free = move || {
        drop(pages);
        count.fetch_add(1, Ordering::Relaxed);
    };
    // SAFETY: the pages last until they are freed, and no other code uses them.
    let mut raw = unsafe { RawMemory::new(at.cast(), 4096, free) };
    assert_eq!(raw.bytes(), at);
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    drop(raw);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

fn pool(backing: Backing) -> DmaPool {
    PoolOptions { backing, ..PoolOptions::default() }.open(4 << 20).unwrap()
}

/// A field of /proc/self/smaps for the mapping that contains `memory`. The mapping may begin
/// earlier: the kernel merges neighbours, which another test may have mapped.
fn smaps(memory: NonNull<u8>, field: &str) -> Option<String> {
    let (maps, at) = (std::fs::read_to_string("/proc/self/smaps").unwrap(), memory.as_ptr() as u64);
    let holds = |line: &&str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        Some((u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?).contains(&at))
    };
    let mut lines = maps.lines().skip_while(|line| holds(line) != Some(true));
    lines.find_map(|line| Some(line.strip_prefix(field)?.trim().to_owned()))
}

/// In kB.
fn kernel_page(memory: NonNull<u8>) -> Option<u64> {
    smaps(memory, "KernelPageSize:")?.strip_suffix(" kB")?.parse().ok()
}

#[test]
fn memory_files_back_the_pool() {
    let pool = pool(Backing::Memfd);
    assert_eq!(pool.backing(), Backing::Memfd);
    let file = File::from(pool.0.own.file.as_ref().unwrap().0.try_clone().unwrap());
    let mut buf = pool.alloc(5000).unwrap();
    buf.fill(7);
    let lent = buf.lend();
    let (at, mut seen) = (lent.addr() - pool.base(), [0; 5000]);
    file.read_exact_at(&mut seen, at).unwrap();
    assert_eq!(seen, [7; 5000]);
    // The device is in another process,
    file.write_all_at(&[9; 10], at + 4090).unwrap();
    assert_eq!(lent.take_back()[4088..4102], [7, 7, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 7, 7]);
    // which cannot take the memory away.
    assert!(file.set_len(0).is_err() && file.set_len(8 << 20).is_err());
}

#[test]
fn only_memory_files_have_descriptors() {
    assert!(pool(Backing::Anonymous).0.own.file.is_none());
}

/// Number of free reserved huge pages, with a limit. `tests/hugepages.sh` runs these tests on a
/// machine with some.
fn set_aside() -> usize {
    let read = |what: &str| -> Option<usize> {
        let text =
            std::fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{what}"))
                .ok()?;
        text.trim().parse().ok()
    };
    ["nr_hugepages", "nr_overcommit_hugepages"].into_iter().filter_map(read).sum()
}

#[test]
fn huge_pages_are_huge() {
    let (pages, got) = Pages::backed(4 << 20, Backing::HugeMemfd).unwrap();
    let page = kernel_page(pages.mapping.at).unwrap();
    println!("{} huge pages set aside: {got:?}, of pages of {page} kB", set_aside());
    match got {
        Backing::HugeMemfd => assert_eq!(page, 2048),
        Backing::Memfd => assert_eq!(page, 4),
        Backing::Anonymous => panic!("huge pages have a file"),
    }
    let pool = pool(Backing::HugeMemfd);
    let mut buf = pool.alloc(4 << 20).unwrap();
    buf.fill(1);
    let lent = buf.lend();
    pool.dma_write(lent.addr(), &[2]).unwrap();
    assert_eq!(lent.take_back()[..2], [2, 1]);
}

#[test]
fn missing_huge_pages_fall_back() {
    let more = ((set_aside() + 2) as u64) << 21;
    let pool =
        PoolOptions { backing: Backing::HugeMemfd, ..PoolOptions::default() }.open(more).unwrap();
    assert_eq!(pool.backing(), Backing::Memfd);
    assert_eq!(pool.alloc(4096).unwrap()[0], 0);
}

/// With a copy-on-write page a device would write to the page of only one of parent and child.
#[test]
fn forked_children_lack_the_pool() {
    for backing in [Backing::Anonymous, Backing::Memfd, Backing::HugeMemfd] {
        let pool = pool(backing);
        let flags = smaps(pool.0.own.at(0), "VmFlags:").unwrap();
        // Do not copy area on fork (proc(5)).
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{backing:?}: {flags}");
    }
}
