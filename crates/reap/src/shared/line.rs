//! The line of software queues that wait for a tag of their hardware queue: first come, first served.

use std::collections::VecDeque;

use handover::Bell;
use handover::sync::{Mutex, lock};

/// Software queues that wait for a tag, first come, first served.
#[derive(Default)]
pub(super) struct Line {
    /// Armed while somebody waits: changed under the lock of `order`, so that a queue in line never finds it masked. Returning
    /// tags is the telling side.
    bell: Bell,
    order: Mutex<VecDeque<u8>>,
}

impl Line {
    /// Whether somebody waits.
    #[inline]
    pub(super) fn is_formed(&self) -> bool {
        self.bell.is_armed()
    }

    /// The same, for a thread that has returned tags: whoever joins later finds them.
    #[inline]
    pub(super) fn rings(&self) -> bool {
        self.bell.rings()
    }

    /// Whether the first is `me`, or nobody.
    #[cold]
    pub(super) fn is_first(&self, me: u8) -> bool {
        lock(&self.order).front().is_none_or(|&first| first == me)
    }

    /// Waits behind the others, unless it does already. Tags that came back before are visible to the look that the caller owes.
    #[cold]
    pub(super) fn join(&self, me: u8) {
        let mut order = lock(&self.order);
        if !order.contains(&me) {
            order.push_back(me);
        }
        self.bell.arm();
    }

    /// Who is at this place of the line.
    pub(super) fn at(&self, place: usize) -> Option<u8> {
        lock(&self.order).get(place).copied()
    }

    /// This one waits no more.
    pub(super) fn leave(&self, me: u8) {
        let mut order = lock(&self.order);
        order.retain(|&other| other != me);
        if order.is_empty() {
            self.bell.mask();
        }
    }
}
