//! `posted`: one software queue's side of the descriptor that its vector's messages are posted into.
//!
//! The eventfd of the *home* vector is the notification. Home is the queue's own vector, or, in a [`crate::Group`], that
//! of the group's first queue on the same controller, so that one notification stands for all of them.

use std::cell::Cell;

use completion::{Delivery, Mode};
use handover::MOST_ROUNDS;
use nvme::Vector;

use crate::link::Lane;

/// Whether messages are posted, and the round that is under way.
#[derive(Default)]
pub(crate) struct Posting {
    home: Cell<Option<Vector>>,
    on: Cell<bool>,
    rounds: Cell<u32>,
    /// The bit was set when the queue was armed.
    pending: Cell<bool>,
}

impl Posting {
    /// The vector whose notification stands for this queue's messages from now on.
    /// Where messages are posted already, arming and a look follow.
    pub(crate) fn set_home(&self, home: Vector, lane: &Lane) {
        self.home.set(Some(home));
        if self.on.get() {
            lane.route(Some(home));
        }
    }

    /// A mode is adopted: posts, or not. Arming and a look follow. A vector that several queues share is not posted,
    /// because the one outstanding bit would stand for threads that do not know of each other.
    pub(crate) fn settle(&self, mode: Mode, lane: &Lane) {
        let on = mode.delivery() == Delivery::Posted && lane.is_maskable();
        if on != self.on.replace(on) {
            lane.route(on.then(|| self.home(lane)));
            self.pending.set(false);
        }
    }

    /// Whether messages are posted.
    pub(crate) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// The queue is given back: its vector notifies by itself.
    pub(crate) fn end(&self, lane: &Lane) {
        if self.on.take() {
            lane.route(None);
        }
    }

    /// The vector whose notification stands for this queue's messages.
    pub(crate) fn home(&self, lane: &Lane) -> Vector {
        self.home.get().unwrap_or(lane.vector())
    }

    fn take(&self, lane: &Lane) -> bool {
        lane.posted(self.home(lane)).is_some_and(|posted| posted.take(lane.vector().0))
    }

    /// Before sleeping: whether the bit is set and there have not been too many rounds, so that the thread looks again while
    /// the notification stays outstanding.
    pub(crate) fn has_another_round(&self, lane: &Lane) -> bool {
        let another = self.on.get() && self.rounds.get() + 1 < MOST_ROUNDS && self.take(lane);
        self.rounds.set(if another { self.rounds.get() + 1 } else { 0 });
        self.pending.set(another);
        another
    }

    /// After arming, which lets the next notification come: the last look.
    pub(crate) fn look(&self, lane: &Lane) {
        self.pending.set(self.on.get() && self.take(lane));
    }

    /// Whether arming found the bit set.
    pub(crate) fn found(&self) -> bool {
        self.pending.take()
    }

    /// After a wake-up: whether this queue was posted to.
    pub(crate) fn was_called(&self, lane: &Lane) -> bool {
        self.on.get() && self.take(lane)
    }
}
