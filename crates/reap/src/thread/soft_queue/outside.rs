//! What the thread of a foreign loop does between two turns: it computes, or it sleeps elsewhere.

use std::cell::Cell;

use units::Nanos;

/// Of this many turns that found something one is followed, where the policy weighs what comes after.
const MEASURED_TURNS: u32 = 8;

/// A thread between two turns.
#[derive(Default)]
pub(super) struct Outside {
    turns: Cell<u32>,
    /// When it left, and how often it had slept until then; of a time that is measured.
    left: Cell<Option<(Nanos, u64)>>,
}

impl Outside {
    /// The thread leaves with something to compute: one time in this many, how it goes on is measured.
    pub(super) fn leaves(&self, now: Nanos) {
        self.turns.set(self.turns.get().wrapping_add(1));
        if self.turns.get().is_multiple_of(MEASURED_TURNS) {
            self.left.set(Some((now, hw::thread_usage().sleeps)));
        }
    }

    /// How long the thread has computed since it left: not at all, if it slept meanwhile. `None`: that was not measured.
    pub(super) fn computed(&self, now: Nanos) -> Option<Nanos> {
        let (left, sleeps) = self.left.take()?;
        Some(if hw::thread_usage().sleeps == sleeps { now - left } else { Nanos::ZERO })
    }
}
