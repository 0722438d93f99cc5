//! How often `adaptive` decided what: `--explain`.

/// Counts of one policy's decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Looks, because an entry was known to be there or the thread had woken.
    pub looks: u64,
    /// Waits: looks in vain with commands in flight, up to the next look that found something.
    pub waits: u64,
    /// Stretches of spinning, because something was due sooner than a sleep is worth.
    pub spun: u64,
    /// Naps, because nothing was due before their end.
    pub napped: u64,
    /// Sleeps, because nothing was expected for longer than a sleep costs.
    pub slept: u64,
    /// Naps to gather completions, within the slack.
    pub gathered: u64,
    /// Waits that were looked at all the way, to learn.
    pub explored: u64,
    /// Sleeps because another thread wanted the CPU, or this one left.
    pub gave_way: u64,
    /// Commands found by a deadline of which no notification had told.
    pub missed_notifications: u64,
}
