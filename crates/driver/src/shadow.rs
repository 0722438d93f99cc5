//! Shadow doorbells (Base 5.2.5, Doorbell Buffer Config): the host writes each doorbell to memory,
//! and the register only when the value passes the EventIdx that the controller has written. Useful
//! where a register write is a message or a VM exit.

use nvme::{Doorbells, QueueId};
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicBool, AtomicU64};
use sync::shadow::{self, ShadowDoorbell, ShadowDoorbells};

/// A host's shadow doorbells, and the decision whether to write the register as well. A queue's
/// doorbell is written under that queue's lock.
#[derive(Debug)]
pub struct Shadow<W> {
    words: W,
    /// Doorbell Buffer Config is in force: the controller reads the shadow doorbells.
    enabled: AtomicBool,
    rung: AtomicU64,
}

impl<W: ShadowDoorbells> Shadow<W> {
    /// Shadow doorbells in zeroed memory that no controller uses yet.
    pub fn new(words: W) -> Shadow<W> {
        Shadow { words, enabled: AtomicBool::new(false), rung: AtomicU64::new(0) }
    }

    /// The doorbells' memory.
    pub fn words(&self) -> &W {
        &self.words
    }

    /// Records whether the controller uses the shadow doorbells of I/O queues: true after Doorbell
    /// Buffer Config has succeeded, false once the controller has stopped. No thread may submit or
    /// reap during the call.
    pub fn set_enabled(&self, enabled: bool) {
        // Relaxed: a thread that uses a queue afterwards takes the queue's lock, which orders this
        // store before the thread's load.
        self.enabled.store(enabled, Relaxed);
    }

    /// Whether the controller uses the shadow doorbells of I/O queues.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// How many doorbell registers of I/O queues were written while shadow doorbells were in use,
    /// since [`Shadow::new`].
    pub fn rung(&self) -> u64 {
        self.rung.load(Relaxed)
    }

    /// Moves the tail of a submission queue. Writes the queue's register in `registers` as well if
    /// the controller would not read the shadow doorbell.
    #[inline]
    pub fn ring_sq(&self, registers: &impl Doorbells, queue: QueueId, tail: u32) {
        if self.update_shadow(queue, false, tail) {
            registers.ring_sq(queue, tail);
        }
    }

    /// Moves the head of a completion queue, as [`Shadow::ring_sq`] does the tail.
    #[inline]
    pub fn ring_cq(&self, registers: &impl Doorbells, queue: QueueId, head: u32) {
        if self.update_shadow(queue, true, head) {
            registers.ring_cq(queue, head);
        }
    }

    /// Writes the shadow doorbell, and returns whether the register must be written as well. The
    /// admin queue's doorbells are always written to both: some controllers read only the register,
    /// and the specification lets others read only the memory.
    #[inline]
    fn update_shadow(&self, queue: QueueId, completion: bool, value: u32) -> bool {
        let admin = queue == QueueId::ADMIN;
        if !admin && !self.enabled.load(Relaxed) {
            return true;
        }
        // A queue beyond the page has a register only.
        let Some(doorbell) =
            self.words.doorbell(2 * usize::from(queue.0) + usize::from(completion))
        else {
            return true;
        };
        // The host's own last value is read back from the shadow instead of stored separately.
        let Ok(old) = doorbell.value();
        let Ok(need_register) = shadow::announce(&doorbell, old, value);
        if need_register && !admin {
            self.rung.fetch_add(1, Relaxed);
        }
        need_register || admin
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/shadow_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
