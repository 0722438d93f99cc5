//! The policy `latency`: chooses the path on which *this* request is expected to complete first.
//!
//! Each thread keeps the mean latency of each class of request on each path. Six rules use it:
//!
//! - *Similar paths*: paths whose means differ by less than a factor count as equal, and the path
//!   with the lowest load is taken. So equal paths share the load as with `queue-depth`, and noise
//!   does not decide.
//! - *Trials*: if all paths are saturated, a large factor is better. [`RuleTrial`] tries one from
//!   time to time.
//! - *Silence*: a path that has had requests in flight for twice its mean latency without a
//!   completion is expected to complete nothing for as long again. So a degrading path is avoided
//!   before its first late completion.
//! - *Exploration*: occasionally a request goes to the path that has been idle longest, so that an
//!   improved path is noticed.
//! - *Probes*: a path of unknown latency gets one request, and no further one before that request
//!   has completed.
//! - *Ageing*: after a long silence of a path, its next latency counts for half of the new mean.
//!
//! Load is measured by size, so a large request counts for more than a small one.

use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU32, AtomicU64};
use units::{Class, Nanos};

use super::set::{PathId, PathSet};

/// One in this many choices explores. That is well below 1 %, which would show in the 99th
/// percentile.
const EXPLORE_ONE_IN: u32 = 256;

/// A path that completed a request within this time is not explored.
const EXPLORE_AFTER: Nanos = Nanos::from_millis(50);

/// A slow path is explored only after this multiple of its mean latency: the probe may be the only
/// request in flight.
const EXPLORE_SHARE: u64 = 100;

/// If a path has completed nothing for this long, its mean may be out of date.
const STALE_AFTER: Nanos = Nanos::from_millis(20);

/// Weight of a new value in a mean: 1/512, so that the mean of exponentially distributed values
/// varies by about 3 %.
const MEAN_WEIGHT: f32 = 1.0 / 512.0;

/// The mean latency of one class on one path: an exponentially weighted moving average.
#[derive(Clone, Copy, Debug, Default)]
struct MeanLatency {
    /// In nanoseconds; 0: unknown.
    mean: f32,
    /// Number of values, counted up to the number at which the weight becomes constant.
    count: u32,
}

impl MeanLatency {
    fn move_towards(&mut self, latency: f32, part: f32) {
        self.mean += part * (latency - self.mean);
    }

    /// Adds a value. The first values have equal weights.
    #[inline]
    fn add(&mut self, latency: f32) {
        // With enough values the weight is constant.
        if self.count as f32 * MEAN_WEIGHT >= 1.0 {
            return self.move_towards(latency, MEAN_WEIGHT);
        }
        self.count += 1;
        self.move_towards(latency, 1.0 / self.count as f32);
    }
}

/// A thread's estimates for one path.
#[derive(Clone, Debug)]
struct PathEstimate {
    /// When the path last changed from idle to busy.
    busy_since: Nanos,
    /// When it last completed a request.
    last_completion: Nanos,
    latencies: [MeanLatency; Class::COUNT],
}

/// A thread's estimates for all paths.
#[derive(Debug)]
pub(super) struct LatencyEstimates {
    paths: Vec<PathEstimate>,
    /// Choices since the last exploration.
    choices: u32,
    trial: RuleTrial,
}

impl LatencyEstimates {
    pub(super) fn new(paths: usize) -> LatencyEstimates {
        let unknown = PathEstimate {
            busy_since: Nanos::ZERO,
            last_completion: Nanos::ZERO,
            latencies: [MeanLatency::default(); Class::COUNT],
        };
        LatencyEstimates { paths: vec![unknown; paths], choices: 0, trial: RuleTrial::new() }
    }

    /// The mean latency of a class on `path` (ns); `None`: unknown.
    pub(super) fn mean(&self, path: PathId, class: Class) -> Option<f32> {
        let mean = self.paths.get(path.index())?.latencies[class.index()].mean;
        (mean > 0.0).then_some(mean)
    }

    /// The expected latency of a request on a path with this load (ns); 0: unknown, and one request
    /// is to measure it. Load is not part of the expectation: it decides between paths of similar
    /// latency.
    #[inline]
    pub(super) fn expected(&self, path: PathId, load: u32, class: Class, now: Nanos) -> f32 {
        let Some(estimate) = self.paths.get(path.index()) else { return f32::INFINITY };
        let mean = estimate.latencies[class.index()].mean;
        if load == 0 {
            return mean;
        }
        if mean == 0.0 {
            // A probe is in flight, and there is only one at a time.
            return f32::INFINITY;
        }
        // Silence counts only while something is in flight: an idle path is not slow.
        let silent = (now - estimate.last_completion.max(estimate.busy_since)).0 as f32;
        if silent > 2.0 * mean { silent } else { mean }
    }

    /// The factor within which latencies count as equal now.
    #[inline]
    pub(super) fn near_factor(
        &mut self,
        usable: PathSet,
        class: Class,
        now: Nanos,
        shared: &SharedTrial,
    ) -> f32 {
        // Rarely: a slot lasts several latencies.
        if now >= self.trial.next_check {
            let slowest = self.slowest_in_range(usable, class);
            self.trial.begin_slot(now, shared, slowest);
        }
        self.trial.near
    }

    /// The latency of the slowest path within [`WIDE_FACTOR`] of the fastest. `None`: the latency
    /// of fewer than two paths is known, so the two rules do not differ.
    #[cold]
    fn slowest_in_range(&self, usable: PathSet, class: Class) -> Option<Nanos> {
        let mean = || usable.iter().filter_map(|path| self.mean(path, class));
        let max = mean().reduce(f32::min)? * WIDE_FACTOR;
        let in_range = || mean().filter(|&mean| mean <= max);
        if in_range().count() > 1 {
            in_range().reduce(f32::max).map(|ns| Nanos(ns as u64))
        } else {
            None
        }
    }

    /// Counts choices.
    #[inline]
    pub(super) fn count_choices(&mut self, choices: u32) {
        self.choices = self.choices.saturating_add(choices);
    }

    /// Returns a path to explore, once in [`EXPLORE_ONE_IN`] choices: the idle path whose last
    /// completion is oldest.
    #[inline]
    pub(super) fn pick_unexplored(
        &mut self,
        counts: &[u32],
        usable: PathSet,
        class: Class,
        now: Nanos,
    ) -> Option<PathId> {
        if self.choices < EXPLORE_ONE_IN {
            return None;
        }
        // Reset even if no path qualifies: otherwise each ranking would search again.
        self.choices = 0;
        // A busy path will report by itself.
        let idle = usable.iter().filter(|path| counts.get(path.index()) == Some(&0));
        let last_completion =
            |path: PathId| Some((path, self.paths.get(path.index())?.last_completion));
        let (path, last_completion) =
            idle.filter_map(last_completion).min_by_key(|(_, last_completion)| *last_completion)?;
        let mean = self.mean(path, class).unwrap_or(0.0) as u64;
        (now - last_completion > EXPLORE_AFTER.max(Nanos(mean.saturating_mul(EXPLORE_SHARE))))
            .then_some(path)
    }

    /// The path has become busy.
    #[inline]
    pub(super) fn became_busy(&mut self, path: PathId, now: Nanos) {
        if let Some(estimate) = self.paths.get_mut(path.index()) {
            estimate.busy_since = now;
        }
    }

    /// Adds the latency of a completed request.
    #[inline]
    pub(super) fn end(&mut self, path: PathId, class: Class, latency: Nanos, now: Nanos) {
        let Some(estimate) = self.paths.get_mut(path.index()) else { return };
        self.trial.completed(now - latency, latency);
        let (last_completion, mean, latency) = (
            std::mem::replace(&mut estimate.last_completion, now),
            &mut estimate.latencies[class.index()],
            latency.0 as f32,
        );
        if mean.mean > 0.0 && now - last_completion > STALE_AFTER {
            if latency < mean.mean / 2.0 {
                // The path is much faster than before: explore it again at once.
                estimate.last_completion = Nanos::ZERO;
            }
            // The new value counts for half, and the old mean for little more than one value from
            // now on.
            mean.move_towards(latency, 0.5);
            mean.count = 2;
        } else {
            mean.add(latency);
        }
    }

    /// Forgets the latencies of a path. Requests in flight stay counted.
    pub(super) fn forget(&mut self, path: PathId) {
        if let Some(estimate) = self.paths.get_mut(path.index()) {
            // Unknown latency is probed first, so a returning path is measured at once.
            estimate.latencies = [MeanLatency::default(); Class::COUNT];
        }
    }
}

// The trial of the two rules.
//
// If a path has spare capacity, the path that is expected to complete first is right. If all are
// saturated, sparing one makes none faster, and leaving one idle wastes throughput: then load
// should be shared more widely. The latencies of one path do not show which case it is. The mean
// latency of *all* requests does (Little's law): at constant concurrency a lower mean is higher
// throughput; at a constant rate it is lower concurrency.
//
// So in one time slot of each cycle all threads choose by the rule that is not in force, and the
// means are compared:
//
// ```text
//   slot     0        1            2             3 …            cycle
//            regular  trial        regular       regular        repeats
//                     last 3/4     completions   evaluate
//                     count        still arrive
// ```
//
// Slots are aligned to the clock, so that all threads try at the same time. A thread trying alone
// would always find the fast path better for itself. Each thread sums its own latencies, and adds
// them to the shared sums when it evaluates.

/// The first rule: paths within this factor count as equal, because noise could decide between
/// them.
const NARROW_FACTOR: f32 = 1.4;
/// The second rule: all paths count as equal, except those too slow to be worth the wait.
const WIDE_FACTOR: f32 = 24.0;

/// A slot lasts at least this multiple of the slowest path's latency, rounded up to a power of two
/// (ns).
const SLOT_LATENCIES: u64 = 4;
/// log2 of the slots per cycle: at first, and after several bad trials.
const MIN_CYCLE_LOG2: u32 = 2;
const MAX_CYCLE_LOG2: u32 = 8;
/// The second rule must be better by this ratio, because it makes more requests wait for slow
/// paths.
const ADOPT_BELOW: f32 = 0.98;
/// After a trial that is worse by this ratio the next one comes later.
const REJECT_ABOVE: f32 = 1.05;
/// Minimum number of latencies in a trial for a decision, and the number at which an undecided
/// trial ends.
const MIN_SAMPLES: u64 = 64;
const MAX_SAMPLES: u64 = 16_384;
/// Assumed coefficient of variation of latencies (standard deviation over mean).
const LATENCY_CV: f32 = 1.5;

/// A sum of latencies.
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

/// The sum of all threads' latencies. Each word is updated on its own: the mean is an estimate.
#[derive(Debug, Default)]
struct SharedLatencySum {
    time: AtomicU64,
    count: AtomicU64,
}

impl SharedLatencySum {
    /// Moves `sum` into this one.
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

/// The shared state of the trial.
#[derive(Debug, Default)]
pub(super) struct SharedTrial {
    /// Number of changes of the rule in force. Even: the first rule is in force; odd: the second.
    switches: AtomicU32,
    /// Added to [`MIN_CYCLE_LOG2`] after bad trials.
    backoff: AtomicU32,
    /// log2 of a slot's length in ns: the longest that any thread needs, so that all have the same.
    shift: AtomicU32,
    regular: SharedLatencySum,
    trial: SharedLatencySum,
}

/// One thread's part of the trial.
#[derive(Debug)]
pub(super) struct RuleTrial {
    /// The factor of the rule that this thread uses now.
    near: f32,
    /// [`SharedTrial::switches`] as last seen.
    switches: u32,
    /// When [`RuleTrial::begin_slot`] is due.
    next_check: Nanos,
    /// Requests sent from `from` until before `to` belong to the trial.
    from: Nanos,
    to: Nanos,
    regular: LatencySum,
    trial: LatencySum,
}

impl RuleTrial {
    pub(super) fn new() -> RuleTrial {
        RuleTrial {
            near: NARROW_FACTOR,
            switches: 0,
            next_check: Nanos::ZERO,
            from: Nanos::MAX,
            to: Nanos::MAX,
            regular: LatencySum::default(),
            trial: LatencySum::default(),
        }
    }

    /// Adds the latency of a completed request.
    #[inline]
    pub(super) fn completed(&mut self, sent: Nanos, latency: Nanos) {
        // The time of sending decides, not that of completion: the rule applied when the request
        // was sent.
        let in_trial = sent >= self.from && sent < self.to;
        if in_trial { &mut self.trial } else { &mut self.regular }.add(latency);
    }

    /// Begins a slot: a trial, the slot after it, in which its last requests complete, or a later
    /// one, in which it is evaluated. `slowest`: latency of the slowest path in range; `None`:
    /// there is nothing to try.
    #[cold]
    pub(super) fn begin_slot(&mut self, now: Nanos, all: &SharedTrial, slowest: Option<Nanos>) {
        let Some(slowest) = slowest.filter(|slowest| slowest.0 < u64::MAX / 4 / SLOT_LATENCIES)
        else {
            // Checking costs little, but need not be done for each batch.
            self.next_check = Nanos(now.0.saturating_add(1_000));
            return;
        };
        let wanted = (slowest.0.max(1) * SLOT_LATENCIES).next_power_of_two().trailing_zeros();
        let shift = all.shift.fetch_max(wanted, Relaxed).max(wanted);
        let start = |slot: u64| Nanos(slot.saturating_mul(1 << shift));
        let slot = now.0 >> shift;
        let just_ended = self.to == start(slot);
        // Slow requests of the trial are still in flight in the slot after it.
        if !just_ended {
            self.evaluate(all);
        }
        let cycle = 1 << (MIN_CYCLE_LOG2 + all.backoff.load(Relaxed));
        let trial = (slot & !(cycle - 1)) + 1;
        let begins = slot == trial && self.to != start(slot + 1);
        if begins {
            // In the first quarter of the slot the queues still hold requests of the previous rule.
            (self.from, self.to) = (start(slot) + Nanos((1 << shift) / 4), start(slot + 1));
        }
        // A trial uses the rule that is not in force.
        let wide = (all.switches.load(Relaxed) % 2 == 1) != begins;
        self.near = if wide { WIDE_FACTOR } else { NARROW_FACTOR };
        let next = match slot {
            _ if begins || just_ended => slot + 1,
            _ if slot < trial => trial,
            _ => trial + cycle,
        };
        self.next_check = start(next);
    }

    /// Adds this thread's sums to the shared ones, and decides.
    fn evaluate(&mut self, all: &SharedTrial) {
        let switches = all.switches.load(Relaxed);
        if std::mem::replace(&mut self.switches, switches) != switches {
            // Another thread has changed the rule: these sums belong to the old one.
            (self.regular, self.trial) = Default::default();
            return;
        }
        all.regular.add(&mut self.regular);
        all.trial.add(&mut self.trial);
        let count = all.trial.count.load(Relaxed);
        if count.min(all.regular.count.load(Relaxed)) < MIN_SAMPLES {
            return;
        }
        // The standard error of the trial's mean, relative to the mean.
        let (ratio, error) =
            (all.trial.mean() / all.regular.mean(), LATENCY_CV / (count as f32).sqrt());
        let wide_is_tried = switches.is_multiple_of(2);
        // The wide rule has to be better by two standard errors, the narrow one only by one: the
        // narrow rule is the safe default.
        let better = if wide_is_tried {
            ratio < (1.0 - 2.0 * error).min(ADOPT_BELOW)
        } else {
            ratio < 1.0 - error
        };
        if better {
            // If another thread decides the same now, one change is enough.
            _ = all.switches.compare_exchange(switches, switches.wrapping_add(1), Relaxed, Relaxed);
            self.switches = switches.wrapping_add(1);
            all.backoff.store(0, Relaxed);
        } else if ratio > REJECT_ABOVE + 2.0 * error {
            all.backoff.store(
                (all.backoff.load(Relaxed) + 2).min(MAX_CYCLE_LOG2 - MIN_CYCLE_LOG2),
                Relaxed,
            );
        } else if count < MAX_SAMPLES {
            // Undecided: collect more.
            return;
        }
        all.regular.clear();
        all.trial.clear();
        // The next cycle adapts its length to the latencies of now.
        all.shift.store(0, Relaxed);
    }
}
