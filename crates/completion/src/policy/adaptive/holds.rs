//! What is remembered of waits, for having the device hold its messages back or not.

use units::Nanos;

use crate::{LatencySlack, STEP, Seen};

/// Waits over which the most in flight is remembered, and as many before.
const STRETCH: u64 = 64;

#[derive(Clone, Debug)]
pub(super) struct Holds {
    /// The median from which on a step of the feature is within the slack.
    pub(super) from: Nanos,
    /// Most in flight, in this stretch of waits and in the one before.
    most: [u32; 2],
    /// When an urgent command was waited for last.
    pub(super) urgent: Option<Nanos>,
    /// For how long the device may hold back the message that ends the sleep under way.
    pub(super) under: Nanos,
}

impl Holds {
    pub(super) fn new(slack: LatencySlack) -> Holds {
        let from = match slack.thousandths() {
            0 => Nanos::MAX,
            u32::MAX => Nanos(1),
            thousandths => Nanos((STEP.0 * 1_000).div_ceil(u64::from(thousandths))),
        };
        Holds { from, most: [0; 2], urgent: None, under: Nanos::ZERO }
    }

    /// A wait begins with so many in flight.
    #[inline]
    pub(super) fn waits(&mut self, now: Nanos, waits: u64, seen: &Seen) {
        if waits.is_multiple_of(STRETCH) {
            self.most = [0, self.most[0]];
        }
        self.most[0] = self.most[0].max(seen.in_flight);
        if seen.urgent_waiting > 0 {
            self.urgent = Some(now);
        }
    }

    pub(super) fn most(&self) -> u32 {
        self.most[0].max(self.most[1])
    }
}
