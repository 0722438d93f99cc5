//! The second executor: virtual CPUs, interrupts and time.
//!
//! A run executes the very code that the engine of `reap` does (`completion`, `driver`, `device`, `workload`),
//! in virtual time, on a [`Machine`] with a price list ([`Costs`]) and against its devices. It is deterministic: the same
//! [`Scenario`] gives the same [`Outcome`], instant by instant.
//!
//! What is modelled: CPUs on NUMA nodes, each with hard interrupts, the poller's softirq and threads under a fair
//! scheduler; vectors with their affinity, one by one or posted; locks and cache lines that CPUs take from each other;
//! idle states, timers, doorbells and messages that take their time; two kinds of host ([`Host`]). What is not: threads
//! that move between CPUs, caches beyond those lines, frequency, the housekeeping thread's CPU.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod costs;
mod cpu;
mod error;
mod events;
pub mod file;
mod habits;
mod host;
mod hw_queue;
mod limits;
mod lines;
mod machine;
mod path;
mod port;
mod posted;
mod report;
mod requests;
mod scenario;
mod sched;
mod softirq;
mod values;
mod world;

pub use completion::Spin;
pub use costs::{BlockCosts, Costs, EngineCosts, InterruptCosts, LibraryCosts, MemoryCosts, ThreadCosts, WakeUpCosts};
pub use driver::multipath::Counters as FailoverCounters;
pub use error::{Moment, SimError};
pub use limits::Inside;
pub use lines::Lines;
pub use machine::{Machine, Scheduler, Softirq};
pub use path::{InterruptPath, PathCounts};
pub use report::{Counts, CpuOutcome, DeviceOutcome, JobOutcome, Outcome, PathOutcome, Percentiles, Tick};
pub use scenario::{Affinity, DepthCounter, DeviceSpec, Engine, Host, JobSpec, Multipath, Phase, Scenario, closed_loop, open_loop};
