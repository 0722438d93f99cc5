//! Flushes: one for each controller that has completed writes since its last. Which paths these are the software queues of a
//! namespace count in common ([`WriteMarks`]).

use nvme::Status;
use sync::Arc;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use units::Nanos;

use super::{Failure, PathId, PathSet, RequestId};

/// A Flush under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Flush {
    /// Paths that it still has to be sent on.
    pub(super) need: PathSet,
    /// Paths that it is out on.
    pub(super) out: PathSet,
    /// Paths that it has to cover. It is sent on others out of courtesy, if that can be done now.
    pub(super) dirty: PathSet,
    /// It has succeeded somewhere.
    pub(super) done: bool,
    /// It waits in the ready list.
    pub(super) queued: bool,
    /// Since when a part has been waiting for its path.
    pub(super) waiting_since: Nanos,
    /// FlushError it will fail once nothing is out any more.
    pub(super) failed: Option<FlushError>,
    pub(super) snapshot: Snapshot,
}

impl Flush {
    /// No controller has to be covered and none has been: any one will do.
    pub(super) fn any_path_suffices(&self) -> bool {
        self.need.is_empty() && self.out.is_empty() && !self.done && self.failed.is_none()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FlushError {
    Status(Status),
    Failure(Failure),
}

/// The Flushes of a queue; entries are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushes {
    pub(super) list: Vec<Flush>,
    pub(super) free: Vec<u32>,
    /// In the order of submission.
    pub(super) open: Vec<RequestId>,
}

/// Counters in a cache line, and in the one that is fetched along with it.
const COUNTERS: usize = 16;

/// Counts that one queue writes.
#[derive(Debug)]
#[repr(align(128))]
struct PathCounters([AtomicU64; COUNTERS]);

impl PathCounters {
    fn new() -> PathCounters {
        PathCounters(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

#[derive(Debug)]
struct SharedMarks {
    paths: usize,
    /// For each queue, writes completed by path, on lines of its own.
    written: Vec<PathCounters>,
    /// The same counts as they were when a Flush that has succeeded since was sent.
    flushed: Vec<PathCounters>,
    /// Paths that nothing has been flushed on: what was written before our time is not durable either.
    never_flushed: AtomicU64,
    /// By path, how often its controller has lost what its cache held.
    losses: Vec<AtomicU64>,
    /// Paths whose cache was lost with writes of ours in it.
    lost: AtomicU64,
}

/// A count's upper bits say how often the path's cache had been lost when the last of its writes was sent. So every count is
/// less than those of after the next loss, and one that is not flushed and says less than the path is of writes that are gone.
const LOSSES: u32 = 48;

/// Completed writes by queue and path. Clones are handles on the same counts.
///
/// The writer counts before it lets the request complete (release); a Flush that is submitted afterwards, on any thread, sees
/// the count (acquire), remembers it with the Flush, and notes it as flushed when that has succeeded. A write that
/// completes meanwhile is not covered by that Flush, and its count says so.
///
/// A cache that is lost is told of by the keeper that brings the path up, before any queue is told that it is up. A queue may still
/// count writes that completed before: it counts them as of the losses that it knew of when it learnt that the path was up.
#[derive(Clone, Debug)]
pub struct WriteMarks(Arc<SharedMarks>);

/// The counts when a Flush was submitted.
pub(super) type Snapshot = Vec<u64>;

impl WriteMarks {
    /// Nothing written yet, on `paths` paths by `queues` software queues. The first Flush goes to every path that is usable all the
    /// same: there may have been writes before this process.
    pub fn new(queues: usize, paths: usize) -> WriteMarks {
        let paths = paths.min(PathSet::MOST);
        let lines = |_| PathCounters::new();
        let count = queues.max(1) * paths.div_ceil(COUNTERS);
        let all = if paths == PathSet::MOST { u64::MAX } else { (1 << paths) - 1 };
        WriteMarks(Arc::new(SharedMarks {
            paths,
            written: (0..count).map(lines).collect(),
            flushed: (0..count).map(lines).collect(),
            never_flushed: AtomicU64::new(all),
            losses: (0..paths).map(|_| AtomicU64::new(0)).collect(),
            lost: AtomicU64::new(0),
        }))
    }

    fn count<'a>(&self, of: &'a [PathCounters], queue: usize, path: PathId) -> Option<&'a AtomicU64> {
        of.get(queue * self.0.paths.div_ceil(COUNTERS) + path.index() / COUNTERS)?.0.get(path.index() % COUNTERS)
    }

    /// A write has completed well, on `path`, in `queue`, which no other thread counts for, and which knew of this many `losses`.
    #[inline]
    pub(super) fn note_write(&self, queue: usize, path: PathId, losses: u64) {
        if let Some(count) = self.count(&self.0.written, queue, path) {
            // One writer, so a load and a store count.
            let writes = count.load(Relaxed).wrapping_add(1) & ((1 << LOSSES) - 1);
            count.store(losses << LOSSES | writes, Release);
        }
    }

    /// How often the cache of `path` was lost.
    pub(super) fn losses(&self, path: PathId) -> u64 {
        self.0.losses.get(path.index()).map_or(0, |losses| losses.load(Acquire))
    }

    fn all(&self) -> impl Iterator<Item = (usize, PathId)> {
        let (queues, paths) = (self.0.written.len() / self.0.paths.div_ceil(COUNTERS).max(1), self.0.paths);
        (0..queues).flat_map(move |queue| (0..paths).map(move |path| (queue, PathId(path as u8))))
    }

    /// The paths that nothing has been flushed on yet.
    pub(super) fn never_flushed(&self) -> PathSet {
        PathSet(self.0.never_flushed.load(Acquire))
    }

    /// The paths that a Flush submitted now has to cover, and the counts that it covers then.
    pub(super) fn uncovered(&self, snapshot: &mut Snapshot) -> PathSet {
        snapshot.clear();
        let mut dirty = PathSet::NONE;
        for (queue, path) in self.all() {
            // In this order: a write that completes in between is not covered, and not missed.
            snapshot.push(self.written(queue, path));
            if self.has_unflushed(queue, path) {
                dirty = dirty.with(path);
            }
        }
        dirty
    }

    fn written(&self, queue: usize, path: PathId) -> u64 {
        self.count(&self.0.written, queue, path).map_or(0, |count| count.load(Acquire))
    }

    /// Whether a queue has written to a path since its last Flush.
    fn has_unflushed(&self, queue: usize, path: PathId) -> bool {
        self.written(queue, path) > self.count(&self.0.flushed, queue, path).map_or(0, |count| count.load(Acquire))
    }

    /// Looks for writes that were not flushed when the cache that they were in was lost.
    fn record_lost_writes(&self) {
        let lost =
            |&(queue, path): &(usize, PathId)| self.has_unflushed(queue, path) && self.written(queue, path) >> LOSSES < self.losses(path);
        let gone = self.all().filter(lost).map(|(_, path)| path).collect::<PathSet>();
        if !gone.is_empty() {
            self.0.lost.fetch_or(gone.0, AcqRel);
        }
    }

    /// A Flush on `path`, submitted when the counts were these, has succeeded.
    pub(super) fn flushed(&self, path: PathId, snapshot: &Snapshot) {
        for ((queue, of), &count) in self.all().zip(snapshot) {
            if of == path
                && let Some(flushed) = self.count(&self.0.flushed, queue, path)
            {
                flushed.fetch_max(count, AcqRel);
            }
        }
        self.0.never_flushed.fetch_and(!PathSet::of(path).0, AcqRel);
    }

    /// The controller of `path` has lost what its volatile cache held (its power, say). To be said once, before any queue is
    /// told that the path is up. If writes of ours were in there, no Flush succeeds any more: nothing can bring
    /// them back, and an application that was told so once may not be told otherwise later.
    pub fn cache_lost(&self, path: PathId) {
        if let Some(losses) = self.0.losses.get(path.index()) {
            losses.fetch_add(1, AcqRel);
        }
    }

    /// The paths whose cache was lost with writes of ours in it.
    pub fn lost_writes(&self) -> PathSet {
        self.record_lost_writes();
        PathSet(self.0.lost.load(Acquire))
    }
}
