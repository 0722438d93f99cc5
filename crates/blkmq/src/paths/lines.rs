//! Which cache lines a choice touches: what it costs on a machine with many CPUs.

/// A cache line of the selector's tables, by the table that it is in and its place there. Two touches of the same line by
/// different CPUs cost more than two touches of different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    /// Which table.
    pub table: Table,
    /// The line's number in it.
    pub at: u32,
}

impl Line {
    /// The line of a count.
    #[inline]
    pub(super) fn of_count(at: usize) -> Line {
        Line { table: Table::Counts, at: at as u32 }
    }
}

/// The tables of a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// What is in flight, by path and whatever it is counted by.
    Counts,
    /// Where `round-robin` goes on, by hardware queue.
    Cursors,
    /// When a path answered last, for `latency`, by controller and hardware queue.
    Heard,
    /// What `latency` has learnt, by controller, hardware queue and class.
    Learnt,
    /// When `latency` explores and tries another rule, by hardware queue.
    Trials,
}

/// Told of every line of the counters that a selector reads or writes. The simulator puts a price on each; for everybody
/// else it is `()`, of which nothing is left in the compiled code.
pub trait Lines {
    /// A line is read.
    fn read(&mut self, line: Line);
    /// A line is written, or read and written at once.
    fn write(&mut self, line: Line);
}

impl Lines for () {
    #[inline(always)]
    fn read(&mut self, _line: Line) {}
    #[inline(always)]
    fn write(&mut self, _line: Line) {}
}
