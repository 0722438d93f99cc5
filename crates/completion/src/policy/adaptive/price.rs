//! What waiting costs: as the machine says at first, and as it is seen.

use units::Nanos;

use super::forecast::STRETCH;
use crate::{Cause, Cycle, LatencyPrice, Woke};

/// An estimate goes one part in this many towards what was seen.
const PART: u64 = STRETCH as u64;

/// The price of latency where nothing else counts.
pub(super) const ENDLESS: f32 = 1e6;

#[derive(Clone, Debug)]
pub(super) struct Price {
    /// CPU time that a unit of lateness is worth.
    pub(super) lambda: f32,
    /// B: CPU time of a sleep; and that of a nap.
    pub(super) cpu: Nanos,
    pub(super) nap: Nanos,
    /// How late a timer is, and was where nobody else wanted the CPU.
    pub(super) late: Nanos,
    on_time: Nanos,
    /// D: from an entry to the look of the thread that it has woken.
    pub(super) delay: Nanos,
    /// What each further notification costs.
    pub(super) message: Nanos,
}

impl Price {
    pub(super) fn new(price: LatencyPrice, machine: &Cycle) -> Price {
        Price {
            lambda: if price == LatencyPrice::UNLIMITED { ENDLESS } else { price.rate() as f32 },
            cpu: machine.cpu.max(Nanos(1)),
            nap: machine.nap.max(Nanos(1)),
            late: machine.late,
            on_time: machine.late,
            delay: machine.delay,
            message: machine.message,
        }
    }

    /// D, and longer where others keep the thread from its CPU, as timers show.
    pub(super) fn delayed(&self) -> f32 {
        (self.delay + (self.late - self.on_time)).0 as f32
    }

    /// A sleep, in CPU time: its own, and what the first command that it finds is late.
    pub(super) fn sleep(&self) -> f32 {
        self.cpu.0 as f32 + self.lambda * self.delayed()
    }

    /// Whether the ledger's bound holds: where latency is worth more than CPU time, twice the CPU time may be well spent.
    pub(super) fn is_bounded(&self) -> bool {
        self.lambda <= 1.0
    }

    /// The soonest that a nap is over.
    pub(super) fn soonest(&self) -> Nanos {
        // The CPU time before the thread blocks is less than half of all.
        self.late + Nanos(self.nap.0 / 2)
    }

    /// A nap or a sleep is over: what it has cost.
    pub(super) fn took(&mut self, nap: bool, cycle: Option<Nanos>, woke: Woke, length: Nanos) -> Nanos {
        let cost = if nap { &mut self.nap } else { &mut self.cpu };
        if let Some(cycle) = cycle {
            *cost = Nanos(cost.0 - cost.0 / PART + cycle.0 / PART).max(Nanos(1));
        }
        let cost = *cost;
        // Back sooner than going takes: the timer had passed already.
        if woke.cause == Cause::Timer && length > cost {
            self.late = Nanos(self.late.0 - self.late.0 / PART + woke.late.0 / PART);
        }
        cost
    }
}
