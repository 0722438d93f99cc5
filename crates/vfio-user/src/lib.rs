//! vfio-user: how a process serves a PCI device to another one, over a Unix socket.
//!
//! `codec.rs` has the messages and cuts them out of a stream, without I/O; `socket.rs` carries bytes and descriptors; `client.rs` is a client
//! that many threads share. Nothing of what a peer sends is believed: a size, a count or a number of descriptors that cannot be is a
//! [`Malformed`], and the stream stays in step after any message whose size is possible.
//!
//! The crate `vfio_user` of rust-vmm is not used: its client takes `&mut self` and blocks without a deadline, checks neither identifier nor
//! error of an answer, and cannot serve DMA_READ and DMA_WRITE. It subtracts from a size that the peer says and reads the command number
//! into a Rust `enum`, so a peer can make it panic or worse.
//!
//! The source is "vfio-user Protocol Specification", version 0.9.2 of the document (`docs/vfio-user.rst` of libvfio-user, and QEMU's
//! `docs/interop/vfio-user.rst`); the structures are those of `linux/vfio.h`. Both processes are on one machine, so numbers are in its own
//! byte order.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod client;
mod codec;
mod socket;

pub use client::{Answer, CallError, Calls, Client, End, Memory, Ticket};
pub use codec::{
    Access, Area, Assembler, Capabilities, Command, Device, DmaAsk, DmaMap, DmaUnmap, Flags, Header, Interrupts, IrqAction, IrqData,
    Malformed, Message, Region, RegionInfo, Reply, Request, SetIrqs, Version, region_data,
};
pub use socket::{Received, Socket, SocketError};

/// Indices of a PCI device's regions (`VFIO_PCI_*_REGION_INDEX`).
pub mod region {
    /// BAR 0; the others follow, up to [`BAR5`].
    pub const BAR0: u32 = 0;
    /// BAR 4.
    pub const BAR4: u32 = 4;
    /// BAR 5.
    pub const BAR5: u32 = 5;
    /// The configuration space.
    pub const CONFIG: u32 = 7;
    /// How many there are: the six BARs, the ROM, the configuration space, VGA.
    pub const COUNT: u32 = 9;
}

/// Indices of a PCI device's kinds of interrupts (`VFIO_PCI_*_IRQ_INDEX`).
pub mod irq {
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// An error that cannot be corrected.
    pub const ERROR: u32 = 3;
    /// How many there are: pin, MSI, MSI-X, error, request to let go.
    pub const COUNT: u32 = 5;
}
