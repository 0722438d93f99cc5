//! Multipath: several controllers of one subsystem as one device (`multipath:?path=URI&path=URI…`).
//!
//! ```text
//!   requests of one thread
//!          │
//!   MultipathQueue ── MultipathRequests: the path of each request, failover, choice of paths
//!      │        │
//!   PathQueue PathQueue     a software queue on each path's controller
//!      │        │
//!   controller controller   one namespace, one buffer pool
//! ```
//!
//! | question | file |
//! | --- | --- |
//! | what does a multipath URI mean? | `uri.rs` |
//! | how are the paths opened and checked to be one namespace? | `open.rs` |
//! | what do the threads of a device share? | `shared.rs` |
//! | what happens to a request? | `requests.rs` (`driver::multipath` decides) |
//! | what does each thread have? | `queue.rs` |
//!
//! Each path's controller has queues, a task and recovery of its own. Requests, failover and the
//! choice of a path are above them. All paths access the same buffer pool, so a request needs no
//! copy to change its path.

mod open;
mod queue;
mod requests;
mod shared;
mod uri;

pub(crate) use open::{embedded_uri, open, shared_subsystem};
pub(crate) use queue::MultipathQueue;
pub(crate) use shared::Multipath;
pub use shared::PathReport;
pub use uri::{MultipathUri, PathDevice, PathUri};
