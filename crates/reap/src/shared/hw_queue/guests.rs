//! Queues of the same thread whose messages this one's vector tells of.

use std::sync::atomic::Ordering::Relaxed;

use super::HwQueue;

impl HwQueue {
    /// Another queue's messages are told of by this one's vector from now on, or no more.
    pub(crate) fn has_guest(&self, more: bool) {
        let step = if more { 1 } else { u32::MAX };
        self.guests.fetch_add(step, Relaxed);
    }

    /// Whether this one's vector tells of others' messages, and nothing but a look at those says which.
    pub(crate) fn tells_of_others(&self) -> bool {
        !self.lane.is_maskable() && self.guests.load(Relaxed) > 0
    }
}
