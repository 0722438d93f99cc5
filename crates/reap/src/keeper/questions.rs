//! What callers ask the controller: Identify, one at a time, beside whatever else its keeper does.

use driver::{AdminCommand, Purpose};
use nvme::Status;
use nvme::admin::Identify;
use units::Nanos;

use super::{Keeper, QUESTION};
use crate::error::IdentifyError;
use crate::shared::control::Question;

impl Keeper {
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
