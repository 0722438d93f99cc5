//! Orderly shutdown (Base 3.6.1): delete the I/O queues, request a normal shutdown (CC.SHN), then
//! stop the controller. A state machine like bring-up.
//!
//! ```text
//!   Delete SQ …, Delete CQ …   CC.SHN = normal   wait for CSTS.SHST = complete   stop   -> Stopped
//!   on any failure:            skip to the stop                                        -> or Failed
//! ```
//!
//! Only the last step is essential: memory may be freed once the controller has stopped.

use nvme::QueueId;
use nvme::admin::{delete_cq, delete_sq};
use nvme::regs::{Cc, Csts};
use units::Nanos;

use crate::properties::{AccessError, Accesses, PollTiming, Properties, Property, StatusPoll};
use crate::stop::{Backoff, StepTimer, StopSequence, StopStatus};
use crate::{AdminCommand, AdminReply, Answer, Inventory, PropertyError, RegisterValues, Ticket};

/// An action for the executor, to be carried out before the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownAction {
    /// Step again when the reply or the property value has arrived, and at `until` at the latest.
    Wait {
        /// When.
        until: Nanos,
    },
    /// Post this on the admin queue, and pass the reply to [`Shutdown::completed`].
    Admin(AdminCommand),
    /// The controller has stopped: all memory belongs to the host again. Every later step returns
    /// this too.
    Stopped,
    /// The controller may not have stopped: leak the memory that it may still write to. Every later
    /// step returns this too.
    Failed(ShutdownError),
}

/// Shutdown failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShutdownError {
    /// The registers read as all ones.
    #[error("the controller is gone: its registers read as all ones")]
    Gone,
    /// CSTS.RDY did not become 0.
    #[error(
        "CSTS.RDY is still 1 after {waited}: the controller may still write to memory ({registers})"
    )]
    NotStopped {
        /// The time waited.
        waited: Nanos,
        /// The registers, as they were seen last.
        registers: RegisterValues,
    },
    /// A property could not be read or written.
    #[error("{error}: the controller may still write to memory ({registers})")]
    Property {
        /// The access, and why it failed.
        error: PropertyError,
        /// The registers, as they were seen last.
        registers: RegisterValues,
    },
}

/// The shutdown state machine.
#[derive(Clone, Debug)]
pub struct Shutdown {
    state: ShutdownState,
    queues: Vec<QueueId>,
    /// Time-out of an admin command.
    admin_timeout: Nanos,
    /// Time-out of CSTS.SHST.
    timeout: Nanos,
    accesses: Accesses,
    /// Polls CSTS while a command is in flight.
    status_poll: StatusPoll,
    step_timer: StepTimer,
}

#[derive(Clone, Debug)]
enum ShutdownState {
    /// Deletes the submission queues, then the completion queues. `n` counts both.
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
    /// The minimum time to wait for CSTS.SHST. A controller may report a longer one (RTD3E).
    const DEFAULT_TIMEOUT: Nanos = Nanos::from_secs(5);

    /// Shuts down the controller that `inventory` describes. Nothing may be posted on its I/O
    /// queues any more.
    pub fn new(inventory: &Inventory, admin_timeout: Nanos) -> Shutdown {
        // RTD3E may be 0 (not reported) or implausibly short.
        let timeout =
            Nanos::from_micros(inventory.shutdown_micros.into()).max(Shutdown::DEFAULT_TIMEOUT);
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

    /// Advances as far as possible. If the executor steps later than it was asked to, the excess
    /// counts towards no deadline.
    pub fn step(&mut self, now: Nanos, properties: &impl Properties) -> ShutdownAction {
        let overrun = self.step_timer.overrun(now);
        match &mut self.state {
            ShutdownState::Stopping(stop) => stop.extend(overrun),
            ShutdownState::Notified(backoff) => backoff.extend(overrun),
            ShutdownState::Delete { deadline: Some(deadline), .. } => *deadline += overrun,
            _ => {}
        }
        let mut ask = loop {
            let action = match self.advance(now, properties) {
                // The round continues at the next step, so its accesses are kept.
                Err(AccessError::WouldBlock(until)) => break ShutdownAction::Wait { until },
                // Everything before the stop is best effort.
                Err(AccessError::Failed(_)) => {
                    self.state = ShutdownState::Stopping(StopSequence::Start);
                    None
                }
                Ok(action) => action,
            };
            self.accesses.end_round();
            if let Some(action) = action {
                break action;
            }
        };
        if let ShutdownAction::Wait { until } = &mut ask {
            self.step_timer.schedule_within(now, until);
        }
        ask
    }

    fn advance(
        &mut self,
        now: Nanos,
        properties: &impl Properties,
    ) -> Result<Option<ShutdownAction>, AccessError> {
        let mut round = self.accesses.round(now, self.admin_timeout, properties);
        match &mut self.state {
            ShutdownState::Delete { deadline: None, .. } => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                return Ok(self.delete(now, csts));
            }
            ShutdownState::Delete { deadline: Some(deadline), .. } => {
                let (deadline, timing) = (
                    *deadline,
                    PollTiming { timeout: self.admin_timeout, interval: Backoff::MAX_INTERVAL },
                );
                let (csts, until) =
                    self.status_poll.poll(now, timing, properties).map_err(AccessError::Failed)?;
                if csts.is_some_and(Csts::is_gone) {
                    self.state = ShutdownState::Failed(ShutdownError::Gone);
                // A controller that stopped or failed will complete no deletion.
                } else if now >= deadline || csts.is_some_and(|csts| csts.cfs() || !csts.rdy()) {
                    self.state = ShutdownState::Notify;
                } else {
                    return Ok(Some(ShutdownAction::Wait { until: until.min(deadline) }));
                }
            }
            ShutdownState::Notify => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                let cc = Cc::from_bits(round.get32(Property::Cc)?);
                // SHN has an effect only while the controller is enabled and ready.
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
                    // A time-out is no error: the stop that follows decides.
                    Ok(until) if csts.shst() != Csts::SHST_COMPLETE && !csts.cfs() => {
                        return Ok(Some(ShutdownAction::Wait { until }));
                    }
                    // Whether shutdown completed, failed or timed out, the controller is stopped.
                    _ => self.state = ShutdownState::Stopping(StopSequence::Start),
                }
            }
            ShutdownState::Stopping(stop) => match stop.step(&mut round) {
                StopStatus::Again => {}
                StopStatus::Wait(until) => return Err(AccessError::WouldBlock(until)),
                StopStatus::Stopped => self.state = ShutdownState::Stopped,
                StopStatus::TimedOut(waited) => {
                    self.state = ShutdownState::Failed(ShutdownError::NotStopped {
                        waited,
                        registers: self.accesses.registers(),
                    });
                }
                StopStatus::Gone => self.state = ShutdownState::Failed(ShutdownError::Gone),
                StopStatus::Failed(error) => {
                    self.state = ShutdownState::Failed(ShutdownError::Property {
                        error,
                        registers: self.accesses.registers(),
                    })
                }
            },
            ShutdownState::Stopped => return Ok(Some(ShutdownAction::Stopped)),
            ShutdownState::Failed(error) => return Ok(Some(ShutdownAction::Failed(*error))),
        }
        Ok(None)
    }

    /// Posts the next command that deletes a queue. Deleting is best effort: a controller that
    /// rejects or ignores a command is shut down and stopped anyway.
    fn delete(&mut self, now: Nanos, csts: Csts) -> Option<ShutdownAction> {
        let ShutdownState::Delete { n, deadline } = &mut self.state else { return None };
        // CSTS was read before each deletion: on a stopped controller every deletion would time
        // out.
        let works = csts.rdy() && !csts.cfs() && !csts.is_gone();
        let Some(command) = delete(&self.queues, *n).filter(|_| works) else {
            self.state = ShutdownState::Notify;
            return None;
        };
        *deadline = Some(now + self.admin_timeout);
        Some(ShutdownAction::Admin(command))
    }

    /// The reply to the last command, whatever its status.
    pub fn completed(&mut self, _: &AdminReply) {
        if let ShutdownState::Delete { n, deadline: deadline @ Some(_) } = &mut self.state {
            (*n, *deadline) = (*n + 1, None);
        }
    }

    /// The controller broke the protocol on the admin queue ([`crate::Reaped::violation`]). The
    /// queue takes no more entries, so the remaining deletions are skipped.
    pub fn violated(&mut self) {
        if let ShutdownState::Delete { .. } = self.state {
            self.state = ShutdownState::Notify;
        }
    }

    /// The value of a property access in progress. Ignored if the access is no longer pending.
    pub fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.accesses.answered(ticket, answer);
        self.status_poll.answered(ticket, answer);
    }
}

/// The n-th deletion. A completion queue must be deleted after its submission queues (Base 5.2.3).
fn delete(queues: &[QueueId], n: usize) -> Option<AdminCommand> {
    let sqe = match queues.get(n) {
        Some(&queue) => delete_sq(queue),
        None => delete_cq(*queues.get(n.checked_sub(queues.len())?)?),
    };
    Some(AdminCommand { sqe, needs_page: false })
}

#[cfg(all(test, not(loom)))]
mod tests;
