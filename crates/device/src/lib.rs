//! The controller side as a state machine stepped by time: the embedded NVMe device.
//!
//! [`Port`] is everything a controller can reach of its host. The embedded link implements it over shared memory and
//! eventfds, the simulator over plain memory and virtual interrupts; a fault injector wraps either.
#![forbid(unsafe_code)]

mod port;

pub use port::{BusError, Port};
