//! NVMe/TCP, pure: no I/O, no clock, no thread.
//!
//! [`Pdu`] is the codec, both ways. A [`Receiver`] cuts PDUs out of a stream and says where the
//! next bytes belong, so that payload goes from the socket to where it stays. A [`SendList`] has
//! what is to be sent, payload again where it is. [`Target`] is one connection of a controller: it
//! greets, asks for data, answers, and ends the connection over anything that the specification
//! forbids. [`Initiator`] is the host's end of one.
//!
//! Sections are those of the *NVM Express TCP Transport Specification* 1.1 ("TCP"). Nothing of what
//! a peer sends is believed.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod initiator;
mod pdu;
mod receive;
mod send;
mod target;
#[cfg(test)]
mod tests;

pub use initiator::{Initiator, InitiatorConfig, InitiatorEvent};
pub use pdu::{
    Body, Common, Data, Digests, Fes, Greeting, Pdu, R2t, Side, Term, Violation, flags, kind,
};
pub use receive::{Heap, Item, PayloadMemory, Receiver};
pub use send::SendList;
pub use target::{Event, Limits, Tamper, Target};

/// CRC32C, as digests are computed (TCP 3.3.1.1).
pub fn digest(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
