//! What moderators want of the controller, sent by its keeper.

use driver::Purpose;
use nvme::Status;
use units::Nanos;

use super::Keeper;
use super::moderation::MODERATION;

impl Keeper {
    /// What moderators want of the controller. When to come again.
    pub(super) fn moderate(&mut self, now: Nanos) -> Nanos {
        if self.asks.reporter.take_stirred() {
            self.moderation.stir();
        }
        if let Some(command) = self.moderation.next(now, &self.link, &self.queues)
            && !self.admin.post(&self.link, command, Purpose::Own(MODERATION), now)
        {
            self.moderation.not_posted();
        }
        self.moderation.until(&self.queues)
    }

    /// The controller has answered what [`Keeper::moderate`] sent.
    pub(super) fn moderated(&mut self, status: Status) {
        self.moderation.answered(status, &self.queues);
        let mut health = self.asks.health();
        (health.held_back, health.coalescing_refused) = (self.moderation.held_back(), self.moderation.refused);
    }
}
