//! A thread that stays awake: it hardly ever naps or sleeps in its waits, because entries come sooner than that is worth.
//!
//! Weighing each of its waits would cost more than it could save. So it first spins, and only a wait that lasts longer is
//! weighed; and as its waits are all alike, it learns from some of them.

use units::Nanos;

use super::step::Wait;
use super::{AWAKE, Adaptive};
use crate::{Route, Seen};

/// As far as it is remembered, in waits.
pub(super) const AWAKE_MEMORY: u32 = 8 * AWAKE;

/// It spins for this part of what a sleep is worth before anything is weighed: most of its waits are over by then.
const GLANCE: u64 = 2;

/// And learns from one in so many of those waits.
const LEARNT_AWAKE: u64 = 8;

impl Adaptive {
    /// A wait is over, without a nap or sleep or with some.
    #[inline]
    pub(super) fn stayed_awake(&mut self, stayed: bool) {
        self.awake = if stayed { (self.awake + 1).min(AWAKE_MEMORY) } else { self.awake.saturating_sub(AWAKE) };
    }

    /// A thread that stays awake finds what it sends without being told.
    #[inline]
    pub(crate) fn route(&self) -> Route {
        if self.awake >= AWAKE { Route::Poll } else { Route::Notify }
    }

    /// Whether what the next look takes says anything new. Of a thread that stays awake its waits are all alike.
    #[inline]
    pub(crate) fn wants_done(&self) -> bool {
        let alike = self.awake >= AWAKE && !self.checks && self.wait.is_none_or(|wait| wait.in_vain == 0);
        !alike || self.decisions.waits.is_multiple_of(LEARNT_AWAKE)
    }

    /// Until when to spin without weighing anything, because the thread stays awake anyway. That is within what the ledger
    /// grants every wait, and a wait that lasts longer is weighed like any other.
    #[inline]
    pub(super) fn glance(&mut self, now: Nanos, seen: &Seen) -> Option<Nanos> {
        if self.awake < AWAKE || seen.wants > 1 || self.wait.is_some() || self.explored > 0 || seen.cpu_wanted || seen.leaving {
            return None;
        }
        self.decisions.spun += 1;
        Some(now + Nanos(self.horizon().min(self.cpu).0 / GLANCE).max(Nanos(1)))
    }

    /// Such a spin is over, and with it the wait if there is something to take.
    #[inline]
    pub(super) fn glanced(&mut self, now: Nanos, seen: &Seen) {
        let (since, spun) = (self.step.asked, now - self.step.asked);
        self.ledger.spend(spun);
        self.decisions.waits += 1;
        self.pace.waits();
        let met = seen.pending || seen.met_at.is_some();
        if met || seen.found > 0 {
            self.stayed_awake(true);
            self.ledger.waited(met.then_some(spun), spun, self.cpu);
        } else {
            self.holds.waits(now, self.decisions.waits, seen);
            let (in_flight, due, explores) = (seen.in_flight, Nanos::ZERO, Nanos::ZERO);
            self.wait = Some(Wait { since, due, in_flight, came: None, spun, in_vain: 0, explores });
        }
    }
}
