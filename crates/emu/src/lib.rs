//! The controller side as a state machine stepped by time: the embedded NVMe device.
//!
//! [`Port`] is everything a controller can reach of its host. The embedded link implements it over
//! shared memory and eventfds, the simulator over plain memory and virtual interrupts, `serve` (a
//! feature) over the memory of another process. A [`Subsystem`] makes several controllers that
//! share namespaces, and lets things happen to each of them while they run.
//!
//! It has the features, log pages, Identify structures, admin commands and properties that revision
//! 2.1 makes mandatory for an I/O controller (Base 3.1.3.4 to 3.1.4, 5.1.13.1, NVM 2.2 and 4.1.5).
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod admin;
mod behaviour;
mod config;
mod controller;
mod faults;
mod features;
mod identify;
mod interrupts;
mod io;
mod logs;
mod media;
mod port;
mod profile;
mod queues;
mod schedule;
#[cfg(feature = "serve")]
pub mod serve;
mod subsystem;
#[cfg(test)]
#[path = "tests/host.rs"]
mod testing;

pub use behaviour::{AbortOrder, Fetch, PendingBit};
pub use config::{Config, Fabric, Identifiers, Namespace, NamespaceError};
pub use controller::{Controller, Counters, Step};
pub use faults::{Fault, FaultInjector, FaultPlan, Injected};
pub use media::{Access, Budget, Media, MediaError, MediaFault, Mem, write_zeroes};
pub use nvme::BusError;
pub use port::{Message, Port, ShadowBuffers};
pub use profile::{Hidden, Profile, Service, UnknownProfile};
pub use subsystem::{
    Ana, Change, Loss, NoSuchPath, Order, PathControl, Script, ScriptError, Subsystem,
    SubsystemError, Timed, Wire,
};
