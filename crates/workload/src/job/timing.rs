//! When I/Os go, apart from rates: pauses, shares, targets for latency, and the end by a steady state.

use units::Nanos;

/// `thinktime` and its kin: the job pauses after so many I/Os, once they have completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// `thinktime`: how long a pause is.
    pub time: Nanos,
    /// `thinktime_spin`: of which the thread computes for so long, and sleeps for the rest.
    pub spin: Nanos,
    /// `thinktime_blocks`: I/Os between two pauses; never 0.
    pub blocks: u64,
    /// `thinktime_iotime`: time between two pauses, instead of I/Os.
    pub every: Option<Nanos>,
}

/// `flow`: jobs that share an `id` issue I/Os in the ratio of their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// `flow_id`.
    pub id: u64,
    /// `flow`; never 0.
    pub weight: u64,
    /// `flow_sleep`: how long a job that is ahead waits before it looks again.
    pub sleep: Nanos,
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

/// `latency_target`: the job looks for the largest depth at which so many I/Os are that fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTarget {
    /// `latency_target`: the latency.
    pub target: Nanos,
    /// `latency_window`: how long each depth is tried.
    pub window: Nanos,
    /// `latency_percentile`: per cent of I/Os that have to be as fast.
    pub percentile: f64,
    /// `latency_run`: goes on looking once it was found.
    pub run: bool,
}

/// `steadystate`: the job ends when a figure has stayed the same for long enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Which figure.
    pub of: SteadyOf,
    /// Its slope is looked at, not how far it strays from its mean.
    pub slope: bool,
    /// The limit; see `percent`.
    pub limit: f64,
    /// The limit is in per cent of the mean; else in units of the figure (per second for slopes).
    pub percent: bool,
    /// `ss_dur`: the time that has to be steady.
    pub window: Nanos,
    /// `ss_ramp`: time before the first look.
    pub ramp: Nanos,
    /// `ss_interval`: time between two figures; never 0.
    pub interval: Nanos,
}

/// The figure that is to be steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteadyOf {
    /// I/Os per second.
    Iops,
    /// Bytes per second.
    Bandwidth,
    /// The mean latency.
    Latency,
}
