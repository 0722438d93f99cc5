//! An I/O, its place, and the part of a target that a thread uses.

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
