//! The controller side as a state machine stepped by time: the embedded NVMe device.
//!
//! [`Port`] is everything a controller can reach of its host. The embedded link implements it over shared memory and
//! eventfds, the simulator over plain memory and virtual interrupts; a fault injector wraps either. A [`Subsystem`] makes
//! several controllers that share namespaces, and lets things happen to each of them while they run.
#![forbid(unsafe_code)]

mod admin;
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
mod subsystem;
#[cfg(test)]
mod testing;

pub use config::{Config, Identifiers, Namespace, NamespaceError};
pub use controller::{Controller, Counters, Step};
pub use faults::{Fault, FaultPlan, FaultyCq, FaultyPort, FaultySq, Injected};
pub use media::{Access, Budget, FlushLatch, Media, MediaError, Mem, WriteCache};
pub use port::{Begun, BusError, KnownTime, Port};
pub use profile::{Hidden, Profile, ProfileFile, Service, UnknownProfile};
pub use subsystem::{Ana, Change, Loss, NoSuchPath, PathControl, Script, ScriptError, Subsystem, SubsystemError, Timed};
