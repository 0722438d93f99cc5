//! Which of several paths a request takes.
//!
//! A [`Paths`] belongs to one namespace that several controllers lead to, and is shared by every thread that uses it: the [`Policy`], and
//! what the policy `latency` has found out for all. Each thread chooses by a [`Selector`] of its own: [`Selector::begin`] a batch, for
//! each request [`Selector::send_next`] among the paths that can be used now, [`Selector::commit`], and [`Selector::end`] with the
//! request's [`Token`]. The token says what the request was counted as, so that the policy may change while requests are in flight and
//! every count still comes back to zero.
//!
//! A thread counts what it has in flight itself, so that a choice touches no cache line that another CPU writes; a count for each
//! controller, which all threads write, is what `queue-depth` of post 004 costs. Pure: the caller says when it is.

mod latency;
mod set;

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use sync::atomic::AtomicU8;
use sync::atomic::Ordering::Relaxed;
use units::{Class, Nanos, Op};

use latency::{LatencyEstimates, SharedTrial};

pub use set::{PathId, PathSet, TooManyPaths};

/// How a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The path nearest to the CPU's memory node.
    Numa,
    /// One after the other.
    RoundRobin,
    /// The path with the fewest requests of this thread in flight.
    QueueDepth,
    /// The path on which this request is expected to complete first.
    Latency,
}

/// No policy has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no path policy `{name}`; {hint}")]
pub struct PolicyError {
    /// As given.
    pub name: String,
    /// What was probably meant, or what there is.
    pub hint: String,
}

impl Policy {
    /// All of them, by the numbers that `Policy::from_bits` reads.
    pub const ALL: [Policy; 4] = [Policy::Numa, Policy::RoundRobin, Policy::QueueDepth, Policy::Latency];

    /// Its name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Numa => "numa",
            Policy::RoundRobin => "round-robin",
            Policy::QueueDepth => "queue-depth",
            Policy::Latency => "latency",
        }
    }

    /// The policy of a number (`as u8`); of any other, the first.
    #[inline]
    fn from_bits(bits: u8) -> Policy {
        Policy::ALL.get(usize::from(bits)).copied().unwrap_or(Policy::Numa)
    }

    /// What a request is counted as: one, or for `latency` this many times 4 KiB; 0: nothing is counted.
    #[inline]
    fn weight(self, class: Class) -> u32 {
        match self {
            Policy::Numa | Policy::RoundRobin => 0,
            Policy::QueueDepth => 1,
            Policy::Latency => class.most_bytes().div_ceil(4096).max(1),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(name: &str) -> Result<Policy, PolicyError> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let hint = match units::nearest(name, Policy::ALL.map(Policy::name)) {
                Some(policy) => format!("did you mean `{policy}`?"),
                None => format!("known are {}", Policy::ALL.map(Policy::name).join(", ")),
            };
            PolicyError { name: name.to_owned(), hint }
        })
    }
}

/// For `numa`: how far each path's controller is from each memory node, in the units of the firmware's table (10: the same node).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances(pub Vec<Vec<u8>>);

impl Distances {
    /// What a distance that is not given counts as: farther than any.
    pub const UNKNOWN: u8 = u8::MAX;

    /// The nearest; of several, the first.
    fn nearest(&self, usable: PathSet, node: u16) -> Option<PathId> {
        let row = self.0.get(usize::from(node));
        usable.iter().min_by_key(|&path| row.and_then(|row| row.get(path.index())).copied().unwrap_or(Distances::UNKNOWN))
    }
}

/// The paths to a namespace, as its threads share them.
pub struct Paths {
    policy: AtomicU8,
    count: u8,
    distances: Distances,
    shared_trial: CachePadded<SharedTrial>,
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths").field("policy", &self.policy()).field("count", &self.count).finish_non_exhaustive()
    }
}

impl Paths {
    /// This many paths.
    ///
    /// # Errors
    /// None, or more than [`PathSet::MOST`].
    pub fn new(count: usize, distances: Distances, policy: Policy) -> Result<Paths, TooManyPaths> {
        if !(1..=PathSet::MOST).contains(&count) {
            return Err(TooManyPaths(count));
        }
        Ok(Paths { policy: AtomicU8::new(policy as u8), count: count as u8, distances, shared_trial: CachePadded::default() })
    }

    /// The policy in force.
    #[inline]
    pub fn policy(&self) -> Policy {
        Policy::from_bits(self.policy.load(Relaxed))
    }

    /// From the next batch on, another policy. What is in flight stays counted as it was counted.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Relaxed);
    }

    /// All paths there are.
    pub fn all(&self) -> PathSet {
        PathSet::below(self.count.into())
    }
}

/// What a request was counted as. It goes with the request, and back by [`Selector::end`] or [`Selector::abandon`], once.
///
/// One word, because it is kept for every request. From the lowest bit: weight (32 bits; 0: the policy does not count), path and class
/// (8 each), whether `latency` chose it, and a 1.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "what is counted has to be taken back"]
pub struct Token(NonZeroU64);

const PATH: u32 = 32;
const CLASS: u32 = 40;
const LEARNS: u64 = 1 << 48;
const SOME: NonZeroU64 = NonZeroU64::new(1 << 63).unwrap();

impl Token {
    #[inline]
    fn new(policy: Policy, class: Class, path: PathId) -> Token {
        let learns = if policy == Policy::Latency { LEARNS } else { 0 };
        Token(SOME | u64::from(policy.weight(class)) | u64::from(path.0) << PATH | (class.index() as u64) << CLASS | learns)
    }

    /// The path that the request took.
    #[inline]
    pub fn path(&self) -> PathId {
        PathId((self.0.get() >> PATH) as u8 % PathSet::MOST as u8)
    }

    #[inline]
    fn weight(&self) -> u32 {
        self.0.get() as u32
    }

    #[inline]
    fn class(&self) -> Class {
        Class::of_index((self.0.get() >> CLASS) as u8)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("path", &self.path()).field("weight", &self.weight()).finish_non_exhaustive()
    }
}

/// Where a path stands among the ranked: its tier, its load in that, and its place in the list. The least has its entry.
///
/// What is chosen by is one number, so that the least is found without a branch for each path, and whatever a policy knows
/// beyond the load is in it once for the whole batch.
#[derive(Clone, Copy, Debug)]
struct RankedPath {
    rank: u64,
    /// What it is given for each request: the load that this is, and for one that is to have no other, the last tier.
    step: u64,
    token: Token,
    /// Its load before the batch.
    before: u32,
    /// For `latency`: how long a request is expected to take (ns); 0: not known, and one is to find out.
    expected_ns: f32,
}

/// The load begins at this bit, and the tier at that one.
const LOAD: u32 = 8;
const TIER: u32 = LOAD + u32::BITS;
/// The tiers: 0, a path of which one request is to find out; one that is as good as any; one that is worse.
const GOOD: u64 = 1 << TIER;
const LAST: u64 = 2 << TIER;

/// No class.
const UNRANKED: u16 = u16::MAX;
/// No place.
const BY_RANK: usize = usize::MAX;

/// One thread's choices, batch by batch: the paths are ranked once for a batch, and each choice then knows of the ones before it.
#[derive(Debug)]
pub struct Selector {
    shared: Arc<Paths>,
    /// The memory node of the thread's CPU.
    node: u16,
    /// Which path it takes first where all are alike.
    first: u8,
    /// What is in flight, by path: requests, or load.
    counts: Vec<u32>,
    estimates: LatencyEstimates,
    /// The ranked; those among which the next request chooses, in the order of their places.
    ranked: Vec<RankedPath>,
    /// What they were ranked among and for. The class's index; [`UNRANKED`]: they have to be ranked before the next request.
    among: PathSet,
    class: Class,
    ranked_for: u16,
    /// The policy that they are ranked by.
    policy: Policy,
    /// The place whose turn it is, where they are taken one after the other; else [`BY_RANK`]: the one with the least rank is.
    next: usize,
    /// Where `round-robin` goes on.
    cursor: u8,
}

impl Selector {
    /// For a thread. `number` tells the threads apart, so that they do not all begin with the same path.
    pub fn new(shared: Arc<Paths>, number: usize) -> Selector {
        let paths = usize::from(shared.count);
        Selector {
            node: 0,
            first: (number % paths) as u8,
            counts: vec![0; paths],
            estimates: LatencyEstimates::new(paths),
            ranked: Vec::with_capacity(paths),
            among: PathSet::NONE,
            class: Class::new(Op::Flush, 0),
            ranked_for: UNRANKED,
            policy: shared.policy(),
            next: BY_RANK,
            cursor: (number % paths) as u8,
            shared,
        }
    }

    /// The thread runs on a CPU of this memory node now.
    pub fn set_node(&mut self, node: u16) {
        if self.node != node {
            (self.node, self.among, self.ranked_for) = (node, PathSet::NONE, UNRANKED);
        }
    }

    /// A batch begins: it is sent by the policy that is in force now.
    #[inline]
    pub fn begin(&mut self, now: Nanos) {
        let policy = self.shared.policy();
        if self.policy != policy {
            self.commit(now);
            (self.policy, self.among, self.ranked_for) = (policy, PathSet::NONE, UNRANKED);
        }
    }

    /// Chooses a path for a request of `class`, among `usable`; `None` if that is empty. Where there is a choice the request is counted
    /// when the batch is committed.
    #[inline(always)] // As little as a call of it would cost.
    pub fn send_next(&mut self, usable: PathSet, class: Class, now: Nanos) -> Option<Token> {
        if self.among != usable || usize::from(self.ranked_for) != class.index() {
            if usable.is_at_most_one() {
                return usable.first().map(|path| self.start_by(self.policy, path, class, now));
            }
            self.rank(usable, class, now);
        }
        if let Some(entry) = self.ranked.get(self.next) {
            self.next += 1;
            if self.next == self.ranked.len() {
                self.next = 0;
            }
            return Some(entry.token);
        }
        // Two are what most have, and all there are to choose between then.
        let [first, second, others @ ..] = self.ranked.as_slice() else { return None };
        let least = others.iter().map(|entry| entry.rank).fold(first.rank.min(second.rank), u64::min);
        let entry = self.ranked.get_mut(least as usize % (1 << LOAD))?;
        entry.rank += entry.step;
        Some(entry.token)
    }

    /// Counts a request that is sent by `path`, chosen or not.
    pub fn start(&mut self, path: PathId, class: Class, now: Nanos) -> Token {
        self.start_by(self.shared.policy(), path, class, now)
    }

    #[inline]
    fn start_by(&mut self, policy: Policy, path: PathId, class: Class, now: Nanos) -> Token {
        let token = Token::new(policy, class, path);
        self.count(path, token.weight(), policy, now);
        token
    }

    #[inline]
    fn count(&mut self, path: PathId, weight: u32, policy: Policy, now: Nanos) {
        let Some(count) = self.counts.get_mut(path.index()).filter(|_| weight > 0) else { return };
        if *count == 0 && policy == Policy::Latency {
            self.estimates.became_busy(path, now);
        }
        *count = count.wrapping_add(weight);
    }

    /// Counts what the batch has sent. To be called before anything of it can have been answered; without anything sent it
    /// costs nothing.
    #[inline]
    pub fn commit(&mut self, now: Nanos) {
        if self.ranked_for != UNRANKED && self.next == BY_RANK {
            self.commit_counts(now);
        }
    }

    #[inline(never)]
    fn commit_counts(&mut self, now: Nanos) {
        self.ranked_for = UNRANKED;
        let mut sent = 0;
        for n in 0..self.ranked.len() {
            let Some(entry) = self.ranked.get(n) else { break };
            let added = ((entry.rank >> LOAD) as u32).wrapping_sub(entry.before);
            sent += added;
            self.count(entry.token.path(), added, self.policy, now);
        }
        self.estimates.count_choices(sent / self.policy.weight(self.class).max(1));
    }

    /// The request was answered at `now`, `latency` after it was sent: what it was counted as is taken back.
    #[inline]
    pub fn end(&mut self, token: Token, latency: Nanos, now: Nanos) {
        self.abandon(token);
        if token.0.get() & LEARNS != 0 {
            self.estimates.end(token.path(), token.class(), latency, now);
        }
    }

    /// The request was taken back from its path: it counts no more, and nothing is learnt from it.
    #[inline]
    pub fn abandon(&mut self, token: Token) {
        if let Some(count) = self.counts.get_mut(token.path().index()) {
            *count = count.wrapping_sub(token.weight());
        }
    }

    /// The path has been away: what was learnt of it holds no more.
    pub fn forget(&mut self, path: PathId) {
        self.estimates.forget(path);
    }

    /// What is counted of `path`: requests in flight, by `latency` as load; `numa` and `round-robin` do not count.
    pub fn in_flight(&self, path: PathId) -> u32 {
        self.counts.get(path.index()).copied().unwrap_or(0)
    }

    /// Ranks `usable`; what was sent by the last ranking is counted.
    #[inline(never)]
    fn rank(&mut self, usable: PathSet, class: Class, now: Nanos) {
        self.commit(now);
        if self.among != usable || self.class != class {
            self.rank_anew(usable, class);
        }
        self.ranked_for = class.index() as u16;
        match self.policy {
            Policy::Numa | Policy::RoundRobin => {}
            Policy::QueueDepth => self.rank_by_load(),
            Policy::Latency => self.rank_by_latency(now),
        }
    }

    fn rank_anew(&mut self, usable: PathSet, class: Class) {
        if let Some(entry) = self.ranked.get(self.next) {
            self.cursor = entry.token.path().0;
        }
        let policy = self.policy;
        let (candidates, first) = match policy {
            Policy::Numa => (self.shared.distances.nearest(usable, self.node).map_or(usable, PathSet::of), 0),
            Policy::RoundRobin => (usable, self.cursor),
            Policy::QueueDepth | Policy::Latency => (usable, self.first),
        };
        let step = u64::from(policy.weight(class)) << LOAD;
        let entry = |path| RankedPath { rank: 0, step, token: Token::new(policy, class, path), before: 0, expected_ns: 0.0 };
        self.ranked.clear();
        self.ranked.extend(candidates.iter_from(first).map(entry));
        (self.among, self.class) = (usable, class);
        self.next = if step > 0 { BY_RANK } else { 0 };
    }

    /// All that there is to know is the load.
    fn rank_by_load(&mut self) {
        for (place, entry) in self.ranked.iter_mut().enumerate() {
            entry.before = self.counts.get(entry.token.path().index()).copied().unwrap_or(0);
            entry.rank = u64::from(entry.before) << LOAD | place as u64;
        }
    }

    /// The paths that count as equal to the fastest are told apart by load; before them comes one of which nothing is known, or that has
    /// not answered for long, for one request; behind them, the others.
    fn rank_by_latency(&mut self, now: Nanos) {
        self.rank_by_load();
        let Selector { estimates, shared, ranked, counts, among, class, .. } = self;
        let near = estimates.near_factor(*among, *class, now, &shared.shared_trial);
        let mut fastest = f32::INFINITY;
        for entry in ranked.iter_mut() {
            entry.expected_ns = estimates.expected(entry.token.path(), entry.before, *class, now);
            if entry.expected_ns > 0.0 {
                fastest = fastest.min(entry.expected_ns);
            }
        }
        let explored = estimates.pick_unexplored(counts, *among, *class, now);
        for entry in ranked {
            entry.step &= GOOD - 1;
            entry.rank |= if entry.expected_ns <= fastest * near { GOOD } else { LAST };
            if entry.expected_ns == 0.0 || Some(entry.token.path()) == explored {
                // One request goes there before all others, and no second one.
                entry.rank &= GOOD - 1;
                entry.step |= LAST;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
