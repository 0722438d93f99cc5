//! The policies that a program has registered: names, facts, and how one is made. They stay for as long as the process runs, so that a
//! mode is a small number wherever it is kept.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{CustomPolicy, Facts, Tuning};

/// Most policies of one process.
pub(crate) const MOST: usize = 64;

/// Longest name, in bytes: tables and records have room for it.
const LONGEST: usize = 32;

/// Makes a policy for one queue.
type Maker = dyn Fn(&Tuning) -> Box<dyn CustomPolicy> + Send + Sync;

struct Entry {
    name: String,
    facts: Facts,
    make: Box<Maker>,
}

/// Written once each, in order, under the lock; read without it.
static ENTRIES: [OnceLock<Entry>; MOST] = [const { OnceLock::new() }; MOST];
static WRITING: Mutex<()> = Mutex::new(());

/// A policy that the program has registered. One is had from [`crate::Mode::register`] alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CustomId(u8);

/// Why a policy cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// A mode is called that already.
    #[error("there is a completion mode '{0}' already: give the policy another name")]
    Taken(String),
    /// It could not be told from an option's other words.
    #[error("'{0}' is no name for a policy: 1 to {LONGEST} of a-z, 0-9 and '-', the first one a letter")]
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
    if !begins || name.len() > LONGEST || !name.bytes().all(plain) {
        return Err(RegisterError::Name(name.to_owned()));
    }
    if let Some(fault) = facts.fault() {
        return Err(RegisterError::Facts { name: name.to_owned(), fault });
    }
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    if all().any(|id| id.name() == name) {
        return Err(RegisterError::Taken(name.to_owned()));
    }
    let free = ENTRIES.iter().position(|entry| entry.get().is_none()).ok_or_else(|| RegisterError::Full(name.to_owned()))?;
    ENTRIES[free].get_or_init(|| Entry { name: name.to_owned(), facts, make });
    Ok(CustomId(free as u8))
}

/// All that are registered, in the order in which they were.
pub(crate) fn all() -> impl Iterator<Item = CustomId> {
    (0..).zip(&ENTRIES).map_while(|(at, entry)| entry.get().map(|_| CustomId(at)))
}

impl CustomId {
    /// The one of this number, if there is one.
    pub(crate) fn of(number: u32) -> Option<CustomId> {
        let id = CustomId(u8::try_from(number).ok()?);
        id.entry().map(|_| id)
    }

    /// Its place in the order of registering.
    pub(crate) fn number(self) -> u32 {
        self.0.into()
    }

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
