//! A controller's registers and doorbells, wherever it is.

use std::sync::Arc;

use driver::Shadow;
use hw::vfio::PciRegisters;
use hw::{DoorbellPages, Vectors};
use nvme::{Doorbells, QueueId, Registers, Vector};

use super::embedded;

/// The host's way to a controller's registers and doorbells: asked once for each batch where that is.
#[derive(Clone)]
pub(in crate::transport) enum ControllerRegisters {
    /// In this process.
    Embedded(embedded::EmbeddedRegisters),
    /// On the bus, or another process's.
    Bus(Arc<BusRegisters>),
}

/// A way to registers and doorbells that is dear: what is spared of it by doorbells in memory.
pub(in crate::transport) struct BusRegisters {
    registers: PciRegisters,
    shadow: Option<Shadow<DoorbellPages>>,
}

impl BusRegisters {
    pub(in crate::transport) fn new(registers: PciRegisters, pages: Option<DoorbellPages>) -> BusRegisters {
        BusRegisters { registers, shadow: pages.map(Shadow::new) }
    }

    /// The registers, and doorbells that are not in memory.
    pub(in crate::transport) fn registers(&self) -> &PciRegisters {
        &self.registers
    }

    /// A call, so that it costs a controller in this process nothing.
    #[inline(never)]
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        match &self.shadow {
            None => self.registers.ring_sq(queue, tail),
            Some(shadow) => shadow.ring_sq(&self.registers, queue, tail),
        }
    }

    #[inline(never)]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        match &self.shadow {
            None => self.registers.ring_cq(queue, head),
            Some(shadow) => shadow.ring_cq(&self.registers, queue, head),
        }
    }
}

impl ControllerRegisters {
    /// Allows the messages of a vector. A device on the bus is never forbidden any, so that none is pending.
    #[inline]
    pub(in crate::transport) fn unmask(&self, vectors: &Vectors, vector: Vector) {
        match self {
            ControllerRegisters::Embedded(registers) => registers.unmask(vectors, vector),
            ControllerRegisters::Bus(_) => _ = vectors.arm(vector.0),
        }
    }

    /// Doorbells in memory, where the controller may be asked to read them there.
    pub(in crate::transport) fn shadow(&self) -> Option<&Shadow<DoorbellPages>> {
        match self {
            ControllerRegisters::Embedded(_) => None,
            ControllerRegisters::Bus(bus) => bus.shadow.as_ref(),
        }
    }
}

impl Doorbells for ControllerRegisters {
    #[inline]
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        match self {
            ControllerRegisters::Embedded(registers) => registers.ring_sq(queue, tail),
            ControllerRegisters::Bus(bus) => bus.ring_sq(queue, tail),
        }
    }

    #[inline]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        match self {
            ControllerRegisters::Embedded(registers) => registers.ring_cq(queue, head),
            ControllerRegisters::Bus(bus) => bus.ring_cq(queue, head),
        }
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        match self {
            ControllerRegisters::Embedded(registers) => registers.sq_tail(queue),
            ControllerRegisters::Bus(bus) => bus.registers.sq_tail(queue),
        }
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        match self {
            ControllerRegisters::Embedded(registers) => registers.cq_head(queue),
            ControllerRegisters::Bus(bus) => bus.registers.cq_head(queue),
        }
    }
}

impl Registers for ControllerRegisters {
    fn read32(&self, offset: u32) -> u32 {
        match self {
            ControllerRegisters::Embedded(registers) => registers.read32(offset),
            ControllerRegisters::Bus(bus) => bus.registers.read32(offset),
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        match self {
            ControllerRegisters::Embedded(registers) => registers.write32(offset, value),
            ControllerRegisters::Bus(bus) => bus.registers.write32(offset, value),
        }
    }
}
