//! An I/O, its place, the part of a target that a thread uses, and how an I/O failed.

use std::fmt;
use units::Op;

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Below the job's `iodepth`; no two I/Os in flight share one. The index of its buffer.
    pub slot: u32,
    /// Read, write, or the Flush of [`Job::sync_every`](crate::job::Job::sync_every), which has neither place nor length.
    pub op: Op,
    /// Index of the target it goes to.
    pub target: u16,
    /// First byte on that target.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Where and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub op: Op,
    pub target: u16,
    pub offset: u64,
    pub len: u32,
}

/// The part of one target that a job thread uses, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// Length.
    pub len: u64,
}

/// Why an I/O failed, as an errno: what fio prints as `err=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    /// Input/output error.
    pub const EIO: ErrorCode = ErrorCode(5);
    /// No space left on device.
    pub const ENOSPC: ErrorCode = ErrorCode(28);
    /// Invalid or incomplete multibyte or wide character: what fio reports for a failed verification.
    pub const EILSEQ: ErrorCode = ErrorCode(84);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

/// The first I/O of a job that failed; the job ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub code: ErrorCode,
    /// What it was.
    pub op: Op,
    /// Index of the job's target.
    pub target: u16,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.op.name().to_lowercase();
        write!(f, "{what} at offset {}, length {}: {}", self.offset, self.len, self.code)
    }
}
