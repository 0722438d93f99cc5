//! Counters with one writer at a time (the holder of a lock) and any number of readers without it.

use sync::atomic::AtomicU64;
use sync::atomic::Ordering::Relaxed;

/// What a queue pair has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands announced by the SQ doorbell.
    pub announced: u64,
    /// Commands reaped or abandoned.
    pub finished: u64,
    /// Writes to the SQ doorbell.
    pub sq_doorbells: u64,
    /// Writes to the CQ doorbell: looks under the CQ lock that found something.
    pub cq_doorbells: u64,
    /// Looks under the CQ lock that found nothing.
    pub empty_looks: u64,
    /// Completions whose SQ Head Pointer lies outside of the queue: a fault of the controller's without consequences.
    pub bad_heads: u64,
}

/// Plain addition: the holder of the lock is the only writer.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
