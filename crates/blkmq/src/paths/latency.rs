//! `latency`: the path on which *this* request is expected to complete first.
//!
//! Each hardware queue learns for itself the usual latency of each class of request on each path, so that no line is written by
//! two CPUs that do not share the queue anyway. A request is expected to take what is usual. Six rules go with it.
//!
//! *Near enough*: paths whose usual latencies differ by less than a factor count as equal, and the one with the least load is taken; so
//! equal paths are shared as `queue-depth` shares them, and nobody runs after noise. *Trials*: where all paths are full that factor
//! has to be a large one, and whether it is so is found out by trying (`trial.rs`). *Silence*: a path that has had something in
//! flight for twice as long as usual, and has answered nothing, is expected to stay silent for as long again; so a path that
//! degrades is left before the first late answer is there. *Exploration*: now and then a request goes to the path that has
//! been heard of least, so that one that has got better is found. *Pioneers*: a path of which nothing is known gets one request, and no
//! more before that is back. *Oblivion*: what is known of a path that was silent for long counts for half against its next answer.
//!
//! Load is measured by size, so that a large request counts for more than a small one.

use crossbeam_utils::CachePadded;
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU32, AtomicU64};
use units::{Class, Nanos};

use super::count::Rows;
use super::lines::{Line, Lines, Table};
use super::place::{Kind, Place};
use super::set::{PathId, PathSet};
use super::shape::Shape;
use super::trial::{Trial, Verdict, WITHIN_SIGHT};
use super::usual::Usual;

/// One choice in so many explores, if there is anything to explore: well below one in a hundred, which would be seen in
/// the 99th percentile.
const EXPLORE_ONE_IN: u32 = 256;

/// A path that has answered within this time is no secret.
const EXPLORE_AFTER: Nanos = Nanos::from_millis(50);

/// A slow path is explored for one part in so many of the time: an explorer may be the only request that is in flight.
const EXPLORE_SHARE: u64 = 100;

/// What is known of a path that has not answered for this long may be out of date: the next answer counts for half.
const STALE_AFTER: Nanos = Nanos::from_millis(20);

/// What one hardware queue knows of one path.
struct Knowledge {
    /// Since when something has been in flight without a break.
    busy_since: AtomicU64,
    /// When it answered last.
    heard: AtomicU64,
}

/// What is to be known of a path to choose it or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub path: PathId,
    /// What is in flight there, as the policy counts.
    pub load: u32,
    /// How long a request is expected to take (ns); 0: nobody knows, and one is to go and see. Paths for which this is about the
    /// same are told apart by their load alone.
    pub usual: f32,
}

impl Standing {
    /// Whether it is better than `other`, where `near` is the factor within which latencies count as the same. Where there are three or
    /// more this goes from one to the next; a batch compares each with the fastest.
    #[inline]
    pub(super) fn beats(&self, other: &Standing, near: f32) -> bool {
        let is_near = self.usual <= other.usual * near && other.usual <= self.usual * near;
        if is_near { self.load < other.load } else { self.usual < other.usual }
    }
}

/// What the hardware queues know of the paths.
pub(super) struct Learnt {
    paths: usize,
    /// By queue and path.
    known: Box<[CachePadded<Knowledge>]>,
    /// The usual latency (ns) by queue, path and class.
    latencies: Box<[CachePadded<[Usual; Class::COUNT]>]>,
    /// By queue: choices since one explored, and which rule they follow.
    choosers: Box<[CachePadded<Chooser>]>,
    verdict: CachePadded<Verdict>,
}

/// How one hardware queue chooses.
struct Chooser {
    choices: AtomicU32,
    trial: Trial,
}

/// A request that was answered.
pub(super) struct Ended {
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
            latencies: (0..paths * queues).map(|_| CachePadded::new(std::array::from_fn(|_| Usual::new()))).collect(),
            choosers: (0..queues).map(|_| CachePadded::new(Chooser { choices: AtomicU32::new(0), trial: Trial::new() })).collect(),
            verdict: CachePadded::default(),
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
        self.chosen(place, 1);
        if let Some(path) = self.explore(counts, usable, place, class, now, lines) {
            return Some(path);
        }
        let near = self.near(usable, place, class, now);
        let mut expect = |path| self.standing(counts, path, place, class, now, lines);
        let mut paths = usable.iter_from(place.first);
        let mut best = expect(paths.next()?);
        for path in paths {
            let next = expect(path);
            if next.beats(&best, near) {
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
        lines.read(Line { table: Table::Heard, at: at as u32 });
        lines.read(line_of(at, class));
        let never = Standing { path, load, usual: f32::INFINITY };
        let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) else { return never };
        let Some(usual) = latencies[class.index()].get() else {
            // Unheard of: one goes to see.
            return if load == 0 { Standing { usual: 0.0, ..never } } else { never };
        };
        if load > 0 {
            let silent = (now - Nanos(known.heard.load(Relaxed).max(known.busy_since.load(Relaxed)))).0 as f32;
            if silent > 2.0 * usual {
                return Standing { usual: silent, ..never };
            }
        }
        Standing { usual, ..never }
    }

    /// The factor within which latencies count as the same now.
    #[inline]
    pub(super) fn near(&self, usable: PathSet, place: &Place, class: Class, now: Nanos) -> f32 {
        let Some(chooser) = self.choosers.get(usize::from(place.queue)) else { return 1.0 };
        chooser.trial.near(now, &self.verdict, || self.slowest(usable, place, class))
    }

    /// How long the slowest path takes that is within sight of the fastest; `None`: there are not two that are known.
    #[cold]
    fn slowest(&self, usable: PathSet, place: &Place, class: Class) -> Option<Nanos> {
        let usual = || usable.iter().filter_map(|path| self.usual(path, place.queue, class));
        let most = Nanos((usual().min()?.0 as f32 * WITHIN_SIGHT) as u64);
        let seen = || usual().filter(|&usual| usual <= most);
        if seen().count() > 1 { seen().max() } else { None }
    }

    /// Now and then a choice is for exploring.
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
        lines.write(Line { table: Table::Trials, at: place.queue.into() });
        let choices = &self.choosers.get(usize::from(place.queue))?.choices;
        if choices.load(Relaxed) < EXPLORE_ONE_IN {
            return None;
        }
        choices.store(0, Relaxed);
        self.least_known(counts, usable, place, class, now)
    }

    /// Counts choices; [`Learnt::explore`] tells of the line.
    #[inline]
    pub(super) fn chosen(&self, place: &Place, choices: u32) {
        if let Some(chooser) = self.choosers.get(usize::from(place.queue)) {
            chooser.choices.store(chooser.choices.load(Relaxed).saturating_add(choices), Relaxed);
        }
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
        lines.write(Line { table: Table::Heard, at: at as u32 });
        if let Some(known) = self.known.get(at) {
            known.busy_since.store(now.0, Relaxed);
        }
    }

    /// A request was answered.
    #[inline]
    pub(super) fn end(&self, path: PathId, queue: u32, ended: Ended, lines: &mut impl Lines) {
        let Ended { class, latency, now } = ended;
        let at = self.at(queue, path);
        lines.write(Line { table: Table::Heard, at: at as u32 });
        lines.write(line_of(at, class));
        lines.write(Line { table: Table::Trials, at: queue });
        let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) else { return };
        let heard = Nanos(known.heard.load(Relaxed));
        known.heard.store(now.0, Relaxed);
        if let Some(chooser) = self.choosers.get(queue as usize) {
            chooser.trial.ended(now - latency, latency);
        }
        let usual = &latencies[class.index()];
        let latency = latency.0 as f32;
        match usual.get() {
            Some(before) if now - heard > STALE_AFTER => {
                usual.add_after_silence(latency);
                if latency < before / 2.0 {
                    // Better than it was: the next explorer need not wait.
                    known.heard.store(0, Relaxed);
                }
            }
            _ => usual.add(latency),
        }
    }

    /// Forgets what was learnt of a path; what is in flight stays counted.
    pub(super) fn forget(&self, path: PathId) {
        for at in (path.index()..self.known.len()).step_by(self.paths.max(1)) {
            if let Some(latencies) = self.latencies.get(at) {
                latencies.iter().for_each(Usual::forget);
            }
        }
    }

    #[inline]
    fn at(&self, queue: u32, path: PathId) -> usize {
        queue as usize * self.paths + path.index()
    }

    /// The usual latency of a class on `path`, as the queue knows it.
    pub(super) fn usual(&self, path: PathId, queue: u16, class: Class) -> Option<Nanos> {
        self.latencies.get(self.at(queue.into(), path))?[class.index()].get().map(|ns| Nanos(ns as u64))
    }
}

impl Knowledge {
    fn new() -> Knowledge {
        Knowledge { busy_since: AtomicU64::new(0), heard: AtomicU64::new(0) }
    }
}

/// The cache line that holds a class's latency.
#[inline]
fn line_of(at: usize, class: Class) -> Line {
    const LINES: usize = Class::COUNT.div_ceil(8);
    Line { table: Table::Learnt, at: (at * LINES + class.index() / 8) as u32 }
}
