//! `latency`: the path on which *this* request is expected to complete first.
//!
//! Each thread learns for itself the usual latency of each class of request on each path. A request is expected to take what is usual.
//! Six rules go with it.
//!
//! *Near enough*: paths whose usual latencies differ by less than a factor count as equal, and the one with the least load is taken; so
//! equal paths are shared as `queue-depth` shares them, and noise decides nothing. *Trials*: where all paths are full that factor
//! has to be a large one, and whether it is so is found out by trying ([`RuleTrial`]). *Silence*: a path that has had something in
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
const MEAN_WEIGHT: f32 = 1.0 / 512.0;

/// The usual latency of one class on one path: a mean that forgets.
#[derive(Clone, Copy, Debug, Default)]
struct MeanLatency {
    /// In nanoseconds; 0: nothing is known.
    mean: f32,
    /// How many answers there were, up to the most that matters.
    count: u32,
}

impl MeanLatency {
    fn move_towards(&mut self, latency: f32, part: f32) {
        self.mean += part * (latency - self.mean);
    }

    /// One more: first with the weight that makes a plain mean.
    #[inline]
    fn add(&mut self, latency: f32) {
        if self.count as f32 * MEAN_WEIGHT >= 1.0 {
            return self.move_towards(latency, MEAN_WEIGHT);
        }
        self.count += 1;
        self.move_towards(latency, 1.0 / self.count as f32);
    }
}

/// What a thread knows of one path.
#[derive(Clone, Debug)]
struct PathEstimate {
    /// Since when something has been in flight without a break.
    busy_since: Nanos,
    /// When it answered last.
    last_completion: Nanos,
    latencies: [MeanLatency; Class::COUNT],
}

/// What a thread knows of the paths.
#[derive(Debug)]
pub(super) struct LatencyEstimates {
    paths: Vec<PathEstimate>,
    /// Choices since one explored.
    choices: u32,
    trial: RuleTrial,
}

impl LatencyEstimates {
    pub(super) fn new(paths: usize) -> LatencyEstimates {
        let unknown =
            PathEstimate { busy_since: Nanos::ZERO, last_completion: Nanos::ZERO, latencies: [MeanLatency::default(); Class::COUNT] };
        LatencyEstimates { paths: vec![unknown; paths], choices: 0, trial: RuleTrial::new() }
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
        let silent = (now - known.last_completion.max(known.busy_since)).0 as f32;
        if silent > 2.0 * usual { silent } else { usual }
    }

    /// The factor within which latencies count as the same now.
    #[inline]
    pub(super) fn near_factor(&mut self, usable: PathSet, class: Class, now: Nanos, shared: &SharedTrial) -> f32 {
        if self.trial.is_due(now) {
            let slowest = self.slowest_in_range(usable, class);
            self.trial.begin_slot(now, shared, slowest);
        }
        self.trial.near()
    }

    /// How long the slowest path takes that is within sight of the fastest; `None`: there are not two that are known.
    #[cold]
    fn slowest_in_range(&self, usable: PathSet, class: Class) -> Option<Nanos> {
        let usual = || usable.iter().filter_map(|path| self.usual(path, class));
        let most = usual().reduce(f32::min)? * WIDE_FACTOR;
        let seen = || usual().filter(|&usual| usual <= most);
        if seen().count() > 1 { seen().reduce(f32::max).map(|ns| Nanos(ns as u64)) } else { None }
    }

    /// Choices were made.
    #[inline]
    pub(super) fn count_choices(&mut self, choices: u32) {
        self.choices = self.choices.saturating_add(choices);
    }

    /// Now and then a choice is for exploring: the path that has been silent for longest, if nothing is under way that will tell.
    #[inline]
    pub(super) fn pick_unexplored(&mut self, counts: &[u32], usable: PathSet, class: Class, now: Nanos) -> Option<PathId> {
        if self.choices < EXPLORE_ONE_IN {
            return None;
        }
        self.choices = 0;
        let idle = usable.iter().filter(|path| counts.get(path.index()) == Some(&0));
        let last_completion = |path: PathId| Some((path, self.paths.get(path.index())?.last_completion));
        let (path, last_completion) = idle.filter_map(last_completion).min_by_key(|(_, last_completion)| *last_completion)?;
        let usual = self.usual(path, class).unwrap_or(0.0) as u64;
        (now - last_completion > EXPLORE_AFTER.max(Nanos(usual.saturating_mul(EXPLORE_SHARE)))).then_some(path)
    }

    /// A request has gone out on a path that had nothing in flight.
    #[inline]
    pub(super) fn became_busy(&mut self, path: PathId, now: Nanos) {
        if let Some(known) = self.paths.get_mut(path.index()) {
            known.busy_since = now;
        }
    }

    /// A request was answered.
    #[inline]
    pub(super) fn end(&mut self, path: PathId, class: Class, latency: Nanos, now: Nanos) {
        let Some(known) = self.paths.get_mut(path.index()) else { return };
        self.trial.completed(now - latency, latency);
        let (last_completion, usual, latency) =
            (std::mem::replace(&mut known.last_completion, now), &mut known.latencies[class.index()], latency.0 as f32);
        if usual.mean > 0.0 && now - last_completion > STALE_AFTER {
            if latency < usual.mean / 2.0 {
                // Better than it was: the next explorer need not wait.
                known.last_completion = Nanos::ZERO;
            }
            // After a long silence: it counts for half, and what was before it for not much more than it.
            usual.move_towards(latency, 0.5);
            usual.count = 2;
        } else {
            usual.add(latency);
        }
    }

    /// Forgets what was learnt of a path; what is in flight stays counted.
    pub(super) fn forget(&mut self, path: PathId) {
        if let Some(known) = self.paths.get_mut(path.index()) {
            known.latencies = [MeanLatency::default(); Class::COUNT];
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
const NARROW_FACTOR: f32 = 1.4;
/// The second rule: all but those that are hopelessly far, as from there too little comes back to be worth the wait.
const WIDE_FACTOR: f32 = 24.0;

/// A slot is at least this many times as long as the slowest path within sight usually takes, and a power of two (ns).
const SLOT_LATENCIES: u64 = 4;
/// One slot in this many (as a power of two) is a trial: at first, and after many that were worse.
const MIN_CYCLE_LOG2: u32 = 2;
const MAX_CYCLE_LOG2: u32 = 8;
/// The second rule has to be this much better, as it makes more requests wait for far paths.
const ADOPT_BELOW: f32 = 0.98;
/// A trial that is this much worse need not be repeated soon.
const REJECT_ABOVE: f32 = 1.05;
/// Answers with which to judge at all, and those with which to judge for good.
const MIN_SAMPLES: u64 = 64;
const MAX_SAMPLES: u64 = 16_384;
/// Latencies scatter by this many times their mean, or less.
const LATENCY_CV: f32 = 1.5;

/// Latencies, added up.
#[derive(Debug, Default)]
struct LatencySum {
    time: u64,
    count: u64,
}

impl LatencySum {
    #[inline]
    fn add(&mut self, latency: Nanos) {
        self.time = self.time.wrapping_add(latency.0);
        self.count += 1;
    }
}

/// The latencies of all threads, added up.
#[derive(Debug, Default)]
struct SharedLatencySum {
    time: AtomicU64,
    count: AtomicU64,
}

impl SharedLatencySum {
    /// Everything is added to this.
    fn add(&self, sum: &mut LatencySum) {
        let LatencySum { time, count } = std::mem::take(sum);
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
pub(super) struct SharedTrial {
    /// How often the rule in force has changed: it is the first while that is even.
    switches: AtomicU32,
    /// How much more seldom than [`MIN_CYCLE_LOG2`] the other one is tried.
    backoff: AtomicU32,
    /// A slot lasts two to the power of this many nanoseconds: the longest that any thread wants, so that all have the same.
    shift: AtomicU32,
    usual: SharedLatencySum,
    tried: SharedLatencySum,
}

/// One thread's part.
#[derive(Debug)]
pub(super) struct RuleTrial {
    /// The factor of the rule that it chooses by now.
    near: f32,
    /// The changes of the rule in force that it has seen.
    switches: u32,
    /// When it has to look at the clock again.
    next_check: Nanos,
    /// What is sent in this time belongs to the trial.
    from: Nanos,
    to: Nanos,
    usual: LatencySum,
    tried: LatencySum,
}

impl RuleTrial {
    pub(super) fn new() -> RuleTrial {
        RuleTrial {
            near: NARROW_FACTOR,
            switches: 0,
            next_check: Nanos::ZERO,
            from: Nanos::MAX,
            to: Nanos::MAX,
            usual: LatencySum::default(),
            tried: LatencySum::default(),
        }
    }

    /// Paths whose usual latencies are within this factor count as equal now, unless [`RuleTrial::is_due`].
    #[inline]
    pub(super) fn near(&self) -> f32 {
        self.near
    }

    /// Whether [`RuleTrial::turn`] comes first.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.next_check
    }

    /// A request was answered.
    #[inline]
    pub(super) fn completed(&mut self, sent: Nanos, latency: Nanos) {
        let tried = sent >= self.from && sent < self.to;
        if tried { &mut self.tried } else { &mut self.usual }.add(latency);
    }

    /// A slot has begun: a trial's; the one after it, in which its last answers come; or a later one, in which it is judged.
    /// `slowest`: how long the slowest path within sight takes; `None`: there is nothing to try.
    #[cold]
    pub(super) fn begin_slot(&mut self, now: Nanos, all: &SharedTrial, slowest: Option<Nanos>) {
        let Some(slowest) = slowest.filter(|slowest| slowest.0 < u64::MAX / 4 / SLOT_LATENCIES) else {
            self.next_check = Nanos(now.0.saturating_add(1_000));
            return;
        };
        let wanted = (slowest.0.max(1) * SLOT_LATENCIES).next_power_of_two().trailing_zeros();
        let shift = all.shift.fetch_max(wanted, Relaxed).max(wanted);
        let start = |slot: u64| Nanos(slot.saturating_mul(1 << shift));
        let slot = now.0 >> shift;
        let just_ended = self.to == start(slot);
        if !just_ended {
            self.evaluate(all);
        }
        let cycle = 1 << (MIN_CYCLE_LOG2 + all.backoff.load(Relaxed));
        let trial = (slot & !(cycle - 1)) + 1;
        let begins = slot == trial && self.to != start(slot + 1);
        if begins {
            // In its first quarter much of what was sent before is still there.
            (self.from, self.to) = (start(slot) + Nanos((1 << shift) / 4), start(slot + 1));
        }
        let second = (all.switches.load(Relaxed) % 2 == 1) != begins;
        self.near = if second { WIDE_FACTOR } else { NARROW_FACTOR };
        let next = match slot {
            _ if begins || just_ended => slot + 1,
            _ if slot < trial => trial,
            _ => trial + cycle,
        };
        self.next_check = start(next);
    }

    /// Brings what it has, and judges by what all have brought.
    fn evaluate(&mut self, all: &SharedTrial) {
        let switches = all.switches.load(Relaxed);
        if std::mem::replace(&mut self.switches, switches) != switches {
            // It has what was sent by the rule before.
            (self.usual, self.tried) = Default::default();
            return;
        }
        all.usual.add(&mut self.usual);
        all.tried.add(&mut self.tried);
        let count = all.tried.count.load(Relaxed);
        if count.min(all.usual.count.load(Relaxed)) < MIN_SAMPLES {
            return;
        }
        let (ratio, error) = (all.tried.mean() / all.usual.mean(), LATENCY_CV / (count as f32).sqrt());
        let second_is_tried = switches.is_multiple_of(2);
        let better = if second_is_tried { ratio < (1.0 - 2.0 * error).min(ADOPT_BELOW) } else { ratio < 1.0 - error };
        if better {
            // If another thread says so at the same time, once is enough.
            _ = all.switches.compare_exchange(switches, switches.wrapping_add(1), Relaxed, Relaxed);
            self.switches = switches.wrapping_add(1);
            all.backoff.store(0, Relaxed);
        } else if ratio > REJECT_ABOVE + 2.0 * error {
            all.backoff.store((all.backoff.load(Relaxed) + 2).min(MAX_CYCLE_LOG2 - MIN_CYCLE_LOG2), Relaxed);
        } else if count < MAX_SAMPLES {
            // It cannot be told yet.
            return;
        }
        all.usual.clear();
        all.tried.clear();
        all.shift.store(0, Relaxed);
    }
}
