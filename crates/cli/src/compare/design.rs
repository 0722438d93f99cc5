//! How a comparison is laid out: how long its stretches are, and how many of each.

use reap::Nanos;

/// A measured stretch.
pub const BLOCK: Nanos = Nanos::from_millis(100);
/// The stretch before it, in which caches and policies settle.
pub const RAMP: Nanos = Nanos::from_millis(10);
/// With a rate: rounds from one measurement of the capacity to the next.
pub const CAPACITY_EVERY: usize = 4;
/// Blocks of each mode in which stolen time is measured.
pub const STOLEN_BLOCKS: usize = 4;
/// I/Os that a block has to have: what it cost in all, divided by two or three, says more of chance than of a mode.
pub const FEW: u64 = 10;
