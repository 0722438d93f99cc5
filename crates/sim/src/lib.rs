//! The simulator: runs Reap's decision code on virtual CPUs in virtual time.
//!
//! A run executes the crates `completion`, `driver`, `emu` and `workload` unchanged, on the
//! [`Machine`] and with the controllers of a [`Scenario`]. The machine's price list ([`Costs`])
//! says how long each operation takes. Runs are deterministic: the same scenario gives the same
//! [`Outcome`] to the nanosecond.
//!
//! Modelled: CPUs on NUMA nodes, each with hard interrupts, the softirq of irq_poll, and threads
//! under a fair scheduler; interrupt vectors with their affinity, posted or not; contended locks,
//! and cache lines that move between CPUs; idle states, timers, doorbells and messages with their
//! delays; two kinds of host ([`HostStack`]). Not modelled: migration of threads between CPUs,
//! other cache contents, CPU frequency, the CPU time of the thread that runs the controllers' admin
//! commands and recovery.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod ablation;
mod costs;
mod cpu;
mod dies;
mod error;
mod events;
pub mod file;
mod host;
mod hw_queue;
mod lines;
mod machine;
mod path;
mod placer;
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
pub use costs::{
    BlockCosts, Costs, EngineCosts, InterruptCosts, LibraryCosts, MemoryCosts, ThreadCosts,
    WakeUpCosts,
};
pub use dies::DieLayout;
pub use driver::multipath::MultipathCounters as FailoverCounters;
pub use error::{Moment, SimError};
pub use lines::Lines;
pub use machine::{Machine, Scheduler, Softirq};
pub use path::{InterruptPath, PathCounts};
pub use report::{
    Counts, CpuOutcome, DeviceOutcome, JobOutcome, Outcome, PathOutcome, Percentiles, Tick,
};
pub use scenario::{
    Affinity, DepthCounter, DeviceSpec, Engine, HostStack, JobSpec, Multipath, Phase, Scenario,
    closed_loop, open_loop,
};
