//! Completion policies: when a completion queue (CQ) is polled, by which thread, and whether the
//! thread spins, naps or sleeps on an interrupt in between. The crate does no I/O: it has no clock,
//! no thread and no NVMe types, so that the engine of `reap` and the simulator run the same code.
//!
//! A [`Policy`] plans the next step of one software queue; a [`Round`] shares one thread among its
//! queues, as NAPI shares a softirq. The caller, called the executor below, carries the [`Plan`]
//! out and reports the result in [`Seen`]. **A policy cannot arm an interrupt**: it plans
//! [`Plan::Sleep`], and only the executor arms, fences, polls again and blocks. This order is what
//! prevents a lost wake-up.
//!
//! ```text
//!   policy                      executor                          controller
//!     | <- submitted(batch) ----- | -- SQ doorbell -----------------> |
//!     | <- next(now, seen) ------ |                                   |
//!     | -- Plan::Poll ----------> | take entries under the CQ lock <- | CQ entries
//!     | <- completed(done) ------ | -- CQ doorbell -----------------> |
//!     | <- next(now, seen) ------ |                                   |
//!     | -- Plan::Sleep ---------> | arm, fence, check the phase,      |
//!     |                           | block on the eventfd <----------- | MSI-X message
//!     | <- next(now, woke) ------ | mask                              |
//! ```
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod custom;
mod decisions;
mod group;
mod mode;
mod moderator;
mod placer;
mod policy;
mod seen;
mod sleep;
#[cfg(any(test, feature = "testing"))]
#[path = "../tests/testing/mod.rs"]
pub mod testing;
mod tuning;
mod waiter;

pub use custom::{CustomId, Facts, Policy, Records, RegisterError};
pub use decisions::{Action, Decisions, State, Why};
pub use group::{Round, Turn, combine};
pub use mode::{Mode, ModeError, Moderation, Preset, Spin};
pub use moderator::{Coalesce, Moderator, PACE, Rates};
pub use placer::{Placer, WINDOW};
pub use policy::ModePolicy;
pub use seen::{Batch, Cause, Done, KeepArmed, Plan, Route, Seen, Woke};
pub use sleep::{Habits, Lawful, Rule, SLEEP, SleepStep, Step, fall_asleep};
pub use tuning::{Cycle, DelayExponent, ExponentError, MAX_WEIGHT, PollLimits, WEIGHT};
pub use waiter::{Notification, Waiter};
