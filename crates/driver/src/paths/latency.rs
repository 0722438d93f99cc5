//! `latency`: the path on which *this* request is expected to complete first.
//!
//! Each thread learns for itself the usual latency of each class of request on each path. A request is expected to take what is usual.
//! Six rules go with it.
//!
//! *Near enough*: paths whose usual latencies differ by less than a factor count as equal, and the one with the least load is taken; so
//! equal paths are shared as `queue-depth` shares them, and noise decides nothing. *Trials*: where all paths are full that factor
//! has to be a large one, and whether it is so is found out by trying (`trial.rs`). *Silence*: a path that has had something in
//! flight for twice as long as usual, and has answered nothing, is expected to stay silent for as long again; so a path that
//! degrades is left before the first late answer is there. *Exploration*: now and then a request goes to the path that has not answered
//! for longest, so that one that has got better is found. *Pioneers*: a path of which nothing is known gets one request, and no
//! more before that is back. *Oblivion*: what is known of a path that was silent for long counts for half against its next answer.
//!
//! Load is measured by size, so that a large request counts for more than a small one.

use units::{Class, Nanos};

use super::set::{PathId, PathSet};
use super::trial::{Trial, Verdict, WITHIN_SIGHT};

/// One choice in so many explores, if there is anything to explore: well below one in a hundred, which would be seen in
/// the 99th percentile.
const EXPLORE_ONE_IN: u32 = 256;

/// A path that has answered within this time is known well enough.
const EXPLORE_AFTER: Nanos = Nanos::from_millis(50);

/// A slow path is explored for one part in so many of the time: an explorer may be the only request that is in flight.
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
