//! `latency`: the path on which *this* request is expected to complete first.
//!
//! Each thread learns for itself the usual latency of each class of request on each path. A request is expected to take what is usual.
//! Six rules go with it.
//!
//! *Near enough*: paths whose usual latencies differ by less than a factor count as equal, and the one with the least load is taken; so
//! equal paths are shared as `queue-depth` shares them, and noise decides nothing. *Trials*: where all paths are full that factor
//! has to be a large one, and whether it is so is found out by trying ([`Trial`]). *Silence*: a path that has had something in
//! flight for twice as long as usual, and has answered nothing, is expected to stay silent for as long again; so a path that
//! degrades is left before the first late answer is there. *Exploration*: now and then a request goes to the path that has not answered
//! for longest, so that one that has got better is found. *Pioneers*: a path of which nothing is known gets one request, and no
//! more before that is back. *Oblivion*: what is known of a path that was silent for long counts for half against its next answer.
//!
//! Load is measured by size, so that a large request counts for more than a small one.

use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU32, AtomicU64};
use units::{Class, Nanos};

use super::set::{PathId, PathSet};

/// One choice in this many explores, if there is anything to explore: well below one in a hundred, which would be seen in
/// the 99th percentile.
const EXPLORE_ONE_IN: u32 = 256;

/// A path that has answered within this time is known well enough.
const EXPLORE_AFTER: Nanos = Nanos::from_millis(50);

/// A slow path is explored for one part in this many of the time: an explorer may be the only request that is in flight.
const EXPLORE_SHARE: u64 = 100;

/// What is known of a path that has not answered for this long may be out of date: the next answer counts for half.
const STALE_AFTER: Nanos = Nanos::from_millis(20);

/// Weight of a new value in a usual latency: one part in 2^9, so that times that scatter as widely as exponential ones make the mean
/// wander by a thirtieth.
const SHORT: f32 = 1.0 / 512.0;

/// The usual latency of one class on one path: a mean that forgets.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    /// In nanoseconds; 0: nothing is known.
    mean: f32,
    /// How many answers there were, up to the most that matters.
    count: u32,
}

impl Usual {
    fn approach(&mut self, latency: f32, part: f32) {
        self.mean += part * (latency - self.mean);
    }

    /// One more: first with the weight that makes a plain mean.
    #[inline]
    fn add(&mut self, latency: f32) {
        if self.count as f32 * SHORT >= 1.0 {
            return self.approach(latency, SHORT);
        }
        self.count += 1;
        self.approach(latency, 1.0 / self.count as f32);
    }
}

/// What a thread knows of one path.
#[derive(Clone, Debug)]
struct Knowledge {
    /// Since when something has been in flight without a break.
    busy_since: Nanos,
    /// When it answered last.
    heard: Nanos,
    latencies: [Usual; Class::COUNT],
}

/// What a thread knows of the paths.
#[derive(Debug)]
pub(super) struct Learnt {
    paths: Vec<Knowledge>,
    /// Choices since one explored.
    choices: u32,
    trial: Trial,
}

impl Learnt {
    pub(super) fn new(paths: usize) -> Learnt {
        let unknown = Knowledge { busy_since: Nanos::ZERO, heard: Nanos::ZERO, latencies: [Usual::default(); Class::COUNT] };
        Learnt { paths: vec![unknown; paths], choices: 0, trial: Trial::new() }
    }

    /// The usual latency of a class on `path`; `None`: not known.
    pub(super) fn usual(&self, path: PathId, class: Class) -> Option<f32> {
        let mean = self.paths.get(path.index())?.latencies[class.index()].mean;
        (mean > 0.0).then_some(mean)
    }

    /// How long a request is expected to take on a path of that load (ns); 0: not known, and one is to find out. Paths for which this is
    /// about the same are told apart by their load alone.
    #[inline]
    pub(super) fn expected(&self, path: PathId, load: u32, class: Class, now: Nanos) -> f32 {
        let Some(known) = self.paths.get(path.index()) else { return f32::INFINITY };
        let usual = known.latencies[class.index()].mean;
        if load == 0 {
            return usual;
        }
        if usual == 0.0 {
            // One is on its way to find out.
            return f32::INFINITY;
        }
        let silent = (now - known.heard.max(known.busy_since)).0 as f32;
        if silent > 2.0 * usual { silent } else { usual }
    }

    /// The factor within which latencies count as the same now.
    #[inline]
    pub(super) fn near(&mut self, usable: PathSet, class: Class, now: Nanos, verdict: &Verdict) -> f32 {
        if self.trial.is_due(now) {
            let slowest = self.slowest(usable, class);
            self.trial.turn(now, verdict, slowest);
        }
        self.trial.near()
    }

    /// How long the slowest path takes that is within sight of the fastest; `None`: there are not two that are known.
    #[cold]
    fn slowest(&self, usable: PathSet, class: Class) -> Option<Nanos> {
        let usual = || usable.iter().filter_map(|path| self.usual(path, class));
        let most = usual().reduce(f32::min)? * WITHIN_SIGHT;
        let seen = || usual().filter(|&usual| usual <= most);
        if seen().count() > 1 { seen().reduce(f32::max).map(|ns| Nanos(ns as u64)) } else { None }
    }

    /// Choices were made.
    #[inline]
    pub(super) fn chosen(&mut self, choices: u32) {
        self.choices = self.choices.saturating_add(choices);
    }

    /// Now and then a choice is for exploring: the path that has been silent for longest, if nothing is under way that will tell.
    #[inline]
    pub(super) fn explore(&mut self, counts: &[u32], usable: PathSet, class: Class, now: Nanos) -> Option<PathId> {
        if self.choices < EXPLORE_ONE_IN {
            return None;
        }
        self.choices = 0;
        let idle = usable.iter().filter(|path| counts.get(path.index()) == Some(&0));
        let heard = |path: PathId| Some((path, self.paths.get(path.index())?.heard));
        let (path, heard) = idle.filter_map(heard).min_by_key(|(_, heard)| *heard)?;
        let usual = self.usual(path, class).unwrap_or(0.0) as u64;
        (now - heard > EXPLORE_AFTER.max(Nanos(usual.saturating_mul(EXPLORE_SHARE)))).then_some(path)
    }

    /// A request has gone out on a path that had nothing in flight.
    #[inline]
    pub(super) fn busy(&mut self, path: PathId, now: Nanos) {
        if let Some(known) = self.paths.get_mut(path.index()) {
            known.busy_since = now;
        }
    }

    /// A request was answered.
    #[inline]
    pub(super) fn end(&mut self, path: PathId, class: Class, latency: Nanos, now: Nanos) {
        let Some(known) = self.paths.get_mut(path.index()) else { return };
        self.trial.ended(now - latency, latency);
        let (heard, usual, latency) = (std::mem::replace(&mut known.heard, now), &mut known.latencies[class.index()], latency.0 as f32);
        if usual.mean > 0.0 && now - heard > STALE_AFTER {
            if latency < usual.mean / 2.0 {
                // Better than it was: the next explorer need not wait.
                known.heard = Nanos::ZERO;
            }
            // After a long silence: it counts for half, and what was before it for not much more than it.
            usual.approach(latency, 0.5);
            usual.count = 2;
        } else {
            usual.add(latency);
        }
    }

    /// Forgets what was learnt of a path; what is in flight stays counted.
    pub(super) fn forget(&mut self, path: PathId) {
        if let Some(known) = self.paths.get_mut(path.index()) {
            known.latencies = [Usual::default(); Class::COUNT];
        }
    }
}

// Which of two rules `latency` chooses by, found out by trying.
//
// Where a path has room, the one that is expected to answer first is the right one. Where all are full, none gets faster by being
// spared, and one that stays idle means less for all: there load is to be shared. The answers of a single path do not tell which it
// is. The mean latency of *all* requests does, whatever the load (Little's law): with as many in flight, a lower mean
// is more throughput; with as many per second, it is fewer in flight. So now and then, for a slot of time, paths are chosen by
// the other rule, and the means compared. Slots are cut by the clock, so that all threads try at the same time and see what it
// means if all do: alone, each would find that the fast path is the better one for itself.
//
// Each thread adds up for itself and brings what it has at the end of a slot; in between nothing is shared.

/// Paths whose usual latencies are within this factor count as equal, and are told apart by their load. The first rule:
/// only those between which noise might decide.
const NEAR_ENOUGH: f32 = 1.4;
/// The second rule: all but those that are hopelessly far, as from there too little comes back to be worth the wait.
const WITHIN_SIGHT: f32 = 24.0;

/// A slot is at least this many times as long as the slowest path within sight usually takes, and a power of two (ns).
const SLOT: u64 = 4;
/// One slot in this many (as a power of two) is a trial: at first, and after many that were worse.
const OFTEN: u32 = 2;
const SELDOM: u32 = 8;
/// The second rule has to be this much better, as it makes more requests wait for far paths.
const WORTH_IT: f32 = 0.98;
/// A trial that is this much worse need not be repeated soon.
const WORSE: f32 = 1.05;
/// Answers with which to judge at all, and those with which to judge for good.
const ENOUGH: u64 = 64;
const PLENTY: u64 = 16_384;
/// Latencies scatter by this many times their mean, or less.
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
    /// A slot lasts two to the power of this many nanoseconds: the longest that any thread wants, so that all have the same.
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
