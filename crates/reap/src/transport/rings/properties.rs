//! Access to a controller's properties (Base §3.1.4): registers in memory answer at once; a
//! vfio-user server answers by message; `properties=late` delays an embedded controller's answers,
//! as over fabrics, for tests.
//!
//! ```text
//!   controller task: ask(access) ─► AccessPoll::Ready(value)      registers
//!                                └► AccessPoll::Pending(ticket)   messages, properties=late
//!                    answers()   ─► (ticket, value) …      in a later turn
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::{Access, AccessPoll, Answer, Properties, Ticket};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

use crate::transport::registers::ControllerRegisters;
use crate::transport::tcp::TcpController;
use crate::transport::vfio_user::RemoteController;

use super::BusController;

/// A delayed answer comes within this many turns of the controller task.
const MAX_TURNS: u64 = 4;

/// A delayed answer comes within this time, however few turns the controller task takes.
const MAX_DELAY: Nanos = Nanos::from_micros(500);

/// The properties of one controller.
pub(crate) struct HostProperties {
    registers: ControllerRegisters,
    delayed: Option<Mutex<DelayedAnswers>>,
    /// The controller outside this process, if it is one.
    controller: Option<BusController>,
}

/// Answers that have not come yet.
struct DelayedAnswers {
    rng: SplitMix64,
    tickets: u64,
    open: Vec<DelayedAnswer>,
}

struct DelayedAnswer {
    ticket: Ticket,
    access: Access,
    /// The value, if the access was carried out when it was asked for; `None`: it is carried out
    /// when the answer comes. Which one is random: a host must work with both.
    value: Option<u64>,
    turns: u64,
    by: Nanos,
}

impl HostProperties {
    /// For an embedded controller. `delayed`: the seed of delayed answers.
    pub(in crate::transport) fn new(
        registers: ControllerRegisters,
        delayed: Option<u64>,
    ) -> HostProperties {
        let delayed = delayed.map(|seed| {
            Mutex::new(DelayedAnswers {
                rng: SplitMix64::seed_from_u64(seed),
                tickets: 0,
                open: Vec::new(),
            })
        });
        HostProperties { registers, delayed, controller: None }
    }

    /// For a controller outside this process.
    pub(super) fn on_bus(
        registers: ControllerRegisters,
        controller: BusController,
    ) -> HostProperties {
        HostProperties { registers, delayed: None, controller: Some(controller) }
    }

    fn tcp(&self) -> Option<&TcpController> {
        match &self.controller {
            Some(BusController::Tcp(tcp)) => Some(tcp),
            _ => None,
        }
    }

    /// The vfio-user server, for which each access is a message.
    fn remote(&self) -> Option<&RemoteController> {
        match &self.controller {
            Some(BusController::VfioUser(remote)) => Some(remote),
            _ => None,
        }
    }

    /// Calls `notify` when a server's answer arrives or its connection ends.
    pub(crate) fn set_notify(&self, notify: Arc<dyn Fn() + Send + Sync>) {
        if let Some(remote) = self.remote() {
            remote.notify_by(notify);
        }
    }

    /// The answers that arrive in this turn of the controller task.
    pub(crate) fn answers(&self, now: Nanos) -> Vec<(Ticket, Answer)> {
        if let Some(tcp) = self.tcp() {
            return tcp.answers();
        }
        // Only a delayed embedded controller keeps answers here; a server's are with its client.
        let Some(mut delayed) = self.delayed() else {
            return self.remote().map(|remote| remote.answers()).unwrap_or_default();
        };
        // One turn has passed for every answer.
        delayed.open.iter_mut().for_each(|open| open.turns -= 1);
        let come = delayed.open.extract_if(.., |open| open.turns == 0 || now >= open.by);
        come.map(|open| {
            (open.ticket, Ok(open.value.unwrap_or_else(|| open.access.carry_out(&self.registers))))
        })
        .collect()
    }

    /// When the controller task must take its next turn for an answer; MAX: no answer is due at a
    /// known time.
    pub(crate) fn next_answer(&self) -> Nanos {
        self.delayed()
            .and_then(|delayed| delayed.open.iter().map(|open| open.by).min())
            .unwrap_or(Nanos::MAX)
    }

    fn delayed(&self) -> Option<MutexGuard<'_, DelayedAnswers>> {
        self.delayed.as_ref().map(|delayed| delayed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Properties for HostProperties {
    fn reset_function(&self) -> bool {
        self.controller.as_ref().is_some_and(BusController::reset_function)
    }

    fn ask(&self, access: Access) -> AccessPoll {
        match &self.controller {
            Some(BusController::VfioUser(remote)) => return remote.ask(access),
            Some(BusController::Tcp(tcp)) => return tcp.ask(access),
            _ => {}
        }
        let Some(mut delayed) = self.delayed() else { return self.registers.ask(access) };
        let ticket = Ticket(delayed.tickets);
        delayed.tickets += 1;
        // One random number decides it all, so that a seed replays exactly.
        let rng = delayed.rng.next_u64();
        // Half of the accesses take effect at once, half with their answer.
        let value = (rng & 1 == 0).then(|| access.carry_out(&self.registers));
        let (turns, by) = (1 + (rng >> 1) % MAX_TURNS, hw::now() + Nanos((rng >> 8) % MAX_DELAY.0));
        delayed.open.push(DelayedAnswer { ticket, access, value, turns, by });
        AccessPoll::Pending(ticket)
    }
}

#[cfg(test)]
mod tests;
