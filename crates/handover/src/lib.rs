//! Who looks, who sleeps, who is told: the few hand-overs between threads, each half in the host and half in the
//! device or in another thread of the host.
//!
//! | unit | hand-over |
//! | --- | --- |
//! | [`Bell`] | one side goes to sleep, the other has something to tell |
//! | [`Gate`] | memory, from a device that may no longer reach it back to the host |
//! | [`Inbox`] | completions, from the thread that reaped them to the software queue they belong to |
//! | [`Line`] | tags, from the thread that returns them to the queue that has waited longest |
//! | [`loan`] | memory, lent and taken back, from a device that copies while it may |
//! | [`LookLock`] | the right to look at a completion queue |
//! | [`LookRole`] | the duty to look at it, among threads that sleep |
//! | [`shadow`] | a doorbell in memory, from a host that writes it to a controller that sleeps |
//! | [`sleep`] | the order in which a thread goes to sleep and comes back, over the units above |
//! | [`Vectors`] | a device's messages, to the thread that sleeps where they go |
//! | [`Posted`] | messages of many vectors, to the one notification that stands for them |
//! | [`orphan`] | what a thread left in flight, to the sweeper or to the thread that takes the queue |
//! | [`ModeCell`] | a mode, from the thread that asks for it to the one that runs it |
//!
//! Each is written over [`sync`], so that the same code runs and is model-checked by loom (`--cfg loom`; the command is
//! in `docs/testing.md`). Each model has broken twins, the same code less one step, that it must catch.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod bell;
mod gate;
mod inbox;
mod line;
pub mod loan;
mod look;
mod mode;
pub mod orphan;
mod posted;
mod role;
pub mod shadow;
pub mod sleep;
pub mod sync;
mod vectors;

#[cfg(loom)]
pub mod model;

pub use bell::Bell;
pub use gate::{Gate, Pass};
pub use inbox::Inbox;
pub use line::{Line, Progress, Waiting};
pub use look::{LookLock, Looked};
pub use mode::ModeCell;
pub use posted::{MOST_ROUNDS, Posted};
pub use role::{LookRole, SleeperId};
pub use sleep::LightSleeper;
pub use vectors::{Signal, Vectors};
