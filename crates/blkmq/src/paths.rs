//! Which of several paths a request takes.
//!
//! A [`Paths`] belongs to one namespace that several controllers lead to, and is shared by every thread that uses it. For
//! each request: [`Paths::choose`] among the paths that can be used now, [`Paths::start`] on the one it is sent by, and
//! [`Paths::end`] with the [`Token`] that `start` gave. The token says what the request was counted in, so that the
//! [`Policy`] may change while requests are in flight and every count still comes back to zero.
//!
//! Pure: the caller says where it is ([`Place`]) and when it is. Post 004 is the background.

mod latency;
mod lines;
mod numa;
mod policy;
mod queue_depth;
mod round_robin;
mod set;

use handover::sync::atomic::AtomicU8;
use handover::sync::atomic::Ordering::Relaxed;
use units::{Class, Nanos};

pub use lines::{Line, Lines, Table};
pub use numa::Distances;
pub use policy::{Policy, PolicyError};
pub use queue_depth::Counting;
pub use set::{PathId, PathSet};

/// How many there are of everything that requests are counted by. Places past the last go round again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Paths, 1 to [`PathSet::MOST`].
    pub paths: u8,
    /// Hardware queues of each path.
    pub queues: u16,
    /// CPUs that submit.
    pub cpus: u16,
    /// Namespaces that share the paths.
    pub namespaces: u16,
    /// For `numa`: how far the paths' controllers are.
    pub distances: Distances,
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{paths} paths, {queues} queues, {cpus} CPUs and {namespaces} namespaces: there have to be 1 to 64 paths, and one of each other")]
pub struct ShapeError {
    /// As given.
    pub paths: u8,
    /// As given.
    pub queues: u16,
    /// As given.
    pub cpus: u16,
    /// As given.
    pub namespaces: u16,
}

/// Where a request comes from, made once for each thread (or batch, if the thread moves about): [`Paths::place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    queue: u16,
    cpu: u16,
    namespace: u16,
    node: u16,
    /// Which path it looks at first; where all are alike it is taken.
    first: u8,
}

/// What a request was counted in. It goes with the request, and back by [`Paths::end`] or [`Paths::abandon`], once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is counted has to be taken back"]
pub struct Token {
    path: PathId,
    at: u16,
    counted: Counted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// The policy does not count.
    Nowhere,
    /// One, in the place `at` of a table.
    In(Table),
    /// By `latency`: so much load.
    Load(Class, u32),
}

impl Token {
    /// The path that the request took.
    #[inline]
    pub fn path(&self) -> PathId {
        self.path
    }
}

/// The paths to a namespace: what is in flight on them, what has been learnt of them, and how to choose.
pub struct Paths {
    policy: AtomicU8,
    shape: Shape,
    cursors: round_robin::Cursors,
    counts: queue_depth::Counts,
    learnt: latency::Learnt,
}

impl Paths {
    /// Paths of which nothing is known yet.
    ///
    /// # Errors
    /// No path, or more than [`PathSet::MOST`]; none of something else.
    pub fn new(shape: Shape, policy: Policy) -> Result<Paths, ShapeError> {
        let Shape { paths, queues, cpus, namespaces, .. } = shape;
        if paths == 0 || usize::from(paths) > PathSet::MOST || queues == 0 || cpus == 0 || namespaces == 0 {
            return Err(ShapeError { paths, queues, cpus, namespaces });
        }
        Ok(Paths {
            policy: AtomicU8::new(policy.into()),
            cursors: round_robin::Cursors::new(queues),
            counts: queue_depth::Counts::new(&shape),
            learnt: latency::Learnt::new(&shape),
            shape,
        })
    }

    /// The policy in force.
    #[inline]
    pub fn policy(&self) -> Policy {
        Policy::from_bits(self.policy.load(Relaxed))
    }

    /// From the next request on, another policy. What is in flight stays counted where it was counted.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy.into(), Relaxed);
    }

    /// How many paths, queues and so on there are.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The place of requests that are posted to hardware queue `queue`, from CPU `cpu` on memory node `node`, for
    /// namespace `namespace`.
    pub fn place(&self, queue: u16, cpu: u16, namespace: u16, node: u16) -> Place {
        let Shape { paths, queues, cpus, namespaces, .. } = self.shape;
        let (queue, cpu) = (queue % queues, cpu % cpus);
        Place { queue, cpu, namespace: namespace % namespaces, node, first: (queue % u16::from(paths)) as u8 }
    }

    /// The path for a request of `class`, among `usable`; `None` if that is empty.
    #[inline]
    pub fn choose(&self, usable: PathSet, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Option<PathId> {
        // Nothing to choose: with one path, choosing costs next to nothing.
        if usable.0 & usable.0.wrapping_sub(1) == 0 {
            return usable.first();
        }
        match self.policy() {
            Policy::Numa => self.shape.distances.choose(usable, place.node),
            Policy::RoundRobin => self.cursors.choose(usable, place.queue, lines),
            Policy::QueueDepth(counting) => self.counts.choose(counting, usable, place, lines),
            Policy::Latency => self.learnt.choose(usable, place, class, now, lines),
        }
    }

    /// Counts a request that is sent by `path`.
    #[inline]
    pub fn start(&self, path: PathId, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Token {
        match self.policy() {
            Policy::Numa | Policy::RoundRobin => Token { path, at: 0, counted: Counted::Nowhere },
            Policy::QueueDepth(counting) => {
                let (table, at) = (counting.table(), counting.at(place));
                self.counts.add(table, at, path, lines);
                Token { path, at, counted: Counted::In(table) }
            }
            Policy::Latency => {
                let load = self.learnt.start(path, place.queue, class, now, lines);
                Token { path, at: place.queue, counted: Counted::Load(class, load) }
            }
        }
    }

    /// The request was answered at `now`, `latency` after it was sent: whatever it was counted in is one less.
    #[inline]
    pub fn end(&self, token: Token, latency: Nanos, now: Nanos, lines: &mut impl Lines) {
        self.take_back(token, Some((latency, now)), lines);
    }

    /// The request was taken back from its path: it counts no more, and nothing is learnt from it.
    pub fn abandon(&self, token: Token, lines: &mut impl Lines) {
        self.take_back(token, None, lines);
    }

    #[inline]
    fn take_back(&self, token: Token, answered: Option<(Nanos, Nanos)>, lines: &mut impl Lines) {
        let Token { path, at, counted } = token;
        match counted {
            Counted::Nowhere => {}
            Counted::In(table) => self.counts.take(table, at, path, lines),
            Counted::Load(class, load) => self.learnt.end(path, at, latency::Ended { load, class, answered }, lines),
        }
    }

    /// The path has been away: what was learnt of it holds no more.
    pub fn forget(&self, path: PathId) {
        self.learnt.forget(path);
    }

    /// Requests in flight on `path`, as far as they were counted: `numa` and `round-robin` do not.
    pub fn in_flight(&self, path: PathId) -> u64 {
        self.counts.of(path) + self.learnt.of(path)
    }

    /// Everything that is counted, of all paths in all tables: zero when nothing is in flight, whatever policies there
    /// have been.
    pub fn counted(&self) -> u64 {
        self.counts.total() + self.learnt.total()
    }

    /// What `latency` expects of requests of `class` on `path`, at the load that is usual there; `None`: not known.
    pub fn usual_latency(&self, path: PathId, place: &Place, class: Class) -> Option<Nanos> {
        self.learnt.usual(path, place.queue, class)
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
