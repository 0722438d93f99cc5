//! Controller properties as the state machines of this crate access them. Over PCI Express a
//! property is a register, and a read returns at once. Over fabrics it is a command (Property Get
//! or Set) whose completion comes later (Base 6.2, 6.3).
//!
//! A machine has one access in progress at a time, with a deadline. Each access has a ticket, so a
//! late answer to an access that was given up changes nothing.

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
    /// Its offset in the register space.
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

/// An access to a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Get(Property),
    /// Sets it to this value.
    Set(Property, u64),
}

impl Access {
    /// Performs the access on registers. Returns the value read; zero for a write.
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

/// Identifies an access whose answer comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The result of an access: the value read (zero for a write), or the error status.
pub type Answer = Result<u64, Status>;

/// How an access was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPoll {
    /// It is complete.
    Ready(Answer),
    /// Its answer comes later. The executor passes it to the machine that made the access, with
    /// this ticket.
    Pending(Ticket),
}

/// Access to the controller's properties over a transport.
pub trait Properties {
    /// Begins an access. A transport never reuses a ticket.
    fn ask(&self, access: Access) -> AccessPoll;

    /// Resets the controller's PCI function (Base 3.7.2, FLR) and returns when that is complete:
    /// the controller has stopped, and is as after power-on except for what the transport has
    /// configured. Returns false if the transport has no such reset, or if it failed.
    fn reset_function(&self) -> bool {
        false
    }
}

/// Memory-mapped registers answer at once.
impl<R: Registers> Properties for R {
    fn ask(&self, access: Access) -> AccessPoll {
        // A register access cannot fail: a removed device reads as all ones.
        AccessPoll::Ready(Ok(access.carry_out(self)))
    }
}

/// A property could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// The controller returned an error.
    #[error("{access}: the controller returned {status}")]
    Refused {
        /// The access.
        access: Access,
        /// Its status.
        status: Status,
    },
    /// The controller did not answer in time.
    #[error("{access}: no answer after {waited}")]
    NoAnswer {
        /// The access.
        access: Access,
        /// The time waited.
        waited: Nanos,
    },
}

/// The registers as last read or written, for error messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterValues {
    /// CAP.
    pub cap: u64,
    /// CC, as last read or written.
    pub cc: u32,
    /// CSTS.
    pub csts: u32,
}

impl RegisterValues {
    /// Records a completed access.
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

/// A machine's property accesses: the one in progress, and the completed ones of the current round.
///
/// A *round* is a section of a machine's code that makes several accesses and decides by their
/// values. If an access is still pending, the section returns early. It is run from its beginning
/// once the answer has arrived; completed accesses are then replayed from here:
///
/// ```text
///   1st run:  get CSTS = pending   return WouldBlock
///   2nd run:  get CSTS -> answer   get CC = pending   return WouldBlock
///   3rd run:  get CSTS -> replayed get CC -> answer   decide, change state, end_round
/// ```
///
/// So such a section must change its machine only after its last access.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accesses {
    answered: Vec<(Access, u64)>,
    pending: Option<PendingAccess>,
    registers: RegisterValues,
}

/// The access in progress.
#[derive(Clone, Copy, Debug)]
struct PendingAccess {
    ticket: Ticket,
    access: Access,
    since: Nanos,
    answer: Option<Answer>,
}

impl Accesses {
    /// Begins or continues a round.
    pub(crate) fn round<'a, P: Properties>(
        &'a mut self,
        now: Nanos,
        timeout: Nanos,
        properties: &'a P,
    ) -> Round<'a, P> {
        Round { accesses: self, properties, now, timeout, replayed: 0 }
    }

    /// Ends the round: forgets its values, and the access in progress if there is one.
    pub(crate) fn end_round(&mut self) {
        self.answered.clear();
        self.pending = None;
    }

    /// Delivers an answer. Ignored unless the ticket matches the access in progress.
    pub(crate) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        if let Some(pending) = self.pending.as_mut().filter(|pending| pending.ticket == ticket) {
            pending.answer = Some(answer);
        }
    }

    /// Records a CSTS value that was read outside a round.
    pub(crate) fn record_csts(&mut self, csts: Csts) {
        self.registers.csts = csts.into_bits();
    }

    /// The registers as last read or written.
    pub(crate) fn registers(&self) -> RegisterValues {
        self.registers
    }
}

/// A round in progress.
pub(crate) struct Round<'a, P> {
    accesses: &'a mut Accesses,
    properties: &'a P,
    pub(crate) now: Nanos,
    timeout: Nanos,
    /// Number of completed accesses that this run has replayed.
    replayed: usize,
}

/// Why a round returned early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessError {
    /// An access is pending. Step again when its answer has arrived, and at this time at the
    /// latest.
    WouldBlock(Nanos),
    /// An access failed or timed out.
    Failed(PropertyError),
}

impl<P: Properties> Round<'_, P> {
    /// Reads a 64-bit property.
    pub(crate) fn get64(&mut self, property: Property) -> Result<u64, AccessError> {
        self.access(Access::Get(property))
    }

    /// Reads a 32-bit property.
    pub(crate) fn get32(&mut self, property: Property) -> Result<u32, AccessError> {
        self.access(Access::Get(property)).map(|value| value as u32)
    }

    /// Sets a property. The controller has it once this has returned `Ok`.
    pub(crate) fn set(
        &mut self,
        property: Property,
        value: impl Into<u64>,
    ) -> Result<(), AccessError> {
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
        // Replay. A write must not be repeated: setting CC twice would be two resets.
        if let Some(&(_, value)) =
            self.accesses.answered.get(self.replayed).filter(|(earlier, _)| *earlier == access)
        {
            self.replayed += 1;
            return Ok(value);
        }
        // The code took another branch than in the last run: the values recorded for that branch
        // are stale.
        self.accesses.answered.truncate(self.replayed);
        let value = self.answer(access)?;
        self.accesses.registers.record(access, value);
        // Values are recorded in the order in which the next run replays them.
        self.accesses.answered.push((access, value));
        self.replayed += 1;
        Ok(value)
    }

    fn answer(&mut self, access: Access) -> Result<u64, AccessError> {
        let answer = match self.accesses.pending.take().filter(|pending| pending.access == access) {
            // `take` has removed the pending access: if this run does not repeat it, it is given
            // up.
            Some(PendingAccess { answer: Some(answer), .. }) => answer,
            // The answer is tested before the deadline: one that has arrived in time counts,
            // however late the step.
            Some(pending) if self.now >= pending.since + self.timeout => {
                return Err(AccessError::Failed(PropertyError::NoAnswer {
                    access,
                    waited: self.now - pending.since,
                }));
            }
            Some(pending) => return Err(self.wait(pending)),
            None => match self.properties.ask(access) {
                AccessPoll::Ready(answer) => answer,
                AccessPoll::Pending(ticket) => {
                    return Err(self.wait(PendingAccess {
                        ticket,
                        access,
                        since: self.now,
                        answer: None,
                    }));
                }
            },
        };
        answer.map_err(|status| AccessError::Failed(PropertyError::Refused { access, status }))
    }

    fn wait(&mut self, pending: PendingAccess) -> AccessError {
        self.accesses.pending = Some(pending);
        AccessError::WouldBlock(pending.since + self.timeout)
    }
}

/// Polls CSTS: at every step if reads return at once, and at an interval if the value comes later.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusPoll {
    accesses: Accesses,
    /// Earliest time of the next read.
    next: Nanos,
}

/// Time-out and interval of a [`StatusPoll`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollTiming {
    /// Time-out of one read.
    pub(crate) timeout: Nanos,
    /// Time from a delayed answer to the next read.
    pub(crate) interval: Nanos,
}

impl StatusPoll {
    /// The first read is at `first`.
    pub(crate) fn starting_at(first: Nanos) -> StatusPoll {
        StatusPoll { next: first, ..StatusPoll::default() }
    }

    /// Returns CSTS if it was read now, and when to step again at the latest for the next value.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        timing: PollTiming,
        properties: &impl Properties,
    ) -> Result<(Option<Csts>, Nanos), PropertyError> {
        if now < self.next {
            return Ok((None, self.next));
        }
        // If the value did not come at once, each read costs a command.
        let late = self.accesses.pending.is_some();
        match self.accesses.round(now, timing.timeout, properties).get32(Property::Csts) {
            Ok(bits) => {
                self.accesses.end_round();
                // A read that returns at once is repeated at every step.
                self.next = if late { now + timing.interval } else { Nanos::ZERO };
                Ok((Some(Csts::from_bits(bits)), if late { self.next } else { Nanos::MAX }))
            }
            // No value yet: the caller decides without one.
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
