//! Choosing for a batch: the paths are ranked once, and what goes out is counted once for each path.
//!
//! A thread that submits several requests at once would read the same counts, and write to them, again for each. Within a
//! batch nobody else's requests matter that much: what the paths are like is read once, and each choice then knows of the
//! ones before it. The counts are exact once the batch is committed.

use units::{Class, Nanos, Op};

use super::count::NO_ROW;
use super::lines::Lines;
use super::place::{Kind, Place};
use super::queue_depth;
use super::set::{PathId, PathSet};
use super::{Paths, Policy, Token, weight};

/// What is to be known of a path to choose it or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub path: PathId,
    /// What is in flight there, as the policy counts.
    pub load: u32,
    /// How long a request is expected to take (ns). Paths for which this is about the same are told apart by their load alone.
    pub usual: f32,
}

impl Standing {
    /// Where load is all that is known.
    #[inline]
    pub(super) fn by_load(path: PathId, load: u32) -> Standing {
        Standing { path, load, usual: 1.0 }
    }

    /// Whether it is better than `other`, where `near` is the factor within which latencies count as the same.
    #[inline]
    pub(super) fn beats(&self, other: &Standing, near: f32) -> bool {
        let is_near = self.usual <= other.usual * near && other.usual <= self.usual * near;
        if is_near { self.load < other.load } else { self.usual < other.usual }
    }
}

/// A path that is ranked, and its load before the batch.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    standing: Standing,
    before: u32,
}

/// How the ranked are chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The one with the least load.
    Emptiest,
    /// One after the other.
    InTurn,
    /// The best, unless it is time to explore.
    Best,
}

/// The choices of one batch after the other; made once for each thread ([`Paths::batch`]).
#[derive(Debug)]
pub struct Batch {
    /// In the order in which they have their turn; what `among`, `class` and `policy` were when they were ranked. `among` is none if
    /// they have to be ranked anew.
    ranked: Vec<Ranked>,
    among: PathSet,
    class: Class,
    policy: Policy,
    how: How,
    /// Where, by what, and as how much each that it sends is counted; [`NO_ROW`]: nowhere.
    row: u32,
    kind: Kind,
    weight: u32,
    /// For `latency`: the factor within which paths count as equal.
    near: f32,
    /// Among the ranked, the one that was chosen last.
    last: usize,
}

impl Batch {
    pub(super) fn new(paths: usize) -> Batch {
        Batch {
            ranked: Vec::with_capacity(paths),
            among: PathSet::NONE,
            class: Class::new(Op::Flush, 0),
            policy: Policy::Numa,
            how: How::InTurn,
            row: NO_ROW,
            kind: Kind::Loads,
            weight: 0,
            near: 1.0,
            last: 0,
        }
    }

    /// By load alone: the path with the least; of several, the first. Without a branch for each path, as [`Rows::least`] does it.
    #[inline]
    fn emptiest(&mut self) -> Option<PathId> {
        let key = |(n, ranked): (usize, &Ranked)| (u64::from(ranked.standing.load) << 8) | n as u64;
        let least = self.ranked.iter().enumerate().map(key).fold(u64::MAX, u64::min);
        self.last = least as usize % PathSet::MOST;
        self.ranked.get(self.last).map(|ranked| ranked.standing.path)
    }

    /// The one after the last.
    #[inline]
    fn next_in_turn(&mut self) -> Option<PathId> {
        self.last += 1;
        if self.last >= self.ranked.len() {
            self.last = 0;
        }
        self.ranked.get(self.last).map(|ranked| ranked.standing.path)
    }

    /// The best of the ranked, as of now.
    #[inline]
    fn best(&mut self) -> Option<PathId> {
        let (first, others) = self.ranked.split_first()?;
        let (mut best, mut last) = (&first.standing, 0);
        for (n, Ranked { standing, .. }) in others.iter().enumerate() {
            if standing.beats(best, self.near) {
                (best, last) = (standing, n + 1);
            }
        }
        let (path, unheard_of) = (best.path, best.usual == 0.0);
        self.last = last;
        if unheard_of && let Some(ranked) = self.ranked.get_mut(last) {
            // One is enough to see what it is like.
            ranked.standing.usual = f32::INFINITY;
        }
        Some(path)
    }
}

impl Paths {
    /// For the batches of a thread.
    pub fn batch(&self) -> Batch {
        Batch::new(self.shape().paths.into())
    }

    /// As [`Paths::choose`], for the next request of a batch.
    #[inline(always)] // As little as a call of it would cost, but for `latency`.
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
        if batch.among != among || batch.class != class {
            self.rank(batch, among, place, class, now, lines);
        }
        match batch.how {
            How::Emptiest => batch.emptiest(),
            How::InTurn => batch.next_in_turn(),
            How::Best => self.expected_first(batch, among, place, class, now, lines),
        }
    }

    /// By `latency`. Apart from what others need.
    #[inline(never)]
    fn expected_first(
        &self,
        batch: &mut Batch,
        among: PathSet,
        place: &Place,
        class: Class,
        now: Nanos,
        lines: &mut impl Lines,
    ) -> Option<PathId> {
        self.learnt.explore(&self.counts, among, place, class, now, lines).or_else(|| batch.best())
    }

    /// Ranks `among` by the policy in force; what was sent by the last ranking is counted.
    #[inline(never)]
    fn rank(&self, batch: &mut Batch, among: PathSet, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) {
        self.commit(batch, place, now, lines);
        let policy = self.policy();
        let kind = policy.kind();
        (batch.policy, batch.among, batch.class) = (policy, among, class);
        batch.ranked.clear();
        (batch.kind, batch.row, batch.weight) =
            if policy.counts() { (kind, place.row(kind), weight(kind, class)) } else { (kind, NO_ROW, 0) };
        let (how, ranked, first) = match policy {
            Policy::Numa => (How::InTurn, self.shape().distances.choose(among, place.node).map_or(among, PathSet::of), 0),
            Policy::RoundRobin => (How::InTurn, among, self.cursors.next(place.queue)),
            Policy::QueueDepth(_) => (How::Emptiest, among, place.first),
            Policy::Latency => (How::Best, among, place.first),
        };
        batch.how = how;
        if how == How::Best {
            batch.near = self.learnt.near(among, place, class, now);
        }
        for path in ranked.iter_from(first) {
            let standing = match policy {
                Policy::Numa | Policy::RoundRobin => Standing::by_load(path, 0),
                Policy::QueueDepth(counting) => queue_depth::standing(&self.counts, counting, self.shape(), path, place, lines),
                Policy::Latency => self.learnt.standing(&self.counts, path, place, class, now, lines),
            };
            batch.ranked.push(Ranked { standing, before: standing.load });
        }
        // Nothing has been chosen; the next in turn is the first.
        batch.last = batch.ranked.len();
    }

    /// As [`Paths::start`], for a request of a batch. It is counted when the batch is committed.
    #[inline(always)]
    pub fn start_next(&self, batch: &mut Batch, path: PathId, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Token {
        let Batch { ranked, last, class: of, row, kind, weight, .. } = batch;
        let last = ranked.get_mut(*last).filter(|ranked| ranked.standing.path == path && *of == class);
        let Some(ranked) = last else { return self.start(path, place, class, now, lines) };
        let token = Token { row: *row, kind: *kind, class, path };
        ranked.standing.load = ranked.standing.load.wrapping_add(*weight);
        token
    }

    /// Counts what the batch has sent. To be called before anything of it can have been answered; without anything sent it
    /// costs nothing.
    #[inline]
    pub fn commit(&self, batch: &mut Batch, place: &Place, now: Nanos, lines: &mut impl Lines) {
        if !batch.among.is_empty() {
            self.count(batch, place, now, lines);
        }
    }

    #[inline(never)]
    fn count(&self, batch: &mut Batch, place: &Place, now: Nanos, lines: &mut impl Lines) {
        batch.among = PathSet::NONE;
        if batch.row == NO_ROW {
            if let Some(last) = batch.ranked.get(batch.last).filter(|_| batch.policy == Policy::RoundRobin) {
                self.cursors.set(place.queue, last.standing.path, lines);
            }
            return;
        }
        let (kind, row) = (batch.kind, batch.row);
        let owned = place.owns(kind, row);
        for Ranked { standing: Standing { path, load, .. }, before } in batch.ranked.drain(..) {
            let added = load.wrapping_sub(before);
            if added > 0 && self.counts.add(row, path, added, owned, lines) == 0 && kind == Kind::Loads {
                self.learnt.busy(path, place.queue, now, lines);
            }
        }
    }
}
