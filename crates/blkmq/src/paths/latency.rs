//! `latency`: the path on which *this* request is expected to complete first.
//!
//! Each hardware queue learns for itself, so that no line is written by two CPUs that do not share the queue anyway. For
//! each path it knows the usual latency of each class of request, and how latency goes with load: the load that requests
//! found when they were sent, and the slope of a line through what became of them. What a request has to expect is
//!
//! ```text
//! expected = usual latency × (1 + slope × (load now − usual load))
//! ```
//!
//! Where a path has room the slope is nothing, and it is expected to take what it always takes; where requests wait
//! behind each other the line goes through the origin, and the queue in front of this one counts in full. There a
//! request also makes all that come after it wait: by slope × load × usual latency. That *toll* is added several times
//! over. Without it each would take the fast path until waiting there is as bad as the slow path is at its best: right
//! for every single one, and a slow path that stays idle means less for all. Load is measured by size, so that a large
//! request counts for more than a small one.
//!
//! Five rules go with it. *Silence*: a path that has had something in flight for twice as long as usual, and has answered
//! nothing, is expected to stay silent for as long again; so a path that degrades is left before the first late answer is
//! there. *Near enough*: paths whose usual latencies differ by less than the noise of what was learnt count as equal, and
//! the one with the least load is taken; so equal paths are shared as `queue-depth` shares them, and nobody runs after
//! noise. *Exploration*: now and then a request goes to the path that has been heard of least, so that one that has got
//! better is found. *Pioneers*: a path of which nothing is known gets one request, and no more before that is back.
//! *Doubt*: a load that never changes teaches nothing about slopes. So for a few choices now and then every path is taken
//! to be full; where another is near enough to be worth it, load moves there, and the slope shows.

use crossbeam_utils::CachePadded;
use handover::sync::atomic::Ordering::Relaxed;
use handover::sync::atomic::{AtomicU32, AtomicU64};
use units::{Class, Nanos};

use super::Shape;
use super::batch::Standing;
use super::count::Rows;
use super::fit::{Fit, Latencies};
use super::lines::{Line, Lines, Table};
use super::place::{Kind, Place};
use super::set::{PathId, PathSet};

/// One choice in so many explores, if there is anything to explore: well below one in a hundred, which would be seen in
/// the 99th percentile.
const EXPLORE_ONE_IN: u32 = 256;

/// A path that has answered within this time is no secret.
const EXPLORE_AFTER: Nanos = Nanos::from_millis(50);

/// A slow path is explored for one part in so many of the time: an explorer may be the only request that is in flight.
const EXPLORE_SHARE: u64 = 100;

/// What is known of a path that has not answered for this long may be out of date: the next answer counts for half.
const STALE_AFTER: Nanos = Nanos::from_millis(20);

/// Choices in which every path is taken for full: the first of so many of each stretch, and some before it has come to that.
const DOUBTED: u32 = 256;
const STRETCH: u32 = 16384;

/// Whether that is so for a choice of this number.
#[inline]
fn doubts(choice: u32) -> bool {
    choice % STRETCH < DOUBTED || matches!(choice / DOUBTED, 4 | 16)
}

/// Whether it was so for what ends when this is the last choice: load moves away then, and comes back.
#[inline]
fn teaches(choice: u32) -> bool {
    choice % STRETCH < 4 * DOUBTED || matches!(choice / DOUBTED, 4..8 | 16..20)
}

/// How often what a request costs those that come after it is added to what it has to expect itself.
const TOLL: f32 = 4.0;

/// What one hardware queue knows of one path.
struct Knowledge {
    fit: Fit,
    /// Since when something has been in flight without a break.
    busy_since: AtomicU64,
    /// When it answered last.
    heard: AtomicU64,
}

/// What the hardware queues know of the paths.
pub(super) struct Learnt {
    paths: usize,
    /// By queue and path.
    known: Box<[CachePadded<Knowledge>]>,
    /// The usual latency (ns) by queue, path and class.
    latencies: Box<[CachePadded<[Latencies; Class::COUNT]>]>,
    /// Choices so far, by queue.
    explorers: Box<[CachePadded<AtomicU32>]>,
}

/// A request that was answered.
pub(super) struct Ended {
    /// The load that it had found.
    pub found: u32,
    pub class: Class,
    pub latency: Nanos,
    pub now: Nanos,
}

impl Learnt {
    pub(super) fn new(shape: &Shape) -> Learnt {
        let (paths, queues) = (usize::from(shape.paths), usize::from(shape.queues));
        Learnt {
            paths,
            known: (0..paths * queues).map(|_| CachePadded::new(Knowledge::new())).collect(),
            latencies: (0..paths * queues).map(|_| CachePadded::new(std::array::from_fn(|_| Latencies::new()))).collect(),
            explorers: (0..queues).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
        }
    }

    #[inline]
    pub(super) fn choose(
        &self,
        counts: &Rows,
        usable: PathSet,
        place: &Place,
        class: Class,
        now: Nanos,
        lines: &mut impl Lines,
    ) -> Option<PathId> {
        if let Some(path) = self.explore(counts, usable, place, class, now, lines) {
            return Some(path);
        }
        let mut expect = |path| self.standing(counts, path, place, class, now, lines);
        let mut paths = usable.iter_from(place.first);
        let mut best = expect(paths.next()?);
        for path in paths {
            let next = expect(path);
            if next.beats(&best) {
                best = next;
            }
        }
        Some(best.path)
    }

    /// What to expect of a path.
    #[inline]
    pub(super) fn standing(
        &self,
        counts: &Rows,
        path: PathId,
        place: &Place,
        class: Class,
        now: Nanos,
        lines: &mut impl Lines,
    ) -> Standing {
        let load = counts.read(place.row(Kind::Loads), path, lines);
        let at = self.at(place.queue.into(), path);
        lines.read(Line { table: Table::Fits, at: at as u32 });
        lines.read(line_of(at, class));
        let never = Standing { path, load, usual: f32::INFINITY, base: f32::INFINITY, rise: 0.0, least: 0.0 };
        let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) else { return never };
        let Some(usual) = latencies[class.index()].usual() else {
            // Unheard of: one goes to see.
            return if load == 0 { Standing { usual: 0.0, base: 0.0, rise: f32::MAX, ..never } } else { never };
        };
        let usual_load = known.fit.usual_load();
        let doubted = self.doubts(place);
        let slope = if doubted { 1.0 / usual_load.max(1.0) } else { known.fit.slope() };
        let (base, rise) = (usual * (1.0 - slope * usual_load), usual * slope * (1.0 + TOLL));
        // In doubt a far path that is empty would look near.
        let least = if doubted { usual / 2.0 } else { 0.0 };
        let mut standing = Standing { usual, base, rise, least, ..never };
        if load > 0 {
            let silent = (now - Nanos(known.heard.load(Relaxed).max(known.busy_since.load(Relaxed)))).0 as f32;
            if silent > 2.0 * usual {
                (standing.usual, standing.least) = (silent, silent);
            }
        }
        standing
    }

    /// Counts a choice, and now and then takes it for exploring.
    #[inline]
    pub(super) fn explore(
        &self,
        counts: &Rows,
        usable: PathSet,
        place: &Place,
        class: Class,
        now: Nanos,
        lines: &mut impl Lines,
    ) -> Option<PathId> {
        let choice = self.choice(place, lines);
        if choice.is_multiple_of(EXPLORE_ONE_IN) { self.least_known(counts, usable, place, class, now) } else { None }
    }

    /// Whether every path is to be taken for full.
    #[inline]
    fn doubts(&self, place: &Place) -> bool {
        let choices = self.explorers.get(usize::from(place.queue));
        choices.is_some_and(|choices| doubts(choices.load(Relaxed)))
    }

    /// The number of a choice.
    #[inline]
    fn choice(&self, place: &Place, lines: &mut impl Lines) -> u32 {
        lines.write(Line { table: Table::Explorers, at: place.queue.into() });
        let Some(choices) = self.explorers.get(usize::from(place.queue)) else { return 1 };
        let choice = choices.load(Relaxed).wrapping_add(1);
        choices.store(choice, Relaxed);
        choice
    }

    /// The path that has been silent for longest, if nothing is under way that will tell.
    #[cold]
    fn least_known(&self, counts: &Rows, usable: PathSet, place: &Place, class: Class, now: Nanos) -> Option<PathId> {
        let row = place.row(Kind::Loads);
        let heard = |path| {
            let known = self.known.get(self.at(place.queue.into(), path))?;
            (counts.read(row, path, &mut ()) == 0).then_some((path, Nanos(known.heard.load(Relaxed))))
        };
        let (path, heard) = usable.iter().filter_map(heard).min_by_key(|(_, heard)| *heard)?;
        let usual = self.usual(path, place.queue, class).unwrap_or(Nanos::ZERO);
        (now - heard > EXPLORE_AFTER.max(Nanos(usual.0.saturating_mul(EXPLORE_SHARE)))).then_some(path)
    }

    /// A request has gone out on a path that had nothing in flight.
    #[inline]
    pub(super) fn busy(&self, path: PathId, queue: u16, now: Nanos, lines: &mut impl Lines) {
        let at = self.at(queue.into(), path);
        lines.write(Line { table: Table::Fits, at: at as u32 });
        if let Some(known) = self.known.get(at) {
            known.busy_since.store(now.0, Relaxed);
        }
    }

    /// A request was answered.
    #[inline]
    pub(super) fn end(&self, path: PathId, queue: u32, ended: Ended, lines: &mut impl Lines) {
        let Ended { found, class, latency, now } = ended;
        let at = self.at(queue, path);
        lines.write(Line { table: Table::Fits, at: at as u32 });
        lines.write(line_of(at, class));
        let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) else { return };
        let heard = Nanos(known.heard.load(Relaxed));
        known.heard.store(now.0, Relaxed);
        let usual = &latencies[class.index()];
        let latency = latency.0 as f32;
        match usual.usual() {
            Some(before) if now - heard > STALE_AFTER => {
                usual.add_after_silence(latency);
                if latency < before / 2.0 {
                    // Better than it was: the next explorer need not wait.
                    known.heard.store(0, Relaxed);
                }
            }
            _ => {
                usual.add(latency);
                let choices = self.explorers.get(queue as usize);
                if known.fit.is_next() || choices.is_some_and(|choices| teaches(choices.load(Relaxed))) {
                    known.fit.add(found as f32, usual.add_for_long(latency));
                }
            }
        }
    }

    /// Forgets what was learnt of a path; what is in flight stays counted.
    pub(super) fn forget(&self, path: PathId) {
        for at in (path.index()..self.known.len()).step_by(self.paths.max(1)) {
            if let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) {
                known.fit.forget();
                latencies.iter().for_each(Latencies::forget);
            }
        }
    }

    #[inline]
    fn at(&self, queue: u32, path: PathId) -> usize {
        queue as usize * self.paths + path.index()
    }

    /// The usual latency of a class on `path`, as the queue knows it.
    pub(super) fn usual(&self, path: PathId, queue: u16, class: Class) -> Option<Nanos> {
        self.latencies.get(self.at(queue.into(), path))?[class.index()].usual().map(|ns| Nanos(ns as u64))
    }
}

impl Knowledge {
    fn new() -> Knowledge {
        Knowledge { fit: Fit::new(), busy_since: AtomicU64::new(0), heard: AtomicU64::new(0) }
    }
}

/// The cache line that holds a class's latency.
#[inline]
fn line_of(at: usize, class: Class) -> Line {
    const LINES: usize = Class::COUNT.div_ceil(8);
    Line { table: Table::Learnt, at: (at * LINES + class.index() / 8) as u32 }
}
