//! Job threads on open devices: what `run` and `compare` have in common.
//!
//! A [`Rig`] opens the devices that a plan needs and makes a [`Worker`] for each of its threads; a worker carries out what
//! its `workload::Generator` says, and reports what that came to as [`Counted`].

mod counted;
mod rig;
mod target;
mod worker;

pub use counted::{Counted, PathMark, charge, over_all};
pub use rig::{Filled, Rig, Setup};
pub use target::{Allowed, Filenames, PLACEHOLDER, TargetDevice, USUAL, check};
pub use worker::{Control, Progress, Ran, Run, Worker, first_namespace};
