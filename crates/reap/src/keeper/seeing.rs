//! What a controller says of itself while it is in use: how large its namespaces are, their ANA states, whether it has lost its
//! power; and its answers to callers' Identify commands, one at a time.

use driver::{AdminCommand, Purpose, Reading};
use nvme::admin::Identify;
use nvme::log::{ChangedNamespaces, lid};
use nvme::{Nsid, Page, Status, identify};
use units::Nanos;

use super::admin::Power;
use super::{Keeper, QUESTION};
use crate::error::IdentifyError;
use crate::shared::control::Question;

impl Keeper {
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
            Reading::Log(lid::ANA) | Reading::Rest(lid::ANA, _) => match (self.ana.add(what, page, self.inventory.log_offsets), &self.seat)
            {
                (Ok(log), Some(seat)) => seat.set_ana(&log),
                (Err(next), _) => self.events.read_next(next),
                _ => {}
            },
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
            self.note(format!("namespace {nsid} has {blocks} logical blocks now, and had {before}"));
        }
        if let Some(namespace) = self.inventory.namespaces.iter_mut().find(|namespace| namespace.nsid == nsid) {
            namespace.blocks = blocks;
        }
        self.tell_sizes();
    }

    /// Passes the sizes on to those who choose among paths.
    pub(super) fn tell_sizes(&self) {
        if let Some(seat) = &self.seat {
            self.inventory.namespaces.iter().for_each(|namespace| seat.set_blocks(namespace.nsid, namespace.blocks));
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
        if let Some(seat) = self.seat.as_ref().filter(|_| !kept) {
            seat.cache_lost();
            self.note(match power {
                Some(_) => "the controller has lost its power, and what its volatile cache held".to_owned(),
                None => "the controller does not say whether it has lost its power: what its volatile cache held counts as lost".to_owned(),
            });
        }
        self.path_is_up();
    }

    /// Posts the next question, unless one is out. What keeps it from being posted is another admin command, whose completion brings the
    /// keeper here again.
    pub(super) fn ask(&mut self, now: Nanos) {
        if self.question.is_some() {
            return;
        }
        let Some(question) = self.asks.questions().pop_front() else { return };
        let command = AdminCommand { sqe: question.what.to_sqe(), page: true };
        match self.admin.post(&self.link, command, Purpose::Own(QUESTION), now) {
            true => self.question = Some(question),
            false => self.asks.questions().push_front(question),
        }
    }

    /// The controller has answered what [`Keeper::ask`] has sent.
    pub(super) fn was_asked(&mut self, status: Status) {
        let page = self.admin.take_page(Purpose::Own(QUESTION));
        let answer = match page.first_chunk::<{ Identify::LEN }>() {
            Some(page) if status.is_success() => Ok(Box::new(*page)),
            None if status.is_success() => Err(IdentifyError::Reset),
            _ => Err(IdentifyError::Status(status)),
        };
        if let Some(question) = self.question.take() {
            question.answer(answer);
        }
    }

    /// A reset has taken back what was out.
    pub(super) fn forget_question(&mut self) {
        if let Some(question) = self.question.take() {
            question.answer(Err(IdentifyError::Reset));
        }
    }

    /// The controller answers no more.
    pub(super) fn refuse_questions(&mut self) {
        let waiting: Vec<Question> = self.asks.questions().drain(..).collect();
        self.question.take().into_iter().chain(waiting).for_each(|question| question.answer(Err(IdentifyError::Gone)));
    }
}
