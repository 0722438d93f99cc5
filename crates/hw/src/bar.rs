//! A controller's registers and doorbells in process memory: what BAR0 is on PCIe.

use std::sync::atomic::{AtomicU32, Ordering};

use nvme::regs::{self, Cap};
use nvme::{Doorbells, QueueId, Registers};

/// A doorbell on a cache line of its own, so that queues of different threads do not share one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU32);

/// Registers and doorbells as atomics. Both sides hold it; reads are acquires and writes releases, so that what was
/// written before a doorbell is visible to the device that reads it.
#[derive(Debug)]
pub struct Bar {
    registers: Box<[AtomicU32]>,
    doorbells: Box<[Line]>,
}

impl Bar {
    /// All zero: the properties, and the doorbells of the admin queue pair and of `queues` I/O queue pairs. At which register offset
    /// a doorbell appears CAP.DSTRD says (Base 3.1.4.1), as the controller has written it.
    pub fn new(queues: u16) -> Bar {
        let lines = 2 * (usize::from(queues) + 1);
        Bar {
            registers: (0..regs::DOORBELLS / 4).map(|_| AtomicU32::new(0)).collect(),
            doorbells: (0..lines).map(|_| Line::default()).collect(),
        }
    }

    /// How many doorbells there are, two for each queue.
    pub fn doorbells(&self) -> u32 {
        self.doorbells.len() as u32
    }

    /// The word at a register offset: a property or a doorbell.
    #[inline]
    fn word(&self, offset: u32) -> Option<&AtomicU32> {
        match offset.checked_sub(regs::DOORBELLS) {
            None => self.registers.get((offset / 4) as usize),
            Some(at) => {
                let stride = 2 + u32::from(Cap::from_bits(self.read64(regs::CAP)).dstrd());
                self.doorbells.get((at >> stride) as usize).filter(|_| at % (1 << stride) == 0).map(|l| &l.0)
            }
        }
    }

    #[inline]
    fn doorbell(&self, queue: QueueId, completion: bool) -> Option<&AtomicU32> {
        self.doorbells.get(2 * usize::from(queue.0) + usize::from(completion)).map(|line| &line.0)
    }
}

impl Registers for Bar {
    /// Where nothing is, all ones, as on PCIe.
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.word(offset).map_or(u32::MAX, |word| word.load(Ordering::Acquire))
    }

    /// Where nothing is, nothing happens.
    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }
}

/// Doorbells of queues beyond those the BAR has read as 0, and ringing them does nothing.
impl Doorbells for Bar {
    #[inline]
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        if let Some(word) = self.doorbell(queue, false) {
            word.store(tail, Ordering::Release);
        }
    }

    #[inline]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        if let Some(word) = self.doorbell(queue, true) {
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
