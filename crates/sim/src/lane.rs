//! One hardware queue as its thread sees it: the queue pair, its notification, and the policy that says when to look.

use completion::{Cause, Mode, Plan, Policy, Seen, Woke};
use driver::QueuePair;
use nvme::Vector;
use units::Nanos;

use crate::port::{SimCq, SimSq, Vectors};

/// A queue pair in simulated memory.
pub(crate) type Pair = QueuePair<SimSq, SimCq>;

/// A hardware queue and what its thread knows of it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) pair: Pair,
    pub(crate) vector: Vector,
    pub(crate) policy: Policy,
    /// What the policy answered last. A plan to look stands until the queue has had its turn.
    pub(crate) plan: Plan,
    /// What the policy is told next.
    pub(crate) seen: Seen,
    /// The mode that was asked for and not yet adopted.
    pub(crate) wanted: Option<Mode>,
    /// The eventfd: signalled, and not read since.
    pub(crate) signalled: bool,
    /// The thread has slept, or was away, since the last look.
    pub(crate) slept: bool,
}

impl Lane {
    pub(crate) fn new(pair: Pair, vector: Vector, mode: Mode, vectors: &Vectors) -> Lane {
        let seen = Seen::default();
        let lane = Lane { pair, vector, policy: Policy::new(mode), plan: Plan::Rest, seen, wanted: None, signalled: false, slept: false };
        lane.settle(vectors);
        lane
    }

    /// Between two batches: takes over the mode that was asked for. Commands stay in flight; the new policy never heard
    /// of them. The notification is set as it wants it, and then there is a look, as after any arming: what was posted
    /// under the mask has sent no message.
    pub(crate) fn adopt(&mut self, vectors: &Vectors) {
        if let Some(mode) = self.wanted.take() {
            self.policy = Policy::new(mode);
            self.settle(vectors);
            self.seen.woke = Some(Woke { cause: Cause::Other, late: Nanos::ZERO });
        }
    }

    /// Whether going to sleep arms it: the policy sleeps, and has kept it masked. Where nothing is ever masked, every
    /// entry has sent its message, and the signal is sticky.
    pub(crate) fn is_to_arm(&self) -> bool {
        matches!(self.plan, Plan::Sleep { .. }) && self.policy.masks()
    }

    /// The thread is awake: masks the notification, unless the policy leaves it alone. Whether it wrote anything.
    pub(crate) fn mask(&self, vectors: &Vectors) -> bool {
        let masks = self.policy.masks();
        if masks {
            vectors.mask(self.vector);
        }
        masks
    }

    fn settle(&self, vectors: &Vectors) {
        if !self.mask(vectors) {
            vectors.arm(self.vector);
        }
    }
}
