//! Custom policies: the trait [`Policy`] with its contract, the [`Facts`] of a mode, and the
//! registry of names. The built-in modes implement the same trait.

use std::error::Error;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use crate::{Batch, Done, Nanos, Plan, Route, Seen, SleepCosts};

/// When one queue is polled. Built-in modes implement it; a program registers its own
/// implementation with [`crate::Mode::register`], and the result is a mode like any other.
///
/// Each queue has its own policy, created at each switch to the mode and called by one thread at a
/// time. State that must survive a switch belongs to the closure that creates the policies, in an
/// `Arc` for example. `docs/policy.md` has a worked example.
///
/// # Contract
///
/// A plan is carried out without checks, so a policy that breaks the contract loses its own queue's
/// completions or blocks its thread. `reap::policy::testing` checks the contract.
///
/// - A plan must be `Poll` if [`Seen::pending`] or [`Seen::woke`] is set and [`Seen::lock_busy`] is
///   not. If neither is set, it may be `Poll` only directly after a poll that used up its budget
///   ([`Seen::budget_used_up`]). `Poll` is for 1 to [`crate::WEIGHT`] entries.
/// - With commands in flight a plan is never `Idle`. With none it is `Idle`, unless it must be
///   `Poll` or [`Seen::goes_on_at`] is set.
/// - Instants are after `now`; those of `Spin` and `Nap` at most a second after.
/// - If [`Seen::leaving`] is set, the thread is about to return to the application. With commands
///   in flight a plan is then neither `Spin` nor `Idle`: it is `Sleep`, or a `Nap` by whose end the
///   thread calls in again.
/// - `Sleep` waits for 1 to [`Seen::in_flight`] completions.
/// - The same calls return the same plans, so that simulations are reproducible.
///
/// Methods run on the I/O path: they should neither allocate nor block. A policy reads no clock;
/// instants are of the executor's clock, which is virtual in the simulator.
#[allow(unused_variables)] // Named for the documentation; the defaults do not use them.
pub trait Policy: fmt::Debug + Send {
    /// The next plan, given the result of the last step. With commands in flight each plan must
    /// lead to their completions being found in finite time, or be `Sleep`.
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan;

    /// Called after each commit, with the batch.
    fn submitted(&mut self, now: Nanos, batch: &Batch) {}

    /// Called after a poll that found completions, with those that [`Facts::records`] selects.
    fn completed(&mut self, done: &[Done]) {}

    /// Whether the next batch is submitted to the interrupt queue or to the poll queue, on a
    /// hardware queue that has both. The batch's size is not known yet: `batch` has the number of
    /// its urgent commands and the number in flight before it.
    fn route(&self, now: Nanos, batch: &Batch) -> Route {
        Route::Notify
    }
}

/// Which completions of a poll are passed to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// None, and [`Batch::class`] is not set.
    None,
    /// The last one of the poll: it waited in the queue least, so its age is nearest to its
    /// service time.
    Last,
    /// All of them.
    All,
}

/// The constant properties of a mode. A custom policy starts with [`Facts::MASKED`] or
/// [`Facts::UNMASKED`]: `Facts { spins: true, ..Facts::MASKED }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether the notification is masked while the thread is awake. If not, it is never masked.
    pub masks: bool,
    /// Whether a drain thread for each vector polls, puts completions into their owners' inboxes
    /// and wakes these; if not, the thread that submits polls.
    pub drain_thread: bool,
    /// Whether vectors are posted MSIs: each sets its bit in one pending bitmap, and a notification
    /// is sent only while none is outstanding. If not, each vector interrupts by itself.
    pub posted: bool,
    /// Whether the policy always spins, without computing what that costs. The option `--poll` then
    /// decides whether [`Seen::cpu_wanted`] is reported.
    pub spins: bool,
    /// Whether [`crate::Seen::cycle`] is measured, which costs four system calls per sleep.
    pub weighs_sleeps: bool,
    /// Which completions are passed to [`Policy::completed`].
    pub records: Records,
    /// Whether each commit is followed by a check of the phase bit, and a poll for at most
    /// [`crate::WEIGHT`] entries if one is posted.
    pub submit_check: bool,
    /// Whether the executor checks the phase bit before it calls [`Policy::next`], so that
    /// [`Seen::pending`] is up to date. An interrupt handler has no such check.
    pub checks_first: bool,
}

impl Facts {
    /// Masked while awake, polled by the submitting thread: the base for most policies.
    pub const MASKED: Facts = Facts {
        masks: true,
        drain_thread: false,
        posted: false,
        spins: false,
        weighs_sleeps: false,
        records: Records::All,
        submit_check: false,
        checks_first: false,
    };

    /// The same, but never masked: each completion sends its message, as in `interrupt`.
    pub const UNMASKED: Facts = Facts { masks: false, ..Facts::MASKED };
}

/// Longest name in bytes, as table columns have this width.
pub(crate) const LONGEST_NAME: usize = 32;

/// Creates the policy of one queue, given what a sleep costs on the machine.
type Maker = dyn Fn(&SleepCosts) -> Box<dyn Policy> + Send + Sync;

pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) facts: Facts,
    pub(crate) make: Box<Maker>,
}

/// The registered policies. They are never removed, so that a mode can be a small number wherever
/// it is stored.
pub(crate) static ENTRIES: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

/// The number of a registered policy. Created only by [`crate::Mode::register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CustomId(pub(crate) u32);

/// Why a policy cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is already used by a mode.
    Taken(String),
    /// The name contains characters that are not allowed, or is too long.
    Name(String),
    /// The facts contradict each other, so that no executor can carry them out.
    Facts(String),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Taken(name) => write!(
                f,
                "there is a completion mode '{name}' already: give the policy another name"
            ),
            RegisterError::Name(name) => write!(
                f,
                "'{name}' is no name for a policy: 1 to {LONGEST_NAME} of a-z, 0-9 and '-', the first one a letter"
            ),
            RegisterError::Facts(name) => write!(
                f,
                "policy '{name}': a notification that is posted, or a drain thread's, is never masked: begin with Facts::UNMASKED"
            ),
        }
    }
}

impl Error for RegisterError {}

impl CustomId {
    pub(crate) fn entry(self) -> &'static Entry {
        // Cannot be out of bounds: only `Mode::register` creates ids, and entries are never
        // removed.
        ENTRIES.read().unwrap_or_else(PoisonError::into_inner)[self.0 as usize]
    }
}
