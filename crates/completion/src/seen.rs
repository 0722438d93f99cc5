//! Input and output of a policy.

use units::{Class, Nanos};

/// A batch that was just committed: its doorbell has been rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Commands in this batch.
    pub commands: u32,
    /// Commands of this batch that somebody waits for.
    pub urgent: u32,
    /// Commands of the queue in flight, this batch included.
    pub in_flight: u32,
    /// The class of the batch's commands; of a mixed batch, of the last one. Where the policy is
    /// given completions ([`crate::Facts::records`]).
    pub class: Option<Class>,
}

/// One command that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its class.
    pub class: Class,
    /// From commit to the clock read of the batch that found it.
    pub age: Nanos,
    /// The thread slept before it found the command, so that the device took at most this long.
    /// Where it polled, the age is the device's time.
    pub slept: bool,
}

/// Why a sleeping thread woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The queue's notification.
    Notification,
    /// The time that the plan named.
    Timer,
    /// Something else that the thread waits for: an inbox, another queue, a waker.
    Other,
}

/// A wake-up, as input of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woke {
    /// Why.
    pub cause: Cause,
    /// For [`Cause::Timer`]: how much later than planned.
    pub late: Nanos,
}

impl Woke {
    /// By the queue's notification.
    pub const NOTIFIED: Woke = Woke { cause: Cause::Notification, late: Nanos::ZERO };
    /// By something else.
    pub const OTHER: Woke = Woke { cause: Cause::Other, late: Nanos::ZERO };
}

/// What the last look saw, and what stands around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Entries taken by the last look.
    pub found: u32,
    /// The last look ended because its budget did.
    pub budget_used_up: bool,
    /// An entry is known to be there and was not taken: a spin ended on it, the look after arming
    /// met it, or the last look left it behind.
    pub pending: bool,
    /// The last look took an entry that was known to be there, at this instant: so a spin's end is
    /// known although the executor has looked without asking first.
    pub met_at: Option<Nanos>,
    /// Another thread held the queue's lock: it looks, so this one need not.
    pub lock_busy: bool,
    /// Commands in flight on the queue.
    pub in_flight: u32,
    /// Of these, the ones that somebody waits for.
    pub urgent_waiting: u32,
    /// The thread has slept and has not looked since.
    pub woke: Option<Woke>,
    /// Another thread wants this CPU.
    pub cpu_wanted: bool,
    /// The thread leaves the library: to compute, or to wait elsewhere. [`Plan::Nap`] names when it
    /// is to be back, with the notification masked.
    pub leaving: bool,
    /// This many more completions the caller needs to go on, where a sleep may be for as many
    /// (`at_least` of [`Plan::Sleep`]): what comes before is of no use yet, and nothing is told of
    /// it in [`Seen::pending`]. 0 and 1: the first is of use.
    pub wants: u32,
    /// When the waiting thread goes on whatever has completed, if at all: a sleep ends then anyway.
    pub goes_on_at: Option<Nanos>,
    /// The thread only waits for room, and has had a command to submit since this instant, or will
    /// have one then.
    pub next_due: Option<Nanos>,
    /// The device holds its messages back until this many entries are there, or for a while: 0 and
    /// 1, it does not. What the policy asked for (`hold` of [`Plan::Sleep`]), as far as the device
    /// has confirmed it.
    pub held: u32,
    /// CPU time of the sleep or nap that has just ended, where the executor has measured it. Of a
    /// thread that had left the library: for how long it has computed since, which is zero if it
    /// slept elsewhere.
    pub cycle: Option<Nanos>,
}

/// When the notification may stay armed while the thread is awake, until a plan to spin or nap. The
/// next sleep then neither arms nor looks: each entry since has sent its message, and signals are
/// sticky.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepArmed {
    /// Not at all.
    #[default]
    Never,
    /// While at most one command is in flight.
    Alone,
    /// Always.
    Always,
}

/// What to do next about one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Take at most `budget` entries now.
    Poll {
        /// Most entries to take; never 0.
        budget: u32,
    },
    /// Poll without a lock until an entry is pending or this instant has come.
    Spin {
        /// When to give up and ask again.
        until: Nanos,
    },
    /// Sleep on a timer; the notification stays masked.
    Nap {
        /// When to wake.
        until: Nanos,
        /// If it has brought nothing by then, the next plan would be another nap, or a sleep: where
        /// the kernel can do so, it goes on until the first completion.
        extends: bool,
    },
    /// Arm the notification, look once more, sleep.
    Sleep {
        /// When to wake at the latest.
        until: Nanos,
        /// For how many completions to wait, where the executor can count them before it wakes;
        /// never 0, and 1 is always right. Bells end the sleep all the same, each with its own
        /// completion as one of them, and so do a switch of mode, an urgent request, and `until`: a
        /// policy that is told of less than it planned for plans anew.
        at_least: u32,
        /// For how many entries the device may hold messages back from now on: as many as do not
        /// make any command later. 0 and 1: none. Where [`crate::Facts::holds`] says so;
        /// [`Seen::held`] tells what came of it.
        hold: u16,
        /// Whether the notification may stay armed although the thread is awake again.
        keep_armed: KeepArmed,
    },
    /// Nothing is in flight: there is nothing to wait for.
    Rest,
}

impl Plan {
    /// Sleep until the first notification, or this instant.
    #[inline]
    pub const fn sleep(until: Nanos) -> Plan {
        Plan::Sleep { until, at_least: 1, hold: 0, keep_armed: KeepArmed::Never }
    }

    /// To nap until this instant, and no longer.
    #[inline]
    pub const fn nap(until: Nanos) -> Plan {
        Plan::Nap { until, extends: false }
    }
}

/// Where the commands of a batch go, on a hardware queue that has two lanes because its
/// notification cannot be masked: a command stays where it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the lane whose completions send messages.
    Notify,
    /// To the lane whose completions send none, so that they are found by looking alone.
    Poll,
}
