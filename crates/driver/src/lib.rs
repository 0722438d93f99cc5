//! The host side of NVMe: queue pairs, tags and their command table, splitting, bring-up,
//! time-outs, abort, reset, path selection and failover.
//!
//! Everything is a state machine or a data structure without clock, thread or I/O. The caller (the
//! *executor*) supplies the time, the controller properties and the ring memory. It steps each
//! machine and carries out the actions that the machine returns. So tests and the simulator run the
//! same code in virtual time.
#![warn(missing_docs, unnameable_types, missing_debug_implementations)]
#![cfg_attr(not(test), warn(unreachable_pub))]
#![forbid(unsafe_code)]

mod admin;
mod bringup;
mod command_table;
mod error;
mod events;
mod limits;
pub mod multipath;
pub mod paths;
mod properties;
mod queue_map;
mod queue_pair;
mod recovery;
mod shadow;
mod shutdown;
mod split;
mod stop;
mod tags;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod testing;

pub use admin::{AdminCommand, AdminReply, Purpose};
pub use bringup::{
    Bringup, BringupAction, BringupCause, BringupConfig, BringupError, BringupPhase, Inventory,
    Model, QueueLayout, Subsystem, WantedQueues,
};
pub use command_table::{CommandState, Expired, OutstandingCommand};
pub use error::{NoTag, ProtocolViolation, QueueSizeError};
pub use events::{AnaLogReader, EventRequests, Reading};

pub use limits::{DeallocateLimits, Limits, Namespace, UnsupportedNamespace, Unusable};
pub use properties::{
    Access, AccessPoll, Answer, Properties, Property, PropertyError, RegisterValues, Ticket,
};
pub use queue_map::{MapError, QueueMap};
pub use queue_pair::{
    Completed, Exclusive, QueuePair, QueuePairCounters, QueueSizes, Reaped, SqGuard,
};
pub use recovery::{
    Buffers, Dead, Recovery, RecoveryAction, RecoveryConfig, ResetCause, RetryDecision,
    RetryPolicy, TimeoutScan, clamp_posted_at,
};
pub use shadow::Shadow;
pub use shutdown::{Shutdown, ShutdownAction, ShutdownError};
pub use split::{Part, Parts, Split, SplitError, Splitter};
