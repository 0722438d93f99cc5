//! Queue index arithmetic for both sides (the host produces submission entries and consumes
//! completions, the controller does the reverse), and the traits for queue memory, doorbells and
//! registers.

use crate::{Cqe, QueueId, Sqe};

/// Tail of a producer or head of a consumer: the next slot, and the phase tag of completion queue
/// entries in this pass over the queue (Base §3.3.1). A queue of N slots holds at most N − 1
/// entries, so that full and empty differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingIndex {
    slot: u32,
    /// Slots of the queue.
    slots: u32,
    phase: bool,
}

impl RingIndex {
    /// The index of an empty queue of `slots` slots (2 to 65,536). The first pass has phase 1
    /// (Base §3.3.1.2).
    pub fn new(slots: u32) -> RingIndex {
        debug_assert!((2..=65_536).contains(&slots));
        RingIndex { slot: 0, slots, phase: true }
    }

    /// The next slot, which is also the doorbell value.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Phase tag of the next entry: written by the producer, compared by the consumer.
    pub fn phase(&self) -> bool {
        self.phase
    }

    /// Entries that a producer may add, given the consumer's `head`.
    pub fn room(&self, head: u32) -> u32 {
        let used = if self.slot >= head { self.slot - head } else { self.slot + self.slots - head };
        // One slot stays empty, so that a full ring differs from an empty one (Base §3.3.1.2).
        self.slots - 1 - used
    }

    /// Entries that a consumer may take, given the producer's `tail`; `None` if the tail is outside
    /// the queue.
    pub fn available(&self, tail: u32) -> Option<u32> {
        // The tail comes from the other side and may be any value.
        (tail < self.slots).then(|| {
            if tail >= self.slot { tail - self.slot } else { tail + self.slots - self.slot }
        })
    }

    /// Advances by one slot.
    pub fn advance(&mut self) {
        self.slot += 1;
        if self.slot == self.slots {
            self.slot = 0;
            self.phase = !self.phase;
        }
    }

    /// Advances by `slots` slots, at most to the end of the queue.
    pub fn advance_by(&mut self, slots: u32) {
        debug_assert!(slots <= self.slots - self.slot);
        self.slot += slots;
        if self.slot >= self.slots {
            self.slot = 0;
            self.phase = !self.phase;
        }
    }
}

/// Memory of a submission queue: the host stores, the controller loads. Accesses are by copy, as
/// the other side may write at any time.
pub trait SqSlots {
    /// Stores an entry. The write of the tail doorbell, a release, makes it visible.
    fn store(&self, slot: u32, sqe: &Sqe);
    /// Loads an entry that the tail doorbell, read with acquire, has announced.
    fn load(&self, slot: u32) -> Sqe;
}

/// Memory of a completion queue: the controller stores, the host loads.
pub trait CqSlots {
    /// Stores an entry: the first 8 bytes, then the 8 bytes with the phase tag, as a release.
    fn store(&self, slot: u32, cqe: &Cqe);
    /// Loads an entry if its phase tag is `phase`: the second 8 bytes as an acquire, then the
    /// first 8.
    /// `None`: no new entry.
    fn load(&self, slot: u32, phase: bool) -> Option<Cqe>;
    /// Loads consecutive entries from `slot` and passes each to `each` with its element of `out`,
    /// until `out` is used up, an entry is not new, or `each` returns false. The slots must not
    /// exceed the end of the queue. Returns the number of entries taken; the one for which `each`
    /// returned false is not.
    fn load_run<T>(
        &self,
        slot: u32,
        phase: bool,
        out: &mut [T],
        mut each: impl FnMut(Cqe, &mut T) -> bool,
    ) -> u32 {
        let mut taken = 0;
        for place in out {
            if !self.load(slot + taken, phase).is_some_and(|cqe| each(cqe, place)) {
                break;
            }
            taken += 1;
        }
        taken
    }
    /// Whether the slot has an entry of this phase. Does not load the entry.
    fn is_new(&self, slot: u32, phase: bool) -> bool;
}

/// A range of bus addresses that is not, or not completely, mapped for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bus address {addr:#x}..+{len:#x} is not memory that the device may access")]
pub struct BusError {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The doorbells of all queue pairs (PCIe Transport §3.1.2). Writes are releases, reads acquires.
pub trait Doorbells {
    /// Host: writes the tail of a submission queue.
    fn ring_sq(&self, queue: QueueId, tail: u32);
    /// Host: writes the head of a completion queue.
    fn ring_cq(&self, queue: QueueId, head: u32);
    /// Controller: reads the tail of a submission queue.
    fn sq_tail(&self, queue: QueueId) -> u32;
    /// Controller: reads the head of a completion queue.
    fn cq_head(&self, queue: QueueId) -> u32;
}

/// The controller's properties (Base §3.1.4), which are at offsets below the doorbells. 64-bit
/// properties may be accessed as two halves.
pub trait Registers {
    /// Reads 32 bits at `offset`.
    fn read32(&self, offset: u32) -> u32;
    /// Writes 32 bits at `offset`.
    fn write32(&self, offset: u32, value: u32);
    /// Reads 64 bits at `offset`.
    fn read64(&self, offset: u32) -> u64 {
        u64::from(self.read32(offset)) | u64::from(self.read32(offset + 4)) << 32
    }
    /// Writes 64 bits at `offset`.
    fn write64(&self, offset: u32, value: u64) {
        self.write32(offset, value as u32);
        self.write32(offset + 4, (value >> 32) as u32);
    }
}

#[cfg(test)]
mod tests;
