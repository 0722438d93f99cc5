//! Multipath: one namespace reached through several controllers of its subsystem.
//!
//! [`join`] checks whether controllers lead to the same namespace. [`Failover`], a state machine
//! without I/O, decides about each request: the paths it may be sent on, whether it is sent again
//! after a failure, when that is safe, and when to give it up. A selector ([`crate::paths`])
//! chooses one of the paths that [`Failover`] allows.
//!
//! Each software queue has its own [`Failover`] and receives every path event. Only [`WriteMarks`]
//! is shared: the paths with unflushed writes.

mod actions;
mod failover;
mod flush;
mod identity;
mod path;
mod requests;

pub use crate::paths::{PathId, PathSet, TooManyPaths};
pub use actions::{
    Action, CompletionOutcome, Disposition, FailoverConfig, Failure, MultipathCounters, Submitted,
    disposition,
};
pub use failover::Failover;
pub use flush::WriteMarks;
pub use identity::{Field, JoinError, PathIdentity, join};
pub use path::{Link, PathSnapshot, PathStatus, PathTraits, PathUpdate};
pub use requests::RequestId;

#[cfg(all(test, loom))]
#[path = "../tests/unit/multipath_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
