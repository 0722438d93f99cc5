//! Ring arithmetic, once, for both sides: the host produces on submission queues and consumes
//! completion queues, the controller does the reverse. And the seams behind which a ring's memory,
//! the doorbells and the registers live.

use crate::{Cqe, QueueId, Sqe};

/// Where a producer's next entry goes, or where a consumer expects it: a tail or a head, with the
/// phase tag that entries of a completion queue have in this pass (Base 3.3.1). A ring of N entries
/// holds N − 1, so that full and empty can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingIndex {
    slot: u32,
    entries: u32,
    phase: bool,
}

impl RingIndex {
    /// Of an empty ring of `entries` entries (2 to 65,536). Entries of the first pass have phase 1
    /// (Base 3.3.1.2).
    pub fn new(entries: u32) -> RingIndex {
        debug_assert!((2..=65_536).contains(&entries));
        RingIndex { slot: 0, entries, phase: true }
    }

    /// The slot of the next entry; also the value of the tail or head doorbell.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The phase tag of the next entry: what a producer writes, or what marks it as new to a
    /// consumer.
    pub fn phase(&self) -> bool {
        self.phase
    }

    /// How many entries a producer may add, given how far the other side has consumed.
    pub fn room(&self, head: u32) -> u32 {
        let used =
            if self.slot >= head { self.slot - head } else { self.slot + self.entries - head };
        self.entries - 1 - used
    }

    /// How many entries wait for a consumer, given the other side's tail doorbell; `None` if that
    /// tail is outside the ring.
    pub fn available(&self, tail: u32) -> Option<u32> {
        (tail < self.entries).then(|| {
            if tail >= self.slot { tail - self.slot } else { tail + self.entries - self.slot }
        })
    }

    /// Moves past the slot just written or taken, or about to be.
    pub fn advance(&mut self) {
        self.slot += 1;
        if self.slot == self.entries {
            self.slot = 0;
            self.phase = !self.phase;
        }
    }

    /// Moves past `slots` slots just taken, none of them beyond the ring's end.
    pub fn advance_by(&mut self, slots: u32) {
        debug_assert!(slots <= self.entries - self.slot);
        self.slot += slots;
        if self.slot >= self.entries {
            self.slot = 0;
            self.phase = !self.phase;
        }
    }
}

/// The memory of a submission queue. The host stores, the controller loads; no reference into it is
/// ever held.
pub trait SqSlots {
    /// Writes an entry. It becomes visible with the tail doorbell, which is a release.
    fn store(&self, slot: u32, sqe: &Sqe);
    /// Reads an entry that the tail doorbell (an acquire) has announced.
    fn load(&self, slot: u32) -> Sqe;
}

/// The memory of a completion queue. The controller stores, the host loads.
pub trait CqSlots {
    /// Writes an entry: the first word, then, as a release, the word with the phase tag.
    fn store(&self, slot: u32, cqe: &Cqe);
    /// Reads the entry if its phase tag is `phase`: the phase word as an acquire, then the rest.
    /// `None`: nothing new.
    fn load(&self, slot: u32, phase: bool) -> Option<Cqe>;
    /// Hands the entries from `slot` on to `each` as [`CqSlots::load`] reads them, each with a
    /// place of `out`, until `out` is at its end, an entry is not new or `each` says no. As many
    /// slots as there are places lie in the ring. How many there were.
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
    /// A look without taking anything: is there an entry of this phase?
    fn is_new(&self, slot: u32, phase: bool) -> bool;
}

/// A range of bus addresses that is not, as a whole, memory that the device may reach now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bus address {addr:#x}..+{len:#x} is not memory that the host lets the device reach")]
pub struct BusError {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// Both doorbells of every queue pair (PCIe Transport 3.1.2). Writes are releases, reads acquires.
pub trait Doorbells {
    /// Host: new tail of a submission queue.
    fn ring_sq(&self, queue: QueueId, tail: u32);
    /// Host: new head of a completion queue.
    fn ring_cq(&self, queue: QueueId, head: u32);
    /// Controller: the tail that the host wrote last.
    fn sq_tail(&self, queue: QueueId) -> u32;
    /// Controller: the head that the host wrote last.
    fn cq_head(&self, queue: QueueId) -> u32;
}

/// The controller's properties below the doorbells (Base 3.1.4), by byte offset. 64-bit ones may be
/// read as two halves.
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
