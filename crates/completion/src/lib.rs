//! *When* to look at a completion queue, *who* looks, and *how* a thread is told. Pure: no clock,
//! no thread, and nothing of NVMe.
//!
//! A [`Policy`] answers for one queue, a [`Round`] for the queues of one thread. Their executor,
//! the engine of `reap` or the simulator, tells them only what was seen. **Policies cannot arm**:
//! they plan a [`Plan::Sleep`], and the executor alone turns that into arm, fence, look, block.
//!
//! # What an executor does
//!
//! Where a hardware queue has two lanes, it asks [`Policy::route`] before each commit which of them
//! the batch goes to. After each commit it calls [`Policy::submitted`], and polls if
//! [`Facts::submit_check`] says so. To wait, it asks [`Policy::next`] again and again, each time
//! with what the step before has seen, and carries out the [`Plan`]:
//!
//! | plan | step | what the next [`Seen`] says |
//! | --- | --- | --- |
//! | `Poll` | try the lock, take at most `budget` entries, [`Policy::completed`] with what [`Facts::records`] asks for | `found`, `budget_used_up`, `lock_busy`; `pending` if the look after the release met another entry |
//! | `Spin` | look at the phase until an entry is there or `until` has come | `pending`; or, if it has looked at once, `found` and `met_at` |
//! | `Nap` | block on a timer, masked (or, if `leaving`, go, and be back by then) | `woke` |
//! | `Sleep` | arm, fence, look; nothing there: block (or, if `leaving`, go) | `pending`, or `woke` |
//! | `Rest` | nothing | |
//!
//! What stands between a policy and the world, for one software queue, is its [`Waiter`]: it asks
//! the policy, remembers what was seen and whether the notification is masked, and goes by the look
//! role. A thread goes to sleep over all its queues as [`fall_asleep`] says. Both are without I/O;
//! [`Notification`] is what each executor brings.
//!
//! Where [`Facts::masks`] says so, the notification is masked whenever the thread is awake, so
//! everywhere but in `Sleep`; it may stay armed after one as its `keep_armed` says, and the next
//! `Sleep` then neither arms nor looks. Where it does not, the notification is never masked: every
//! entry has sent its message, signals are sticky, and `Sleep` blocks without a look. A switch of
//! mode replaces the policy; the new one may find commands in flight of which it never heard, and
//! the first thing it is told is that the thread `woke`: entries posted under a mask that is now
//! taken off have sent no message.
//!
//! # A policy of one's own
//!
//! [`Policy`] is the trait, [`Mode::register`] gives it a name, and `testing` (a feature) has its
//! contract as functions.
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
