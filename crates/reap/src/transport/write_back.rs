//! What a file or block device that is open for writing has lost: writes whose write-back failed, and blocks that were cut off.
//!
//! The kernel reports a failed write-back once for each open file description, to the `fsync` that asks next; the one after it
//! succeeds although the writes are gone (fsync(2); Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020).
//! So the first failure counts until the file is closed: every later Flush, and every write with FUA, fails. One of these is
//! shared by all queues, paths and servers of the process that write to the file.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::io::Errno;

/// What was lost since the file was opened.
#[derive(Debug, Default)]
pub(crate) struct WriteBack {
    failed: AtomicBool,
    truncated: AtomicBool,
}

impl WriteBack {
    /// A Flush, or a write with FUA, has failed for want of durability: what others wrote before may be gone as well.
    pub(crate) fn fail(&self) {
        if !self.failed.swap(true, Release) {
            tracing::error!("a write-back failed: each Flush and each write with FUA fails until the file or device is opened again");
        }
    }

    /// Whether writes that were acknowledged may be gone.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// Whether the regular file `file`, of `bytes` bytes at open, holds fewer now, or did at an earlier call: a write controller its end
    /// would make it grow again, with zeroes where data were. No system call asks and writes in one step, so a file that is cut
    /// while a write is on its way is found out by the next.
    pub(crate) fn is_truncated(&self, file: &File, bytes: u64) -> bool {
        if self.truncated.load(Acquire) {
            return true;
        }
        let now = rustix::fs::fstat(file).map_or(bytes, |stat| stat.st_size.cast_unsigned());
        let cut = now < bytes;
        if cut {
            let path = name_of(file);
            tracing::error!("{path} was truncated to {now} bytes while in use: writes and Flushes fail until it is opened again");
            self.truncated.store(true, Release);
            // What it held there was acknowledged, and is gone.
            self.fail();
        }
        cut
    }
}

/// Where an open file is, for people.
pub(super) fn name_of(file: &File) -> String {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::read_link(link).map_or_else(|_| "a file".to_owned(), |path| path.display().to_string())
}

/// Whether an error of a write that is to be durable says that other writes may be lost. `cached`: it passed the page cache, where room
/// is found, or not, at write-back.
pub(crate) fn loses_others(errno: i32, cached: bool) -> bool {
    let is = |one: Errno| one.raw_os_error() == errno;
    is(Errno::IO) || cached && (is(Errno::NOSPC) || is(Errno::DQUOT))
}
