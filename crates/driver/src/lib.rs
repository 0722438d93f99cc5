//! The host side of NVMe as state machines: queue pairs and their command table, bring-up, time-outs, abort, reset,
//! recovery. No clock, no thread, no I/O: time, registers and ring memory come from the caller.
#![forbid(unsafe_code)]

mod error;
mod ledger;
mod queue_pair;
#[cfg(test)]
mod testing;

pub use error::{NoTag, ProtocolViolation, QueueSizeError};
pub use ledger::{Command, Expired, Finisher, Ledger, Stage};
pub use queue_pair::{Abandoned, Completed, Counters, QueuePair, QueueSizes, Reaped, SqGuard};
