//! Lost writes of a file or block device: write-back that failed, and blocks that were truncated.
//!
//! The kernel reports a failed write-back once for each open file description, to the next `fsync`.
//! The one after that succeeds although the writes are gone (fsync(2); Rebello et al., "Can
//! Applications Recover from fsync Failures?", ATC 2020). So the first failure is remembered until
//! the file is closed: every later Flush, and every write with FUA, fails. One [`WriteBack`] is
//! shared by all queues, paths and servers of the process that write to the file.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::io::Errno;

/// What was lost since the file was opened. Both flags are only ever set.
#[derive(Debug, Default)]
pub(crate) struct WriteBack {
    failed: AtomicBool,
    truncated: AtomicBool,
}

impl WriteBack {
    /// A Flush, or a write with FUA, failed to reach the medium: writes acknowledged before it may
    /// be gone as well.
    pub(crate) fn fail(&self) {
        if !self.failed.swap(true, Release) {
            tracing::error!(
                "a write-back failed: each Flush and each write with FUA fails until the file or device is opened again"
            );
        }
    }

    /// Whether acknowledged writes may be gone.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// Whether the regular file `file`, of `bytes` bytes at open, has fewer now or had at an
    /// earlier call. A write past its end would make it grow again, with zeroes where data were. No
    /// system call checks and writes in one step, so a file that is truncated while a write is in
    /// flight is detected by the next call.
    pub(crate) fn is_truncated(&self, file: &File, bytes: u64) -> bool {
        if self.truncated.load(Acquire) {
            return true;
        }
        // A size that cannot be read is taken as unchanged: the write itself reports the error.
        let now = rustix::fs::fstat(file).map_or(bytes, |stat| stat.st_size.cast_unsigned());
        let truncated = now < bytes;
        if truncated {
            let path = name_of(file);
            tracing::error!(
                "{path} was truncated to {now} bytes while in use: writes and Flushes fail until it is opened again"
            );
            self.truncated.store(true, Release);
            // The blocks past the new end were acknowledged: no Flush may succeed any more.
            self.fail();
        }
        truncated
    }
}

/// The path of an open file, for messages.
pub(super) fn name_of(file: &File) -> String {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::read_link(link).map_or_else(|_| "a file".to_owned(), |path| path.display().to_string())
}

/// Whether an error of a durable write means that other writes may be lost too. `cached`: it went
/// through the page cache, where ENOSPC and EDQUOT appear at write-back and so concern earlier
/// writes.
pub(crate) fn loses_others(errno: i32, cached: bool) -> bool {
    let is = |one: Errno| one.raw_os_error() == errno;
    is(Errno::IO) || cached && (is(Errno::NOSPC) || is(Errno::DQUOT))
}
