//! Where I/O goes.

use units::Op;

/// Where and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::generator) struct Place {
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
