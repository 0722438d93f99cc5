//! Multipath: several controllers of one subsystem as one device (`multipath:?path=URI&path=URI…`).
//!
//! | question | file |
//! | --- | --- |
//! | what does a multipath URI mean? | `uri.rs` |
//! | how are the paths opened and joined? | `open.rs` |
//! | what do the device's threads share? | `joined.rs` |
//! | what becomes of one request? | `head.rs` (and `driver::multipath`, which decides) |
//! | what does one thread have? | `fan.rs` |
//!
//! Each path is a controller of its own, with queues of its own, below; requests, failover and the choice of a path are above
//! them. All paths reach the same buffer pool.

mod fan;
mod head;
mod joined;
mod open;
mod uri;

pub(crate) use fan::Fan;
pub(crate) use joined::Multipath;
pub use joined::PathReport;
pub(crate) use open::{of_this_process, open, the_subsystem};
pub use uri::{MultipathUri, PathDevice, PathUri};
