//! Job threads on open devices, for `run` and `compare`. A [`Rig`] opens the devices of a plan and
//! creates a [`Worker`] for each of its threads. A worker does the I/O of its
//! `workload::Generator`, and returns costs as [`Counted`].

mod counted;
mod rig;
mod target;
mod worker;

pub use counted::{Counted, PathMark, charge_kernel_workers, merge_spans};
pub use rig::{Filled, Rig, Setup};
pub use target::{Allowed, DEFAULT_DEVICE, Filenames, PLACEHOLDER, TargetDevice, check};
pub use worker::{JobProgress, Ran, Run, ThreadControl, Worker, first_namespace};
