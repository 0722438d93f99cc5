//! Policies that a program brings: the trait and its contract, the facts of such a mode, and the
//! names that are registered.

use std::fmt;
use std::sync::{PoisonError, RwLock};

use units::Nanos;

use crate::{Batch, Cycle, Done, Plan, Route, Seen};

/// When to poll one queue: what each built-in mode has, and what a program brings by
/// [`crate::Mode::register`], which gives it a name; from then on it is a mode like any other.
///
/// Each queue has a policy of its own, made anew at each switch to its mode, and asks it from one
/// thread at a time. What is to outlive a switch lies in what its maker shares, an `Arc` for
/// example. `docs/policy.md` has a worked example.
///
/// # Contract
///
/// An answer is carried out as it is, so a policy that breaks its contract loses its own queue's
/// completions, or blocks its thread. `reap::policy::testing` has the contract as functions.
///
/// - It answers `Poll` for 1 to [`crate::WEIGHT`] entries where [`Seen::pending`] or [`Seen::woke`]
///   is set and [`Seen::lock_busy`] is not, and else only where the last poll used its budget up.
/// - With nothing in flight it answers `Rest`, and with commands in flight anything but that.
/// - It names an instant after `now`, and for `Spin` and `Nap` at most a second after.
/// - Where [`Seen::leaving`] is set it answers `Sleep`, or a `Nap` at whose end the thread is back.
/// - It asks `Sleep` for 1 to [`Seen::in_flight`] completions.
/// - The same calls have the same answers, or simulations mean nothing.
///
/// Methods run where data pass, so they should allocate nothing and call nothing that blocks.
/// Instants are of the executor's clock, which the simulator's is as well: a policy reads no clock
/// of its own.
#[allow(unused_variables)] // The names that the defaults do without are for those who read them.
pub trait Policy: fmt::Debug + Send {
    /// What to do next, given what the last step has seen. With commands in flight each answer
    /// finds them in finite time, or sleeps.
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan;

    /// A batch has been committed.
    fn submitted(&mut self, now: Nanos, batch: &Batch) {}

    /// One poll has found commands: these, as far as [`Facts::records`] asks for them.
    fn completed(&mut self, done: &[Done]) {}

    /// Where a batch goes that is about to be posted, on a queue that has a poll queue as well. How
    /// many commands it has is not known yet: of `batch` those that are urgent are, and how many
    /// were in flight before.
    fn route(&self, now: Nanos, batch: &Batch) -> Route {
        Route::Notify
    }
}

/// Which of the commands that a poll has found are given to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// None; nor of which class batches are.
    None,
    /// The last one: the freshest.
    Last,
    /// All.
    All,
}

/// What is constant about a mode. A program that brings a [`Policy`] begins with one of
/// [`Facts::MASKED`] and [`Facts::UNMASKED`]: `Facts { spins: true, ..Facts::MASKED }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether the notification is masked while the thread is awake. Where it is not, it is never
    /// masked.
    pub masks: bool,
    /// Whether a thread for each vector polls, leaves the entries in their owners' inboxes and
    /// wakes them; if not, the thread that submits polls.
    pub drain_thread: bool,
    /// Whether each vector sets its bit in one pending bitmap, and a notification is sent only
    /// while none is outstanding; if not, each vector notifies by itself.
    pub posted: bool,
    /// Whether the device holds messages back as [`Plan::Sleep`] asks.
    pub holds: bool,
    /// Whether the policy spins by rule, not by weighing what that costs: `--poll` then says
    /// whether it learns that others want its CPU.
    pub spins: bool,
    /// Whether [`crate::Seen::cycle`] is measured for it. Measuring costs four system calls each
    /// time.
    pub weighs_sleeps: bool,
    /// Which commands are given to [`Policy::completed`].
    pub records: Records,
    /// Whether each commit is followed by a look at the phase, and a poll for at most
    /// [`crate::WEIGHT`] entries if one is there.
    pub submit_check: bool,
    /// Whether the library looks at the phase before it asks for a plan, so that [`Seen::pending`]
    /// is known: a look that no interrupt handler has.
    pub checks_first: bool,
}

impl Facts {
    /// Masked while awake, polled by its own thread: what most policies want.
    pub const MASKED: Facts = Facts {
        masks: true,
        drain_thread: false,
        posted: false,
        holds: false,
        spins: false,
        weighs_sleeps: false,
        records: Records::All,
        submit_check: false,
        checks_first: false,
    };

    /// The same, never masked: each completion sends its message, as in `interrupt`.
    pub const UNMASKED: Facts = Facts { masks: false, ..Facts::MASKED };
}

/// Longest name, in bytes: tables have room for it.
pub(crate) const LONGEST_NAME: usize = 32;

/// Makes a policy for one queue.
type Maker = dyn Fn(&Cycle) -> Box<dyn Policy> + Send + Sync;

pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) facts: Facts,
    pub(crate) make: Box<Maker>,
}

/// The policies that a program has registered. They stay for as long as the process runs, so that a
/// mode is a small number wherever it is kept.
pub(crate) static ENTRIES: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

/// A policy that the program has registered: its number. One is had from [`crate::Mode::register`]
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CustomId(pub(crate) u32);

/// Why a policy cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// A mode is called that already.
    #[error("there is a completion mode '{0}' already: give the policy another name")]
    Taken(String),
    /// It could not be told from an option's other words.
    #[error(
        "'{0}' is no name for a policy: 1 to {LONGEST_NAME} of a-z, 0-9 and '-', the first one a letter"
    )]
    Name(String),
    /// Facts that contradict one another, so that no executor can carry them out.
    #[error(
        "policy '{0}': a notification that is posted, or a drain thread's, is never masked: begin with Facts::UNMASKED"
    )]
    Facts(String),
}

impl CustomId {
    pub(crate) fn entry(self) -> &'static Entry {
        // Ids are given by `Mode::register` alone, and entries stay.
        ENTRIES.read().unwrap_or_else(PoisonError::into_inner)[self.0 as usize]
    }
}
