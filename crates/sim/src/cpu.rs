//! One CPU: interrupts come first, a thread gets what is left.

use units::Nanos;

/// A CPU's time, and who had it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// Interrupts are being handled until then.
    hard_until: Nanos,
    /// Time in interrupts.
    pub(crate) hard: Nanos,
    /// Time in threads.
    pub(crate) thread: Nanos,
}

impl Cpu {
    /// Whether an interrupt is being handled.
    pub(crate) fn in_interrupt(&self, now: Nanos) -> bool {
        now < self.hard_until
    }

    /// When the CPU is back from interrupts.
    pub(crate) fn free_at(&self, now: Nanos) -> Nanos {
        self.hard_until.max(now)
    }

    /// Handles an interrupt of this cost, after any other. Returns when it ends.
    pub(crate) fn interrupt(&mut self, now: Nanos, cost: Nanos) -> Nanos {
        self.hard_until = self.free_at(now) + cost;
        self.hard += cost;
        self.hard_until
    }
}
