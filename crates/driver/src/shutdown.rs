//! Shutdown: the I/O queues are deleted, the controller is told, and then stopped (Base 3.6.1). A state machine like
//! bring-up: stepped with the time and the controller's properties.

use nvme::QueueId;
use nvme::admin::{delete_cq, delete_sq};
use nvme::regs::{Cc, Csts};
use units::Nanos;

use crate::properties::{Asking, Halt, Pace, Properties, Property, Pulse};
use crate::stop::{Attendance, Patience, Stop, Stopping};
use crate::{AdminCommand, AdminReply, Answer, Inventory, PropertyError, RegisterValues, Ticket};

/// What shutdown asks of its executor. Each is to be carried out before the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownAsk {
    /// Step again when the reply or the answer has come, and at `until` at the latest.
    Wait {
        /// When.
        until: Nanos,
    },
    /// Post this on the admin queue, and hand the answer to [`Shutdown::completed`].
    Admin(AdminCommand),
    /// The controller has shut down and stopped: all memory is the host's again. Said from now on.
    Stopped,
    /// It has not: memory that it may still write to has to be leaked. Said from now on.
    Failed(ShutdownError),
}

/// Shutdown failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShutdownError {
    /// The registers read as all ones.
    #[error("the controller is gone: its registers read as all ones")]
    Gone,
    /// CSTS.RDY did not become 0.
    #[error("CSTS.RDY is still 1 after {waited}: the controller may still write to memory ({registers})")]
    NotStopped {
        /// For how long.
        waited: Nanos,
        /// The registers, as they were seen last.
        registers: RegisterValues,
    },
    /// A property could not be read or written.
    #[error("{error}: the controller may still write to memory ({registers})")]
    Property {
        /// Which, and why.
        error: PropertyError,
        /// The registers, as they were seen last.
        registers: RegisterValues,
    },
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Shutdown {
    state: State,
    queues: Vec<QueueId>,
    /// For the admin commands, and for CSTS.SHST.
    admin_timeout: Nanos,
    timeout: Nanos,
    asking: Asking,
    /// While a command is out.
    pulse: Pulse,
    attendance: Attendance,
}

#[derive(Clone, Debug)]
enum State {
    /// Deleting: first each submission queue, then each completion queue, by this count.
    Delete {
        n: usize,
        deadline: Option<Nanos>,
    },
    Notify,
    Notified(Patience),
    Stopping(Stop),
    Stopped,
    Failed(ShutdownError),
}

impl Shutdown {
    /// A host waits as long as the controller says (RTD3E), and this long if it does not say.
    const DEFAULT_TIMEOUT: Nanos = Nanos::from_secs(5);

    /// A shutdown of a controller that was brought up so. Nothing may be posted on its I/O queues any more.
    pub fn new(inventory: &Inventory, admin_timeout: Nanos) -> Shutdown {
        let timeout = Nanos::from_micros(inventory.shutdown_micros.into()).max(Shutdown::DEFAULT_TIMEOUT);
        let queues = inventory.queues.iter().map(|layout| layout.id).collect();
        let state = State::Delete { n: 0, deadline: None };
        Shutdown {
            state,
            queues,
            admin_timeout,
            timeout,
            asking: Asking::default(),
            pulse: Pulse::default(),
            attendance: Attendance::default(),
        }
    }

    /// Goes on as far as it can. Time for which it is stepped later than it asked for counts towards no deadline.
    pub fn step(&mut self, now: Nanos, properties: &impl Properties) -> ShutdownAsk {
        let away = self.attendance.away(now);
        match &mut self.state {
            State::Stopping(stop) => stop.extend(away),
            State::Notified(patience) => patience.extend(away),
            State::Delete { deadline: Some(deadline), .. } => *deadline += away,
            _ => {}
        }
        let mut ask = self.go_on(now, properties);
        if let ShutdownAsk::Wait { until } = &mut ask {
            self.attendance.asked_within(now, until);
        }
        ask
    }

    fn go_on(&mut self, now: Nanos, properties: &impl Properties) -> ShutdownAsk {
        loop {
            let asked = match self.advance(now, properties) {
                Err(Halt::Wait(until)) => return ShutdownAsk::Wait { until },
                // Whatever comes before the stop is a courtesy.
                Err(Halt::Failed(_)) => {
                    self.state = State::Stopping(Stop::Unknown);
                    None
                }
                Ok(asked) => asked,
            };
            self.asking.end_round();
            if let Some(ask) = asked {
                return ask;
            }
        }
    }

    fn advance(&mut self, now: Nanos, properties: &impl Properties) -> Result<Option<ShutdownAsk>, Halt> {
        let mut round = self.asking.round(now, self.admin_timeout, properties);
        match &mut self.state {
            State::Delete { deadline: None, .. } => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                return Ok(self.delete(now, csts));
            }
            State::Delete { deadline: Some(deadline), .. } => {
                let (deadline, pace) = (*deadline, Pace { timeout: self.admin_timeout, every: Patience::LONGEST });
                let (csts, until) = self.pulse.feel(now, pace, properties).map_err(Halt::Failed)?;
                if csts.is_some_and(Csts::is_gone) {
                    self.state = State::Failed(ShutdownError::Gone);
                } else if now >= deadline || csts.is_some_and(|csts| csts.cfs() || !csts.rdy()) {
                    self.state = State::Notify;
                } else {
                    return Ok(Some(ShutdownAsk::Wait { until: until.min(deadline) }));
                }
            }
            State::Notify => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                let cc = Cc::from_bits(round.get32(Property::Cc)?);
                if !csts.is_gone() && cc.en() && csts.rdy() && !csts.cfs() {
                    round.set(Property::Cc, cc.with_shn(Cc::SHN_NORMAL).into_bits())?;
                    self.state = State::Notified(Patience::new(now, self.timeout));
                } else {
                    self.state = State::Stopping(Stop::Unknown);
                }
            }
            State::Notified(patience) => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                match patience.next(now) {
                    Ok(until) if csts.shst() != Csts::SHST_COMPLETE && !csts.cfs() => return Ok(Some(ShutdownAsk::Wait { until })),
                    _ => self.state = State::Stopping(Stop::Unknown),
                }
            }
            State::Stopping(stop) => match stop.step(&mut round) {
                Stopping::Again => {}
                Stopping::Wait(until) => return Err(Halt::Wait(until)),
                Stopping::Stopped => self.state = State::Stopped,
                Stopping::Stuck(waited) => {
                    self.state = State::Failed(ShutdownError::NotStopped { waited, registers: self.asking.seen() });
                }
                Stopping::Gone => self.state = State::Failed(ShutdownError::Gone),
                Stopping::Failed(error) => self.state = State::Failed(ShutdownError::Property { error, registers: self.asking.seen() }),
            },
            State::Stopped => return Ok(Some(ShutdownAsk::Stopped)),
            State::Failed(error) => return Ok(Some(ShutdownAsk::Failed(*error))),
        }
        Ok(None)
    }

    /// Each deletion is a courtesy: a controller that does not answer is notified and stopped all the same.
    fn delete(&mut self, now: Nanos, csts: Csts) -> Option<ShutdownAsk> {
        let State::Delete { n, deadline } = &mut self.state else { return None };
        let works = csts.rdy() && !csts.cfs() && !csts.is_gone();
        let Some(command) = delete(&self.queues, *n).filter(|_| works) else {
            self.state = State::Notify;
            return None;
        };
        *deadline = Some(now + self.admin_timeout);
        Some(ShutdownAsk::Admin(command))
    }

    /// The answer to the command that was asked for last, whatever it says.
    pub fn completed(&mut self, _: &AdminReply) {
        if let State::Delete { n, deadline: deadline @ Some(_) } = &mut self.state {
            (*n, *deadline) = (*n + 1, None);
        }
    }

    /// The controller broke the protocol on the admin queue: what [`crate::Reaped::violation`] said. Nothing more is taken from that
    /// queue, so that no deletion would be answered: they are left out.
    pub fn violated(&mut self) {
        if let State::Delete { .. } = self.state {
            self.state = State::Notify;
        }
    }

    /// The answer to an access that was under way. One that nobody waits for is ignored.
    pub fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.asking.answered(ticket, answer);
        self.pulse.answered(ticket, answer);
    }
}

/// The n-th deletion: a completion queue may go only after its submission queue (Base 5.2.3).
fn delete(queues: &[QueueId], n: usize) -> Option<AdminCommand> {
    let sqe = match queues.get(n) {
        Some(&queue) => delete_sq(queue),
        None => delete_cq(*queues.get(n.checked_sub(queues.len())?)?),
    };
    Some(AdminCommand { sqe, page: false })
}

#[cfg(all(test, not(loom)))]
mod tests;
