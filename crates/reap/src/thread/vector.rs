//! A hardware queue's vector and its look role, as one thread meets them: what [`completion::Waiter`] acts upon.

use std::cell::Cell;

use super::engine::{KEY_VECTOR, Place};
use super::posting::Posting;
use crate::shared::hw_queue::HwQueue;
use completion::Notification;
use sync::WaiterId;

/// A vector and its look role.
pub(super) struct Vector<'a> {
    pub queue: &'a HwQueue,
    pub me: WaiterId,
    /// Of a software queue: where its messages are posted, and the poller that is to have the vector while the thread owns the role.
    pub seat: Option<(&'a Posting, Watch<'a>)>,
}

/// The poller of a thread that sleeps on the vector while the vector is the thread's.
pub(super) struct Watch<'a> {
    pub place: &'a Place,
    /// Whether the vector's descriptor is watched there.
    pub on: &'a Cell<bool>,
}

impl Vector<'_> {
    /// Puts the vector into the thread's poller, or takes it out.
    pub(super) fn watch(&self, wanted: bool) {
        let (Some((_, watch)), Some(fd)) = (&self.seat, self.queue.lane.wait_on()) else { return };
        if watch.on.get() == wanted {
            return;
        }
        let poller = watch.place.poller();
        let done = if wanted { poller.add(fd, KEY_VECTOR) } else { poller.remove(fd) };
        match done {
            Ok(()) => watch.on.set(wanted),
            Err(error) => tracing::error!(%error, wanted, "a queue's vector cannot be watched, or left to others"),
        }
    }
}

impl Notification for Vector<'_> {
    type Thread = WaiterId;

    #[inline]
    fn is_shared(&self) -> bool {
        self.queue.is_shared()
    }

    #[inline]
    fn is_alone(&self) -> bool {
        self.queue.lane.is_maskable()
    }

    fn tells_once(&self) -> bool {
        self.seat.as_ref().is_some_and(|(posting, _)| posting.is_on())
    }

    fn arm(&mut self) {
        let Some((posting, _)) = &self.seat else { return self.queue.lane.arm() };
        if !posting.has_another_round(&self.queue.lane) {
            self.queue.lane.arm();
            posting.look(&self.queue.lane);
        }
    }

    fn mask(&mut self) {
        if self.queue.lane.is_maskable() {
            self.queue.lane.mask();
        }
    }

    fn pending(&mut self) -> bool {
        self.queue.hint()
    }

    fn take_role(&mut self) -> bool {
        let owner = self.queue.role.try_take(self.me);
        self.watch(owner);
        owner
    }

    fn has_role(&self) -> bool {
        self.queue.role.owner() == Some(self.me)
    }

    fn release_role(&mut self) -> Option<WaiterId> {
        self.queue.role.release(self.me)
    }

    fn other_owner(&mut self) -> Option<WaiterId> {
        self.queue.role.owner().filter(|owner| *owner != self.me)
    }
}
