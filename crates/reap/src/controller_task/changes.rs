//! What a controller says of itself while it is in use: how large its namespaces are, their ANA states, whether it has lost its
//! power; and its answers to callers' admin commands, one at a time.

use driver::{AdminCommand, Purpose, Reading};
use nvme::log::{ChangedNamespaces, lid};
use nvme::{Nsid, Page, Status, identify};
use units::Nanos;

use super::admin::Power;
use super::{ControllerTask, RAW_COMMAND};
use crate::error::AdminError;
use crate::shared::events::EventKind;

impl ControllerTask {
    /// The controller has answered what [`driver::Events`] asked for.
    pub(super) fn was_read(&mut self, what: Reading, status: Status) {
        let page = self.admin.take_page(Purpose::Own(what.to_number()));
        let page = if status.is_success() { page } else { &[] };
        match what {
            Reading::Log(lid::SMART) => {
                let power = Power::from_page(page);
                self.power_was_read(power);
            }
            Reading::Log(lid::CHANGED_NAMESPACES) => {
                if let Some(list) = page.get(..ChangedNamespaces::LEN).and_then(|bytes| ChangedNamespaces::from_page(bytes).ok()) {
                    let ours = self.inventory.namespaces.iter().map(|namespace| namespace.nsid);
                    // FFFFFFFFh: more changed than fit.
                    let changed = ours.filter(|nsid| list.iter().any(|other| other == *nsid || other == Nsid::ALL));
                    changed.for_each(|nsid| self.events.read(Reading::Namespace(nsid)));
                }
            }
            Reading::Log(lid::ANA) | Reading::Rest(lid::ANA, _) => {
                match (self.ana.add(what, page, self.inventory.log_offsets), &self.path_handle) {
                    (Ok(log), Some(path_handle)) => path_handle.set_ana(&log),
                    (Err(next), _) => self.events.read_next(next),
                    _ => {}
                }
            }
            Reading::Namespace(nsid) => {
                let told = page.get(..identify::Namespace::LEN).and_then(|bytes| identify::Namespace::from_page(bytes).ok());
                if let Some(identify) = told {
                    self.namespace_was_read(nsid, &identify);
                }
            }
            Reading::Log(_) | Reading::Rest(..) => {}
        }
        self.events.was_read();
    }

    pub(super) fn namespace_was_read(&mut self, nsid: Nsid, identify: &identify::Namespace) {
        let Some(before) = self.inventory.namespaces.iter().find(|namespace| namespace.nsid == nsid) else { return };
        let blocks = match driver::Namespace::new(nsid, identify) {
            // The UUID is not told here.
            Ok(now) if driver::Namespace { uuid: before.uuid, ..now }.is_still(before) => now.blocks,
            _ => 0,
        };
        self.shows(nsid, blocks);
    }

    /// The controller shows a namespace in this size; 0: it cannot be used any more.
    pub(super) fn shows(&mut self, nsid: Nsid, blocks: u64) {
        if let Some(before) = self.sizes.set(nsid, blocks).filter(|&before| before != blocks) {
            self.asks.reporter.push(EventKind::Resized { nsid, before, blocks });
        }
        if let Some(namespace) = self.inventory.namespaces.iter_mut().find(|namespace| namespace.nsid == nsid) {
            namespace.blocks = blocks;
        }
        self.tell_sizes();
    }

    /// Passes the sizes on to those who choose among paths.
    pub(super) fn tell_sizes(&self) {
        if let Some(path_handle) = &self.path_handle {
            self.inventory.namespaces.iter().for_each(|namespace| path_handle.set_blocks(namespace.nsid, namespace.blocks));
        }
    }

    /// The health log has been read. After the controller has been away it says whether the cache is what it was; if it does not say
    /// so, nobody can vouch for what was in it.
    fn power_was_read(&mut self, power: Option<Power>) {
        let returned = std::mem::take(&mut self.returning);
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

    /// Posts the next raw command, unless one is out. What keeps it from being posted is another one's completion, which
    /// brings the controller task here again.
    pub(super) fn post_raw_command(&mut self, now: Nanos) {
        if self.raw_command.is_some() {
            return;
        }
        let Some(raw) = self.asks.raw_commands().pop_front() else { return };
        let command = AdminCommand { sqe: raw.sqe, page: !raw.data.is_empty() };
        match self.admin.fill(&raw.data) && self.admin.post(&self.controller, command, Purpose::Own(RAW_COMMAND), now) {
            true => self.raw_command = Some(raw),
            false => self.asks.raw_commands().push_front(raw),
        }
    }

    /// The controller has answered what [`ControllerTask::post_raw_command`] has sent.
    pub(super) fn raw_command_completed(&mut self, status: Status, result: u32) {
        let page = self.admin.take_page(Purpose::Own(RAW_COMMAND));
        let Some(mut raw) = self.raw_command.take() else { return };
        let answer = match page.get(..raw.data.len()) {
            _ if !status.is_success() => Err(AdminError::Status(status)),
            Some(filled) => {
                raw.data.copy_from_slice(filled);
                Ok((result, std::mem::take(&mut raw.data)))
            }
            // A reset has taken the page back.
            None => Err(AdminError::Reset),
        };
        raw.answer(answer);
    }

    /// A reset has taken back what was out.
    pub(super) fn forget_raw_command(&mut self) {
        if let Some(raw) = self.raw_command.take() {
            raw.answer(Err(AdminError::Reset));
        }
    }

    /// The controller answers no more.
    pub(super) fn refuse_raw_commands(&mut self) {
        let waiting: Vec<_> = self.asks.raw_commands().drain(..).collect();
        self.raw_command.take().into_iter().chain(waiting).for_each(|raw| raw.answer(Err(AdminError::Gone)));
    }
}
