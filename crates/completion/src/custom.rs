//! Policies that a program brings: the trait and its contract, the facts of such a mode, and the names that are registered.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use units::Nanos;

use crate::{Batch, Check, Done, Plan, Route, Seen, Tuning};

/// When to look at one queue: a rule of the program's own. [`crate::Mode::register`] gives it a name; from then on it is a mode like any other.
///
/// Each queue has a policy of its own, made anew at each switch to its mode, and asks it from one thread at a time. What is to outlive a
/// switch lies in what its maker shares, an `Arc` for example. `docs/policy.md` has a worked example, and
/// `reap::policy::testing` the laws as functions.
///
/// # Contract
///
/// | the policy | the queue does otherwise |
/// | --- | --- |
/// | answers `Look` where [`Seen::pending`] or [`Seen::woke`] is set and [`Seen::lock_busy`] is not | polls all the same |
/// | answers `Rest` if nothing is in flight, and else anything but that | rests; sleeps until the next notification |
/// | answers `Look` where something is known to be there, or the last poll used its budget up | polls without a result, unless nothing is in flight |
/// | asks for 1 to [`crate::WEIGHT`] entries | takes the nearest of these |
/// | names an instant after `now`, and for `Spin` and `Nap` at most a second after | waits for 20 µs, or for a second |
/// | answers anything but `Spin` where [`Seen::leaving`] is set; after `Nap` the loop is back at its instant | sleeps |
/// | asks `Sleep` for 1 to [`Seen::in_flight`] completions | waits for the nearest of these |
/// | answers the same to the same calls | nothing: comparisons and replays mean nothing |
///
/// So no answer loses a completion. A panic is the calling thread's, and a method that does not return holds that thread. Methods run
/// where data pass, so they should allocate nothing and call nothing that blocks.
///
/// Instants are of the executor's clock, which the simulator's is as well: a policy reads no clock of its own.
#[allow(unused_variables)] // The names that the defaults do without are for those who read them.
pub trait CustomPolicy: fmt::Debug + Send {
    /// What to do next, given what the last step has seen. With commands in flight each answer finds them in finite time, or sleeps.
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan;

    /// A batch has been committed. The answer is heeded where [`crate::Facts::checks`] says so.
    fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        Check::No
    }

    /// These commands were found by one look. Called where [`crate::Facts::records`] says so.
    fn completed(&mut self, done: &[Done]) {}

    /// Where a batch goes that is about to be committed, on a hardware queue with a lane that sends no messages.
    fn route(&self, now: Nanos, batch: &Batch) -> Route {
        Route::Notify
    }

    /// For how many entries the device may hold messages back; 0 and 1: none. Asked where [`crate::Facts::holds`] says so, and
    /// [`Seen::held`] tells what came of it.
    fn holds(&self) -> u16 {
        0
    }
}

/// Who looks at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The thread that submits.
    Own,
    /// A thread for each vector, which leaves the entries in their owners' inboxes and wakes them.
    DrainThread,
}

/// How a message becomes a notification of the thread. Whether several queues have to share a vector is no choice of the
/// mode's: the device has as many vectors as it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Each vector notifies by itself.
    PerVector,
    /// Each vector sets its bit in one pending bitmap; a notification is sent only while none is outstanding.
    Posted,
}

/// The facts of a mode whose policy a program brings ([`crate::CustomPolicy`]). They hold for as long as the process runs.
///
/// It begins with one of [`Facts::MASKED`] and [`Facts::UNMASKED`]: `Facts { spins: true, ..Facts::MASKED }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether the notification is masked while the thread is awake. Where it is not, it is never masked.
    pub masks: bool,
    /// Who looks.
    pub placement: Placement,
    /// How a message becomes a notification.
    pub delivery: Delivery,
    /// Whether the device holds messages back for [`crate::CustomPolicy::holds`].
    pub holds: bool,
    /// Whether the policy spins by rule: `--poll` then says whether it is told that others want its CPU.
    pub spins: bool,
    /// Whether it is told of each command that completes, and of a batch's class. Records cost some instructions a command.
    pub records: bool,
    /// Whether [`crate::Seen::cycle`] is measured for it. Measuring costs four system calls each time.
    pub weighs_sleeps: bool,
    /// Whether [`crate::CustomPolicy::submitted`] may ask for a look.
    pub checks: bool,
}

impl Facts {
    /// Masked while awake, looked at by its own thread, told of its records: what most policies want.
    pub const MASKED: Facts = Facts {
        masks: true,
        placement: Placement::Own,
        delivery: Delivery::PerVector,
        holds: false,
        spins: false,
        records: true,
        weighs_sleeps: false,
        checks: false,
    };

    /// The same, never masked: each completion sends its message, as in `interrupt`.
    pub const UNMASKED: Facts = Facts { masks: false, ..Facts::MASKED };

    /// Why no executor can carry them out together.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let elsewhere = self.placement == Placement::DrainThread || self.delivery == Delivery::Posted;
        (self.masks && elsewhere)
            .then_some("a notification that is posted, or a drain thread's, is never masked: begin with Facts::UNMASKED")
    }
}

/// Most policies of one process.
pub(crate) const MOST: usize = 64;

/// Longest name, in bytes: tables and records have room for it.
const LONGEST_NAME: usize = 32;

/// Makes a policy for one queue.
type Maker = dyn Fn(&Tuning) -> Box<dyn CustomPolicy> + Send + Sync;

struct Entry {
    name: String,
    facts: Facts,
    make: Box<Maker>,
}

/// The policies that a program has registered. They stay for as long as the process runs, so that a mode is a small number wherever it is
/// kept. Written once each, in order, under the lock; read without it.
static ENTRIES: [OnceLock<Entry>; MOST] = [const { OnceLock::new() }; MOST];
static WRITING: Mutex<()> = Mutex::new(());

/// A policy that the program has registered. One is had from [`crate::Mode::register`] alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CustomId(pub(crate) u8);

/// Why a policy cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// A mode is called that already.
    #[error("there is a completion mode '{0}' already: give the policy another name")]
    Taken(String),
    /// It could not be told from an option's other words.
    #[error("'{0}' is no name for a policy: 1 to {LONGEST_NAME} of a-z, 0-9 and '-', the first one a letter")]
    Name(String),
    /// Facts that contradict one another.
    #[error("policy '{name}': {fault}")]
    Facts {
        /// The policy.
        name: String,
        /// What contradicts, and what to do.
        fault: &'static str,
    },
    /// No place is left.
    #[error("policy '{0}': a process has at most {MOST} policies of its own")]
    Full(String),
}

/// Registers a policy. Names of built-in modes are the caller's to check.
pub(crate) fn register(name: &str, facts: Facts, make: Box<Maker>) -> Result<CustomId, RegisterError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if !begins || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        return Err(RegisterError::Name(name.to_owned()));
    }
    if let Some(fault) = facts.fault() {
        return Err(RegisterError::Facts { name: name.to_owned(), fault });
    }
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    if registered().any(|id| id.name() == name) {
        return Err(RegisterError::Taken(name.to_owned()));
    }
    let free = ENTRIES.iter().position(|entry| entry.get().is_none()).ok_or_else(|| RegisterError::Full(name.to_owned()))?;
    ENTRIES[free].get_or_init(|| Entry { name: name.to_owned(), facts, make });
    Ok(CustomId(free as u8))
}

/// All that are registered, in the order in which they were.
pub(crate) fn registered() -> impl Iterator<Item = CustomId> {
    (0..).zip(&ENTRIES).map_while(|(at, entry)| entry.get().map(|_| CustomId(at)))
}

impl CustomId {
    fn entry(self) -> Option<&'static Entry> {
        ENTRIES.get(usize::from(self.0))?.get()
    }

    /// The name that it was registered under.
    pub fn name(self) -> &'static str {
        self.entry().map_or("", |entry| &entry.name)
    }

    /// The facts of its mode.
    #[cold] // The built-in modes' facts are constants.
    pub fn facts(self) -> Facts {
        self.entry().map_or(Facts::UNMASKED, |entry| entry.facts)
    }

    /// A policy for one queue.
    pub(crate) fn make(self, tuning: &Tuning) -> Option<Box<dyn CustomPolicy>> {
        self.entry().map(|entry| (entry.make)(tuning))
    }
}

impl fmt::Debug for CustomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
