//! Pinned memory, and only that, counts against RLIMIT_MEMLOCK. Tested in child processes without
//! CAP_IPC_LOCK, which exempts from the limit.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::Arc;

use hw::{
    AllocError, Backing, Chunk, DmaBuf, DmaPool, Pages, PinError, Pinner, PoolOptions, RangeError,
};
use rustix::mm::{mlock, munlock};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const CHUNK: usize = 4 << 20;
/// Set in the child process, which lowers its own limits.
const CHILD: &str = "REAP_MEMLOCK";

/// Pins as a kernel driver does for a device, within the limit.
#[derive(Debug)]
struct Locked;

impl Pinner for Locked {
    fn pin(&self, chunk: Chunk, _: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        // SAFETY: the chunk is mapped; locking it changes nothing that it holds.
        Ok(unsafe { mlock(chunk.memory.as_ptr().cast::<c_void>(), chunk.bytes as usize) }?)
    }

    fn unpin(&self, chunk: Chunk) {
        // SAFETY: as above.
        unsafe { munlock(chunk.memory.as_ptr().cast::<c_void>(), chunk.bytes as usize) }
            .expect("it was locked");
    }
}

fn pinned_pool(chunks: usize) -> DmaPool {
    let options = PoolOptions { pinner: Some(Arc::new(Locked)), ..PoolOptions::default() };
    options.open((chunks * CHUNK) as u64).unwrap()
}

/// Bytes that the kernel says are locked.
fn locked() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("the kernel reports it");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Sets RLIMIT_MEMLOCK of this process, which must be a child.
fn limit(bytes: u64) {
    assert!(std::env::var_os(CHILD).is_some(), "other tests run in this process");
    setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum: Some(bytes) }).unwrap();
}

/// Whether this thread has CAP_IPC_LOCK.
fn is_exempt() -> bool {
    capabilities(None).unwrap().effective.contains(CapabilitySet::IPC_LOCK)
}

fn drop_exemption() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    sets.permitted.remove(CapabilitySet::IPC_LOCK);
    sets.inheritable.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    assert!(!is_exempt());
}

/// Runs one test of this program in a child process.
fn child(name: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn unpinned_memory_is_not_counted() {
    child("child_without_pinning");
}

#[test]
#[ignore = "runs in a process of its own: unpinned_memory_is_not_counted"]
fn child_without_pinning() {
    drop_exemption();
    limit(0);
    for backing in [Backing::Anonymous, Backing::Memfd, Backing::HugeMemfd] {
        let pool =
            PoolOptions { backing, ..PoolOptions::default() }.open(4 * CHUNK as u64).unwrap();
        let region = pool.register(Pages::new(2 * CHUNK).unwrap()).unwrap();
        let mut bufs = [pool.alloc(2 * CHUNK).unwrap(), region.buffer(0..2 * CHUNK).unwrap()];
        bufs.iter_mut().for_each(|buf| buf.fill(1));
        drop(bufs.map(|buf| buf.lend().take_back()));
        assert_eq!((locked(), pool.pinned()), (0, 0));
    }
    // Without the exemption a pinner gets nothing.
    assert!(matches!(
        pinned_pool(1).alloc(512),
        Err(AllocError::Pin(PinError::Limit { limit: 0, .. }))
    ));
}

#[test]
fn pinned_chunks_count_on_first_use() {
    child("child_that_pins");
}

#[test]
#[ignore = "runs in a process of its own: pinned_chunks_count_on_first_use"]
fn child_that_pins() {
    drop_exemption();
    limit(2 * CHUNK as u64);
    let pool = pinned_pool(16);
    assert_eq!(locked(), 0, "nothing is used yet");
    let small: Vec<DmaBuf> = (0..100).map(|_| pool.alloc(4096).unwrap()).collect();
    assert_eq!(locked(), CHUNK);
    let region = pool.register(Pages::new(2 * CHUNK).unwrap()).unwrap();
    let half = region.buffer(CHUNK..CHUNK + 512).unwrap();
    assert_eq!(locked(), 2 * CHUNK);
    let error = pool.alloc(CHUNK).unwrap_err().to_string();
    assert_eq!(
        error,
        "a device needs 4194304 more bytes pinned in addition to 8388608, and RLIMIT_MEMLOCK is 8388608 bytes; \
         raise it to 12582912 or more (`ulimit -l 12288`, or `LimitMEMLOCK=12582912` of a service)"
    );
    assert!(matches!(region.buffer(0..512), Err(RangeError::Pin(PinError::Limit { .. }))));
    // Pinned memory can still be used.
    assert!(pool.alloc(4096).is_ok() && region.buffer(2 * CHUNK - 512..2 * CHUNK).is_ok());
    drop((half, region));
    assert_eq!(locked(), CHUNK);
    let large = pool.alloc(CHUNK).unwrap();
    drop((small, pool, large));
    assert_eq!(locked(), 0);
    assert!(pinned_pool(2).alloc(2 * CHUNK).is_ok());
}

/// The contrast: with the capability there is no limit.
#[test]
fn an_exempt_process_has_no_limit() {
    if is_exempt() {
        child("child_that_is_exempt");
    }
}

#[test]
#[ignore = "runs in a process of its own: an_exempt_process_has_no_limit"]
fn child_that_is_exempt() {
    assert!(is_exempt());
    limit(2 * CHUNK as u64);
    let pool = pinned_pool(4);
    let _all = pool.alloc(4 * CHUNK).unwrap();
    assert_eq!(locked(), 4 * CHUNK);
}
