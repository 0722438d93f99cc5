//! Reap: a user-space NVMe stack whose CPU use follows the load.
//!
//! Open a [`Device`] by URI, take a [`Queue`] for each thread, and submit [`Request`]s, one at a time as futures or in
//! batches without async. How completions are found (by spinning, by interrupts, by something in between) is the
//! queue's [`Mode`], which may be changed at any time.
//!
//! ```
//! let device = reap::Device::open("mem:64M?profile=null")?;
//! let queue = device.queue()?;
//! let ns = device.namespaces()[0];
//! let mut buf = device.buffer(4096)?;
//! buf.fill(7);
//! let (result, buf) = queue.block_on(queue.write(&ns, 0, buf))?;
//! result?;
//! let (result, buf) = queue.block_on(queue.read(&ns, 0, buf))?;
//! result?;
//! assert_eq!(buf.len(), 4096);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod admin;
mod book;
mod control;
mod cycle;
mod device;
mod drain;
mod engine;
mod error;
mod executor;
mod front;
mod future;
mod group;
mod health;
mod housekeeping;
mod hw_queue;
mod link;
mod looker;
mod moderation;
mod multipath;
mod namespace;
mod posting;
mod prp_table;
mod queue;
mod reactor;
mod request;
mod uri;
mod wakeups;

pub use ::blkmq::paths;
pub use ::device::{Change, Fault, FaultPlan, Hidden, Injected, Loss, NoSuchPath, Profile, Script, ScriptError, Service};
pub use completion::{Mode, ModeError};
pub use device::{Description, DeviceCounters, HardwareCounters, OpenOptions};
pub use driver::multipath::{Counters as FailoverCounters, Failure as PathFailure, Link as PathLink, PathStatus};
pub use error::{IoError, OpenError, QueueError, Refused, WouldDeadlock};
pub use front::{Device, Queue};
pub use future::{FlushFuture, IoFuture, Pending};
pub use group::Group;
pub use health::Health;
pub use hw::{AllocError, DmaBuf, Memory, Pages, PinError, RangeError, RawMemory, Region, RegisterError, now};
pub use link::{ByHand, Faults, Measured, Stamp, Stamps};
pub use looker::Counters;
pub use multipath::{MultipathUri, PathReport, PathUri};
pub use namespace::Namespace;
pub use nvme::AnaState;
pub use queue::Turned;
pub use reactor::{Reactor, Submitted};
pub use request::{Completion, Request};
pub use units::Nanos;
pub use uri::{Backing, DeviceUri, UriError};
pub use wakeups::{Tally, Wakeups};
