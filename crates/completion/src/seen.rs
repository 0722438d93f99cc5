//! Input and output of a policy: [`Batch`] and [`Done`] describe submissions and completions,
//! [`Seen`] the result of the last step, and [`Plan`] the next step. All instants are of the
//! executor's monotonic clock, in nanoseconds.

use crate::{Class, Nanos};

/// A batch of commands whose submission doorbell has just been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Commands in this batch.
    pub commands: u32,
    /// Commands of this batch that a caller is blocked on.
    pub urgent: u32,
    /// Commands in flight on the queue, this batch included.
    pub in_flight: u32,
    /// Class of the commands; in a mixed batch, that of the last one. `None` where the policy gets
    /// no completion records ([`crate::Facts::records`]).
    pub class: Option<Class>,
}

/// A completed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its class: operation and band of sizes.
    pub class: Class,
    /// From the commit to the clock read of the poll that found it, in nanoseconds.
    pub age: Nanos,
    /// The thread slept or napped before it found the command, so `age` is only an upper bound of
    /// the service time. After polling, `age` is the service time.
    pub slept: bool,
}

/// Why a sleeping thread woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The queue's notification.
    Notification,
    /// The instant that the plan named.
    Timer,
    /// Another event that the thread waits for: its inbox, another queue, a waker.
    Other,
}

/// A wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woke {
    /// What woke the thread.
    pub cause: Cause,
    /// For [`Cause::Timer`]: how much later than planned, in nanoseconds.
    pub late: Nanos,
}

impl Woke {
    /// Woken by the queue's notification.
    pub const NOTIFIED: Woke = Woke { cause: Cause::Notification, late: Nanos::ZERO };
    /// Woken by another event.
    pub const OTHER: Woke = Woke { cause: Cause::Other, late: Nanos::ZERO };
}

/// The result of the last step, and the state of the thread: the input of [`crate::Policy::next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Entries taken by the last poll.
    pub found: u32,
    /// The last poll ended because its budget was used up.
    pub budget_used_up: bool,
    /// An entry is known to be posted and was not taken: a spin ended on it, the check after arming
    /// found it, or the last poll left it.
    pub pending: bool,
    /// Another thread held the queue's lock. That thread polls, and checks again after it unlocks,
    /// so this one need not.
    pub lock_busy: bool,
    /// Commands in flight on the queue.
    pub in_flight: u32,
    /// Those of them that a caller is blocked on.
    pub urgent_waiting: u32,
    /// The thread has slept and has not polled since.
    pub woke: Option<Woke>,
    /// Another thread is runnable on this CPU.
    pub cpu_wanted: bool,
    /// The thread leaves the library, to compute or to wait elsewhere. A [`Plan::Nap`] then names
    /// when it returns, with the notification masked.
    pub leaving: bool,
    /// Completions that the caller still needs before it can continue, where a sleep may wait for
    /// several (`at_least` of [`Plan::Sleep`]). [`Seen::pending`] does not report earlier ones. 0
    /// and 1: the caller continues at the first.
    pub wants: u32,
    /// When the caller continues even if nothing has completed; a sleep ends then at the latest.
    pub goes_on_at: Option<Nanos>,
    /// The thread waits for room in the queue: it has had a command to submit since this instant,
    /// or will have one then.
    pub next_due: Option<Nanos>,
    /// CPU time of the sleep or nap that has just ended, where the executor measures it. For a
    /// thread that had left the library: the CPU time that it has used since; zero if it slept
    /// elsewhere.
    pub cycle: Option<Nanos>,
}

/// The next step of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Take at most `budget` entries now.
    Poll {
        /// Most entries to take; never 0.
        budget: u32,
    },
    /// Check the phase bit, without the lock, until an entry is posted or this instant has passed.
    Spin {
        /// When to stop spinning and call the policy again.
        until: Nanos,
    },
    /// Block on a timer; the notification stays masked.
    Nap {
        /// When to wake.
        until: Nanos,
        /// If nothing has completed by then, the next plan would be another nap or a sleep. Where
        /// the kernel supports it, the nap is extended until the first completion.
        extends: bool,
    },
    /// Arm the notification, check the queue again, block.
    Sleep {
        /// When to wake at the latest.
        until: Nanos,
        /// Completions to wait for, where the executor can count them before it wakes; at least 1,
        /// and 1 is always correct. The sleep also ends early on a wake-up from another thread, a
        /// switch of mode, an urgent request, and `until`: the policy then gets fewer completions
        /// than planned and plans again.
        at_least: u32,
        /// Whether the notification may stay armed after the thread has woken, until the next spin
        /// or nap, while at most one command is in flight. The next sleep then neither arms nor
        /// checks: each entry since has sent its message, and an eventfd keeps its count.
        keep_armed: bool,
    },
    /// Nothing is in flight, so there is nothing to wait for.
    Idle,
}

impl Plan {
    /// A sleep until the first notification, or this instant.
    #[inline]
    pub const fn sleep(until: Nanos) -> Plan {
        Plan::Sleep { until, at_least: 1, keep_armed: false }
    }

    /// A nap until this instant that is not extended.
    #[inline]
    pub const fn nap(until: Nanos) -> Plan {
        Plan::Nap { until, extends: false }
    }
}

/// The queue pair of a batch, on a hardware queue that has two because its vector cannot be masked.
/// A command completes on the queue pair that it was submitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The interrupt queue, whose completions send messages.
    Notify,
    /// The poll queue, whose completions send no message and are found only by polling.
    Poll,
}
