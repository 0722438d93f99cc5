//! How late timers are.
//!
//! A CPU that has nothing to do goes idle, and a timer that fires then is later by what waking the CPU takes, which may be
//! most of it; one that fires before is not. So there are two latenesses, of short naps and of others.

use units::Nanos;

/// The part of a nap's CPU time that is spent before the thread blocks is less than one in this many: a timer that is
/// nearer would have passed by then.
pub(in crate::policy) const SETTING: u64 = 3;

/// And before its CPU has gone idle, one in so many.
const AWAKE: u64 = 2;

#[derive(Clone, Debug)]
pub(in crate::policy) struct Timers {
    /// What a nap costs: CPU time.
    pub(in crate::policy) cost: Nanos,
    short: Nanos,
    long: Nanos,
}

impl Timers {
    pub(in crate::policy) fn new(cost: Nanos, late: Nanos) -> Timers {
        Timers { cost: cost.max(Nanos(1)), short: late, long: late }
    }

    /// Of a nap that the CPU spends idle.
    #[inline]
    pub(in crate::policy) fn late(&self) -> Nanos {
        self.long
    }

    fn is_short(&self, length: Nanos) -> bool {
        length < Nanos(self.cost.0 / AWAKE)
    }

    /// Of a nap of this length.
    #[inline]
    pub(in crate::policy) fn late_after(&self, length: Nanos) -> Nanos {
        if self.is_short(length) { self.short.min(self.long) } else { self.long }
    }

    /// The soonest that a timer can be.
    pub(in crate::policy) fn soonest(&self, now: Nanos) -> Nanos {
        now + Nanos(self.cost.0 / SETTING)
    }

    /// Until when to nap from now on to be back at `end` at the latest.
    #[inline]
    pub(in crate::policy) fn until(&self, now: Nanos, end: Nanos) -> Option<Nanos> {
        let until = end - self.long;
        if until > now && !self.is_short(until - now) {
            return Some(until);
        }
        // A short one may be back when a long one is not. Its length is all that is left to choose.
        let soonest = self.soonest(now);
        (soonest + self.short.min(self.long) <= end).then_some(soonest)
    }

    /// When a nap until then that begins now is over.
    #[inline]
    pub(in crate::policy) fn back(&self, now: Nanos, until: Nanos) -> Nanos {
        until + self.late_after(until - now)
    }

    /// A nap of this length was so late. Rather too early than too late: it falls slowly.
    pub(in crate::policy) fn was(&mut self, length: Nanos, late: Nanos) {
        let known = if self.is_short(length) { &mut self.short } else { &mut self.long };
        *known = if late >= *known { super::step::track(*known, late) } else { *known - Nanos((*known - late).0 / 128) };
    }
}
