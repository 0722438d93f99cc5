//! Posted interrupts: the descriptor of one CPU, into which the vectors of all devices post.
//!
//! Hardware sets the vector's bit, and raises the one notification only if none is outstanding. The handler exchanges the
//! bits for none and handles what they stand for, at most [`ROUNDS`] times; then it clears the outstanding bit and looks
//! once more, because a bit that was set between the last exchange and the clearing has raised nothing.

use completion::QueueSet;

/// How often the handler exchanges the bits before it clears the outstanding bit.
pub(crate) const ROUNDS: u32 = 3;

/// One CPU's descriptor: 256 pending bits and the outstanding bit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptor {
    pending: QueueSet,
    outstanding: bool,
}

/// What the handler does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Exchanging the bits, for the so-manieth time.
    Round(u32),
    /// The outstanding bit is cleared; exchanging them once more.
    Last,
    /// Done.
    Over,
}

impl Descriptor {
    /// A device posts. Whether a notification is raised.
    pub(crate) fn post(&mut self, bit: usize) -> bool {
        self.pending.insert(bit);
        !std::mem::replace(&mut self.outstanding, true)
    }

    /// One step of the handler: the bits to be handled, and what follows once they are. `looks_again`: as it must; the
    /// broken twin does not.
    pub(crate) fn handle(&mut self, step: Handling, looks_again: bool) -> (QueueSet, Handling) {
        match step {
            Handling::Round(n) if n < ROUNDS && !self.pending.is_empty() => (std::mem::take(&mut self.pending), Handling::Round(n + 1)),
            Handling::Round(_) => {
                self.outstanding = false;
                (QueueSet::EMPTY, if looks_again { Handling::Last } else { Handling::Over })
            }
            Handling::Last => (std::mem::take(&mut self.pending), Handling::Over),
            Handling::Over => (QueueSet::EMPTY, Handling::Over),
        }
    }

    /// Whether a bit is set that no notification will tell of.
    #[cfg(test)]
    fn is_forgotten(&self) -> bool {
        !self.pending.is_empty() && !self.outstanding
    }
}

#[cfg(test)]
mod tests;
