//! Shutdown: the I/O queues are deleted, the controller is told, and then stopped (Base 3.6.1). A state machine like
//! bring-up: stepped with the time and the registers.

use nvme::admin::{DeleteCq, DeleteSq};
use nvme::regs::{self, Cc, Csts};
use nvme::{QueueId, Registers};
use units::Nanos;

use crate::stop::{Patience, RegisterValues, Stop, Stopping, ready_timeout};
use crate::{AdminCommand, AdminReply, Inventory};

/// What shutdown asks of its executor. Each is to be carried out before the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownAsk {
    /// Step again when the reply has come, and at `until` at the latest.
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
        /// The registers, as they were read last.
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
    Stop,
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
        Shutdown { state: State::Delete { n: 0, deadline: None }, queues, admin_timeout, timeout }
    }

    /// Goes on as far as it can.
    pub fn step(&mut self, now: Nanos, registers: &impl Registers) -> ShutdownAsk {
        loop {
            if let Some(ask) = self.advance(now, registers) {
                return ask;
            }
        }
    }

    fn advance(&mut self, now: Nanos, registers: &impl Registers) -> Option<ShutdownAsk> {
        let csts = Csts::from_bits(registers.read32(regs::CSTS));
        if csts.is_gone() && !matches!(self.state, State::Stopped | State::Failed(_)) {
            self.state = State::Failed(ShutdownError::Gone);
        }
        match &mut self.state {
            State::Delete { n, deadline } => {
                // Each is a courtesy: a controller that does not answer is notified and stopped all the same.
                let over = deadline.is_some_and(|deadline| now >= deadline) || csts.cfs() || !csts.rdy();
                let Some(command) = delete(&self.queues, *n).filter(|_| !over) else {
                    self.state = State::Notify;
                    return None;
                };
                if let Some(until) = *deadline {
                    return Some(ShutdownAsk::Wait { until });
                }
                *deadline = Some(now + self.admin_timeout);
                return Some(ShutdownAsk::Admin(command));
            }
            State::Notify => {
                let cc = Cc::from_bits(registers.read32(regs::CC));
                if cc.en() && csts.rdy() && !csts.cfs() {
                    registers.write32(regs::CC, cc.with_shn(Cc::SHN_NORMAL).into_bits());
                    self.state = State::Notified(Patience::new(now, self.timeout));
                } else {
                    self.state = State::Stop;
                }
            }
            State::Notified(patience) => match patience.next(now) {
                Ok(until) if csts.shst() != Csts::SHST_COMPLETE && !csts.cfs() => return Some(ShutdownAsk::Wait { until }),
                _ => self.state = State::Stop,
            },
            State::Stop => {
                let cap = regs::Cap::from_bits(registers.read64(regs::CAP));
                self.state = State::Stopping(Stop::new(now, ready_timeout(registers, cap)));
            }
            State::Stopping(stop) => match stop.step(now, registers) {
                Stopping::Wait(until) => return Some(ShutdownAsk::Wait { until }),
                Stopping::Stopped => self.state = State::Stopped,
                Stopping::Stuck(waited) => {
                    let registers = RegisterValues::read(registers);
                    self.state = State::Failed(ShutdownError::NotStopped { waited, registers });
                }
                Stopping::Gone => self.state = State::Failed(ShutdownError::Gone),
            },
            State::Stopped => return Some(ShutdownAsk::Stopped),
            State::Failed(error) => return Some(ShutdownAsk::Failed(*error)),
        }
        None
    }

    /// The answer to the command that was asked for last, whatever it says.
    pub fn completed(&mut self, _: &AdminReply) {
        if let State::Delete { n, deadline: deadline @ Some(_) } = &mut self.state {
            (*n, *deadline) = (*n + 1, None);
        }
    }
}

/// The n-th deletion: a completion queue may go only after its submission queue (Base 5.2.3).
fn delete(queues: &[QueueId], n: usize) -> Option<AdminCommand> {
    let sqe = match queues.get(n) {
        Some(&queue) => DeleteSq { queue }.to_sqe(),
        None => DeleteCq { queue: *queues.get(n.checked_sub(queues.len())?)? }.to_sqe(),
    };
    Some(AdminCommand { sqe, page: false })
}

#[cfg(all(test, not(loom)))]
mod tests;
