//! vfio-user: a protocol with which one process (the server) provides a PCI device to another (the
//! client) over a Unix socket.
//!
//! `codec.rs` parses and builds messages and cuts a stream into messages, without I/O. `socket.rs`
//! carries bytes and file descriptors. `client.rs` is a client that many threads share. Nothing
//! that a peer sends is trusted: an impossible size, count or number of descriptors is a
//! [`Malformed`] error, and after any message of a valid size the next one can be read.
//!
//! The crate `vfio_user` of rust-vmm is not used. Its client takes `&mut self`, blocks without a
//! deadline, does not check identifier and error of a reply, and cannot serve DMA_READ and
//! DMA_WRITE. It subtracts from a size that the peer supplies, and reads the command number into a
//! Rust `enum`, so that a peer can cause a panic or undefined behaviour.
//!
//! The source is "vfio-user Protocol Specification", version 0.9.2 (`docs/vfio-user.rst` of
//! libvfio-user; `docs/interop/vfio-user.rst` of QEMU); structures are those of `linux/vfio.h`.
//! Both processes run on one machine, so integers are in its native byte order.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod client;
mod codec;
mod socket;

pub use client::{Answer, CallError, Calls, Client, End, Memory, Ticket};
pub use codec::{
    Area, Assembler, Capabilities, Command, DeviceInfo, DmaMap, DmaRequest, DmaUnmap, Flags,
    Header, Interrupts, IrqAction, IrqData, Malformed, Message, Region, RegionAccess, RegionInfo,
    Reply, Request, SetIrqs, Version, region_data,
};
pub use socket::{Received, Socket, SocketError};

/// Indices of the regions of a PCI device (`VFIO_PCI_*_REGION_INDEX`).
pub mod region {
    /// BAR 0; BAR 1 to BAR 5 have the following indices.
    pub const BAR0: u32 = 0;
    /// BAR 4.
    pub const BAR4: u32 = 4;
    /// BAR 5.
    pub const BAR5: u32 = 5;
    /// The configuration space.
    pub const CONFIG: u32 = 7;
    /// Number of indices: six BARs, the ROM, the configuration space, VGA.
    pub const COUNT: u32 = 9;
}

/// Indices of the interrupt types of a PCI device (`VFIO_PCI_*_IRQ_INDEX`).
pub mod irq {
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// Uncorrectable device errors.
    pub const ERROR: u32 = 3;
    /// Number of indices: INTx, MSI, MSI-X, error, device release request.
    pub const COUNT: u32 = 5;
}
