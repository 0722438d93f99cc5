//! A lane whose commands and completions travel as bytes, over a non-blocking socket.
//!
//! | question | file |
//! | --- | --- |
//! | what does the socket take, and give? | `wire.rs` |
//! | how do entries come out of bytes? | `entries.rs` |
//! | where are parts posted, and completions found? | `lane.rs` |
//! | which law can a test break? | `habits.rs` |
//!
//! The other end, so far, is the embedded controller's relay (`wire=stream`).

mod entries;
mod habits;
mod lane;
mod wire;

pub(super) use entries::Entries;
pub use habits::DebtHabits;
pub(crate) use lane::{StreamLane, StreamPosting};
pub(super) use wire::Socket;
