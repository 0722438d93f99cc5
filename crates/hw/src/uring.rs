//! io_uring: the kernel's submission and completion rings, safe to call.
//!
//! | question | file |
//! | --- | --- |
//! | what has the running kernel? | `features.rs` |
//! | how is a ring made? | `setup.rs` |
//! | how is the kernel entered, and is there something to take? | `ring.rs`; without a system call: `view.rs` |
//! | how do requests get in, and completions out? | `sq.rs`, `cq.rs` |
//! | what can be asked for? | `entry.rs`; NVMe commands: `command.rs`; of which bytes: `span.rs` |
//! | which file is meant? | `file.rs` |
//! | which files and buffers does the kernel know already? | `register.rs` |
//!
//! **Memory.** A request names bytes of a [`Lent`](crate::Lent) buffer. Its memory stays mapped until it is taken back, and
//! a lent buffer that is dropped is leaked: nothing that the kernel may still write to is ever given to somebody else.
//! A caller of [`Lent::take_back`](crate::Lent::take_back) says that the device is done with the buffer. Here that is so
//! once the request's completion has been taken, or the entry was never pushed. This module cannot check it: a kernel
//! that copies asks nobody, as a device without an IOMMU does not. It is the same promise that the NVMe rings need.
//!
//! **Files.** An entry names a file by its place in the ring's table, or by a descriptor that the ring owns
//! ([`Ring::keep`]). So no entry means a number that was closed and is another file by now.
//!
//! **Threads.** [`Sq`] and [`Cq`] exist once for each ring and need `&mut`; [`Ring`] is shared. The kernel's memory is
//! unmapped when the last of them is gone.

mod command;
mod cq;
mod entry;
mod error;
mod features;
mod file;
mod register;
mod ring;
mod setup;
mod span;
mod sq;
mod view;

pub use command::{Command, NvmeCommand};
pub use cq::{Cq, Cqe};
pub use entry::{Entry, RwFlags};
pub use error::{EnterError, RegistrationError, SetupError, Unavailable};
pub use features::{Features, Operation};
pub use file::{File, FileSlot, Kept};
pub use ring::{Ended, Enter, Entered, Hint, Ring};
pub use setup::{Options, Poll};
pub use span::{Fixed, Span};
pub use sq::{Refused, Sq, Why};

#[cfg(test)]
mod tests;
