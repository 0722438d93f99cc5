//! Ring arithmetic, once, for both sides: the host produces on submission queues and consumes completion queues, the
//! controller does the reverse. And the seams behind which a ring's memory, the doorbells and the registers live.

use crate::{Cqe, QueueId, Sqe};

/// Where the next entry goes: a tail index and, for a completion queue, the phase tag that the pass writes (Base 3.3.1).
/// A ring of N entries holds N − 1, so that full and empty can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    tail: u32,
    entries: u32,
    phase: bool,
}

/// Where the next entry is expected: a head index and, for a completion queue, the phase tag that marks it as new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer {
    head: u32,
    entries: u32,
    phase: bool,
}

impl Producer {
    /// An empty ring of `entries` entries (2 to 65,536). The first pass writes phase 1 (Base 3.3.1.2).
    pub fn new(entries: u32) -> Producer {
        debug_assert!((2..=65_536).contains(&entries));
        Producer { tail: 0, entries, phase: true }
    }

    /// The slot that the next entry goes to; also the value of the tail doorbell.
    pub fn slot(&self) -> u32 {
        self.tail
    }

    /// The phase tag of the next entry.
    pub fn phase(&self) -> bool {
        self.phase
    }

    /// How many entries fit, given how far the other side has consumed.
    pub fn room(&self, head: u32) -> u32 {
        let used = if self.tail >= head { self.tail - head } else { self.tail + self.entries - head };
        self.entries - 1 - used
    }

    /// Moves past the slot just written, or about to be.
    pub fn advance(&mut self) {
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
    }
}

impl Consumer {
    /// An empty ring of `entries` entries. New entries of the first pass have phase 1.
    pub fn new(entries: u32) -> Consumer {
        debug_assert!((2..=65_536).contains(&entries));
        Consumer { head: 0, entries, phase: true }
    }

    /// The slot looked at next; also the value of the head doorbell.
    pub fn slot(&self) -> u32 {
        self.head
    }

    /// The phase tag that marks the entry at [`Consumer::slot`] as new.
    pub fn phase(&self) -> bool {
        self.phase
    }

    /// How many entries wait, given the other side's tail doorbell; `None` if that tail is outside the ring.
    pub fn available(&self, tail: u32) -> Option<u32> {
        (tail < self.entries).then(|| if tail >= self.head { tail - self.head } else { tail + self.entries - self.head })
    }

    /// Moves past `slots` slots just taken, none of them beyond the ring's end.
    pub fn advance_by(&mut self, slots: u32) {
        debug_assert!(slots <= self.entries - self.head);
        self.head += slots;
        if self.head >= self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
    }

    /// Moves past the slot just taken.
    pub fn advance(&mut self) {
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
    }
}

/// The memory of a submission queue. The host stores, the controller loads; nobody holds a reference into it.
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
    /// Reads the entry if its phase tag is `phase`: the phase word as an acquire, then the rest. `None`: nothing new.
    fn load(&self, slot: u32, phase: bool) -> Option<Cqe>;
    /// Hands the entries from `slot` on to `each` as [`CqSlots::load`] reads them, each with a place of `out`, until `out`
    /// is at its end, an entry is not new or `each` says no. As many slots as there are places lie in the ring. How many
    /// there were.
    fn load_run<T>(&self, slot: u32, phase: bool, out: &mut [T], mut each: impl FnMut(Cqe, &mut T) -> bool) -> u32 {
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

/// The controller's properties below the doorbells (Base 3.1.4), by byte offset. 64-bit ones may be read as two halves.
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
