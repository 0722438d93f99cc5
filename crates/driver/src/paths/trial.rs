//! Which of two rules `latency` chooses by, found out by trying.
//!
//! Where a path has room, the one that is expected to answer first is the right one. Where all are full, none gets faster by being
//! spared, and one that stays idle means less for all: there load is to be shared. The answers of a single path do not tell which it
//! is. The mean latency of *all* requests does, whatever the load (Little's law): with as many in flight, a lower mean
//! is more throughput; with as many per second, it is fewer in flight. So now and then, for a slot of time, paths are chosen by
//! the other rule, and the means compared. Slots are cut by the clock, so that all threads try at the same time and see what it
//! means if all do: alone, each would find that the fast path is the better one for itself.
//!
//! Each thread adds up for itself and brings what it has at the end of a slot; in between nothing is shared.

use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU32, AtomicU64};
use units::Nanos;

/// Paths whose usual latencies are within this factor count as equal, and are told apart by their load. The first rule:
/// only those between which noise might decide.
const NEAR_ENOUGH: f32 = 1.4;
/// The second rule: all but those that are hopelessly far, as from there too little comes back to be worth the wait.
pub(super) const WITHIN_SIGHT: f32 = 24.0;

/// A slot is at least so many times as long as the slowest path within sight usually takes, and a power of two (ns).
const SLOT: u64 = 4;
/// One slot in so many (as a power of two) is a trial: at first, and after many that were worse.
const OFTEN: u32 = 2;
const SELDOM: u32 = 8;
/// The second rule has to be this much better, as it makes more requests wait for far paths.
const WORTH_IT: f32 = 0.98;
/// A trial that is this much worse need not be repeated soon.
const WORSE: f32 = 1.05;
/// Answers with which to judge at all, and those with which to judge for good.
const ENOUGH: u64 = 64;
const PLENTY: u64 = 16_384;
/// Latencies scatter by so many times their mean, or less.
const SCATTER: f32 = 1.5;

/// Latencies, added up.
#[derive(Debug, Default)]
struct Sum {
    time: u64,
    count: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, latency: Nanos) {
        self.time = self.time.wrapping_add(latency.0);
        self.count += 1;
    }
}

/// The latencies of all threads, added up.
#[derive(Debug, Default)]
struct SharedSum {
    time: AtomicU64,
    count: AtomicU64,
}

impl SharedSum {
    /// Everything is added to this.
    fn take(&self, sum: &mut Sum) {
        let Sum { time, count } = std::mem::take(sum);
        self.time.fetch_add(time, Relaxed);
        self.count.fetch_add(count, Relaxed);
    }

    fn clear(&self) {
        self.time.store(0, Relaxed);
        self.count.store(0, Relaxed);
    }

    fn mean(&self) -> f32 {
        self.time.load(Relaxed) as f32 / self.count.load(Relaxed).max(1) as f32
    }
}

/// What the threads have found out together.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// How often the rule in force has changed: it is the first while that is even.
    changes: AtomicU32,
    /// How much more seldom than [`OFTEN`] the other one is tried.
    patience: AtomicU32,
    /// A slot lasts two to the power of so many nanoseconds: the longest that any thread wants, so that all have the same.
    shift: AtomicU32,
    usual: SharedSum,
    tried: SharedSum,
}

/// One thread's part.
#[derive(Debug)]
pub(super) struct Trial {
    /// The factor of the rule that it chooses by now.
    near: f32,
    /// The changes of the rule in force that it has seen.
    changes: u32,
    /// When it has to look at the clock again.
    turns_at: Nanos,
    /// What is sent in this time belongs to the trial.
    from: Nanos,
    to: Nanos,
    usual: Sum,
    tried: Sum,
}

impl Trial {
    pub(super) fn new() -> Trial {
        Trial {
            near: NEAR_ENOUGH,
            changes: 0,
            turns_at: Nanos::ZERO,
            from: Nanos::MAX,
            to: Nanos::MAX,
            usual: Sum::default(),
            tried: Sum::default(),
        }
    }

    /// Paths whose usual latencies are within this factor count as equal now, unless [`Trial::is_due`].
    #[inline]
    pub(super) fn near(&self) -> f32 {
        self.near
    }

    /// Whether [`Trial::turn`] comes first.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.turns_at
    }

    /// A request was answered.
    #[inline]
    pub(super) fn ended(&mut self, sent: Nanos, latency: Nanos) {
        let tried = sent >= self.from && sent < self.to;
        if tried { &mut self.tried } else { &mut self.usual }.add(latency);
    }

    /// A slot has begun: a trial's; the one after it, in which its last answers come; or a later one, in which it is judged.
    /// `slowest`: how long the slowest path within sight takes; `None`: there is nothing to try.
    #[cold]
    pub(super) fn turn(&mut self, now: Nanos, all: &Verdict, slowest: Option<Nanos>) {
        let Some(slowest) = slowest.filter(|slowest| slowest.0 < u64::MAX / 4 / SLOT) else {
            self.turns_at = Nanos(now.0.saturating_add(1_000));
            return;
        };
        let wanted = (slowest.0.max(1) * SLOT).next_power_of_two().trailing_zeros();
        let shift = all.shift.fetch_max(wanted, Relaxed).max(wanted);
        let start = |slot: u64| Nanos(slot.saturating_mul(1 << shift));
        let slot = now.0 >> shift;
        let just_ended = self.to == start(slot);
        if !just_ended {
            self.judge(all);
        }
        let cycle = 1 << (OFTEN + all.patience.load(Relaxed));
        let trial = (slot & !(cycle - 1)) + 1;
        let begins = slot == trial && self.to != start(slot + 1);
        if begins {
            // In its first quarter much of what was sent before is still there.
            (self.from, self.to) = (start(slot) + Nanos((1 << shift) / 4), start(slot + 1));
        }
        let second = (all.changes.load(Relaxed) % 2 == 1) != begins;
        self.near = if second { WITHIN_SIGHT } else { NEAR_ENOUGH };
        let next = match slot {
            _ if begins || just_ended => slot + 1,
            _ if slot < trial => trial,
            _ => trial + cycle,
        };
        self.turns_at = start(next);
    }

    /// Brings what it has, and judges by what all have brought.
    fn judge(&mut self, all: &Verdict) {
        let changes = all.changes.load(Relaxed);
        if std::mem::replace(&mut self.changes, changes) != changes {
            // It has what was sent by the rule before.
            (self.usual, self.tried) = Default::default();
            return;
        }
        all.usual.take(&mut self.usual);
        all.tried.take(&mut self.tried);
        let count = all.tried.count.load(Relaxed);
        if count.min(all.usual.count.load(Relaxed)) < ENOUGH {
            return;
        }
        let (ratio, error) = (all.tried.mean() / all.usual.mean(), SCATTER / (count as f32).sqrt());
        let second_is_tried = changes.is_multiple_of(2);
        let better = if second_is_tried { ratio < (1.0 - 2.0 * error).min(WORTH_IT) } else { ratio < 1.0 - error };
        if better {
            // If another thread says so at the same time, once is enough.
            _ = all.changes.compare_exchange(changes, changes.wrapping_add(1), Relaxed, Relaxed);
            self.changes = changes.wrapping_add(1);
            all.patience.store(0, Relaxed);
        } else if ratio > WORSE + 2.0 * error {
            all.patience.store((all.patience.load(Relaxed) + 2).min(SELDOM - OFTEN), Relaxed);
        } else if count < PLENTY {
            // It cannot be told yet.
            return;
        }
        all.usual.clear();
        all.tried.clear();
        all.shift.store(0, Relaxed);
    }
}
