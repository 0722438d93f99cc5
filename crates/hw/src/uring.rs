//! io_uring: the kernel's submission and completion rings, safe to call.
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

mod entry;
mod features;
mod queues;
mod ring;
mod view;

pub(crate) use entry::nvme_uring_cmd;
pub use entry::{Command, Entry, File, FileSlot, Fixed, Kept, Span};
pub use features::{Features, Unavailable};
pub use queues::{Cq, Cqe, Refused, Sq};
pub use ring::{Ended, Enter, Entered, Hint, Options, Poll, Ring, RingError, SetupError};

#[cfg(test)]
mod tests;
