//! What the keeper of a controller that is one of several paths does for the threads that send by it. The same as the engine's
//! housekeeping does, in virtual time.

use driver::multipath::Link;
use driver::{AdminCommand, Inventory, Purpose, Reading, ResetCause};
use nvme::log::lid;

use super::keeper::Seat;
use super::task::Task;
use super::*;

impl World<'_> {
    fn seat(&mut self, n: usize) -> Option<&mut Seat> {
        self.devices[n].keeper.seat.as_mut()
    }

    /// The ANA log page is to be read: a status told of a change.
    pub(super) fn read_ana(&mut self, n: usize) -> Result<(), SimError> {
        if let Some(seat) = self.seat(n) {
            seat.events.read(Reading::Log(lid::ANA));
        }
        self.keep(n)
    }

    /// A thread wants the controller to be reset.
    pub(super) fn reset(&mut self, n: usize) -> Result<(), SimError> {
        if let Some((recovery, _)) = &mut self.devices[n].keeper.recovery {
            recovery.reset();
        }
        self.keep(n)
    }

    /// A reset begins: nothing more is sent this way. A controller that has left something unanswered may not answer the reset
    /// either: it counts as lost until it has.
    pub(super) fn path_resets(&mut self, n: usize, cause: &ResetCause) -> Result<(), SimError> {
        let Some(seat) = self.seat(n) else { return Ok(()) };
        seat.keep_alive_at = Nanos::MAX;
        if cause.is_silence() {
            return self.path_lost(n);
        }
        self.set_link(n, Link::Resetting);
        Ok(())
    }

    /// The controller does not answer: it is kept away from the host's memory, so that all requests can be given back.
    pub(super) fn path_lost(&mut self, n: usize) -> Result<(), SimError> {
        let Some(seat) = self.seat(n) else { return Ok(()) };
        seat.cut.set(true);
        self.give_back(n)?;
        self.set_link(n, Link::Lost);
        Ok(())
    }

    /// The controller has stopped: nothing that was sent to it will be carried out any more.
    pub(super) fn path_stopped(&mut self, n: usize) -> Result<(), SimError> {
        let Some(seat) = self.seat(n) else { return Ok(()) };
        seat.events.forget();
        seat.cut.set(false);
        self.give_back(n)?;
        self.set_link(n, Link::Connecting);
        Ok(())
    }

    /// The controller works again.
    pub(super) fn path_up(&mut self, n: usize, inventory: &Inventory) {
        let now = self.now;
        let Some(seat) = self.seat(n) else { return };
        seat.up(inventory, now);
        self.set_link(n, Link::Live);
    }

    /// Every command that is in flight ends.
    fn give_back(&mut self, n: usize) -> Result<(), SimError> {
        let Attached { keeper, queues, .. } = &mut self.devices[n];
        for pair in self.queues[queues.clone()].iter().flat_map(HwQueue::pairs) {
            keeper.taken_back.extend(pair.abandon().iter().map(|command| (command.token, driver::Buffers::Returned)));
        }
        self.return_commands(n)
    }

    fn set_link(&mut self, n: usize, link: Link) {
        if let Some(seat) = self.seat(n) {
            seat.standing = seat.standing.with_link(link);
        }
        self.tell_of_path(n);
    }

    /// Every thread that sends by the path is told how it stands.
    pub(super) fn tell_of_path(&mut self, n: usize) {
        let Some(standing) = self.seat(n).map(|seat| seat.standing) else { return };
        for task in 0..self.plan.threads.len() {
            if !self.targets[task].contains(&n) {
                continue;
            }
            if let Some(thread) = self.tasks.get_mut(task).and_then(Task::thread_mut) {
                thread.tell(n, standing);
            }
            self.poke(task);
        }
    }

    /// While the controller is in use: requests for events, log pages, Keep Alive. When to come again.
    pub(super) fn look_after_path(&mut self, n: usize) -> Nanos {
        let now = self.now;
        let Attached { keeper, bells, .. } = &mut self.devices[n];
        let Some(mut seat) = keeper.seat.take() else { return Nanos::MAX };
        if !keeper.is_busy() {
            while let Some((command, purpose)) = seat.events.next_command(now) {
                if !keeper.post(command, purpose, now, bells) {
                    seat.events.not_posted(purpose);
                    break;
                }
            }
            if now >= seat.keep_alive_at {
                keeper.post(AdminCommand { sqe: nvme::admin::keep_alive(), page: false }, Purpose::KeepAlive, now, bells);
                seat.keep_alive_at = now + Nanos(seat.keep_alive.0 / 4);
            }
        }
        let until = seat.keep_alive_at.min(seat.events.until(now));
        keeper.seat = Some(seat);
        until
    }
}
