//! What the executor was told last, and the wait that it is a step of.

use units::Nanos;

/// What the executor was told to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Doing {
    #[default]
    Nothing,
    Glance,
    Spin,
    /// Spins until the caller goes on, where it would nap or sleep if a timer could be so soon.
    Attend,
    Nap,
    Gather,
    Sleep,
}

/// What the executor was told last, and what is to be learnt from how it goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) doing: Doing,
    /// Since when, and until when at most because of the caller.
    pub(super) asked: Nanos,
    pub(super) goes_on_at: Option<Nanos>,
    /// Something was due already when it began.
    pub(super) overdue: bool,
    /// Where the next nap is to end, from the low quantile to the median of what is due, in thousandths.
    pub(super) aims: Option<u64>,
    /// With so many in flight, all overdue, it naps (or sleeps).
    pub(super) patient: Option<(u32, bool)>,
    /// It naps to gather so many, the last of which is due at this instant.
    pub(super) gathers: Option<(u32, Nanos)>,
    /// It spins because that finds as many that are not slow for less than a nap; and has spent so much.
    pub(super) spins: Option<(u32, Nanos)>,
}

/// The wait under way: from a look in vain to the next that finds something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) since: Nanos,
    /// When something was due, if that was later; 0 if that has not been asked yet.
    pub(super) due: Nanos,
    pub(super) in_flight: u32,
    /// When an entry came, if that is known.
    pub(super) came: Option<Nanos>,
    /// Spun since the last nap or sleep.
    pub(super) spun: Nanos,
    /// Naps and sleeps that brought nothing.
    pub(super) in_vain: u32,
    /// CPU time left for looking all the way, to learn.
    pub(super) explores: Nanos,
}

/// Moves an estimate towards what was seen, an eighth of the way.
pub(super) fn track(estimate: Nanos, seen: Nanos) -> Nanos {
    Nanos(estimate.0 - estimate.0 / 8 + seen.0 / 8)
}
