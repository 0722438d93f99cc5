//! The NVM Express protocol, pure: what the bytes mean, for both sides of the rings.
//!
//! Sections are those of the *NVM Express Base Specification* 2.1 ("Base") and of the *NVM Command Set Specification*
//! 1.1 ("NVM"). Values that come from the other side are newtypes over integers, never Rust `enum`s: an unknown value
//! is data. Decoding never panics and never refuses; the code that decodes judges the values.
//!
//! - [`Sqe`], [`Cqe`] and [`Status`]: the entries of the rings; [`Producer`] and [`Consumer`]: the arithmetic of both
//!   sides; [`SqSlots`], [`CqSlots`], [`Doorbells`], [`Registers`]: the seams behind which the memory lies.
//! - [`regs`]: properties and doorbell offsets. [`opcode`]: opcodes and their names.
//! - [`io`] and [`admin`]: commands, built by the host and decoded by the controller; [`features`]: their values.
//! - [`identify`] and [`log`]: structures that travel in pages, each a [`Page`].
//! - [`prp`] and [`sgl`]: where a command's data are.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

pub mod admin;
mod entry;
pub mod features;
pub mod identify;
mod ids;
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
mod testing;

pub use entry::{Cqe, Sqe};
pub use ids::{Cid, Lba, Nsid, QueueId, Vector};
pub use log::ana::AnaState;
pub use page::{Page, Text, TooShort};
pub use ring::{Consumer, CqSlots, Doorbells, Producer, Registers, SqSlots};
pub use status::Status;

#[cfg(not(target_endian = "little"))]
compile_error!("NVMe structures are little-endian; Reap has not been ported to a big-endian host");
