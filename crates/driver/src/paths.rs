//! Chooses the path of each request of a namespace with several controllers.
//!
//! A [`Paths`] belongs to one namespace and is shared by its threads: the [`Policy`], and the
//! results that the policy `latency` shares. Each thread chooses with a [`Selector`] of its own,
//! batch by batch:
//!
//! ```text
//!   begin   send_next (per request) -> Token   commit   …   end(Token, latency)
//! ```
//!
//! The token records how the request was counted. So the policy may change while requests are in
//! flight, and every count still returns to zero.
//!
//! A thread counts its own requests in flight, so a choice touches no cache line that another CPU
//! writes. (Linux's `queue-depth` counts per controller for all threads.) This module reads no
//! clock: the caller supplies the time.

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
    /// Each path in turn.
    RoundRobin,
    /// The path with the fewest requests of this thread in flight.
    QueueDepth,
    /// The path on which this request is expected to complete first.
    Latency,
}

/// Unknown policy name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no path policy `{name}`; {hint}")]
pub struct PolicyError {
    /// The name given.
    pub name: String,
    /// The closest name, or the names known.
    pub hint: String,
}

impl Policy {
    /// All policies, in the order of their numbers.
    pub const ALL: [Policy; 4] =
        [Policy::Numa, Policy::RoundRobin, Policy::QueueDepth, Policy::Latency];

    /// Its name, as [`FromStr`] parses it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Numa => "numa",
            Policy::RoundRobin => "round-robin",
            Policy::QueueDepth => "queue-depth",
            Policy::Latency => "latency",
        }
    }

    /// The policy with this number (`as u8`); an invalid number gives the first policy.
    #[inline]
    fn from_bits(bits: u8) -> Policy {
        Policy::ALL.get(usize::from(bits)).copied().unwrap_or(Policy::Numa)
    }

    /// How much a request adds to the load of its path: 1, or for `latency` its size in units of 4
    /// KiB; 0: the policy does not count requests.
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
            let hint = match units::nearest_name(name, Policy::ALL.map(Policy::name)) {
                Some(policy) => format!("did you mean `{policy}`?"),
                None => format!("known are {}", Policy::ALL.map(Policy::name).join(", ")),
            };
            PolicyError { name: name.to_owned(), hint }
        })
    }
}

/// For `numa`: the distance of each path's controller from each memory node, in ACPI SLIT units
/// (10: the same node). Indexed by node, then path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances(pub Vec<Vec<u8>>);

impl Distances {
    /// The value of a distance that is not given: farther than any other.
    pub const UNKNOWN: u8 = u8::MAX;

    /// The nearest path; of several equally near paths, the first.
    fn nearest(&self, usable: PathSet, node: u16) -> Option<PathId> {
        let row = self.0.get(usize::from(node));
        usable.iter().min_by_key(|&path| {
            row.and_then(|row| row.get(path.index())).copied().unwrap_or(Distances::UNKNOWN)
        })
    }
}

/// The paths to a namespace, shared by its threads.
pub struct Paths {
    policy: AtomicU8,
    count: u8,
    distances: Distances,
    shared_trial: CachePadded<SharedTrial>,
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths")
            .field("policy", &self.policy())
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Paths {
    /// Creates `count` paths.
    ///
    /// # Errors
    ///
    /// No path, or more than [`PathSet::MAX`].
    pub fn new(count: usize, distances: Distances, policy: Policy) -> Result<Paths, TooManyPaths> {
        if !(1..=PathSet::MAX).contains(&count) {
            return Err(TooManyPaths(count));
        }
        Ok(Paths {
            policy: AtomicU8::new(policy as u8),
            count: count as u8,
            distances,
            shared_trial: CachePadded::default(),
        })
    }

    /// The policy in force.
    #[inline]
    pub fn policy(&self) -> Policy {
        Policy::from_bits(self.policy.load(Relaxed))
    }

    /// Changes the policy from the next batch on. Requests in flight stay counted as they were.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Relaxed);
    }

    /// The set of all paths.
    pub fn all(&self) -> PathSet {
        PathSet::below(self.count.into())
    }
}

/// How a request was counted. It travels with the request, and is passed to [`Selector::end`] or
/// [`Selector::abandon`] once.
///
/// One word, because it is stored for every request. From the lowest bit: weight (32 bits; 0: not
/// counted), path and class (8 each), whether `latency` chose it, and in bit 63 a 1, so that
/// `Option<Token>` is one word too.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "the request stays counted until its token is passed to `end` or `abandon`"]
pub struct Token(NonZeroU64);

const PATH: u32 = 32;
const CLASS: u32 = 40;
const LEARNS: u64 = 1 << 48;
const SOME: NonZeroU64 = NonZeroU64::new(1 << 63).unwrap();

impl Token {
    #[inline]
    fn new(policy: Policy, class: Class, path: PathId) -> Token {
        let learns = if policy == Policy::Latency { LEARNS } else { 0 };
        Token(
            SOME | u64::from(policy.weight(class))
                | u64::from(path.0) << PATH
                | (class.index() as u64) << CLASS
                | learns,
        )
    }

    /// The path that the request took.
    #[inline]
    pub fn path(&self) -> PathId {
        PathId((self.0.get() >> PATH) as u8 % PathSet::MAX as u8)
    }

    #[inline]
    fn weight(&self) -> u32 {
        self.0.get() as u32
    }

    #[inline]
    fn class(&self) -> Class {
        Class::from_index((self.0.get() >> CLASS) as u8)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("path", &self.path())
            .field("weight", &self.weight())
            .finish_non_exhaustive()
    }
}

/// A path among those to choose from. Its rank is one number, so that the lowest rank is found
/// without a branch per path:
///
/// ```text
///   bits 63:40   tier: 0 probe, 1 as good as the fastest, 2 slower
///   bits 39:8    load
///   bits 7:0     position in the list, which breaks ties
/// ```
///
/// The path with the lowest rank is chosen, and `step` is added to its rank. What a policy
/// considers apart from the load enters the rank once per batch.
#[derive(Clone, Copy, Debug)]
struct RankedPath {
    rank: u64,
    /// Added to the rank for each request: the request's load. For a path that may get only one
    /// request, the step to the last tier.
    step: u64,
    token: Token,
    /// The path's load before the batch.
    before: u32,
    /// For `latency`: the expected latency of a request (ns); 0: unknown, and one request is to
    /// measure it.
    expected_ns: f32,
}

/// Lowest bits of the load and the tier.
const LOAD: u32 = 8;
const TIER: u32 = LOAD + u32::BITS;
/// The tiers. 0: a path that one request is to probe. [`GOOD`]: a path as good as the fastest.
/// [`LAST`]: a slower path.
const GOOD: u64 = 1 << TIER;
const LAST: u64 = 2 << TIER;

/// In place of a class: the paths are not ranked.
const UNRANKED: u16 = u16::MAX;
/// In place of an index: paths are chosen by the lowest rank, not in turn.
const BY_RANK: usize = usize::MAX;

/// Chooses paths for one thread. The paths are ranked once per batch; each choice takes the choices
/// before it into account.
#[derive(Debug)]
pub struct Selector {
    shared: Arc<Paths>,
    /// The memory node of the thread's CPU.
    node: u16,
    /// The path that is chosen first if all are equal.
    first: u8,
    /// Requests, or load, in flight by path.
    counts: Vec<u32>,
    estimates: LatencyEstimates,
    /// The paths to choose from.
    ranked: Vec<RankedPath>,
    /// What `ranked` was computed for: the set of paths, the class, and the class's index;
    /// [`UNRANKED`]: the paths must be ranked before the next request.
    among: PathSet,
    class: Class,
    ranked_for: u16,
    /// The policy by which `ranked` was computed.
    policy: Policy,
    /// Index of the next path if paths are taken in turn; [`BY_RANK`] otherwise.
    next: usize,
    /// Where `round-robin` continues.
    cursor: u8,
}

impl Selector {
    /// Creates the selector of a thread. `number` distinguishes the threads, so that they do not
    /// all begin with the same path.
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

    /// Records that the thread runs on a CPU of memory node `node` now.
    pub fn set_node(&mut self, node: u16) {
        // The ranking of `numa` depends on the node, so it has to be computed again.
        if self.node != node {
            (self.node, self.among, self.ranked_for) = (node, PathSet::NONE, UNRANKED);
        }
    }

    /// Begins a batch, with the policy that is in force now.
    #[inline]
    pub fn begin(&mut self, now: Nanos) {
        let policy = self.shared.policy();
        if self.policy != policy {
            // The old policy's choices are counted by its weights.
            self.commit(now);
            (self.policy, self.among, self.ranked_for) = (policy, PathSet::NONE, UNRANKED);
        }
    }

    /// Chooses a path from `usable` for a request of `class`. `None` if the set is empty. If there
    /// was a choice, the request is counted when the batch is committed.
    #[inline(always)] // As little as a call of it would cost.
    pub fn send_next(&mut self, usable: PathSet, class: Class, now: Nanos) -> Option<Token> {
        if self.among != usable || usize::from(self.ranked_for) != class.index() {
            // Without a choice ranking would be wasted.
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
        // Most namespaces have two paths, and with fewer there is no choice.
        let [first, second, others @ ..] = self.ranked.as_slice() else { return None };
        // The position in the low bits makes each rank unique.
        let least =
            others.iter().map(|entry| entry.rank).fold(first.rank.min(second.rank), u64::min);
        let entry = self.ranked.get_mut(least as usize % (1 << LOAD))?;
        entry.rank += entry.step;
        Some(entry.token)
    }

    /// Counts a request that is sent on `path` without a choice.
    pub fn start(&mut self, path: PathId, class: Class, now: Nanos) -> Token {
        self.start_by(self.shared.policy(), path, class, now)
    }

    #[inline]
    fn start_by(&mut self, policy: Policy, path: PathId, class: Class, now: Nanos) -> Token {
        // Without a choice the request is counted at once, not at `commit`.
        let token = Token::new(policy, class, path);
        self.count(path, token.weight(), policy, now);
        token
    }

    #[inline]
    fn count(&mut self, path: PathId, weight: u32, policy: Policy, now: Nanos) {
        let Some(count) = self.counts.get_mut(path.index()).filter(|_| weight > 0) else { return };
        // The path was idle and becomes busy: its silence is measured from now on.
        if *count == 0 && policy == Policy::Latency {
            self.estimates.became_busy(path, now);
        }
        *count = count.wrapping_add(weight);
    }

    /// Counts the requests of the batch. Call it before any of them can complete. Without a request
    /// it costs nothing.
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
            // The load in the rank has grown by what was sent. The cast drops the tier.
            let added = ((entry.rank >> LOAD) as u32).wrapping_sub(entry.before);
            sent += added;
            self.count(entry.token.path(), added, self.policy, now);
        }
        self.estimates.count_choices(sent / self.policy.weight(self.class).max(1));
    }

    /// Records that the request completed at `now`, `latency` after it was sent.
    #[inline]
    pub fn end(&mut self, token: Token, latency: Nanos, now: Nanos) {
        self.abandon(token);
        if token.0.get() & LEARNS != 0 {
            self.estimates.end(token.path(), token.class(), latency, now);
        }
    }

    /// Records that the request was taken back from its path: it is no longer counted, and no
    /// latency is recorded.
    #[inline]
    pub fn abandon(&mut self, token: Token) {
        if let Some(count) = self.counts.get_mut(token.path().index()) {
            // Wrapping, as in `count`: a token used twice costs a wrong choice, not a panic.
            *count = count.wrapping_sub(token.weight());
        }
    }

    /// Forgets the latencies of a path that was down.
    pub fn forget(&mut self, path: PathId) {
        self.estimates.forget(path);
    }

    /// The count of `path`: requests in flight, or for `latency` load. `numa` and `round-robin` do
    /// not count.
    pub fn in_flight(&self, path: PathId) -> u32 {
        self.counts.get(path.index()).copied().unwrap_or(0)
    }

    /// Ranks the paths in `usable`, after counting the requests that were sent by the last ranking.
    #[inline(never)]
    fn rank(&mut self, usable: PathSet, class: Class, now: Nanos) {
        self.commit(now);
        if self.among != usable || self.class != class {
            self.rank_again(usable, class);
        }
        self.ranked_for = class.index() as u16;
        match self.policy {
            Policy::Numa | Policy::RoundRobin => {}
            Policy::QueueDepth => self.rank_by_load(),
            Policy::Latency => self.rank_by_latency(now),
        }
    }

    fn rank_again(&mut self, usable: PathSet, class: Class) {
        // The cursor is saved before the list is replaced, so that round robin continues where it
        // was.
        if let Some(entry) = self.ranked.get(self.next) {
            self.cursor = entry.token.path().0;
        }
        let policy = self.policy;
        let (candidates, first) = match policy {
            Policy::Numa => {
                (self.shared.distances.nearest(usable, self.node).map_or(usable, PathSet::of), 0)
            }
            Policy::RoundRobin => (usable, self.cursor),
            Policy::QueueDepth | Policy::Latency => (usable, self.first),
        };
        let step = u64::from(policy.weight(class)) << LOAD;
        let entry = |path| RankedPath {
            rank: 0,
            step,
            token: Token::new(policy, class, path),
            before: 0,
            expected_ns: 0.0,
        };
        // Rankings are frequent, so the allocation of the list is kept.
        self.ranked.clear();
        self.ranked.extend(candidates.iter_from(first).map(entry));
        (self.among, self.class) = (usable, class);
        self.next = if step > 0 { BY_RANK } else { 0 };
    }

    /// Ranks by load alone.
    fn rank_by_load(&mut self) {
        for (place, entry) in self.ranked.iter_mut().enumerate() {
            entry.before = self.counts.get(entry.token.path().index()).copied().unwrap_or(0);
            entry.rank = u64::from(entry.before) << LOAD | place as u64;
        }
    }

    /// Ranks by expected latency. Paths about as fast as the fastest are ordered by load. Before
    /// them comes a path of unknown latency, or one that has not completed a request for long, for
    /// one request. After them come the slower ones.
    fn rank_by_latency(&mut self, now: Nanos) {
        self.rank_by_load();
        let Selector { estimates, shared, ranked, counts, among, class, .. } = self;
        // 1.4 or 24: see `RuleTrial`.
        let near = estimates.near_factor(*among, *class, now, &shared.shared_trial);
        let mut fastest = f32::INFINITY;
        for entry in ranked.iter_mut() {
            entry.expected_ns = estimates.expected(entry.token.path(), entry.before, *class, now);
            if entry.expected_ns > 0.0 {
                fastest = fastest.min(entry.expected_ns);
            }
        }
        // At most one path per ranking, so that a batch sends one probe.
        let explored = estimates.pick_unexplored(counts, *among, *class, now);
        for entry in ranked {
            // The last batch may have left a probe's step.
            entry.step &= GOOD - 1;
            entry.rank |= if entry.expected_ns <= fastest * near { GOOD } else { LAST };
            if entry.expected_ns == 0.0 || Some(entry.token.path()) == explored {
                // A probe: tier 0 is chosen once, then the step moves the path to the last tier.
                entry.rank &= GOOD - 1;
                entry.step |= LAST;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
