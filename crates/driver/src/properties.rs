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
    fn record(&mut self, access: Access, answered: u64) {
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
pub(crate) struct Accesses {
    answered: Vec<(Access, u64)>,
    pending: Option<PendingAccess>,
    registers: RegisterValues,
}

/// An access whose answer was not there at once.
#[derive(Clone, Copy, Debug)]
struct PendingAccess {
    ticket: Ticket,
    access: Access,
    since: Nanos,
    answer: Option<Answer>,
}

impl Accesses {
    /// Begins a round, or goes on with one.
    pub(crate) fn round<'a, P: Properties>(&'a mut self, now: Nanos, timeout: Nanos, properties: &'a P) -> Round<'a, P> {
        Round { accesses: self, properties, now, timeout, replayed: 0 }
    }

    /// The round is over: its answers are used up, and one that is still to come has no taker.
    pub(crate) fn end_round(&mut self) {
        self.answered.clear();
        self.pending = None;
    }

    /// An answer has come. It is this one's only by its ticket.
    pub(crate) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        if let Some(pending) = self.pending.as_mut().filter(|pending| pending.ticket == ticket) {
            pending.answer = Some(answer);
        }
    }

    /// CSTS was registers beside the rounds.
    pub(crate) fn record_csts(&mut self, csts: Csts) {
        self.registers.csts = csts.into_bits();
    }

    /// What was registers last, whenever that was.
    pub(crate) fn registers(&self) -> RegisterValues {
        self.registers
    }
}

/// A round under way.
pub(crate) struct Round<'a, P> {
    accesses: &'a mut Accesses,
    properties: &'a P,
    pub(crate) now: Nanos,
    timeout: Nanos,
    /// How many of the round's answers this run has been told.
    replayed: usize,
}

/// A round goes no further for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessError {
    /// Until an answer has come, and until then at the latest.
    WouldBlock(Nanos),
    /// For good.
    Failed(PropertyError),
}

impl<P: Properties> Round<'_, P> {
    /// A property of 64 bits.
    pub(crate) fn get64(&mut self, property: Property) -> Result<u64, AccessError> {
        self.access(Access::Get(property))
    }

    /// A property of 32 bits.
    pub(crate) fn get32(&mut self, property: Property) -> Result<u32, AccessError> {
        self.access(Access::Get(property)).map(|value| value as u32)
    }

    /// Sets a property. It is set once this has returned.
    pub(crate) fn set(&mut self, property: Property, value: impl Into<u64>) -> Result<(), AccessError> {
        self.access(Access::Set(property, value.into())).map(drop)
    }

    /// As [`Properties::reset_function`].
    pub(crate) fn reset_function(&self) -> bool {
        self.properties.reset_function()
    }

    pub(crate) fn end(&mut self) {
        self.accesses.end_round();
    }

    fn access(&mut self, access: Access) -> Result<u64, AccessError> {
        if let Some(&(_, value)) = self.accesses.answered.get(self.replayed).filter(|(earlier, _)| *earlier == access) {
            self.replayed += 1;
            return Ok(value);
        }
        // Another way than in the last run: what was answered on that one is out of date.
        self.accesses.answered.truncate(self.replayed);
        let value = self.answer(access)?;
        self.accesses.registers.record(access, value);
        self.accesses.answered.push((access, value));
        self.replayed += 1;
        Ok(value)
    }

    fn answer(&mut self, access: Access) -> Result<u64, AccessError> {
        let answer = match self.accesses.pending.take().filter(|pending| pending.access == access) {
            Some(PendingAccess { answer: Some(answer), .. }) => answer,
            Some(pending) if self.now >= pending.since + self.timeout => {
                return Err(AccessError::Failed(PropertyError::NoAnswer { access, waited: self.now - pending.since }));
            }
            Some(pending) => return Err(self.wait(pending)),
            None => match self.properties.ask(access) {
                Asked::Now(answer) => answer,
                Asked::Later(ticket) => return Err(self.wait(PendingAccess { ticket, access, since: self.now, answer: None })),
            },
        };
        answer.map_err(|status| AccessError::Failed(PropertyError::Refused { access, status }))
    }

    fn wait(&mut self, pending: PendingAccess) -> AccessError {
        self.accesses.pending = Some(pending);
        AccessError::WouldBlock(pending.since + self.timeout)
    }
}

/// Looks at CSTS at every step where that is free, and every so often where the answer is late.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusPoll {
    accesses: Accesses,
    /// Not before that.
    next: Nanos,
}

/// How to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollTiming {
    /// How long an answer may take.
    pub(crate) timeout: Nanos,
    /// From an answer that was late to the next look.
    pub(crate) interval: Nanos,
}

impl StatusPoll {
    /// Looks first at that instant.
    pub(crate) fn starting_at(first: Nanos) -> StatusPoll {
        StatusPoll { next: first, ..StatusPoll::default() }
    }

    /// CSTS if there is news of it, and when to step again for the next at the latest.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        timing: PollTiming,
        properties: &impl Properties,
    ) -> Result<(Option<Csts>, Nanos), PropertyError> {
        if now < self.next {
            return Ok((None, self.next));
        }
        let late = self.accesses.pending.is_some();
        match self.accesses.round(now, timing.timeout, properties).get32(Property::Csts) {
            Ok(bits) => {
                self.accesses.end_round();
                self.next = if late { now + timing.interval } else { Nanos::ZERO };
                Ok((Some(Csts::from_bits(bits)), if late { self.next } else { Nanos::MAX }))
            }
            Err(AccessError::WouldBlock(until)) => Ok((None, until)),
            Err(AccessError::Failed(error)) => Err(error),
        }
    }

    /// As [`Accesses::answered`].
    pub(crate) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.accesses.answered(ticket, answer);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
