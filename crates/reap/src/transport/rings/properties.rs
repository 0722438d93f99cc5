//! The host's way to a controller's properties: at once, as registers in memory are, or late: `properties=late`, as over fabrics, and messages to
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
const MOST_TURNS: u64 = 4;

/// However few turns the controller task takes, an answer comes by then.
const MOST_TIME: Nanos = Nanos::from_micros(500);

/// The properties of one controller.
pub(crate) struct HostProperties {
    registers: ControllerRegisters,
    late: Option<Mutex<Late>>,
    /// Where the controller is not in this process.
    controller: Option<BusController>,
}

/// Answers on their way.
struct Late {
    dice: SplitMix64,
    tickets: u64,
    open: Vec<Open>,
}

struct Open {
    ticket: Ticket,
    access: Access,
    /// The value, where the access was carried out before its answer set out; else it is when the answer comes.
    value: Option<u64>,
    turns: u64,
    by: Nanos,
}

impl HostProperties {
    /// Over these registers; `late`: answers that take their time, by this seed.
    pub(in crate::transport) fn new(registers: ControllerRegisters, late: Option<u64>) -> HostProperties {
        let late = late.map(|seed| Mutex::new(Late { dice: SplitMix64::seed_from_u64(seed), tickets: 0, open: Vec::new() }));
        HostProperties { registers, late, controller: None }
    }

    /// Of a controller that is not in this process. Another process answers when it does.
    pub(super) fn controller(registers: ControllerRegisters, controller: BusController) -> HostProperties {
        HostProperties { registers, late: None, controller: Some(controller) }
    }

    /// Where each access is a message.
    fn peer(&self) -> Option<&RemoteController> {
        match &self.controller {
            Some(BusController::VfioUser(peer)) => Some(peer),
            _ => None,
        }
    }

    /// `told` is called when answers have come of which nobody knows when they come, and when none come any more.
    pub(crate) fn tell(&self, told: Arc<dyn Fn() + Send + Sync>) {
        if let Some(peer) = self.peer() {
            peer.tell(told);
        }
    }

    /// The answers that come in this turn of the controller task.
    pub(crate) fn answers(&self, now: Nanos) -> Vec<(Ticket, Answer)> {
        let Some(mut late) = self.late() else { return self.peer().map(|peer| peer.answers()).unwrap_or_default() };
        late.open.iter_mut().for_each(|open| open.turns -= 1);
        let come = late.open.extract_if(.., |open| open.turns == 0 || now >= open.by);
        come.map(|open| (open.ticket, Ok(open.value.unwrap_or_else(|| open.access.carry_out(&self.registers))))).collect()
    }

    /// When the controller task is to take a turn for an answer.
    pub(crate) fn next_answer(&self) -> Nanos {
        self.late().and_then(|late| late.open.iter().map(|open| open.by).min()).unwrap_or(Nanos::MAX)
    }

    fn late(&self) -> Option<MutexGuard<'_, Late>> {
        self.late.as_ref().map(|late| late.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Properties for HostProperties {
    fn reset_function(&self) -> bool {
        self.controller.as_ref().is_some_and(BusController::reset_function)
    }

    fn ask(&self, access: Access) -> Asked {
        if let Some(peer) = self.peer() {
            return peer.ask(access);
        }
        let Some(mut late) = self.late() else { return self.registers.ask(access) };
        let ticket = Ticket(late.tickets);
        late.tickets += 1;
        let dice = late.dice.next_u64();
        let value = (dice & 1 == 0).then(|| access.carry_out(&self.registers));
        let (turns, by) = (1 + (dice >> 1) % MOST_TURNS, hw::now() + Nanos((dice >> 8) % MOST_TIME.0));
        late.open.push(Open { ticket, access, value, turns, by });
        Asked::Later(ticket)
    }
}

#[cfg(test)]
mod tests;
