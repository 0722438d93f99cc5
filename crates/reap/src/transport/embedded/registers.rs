//! Doorbells and registers of an embedded controller, as the host writes them. Each write also
//! wakes a device thread that sleeps.

use std::sync::Arc;

use hw::{Bar, Vectors};
use nvme::{Doorbells, QueueId, Registers, Vector};

use super::runner::Runner;

/// The host's side of the BAR.
#[derive(Clone)]
pub(in crate::transport) struct EmbeddedRegisters {
    bar: Arc<Bar>,
    runner: Arc<Runner>,
}

impl EmbeddedRegisters {
    pub(super) fn new(bar: Arc<Bar>, runner: Arc<Runner>) -> EmbeddedRegisters {
        EmbeddedRegisters { bar, runner }
    }

    /// Unmasks a vector. A device thread that sleeps is woken if the vector's Pending bit is set;
    /// one that is awake sees the mask by itself.
    #[inline]
    pub(in crate::transport) fn unmask(&self, vectors: &Vectors, vector: Vector) {
        // `arm` returns whether a message is pending.
        if vectors.arm(vector.0) {
            self.runner.wake();
        }
    }

    /// Registers without a controller, for tests.
    #[cfg(test)]
    pub(in crate::transport) fn of(bar: Arc<Bar>) -> EmbeddedRegisters {
        EmbeddedRegisters::new(bar, Runner::shared(None).unwrap_or_else(|error| panic!("{error}")))
    }
}

impl Doorbells for EmbeddedRegisters {
    #[inline]
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        // Stored before the wake-up: an awake thread sees it, a sleeping one is signalled.
        self.bar.ring_sq(queue, tail);
        self.runner.wake();
    }

    /// Does not wake the device thread: a CQ has as many entries as the queue pair has command
    /// identifiers, so no completion waits for this doorbell.
    #[inline]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.bar.ring_cq(queue, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.bar.sq_tail(queue)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.bar.cq_head(queue)
    }
}

impl Registers for EmbeddedRegisters {
    fn read32(&self, offset: u32) -> u32 {
        self.bar.read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        // As for a doorbell: store, then wake.
        self.bar.write32(offset, value);
        self.runner.wake();
    }
}
