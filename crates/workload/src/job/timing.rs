//! When I/Os go, apart from rates: pauses, and whose end ends others.

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

/// `exit_what`: which jobs stop when one with `exitall` has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExitWhat {
    /// Those of its group.
    #[default]
    Group,
    /// Those that run at the same time, whatever their group.
    Stonewall,
    /// All, those that have not begun included.
    All,
}
