//! Multipath: several controllers of one subsystem as one device (`multipath:?path=URI&path=URI…`).
//!
//! | question | file |
//! | --- | --- |
//! | what does a multipath URI mean? | `uri.rs` |
//! | how are the paths opened and joined? | `open.rs` |
//! | what do the device's threads share? | `shared.rs` |
//! | what becomes of one request? | `requests.rs` (and `driver::multipath`, which decides) |
//! | what does one thread have? | `queue.rs` |
//!
//! Each path is a controller of its own, with queues of its own, below; requests, failover and the choice of a path are above
//! them. All paths reach the same buffer pool.

mod open;
mod queue;
mod requests;
mod shared;
mod uri;

pub(crate) use open::{of_this_process, open, the_subsystem};
pub(crate) use queue::MultipathQueue;
pub(crate) use shared::Multipath;
pub use shared::PathReport;
pub use uri::{MultipathUri, PathDevice, PathUri};
