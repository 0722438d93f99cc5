//! The second executor: virtual CPUs, interrupts and time.
//!
//! A run executes the very code that the engine of `reap` does (`completion`, `blkmq`, `driver`, `device`, `workload`),
//! in virtual time, on one CPU with a price list ([`Costs`]) and against one controller. It is deterministic: the same
//! [`Scenario`] gives the same [`Outcome`], instant by instant.
//!
//! What is modelled: hard interrupts that take the CPU from the thread and merge while one waits; a thread that submits,
//! looks, spins, naps, arms, blocks and is woken, each at its price; doorbells and messages that take their time. What
//! is not: other threads, softirqs, caches, the housekeeping thread's CPU.
#![forbid(unsafe_code)]

mod costs;
mod cpu;
mod error;
mod events;
pub mod file;
mod lane;
mod machine;
mod notifier;
mod port;
mod replay;
mod report;
mod requests;
mod scenario;
pub mod sweep;
mod thread;
mod world;

pub use costs::{BlockCosts, Costs, EngineCosts, InterruptCosts, LibraryCosts, MemoryCosts, ThreadCosts};
pub use error::SimError;
pub use machine::{Machine, Scheduler, Softirq};
pub use replay::Recorded;
pub use report::{CpuOutcome, DeviceOutcome, JobOutcome, Outcome, Percentiles};
pub use scenario::{Affinity, DeviceSpec, Engine, Host, JobSpec, Phase, Scenario, closed_loop, open_loop};
