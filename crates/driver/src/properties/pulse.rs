//! A controller's pulse: CSTS, looked at while something else is waited for.

use nvme::regs::Csts;
use units::Nanos;

use super::{Answer, Asking, Halt, Properties, Property, PropertyError, Ticket};

/// Looks at CSTS at every step where that is free, and every so often where the answer is late.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse {
    asking: Asking,
    /// Not before that.
    next: Nanos,
}

/// How to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long an answer may take.
    pub(crate) timeout: Nanos,
    /// From an answer that was late to the next look.
    pub(crate) every: Nanos,
}

impl Pulse {
    /// Looks first at that instant.
    pub(crate) fn from(first: Nanos) -> Pulse {
        Pulse { next: first, ..Pulse::default() }
    }

    /// CSTS if there is news of it, and when to step again for the next at the latest.
    pub(crate) fn feel(&mut self, now: Nanos, pace: Pace, properties: &impl Properties) -> Result<(Option<Csts>, Nanos), PropertyError> {
        if now < self.next {
            return Ok((None, self.next));
        }
        let late = self.asking.open.is_some();
        match self.asking.round(now, pace.timeout, properties).get32(Property::Csts) {
            Ok(bits) => {
                self.asking.end_round();
                self.next = if late { now + pace.every } else { Nanos::ZERO };
                Ok((Some(Csts::from_bits(bits)), if late { self.next } else { Nanos::MAX }))
            }
            Err(Halt::Wait(until)) => Ok((None, until)),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    /// As [`Asking::answered`].
    pub(crate) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.asking.answered(ticket, answer);
    }
}
