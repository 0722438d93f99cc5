//! The controller side as a state machine stepped by time: the embedded NVMe device.
//!
//! [`Port`] is everything a controller can reach of its host. The embedded link implements it over shared memory and
//! eventfds, the simulator over plain memory and virtual interrupts; a fault injector wraps either.
#![forbid(unsafe_code)]

mod config;
mod controller;
mod media;
mod port;
mod profile;

pub use config::{Config, Namespace, NamespaceError};
pub use controller::{Controller, Step};
pub use media::{Access, Budget, FlushLatch, Media, MediaError, Mem, WriteCache};
pub use port::{BusError, Port};
pub use profile::{Hidden, Profile, Service, UnknownProfile};
