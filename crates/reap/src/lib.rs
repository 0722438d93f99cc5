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

// The floors of the house, from the ground up: a module knows of those before it, and of none after it.

// What is spoken of.
mod counters;
mod error;
mod health;
mod home;
mod namespace;
mod options;
mod request;
mod uri;
mod wake;
mod wakeups;
// How a controller is reached.
mod link;
// What threads share, and what one thread does.
mod shared;
mod thread;
// Who looks after a controller.
mod keeper;
// Several controllers as one device.
mod multipath;
// What callers hold.
mod device;
mod group;
mod queue;
mod reactor;

pub use ::blkmq::paths;
pub use ::device::{Change, Fault, FaultPlan, Hidden, Injected, Loss, NoSuchPath, PendingBit, Profile, Script, ScriptError, Service};
pub use completion::{Mode, ModeError};
pub use counters::{Counters, DeviceCounters, HardwareCounters};
pub use device::{Device, Embedded};
pub use driver::multipath::{Counters as FailoverCounters, Failure as PathFailure, Link as PathLink, PathStatus};
pub use error::{IdentifyError, IoError, OpenError, QueueError, Refused, TargetError, TargetFault, WouldDeadlock};
pub use group::Group;
pub use health::Health;
pub use hw::{AllocError, DmaBuf, Memory, Pages, PinError, RangeError, RawMemory, Region, RegisterError, now};
pub use link::kernel::{Buffered, KernelUri};
pub use link::pcie::PcieUri;
pub use link::{ByHand, DebtHabits, EmbeddedOptions, Faults, HeldWire, Measured, Stamp, Stamps, WireCounters};
pub use multipath::{MultipathUri, PathReport, PathUri};
pub use namespace::Namespace;
pub use nvme::AnaState;
pub use options::OpenOptions;
pub use queue::{LocalQueue, Queue};
pub use reactor::{Reactor, Submitted};
pub use request::{Completion, Request};
pub use shared::controller::Description;
pub use shared::future::{FlushFuture, IoFuture, Pending};
pub use thread::soft_queue::Turned;
pub use units::{Nanos, Op};
pub use uri::{Backing, DeviceUri, UriError, Wire};
pub use wakeups::{Tally, Wakeups};
