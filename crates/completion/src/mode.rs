//! Completion modes by name: what a user asks for.

use std::fmt;
use std::str::FromStr;

/// The first part of a mode's name: how completions are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Sleep on the notification, drain within a budget, arm. The notification is never masked.
    Interrupt,
    /// The notification masks itself and schedules a poller with a weight (the contract of Linux's `lib/irq_poll.c`).
    IrqPoll,
    /// Sleep for half of the observed mean service time, then spin.
    HybridMean,
    /// Spin.
    Poll,
}

/// A completion mode: a named preset, as written on the command line and in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    preset: Preset,
    submit_check: bool,
}

/// Why a name is not a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// Nothing is called that.
    #[error("there is no completion mode '{given}'; did you mean '{nearest}'? The modes are {}", names())]
    Unknown {
        /// What was asked for.
        given: String,
        /// The mode whose name is most like it.
        nearest: Mode,
    },
    /// A mode that looks at the queue all the time anyway.
    #[error("'{mode}' does not take '+submit-check': it already looks whenever commands are in flight, so ask for '{mode}' alone")]
    NoSubmitCheck {
        /// The mode without it.
        mode: Mode,
    },
}

const SUBMIT_CHECK: &str = "+submit-check";

impl Preset {
    fn name(self) -> &'static str {
        match self {
            Preset::Interrupt => "interrupt",
            Preset::IrqPoll => "irq-poll",
            Preset::HybridMean => "hybrid-mean",
            Preset::Poll => "poll",
        }
    }
}

impl Mode {
    /// `interrupt`.
    pub const INTERRUPT: Mode = Mode { preset: Preset::Interrupt, submit_check: false };
    /// `irq-poll`.
    pub const IRQ_POLL: Mode = Mode { preset: Preset::IrqPoll, submit_check: false };
    /// `hybrid-mean`.
    pub const HYBRID_MEAN: Mode = Mode { preset: Preset::HybridMean, submit_check: false };
    /// `poll`.
    pub const POLL: Mode = Mode { preset: Preset::Poll, submit_check: false };

    /// Every mode there is, in the order of tables.
    pub const ALL: [Mode; 6] = [
        Mode::INTERRUPT,
        Mode { preset: Preset::Interrupt, submit_check: true },
        Mode::IRQ_POLL,
        Mode { preset: Preset::IrqPoll, submit_check: true },
        Mode::HYBRID_MEAN,
        Mode::POLL,
    ];

    /// The same mode with a look at the queue after each commit.
    ///
    /// # Errors
    /// [`ModeError::NoSubmitCheck`] for modes that look at the queue all the time anyway.
    pub fn with_submit_check(self) -> Result<Mode, ModeError> {
        match self.preset {
            Preset::Interrupt | Preset::IrqPoll => Ok(Mode { submit_check: true, ..self }),
            Preset::HybridMean | Preset::Poll => Err(ModeError::NoSubmitCheck { mode: self }),
        }
    }

    /// How completions are found.
    pub fn preset(self) -> Preset {
        self.preset
    }

    /// Whether the queue is looked at after each commit.
    pub fn submit_check(self) -> bool {
        self.submit_check
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&[self.preset.name(), if self.submit_check { SUBMIT_CHECK } else { "" }].concat())
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(given: &str) -> Result<Mode, ModeError> {
        if let Some(mode) = Mode::ALL.into_iter().find(|m| m.to_string() == given) {
            return Ok(mode);
        }
        let plain = given.strip_suffix(SUBMIT_CHECK).and_then(|base| Mode::ALL.into_iter().find(|m| m.to_string() == base));
        match plain {
            Some(mode) => mode.with_submit_check(),
            None => Err(ModeError::Unknown { given: given.to_owned(), nearest: nearest(given) }),
        }
    }
}

/// A mode as a word, for cells that are switched at run time: its position in [`Mode::ALL`].
/// Asked once per batch, so written out rather than searched for; a test holds the two together.
impl From<Mode> for u32 {
    #[inline]
    fn from(mode: Mode) -> u32 {
        let first = match mode.preset {
            Preset::Interrupt => 0,
            Preset::IrqPoll => 2,
            Preset::HybridMean => 4,
            Preset::Poll => 5,
        };
        first + u32::from(mode.submit_check)
    }
}

/// The mode at this position of [`Mode::ALL`]; the position itself is handed back if there is none.
impl TryFrom<u32> for Mode {
    type Error = u32;

    fn try_from(word: u32) -> Result<Mode, u32> {
        Mode::ALL.get(word as usize).copied().ok_or(word)
    }
}

fn nearest(given: &str) -> Mode {
    let likeness = |m: &Mode| strsim::damerau_levenshtein(&given.to_lowercase(), &m.to_string());
    Mode::ALL.into_iter().min_by_key(likeness).unwrap_or(Mode::INTERRUPT)
}

fn names() -> String {
    Mode::ALL.map(|m| m.to_string()).join(", ")
}

#[cfg(test)]
mod tests;
