//! What tests of queues' threads ask of a hardware queue.

use units::Nanos;

use super::{HwQueue, InLine, Patience};
use handover::Waiting;

impl HwQueue {
    /// Whether a thread that serves the line finds no tag on the lane that notifies.
    pub(crate) fn finds_no_tag(&self) -> bool {
        let line = InLine { queue: self, now: Nanos::ZERO, patience: Patience::Waits };
        line.is_exhausted(&&self.lane).unwrap_or(true)
    }
}
