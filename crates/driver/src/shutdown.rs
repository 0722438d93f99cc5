//! Shutdown: the I/O queues are deleted, the controller is told, and then stopped (Base 3.6.1). A state machine like
//! bring-up: stepped with the time and the controller's properties.

use nvme::QueueId;
use nvme::admin::{delete_cq, delete_sq};
use nvme::regs::{Cc, Csts};
use units::Nanos;

use crate::properties::{AccessError, Accesses, PollTiming, Properties, Property, StatusPoll};
use crate::stop::{Backoff, StepTimer, StopSequence, StopStatus};
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
    state: ShutdownState,
    queues: Vec<QueueId>,
    /// For the admin commands, and for CSTS.SHST.
    admin_timeout: Nanos,
    timeout: Nanos,
    accesses: Accesses,
    /// While a command is out.
    status_poll: StatusPoll,
    step_timer: StepTimer,
}

#[derive(Clone, Debug)]
enum ShutdownState {
    /// Deleting: first each submission queue, then each completion queue, by this count.
    Delete {
        n: usize,
        deadline: Option<Nanos>,
    },
    Notify,
    Notified(Backoff),
    Stopping(StopSequence),
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
        let state = ShutdownState::Delete { n: 0, deadline: None };
        Shutdown {
            state,
            queues,
            admin_timeout,
            timeout,
            accesses: Accesses::default(),
            status_poll: StatusPoll::default(),
            step_timer: StepTimer::default(),
        }
    }

    /// Goes on as far as it can. Time for which it is stepped later than it asked for counts towards no deadline.
    pub fn step(&mut self, now: Nanos, properties: &impl Properties) -> ShutdownAsk {
        let overrun = self.step_timer.overrun(now);
        match &mut self.state {
            ShutdownState::Stopping(stop) => stop.extend(overrun),
            ShutdownState::Notified(backoff) => backoff.extend(overrun),
            ShutdownState::Delete { deadline: Some(deadline), .. } => *deadline += overrun,
            _ => {}
        }
        let mut ask = self.go_on(now, properties);
        if let ShutdownAsk::Wait { until } = &mut ask {
            self.step_timer.schedule_within(now, until);
        }
        ask
    }

    fn go_on(&mut self, now: Nanos, properties: &impl Properties) -> ShutdownAsk {
        loop {
            let asked = match self.advance(now, properties) {
                Err(AccessError::WouldBlock(until)) => return ShutdownAsk::Wait { until },
                // Whatever comes before the stop is a courtesy.
                Err(AccessError::Failed(_)) => {
                    self.state = ShutdownState::Stopping(StopSequence::Start);
                    None
                }
                Ok(asked) => asked,
            };
            self.accesses.end_round();
            if let Some(ask) = asked {
                return ask;
            }
        }
    }

    fn advance(&mut self, now: Nanos, properties: &impl Properties) -> Result<Option<ShutdownAsk>, AccessError> {
        let mut round = self.accesses.round(now, self.admin_timeout, properties);
        match &mut self.state {
            ShutdownState::Delete { deadline: None, .. } => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                return Ok(self.delete(now, csts));
            }
            ShutdownState::Delete { deadline: Some(deadline), .. } => {
                let (deadline, timing) = (*deadline, PollTiming { timeout: self.admin_timeout, interval: Backoff::MAX_INTERVAL });
                let (csts, until) = self.status_poll.poll(now, timing, properties).map_err(AccessError::Failed)?;
                if csts.is_some_and(Csts::is_gone) {
                    self.state = ShutdownState::Failed(ShutdownError::Gone);
                } else if now >= deadline || csts.is_some_and(|csts| csts.cfs() || !csts.rdy()) {
                    self.state = ShutdownState::Notify;
                } else {
                    return Ok(Some(ShutdownAsk::Wait { until: until.min(deadline) }));
                }
            }
            ShutdownState::Notify => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                let cc = Cc::from_bits(round.get32(Property::Cc)?);
                if !csts.is_gone() && cc.en() && csts.rdy() && !csts.cfs() {
                    round.set(Property::Cc, cc.with_shn(Cc::SHN_NORMAL).into_bits())?;
                    self.state = ShutdownState::Notified(Backoff::new(now, self.timeout));
                } else {
                    self.state = ShutdownState::Stopping(StopSequence::Start);
                }
            }
            ShutdownState::Notified(backoff) => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                match backoff.next(now) {
                    Ok(until) if csts.shst() != Csts::SHST_COMPLETE && !csts.cfs() => return Ok(Some(ShutdownAsk::Wait { until })),
                    _ => self.state = ShutdownState::Stopping(StopSequence::Start),
                }
            }
            ShutdownState::Stopping(stop) => match stop.step(&mut round) {
                StopStatus::Again => {}
                StopStatus::Wait(until) => return Err(AccessError::WouldBlock(until)),
                StopStatus::Stopped => self.state = ShutdownState::Stopped,
                StopStatus::TimedOut(waited) => {
                    self.state = ShutdownState::Failed(ShutdownError::NotStopped { waited, registers: self.accesses.registers() });
                }
                StopStatus::Gone => self.state = ShutdownState::Failed(ShutdownError::Gone),
                StopStatus::Failed(error) => {
                    self.state = ShutdownState::Failed(ShutdownError::Property { error, registers: self.accesses.registers() })
                }
            },
            ShutdownState::Stopped => return Ok(Some(ShutdownAsk::Stopped)),
            ShutdownState::Failed(error) => return Ok(Some(ShutdownAsk::Failed(*error))),
        }
        Ok(None)
    }

    /// Each deletion is a courtesy: a controller that does not answer is notified and stopped all the same.
    fn delete(&mut self, now: Nanos, csts: Csts) -> Option<ShutdownAsk> {
        let ShutdownState::Delete { n, deadline } = &mut self.state else { return None };
        let works = csts.rdy() && !csts.cfs() && !csts.is_gone();
        let Some(command) = delete(&self.queues, *n).filter(|_| works) else {
            self.state = ShutdownState::Notify;
            return None;
        };
        *deadline = Some(now + self.admin_timeout);
        Some(ShutdownAsk::Admin(command))
    }

    /// The answer to the command that was asked for last, whatever it says.
    pub fn completed(&mut self, _: &AdminReply) {
        if let ShutdownState::Delete { n, deadline: deadline @ Some(_) } = &mut self.state {
            (*n, *deadline) = (*n + 1, None);
        }
    }

    /// The controller broke the protocol on the admin queue: what [`crate::Reaped::violation`] said. Nothing more is taken from that
    /// queue, so that no deletion would be answered: they are left out.
    pub fn violated(&mut self) {
        if let ShutdownState::Delete { .. } = self.state {
            self.state = ShutdownState::Notify;
        }
    }

    /// The answer to an access that was under way. One that nobody waits for is ignored.
    pub fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.accesses.answered(ticket, answer);
        self.status_poll.answered(ticket, answer);
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
