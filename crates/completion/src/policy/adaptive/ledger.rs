//! The bound: what waiting has cost, beside what it would have cost in hindsight.
//!
//! Three choices are fixed once and for all: always sleep; spin for as long as a sleep costs, then sleep; always spin. The
//! ledger adds up what each would have cost for the same waits, and what was really spent. The middle one never costs more
//! than twice the best on any wait (ski rental; Karlin, Li, Manasse and Owicki, "Empirical studies of competitive
//! spinning", 1991), so falling back to it never widens a gap; and predictions are followed only while the gap is narrow
//! enough for one of them to be wrong. That keeps the sum within twice the best of the three, and a constant.
//!
//! Nobody sees when the entries came that a nap finds. For such a wait the middle one counts the whole of it, up to two sleeps: the bound
//! is that of a choice which sees no more than the thread did. Counting nothing would forbid naps that are the cheapest.
//!
//! Ski rental need not narrow the gap either: where every wait is long it costs just twice what sleeping does. So where
//! sleeping at once is the best of the three by a sleep, it is fallen back to instead: that costs a sleep, and grants two.

use units::Nanos;

/// The constant, in sleeps.
const CONSTANT: u64 = 32;

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// What waiting has cost.
    pub(super) spent: u64,
    sleeping: u64,
    renting: u64,
    spinning: u64,
}

impl Ledger {
    /// Waiting has cost so much.
    #[inline]
    pub(super) fn spend(&mut self, cpu: Nanos) {
        self.spent = self.spent.saturating_add(cpu.0);
    }

    /// A wait is over: entries came after `length`, if that is known, and the next wait begins `elapsed` after this one did.
    /// A sleep costs `sleep`.
    #[inline]
    pub(super) fn waited(&mut self, length: Option<Nanos>, elapsed: Nanos, sleep: Nanos) {
        let rent = match length {
            Some(length) if length <= sleep => length.0,
            Some(_) => 2 * sleep.0,
            // Several may have come meanwhile, each after less than a sleep is worth.
            None => elapsed.0.min(2 * sleep.0),
        };
        self.sleeping = self.sleeping.saturating_add(sleep.0);
        self.spinning = self.spinning.saturating_add(elapsed.0);
        self.renting = self.renting.saturating_add(rent);
    }

    /// Whether a prediction may be followed that costs this many sleeps if it is wrong.
    #[inline]
    pub(super) fn may_predict(&self, sleep: Nanos, margin: u64) -> bool {
        let best = self.sleeping.min(self.renting).min(self.spinning);
        self.spent.saturating_add(margin * sleep.0) <= best.saturating_mul(2).saturating_add(CONSTANT * sleep.0)
    }

    /// Whether to sleep at once where no prediction may be followed: with this one it stays the best of the three.
    pub(super) fn sleeps(&self, sleep: Nanos) -> bool {
        self.sleeping.saturating_add(sleep.0) <= self.renting.min(self.spinning)
    }
}
