//! Law 7, as the threads of a hardware queue keep it: nobody leaves a debt. What [`handover::Debt`] decides is carried out here.
//!
//! | who stops | what becomes of the debt |
//! | --- | --- |
//! | the thread that sleeps, naps or waits in a loop of its own, and has the notification | it waits until the lane takes bytes, too |
//! | another that sleeps or naps | the same, unless the owner of the look role sleeps, and is told |
//! | a thread that goes back to its caller | the owner of the look role is told; without one, the housekeeping thread |
//! | the housekeeping thread | the same: it tries again when the lane takes bytes |

use handover::{Leave, SleeperId};

use super::HwQueue;
use crate::link::StreamLane;
use crate::wake::Wake;

impl HwQueue {
    /// Whether something is announced that is not sent yet.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.lane.owes()
    }

    /// Sends it, as far as the lane takes it; a thread that is sending at this moment sees to it.
    #[cold]
    pub(crate) fn settle(&self) {
        self.lane.stream().into_iter().for_each(StreamLane::settle);
    }

    /// A thread that is about to block on its own bell, which is armed, or, if the notification is its own, on that too: whether it
    /// has to wait until the lane takes bytes.
    #[cold]
    pub(crate) fn has_to_wait_for_room(&self, owner: bool) -> bool {
        let Some(lane) = self.lane.stream().filter(|lane| lane.debt().owes() && lane.habits().sleepers_wait) else { return false };
        owner || !self.hand_on(lane, self.role.owner())
    }

    /// A thread that goes back to its caller, and has given the look role back, if it had it. `looping`: the software queue whose
    /// thread waits in a loop of its own.
    #[cold]
    pub(crate) fn stops_owing(&self, looping: Option<SleeperId>) {
        let Some(lane) = self.lane.stream() else { return };
        let sleeper = if self.is_shared() { self.role.owner() } else { looping };
        if !self.hand_on(lane, sleeper) && lane.habits().leavers_hand_on {
            lane.leave_debt();
            self.reporter.kick();
        }
    }

    /// Whether the debt is the sleeper's, who has been told, or is awake and asks by itself.
    fn hand_on(&self, lane: &StreamLane, sleeper: Option<SleeperId>) -> bool {
        let wake = sleeper.map(|sleeper| self.wake_of(sleeper));
        match lane.debt().leave(wake.map(Wake::bell)) {
            Leave::Free => true,
            Leave::Signal => {
                if lane.habits().debtors_ring {
                    wake.into_iter().for_each(Wake::signal);
                }
                true
            }
            Leave::Stay => false,
        }
    }

    /// What wakes a thread that the look role knows.
    pub(super) fn wake_of(&self, sleeper: SleeperId) -> &Wake {
        self.softs.get(sleeper.0 as usize).map_or(&self.drain.wake, |soft| &soft.wake)
    }
}
