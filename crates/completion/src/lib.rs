//! Completion policies: when a completion queue (CQ) is polled, by which thread, and whether the
//! thread spins, naps or sleeps on an interrupt in between. The crate does no I/O: it has no clock,
//! no thread and no NVMe types, so that the engine of `reap` and the simulator run the same code.
//!
//! A [`Policy`] plans the next step of one *software queue*: the requests of one thread, or of
//! several that share it. It has one NVMe queue pair with an interrupt and, if the device permits,
//! a second one without an interrupt: its *poll queue*. A [`Round`] shares one thread among its
//! software queues, as NAPI shares a softirq. The caller, called the executor below, carries the
//! [`Plan`] out and reports the result in [`Seen`]. **A policy cannot arm an interrupt**: it plans
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
//!
//! # What an executor does
//!
//! Where a software queue has a poll queue, the executor calls [`Policy::route`] before each batch
//! to choose between the two queue pairs. After the batch's SQ doorbell it calls
//! [`Policy::submitted`], and polls if [`Facts::submit_check`] is set. To wait, it calls
//! [`Policy::next`] in a loop, each time with the result of the previous step, and carries out the
//! [`Plan`]. If [`Seen::leaving`] is set, because the thread runs an event loop or an async
//! runtime, the executor returns to the thread's code instead of blocking:
//!
//! | plan | step | what the next [`Seen`] reports |
//! | --- | --- | --- |
//! | `Poll` | try the CQ lock, take at most `budget` entries, call [`Policy::completed`] with what [`Facts::records`] selects | `found`, `budget_used_up`, `lock_busy`; `pending` if the check after unlocking found another entry |
//! | `Spin` | check the phase bit until an entry is there or the deadline (`until`) has passed | `pending`; or, if the executor has also polled, `found` |
//! | `Nap` | leave the interrupt masked and block until the deadline; if `leaving`, return, and the thread calls again by the deadline | `woke` |
//! | `Sleep` | arm, fence, check; if the CQ is empty, block; if `leaving`, return | `pending`, or `woke` |
//! | `Idle` | no command is in flight: stop calling [`Policy::next`] until the next batch | |
//!
//! A [`Waiter`] holds the state between policy and executor for one software queue: the last plan,
//! the input of the next one, whether the interrupt is masked, and, where threads share the queue,
//! which of them its interrupt wakes. [`SLEEP`] lists the steps by which a thread goes to sleep on
//! all its queues at once. Neither [`Waiter`] nor [`SLEEP`] does I/O: the executor implements the
//! I/O as a [`Notification`].
//!
//! Where [`Facts::masks`] is set, the interrupt is masked while the thread is awake. The exception
//! is a `Sleep` with `keep_armed`: after it the interrupt may stay armed, and then the next `Sleep`
//! neither arms nor checks. Where [`Facts::masks`] is not set, the interrupt is never masked. A
//! message then follows every entry (perhaps one for several), an eventfd counts it, and `Sleep`
//! blocks without a check.
//!
//! A switch of mode replaces the policy. The new policy has no record of the commands in flight.
//! Entries that were posted while the interrupt was masked have caused no message, so the
//! new policy's first input is a wake-up (`woke`), upon which it polls.
//!
//! # In an event loop of your own
//!
//! The crate depends on the standard library alone. `examples/io_uring.rs` drives a raw io_uring
//! with `adaptive`: 60 lines, most of them the `match` over the [`Plan`]. What such a loop needs:
//!
//! - [`ModePolicy::new`], with the [`SleepCosts`] of the machine: what a sleep costs there.
//! - After each submission [`Policy::submitted`]; after each poll that found completions
//!   [`Policy::completed`], with the [`Done`] that [`Facts::records`] selects.
//! - [`Policy::next`] whenever there is nothing else to do, with [`Seen::in_flight`] and what the
//!   last step reports (the table above). The other fields of [`Seen`] may stay at their defaults.
//!
//! With the feature `serde`, [`Nanos`] is read and written as a plain number.
//!
//! # Custom policies
//!
//! Implement [`Policy`], register it under a name with [`Mode::register`], and check it with the
//! contract tests in `testing` (a feature).
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod class;
mod custom;
mod decisions;
mod group;
mod mode;
mod moderator;
mod nanos;
mod nearest;
mod policy;
mod seen;
mod sleep;
#[cfg(any(test, feature = "testing"))]
#[path = "../tests/testing/mod.rs"]
pub mod testing;
mod tuning;
mod waiter;

pub use class::{Class, Op};
pub use custom::{CustomId, Facts, Policy, Records, RegisterError};
pub use decisions::{Action, AdaptiveState, Decisions, Why};
pub use group::{Round, Turn, combine};
pub use mode::{Mode, ModeError, Moderation, Preset, Spin};
pub use moderator::{Coalesce, Moderator, PACE, Rates};
pub use nanos::Nanos;
pub use nearest::nearest_name;
pub use policy::ModePolicy;
pub use seen::{Batch, Cause, Done, Plan, Route, Seen, Woke};
pub use sleep::{Ablation, NoAblation, Rule, SLEEP, SleepStep, StepResult, sleep_step};
pub use tuning::{DelayExponent, ExponentError, MAX_WEIGHT, PollLimits, SleepCosts, WEIGHT};
pub use waiter::{Notification, Waiter};
