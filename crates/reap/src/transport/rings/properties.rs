//! The host's way to a controller's properties: at once, as registers in memory are, or delayed: `properties=delayed`, as over fabrics, and messages to
//! another process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::{Access, Answer, Asked, Properties, Ticket};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

use crate::transport::registers::ControllerRegisters;
use crate::transport::vfio_user::RemoteController;

use super::BusController;

/// The latest of the controller task's turns in which an answer comes, counted from the next.
const MAX_TURNS: u64 = 4;

/// However few turns the controller task takes, an answer comes by then.
const MAX_DELAY: Nanos = Nanos::from_micros(500);

/// The properties of one controller.
pub(crate) struct HostProperties {
    registers: ControllerRegisters,
    delayed: Option<Mutex<DelayedAnswers>>,
    /// Where the controller is not in this process.
    controller: Option<BusController>,
}

/// Answers on their way.
struct DelayedAnswers {
    dice: SplitMix64,
    tickets: u64,
    open: Vec<DelayedAnswer>,
}

struct DelayedAnswer {
    ticket: Ticket,
    access: Access,
    /// The value, where the access was carried out before its answer set out; else it is when the answer comes.
    value: Option<u64>,
    turns: u64,
    by: Nanos,
}

impl HostProperties {
    /// Over these registers; `delayed`: answers that take their time, by this seed.
    pub(in crate::transport) fn new(registers: ControllerRegisters, delayed: Option<u64>) -> HostProperties {
        let delayed =
            delayed.map(|seed| Mutex::new(DelayedAnswers { dice: SplitMix64::seed_from_u64(seed), tickets: 0, open: Vec::new() }));
        HostProperties { registers, delayed, controller: None }
    }

    /// Of a controller that is not in this process. Another process answers when it does.
    pub(super) fn on_bus(registers: ControllerRegisters, controller: BusController) -> HostProperties {
        HostProperties { registers, delayed: None, controller: Some(controller) }
    }

    /// Where each access is a message.
    fn remote(&self) -> Option<&RemoteController> {
        match &self.controller {
            Some(BusController::VfioUser(remote)) => Some(remote),
            _ => None,
        }
    }

    /// `told` is called when answers have come of which nobody knows when they come, and when none come any more.
    pub(crate) fn tell(&self, notify: Arc<dyn Fn() + Send + Sync>) {
        if let Some(remote) = self.remote() {
            remote.notify_by(notify);
        }
    }

    /// The answers that come in this turn of the controller task.
    pub(crate) fn answers(&self, now: Nanos) -> Vec<(Ticket, Answer)> {
        let Some(mut delayed) = self.delayed() else { return self.remote().map(|remote| remote.answers()).unwrap_or_default() };
        delayed.open.iter_mut().for_each(|open| open.turns -= 1);
        let come = delayed.open.extract_if(.., |open| open.turns == 0 || now >= open.by);
        come.map(|open| (open.ticket, Ok(open.value.unwrap_or_else(|| open.access.carry_out(&self.registers))))).collect()
    }

    /// When the controller task is to take a turn for an answer.
    pub(crate) fn next_answer(&self) -> Nanos {
        self.delayed().and_then(|delayed| delayed.open.iter().map(|open| open.by).min()).unwrap_or(Nanos::MAX)
    }

    fn delayed(&self) -> Option<MutexGuard<'_, DelayedAnswers>> {
        self.delayed.as_ref().map(|delayed| delayed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Properties for HostProperties {
    fn reset_function(&self) -> bool {
        self.controller.as_ref().is_some_and(BusController::reset_function)
    }

    fn ask(&self, access: Access) -> Asked {
        if let Some(remote) = self.remote() {
            return remote.ask(access);
        }
        let Some(mut delayed) = self.delayed() else { return self.registers.ask(access) };
        let ticket = Ticket(delayed.tickets);
        delayed.tickets += 1;
        let dice = delayed.dice.next_u64();
        let value = (dice & 1 == 0).then(|| access.carry_out(&self.registers));
        let (turns, by) = (1 + (dice >> 1) % MAX_TURNS, hw::now() + Nanos((dice >> 8) % MAX_DELAY.0));
        delayed.open.push(DelayedAnswer { ticket, access, value, turns, by });
        Asked::Later(ticket)
    }
}

#[cfg(test)]
mod tests;
