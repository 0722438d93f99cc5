//! Choosing for a batch: the paths are ranked once, and what goes out is counted once for each path.
//!
//! A thread that submits several requests at once would read the same counts, and write to them, again for each. Within a
//! batch nobody else's requests matter that much: what the paths are like is read once, and each choice then knows of the
//! ones before it. The counts are exact once the batch is committed.

use units::{Class, Nanos};

use super::count::NO_ROW;
use super::lines::Lines;
use super::place::{Kind, Place};
use super::queue_depth;
use super::set::{PathId, PathSet};
use super::{Paths, Policy, Token, weight};

/// What is to be known of a path to choose it or not: its cost at a load, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub path: PathId,
    /// What is in flight there, as the policy counts.
    pub load: u32,
    /// How long a request usually takes. Paths for which this is about the same are told apart by their load alone.
    pub usual: f32,
    /// A request costs `base` + `rise` × load, and `least` at least.
    pub base: f32,
    pub rise: f32,
    pub least: f32,
}

/// Paths whose usual latencies are within this factor count as equal.
const NEAR_ENOUGH: f32 = 1.4;

impl Standing {
    /// Where load is all that is known.
    #[inline]
    pub(super) fn by_load(path: PathId, load: u32) -> Standing {
        Standing { path, load, usual: 1.0, base: 0.0, rise: 0.0, least: 0.0 }
    }

    #[inline]
    fn cost(&self) -> f32 {
        (self.base + self.rise * self.load as f32).max(self.least)
    }

    /// Whether it is better than `other`.
    #[inline]
    pub(super) fn beats(&self, other: &Standing) -> bool {
        let near = self.usual <= other.usual * NEAR_ENOUGH && other.usual <= self.usual * NEAR_ENOUGH;
        if near { self.load < other.load } else { self.cost() < other.cost() }
    }
}

/// A path that is ranked, and what the batch has sent there so far.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    standing: Standing,
    added: u32,
}

/// The choices of one batch after the other; made once for each thread ([`Paths::batch`]).
#[derive(Debug)]
pub struct Batch {
    /// From the place's first path on; what `among`, `class` and `policy` were when they were ranked.
    ranked: Vec<Ranked>,
    among: PathSet,
    class: Option<Class>,
    policy: Policy,
    /// Where what it sends is counted.
    row: u32,
    /// Among the ranked, the one that was chosen last.
    last: usize,
}

impl Batch {
    pub(super) fn new(paths: usize) -> Batch {
        Batch { ranked: Vec::with_capacity(paths), among: PathSet::NONE, class: None, policy: Policy::Numa, row: NO_ROW, last: 0 }
    }

    /// The best of the ranked, as of now.
    #[inline]
    fn best(&mut self) -> Option<PathId> {
        let latency = self.policy == Policy::Latency;
        let (first, others) = self.ranked.split_first()?;
        let (mut best, mut last) = (&first.standing, 0);
        for (n, Ranked { standing, .. }) in others.iter().enumerate() {
            let better = if latency { standing.beats(best) } else { standing.load < best.load };
            if better {
                (best, last) = (standing, n + 1);
            }
        }
        self.last = last;
        Some(best.path)
    }
}

impl Paths {
    /// For the batches of a thread.
    pub fn batch(&self) -> Batch {
        Batch::new(self.shape().paths.into())
    }

    /// As [`Paths::choose`], for the next request of a batch.
    #[inline]
    pub fn choose_next(
        &self,
        batch: &mut Batch,
        among: PathSet,
        place: &Place,
        class: Class,
        now: Nanos,
        lines: &mut impl Lines,
    ) -> Option<PathId> {
        if among.is_at_most_one() {
            return among.first();
        }
        if batch.class != Some(class) || batch.among != among {
            self.commit(batch, place, now, lines);
            self.rank(batch, among, place, class, now, lines);
        }
        match batch.policy {
            Policy::QueueDepth(_) => batch.best(),
            Policy::RoundRobin => self.cursors.choose(among, place.queue, lines),
            Policy::Numa => self.shape().distances.choose(among, place.node),
            Policy::Latency => match self.learnt.explore(&self.counts, among, place, class, now, lines) {
                None => batch.best(),
                unheard_of => unheard_of,
            },
        }
    }

    /// Ranks `among` by the policy in force, if it is one that ranks.
    #[inline(never)]
    fn rank(&self, batch: &mut Batch, among: PathSet, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) {
        (batch.policy, batch.among, batch.class, batch.last) = (self.policy(), among, Some(class), 0);
        batch.row = place.row(batch.policy.kind());
        if matches!(batch.policy, Policy::Numa | Policy::RoundRobin) {
            return;
        }
        for path in among.iter_from(place.first) {
            let standing = match batch.policy {
                Policy::QueueDepth(counting) => queue_depth::standing(&self.counts, counting, self.shape(), path, place, lines),
                _ => self.learnt.standing(&self.counts, path, place, class, now, lines),
            };
            batch.ranked.push(Ranked { standing, added: 0 });
        }
    }

    /// As [`Paths::start`], for a request of a batch. It is counted when the batch is committed.
    #[inline]
    pub fn start_next(&self, batch: &mut Batch, path: PathId, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Token {
        let last = batch.ranked.get_mut(batch.last).filter(|ranked| ranked.standing.path == path);
        let Some(ranked) = last else { return self.start(path, place, class, now, lines) };
        let kind = batch.policy.kind();
        let load = weight(kind, class);
        let token = Token { row: batch.row, found: ranked.standing.load, kind, class, path };
        ranked.standing.load = ranked.standing.load.wrapping_add(load);
        ranked.added += load;
        token
    }

    /// Counts what the batch has sent. To be called before anything of it can have been answered; without anything sent it
    /// costs nothing.
    #[inline]
    pub fn commit(&self, batch: &mut Batch, place: &Place, now: Nanos, lines: &mut impl Lines) {
        if batch.class.take().is_none() {
            return;
        }
        let (kind, row) = (batch.policy.kind(), batch.row);
        let owned = place.owns(kind, row);
        for ranked in batch.ranked.drain(..).filter(|ranked| ranked.added > 0) {
            let path = ranked.standing.path;
            if self.counts.add(row, path, ranked.added, owned, lines) == 0 && kind == Kind::Loads {
                self.learnt.busy(path, place.queue, now, lines);
            }
        }
    }
}
