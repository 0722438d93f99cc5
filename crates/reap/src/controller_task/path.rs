//! A controller that is one of several paths: what its task does for those who wait for it, or no longer do.

use driver::multipath::{Link as PathLink, PathTraits};
use driver::{AdminCommand, Dead, Inventory, Purpose, Reading, ResetCause};
use nvme::Status;
use nvme::log::lid;
use units::Nanos;

use super::{ControllerTask, Life};
use crate::request::{PATH_LOST, STOPPED};
use crate::shared::events::EventKind;
use crate::transport::ServerEvent;

impl ControllerTask {
    /// The queues are closed, a reset begins: nothing more is sent this way. A controller that has left something unanswered may
    /// not answer the reset either: it counts as lost until it has, so that reads go another way at once.
    pub(super) fn path_resets(&mut self, cause: &ResetCause) {
        self.keep_alive_at = Nanos::MAX;
        if self.path_handle.is_none() {
            return;
        }
        if cause.is_silence()
            && let Some(how) = self.given_back()
        {
            self.give_back(how);
            self.tell(PathLink::Lost);
            return;
        }
        self.tell(PathLink::Resetting);
    }

    /// The controller does not answer. It is kept away from the host's memory, or from the buffers of Reads, so that all requests can be given back
    /// at once; what of them it may still carry out is for those who sent them to consider.
    pub(super) fn path_lost(&mut self, dead: &Dead) {
        tracing::warn!(why = %dead, "a path is lost");
        if let Some(how) = self.given_back() {
            self.give_back(how);
        }
        self.tell(PathLink::Lost);
    }

    /// The controller has stopped: nothing that was sent to it will be carried out any more.
    pub(super) fn path_stopped(&mut self) {
        if self.path_handle.is_none() {
            return;
        }
        self.give_back(STOPPED);
        self.controller.let_in();
        self.tell(PathLink::Connecting);
    }

    /// The controller works. If it has been away, what became of its cache has to be known before anything is sent there.
    pub(super) fn path_up(&mut self, now: Nanos) {
        if self.path_handle.is_none() {
            return;
        }
        if self.inventory.keep_alive > Nanos::ZERO {
            self.keep_alive_at = now;
        }
        if let Some(what) = self.is_another() {
            self.note(format!(
                "what is served there now is not taken: {what}; serve there what was served before, or open the device again"
            ));
            return self.tell(PathLink::Lost);
        }
        self.tell_sizes();
        if self.inventory.limits.is_some_and(|limits| limits.volatile_cache) {
            self.returning = self.has_been_up;
            self.events.read(Reading::Log(lid::SMART));
        }
        if self.inventory.subsystem.ana_transition.is_some() {
            // Until it has been read the state counts as the one that was, and statuses tell if it is another.
            self.events.read(Reading::Log(lid::ANA));
        }
        if !self.returning {
            self.path_is_up();
        }
        self.has_been_up = true;
    }

    /// Whether what answers is another controller than the one that the path was opened with, or leads elsewhere: in what.
    fn is_another(&mut self) -> Option<String> {
        let (path_handle, joined) = (self.path_handle.as_ref()?, self.joined.as_ref());
        let Some(joined) = joined else {
            self.joined = Some(Box::new(self.inventory.clone()));
            return None;
        };
        let (was, is) = (&joined.subsystem, &self.inventory.subsystem);
        if was.nqn != is.nqn {
            return Some(format!("its subsystem is {}, and was {}", is.nqn, was.nqn));
        }
        if was.controller != is.controller {
            return Some(format!("it is controller {:#06x} of its subsystem, and was {:#06x}", is.controller, was.controller));
        }
        let of = |inventory: &Inventory| inventory.namespaces.iter().find(|namespace| namespace.nsid == path_handle.nsid()).copied();
        let (was, is) = (of(joined)?, of(&self.inventory));
        match is {
            Some(is) if is.is_still(&was) => None,
            Some(_) => Some(format!("namespace {} has other identifiers, or another block size", was.nsid)),
            None => Some(format!("namespace {} is not there", was.nsid)),
        }
    }

    /// What has happened to the way to the controller.
    pub(super) fn hear_of_the_way(&mut self) {
        while let Some(news) = self.controller.news() {
            match news {
                ServerEvent::Ended(why) if self.path_handle.is_some() && matches!(self.life, Life::Live(_)) => {
                    let why = format!("{why}; a server that serves the same there is used again");
                    self.asks.reporter.push(EventKind::Disconnected(why));
                }
                ServerEvent::Ended(why) => self.asks.reporter.push(EventKind::Disconnected(format!("{why}; open the device again"))),
                ServerEvent::Back => {
                    self.reconnected = true;
                    self.asks.reporter.push(EventKind::Reconnected);
                }
                ServerEvent::Note(what) => self.note(what),
            }
        }
    }

    /// The controller has been away since then, and nothing is sent to it: if that is because its server has gone, that is looked for.
    pub(super) fn look_for_it(&self, lost_since: Nanos) {
        if self.path_handle.is_some() && !self.asks.is_closing() {
            let quiet = PathTraits::of(&self.inventory).quiesce_after;
            self.controller.look_for_it(quiet.map_or(Nanos::MAX, |quiet| lost_since + quiet));
        }
    }

    /// Requests may be sent there.
    pub(super) fn path_is_up(&mut self) {
        let Some(path_handle) = self.path_handle.clone() else { return };
        self.users().for_each(|user| user.revive());
        path_handle.set_link(PathLink::Live);
        self.queues.iter().for_each(|queue| queue.notice_all());
    }

    /// How what was sent to a controller that does not answer is given back at once, where there are other ways to its namespace: with all buffers,
    /// where it can be kept from the host's memory. Nobody can keep one of another process from it, so the buffers of Reads are left to that.
    pub(super) fn given_back(&self) -> Option<Status> {
        self.path_handle.as_ref()?;
        Some(if self.controller.cut_off() { STOPPED } else { PATH_LOST })
    }

    /// Requests that were in flight, and have been taken back, and those that wait for a tag end.
    fn give_back(&mut self, status: Status) {
        self.ended_aborts.clear();
        self.return_abandoned(status);
        self.users().for_each(|user| user.fail_all());
    }

    pub(super) fn tell(&self, link: PathLink) {
        let Some(path_handle) = &self.path_handle else { return };
        path_handle.set_link(link);
        self.queues.iter().for_each(|queue| queue.notice_all());
    }

    /// Sends Keep Alive in time, and does what queues have asked for. When to come again.
    pub(super) fn look_after_path(&mut self, now: Nanos) -> Nanos {
        let Some(path_handle) = self.path_handle.clone() else { return Nanos::MAX };
        if path_handle.take_news_wish() {
            self.events.read(Reading::Log(lid::ANA));
            self.tell_sizes();
        }
        let Life::Live(recovery) = &mut self.life else { return Nanos::MAX };
        if path_handle.take_reset_wish() && recovery.is_watching() {
            recovery.reset();
        }
        if !self.asks.reporter.violations().is_empty() || !recovery.is_watching() {
            return Nanos::MAX;
        }
        if now >= self.keep_alive_at {
            let command = AdminCommand { sqe: nvme::admin::keep_alive(), page: false };
            self.admin.post(&self.controller, command, Purpose::KeepAlive, now);
            self.keep_alive_at = now + Nanos(self.inventory.keep_alive.0 / 4);
        }
        self.keep_alive_at
    }
}
