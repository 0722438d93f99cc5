//! NVMe/TCP protocol library for both ends of a connection: PDU codec and state machines, without
//! I/O, clock or threads.
//!
//! [`Pdu`] encodes and decodes headers. [`Receiver`] splits the byte stream into PDUs and returns
//! the memory for the next bytes, so that payload is received straight into its buffer.
//! [`SendList`] queues headers and payload for a vectored send, without copying large payload.
//! [`Target`] is the controller's end of one queue pair, [`Initiator`] the host's; a protocol
//! violation by the peer ends the connection with a TermReq.
//!
//! ```text
//!                 bytes       PDUs                 events, e.g. Command, Completed
//!   socket ──► Receiver ──────────► Target  ──────────────────────► owner
//!          ◄── SendList ◄────────── Initiator ◄──────────────────── (complete, submit)
//! ```
//!
//! Section numbers refer to the *NVM Express TCP Transport Specification* 1.1 ("TCP"). Every
//! length, offset and identifier that the peer sends is checked before use.
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

/// CRC32C (Castagnoli), the algorithm of header and data digests.
pub fn digest(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
