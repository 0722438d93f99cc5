use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
    // SAFETY: the pages are there until they are freed, and nobody else has them.
    let mut raw = unsafe { RawMemory::new(at.cast(), 4096, free) };
    assert_eq!(raw.bytes(), at);
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    drop(raw);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}
