//! `posted`: one software queue's side of the notification that stands for its vector's messages.
//!
//! The eventfd of the *home* vector is the notification. Home is the queue's own vector, or, in a [`crate::Group`], that
//! of the group's first queue on the same controller, so that one notification stands for all of them.
//!
//! Where a controller is in this process messages set bits beside that eventfd, and most signal nothing. Messages of a drive on the bus
//! all signal it, so that home's own queue has nothing to do but to sleep as in `interrupt`.

use completion::Mode;
use hw::Poller;
use nvme::Vector;
use sync::MOST_ROUNDS;

use crate::transport::{KEY_NOTIFICATION, RingPair};

/// Whether messages are posted, and the round that is under way.
#[derive(Default)]
pub(crate) struct Posting {
    home: Option<Vector>,
    /// The mode is one that posts.
    wanted: bool,
    on: bool,
    rounds: u32,
    /// There was something when the queue was armed.
    pending: bool,
    /// The vector of another queue whose notification its own poller reports.
    watched: Option<Vector>,
}

impl Posting {
    /// The vector whose notification stands for this queue's messages from now on.
    /// Where messages are posted already, arming and a look follow.
    pub(crate) fn set_home(&mut self, home: Vector, pair: &RingPair, poller: &Poller) {
        self.home = Some(home);
        self.follow(true, pair, poller);
    }

    /// A mode is adopted: posts, or not. Arming and a look follow. A vector that several queues share is not posted,
    /// because the one outstanding bit would stand for threads that do not know of each other.
    pub(crate) fn settle(&mut self, mode: Mode, pair: &RingPair, poller: &Poller) {
        self.wanted = mode.facts().posted;
        self.follow(false, pair, poller);
    }

    /// Has messages go where mode and home say; `moved`: home is another.
    fn follow(&mut self, moved: bool, pair: &RingPair, poller: &Poller) {
        let home = self.home(pair);
        let on = self.wanted && pair.may_post_to(home);
        if on != self.on || on && moved {
            // What cannot be moved signals its own eventfd, as in `interrupt`.
            self.on = pair.route(on.then_some(home)) && on;
            self.pending = false;
        }
        self.watch(pair, poller);
    }

    /// Has the queue's own poller report the notification of another queue that stands for this one's. So a thread that waits for this
    /// queue alone is told as well.
    fn watch(&mut self, pair: &RingPair, poller: &Poller) {
        let home = self.elsewhere(pair);
        let before = std::mem::replace(&mut self.watched, home);
        if before == home {
            return;
        }
        let removed = before.and_then(|vector| pair.notification(vector)).map_or(Ok(()), |fd| poller.remove(fd));
        let added = home.and_then(|vector| pair.notification(vector)).map_or(Ok(()), |fd| poller.add(fd, KEY_NOTIFICATION));
        if let Err(error) = removed.and(added) {
            tracing::error!(%error, "the notification of posted messages cannot be watched, or left to others");
        }
    }

    /// Whether messages are posted.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Another queue's vector, if its notification stands for this one's messages.
    fn elsewhere(&self, pair: &RingPair) -> Option<Vector> {
        Some(self.home(pair)).filter(|&home| self.on && home != pair.vector())
    }

    /// Whether another queue's notification stands for this one's messages.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.watched.is_some()
    }

    /// The queue is given back: its vector notifies by itself.
    pub(crate) fn end(&mut self, pair: &RingPair) {
        if std::mem::take(&mut self.on) {
            pair.route(None);
        }
    }

    /// The vector whose notification stands for this queue's messages.
    pub(crate) fn home(&self, pair: &RingPair) -> Vector {
        self.home.unwrap_or(pair.vector())
    }

    fn take(&self, pair: &RingPair) -> bool {
        pair.take_posted(self.home(pair))
    }

    /// Before sleeping: whether there is something and there have not been too many rounds, so that the thread looks again while
    /// the notification stays outstanding.
    pub(crate) fn has_another_round(&mut self, pair: &RingPair) -> bool {
        let another = self.on && self.rounds + 1 < MOST_ROUNDS && self.take(pair);
        self.rounds = if another { self.rounds + 1 } else { 0 };
        self.pending = another;
        another
    }

    /// After arming, which lets the next notification come: the last look.
    pub(crate) fn look(&mut self, pair: &RingPair) {
        self.pending = self.on && self.take(pair);
    }

    /// Whether arming found something.
    pub(crate) fn found(&mut self) -> bool {
        std::mem::take(&mut self.pending)
    }

    /// After a wake-up: whether this queue was posted to.
    pub(crate) fn was_called(&self, pair: &RingPair) -> bool {
        self.on && self.take(pair)
    }
}
