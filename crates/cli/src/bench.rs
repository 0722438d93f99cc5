//! Job threads on open devices: what `run` and `compare` have in common.
//!
//! `rig` opens the devices that a plan needs and makes a [`Worker`] for each of its threads; a worker carries out what
//! its `workload::Generator` says, and tells what that came to as [`Counted`].

mod counted;
mod fill;
mod lanes;
mod meant;
mod paths;
mod rig;
mod worker;
mod writes;

pub use counted::{Counted, charge};
pub use fill::Filled;
pub use meant::{Meant, Named, PLACEHOLDER, USUAL, check};
pub use paths::{PathMark, over_all};
pub use rig::{Hired, Rig, Setup};
pub use worker::{Control, Progress, Ran, Run, Worker, first_namespace};
pub use writes::Allowed;
