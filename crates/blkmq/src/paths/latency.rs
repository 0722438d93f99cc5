//! `latency`: the path on which *this* request is expected to complete first.
//!
//! Each hardware queue learns for itself, so that no line is written by two CPUs that do not share the queue anyway. For
//! each path it knows the usual latency of each class of request, how much was usually in flight when it was sent, and how
//! much is in flight now. What is in flight is measured in the time that it is usually out, so that a large request counts
//! for more than a small one. The expectation is the usual latency, in proportion to the load:
//!
//! ```text
//! expected = usual latency × (load now + own) / (usual load + own)
//! ```
//!
//! At the usual load that is what was measured; above it, no path is better than in proportion. Four rules go with it.
//! *Silence*: a path that has had something in flight for twice as long as usual, and has answered nothing, is expected to
//! stay silent for as long again; so a path that degrades is left before the first late answer is there. *Near enough*:
//! paths that differ by less than the noise of what was learnt count as equal, and the one with the least load is taken;
//! so equal paths are shared as `queue-depth` shares them, and nobody runs after noise. *Exploration*: now and then a
//! request goes to the path that has been heard of least, so that one that has got better is found. *Pioneers*: a path of
//! which nothing is known gets one request, and no more before that is back.

use crossbeam_utils::CachePadded;
use handover::sync::atomic::Ordering::Relaxed;
use handover::sync::atomic::{AtomicU32, AtomicU64};
use units::{Class, Nanos};

use super::lines::{Line, Lines, Table};
use super::set::{PathId, PathSet};
use super::{Place, Shape};

/// One choice in so many explores, if there is anything to explore: well below one in a hundred, which would be seen in
/// the 99th percentile.
const EXPLORE_ONE_IN: u32 = 256;

/// A path that has answered within this time is no secret.
const EXPLORE_AFTER: Nanos = Nanos::from_millis(50);

/// What is known of a path that has not answered for this long may be out of date: the next answer counts for half.
const STALE_AFTER: Nanos = Nanos::from_millis(20);

/// Weight of a new latency: one part in 2^8, so that times that scatter as widely as exponential ones make the mean wander
/// by a twentieth. A latency that is many times the usual one still tells at once.
const LEARN_LOG2: u8 = 8;

/// Paths within this factor of the best count as equal.
const NEAR_ENOUGH: f32 = 1.4;

/// What one hardware queue knows of one path.
struct Knowledge {
    /// Requests in flight, and the sum of their usual latencies (ns): exact, because each takes back what it has added.
    in_flight: AtomicU32,
    load: AtomicU64,
    /// The load that a new request usually finds.
    usual_load: Mean,
    /// Since when the path has answered nothing although something was in flight.
    silent_since: AtomicU64,
    /// When it answered last.
    heard: AtomicU64,
}

/// What the hardware queues know of the paths.
pub(super) struct Learnt {
    paths: usize,
    /// By queue and path.
    known: Box<[CachePadded<Knowledge>]>,
    /// The usual latency (ns) by queue, path and class.
    latencies: Box<[CachePadded<[Mean; Class::COUNT]>]>,
    /// Choices so far, by queue.
    explorers: Box<[CachePadded<AtomicU32>]>,
}

impl Learnt {
    pub(super) fn new(shape: &Shape) -> Learnt {
        let (paths, queues) = (usize::from(shape.paths), usize::from(shape.queues));
        Learnt {
            paths,
            known: (0..paths * queues).map(|_| CachePadded::new(Knowledge::new())).collect(),
            latencies: (0..paths * queues).map(|_| CachePadded::new(std::array::from_fn(|_| Mean::new()))).collect(),
            explorers: (0..queues).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
        }
    }

    #[inline]
    pub(super) fn choose(&self, usable: PathSet, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Option<PathId> {
        if self.explores(place, lines)
            && let Some(path) = self.least_known(usable, place, now)
        {
            return Some(path);
        }
        let expected = |path: PathId, lines: &mut _| self.expected(path, place, class, now, lines);
        let mut best = f32::INFINITY;
        for path in usable.iter() {
            best = best.min(expected(path, lines).when);
        }
        let limit = best * NEAR_ENOUGH;
        let near = usable.iter_from(place.first).map(|path| (path, expected(path, lines)));
        let near = near.filter(|(_, expected)| expected.when <= limit);
        near.min_by(|(_, a), (_, b)| a.ahead.total_cmp(&b.ahead)).map(|(path, _)| path)
    }

    /// What to expect of a path.
    #[inline]
    fn expected(&self, path: PathId, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Expected {
        let at = self.at(place.queue, path);
        lines.read(Line { table: Table::Load, at: at as u32 });
        lines.read(line_of(at, class));
        let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) else {
            return Expected { when: f32::INFINITY, ahead: f32::INFINITY };
        };
        let load = known.load.load(Relaxed);
        let Some(usual) = latencies[class.index()].get() else {
            // Unheard of: one goes to see.
            let ahead = known.in_flight.load(Relaxed) as f32;
            return Expected { when: if ahead == 0.0 { 0.0 } else { f32::MAX }, ahead };
        };
        let (own, usual_load) = (usual as f32, known.usual_load.get().unwrap_or(0) as f32);
        let mut when = own * (load as f32 + own) / (usual_load + own);
        if load > 0 {
            let silent = now - Nanos(known.silent_since.load(Relaxed));
            if silent.0 / 2 > usual {
                when = when.max(silent.0 as f32);
            }
        }
        Expected { when, ahead: load as f32 / own }
    }

    #[inline]
    fn explores(&self, place: &Place, lines: &mut impl Lines) -> bool {
        lines.write(Line { table: Table::Explorers, at: place.queue.into() });
        let Some(choices) = self.explorers.get(usize::from(place.queue)) else { return false };
        let choice = choices.load(Relaxed).wrapping_add(1);
        choices.store(choice, Relaxed);
        choice % EXPLORE_ONE_IN == 0
    }

    /// The path that has been silent for longest, if nothing is under way that will tell.
    #[cold]
    fn least_known(&self, usable: PathSet, place: &Place, now: Nanos) -> Option<PathId> {
        let heard = |path| {
            let known = self.known.get(self.at(place.queue, path))?;
            (known.in_flight.load(Relaxed) == 0).then_some((path, Nanos(known.heard.load(Relaxed))))
        };
        let (path, heard) = usable.iter().filter_map(heard).min_by_key(|(_, heard)| *heard)?;
        (now - heard > EXPLORE_AFTER).then_some(path)
    }

    /// A request goes out. What it adds to the load, which it has to take back.
    #[inline]
    pub(super) fn start(&self, path: PathId, queue: u16, class: Class, now: Nanos, lines: &mut impl Lines) -> u32 {
        let at = self.at(queue, path);
        lines.write(Line { table: Table::Load, at: at as u32 });
        lines.read(line_of(at, class));
        let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) else { return 0 };
        let own = latencies[class.index()].get().unwrap_or(0).clamp(1, u32::MAX.into()) as u32;
        let found = known.load.fetch_add(own.into(), Relaxed);
        if known.in_flight.fetch_add(1, Relaxed) == 0 {
            known.silent_since.store(now.0, Relaxed);
        }
        known.usual_load.add(found);
        own
    }

    /// A request has ended, or never came back: takes its share of the load away. With its latency, learns from it.
    #[inline]
    pub(super) fn end(&self, path: PathId, queue: u16, ended: Ended, lines: &mut impl Lines) {
        let at = self.at(queue, path);
        lines.write(Line { table: Table::Load, at: at as u32 });
        let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) else { return };
        known.load.fetch_sub(ended.load.into(), Relaxed);
        known.in_flight.fetch_sub(1, Relaxed);
        let Some((latency, now)) = ended.answered else { return };
        lines.write(line_of(at, ended.class));
        let heard = Nanos(known.heard.load(Relaxed));
        known.heard.store(now.0, Relaxed);
        known.silent_since.store(now.0, Relaxed);
        let usual = &latencies[ended.class.index()];
        match usual.get() {
            Some(before) if now - heard > STALE_AFTER => {
                usual.add_half(latency.0);
                if latency.0 < before / 2 {
                    // Better than it was: the next explorer need not wait.
                    known.heard.store(0, Relaxed);
                }
            }
            _ => usual.add(latency.0),
        }
    }

    /// Forgets what was learnt of a path; what is in flight stays counted.
    pub(super) fn forget(&self, path: PathId) {
        for at in (usize::from(path.0)..self.known.len()).step_by(self.paths.max(1)) {
            if let (Some(known), Some(latencies)) = (self.known.get(at), self.latencies.get(at)) {
                known.usual_load.forget();
                latencies.iter().for_each(Mean::forget);
            }
        }
    }

    #[inline]
    fn at(&self, queue: u16, path: PathId) -> usize {
        usize::from(queue) * self.paths + usize::from(path.0)
    }

    /// Requests in flight, and their load, of all paths and queues.
    pub(super) fn total(&self) -> u64 {
        let of = |known: &CachePadded<Knowledge>| u64::from(known.in_flight.load(Relaxed)) + known.load.load(Relaxed);
        self.known.iter().map(of).sum()
    }

    /// Requests in flight on `path`.
    pub(super) fn of(&self, path: PathId) -> u64 {
        let known = self.known.iter().skip(usize::from(path.0)).step_by(self.paths.max(1));
        known.map(|known| u64::from(known.in_flight.load(Relaxed))).sum()
    }

    /// The usual latency of a class on `path`, as the queue knows it.
    pub(super) fn usual(&self, path: PathId, queue: u16, class: Class) -> Option<Nanos> {
        self.latencies.get(self.at(queue, path))?[class.index()].get().map(Nanos)
    }
}

/// What a request has to expect of a path.
struct Expected {
    /// How long it takes, in nanoseconds.
    when: f32,
    /// How many of its like are in flight before it.
    ahead: f32,
}

/// How a request ended.
pub(super) struct Ended {
    /// What it had added.
    pub load: u32,
    pub class: Class,
    /// Its latency and when it was answered; `None`: it was not.
    pub answered: Option<(Nanos, Nanos)>,
}

impl Knowledge {
    fn new() -> Knowledge {
        Knowledge {
            in_flight: AtomicU32::new(0),
            load: AtomicU64::new(0),
            usual_load: Mean::new(),
            silent_since: AtomicU64::new(0),
            heard: AtomicU64::new(0),
        }
    }
}

/// A mean that forgets: of the first values the plain mean, later each counts for one part in 2^[`LEARN_LOG2`]. Where two
/// threads add at once one of the values may be lost: it is a mean, not a count.
struct Mean(AtomicU64);

impl Mean {
    /// Below the value: how many values there were, up to 2^[`LEARN_LOG2`].
    const COUNT_BITS: u32 = 10;
    /// Bits of the value after the point.
    const FRACTION: u32 = 6;

    fn new() -> Mean {
        Mean(AtomicU64::new(0))
    }

    /// `None`: of nothing.
    #[inline]
    fn get(&self) -> Option<u64> {
        let word = self.0.load(Relaxed);
        (word != 0).then_some(word >> (Mean::COUNT_BITS + Mean::FRACTION))
    }

    #[inline]
    fn add(&self, value: u64) {
        let count = self.0.load(Relaxed) & ((1 << Mean::COUNT_BITS) - 1);
        let grown = (count + 1).min(1 << LEARN_LOG2);
        self.approach(value, grown as i64, grown);
    }

    /// The value counts for half, and the values before it for not much more than it.
    #[cold]
    fn add_half(&self, value: u64) {
        self.approach(value, 2, 2);
    }

    #[inline]
    fn approach(&self, value: u64, part: i64, count: u64) {
        let before = (self.0.load(Relaxed) >> Mean::COUNT_BITS) as i64;
        let value = (value.min(1 << 40) << Mean::FRACTION) as i64;
        let after = (before + (value - before) / part) as u64;
        self.0.store(after << Mean::COUNT_BITS | count, Relaxed);
    }

    fn forget(&self) {
        self.0.store(0, Relaxed);
    }
}

/// The cache line that holds a class's latency.
#[inline]
fn line_of(at: usize, class: Class) -> Line {
    const LINES: usize = Class::COUNT.div_ceil(8);
    Line { table: Table::Learnt, at: (at * LINES + class.index() / 8) as u32 }
}
