//! Doorbells that the host keeps in memory, so that it writes few registers (Base 5.2.5, Doorbell Buffer Config): for a controller whose registers
//! are messages, or trap.

use nvme::{Doorbells, QueueId};
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicBool, AtomicU64};
use sync::shadow::{self, ShadowDoorbell, ShadowDoorbells};

/// A host's doorbells in memory, and when it writes their registers as well. A register is written by who has its queue's lock.
#[derive(Debug)]
pub struct Shadow<W> {
    words: W,
    /// The controller reads them.
    kept: AtomicBool,
    rung: AtomicU64,
}

impl<W: ShadowDoorbells> Shadow<W> {
    /// Over zeroed memory, which no controller knows of yet.
    pub fn new(words: W) -> Shadow<W> {
        Shadow { words, kept: AtomicBool::new(false), rung: AtomicU64::new(0) }
    }

    /// Where they are.
    pub fn words(&self) -> &W {
        &self.words
    }

    /// Whether the controller reads those of I/O queues, after its bring-up or once it has stopped. Nobody posts or reaps meanwhile.
    pub fn keep(&self, kept: bool) {
        // Relaxed: who uses a queue takes its lock, which was let go, or made, after this.
        self.kept.store(kept, Relaxed);
    }

    /// Whether it does.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Relaxed)
    }

    /// Registers that were written although doorbells were kept in memory: of I/O queues, since this was made.
    pub fn rung(&self) -> u64 {
        self.rung.load(Relaxed)
    }

    /// Moves the tail of a submission queue, and writes its register among `registers` if the controller may not see that.
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

    /// The admin queue's doorbells are written to both, from the beginning: some controllers read neither but the register, and the
    /// specification lets others read the memory.
    #[inline]
    fn must_ring(&self, queue: QueueId, completion: bool, value: u32) -> bool {
        let admin = queue == QueueId::ADMIN;
        if !admin && !self.kept.load(Relaxed) {
            return true;
        }
        let Some(doorbell) = self.words.doorbell(2 * usize::from(queue.0) + usize::from(completion)) else { return true };
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
