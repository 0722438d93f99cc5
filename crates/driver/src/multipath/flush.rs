//! Flush over several paths, and [`WriteMarks`], which counts for all software queues of a
//! namespace which paths have unflushed writes.
//!
//! A write that completes on a controller with a volatile cache is durable only after a Flush on
//! *that* controller. So a Flush of the namespace becomes one command per controller with writes
//! since its last Flush.

use nvme::Status;
use sync::Arc;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use units::Nanos;

use super::{Failure, PathId, PathSet, RequestId};

/// A Flush in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Flush {
    /// Paths that the Flush must still be sent on.
    pub(super) need: PathSet,
    /// Paths on which the Flush is in flight.
    pub(super) out: PathSet,
    /// Paths with unflushed writes, which the Flush must cover. The other paths in `need` are a
    /// precaution: they are flushed only if they are reachable.
    pub(super) dirty: PathSet,
    /// The Flush has succeeded on at least one path.
    pub(super) done: bool,
    /// The Flush is in the ready queue.
    pub(super) queued: bool,
    /// Since when the Flush has been waiting for a path.
    pub(super) waiting_since: Nanos,
    /// Why the Flush will fail, once none of its commands is in flight.
    pub(super) failed: Option<FlushError>,
    pub(super) snapshot: Snapshot,
}

impl Flush {
    /// Whether one command on any path is enough: no controller has unflushed writes, and none has
    /// executed the Flush yet.
    pub(super) fn any_path_suffices(&self) -> bool {
        self.need.is_empty() && self.out.is_empty() && !self.done && self.failed.is_none()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FlushError {
    Status(Status),
    Failure(Failure),
}

/// The Flushes of a queue; entries are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushes {
    pub(super) list: Vec<Flush>,
    pub(super) free: Vec<u32>,
    /// Flushes that have not completed, in order of submission.
    pub(super) open: Vec<RequestId>,
}

/// Counters in two cache lines, which the adjacent-line prefetcher fetches together.
const COUNTERS: usize = 16;

/// Counts that only one queue writes.
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
    /// For each queue, completed writes by path, on cache lines of its own.
    written: Vec<PathCounters>,
    /// The counts as of the submission of a Flush that has succeeded.
    flushed: Vec<PathCounters>,
    /// Paths without a Flush yet: writes of an earlier process may not be durable either.
    never_flushed: AtomicU64,
    /// By path, how often its controller has lost its volatile cache.
    losses: Vec<AtomicU64>,
    /// Paths whose cache was lost with unflushed writes of this process in it.
    lost: AtomicU64,
}

/// Lowest bit of a count's upper part, the losses of the path that were known when the write
/// completed:
///
/// ```text
///    63        48 47                        0
///   | losses     | writes completed          |
/// ```
///
/// Counts from before a loss are less than all counts from after it. So a count that is unflushed
/// and has fewer losses than the path has now belongs to lost writes.
const LOSSES: u32 = 48;

/// Completed writes by queue and path. Clones share the counts.
///
/// ```text
///   writer   write completes   count (release)   complete the request to the caller
///   flusher  snapshot the counts (acquire)   send Flush   success: flushed = snapshot
/// ```
///
/// A Flush submitted after a write has completed sees its count. A write that completes later is
/// not in the snapshot, and stays unflushed.
///
/// The task that brings a path up reports a lost cache first, before any queue sees the path up. A
/// queue may still count writes that completed before the loss: it uses the number of losses that
/// it read when it saw the path up.
#[derive(Clone, Debug)]
pub struct WriteMarks(Arc<SharedMarks>);

/// The counts when a Flush was submitted.
pub(super) type Snapshot = Vec<u64>;

impl WriteMarks {
    /// Counts of zero, for `queues` software queues and `paths` paths. The first Flush is still
    /// sent on every usable path: there may be unflushed writes from before this process.
    pub fn new(queues: usize, paths: usize) -> WriteMarks {
        // A `PathSet` has no more bits.
        let paths = paths.min(PathSet::MAX);
        let lines = |_| PathCounters::new();
        let count = queues.max(1) * paths.div_ceil(COUNTERS);
        let all = if paths == PathSet::MAX { u64::MAX } else { (1 << paths) - 1 };
        WriteMarks(Arc::new(SharedMarks {
            paths,
            written: (0..count).map(lines).collect(),
            flushed: (0..count).map(lines).collect(),
            never_flushed: AtomicU64::new(all),
            losses: (0..paths).map(|_| AtomicU64::new(0)).collect(),
            lost: AtomicU64::new(0),
        }))
    }

    fn count<'a>(
        &self,
        of: &'a [PathCounters],
        queue: usize,
        path: PathId,
    ) -> Option<&'a AtomicU64> {
        of.get(queue * self.0.paths.div_ceil(COUNTERS) + path.index() / COUNTERS)?
            .0
            .get(path.index() % COUNTERS)
    }

    /// Counts a write of `queue` that has completed on `path`. Only one thread calls this for a
    /// queue. `losses`: the number of losses of the path when the queue saw it up.
    #[inline]
    pub(super) fn note_write(&self, queue: usize, path: PathId, losses: u64) {
        if let Some(count) = self.count(&self.0.written, queue, path) {
            // One writer: no locked instruction.
            let writes = count.load(Relaxed).wrapping_add(1) & ((1 << LOSSES) - 1);
            count.store(losses << LOSSES | writes, Release);
        }
    }

    /// How often the cache of `path` was lost.
    pub(super) fn losses(&self, path: PathId) -> u64 {
        self.0.losses.get(path.index()).map_or(0, |losses| losses.load(Acquire))
    }

    fn all(&self) -> impl Iterator<Item = (usize, PathId)> {
        let (queues, paths) =
            (self.0.written.len() / self.0.paths.div_ceil(COUNTERS).max(1), self.0.paths);
        (0..queues).flat_map(move |queue| (0..paths).map(move |path| (queue, PathId(path as u8))))
    }

    /// The paths without a Flush yet.
    pub(super) fn never_flushed(&self) -> PathSet {
        PathSet(self.0.never_flushed.load(Acquire))
    }

    /// The paths that a Flush submitted now must cover. Stores the counts that it covers in
    /// `snapshot`.
    pub(super) fn uncovered(&self, snapshot: &mut Snapshot) -> PathSet {
        snapshot.clear();
        let mut dirty = PathSet::NONE;
        for (queue, path) in self.all() {
            // The snapshot is taken first: a write that completes in between is not in it, but
            // marks the path.
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

    /// Whether a queue has unflushed writes on a path.
    fn has_unflushed(&self, queue: usize, path: PathId) -> bool {
        self.written(queue, path)
            > self.count(&self.0.flushed, queue, path).map_or(0, |count| count.load(Acquire))
    }

    /// Records paths whose cache was lost with unflushed writes in it.
    fn record_lost_writes(&self) {
        let lost = |&(queue, path): &(usize, PathId)| {
            self.has_unflushed(queue, path)
                && self.written(queue, path) >> LOSSES < self.losses(path)
        };
        let gone = self.all().filter(lost).map(|(_, path)| path).collect::<PathSet>();
        if !gone.is_empty() {
            self.0.lost.fetch_or(gone.0, AcqRel);
        }
    }

    /// A Flush on `path`, submitted with this snapshot, has succeeded.
    pub(super) fn flushed(&self, path: PathId, snapshot: &Snapshot) {
        for ((queue, of), &count) in self.all().zip(snapshot) {
            if of == path
                && let Some(flushed) = self.count(&self.0.flushed, queue, path)
            {
                // The maximum is stored, because an older Flush may complete after a newer one, on
                // another thread.
                flushed.fetch_max(count, AcqRel);
            }
        }
        // After the counts: a Flush submitted in between covers the path once more, which is
        // harmless.
        self.0.never_flushed.fetch_and(!PathSet::of(path).0, AcqRel);
    }

    /// The controller of `path` has lost its volatile cache (a power loss, say). Call this once,
    /// before any queue sees the path up. If unflushed writes were in the cache, every later Flush
    /// fails: nothing can restore them, and an application that missed the first error must not be
    /// told that all is well.
    pub fn cache_lost(&self, path: PathId) {
        if let Some(losses) = self.0.losses.get(path.index()) {
            // Only the number of losses is changed; `record_lost_writes` finds the lost writes.
            losses.fetch_add(1, AcqRel);
        }
    }

    /// The paths whose cache was lost with unflushed writes of this process in it.
    pub fn lost_writes(&self) -> PathSet {
        self.record_lost_writes();
        PathSet(self.0.lost.load(Acquire))
    }
}
