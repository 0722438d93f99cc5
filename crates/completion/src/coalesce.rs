//! NVMe's Interrupt Coalescing: its settings, and what decides on them is told.
//!
//! TIME counts in steps of 100 µs, THR is 0's based, and both are recommendations to the controller (Base 5.1.25.2.2).

use units::Nanos;

/// The step in which TIME counts, and so the shortest time that anything is held back.
pub const STEP: Nanos = Nanos::from_micros(100);

/// A setting of Interrupt Coalescing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    entries: u16,
    steps: u8,
}

impl Coalesce {
    /// A message for each entry.
    pub const OFF: Coalesce = Coalesce { entries: 1, steps: 0 };

    /// A message for `entries` entries (1 to 256), or once the first has waited for so many steps of 100 µs. One entry, or
    /// no time, is [`Coalesce::OFF`].
    pub const fn new(entries: u16, steps: u8) -> Coalesce {
        match (entries, steps) {
            (0 | 1, _) | (_, 0) => Coalesce::OFF,
            (257.., _) => Coalesce { entries: 256, steps },
            _ => Coalesce { entries, steps },
        }
    }

    /// THR: entries before a message, 0's based.
    pub const fn thr(self) -> u8 {
        (self.entries - 1) as u8
    }

    /// TIME: in steps of 100 µs.
    pub const fn time(self) -> u8 {
        self.steps
    }

    /// The same as a span of time.
    pub const fn span(self) -> Nanos {
        Nanos(STEP.0 * self.steps as u64)
    }

    /// Entries before a message: 1 to 256.
    pub const fn entries(self) -> u16 {
        self.entries
    }
}

impl Default for Coalesce {
    fn default() -> Coalesce {
        Coalesce::OFF
    }
}

/// What happened on the moderated queues since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// The time since then.
    pub elapsed: Nanos,
    /// Completions.
    pub completions: u64,
    /// Messages that announced them.
    pub messages: u64,
    /// Commands in flight now.
    pub in_flight: u32,
    /// For how many entries the policies of all these queues would have messages held back ([`crate::Policy::holds`]); 0: some for none.
    pub asked: u16,
}

impl Rates {
    /// Completions per second.
    pub(crate) fn iops(&self) -> u64 {
        (u128::from(self.completions) * 1_000_000_000 / u128::from(self.elapsed.0.max(1))) as u64
    }
}
