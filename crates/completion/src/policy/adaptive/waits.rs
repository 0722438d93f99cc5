//! What waiting awake has cost lately.
//!
//! For each number of commands in flight, by powers of two: the cost, averaged over the last waits, of spinning for at most
//! a limit and sleeping after that. It is kept of every wait whose length is known, whatever was done about it.

use units::Nanos;

/// Powers of two of commands in flight that are told apart.
const BUCKETS: usize = 10;

/// Waits over which the average forgets, as a power of two.
const MEMORY_LOG2: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// In nanoseconds; `None`: no wait yet.
    cost: [Option<u64>; BUCKETS],
}

impl Waits {
    pub(super) fn new() -> Waits {
        Waits { cost: [None; BUCKETS] }
    }

    fn bucket(in_flight: u32) -> usize {
        (in_flight.max(1).ilog2() as usize).min(BUCKETS - 1)
    }

    /// What to expect with so many in flight; nothing, as long as nothing is known.
    #[inline]
    pub(super) fn expected(&self, in_flight: u32) -> Nanos {
        Nanos(self.cost[Waits::bucket(in_flight)].unwrap_or(0))
    }

    /// A wait with so many in flight took `length` from when something was due, and sleeping costs `sleep`.
    #[inline]
    pub(super) fn took(&mut self, in_flight: u32, length: Nanos, sleep: Nanos) {
        let cost = if length <= sleep { length.0 } else { sleep.0.saturating_mul(2) };
        let average = &mut self.cost[Waits::bucket(in_flight)];
        *average = Some(match *average {
            None => cost,
            Some(average) => average - (average >> MEMORY_LOG2) + (cost >> MEMORY_LOG2),
        });
    }
}
