//! Which of several paths a request takes.
//!
//! A [`Paths`] belongs to one namespace that several controllers lead to, and is shared by every thread that uses it. For
//! each request: [`Paths::choose`] among the paths that can be used now, [`Paths::start`] on the one it is sent by, and
//! [`Paths::end`] with the [`Token`] that `start` gave. The token says what the request was counted in, so that the
//! [`Policy`] may change while requests are in flight and every count still comes back to zero.
//!
//! Pure: the caller says where it is ([`Place`]) and when it is. Post 004 is the background.

mod batch;
mod count;
mod latency;
mod lines;
mod numa;
mod place;
mod policy;
mod queue_depth;
mod round_robin;
mod set;
mod shape;
mod token;
mod trial;
mod usual;

use std::fmt;
use sync::atomic::AtomicU8;
use sync::atomic::Ordering::Relaxed;
use units::{Class, Nanos};

use count::{NO_ROW, Rows};
use place::Kind;
use token::weight;

pub use batch::Batch;
pub use lines::{Line, Lines, Table};
pub use numa::Distances;
pub use place::Place;
pub use policy::{Policy, PolicyError};
pub use queue_depth::Counting;
pub use set::{PathId, PathSet};
pub use shape::{Shape, ShapeError};
pub use token::Token;

/// The paths to a namespace: what is in flight on them, what has been learnt of them, and how to choose.
pub struct Paths {
    policy: AtomicU8,
    shape: Shape,
    cursors: round_robin::Cursors,
    counts: Rows,
    /// The row of the first queue's load.
    first_load: u32,
    learnt: latency::Learnt,
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths").field("policy", &self.policy()).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl Paths {
    /// Paths of which nothing is known yet.
    ///
    /// # Errors
    /// No path, or more than [`PathSet::MOST`]; none of something else.
    pub fn new(shape: Shape, policy: Policy) -> Result<Paths, ShapeError> {
        let shape = shape.legal()?;
        Ok(Paths {
            policy: AtomicU8::new(policy.into()),
            cursors: round_robin::Cursors::new(shape.queues),
            counts: Rows::new(shape.paths.into(), Kind::ALL.map(|kind| kind.rows(&shape)).into_iter().sum::<u32>() as usize),
            first_load: Kind::Loads.first(&shape),
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
    /// namespace `namespace`. It owns those of its counts that no other place owns.
    pub fn place(&self, queue: u16, cpu: u16, namespace: u16, node: u16) -> Place {
        let Shape { paths, queues, cpus, namespaces, .. } = self.shape;
        let queue = queue % queues;
        let mut place = Place::new(queue, node, (queue % u16::from(paths)) as u8);
        for kind in Kind::ALL {
            let at = match kind {
                Kind::Controllers => 0,
                Kind::Namespaces => namespace % namespaces,
                Kind::Queues | Kind::Loads => queue,
                Kind::Cpus => cpu % cpus,
            };
            place.settle(kind, kind.first(&self.shape) + u32::from(at), &self.counts);
        }
        place
    }

    /// The thread runs on another CPU now, or still on the same one: a few loads then.
    #[inline]
    pub fn settle(&self, place: &mut Place, cpu: u16, node: u16) {
        let row = Kind::Cpus.first(&self.shape) + u32::from(cpu % self.shape.cpus);
        if place.row(Kind::Cpus) != row {
            place.node = node;
            place.settle(Kind::Cpus, row, &self.counts);
        }
    }

    /// The counts that a place owns are nobody's again. It can still be used, and owns nothing.
    pub fn leave(&self, place: &mut Place) {
        Kind::ALL.into_iter().for_each(|kind| place.vacate(kind, &self.counts));
    }

    /// The path for a request of `class`, among `usable`; `None` if that is empty.
    #[inline]
    pub fn choose(&self, usable: PathSet, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Option<PathId> {
        // Nothing to choose: with one path, choosing costs next to nothing.
        if usable.is_at_most_one() {
            return usable.first();
        }
        match self.policy() {
            Policy::Numa => self.shape.distances.choose(usable, place.node),
            Policy::RoundRobin => self.cursors.choose(usable, place.queue, lines),
            Policy::QueueDepth(counting) => queue_depth::choose(&self.counts, counting, &self.shape, usable, place, lines),
            Policy::Latency => self.learnt.choose(&self.counts, usable, place, class, now, lines),
        }
    }

    /// Counts a request that is sent by `path`.
    #[inline]
    pub fn start(&self, path: PathId, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Token {
        self.start_by(self.policy(), path, place, class, now, lines)
    }

    #[inline]
    fn start_by(&self, policy: Policy, path: PathId, place: &Place, class: Class, now: Nanos, lines: &mut impl Lines) -> Token {
        let kind = policy.kind();
        if !policy.counts() {
            return Token::new(NO_ROW, kind, class, path);
        }
        let row = place.row(kind);
        let found = self.counts.add(row, path, weight(kind, class), place.owns(kind, row), lines);
        if kind == Kind::Loads && found == 0 {
            self.learnt.busy(path, place.queue, now, lines);
        }
        Token::new(row, kind, class, path)
    }

    /// The request was answered at `now`, `latency` after it was sent: whatever it was counted in is one less. `place`: of
    /// the thread that says so, which need not be the one that has sent it.
    #[inline]
    pub fn end(&self, token: Token, place: &Place, latency: Nanos, now: Nanos, lines: &mut impl Lines) {
        if !token.is_counted() {
            return;
        }
        let (row, kind, path) = (token.row(), token.kind(), token.path());
        self.counts.take(row, path, token.weight(), place.owns(kind, row), lines);
        if kind == Kind::Loads {
            self.learnt.end(path, row - self.first_load, latency::Ended { class: token.class(), latency, now }, lines);
        }
    }

    /// The request was taken back from its path: it counts no more, and nothing is learnt from it.
    pub fn abandon(&self, token: Token, place: &Place, lines: &mut impl Lines) {
        if token.is_counted() {
            self.counts.take(token.row(), token.path(), token.weight(), place.owns(token.kind(), token.row()), lines);
        }
    }

    /// The path has been away: what was learnt of it holds no more.
    pub fn forget(&self, path: PathId) {
        self.learnt.forget(path);
    }

    /// What is counted of `path`: requests in flight, by `latency` as load; `numa` and `round-robin` do not count.
    pub fn in_flight(&self, path: PathId) -> u64 {
        self.counts.of(path)
    }

    /// Everything that is counted, of all paths in all tables: zero when nothing is in flight, whatever policies there
    /// have been.
    pub fn counted(&self) -> u64 {
        self.counts.total()
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
