//! Choosing for a batch: the paths are ranked once, and what goes out is counted once for each path.
//!
//! A thread that submits several requests at once would read the same counts, and write to them, again for each. Within a
//! batch nobody else's requests matter that much: what the paths are like is read once, and each choice then knows of the
//! ones before it. The counts are exact once the batch is committed.

use sync::atomic::Ordering::Relaxed;
use units::{Class, Nanos, Op};

use super::count::NO_ROW;
use super::latency::Standing;
use super::lines::Lines;
use super::place::{Kind, Place};
use super::queue_depth::{self, Counting};
use super::set::PathSet;
use super::token::{Token, weight};
use super::{Paths, Policy};

/// Where a path stands among the ranked: its tier, its load in that, and its place in the list. The least has its turn.
///
/// What is chosen by is one number, so that the least is found without a branch for each path, and whatever a policy knows
/// beyond the load is in it once for the whole batch.
#[derive(Clone, Copy, Debug)]
struct Turn {
    rank: u64,
    /// What it is given for each request: the load that this is, and for one that is to have no other, the last tier.
    step: u64,
    /// What its requests are counted in.
    token: Token,
    /// Its load before the batch.
    before: u32,
    /// For `latency`, as in [`Standing`].
    usual: f32,
}

/// The load begins at this bit, and the tier at that one.
const LOAD: u32 = 8;
const TIER: u32 = LOAD + u32::BITS;
/// The tiers: 0, a path of which one request is to find out; one that is as good as any; one that is worse.
const GOOD: u64 = 1 << TIER;
const LAST: u64 = 2 << TIER;

impl Turn {
    fn new(token: Token, weight: u32) -> Turn {
        Turn { rank: 0, step: u64::from(weight) << LOAD, token, before: 0, usual: 0.0 }
    }

    /// Its load is this.
    #[inline]
    fn begin(&mut self, place: usize, load: u32) {
        self.before = load;
        self.rank = u64::from(load) << LOAD | place as u64;
    }

    /// One request is to go there before all others, and no second one.
    fn send_one(&mut self) {
        self.rank &= GOOD - 1;
        self.step |= LAST;
    }

    /// What it was given by the batch.
    #[inline]
    fn added(&self) -> u32 {
        ((self.rank >> LOAD) as u32).wrapping_sub(self.before)
    }
}

/// What a ranking was made of: while that stays the same, only the loads are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Basis {
    among: PathSet,
    class: Class,
    /// Where requests are counted; [`NO_ROW`]: nowhere.
    row: u32,
}

/// No class.
const UNRANKED: u16 = u16::MAX;
/// No place.
const NO_TURN: usize = usize::MAX;

/// The choices of one batch after the other, each of which begins with [`Paths::begin`] and ends with [`Paths::commit`]; made once for each thread ([`Paths::batch`]).
#[derive(Debug)]
pub struct Batch {
    /// The ranked; those among which the next request chooses, in the order of their places.
    turns: Vec<Turn>,
    basis: Basis,
    /// The index of the class that they are ranked for; [`UNRANKED`]: they have to be ranked before the next request.
    ranked_for: u16,
    /// The policy, also as a number, and the node that they are ranked by.
    policy: Policy,
    number: u8,
    node: u16,
    /// The place whose turn it is, where they are taken one after the other; else [`NO_TURN`]: the one with the least rank is.
    next: usize,
}

impl Batch {
    pub(super) fn new(paths: usize) -> Batch {
        Batch {
            turns: Vec::with_capacity(paths),
            basis: Basis { among: PathSet::NONE, class: Class::new(Op::Flush, 0), row: NO_ROW },
            ranked_for: UNRANKED,
            policy: Policy::Numa,
            number: Policy::Numa.into(),
            node: 0,
            next: 0,
        }
    }

    /// Chooses, and gives what the request is counted in.
    #[inline(always)]
    fn next(&mut self) -> Option<Token> {
        if let Some(turn) = self.turns.get(self.next) {
            self.next += 1;
            if self.next == self.turns.len() {
                self.next = 0;
            }
            return Some(turn.token);
        }
        // Two are what most have, and all there are to choose between then.
        let [first, second, others @ ..] = self.turns.as_slice() else { return None };
        let least = others.iter().map(|turn| turn.rank).fold(first.rank.min(second.rank), u64::min);
        let turn = self.turns.get_mut(least as usize % (1 << LOAD))?;
        turn.rank += turn.step;
        Some(turn.token)
    }
}

impl Paths {
    /// For the batches of a thread.
    pub fn batch(&self) -> Batch {
        Batch::new(self.shape().paths.into())
    }

    /// As [`Paths::choose`] and [`Paths::start`], for the next request of a batch. Where there is a choice the request is counted
    /// when the batch is committed.
    #[inline(always)] // As little as a call of it would cost.
    pub fn send_next(
        &self,
        batch: &mut Batch,
        among: PathSet,
        place: &Place,
        class: Class,
        now: Nanos,
        lines: &mut impl Lines,
    ) -> Option<Token> {
        if batch.basis.among != among || usize::from(batch.ranked_for) != class.index() {
            if among.is_at_most_one() {
                return among.first().map(|path| self.start_by(batch.policy, path, place, class, now, lines));
            }
            self.rank(batch, among, place, class, now, lines);
        }
        batch.next()
    }

    /// A batch begins: it is sent by the policy that is in force now.
    #[inline]
    pub fn begin(&self, batch: &mut Batch, place: &Place, now: Nanos, lines: &mut impl Lines) {
        let number = self.policy.load(Relaxed);
        if batch.number != number || batch.node != place.node {
            self.begin_anew(batch, number, place, now, lines);
        }
    }

    #[cold]
    fn begin_anew(&self, batch: &mut Batch, number: u8, place: &Place, now: Nanos, lines: &mut impl Lines) {
        self.commit(batch, place, now, lines);
        batch.basis.among = PathSet::NONE;
        (batch.ranked_for, batch.policy, batch.number, batch.node) = (UNRANKED, Policy::from_bits(number), number, place.node);
    }

    /// Ranks `among`; what was sent by the last ranking is counted.
    #[inline(never)]
    fn rank(&self, batch: &mut Batch, among: PathSet, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) {
        self.commit(batch, place, now, lines);
        let basis = Basis { among, class, row: batch.policy.row(place) };
        if batch.basis != basis {
            self.rank_anew(batch, basis, place);
        }
        batch.ranked_for = class.index() as u16;
        match batch.policy {
            Policy::Numa | Policy::RoundRobin => {}
            Policy::QueueDepth(counting) => self.rank_by_depth(batch, counting, lines),
            Policy::Latency => self.rank_by_latency(batch, place, now, lines),
        }
    }

    #[inline(never)]
    fn rank_anew(&self, batch: &mut Batch, basis: Basis, place: &Place) {
        let (Basis { among, class, row }, policy) = (basis, batch.policy);
        let (ranked, first) = match policy {
            Policy::Numa => (self.shape().distances.choose(among, batch.node).map_or(among, PathSet::of), 0),
            Policy::RoundRobin => (among, self.cursors.next(place.queue)),
            Policy::QueueDepth(_) | Policy::Latency => (among, place.first),
        };
        let kind = policy.kind();
        batch.turns.clear();
        batch.turns.extend(ranked.iter_from(first).map(|path| Turn::new(Token::new(row, kind, class, path), weight(kind, class))));
        (batch.basis, batch.next) = (basis, if policy.counts() { NO_TURN } else { 0 });
    }

    /// All that there is to know is the load.
    fn rank_by_depth(&self, batch: &mut Batch, counting: Counting, lines: &mut impl Lines) {
        let row = batch.basis.row;
        for (at, turn) in batch.turns.iter_mut().enumerate() {
            let path = turn.token.path();
            let load = match counting {
                Counting::Sum => queue_depth::sum(&self.counts, self.shape(), path, lines),
                _ => self.counts.read(row, path, lines),
            };
            turn.begin(at, load);
        }
    }

    /// The paths that count as equal to the fastest are told apart by load; before them comes one that nobody knows, or that has not
    /// been heard of for long, for one request; behind them, the others.
    fn rank_by_latency(&self, batch: &mut Batch, place: &Place, now: Nanos, lines: &mut impl Lines) {
        let Basis { among, class, .. } = batch.basis;
        let near = self.learnt.near(among, place, class, now);
        let mut fastest = f32::INFINITY;
        for (at, turn) in batch.turns.iter_mut().enumerate() {
            let Standing { load, usual, .. } = self.learnt.standing(&self.counts, turn.token.path(), place, class, now, lines);
            turn.begin(at, load);
            turn.usual = usual;
            if usual > 0.0 {
                fastest = fastest.min(usual);
            }
        }
        let explored = self.learnt.explore(&self.counts, among, place, class, now, lines);
        for turn in &mut batch.turns {
            turn.step &= GOOD - 1;
            turn.rank |= if turn.usual <= fastest * near { GOOD } else { LAST };
            if turn.usual == 0.0 || Some(turn.token.path()) == explored {
                turn.send_one();
            }
        }
    }

    /// Counts what the batch has sent. To be called before anything of it can have been answered; without anything sent it
    /// costs nothing.
    #[inline]
    pub fn commit(&self, batch: &mut Batch, place: &Place, now: Nanos, lines: &mut impl Lines) {
        if let Some(next) = batch.turns.get(batch.next) {
            // Nothing is counted. Another thread that chooses for the hardware queue goes on from here.
            if batch.policy == Policy::RoundRobin {
                self.cursors.set_next(place.queue, next.token.path(), lines);
            }
        } else if batch.ranked_for != UNRANKED {
            self.count(batch, place, now, lines);
        }
    }

    #[inline(never)]
    fn count(&self, batch: &mut Batch, place: &Place, now: Nanos, lines: &mut impl Lines) {
        batch.ranked_for = UNRANKED;
        let (kind, row, mut sent) = (batch.policy.kind(), batch.basis.row, 0);
        let owned = place.owns(kind, row);
        for turn in &batch.turns {
            let added = turn.added();
            sent += added;
            if added > 0 && self.counts.add(row, turn.token.path(), added, owned, lines) == 0 && kind == Kind::Loads {
                self.learnt.busy(turn.token.path(), place.queue, now, lines);
            }
        }
        if kind == Kind::Loads {
            self.learnt.chosen(place, sent / weight(kind, batch.basis.class));
        }
    }
}
