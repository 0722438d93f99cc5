//! vfio-user: how a process serves a PCI device to another one, over a Unix socket.
//!
//! | question | file |
//! | --- | --- |
//! | where does a message begin and end, and which descriptors are its own? | `assembler.rs` |
//! | what stands in a header? | `header.rs` |
//! | what does a request say? | `request.rs`, `irqs.rs`, `version.rs` |
//! | how is it answered? | `reply.rs` |
//! | how does a client read an answer, and whose is it? | `answers.rs`, `calls.rs` |
//! | what may a server ask of its client? | `dma.rs` |
//! | how do bytes and descriptors travel? | `socket.rs` |
//! | how do the threads of a client share a connection? | `client.rs` (`client/`: shared, out, ear) |
//!
//! All but the last two are without I/O. Nothing of what a peer sends is believed: a size, a count or a number of descriptors that cannot be is a
//! [`Malformed`], and the stream stays in step after any message whose size is possible.
//!
//! The source is "vfio-user Protocol Specification", version 0.9.2 of the document (`docs/vfio-user.rst` of libvfio-user, and QEMU's
//! `docs/interop/vfio-user.rst`); the structures are those of `linux/vfio.h`. Both processes are on one machine, so numbers are in its own
//! byte order.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod answers;
mod assembler;
mod bytes;
mod calls;
mod client;
mod dma;
mod header;
mod irqs;
mod reply;
mod request;
mod socket;
mod version;

pub use answers::{Area, Device, Interrupts, Region, region_data};
pub use assembler::{Assembler, Message};
pub use bytes::Malformed;
pub use calls::Calls;
pub use client::{Answer, CallError, Client, ClientMemory, End, Ticket};
pub use dma::DmaAsk;
pub use header::{Command, Flags, Header};
pub use irqs::{IrqAction, IrqData, SetIrqs};
pub use reply::{RegionInfo, Reply};
pub use request::{Access, DmaMap, DmaUnmap, Request};
pub use socket::{Received, Socket, SocketError};
pub use version::{Capabilities, Version};

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
    /// The interrupt pin.
    pub const INTX: u32 = 0;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// An error that cannot be corrected.
    pub const ERROR: u32 = 3;
    /// How many there are: pin, MSI, MSI-X, error, request to let go.
    pub const COUNT: u32 = 5;
}
