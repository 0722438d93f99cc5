//! Who looks, who sleeps, who is told: the few hand-overs between threads, each half in the host and half in the
//! device or in another thread of the host.
//!
//! | unit | hand-over |
//! | --- | --- |
//! | [`Bell`] | one side goes to sleep, the other has something to tell |
//! | [`Debt`] | what a lane has not sent yet, from whoever stops to whoever sleeps on it |
//! | [`Gate`] | memory, from a device that may no longer reach it back to the host |
//! | [`Inbox`] | completions, from whoever reaped them to the software queue they belong to |
//! | [`loan`] | memory, lent and taken back, from a device that copies while it may |
//! | [`LookLock`] | the right to look at a completion queue |
//! | [`LookRole`] | the duty to look at it, among threads that sleep |
//! | [`Posted`] | messages of many vectors, to the one notification that stands for them |
//! | [`ModeCell`] | a mode, from whoever asks for it to the thread that runs it |
//!
//! Each is written over [`sync`], so that the same code runs and is model-checked by loom (`--cfg loom`; the command is
//! in `docs/testing.md`). Each model has broken twins, the same code less one step, that it must catch.
#![forbid(unsafe_code)]

mod bell;
mod debt;
mod gate;
mod inbox;
pub mod loan;
mod look;
mod mode;
mod posted;
mod role;
pub mod sync;

#[cfg(all(test, loom))]
mod model;

pub use bell::Bell;
pub use debt::{Debt, Leave};
pub use gate::{Gate, Pass};
pub use inbox::Inbox;
pub use look::{LookLock, Looked};
pub use mode::ModeCell;
pub use posted::{MOST_ROUNDS, Posted};
pub use role::{LookRole, SleeperId};
