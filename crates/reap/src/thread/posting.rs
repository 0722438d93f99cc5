//! `posted`: one software queue's side of the descriptor that its vector's messages are posted into.
//!
//! The eventfd of the *home* vector is the notification. Home is the queue's own vector, or, in a [`crate::Group`], that
//! of the group's first queue on the same controller, so that one notification stands for all of them.
//!
//! Where nothing can be masked there is no descriptor: the vectors' messages signal one eventfd, each message once, and a queue that
//! has an entry counts as posted to.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use completion::{Delivery, Mode};
use handover::MOST_ROUNDS;
use nvme::Vector;

use crate::link::Lane;
use crate::shared::hw_queue::HwQueue;

/// Whether messages are posted, and the round that is under way.
#[derive(Default)]
pub(crate) struct Posting {
    /// Whose vector tells of them; `None`: the queue's own.
    home: RefCell<Option<Arc<HwQueue>>>,
    /// The group that has chosen the home, by its number; 0: none has, or its thread has waited for it apart from the group since.
    group: Cell<u64>,
    on: Cell<bool>,
    rounds: Cell<u32>,
    /// The bit was set when the queue was armed.
    pending: Cell<bool>,
}

impl Posting {
    /// The queue whose vector's notification stands for this queue's messages from now on; `None`: its own.
    /// Where messages are posted already, arming and a look follow.
    pub(crate) fn set_home(&self, home: Option<&Arc<HwQueue>>, lane: &Lane) {
        let left = self.home.replace(home.cloned());
        if self.on.get() {
            // Before the messages go there: a home that has a guest is watched.
            home.into_iter().for_each(|home| home.has_guest(true));
            lane.route(Some(self.home(lane)));
            left.into_iter().for_each(|left| left.has_guest(false));
        }
    }

    /// Its thread waits for it apart from its group, and would not be told by another queue's vector: it is told by its own from now on,
    /// if it was not. Whether it was not. Arming and a look follow.
    pub(crate) fn strays(&self, lane: &Lane) -> bool {
        let away = self.home.borrow().is_some();
        if away {
            self.set_home(None, lane);
            self.group.set(0);
        }
        away
    }

    /// The group of this number has chosen the home.
    pub(crate) fn join(&self, group: u64) {
        self.group.set(group);
    }

    /// Whether the group of this number has chosen the home, and nobody else since.
    pub(crate) fn is_joined_by(&self, group: u64) -> bool {
        self.group.get() == group
    }

    /// A mode is adopted: posts, or not. Arming and a look follow. A vector that several queues share is not posted,
    /// because the one outstanding bit would stand for threads that do not know of each other.
    pub(crate) fn settle(&self, mode: Mode, lane: &Lane) {
        let on = mode.delivery() == Delivery::Posted && lane.has_own_vector();
        if on != self.on.replace(on) {
            let home = self.home.borrow();
            home.iter().filter(|_| on).for_each(|home| home.has_guest(true));
            lane.route(on.then(|| self.home(lane)));
            home.iter().filter(|_| !on).for_each(|home| home.has_guest(false));
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
            self.home.take().into_iter().for_each(|home| home.has_guest(false));
        }
    }

    /// The vector whose notification stands for this queue's messages.
    pub(crate) fn home(&self, lane: &Lane) -> Vector {
        self.home.borrow().as_ref().map_or(lane.vector(), |home| home.lane.vector())
    }

    fn take(&self, lane: &Lane) -> bool {
        lane.take_posted(self.home(lane))
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
