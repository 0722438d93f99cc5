//! Reap: a user-space NVMe stack whose CPU use follows the load.
//!
//! Open a [`Device`] by URI, take a [`Queue`] for each thread, and submit [`Request`]s: one at a
//! time as futures, or in batches without async. The queue's [`Mode`] says how completions are
//! found (by polling, by interrupts, or by a mixture), and may be changed at any time.
//!
//! | what waits for completions | how it waits |
//! | --- | --- |
//! | this thread, for a future | [`Queue::block_on`] with [`Queue::read`], [`Queue::write`] |
//! | this thread, for batches | [`Queue::submit`], [`Queue::wait`], [`Queue::reap`] |
//! | tasks of tokio or another executor, on any thread | a [`Reactor`] with [`Reactor::read`], [`Reactor::write`] |
//! | an event loop of the application's own | [`Queue::poll_events`], and the queue's file descriptor |
//! | one thread, for several queues | a [`Group`] |
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
//!
//! # Threads
//!
//! A queue is used by one thread at a time. Each thread takes a queue of its own from the device,
//! which has as many as [`OpenOptions::software_queues`] says:
//!
//! ```
//! let device = reap::Device::open("mem:64M?profile=null")?;
//! std::thread::scope(|scope| {
//!     for n in 0..4 {
//!         let device = &device;
//!         scope.spawn(move || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!             let (queue, ns) = (device.queue()?, device.namespaces()[0]);
//!             let (result, _) = queue.block_on(queue.read(&ns, n * 8, device.buffer(4096)?))?;
//!             Ok(result?)
//!         });
//!     }
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tokio
//!
//! A [`Reactor`] drives a queue on a thread of its own. A reactor is `Clone`, and reactors and
//! their futures are `Send`, so they work in `#[tokio::main]` and `tokio::spawn`. The documentation
//! of [`Reactor`] has an example.
//!
//! # Instants and spans
//!
//! Methods take spans of time as [`std::time::Duration`]. An [`Instant`] is a reading of the clock.
//! [`Nanos`] is a span that was measured, or that an embedded controller's profile has.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

// In layers from the bottom up: a module uses those above it in this list, and none below it.

// Types without I/O.
mod admin;
mod counters;
mod error;
mod health;
mod instant;
mod mode;
mod namespace;
mod options;
mod request;
mod uri;
mod wake;
mod wakeups;
// Transports to controllers.
mod transport;
// State that threads share, and the loop of one thread.
mod shared;
mod thread;
// Bring-up, recovery and coalescing of a controller.
mod controller_task;
// Several controllers as one device.
mod multipath;
// The public API.
mod device;
mod group;
mod queue;
mod reactor;
// An embedded controller for another process.
pub mod serve;

/// For custom policies: [`policy::Policy`] is the trait, [`Mode::register`] gives one a name.
pub use ::completion as policy;
pub use ::driver::paths;
#[cfg(feature = "testing")]
pub use ::emu::{Change, Fault, FaultPlan, Hidden, Injected, Loss, NoSuchPath};
pub use ::emu::{Profile, Script};
pub use completion::Mode;
pub use counters::{Counters, DeviceCounters, HardwareCounters};
pub use device::{Device, Embedded, Uri};
pub use driver::multipath::{
    FailoverConfig, Failure as PathFailure, Link as PathLink,
    MultipathCounters as FailoverCounters, PathStatus,
};
pub use driver::{BringupError, Dead, MapError, ProtocolViolation, ResetCause};
pub use error::{
    AdminError, IoError, OpenError, OptionsError, QueueError, Refused, TargetFault, TcpError,
    VfioUserError, WouldDeadlock,
};
pub use group::Group;
pub use health::{Health, PermanentFailure};
pub use hw::pci::Bdf;
pub use hw::vfio::VfioError;
pub use hw::{
    AllocError, DmaBuf, Memory, Pages, PinError, RangeError, RawMemory, Region, RegisterError,
};
pub use instant::Instant;
pub use mode::{ModeNote, UnsupportedMode};
pub use multipath::{MultipathUri, PathDevice, PathReport, PathUri};
pub use namespace::Namespace;
pub use nvme::Sqe;
pub use nvme::admin::{AsyncEvent, GetLogPage, Identify};
pub use nvme::{AnaState, Nsid, Status};
pub use options::OpenOptions;
pub use queue::{LocalQueue, Queue};
pub use reactor::Reactor;
pub use request::{Completion, Request};
pub use shared::controller::Description;
pub use shared::events::{Event, EventKind, Events};
pub use shared::future::{IoFuture, Pending};
pub use thread::queue_pair::PollStatus;
pub use thread::sleep_cost::set_wake_up_cost;
pub use transport::kernel::{Buffered, KernelUri};
pub use transport::pci::PcieUri;
pub use transport::tcp::{DiscoveryLog, TcpUri, discover};
pub use transport::vfio_user::VfioUserUri;
pub use transport::{EmbeddedOptions, Measured};
#[cfg(feature = "testing")]
pub use transport::{Faults, ManualStepper};
pub use units::{Class, Nanos, Op};
pub use uri::{Backing, DeviceUri, UriError};
pub use wakeups::{WakeupHistogram, Wakeups};
