//! Data structures of the NVM Express protocol, for host and controller, without I/O.
//!
//! Comments cite sections (§): "Base §4.1" is section 4.1 of the *NVM Express Base Specification*
//! 2.1, "NVM §3.3.4" section 3.3.4 of the *NVM Command Set Specification* 1.1. Values that the
//! other side (the host's or the controller's) may have written are newtypes over integers instead
//! of Rust `enum`s, as any value may occur. Decoding neither panics nor fails; the caller validates
//! the values.
//!
//! ```text
//!   host                                                    controller
//!    ├─ Sqe ─► SQ slots (SqSlots) ─ tail doorbell ────────► fetch, execute
//!    ◄─ CQ slots (CqSlots), phase tag ◄─────────── Cqe ────┤
//!    └─ head doorbell ────────────────────────────────────► CQ slots are free again
//! ```
//!
//! - [`Sqe`], [`Cqe`] and [`Status`]: queue entries; [`RingIndex`]: queue indices; [`SqSlots`],
//!   [`CqSlots`], [`Doorbells`], [`Registers`]: traits for their memory.
//! - [`regs`]: properties and doorbell offsets. [`opcode`]: opcodes and their names.
//! - [`io`] and [`admin`]: commands, encoded by the host and decoded by the controller.
//!   [`features`]: the values of Set Features and Get Features.
//! - [`identify`] and [`log`]: structures that are transferred in pages, each a [`Page`].
//! - [`prp`] and [`sgl`]: data pointers. [`fabrics`]: commands and logs of NVMe over Fabrics.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

use std::fmt;

pub mod admin;
mod entry;
pub mod fabrics;
pub mod features;
pub mod identify;
pub mod io;
pub mod log;
pub mod opcode;
mod page;
pub mod prp;
pub mod regs;
mod ring;
pub mod sgl;
mod status;
#[cfg(test)]
mod tests;

pub use entry::{Cqe, Sqe};
pub use log::ana::AnaState;
pub use page::{Page, Text, TooShort};
pub use ring::{BusError, CqSlots, Doorbells, Registers, RingIndex, SqSlots};
pub use status::Status;

#[cfg(not(target_endian = "little"))]
compile_error!("NVMe structures are little-endian; Reap has not been ported to a big-endian host");

// Identifiers. Each is a separate type, so that they cannot be confused.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id! {
    /// Command identifier, unique among the outstanding commands of a submission queue (Base §4.1,
    /// CDW0.CID). FFFFh is never used, as it means "no particular command" in the Error Information
    /// log (Base §5.1.12.1.2).
    Cid(u16)
}
id! {
    /// Submission or completion queue identifier; 0 is the admin queue (Base §3.3).
    QueueId(u16)
}
id! {
    /// Namespace identifier; 0 is unused, FFFFFFFFh is the broadcast value (Base §3.2.1).
    Nsid(u32)
}
id! {
    /// Logical block address within a namespace (NVM §2.1).
    Lba(u64)
}
id! {
    /// Interrupt vector of a completion queue (Base §5.2.1, CDW11.IV).
    Vector(u16)
}

impl QueueId {
    /// The admin queue pair.
    pub const ADMIN: QueueId = QueueId(0);
}

impl Nsid {
    /// The broadcast value: all namespaces (Base §3.2.1.2).
    pub const ALL: Nsid = Nsid(u32::MAX);
}
