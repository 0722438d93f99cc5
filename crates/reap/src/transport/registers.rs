//! A controller's registers and doorbells, as the host writes them.
//!
//! An embedded controller's are plain memory of this process. Those of a PCI drive or a vfio-user
//! server cost an uncached store, a trap or a message each; there, shadow doorbells in memory
//! (Doorbell Buffer Config, Base §5.2.5) avoid most of the writes.

use std::sync::Arc;

use driver::Shadow;
use hw::vfio::PciRegisters;
use hw::{DoorbellPages, Vectors};
use nvme::{Doorbells, QueueId, Registers, Vector};

use super::embedded;
use super::tcp::TcpController;

/// Registers and doorbells of one controller. Matched once per batch, not once per command.
#[derive(Clone)]
pub(in crate::transport) enum ControllerRegisters {
    /// Of the embedded controller.
    Embedded(embedded::EmbeddedRegisters),
    /// Of a PCI function or a vfio-user server.
    Bus(Arc<BusRegisters>),
    /// None: a doorbell sends what was posted.
    Tcp(Arc<TcpController>),
}

/// Registers outside this process, with shadow doorbells if the controller offers them.
pub(in crate::transport) struct BusRegisters {
    registers: PciRegisters,
    shadow: Option<Shadow<DoorbellPages>>,
}

impl BusRegisters {
    pub(in crate::transport) fn new(
        registers: PciRegisters,
        pages: Option<DoorbellPages>,
    ) -> BusRegisters {
        BusRegisters { registers, shadow: pages.map(Shadow::new) }
    }

    /// The registers themselves, past any shadow doorbell.
    pub(in crate::transport) fn registers(&self) -> &PciRegisters {
        &self.registers
    }

    /// Not inlined: the embedded controller's path through [`ControllerRegisters`] stays small.
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
    /// Unmasks a vector. Vectors of a bus controller have no mask, so none of its messages can be
    /// pending.
    #[inline]
    pub(in crate::transport) fn unmask(&self, vectors: &Vectors, vector: Vector) {
        match self {
            ControllerRegisters::Embedded(registers) => registers.unmask(vectors, vector),
            // Only the host's flag: the device itself is never masked.
            ControllerRegisters::Bus(_) | ControllerRegisters::Tcp(_) => _ = vectors.arm(vector.0),
        }
    }

    /// The shadow doorbells, if memory was set aside for them.
    pub(in crate::transport) fn shadow(&self) -> Option<&Shadow<DoorbellPages>> {
        match self {
            // Its doorbells are memory already.
            ControllerRegisters::Embedded(_) | ControllerRegisters::Tcp(_) => None,
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
            ControllerRegisters::Tcp(tcp) => tcp.ring_sq(queue, tail),
        }
    }

    #[inline]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        match self {
            ControllerRegisters::Embedded(registers) => registers.ring_cq(queue, head),
            ControllerRegisters::Bus(bus) => bus.ring_cq(queue, head),
            // There is always room in the CQ.
            ControllerRegisters::Tcp(_) => {}
        }
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        match self {
            ControllerRegisters::Embedded(registers) => registers.sq_tail(queue),
            ControllerRegisters::Bus(bus) => bus.registers.sq_tail(queue),
            ControllerRegisters::Tcp(_) => 0,
        }
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        match self {
            ControllerRegisters::Embedded(registers) => registers.cq_head(queue),
            ControllerRegisters::Bus(bus) => bus.registers.cq_head(queue),
            ControllerRegisters::Tcp(_) => 0,
        }
    }
}

impl Registers for ControllerRegisters {
    fn read32(&self, offset: u32) -> u32 {
        match self {
            ControllerRegisters::Embedded(registers) => registers.read32(offset),
            ControllerRegisters::Bus(bus) => bus.registers.read32(offset),
            // Properties are read by commands.
            ControllerRegisters::Tcp(_) => u32::MAX,
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        match self {
            ControllerRegisters::Embedded(registers) => registers.write32(offset, value),
            ControllerRegisters::Bus(bus) => bus.registers.write32(offset, value),
            ControllerRegisters::Tcp(_) => {}
        }
    }
}
