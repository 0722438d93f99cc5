//! The NVM Express protocol, pure: what the bytes mean, for both sides of the rings.
//!
//! Sections are those of the *NVM Express Base Specification* 2.1 ("Base") and of the *NVM Command
//! Set Specification* 1.1 ("NVM"). Values that come from the other side are newtypes over integers,
//! never Rust `enum`s: an unknown value is data. Decoding never panics and never refuses; the code
//! that decodes judges the values.
//!
//! - [`Sqe`], [`Cqe`] and [`Status`]: the entries of the rings; [`RingIndex`]: the arithmetic of
//!   both sides;
//!   [`SqSlots`], [`CqSlots`], [`Doorbells`], [`Registers`]: the traits behind which the memory lies.
//! - [`regs`]: properties and doorbell offsets. [`opcode`]: opcodes and their names.
//! - [`io`] and [`admin`]: commands, built by the host and decoded by the controller; [`features`]:
//!   their values.
//! - [`identify`] and [`log`]: structures that travel in pages, each a [`Page`].
//! - [`prp`] and [`sgl`]: where a command's data are. [`fabrics`]: commands and logs of NVMe over
//!   Fabrics.
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

// Identifiers, each a type of its own so that one cannot be passed for another.
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
    /// Command identifier, unique among the commands outstanding on one submission queue (Base 4.1,
    /// CDW0.CID). FFFFh is never used: it is the "no particular command" of the Error Information
    /// log (Base 5.1.12.1.2).
    Cid(u16)
}
id! {
    /// Submission or completion queue identifier; 0 is the admin queue (Base 3.3).
    QueueId(u16)
}
id! {
    /// Namespace identifier; 0 names none, FFFFFFFFh all (Base 3.2.1).
    Nsid(u32)
}
id! {
    /// Logical block address within a namespace (NVM 2.1).
    Lba(u64)
}
id! {
    /// Interrupt vector of a completion queue (Base 5.2.1, CDW11.IV).
    Vector(u16)
}

impl QueueId {
    /// The admin queue pair.
    pub const ADMIN: QueueId = QueueId(0);
}

impl Nsid {
    /// Every namespace (Base 3.2.1.2).
    pub const ALL: Nsid = Nsid(u32::MAX);
}
