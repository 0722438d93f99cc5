//! What a controller's task does if the controller is a path of a multipath device: publish the
//! path's state, send Keep Alive, return requests early so that they take other paths, and check
//! that the controller which comes back is the same.

use driver::multipath::{Link as PathLink, PathTraits};
use driver::{AdminCommand, Dead, Inventory, Purpose, Reading, ResetCause};
use nvme::Status;
use nvme::log::lid;
use units::Nanos;

use super::{ControllerPhase, ControllerTask};
use crate::request::{PATH_LOST, STOPPED};
use crate::shared::events::EventKind;
use crate::transport::ServerEvent;

impl ControllerTask {
    /// A reset begins, and the pairs are closed.
    pub(super) fn path_resets(&mut self, cause: &ResetCause) {
        self.keep_alive_at = Nanos::MAX;
        if self.path_handle.is_none() {
            return;
        }
        // A controller that has not answered a command may not answer the reset either. It counts
        // as lost until it does, so that reads take another path now.
        if cause.is_unanswered()
            && let Some(how) = self.early_return_status()
        {
            self.return_in_flight(how);
            self.set_link(PathLink::Lost);
            return;
        }
        self.set_link(PathLink::Resetting);
    }

    /// The controller does not answer. Its requests are returned to their queues now. It may still
    /// carry out Writes; the multipath device decides when these may be sent again.
    pub(super) fn path_lost(&mut self, dead: &Dead) {
        tracing::warn!(why = %dead, "a path is lost");
        if let Some(how) = self.early_return_status() {
            self.return_in_flight(how);
        }
        self.set_link(PathLink::Lost);
        self.want_cross_reset();
    }

    /// The controller has stopped (CSTS.RDY = 0): it carries out no command any more.
    pub(super) fn path_stopped(&mut self) {
        let Some(path_handle) = &self.path_handle else { return };
        path_handle.forget_cross_reset();
        self.return_in_flight(STOPPED);
        self.controller.allow_dma();
        self.set_link(PathLink::Connecting);
    }

    /// The controller is up. The path is used at once, or after a return once the health log page
    /// has been read.
    pub(super) fn path_up(&mut self, now: Nanos) {
        if self.path_handle.is_none() {
            return;
        }
        if self.inventory.keep_alive > Nanos::ZERO {
            self.keep_alive_at = now;
        }
        if let Some(what) = self.identity_mismatch() {
            self.note(format!(
                "what is served there now is not taken: {what}; serve there what was served before, or open the device again"
            ));
            return self.set_link(PathLink::Lost);
        }
        self.publish_sizes();
        // Without a volatile cache completed writes are durable, and a power loss does not matter.
        if self.inventory.limits.is_some_and(|limits| limits.volatile_cache) {
            self.returning = self.has_been_up;
            self.events.read(Reading::Log(lid::SMART));
        }
        if self.inventory.subsystem.ana_transition.is_some() {
            // Until it has been read the last ANA state holds. Commands sent to the wrong group
            // fail with a path-related status, and are sent elsewhere.
            self.events.read(Reading::Log(lid::ANA));
        }
        if !self.returning {
            self.path_is_up();
        }
        self.has_been_up = true;
    }

    /// How the controller differs from the one that the path was opened with, if it does.
    fn identity_mismatch(&mut self) -> Option<String> {
        let (path_handle, joined) = (self.path_handle.as_ref()?, self.joined.as_ref());
        let Some(joined) = joined else {
            // The first time: nothing to compare with.
            self.joined = Some(Box::new(self.inventory.clone()));
            return None;
        };
        let (was, is) = (&joined.subsystem, &self.inventory.subsystem);
        if was.nqn != is.nqn {
            return Some(format!("its subsystem is {}, and was {}", is.nqn, was.nqn));
        }
        // Over TCP each association has a controller of its own.
        if was.controller != is.controller && self.controller.tcp().is_none() {
            return Some(format!(
                "it is controller {:#06x} of its subsystem, and was {:#06x}",
                is.controller, was.controller
            ));
        }
        let of = |inventory: &Inventory| {
            inventory
                .namespaces
                .iter()
                .find(|namespace| namespace.nsid == path_handle.nsid())
                .copied()
        };
        let (was, is) = (of(joined)?, of(&self.inventory));
        match is {
            Some(is) if is.is_same_as(&was) => None,
            Some(_) => {
                Some(format!("namespace {} has other identifiers, or another block size", was.nsid))
            }
            None => Some(format!("namespace {} is not there", was.nsid)),
        }
    }

    /// Turns events of the connection to a vfio-user server into events of the device.
    pub(super) fn take_server_events(&mut self) {
        while let Some(news) = self.controller.news() {
            if let (
                ControllerPhase::Live(recovery),
                ServerEvent::Ended(_) | ServerEvent::QueueEnded(..),
                Some(_),
            ) = (&mut self.phase, &news, self.controller.tcp())
            {
                // Its status is not polled over TCP. An I/O queue is gone alone if the admin queue
                // still answers: then a reset says at once that the controller has stopped.
                recovery.disconnected();
            }
            match news {
                ServerEvent::QueueEnded(queue, why) => {
                    self.note(format!("the connection of I/O queue {queue} has ended: {why}"))
                }
                ServerEvent::Ended(why)
                    if self.path_handle.is_some()
                        && matches!(self.phase, ControllerPhase::Live(_)) =>
                {
                    let why = format!("{why}; a server that serves the same there is used again");
                    self.shared.reporter.push(EventKind::Disconnected(why));
                }
                ServerEvent::Ended(why) => self
                    .shared
                    .reporter
                    .push(EventKind::Disconnected(format!("{why}; open the device again"))),
                ServerEvent::Back => {
                    self.reconnected = true;
                    self.shared.reporter.push(EventKind::Reconnected);
                }
                ServerEvent::Note(what) => self.note(what),
            }
        }
    }

    /// The controller has been lost since `lost_since`. If its vfio-user server has gone, tries to
    /// connect again.
    pub(super) fn look_for_server(&self, lost_since: Nanos) {
        if self.path_handle.is_some() && !self.shared.is_closing() {
            self.controller
                .start_reconnect(lost_since, PathTraits::of(&self.inventory).quiesce_after);
        }
    }

    /// Sets the path live: requests are sent there.
    pub(super) fn path_is_up(&mut self) {
        let Some(path_handle) = self.path_handle.clone() else { return };
        // Before the link: a queue that sees it live may post.
        self.users().for_each(|user| user.revive());
        path_handle.set_link(PathLink::Live);
        self.queues.iter().for_each(|queue| queue.notice_all());
    }

    /// The status with which the requests of a path that does not answer are returned early.
    /// `None`: not a path, so they wait for the reset. An embedded controller can be cut off from
    /// memory, so all buffers return. Another process or a drive cannot; the buffers of Reads are
    /// leaked then.
    pub(super) fn early_return_status(&self) -> Option<Status> {
        self.path_handle.as_ref()?;
        Some(if self.controller.block_dma() { STOPPED } else { PATH_LOST })
    }

    /// Returns the commands that were taken back, and fails requests that wait for a tag.
    fn return_in_flight(&mut self, status: Status) {
        // The aborted commands were taken back too.
        self.ended_aborts.clear();
        self.return_abandoned(status);
        self.users().for_each(|user| user.fail_all());
    }

    /// Publishes the state of the path, and has all queues poll, which read it.
    pub(super) fn set_link(&self, link: PathLink) {
        let Some(path_handle) = &self.path_handle else { return };
        path_handle.set_link(link);
        self.queues.iter().for_each(|queue| queue.notice_all());
    }

    /// Sends Keep Alive, and handles requests of the queues. Returns when to step again.
    pub(super) fn step_path(&mut self, now: Nanos) -> Nanos {
        let Some(path_handle) = self.path_handle.clone() else { return Nanos::MAX };
        if path_handle.take_refresh_request() {
            self.events.read(Reading::Log(lid::ANA));
            self.publish_sizes();
        }
        let ControllerPhase::Live(recovery) = &mut self.phase else { return Nanos::MAX };
        if path_handle.take_reset_request() && recovery.is_running() {
            recovery.reset();
        }
        // No Keep Alive during a reset. `path_up` begins anew.
        if !self.shared.reporter.violations().is_empty() || !recovery.is_running() {
            return Nanos::MAX;
        }
        // Four times per keep-alive time-out, so that a lost one does not matter.
        if now >= self.keep_alive_at {
            let command = AdminCommand { sqe: nvme::admin::keep_alive(), needs_page: false };
            self.admin.post(&self.controller, command, Purpose::KeepAlive, now);
            self.keep_alive_at = now + Nanos(self.inventory.keep_alive.0 / 4);
        }
        self.keep_alive_at.min(self.step_cross_reset(now))
    }
}
