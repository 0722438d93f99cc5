//! Controller properties as the state machines of this crate reach them: asked for, and answered at once or later. Over
//! memory a register is a load; over fabrics a property is a command with a completion of its own (Base 6.2, 6.3).
//!
//! A machine has one access under way at a time. Each waits for the answer and has a deadline. An answer is known by its
//! ticket, so that one that comes after its asker has turned to something else changes nothing.

use nvme::regs::{self, Csts};
use nvme::{Registers, Status};
use units::Nanos;

/// A property of the controller (Base 3.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Controller Capabilities.
    Cap,
    /// Version.
    Vs,
    /// Controller Configuration.
    Cc,
    /// Controller Status.
    Csts,
    /// Admin Queue Attributes.
    Aqa,
    /// Admin Submission Queue Base Address.
    Asq,
    /// Admin Completion Queue Base Address.
    Acq,
    /// Controller Ready Timeouts.
    Crto,
}

impl Property {
    /// Where it is.
    pub fn offset(self) -> u32 {
        match self {
            Property::Cap => regs::CAP,
            Property::Vs => regs::VS,
            Property::Cc => regs::CC,
            Property::Csts => regs::CSTS,
            Property::Aqa => regs::AQA,
            Property::Asq => regs::ASQ,
            Property::Acq => regs::ACQ,
            Property::Crto => regs::CRTO,
        }
    }

    /// Its size in bytes: 4 or 8.
    pub fn width(self) -> u32 {
        if matches!(self, Property::Cap | Property::Asq | Property::Acq) { 8 } else { 4 }
    }
}

/// What is asked of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its value.
    Get(Property),
    /// To be set to this value.
    Set(Property, u64),
}

impl Access {
    /// Carries it out where properties are registers. The value read; zero for a write.
    pub fn carry_out(self, registers: &(impl Registers + ?Sized)) -> u64 {
        match self {
            Access::Get(property) if property.width() == 8 => registers.read64(property.offset()),
            Access::Get(property) => registers.read32(property.offset()).into(),
            Access::Set(property, value) => {
                match property.width() {
                    8 => registers.write64(property.offset(), value),
                    _ => registers.write32(property.offset(), value as u32),
                }
                0
            }
        }
    }
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, property) = match self {
            Access::Get(property) => ("reading", property),
            Access::Set(property, _) => ("writing", property),
        };
        write!(f, "{what} {}", format!("{property:?}").to_uppercase())
    }
}

/// Names one access that is answered later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// How an access ends: with the value read (zero for a write), or with the status by which it was refused.
pub type Answer = Result<u64, Status>;

/// What becomes of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The answer is there.
    Now(Answer),
    /// It comes later: the executor hands it to the machine that asked, with this ticket.
    Later(Ticket),
}

/// The controller's properties, as a link reaches them.
pub trait Properties {
    /// Begins an access. A link gives no ticket twice.
    fn ask(&self, access: Access) -> Asked;

    /// Resets the controller's PCI function (Base 3.7.2), and returns once that is done: the controller has stopped, and is as after
    /// power-on but for what the transport has set up. False: the transport has no such reset, or it failed.
    fn reset_function(&self) -> bool {
        false
    }
}

/// Registers in memory answer at once.
impl<R: Registers> Properties for R {
    fn ask(&self, access: Access) -> Asked {
        Asked::Now(Ok(access.carry_out(self)))
    }
}

/// A property could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// The controller refused.
    #[error("{access}: the controller answered {status}")]
    Refused {
        /// What was asked.
        access: Access,
        /// Its status.
        status: Status,
    },
    /// It did not answer.
    #[error("{access}: no answer after {waited}")]
    NoAnswer {
        /// What was asked.
        access: Access,
        /// For how long.
        waited: Nanos,
    },
}

/// What the registers said last, when something went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterValues {
    /// CAP.
    pub cap: u64,
    /// CC, as it was read or written.
    pub cc: u32,
    /// CSTS.
    pub csts: u32,
}

impl RegisterValues {
    /// Takes in an access that has been answered.
    fn see(&mut self, access: Access, answered: u64) {
        match access {
            Access::Get(Property::Cap) => self.cap = answered,
            Access::Get(Property::Csts) => self.csts = answered as u32,
            Access::Get(Property::Cc) => self.cc = answered as u32,
            Access::Set(Property::Cc, value) => self.cc = value as u32,
            _ => {}
        }
    }
}

impl std::fmt::Display for RegisterValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CAP {:#018x}, CC {:#010x}, CSTS {:#010x}", self.cap, self.cc, self.csts)
    }
}

/// A machine's accesses: the one under way, and those of this round that have been answered.
///
/// A *round* is a stretch of a machine's code that asks for several properties and decides by their answers. Where an
/// answer is late the stretch ends early, and is run from its beginning when the answer has come: what was answered before
/// is told from here. So such a stretch changes its machine only behind its last access.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asking {
    answered: Vec<(Access, u64)>,
    open: Option<Open>,
    seen: RegisterValues,
}

/// An access whose answer was not there at once.
#[derive(Clone, Copy, Debug)]
struct Open {
    ticket: Ticket,
    access: Access,
    since: Nanos,
    answer: Option<Answer>,
}

impl Asking {
    /// Begins a round, or goes on with one.
    pub(crate) fn round<'a, P: Properties>(&'a mut self, now: Nanos, timeout: Nanos, properties: &'a P) -> Round<'a, P> {
        Round { asking: self, properties, now, timeout, taken: 0 }
    }

    /// The round is over: its answers are used up, and one that is still to come has no taker.
    pub(crate) fn end_round(&mut self) {
        self.answered.clear();
        self.open = None;
    }

    /// An answer has come. It is this one's only by its ticket.
    pub(crate) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        if let Some(open) = self.open.as_mut().filter(|open| open.ticket == ticket) {
            open.answer = Some(answer);
        }
    }

    /// CSTS was seen beside the rounds.
    pub(crate) fn see_status(&mut self, csts: Csts) {
        self.seen.csts = csts.into_bits();
    }

    /// What was seen last, whenever that was.
    pub(crate) fn seen(&self) -> RegisterValues {
        self.seen
    }
}

/// A round under way.
pub(crate) struct Round<'a, P> {
    asking: &'a mut Asking,
    properties: &'a P,
    pub(crate) now: Nanos,
    timeout: Nanos,
    /// How many of the round's answers this run has been told.
    taken: usize,
}

/// A round goes no further for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Until an answer has come, and until then at the latest.
    Wait(Nanos),
    /// For good.
    Failed(PropertyError),
}

impl<P: Properties> Round<'_, P> {
    /// A property of 64 bits.
    pub(crate) fn get64(&mut self, property: Property) -> Result<u64, Halt> {
        self.access(Access::Get(property))
    }

    /// A property of 32 bits.
    pub(crate) fn get32(&mut self, property: Property) -> Result<u32, Halt> {
        self.access(Access::Get(property)).map(|value| value as u32)
    }

    /// Sets a property. It is set once this has returned.
    pub(crate) fn set(&mut self, property: Property, value: impl Into<u64>) -> Result<(), Halt> {
        self.access(Access::Set(property, value.into())).map(drop)
    }

    /// As [`Properties::reset_function`].
    pub(crate) fn reset_function(&self) -> bool {
        self.properties.reset_function()
    }

    pub(crate) fn end(&mut self) {
        self.asking.end_round();
    }

    fn access(&mut self, access: Access) -> Result<u64, Halt> {
        if let Some(&(_, value)) = self.asking.answered.get(self.taken).filter(|(earlier, _)| *earlier == access) {
            self.taken += 1;
            return Ok(value);
        }
        // Another way than in the last run: what was answered on that one is out of date.
        self.asking.answered.truncate(self.taken);
        let value = self.answer(access)?;
        self.asking.seen.see(access, value);
        self.asking.answered.push((access, value));
        self.taken += 1;
        Ok(value)
    }

    fn answer(&mut self, access: Access) -> Result<u64, Halt> {
        let answer = match self.asking.open.take().filter(|open| open.access == access) {
            Some(Open { answer: Some(answer), .. }) => answer,
            Some(open) if self.now >= open.since + self.timeout => {
                return Err(Halt::Failed(PropertyError::NoAnswer { access, waited: self.now - open.since }));
            }
            Some(open) => return Err(self.wait(open)),
            None => match self.properties.ask(access) {
                Asked::Now(answer) => answer,
                Asked::Later(ticket) => return Err(self.wait(Open { ticket, access, since: self.now, answer: None })),
            },
        };
        answer.map_err(|status| Halt::Failed(PropertyError::Refused { access, status }))
    }

    fn wait(&mut self, open: Open) -> Halt {
        self.asking.open = Some(open);
        Halt::Wait(open.since + self.timeout)
    }
}

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

#[cfg(all(test, not(loom)))]
mod tests;
