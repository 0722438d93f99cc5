//! The registers and doorbells of an embedded controller, in process memory: what BAR0 is on PCIe.
//! Host and controller share one [`Bar`] and reach it only through atomics.

use std::sync::atomic::{AtomicU32, Ordering};

use nvme::regs::{self, Cap};
use nvme::{Doorbells, QueueId, Registers};

/// A doorbell, padded to a cache line: two threads that ring different queues do not share one
/// (false sharing).
#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedDoorbell(AtomicU32);

/// Registers and doorbells as atomics, shared by host and controller. Reads are acquire loads and
/// writes are release stores: what the host stored before it rang a doorbell is visible to the
/// controller that reads the new tail.
#[derive(Debug)]
pub struct Bar {
    registers: Box<[AtomicU32]>,
    doorbells: Box<[PaddedDoorbell]>,
}

impl Bar {
    /// A BAR of zeroes, with the doorbells of the admin queue pair and of `queues` I/O queue pairs.
    /// The register offset of a doorbell follows from CAP.DSTRD (Base 3.1.4.1), as the controller
    /// has written it.
    pub fn new(queues: u16) -> Bar {
        let lines = 2 * (usize::from(queues) + 1);
        Bar {
            registers: (0..regs::DOORBELLS / 4).map(|_| AtomicU32::new(0)).collect(),
            doorbells: (0..lines).map(|_| PaddedDoorbell::default()).collect(),
        }
    }

    /// Number of doorbells: two per queue pair.
    pub fn doorbells(&self) -> u32 {
        self.doorbells.len() as u32
    }

    /// The word at a register offset: a property or a doorbell. `None`: past the end, or between
    /// two doorbells.
    #[inline]
    fn word(&self, offset: u32) -> Option<&AtomicU32> {
        match offset.checked_sub(regs::DOORBELLS) {
            None => self.registers.get((offset / 4) as usize),
            Some(at) => {
                // A doorbell stride of 2^(2 + DSTRD) bytes; an offset between two doorbells is
                // reserved.
                let stride = 2 + u32::from(Cap::from_bits(self.read64(regs::CAP)).dstrd());
                self.doorbells
                    .get((at >> stride) as usize)
                    .filter(|_| at % (1 << stride) == 0)
                    .map(|l| &l.0)
            }
        }
    }

    #[inline]
    fn doorbell(&self, queue: QueueId, completion: bool) -> Option<&AtomicU32> {
        self.doorbells.get(2 * usize::from(queue.0) + usize::from(completion)).map(|line| &line.0)
    }
}

impl Registers for Bar {
    /// Reads a register; an unmapped offset reads as all ones, as on PCIe.
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.word(offset).map_or(u32::MAX, |word| word.load(Ordering::Acquire))
    }

    /// A write to an unmapped offset is ignored.
    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }
}

/// A doorbell of a queue that the BAR does not have reads as 0; writing it has no effect.
impl Doorbells for Bar {
    #[inline]
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        if let Some(word) = self.doorbell(queue, false) {
            // Release: the SQEs, stored relaxed, are visible to a controller that loads this tail.
            word.store(tail, Ordering::Release);
        }
    }

    #[inline]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        if let Some(word) = self.doorbell(queue, true) {
            // Release: the host has read these CQEs before the controller reuses their slots.
            word.store(head, Ordering::Release);
        }
    }

    #[inline]
    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.doorbell(queue, false).map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline]
    fn cq_head(&self, queue: QueueId) -> u32 {
        self.doorbell(queue, true).map_or(0, |word| word.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests;
