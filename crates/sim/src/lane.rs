//! One hardware queue as its thread sees it: the queue pair, and the policy that says when to look.

use completion::{Cause, Mode, Notifier, Plan, Policy, Seen, Tuning, Woke};
use driver::QueuePair;
use units::Nanos;

use crate::port::{SimCq, SimSq};

/// A queue pair in simulated memory.
pub(crate) type Pair = QueuePair<SimSq, SimCq>;

/// A hardware queue and what its thread knows of it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its number among the thread's queues.
    index: usize,
    pub(crate) pair: Pair,
    pub(crate) policy: Policy,
    tuning: Tuning,
    /// What the policy answered last. A plan to look stands until the queue has had its turn.
    pub(crate) plan: Plan,
    /// What the policy is told next.
    pub(crate) seen: Seen,
    /// The mode that was asked for and not yet adopted.
    pub(crate) wanted: Option<Mode>,
    /// The thread has slept, or was away, since the last look.
    pub(crate) slept: bool,
}

impl Lane {
    pub(crate) fn new(index: usize, pair: Pair, mode: Mode, tuning: Tuning, notifier: &impl Notifier) -> Lane {
        let (policy, seen) = (Policy::with(mode, &tuning), Seen::default());
        let lane = Lane { index, pair, policy, tuning, plan: Plan::Rest, seen, wanted: None, slept: false };
        lane.settle(notifier);
        lane
    }

    /// Between two batches: takes over the mode that was asked for. Commands stay in flight; the new policy never heard
    /// of them. The notification is set as it wants it, and then there is a look (unless this is the broken twin), as
    /// after any arming: what was posted under the mask has sent no message.
    pub(crate) fn adopt(&mut self, notifier: &impl Notifier, looks: bool) {
        if let Some(mode) = self.wanted.take() {
            self.policy = Policy::with(mode, &self.tuning);
            self.settle(notifier);
            if looks {
                self.seen.woke = Some(Woke { cause: Cause::Other, late: Nanos::ZERO });
            }
        }
    }

    /// Whether going to sleep arms it: the policy sleeps, and has kept it masked. Where nothing is ever masked, every
    /// entry has sent its message, and the signal is sticky.
    pub(crate) fn is_to_arm(&self) -> bool {
        matches!(self.plan, Plan::Sleep { .. }) && self.policy.masks()
    }

    /// Allows its notification.
    pub(crate) fn arm(&self, notifier: &impl Notifier) {
        notifier.arm(self.index);
    }

    /// The thread is awake: masks the notification, unless the policy leaves it alone. Whether it did.
    pub(crate) fn mask(&self, notifier: &impl Notifier) -> bool {
        let masks = self.policy.masks();
        if masks {
            notifier.mask(self.index);
        }
        masks
    }

    fn settle(&self, notifier: &impl Notifier) {
        if !self.mask(notifier) {
            notifier.arm(self.index);
        }
    }
}
