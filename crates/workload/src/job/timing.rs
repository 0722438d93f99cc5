//! When I/Os go, apart from rates: pauses.

use units::Nanos;

/// `thinktime` and its kin: the job pauses after so many I/Os, once they have completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Think {
    /// `thinktime`: how long a pause is.
    pub time: Nanos,
    /// `thinktime_spin`: of which the thread computes for so long, and sleeps for the rest.
    pub spin: Nanos,
    /// `thinktime_blocks`: I/Os between two pauses; never 0.
    pub blocks: u64,
}
