//! A controller that is one of several paths: what its keeper does for those who wait for it, or no longer do.

use driver::multipath::Link as PathLink;
use driver::{AdminCommand, Dead, Purpose, ResetCause};
use nvme::Status;
use nvme::log::ana::AnaLog;
use nvme::log::lid;
use units::Nanos;

use super::{Keeper, Life, lock};
use crate::request::How;

impl Keeper {
    /// The queues are closed, a reset begins: nothing more is sent this way. A controller that has left a command unanswered may
    /// not answer the reset either: it counts as lost until it has, so that reads go another way at once.
    pub(super) fn path_resets(&mut self, cause: &ResetCause) {
        self.keep_alive_at = Nanos::MAX;
        if self.link.seat().is_none() {
            return;
        }
        if matches!(cause, ResetCause::Unanswered { .. }) && self.link.cut_off() {
            self.give_back();
            self.tell(PathLink::Lost);
            return;
        }
        self.tell(PathLink::Resetting);
    }

    /// The controller does not answer. It is kept away from the host's memory, so that all requests can be given back at
    /// once; what of them it may still carry out is for those who sent them to consider.
    pub(super) fn path_lost(&mut self, dead: &Dead) {
        tracing::warn!(why = %dead, "a path is lost");
        if self.link.cut_off() {
            self.give_back();
        }
        self.tell(PathLink::Lost);
    }

    /// The controller has stopped: nothing that was sent to it will be carried out any more.
    pub(super) fn path_stopped(&mut self) {
        if self.link.seat().is_none() {
            return;
        }
        self.give_back();
        self.link.let_in();
        self.tell(PathLink::Connecting);
    }

    /// The controller works, and knows its ANA states.
    pub(super) fn path_up(&mut self, now: Nanos) {
        let Some(seat) = self.link.seat() else { return };
        if self.inventory.keep_alive > Nanos::ZERO {
            self.keep_alive_at = now;
        }
        if self.inventory.subsystem.ana_transition.is_some() {
            // Until it has been read the state counts as the one that was, and statuses tell if it is another.
            self.events.read(lid::ANA);
        }
        let seat = seat.clone();
        self.queues.iter().for_each(|queue| queue.revive());
        seat.set_link(PathLink::Live);
        self.queues.iter().flat_map(|queue| &queue.softs).for_each(|soft| soft.tell());
    }

    /// Requests that are in flight and those that wait for a tag end, and have their buffers back.
    fn give_back(&mut self) {
        for (n, queue) in self.queues.iter().enumerate() {
            let commands = queue.pair.abandon();
            self.abandoned.push((n, commands));
        }
        self.return_abandoned(How::Dead);
        self.queues.iter().for_each(|queue| queue.fail());
    }

    fn tell(&self, link: PathLink) {
        let Some(seat) = self.link.seat() else { return };
        seat.set_link(link);
        self.queues.iter().flat_map(|queue| &queue.softs).for_each(|soft| soft.tell());
    }

    /// Sends Keep Alive in time, and does what queues have asked for. When to come again.
    pub(super) fn look_after_path(&mut self, now: Nanos) -> Nanos {
        let Some(seat) = self.link.seat().cloned() else { return Nanos::MAX };
        let Life::Live(recovery) = &mut self.life else { return Nanos::MAX };
        if seat.take_reset_wish() && recovery.is_watching() {
            recovery.reset();
        }
        if seat.take_ana_wish() {
            self.events.read(lid::ANA);
        }
        if !lock(&self.asks.violations).is_empty() || !recovery.is_watching() {
            return Nanos::MAX;
        }
        if now >= self.keep_alive_at {
            let command = AdminCommand { sqe: nvme::admin::keep_alive(), page: false };
            self.admin.post(&self.link, command, Purpose::KeepAlive, now);
            self.keep_alive_at = now + Nanos(self.inventory.keep_alive.0 / 4);
        }
        self.keep_alive_at
    }

    /// The controller has answered the request for a log page: that of ANA is for those who choose among paths.
    pub(super) fn log_answered(&mut self, page: u64, status: Status) {
        let bytes = self.admin.take_page();
        if let Some(seat) = self.link.seat()
            && status.is_success()
            && page == u64::from(lid::ANA)
        {
            match AnaLog::from_bytes(bytes) {
                Ok(log) => seat.set_ana(&log),
                Err(error) => tracing::warn!(path = seat.path.0, %error, "a path's ANA log page cannot be read"),
            }
        }
        self.events.log_read();
    }
}
