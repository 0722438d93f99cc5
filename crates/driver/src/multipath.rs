//! Multipath: several controllers of one subsystem as ways to one namespace.
//!
//! [`join`] judges whether controllers lead to the same namespace. [`Failover`] then decides, as a state machine without
//! I/O, what becomes of each request: which paths it may be sent on, whether it is sent again when one fails, when that is
//! safe, and when to give it up. Who chooses among the paths that it allows is a selector's business ([`crate::paths`]).
//!
//! Each software queue has a [`Failover`] of its own, and is told of every path event; what concerns all of them, which
//! paths have unflushed writes, lies in [`WriteMarks`].

mod actions;
mod failover;
mod flush;
mod identity;
mod path;
mod requests;

pub use crate::paths::{PathId, PathSet, TooManyPaths};
pub use actions::{Action, Counters, Ended, FailoverConfig, Failure, Submitted, Verdict, verdict};
pub use failover::Failover;
pub use flush::WriteMarks;
pub use identity::{Field, JoinError, PathIdentity, join};
pub use path::{Heard, Link, PathStatus, PathTraits, Standing};
pub use requests::RequestId;

#[cfg(all(test, loom))]
#[path = "../tests/unit/multipath_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
