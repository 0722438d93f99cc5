//! Log pages and Identify data that are read while a controller is in use: namespace sizes, ANA
//! states, power cycles. Also callers' admin commands, of which one at a time is in flight.

use driver::{AdminCommand, Purpose, Reading};
use nvme::log::{ChangedNamespaces, lid};
use nvme::{Nsid, Page, Status, identify};
use units::Nanos;

use super::admin::Power;
use super::{ControllerTask, RAW_COMMAND};
use crate::error::AdminError;
use crate::shared::events::EventKind;

impl ControllerTask {
    /// A read that [`driver::EventRequests`] asked for has completed.
    pub(super) fn read_completed(&mut self, what: Reading, status: Status) {
        let page = self.admin.take_page(Purpose::Own(what.to_number()));
        // On an error: an empty page, which each reader below rejects.
        let page = if status.is_success() { page } else { &[] };
        match what {
            Reading::Log(lid::SMART) => {
                let power = Power::from_page(page);
                self.power_was_read(power);
            }
            Reading::Log(lid::CHANGED_NAMESPACES) => {
                if let Some(list) = page
                    .get(..ChangedNamespaces::LEN)
                    .and_then(|bytes| ChangedNamespaces::from_page(bytes).ok())
                {
                    let ours = self.inventory.namespaces.iter().map(|namespace| namespace.nsid);
                    // FFFFFFFFh: more namespaces have changed than the list can hold.
                    let changed = ours.filter(|nsid| {
                        list.iter().any(|other| other == *nsid || other == Nsid::ALL)
                    });
                    changed.for_each(|nsid| self.events.read(Reading::Namespace(nsid)));
                }
            }
            Reading::Log(lid::ANA) | Reading::Rest(lid::ANA, _) => {
                match (self.ana.add(what, page, self.inventory.log_offsets), &self.path_handle) {
                    (Ok(log), Some(path_handle)) => path_handle.set_ana(&log),
                    // The log is longer than the page: read the next piece.
                    (Err(next), _) => self.events.read_next(next),
                    _ => {}
                }
            }
            Reading::Namespace(nsid) => {
                let identify = page
                    .get(..identify::IdentifyNamespace::LEN)
                    .and_then(|bytes| identify::IdentifyNamespace::from_page(bytes).ok());
                if let Some(identify) = identify {
                    self.namespace_was_read(nsid, &identify);
                }
            }
            Reading::Log(lid::CROSS_CONTROLLER_RESET) => {
                let page = page.to_vec();
                self.cross_resets_were_read(&page);
            }
            Reading::Log(_) | Reading::Rest(..) => {}
        }
        self.events.read_completed();
    }

    /// The Identify data of a namespace has been read.
    pub(super) fn namespace_was_read(
        &mut self,
        nsid: Nsid,
        identify: &identify::IdentifyNamespace,
    ) {
        let Some(before) =
            self.inventory.namespaces.iter().find(|namespace| namespace.nsid == nsid)
        else {
            return;
        };
        let blocks = match driver::Namespace::new(nsid, identify) {
            // Identify Namespace has NGUID and EUI64, but not the UUID. Any other difference:
            // another namespace.
            Ok(now) if driver::Namespace { uuid: before.uuid, ..now }.is_same_as(before) => {
                now.blocks
            }
            _ => 0,
        };
        self.set_size(nsid, blocks);
    }

    /// Sets the size of a namespace; 0: it cannot be used any more.
    pub(super) fn set_size(&mut self, nsid: Nsid, blocks: u64) {
        if let Some(before) = self.sizes.set(nsid, blocks).filter(|&before| before != blocks) {
            self.shared.reporter.push(EventKind::Resized { nsid, before, blocks });
        }
        if let Some(namespace) =
            self.inventory.namespaces.iter_mut().find(|namespace| namespace.nsid == nsid)
        {
            namespace.blocks = blocks;
        }
        self.publish_sizes();
    }

    /// Publishes the sizes to the multipath device.
    pub(super) fn publish_sizes(&self) {
        if let Some(path_handle) = &self.path_handle {
            self.inventory
                .namespaces
                .iter()
                .for_each(|namespace| path_handle.set_blocks(namespace.nsid, namespace.blocks));
        }
    }

    /// The health log page has been read. After a path was away, it shows whether the controller
    /// has lost power, and with it the contents of its volatile cache.
    fn power_was_read(&mut self, power: Option<Power>) {
        let returned = std::mem::take(&mut self.returning);
        // A page that cannot be read counts as a loss: completed writes may be gone.
        let kept = power.is_some() && power == self.power;
        if power.is_some() {
            self.power = power;
        }
        if !returned {
            return;
        }
        if let Some(path_handle) = self.path_handle.as_ref().filter(|_| !kept) {
            path_handle.cache_lost();
            self.note(match power {
                Some(_) => "the controller has lost its power, and what its volatile cache held".to_owned(),
                None => "the controller does not say whether it has lost its power: what its volatile cache held counts as lost".to_owned(),
            });
        }
        self.path_is_up();
    }

    /// Posts the next raw command, unless one is in flight.
    pub(super) fn post_raw_command(&mut self, now: Nanos) {
        if self.raw_command.is_some() {
            return;
        }
        let Some(raw) = self.shared.raw_commands().pop_front() else { return };
        let command = AdminCommand { sqe: raw.sqe, needs_page: !raw.data.is_empty() };
        match self.admin.fill(&raw.data)
            && self.admin.post(&self.controller, command, Purpose::Own(RAW_COMMAND), now)
        {
            true => self.raw_command = Some(raw),
            // The page is in use, or there is no tag. The completion that frees it steps the task
            // again.
            false => self.shared.raw_commands().push_front(raw),
        }
    }

    /// The command of [`ControllerTask::post_raw_command`] has completed.
    pub(super) fn raw_command_completed(&mut self, status: Status, result: u32) {
        let page = self.admin.take_page(Purpose::Own(RAW_COMMAND));
        let Some(mut raw) = self.raw_command.take() else { return };
        let answer = match page.get(..raw.data.len()) {
            _ if !status.is_success() => Err(AdminError::Status(status)),
            Some(filled) => {
                raw.data.copy_from_slice(filled);
                Ok((result, std::mem::take(&mut raw.data)))
            }
            // No page: a reset has reclaimed it.
            None => Err(AdminError::Reset),
        };
        raw.complete(answer);
    }

    /// A reset has taken back the raw command in flight.
    pub(super) fn forget_raw_command(&mut self) {
        if let Some(raw) = self.raw_command.take() {
            raw.complete(Err(AdminError::Reset));
        }
    }

    /// The controller is given up: fails all raw commands.
    pub(super) fn refuse_raw_commands(&mut self) {
        let waiting: Vec<_> = self.shared.raw_commands().drain(..).collect();
        self.raw_command
            .take()
            .into_iter()
            .chain(waiting)
            .for_each(|raw| raw.complete(Err(AdminError::Gone)));
    }
}
