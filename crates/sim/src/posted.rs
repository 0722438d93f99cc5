//! Posted interrupts: the posted-interrupt descriptor of one CPU. A message of any device to this
//! CPU sets its vector's bit there (posted MSI, Linux `arch/x86/kernel/irq.c`).
//!
//! ```text
//! device    set the vector's bit; if not outstanding: set outstanding, raise the notification
//! handler   at most ROUNDS times: exchange the bits for zeroes, handle them
//!           clear outstanding
//!           exchange once more: a bit set before the clearing has raised nothing
//! ```

/// The vectors of one CPU that can be posted.
pub(crate) const VECTORS: usize = 256;

/// A set of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits([u64; VECTORS / 64]);

impl Bits {
    pub(crate) fn insert(&mut self, bit: usize) {
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word |= 1 << (bit % 64);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; VECTORS / 64]
    }

    /// Removes and returns the lowest bit.
    pub(crate) fn take_first(&mut self) -> Option<usize> {
        let at = self.0.iter().position(|&word| word != 0)?;
        let bit = self.0[at].trailing_zeros() as usize;
        self.0[at] &= self.0[at] - 1;
        Some(at * 64 + bit)
    }
}

/// How often the handler exchanges the bits before it clears the outstanding bit.
pub(crate) const ROUNDS: u32 = 3;

/// The descriptor of one CPU: 256 pending bits and the outstanding bit.
#[derive(Clone, Debug, Default)]
pub(crate) struct PostedDescriptor {
    pending: Bits,
    outstanding: bool,
}

/// The next step of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Exchange the bits for zeroes. With the number of rounds so far.
    Round(u32),
    /// The outstanding bit is cleared: exchange the bits for zeroes once more.
    Last,
    /// The handler is done.
    Over,
}

impl PostedDescriptor {
    /// A device posts. Returns whether a notification is raised.
    pub(crate) fn post(&mut self, bit: usize) -> bool {
        self.pending.insert(bit);
        !std::mem::replace(&mut self.outstanding, true)
    }

    /// One step of the handler. Returns the bits to handle, and the next step. `looks_again`: false
    /// only in a negative test.
    pub(crate) fn handle(&mut self, step: Handling, looks_again: bool) -> (Bits, Handling) {
        match step {
            Handling::Round(n) if n < ROUNDS && !self.pending.is_empty() => {
                (std::mem::take(&mut self.pending), Handling::Round(n + 1))
            }
            Handling::Round(_) => {
                self.outstanding = false;
                // Cleared before the last exchange: a vector posted after it raises a new
                // notification, and one posted before it is found by the exchange.
                (Bits::default(), if looks_again { Handling::Last } else { Handling::Over })
            }
            Handling::Last => (std::mem::take(&mut self.pending), Handling::Over),
            Handling::Over => (Bits::default(), Handling::Over),
        }
    }

    /// Whether a bit is set although no notification is outstanding that would find it.
    #[cfg(test)]
    fn is_forgotten(&self) -> bool {
        !self.pending.is_empty() && !self.outstanding
    }
}

#[cfg(test)]
mod tests;
