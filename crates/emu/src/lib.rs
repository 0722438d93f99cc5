//! The controller side of NVMe as a state machine that is stepped with the time: the emulated
//! device.
//!
//! [`Port`] is the interface to the host: memory, doorbells, registers, interrupts. It is
//! implemented over shared memory and eventfds (the embedded transport), over plain memory and
//! virtual interrupts (the simulator), and over the memory of another process or the data of a
//! fabric (feature `serve`). A [`Subsystem`] creates several controllers that share namespaces, and
//! changes them while they run.
//!
//! ```text
//!             doorbells, registers          due commands
//!   host ──► Port ──► Controller::step(now) ◄──► Schedule (Profile)
//!        ◄──      ◄──        │
//!    entries, messages       └──► Store: namespaces on Media
//! ```
//!
//! Supported are the features, log pages, Identify structures, admin commands and properties that
//! revision 2.1 makes mandatory for an I/O controller (Base 3.1.3.4 to 3.1.4, 5.1.13.1, NVM 2.2 and
//! 4.1.5).
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
pub use config::{Config, Fabric, Identifiers, NamespaceConfig, NamespaceError};
pub use controller::{Controller, Counters, Step};
pub use faults::{Fault, FaultInjector, FaultPlan, Injected};
pub use media::{Budget, Media, MediaError, MediaFault, MediaOperation, Mem, write_zeroes};
pub use nvme::BusError;
pub use port::{Port, SendResult, ShadowBuffers};
pub use profile::{Hidden, Profile, Service, UnknownProfile};
pub use subsystem::{
    Ana, Change, ControlCommand, Loss, NoSuchPath, PathControl, Script, ScriptError, Subsystem,
    SubsystemError, Timed, Wire,
};
