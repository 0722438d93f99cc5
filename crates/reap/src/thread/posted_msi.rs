//! `posted`: where the messages of one queue's vector go, and the rounds in which it polls before
//! it sleeps. After Linux's posted MSI (`posted_msi`): messages set bits in memory, and one
//! notification covers many.
//!
//! ```text
//!  without a Group                       in a Group (queues of one thread, one controller)
//!
//!  vector 1 ─► bit 1 ─► eventfd 1        vector 1 ─► bit 1 ─┐
//!                                        vector 2 ─► bit 2 ─┼─► eventfd 1  (vector 1: the target)
//!                                        vector 3 ─► bit 3 ─┘
//! ```
//!
//! The *target* is the vector whose eventfd is signalled: the queue's own, or that of the group's
//! first queue on the same controller. An embedded controller sets a bit and signals the eventfd
//! only if no notification is outstanding. VFIO has no such bits: a PCI drive signals the target's
//! eventfd for each message, and a queue whose own vector is the target sleeps as in `interrupt`.

use completion::Mode;
use hw::Poller;
use nvme::Vector;
use sync::MAX_ROUNDS;

use crate::transport::{KEY_NOTIFICATION, RingPair};

/// One queue's part of posted messages.
#[derive(Default)]
pub(crate) struct PostedMsi {
    /// The target of the group; `None`: the queue's own vector.
    target: Option<Vector>,
    /// The mode is `posted`.
    wanted: bool,
    /// Messages are posted: `wanted`, and the transport can.
    on: bool,
    /// Polls so far while one notification is outstanding.
    rounds: u32,
    /// Arming found a posted message.
    pending: bool,
    /// The other queue's vector whose eventfd is in this queue's poller.
    watched: Option<Vector>,
}

impl PostedMsi {
    /// Sets the vector that is signalled for this queue's messages. If messages are posted already,
    /// arming and a poll must follow: a message on its way may still signal the old target.
    pub(crate) fn set_target(&mut self, target: Vector, pair: &RingPair, poller: &Poller) {
        self.target = Some(target);
        self.update_route(true, pair, poller);
    }

    /// Begins or ends posting, as `mode` says. Arming and a poll must follow.
    pub(crate) fn adopt(&mut self, mode: Mode, pair: &RingPair, poller: &Poller) {
        self.wanted = mode.facts().posted;
        self.update_route(false, pair, poller);
    }

    /// Routes messages as mode and target say. `moved`: the target has changed.
    fn update_route(&mut self, moved: bool, pair: &RingPair, poller: &Poller) {
        let target = self.target(pair);
        // A vector that queues of several threads share is not posted: its one outstanding bit
        // cannot say which of these threads has been notified.
        let on = self.wanted && pair.may_post_to(target);
        if on != self.on || on && moved {
            // If the kernel refuses, messages go on to signal the own eventfd, as in `interrupt`.
            self.on = pair.route(on.then_some(target)) && on;
            // What was found came by the old route; the poll that follows finds its entry.
            self.pending = false;
        }
        self.update_poller(pair, poller);
    }

    /// Adds the eventfd of another queue's vector to this queue's poller, so that a thread which
    /// waits for this queue alone is woken too.
    fn update_poller(&mut self, pair: &RingPair, poller: &Poller) {
        let now = self.foreign_target(pair);
        let before = std::mem::replace(&mut self.watched, now);
        if before == now {
            return;
        }
        let removed = before
            .and_then(|vector| pair.notification(vector))
            .map_or(Ok(()), |fd| poller.remove(fd));
        let added = now
            .and_then(|vector| pair.notification(vector))
            .map_or(Ok(()), |fd| poller.add(fd, KEY_NOTIFICATION));
        if let Err(error) = removed.and(added) {
            tracing::error!(%error, "epoll: the notification of posted messages cannot be added or removed");
        }
    }

    /// Whether messages are posted.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// The target, if that is another queue's vector and messages are posted to it.
    fn foreign_target(&self, pair: &RingPair) -> Option<Vector> {
        Some(self.target(pair)).filter(|&target| self.on && target != pair.vector())
    }

    /// Whether another queue's eventfd is signalled for this queue's messages.
    pub(crate) fn has_foreign_target(&self) -> bool {
        self.watched.is_some()
    }

    /// The queue is released: its messages signal its own eventfd again.
    pub(crate) fn end(&mut self, pair: &RingPair) {
        if std::mem::take(&mut self.on) {
            pair.route(None);
        }
    }

    /// The vector whose eventfd is signalled for this queue's messages, if they are posted.
    pub(crate) fn target(&self, pair: &RingPair) -> Vector {
        self.target.unwrap_or(pair.vector())
    }

    /// Takes this vector's bit. Returns whether it was set.
    fn take_bit(&self, pair: &RingPair) -> bool {
        pair.take_posted(self.target(pair))
    }

    /// Before arming: whether the bit is set and there were fewer than [`MAX_ROUNDS`] rounds. The
    /// thread then polls once more while the notification stays outstanding, so further messages
    /// cost no signal.
    pub(crate) fn begin_round(&mut self, pair: &RingPair) -> bool {
        let another = self.on && self.rounds + 1 < MAX_ROUNDS && self.take_bit(pair);
        self.rounds = if another { self.rounds + 1 } else { 0 };
        self.pending = another;
        another
    }

    /// After arming: takes the bit once more. A message that came before the arming found the
    /// notification outstanding, and has sent none (invariant 1).
    pub(crate) fn check_after_arm(&mut self, pair: &RingPair) {
        self.pending = self.on && self.take_bit(pair);
    }

    /// Whether [`PostedMsi::begin_round`] or [`PostedMsi::check_after_arm`] found a message.
    /// Reported once.
    pub(crate) fn take_pending(&mut self) -> bool {
        std::mem::take(&mut self.pending)
    }

    /// After a wake-up: whether it was for this queue.
    pub(crate) fn was_posted(&self, pair: &RingPair) -> bool {
        self.on && self.take_bit(pair)
    }
}
