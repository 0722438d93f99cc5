//! A controller's registers and doorbells, wherever it is.

use std::sync::Arc;

use hw::Vectors;
use hw::vfio::PciRegisters;
use nvme::{Doorbells, QueueId, Registers, Vector};

use super::embedded;

/// The host's way to a controller's registers and doorbells: asked once for each batch where that is.
#[derive(Clone)]
pub(in crate::link) enum Bells {
    /// In this process.
    Here(embedded::Bells),
    /// On the bus, or another process's.
    Bus(Arc<PciRegisters>),
}

impl Bells {
    /// Allows the messages of a vector. A device on the bus is never forbidden any, so that none is pending.
    #[inline]
    pub(in crate::link) fn unmask(&self, vectors: &Vectors, vector: Vector) {
        match self {
            Bells::Here(bells) => bells.unmask(vectors, vector),
            Bells::Bus(_) => _ = vectors.arm(vector),
        }
    }
}

impl Doorbells for Bells {
    #[inline]
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        match self {
            Bells::Here(bells) => bells.ring_sq(queue, tail),
            Bells::Bus(registers) => registers.ring_sq(queue, tail),
        }
    }

    #[inline]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        match self {
            Bells::Here(bells) => bells.ring_cq(queue, head),
            Bells::Bus(registers) => registers.ring_cq(queue, head),
        }
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        match self {
            Bells::Here(bells) => bells.sq_tail(queue),
            Bells::Bus(registers) => registers.sq_tail(queue),
        }
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        match self {
            Bells::Here(bells) => bells.cq_head(queue),
            Bells::Bus(registers) => registers.cq_head(queue),
        }
    }
}

impl Registers for Bells {
    fn read32(&self, offset: u32) -> u32 {
        match self {
            Bells::Here(bells) => bells.read32(offset),
            Bells::Bus(registers) => registers.read32(offset),
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        match self {
            Bells::Here(bells) => bells.write32(offset, value),
            Bells::Bus(registers) => registers.write32(offset, value),
        }
    }
}
