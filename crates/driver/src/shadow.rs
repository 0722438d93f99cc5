//! Shadow doorbells (Base 5.2.5, Doorbell Buffer Config): the host writes doorbells to memory and
//! few registers. Useful for a controller whose register writes are messages or VM exits.

use nvme::{Doorbells, QueueId};
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicBool, AtomicU64};
use sync::shadow::{self, ShadowDoorbell, ShadowDoorbells};

/// A host's shadow doorbells, and the decision whether to write the register as well. A queue's
/// doorbell is written under that queue's lock.
#[derive(Debug)]
pub struct Shadow<W> {
    words: W,
    /// The controller uses them.
    kept: AtomicBool,
    rung: AtomicU64,
}

impl<W: ShadowDoorbells> Shadow<W> {
    /// Over zeroed memory that no controller uses yet.
    pub fn new(words: W) -> Shadow<W> {
        Shadow { words, kept: AtomicBool::new(false), rung: AtomicU64::new(0) }
    }

    /// The doorbells' memory.
    pub fn words(&self) -> &W {
        &self.words
    }

    /// Sets whether the controller uses the shadow doorbells of I/O queues: after bring-up, or once
    /// it has stopped. No thread may post or reap during the call.
    pub fn keep(&self, kept: bool) {
        // Relaxed: a thread that uses a queue takes its lock afterwards, which orders the two.
        self.kept.store(kept, Relaxed);
    }

    /// Whether the controller uses them.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Relaxed)
    }

    /// Register writes of I/O queues while shadow doorbells were in use, since this was created.
    pub fn rung(&self) -> u64 {
        self.rung.load(Relaxed)
    }

    /// Moves the tail of a submission queue. Writes its register in `registers` if the controller
    /// would not see the shadow.
    #[inline]
    pub fn ring_sq(&self, registers: &impl Doorbells, queue: QueueId, tail: u32) {
        if self.must_ring(queue, false, tail) {
            registers.ring_sq(queue, tail);
        }
    }

    /// The same for the head of a completion queue.
    #[inline]
    pub fn ring_cq(&self, registers: &impl Doorbells, queue: QueueId, head: u32) {
        if self.must_ring(queue, true, head) {
            registers.ring_cq(queue, head);
        }
    }

    /// Whether to write the register. The admin queue's doorbells are always written to both: some
    /// controllers read only the register, and the specification lets others read the memory.
    #[inline]
    fn must_ring(&self, queue: QueueId, completion: bool, value: u32) -> bool {
        let admin = queue == QueueId::ADMIN;
        if !admin && !self.kept.load(Relaxed) {
            return true;
        }
        // A queue beyond the page has a register only.
        let Some(doorbell) =
            self.words.doorbell(2 * usize::from(queue.0) + usize::from(completion))
        else {
            return true;
        };
        // The host's own last value: read back rather than kept twice.
        let Ok(old) = doorbell.value();
        let Ok(passed) = shadow::announce(&doorbell, old, value);
        if passed && !admin {
            self.rung.fetch_add(1, Relaxed);
        }
        passed || admin
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/shadow_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
