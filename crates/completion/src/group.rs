//! Shares one thread among its queues: round-robin, within a weight per queue and a budget and time
//! per round, as NAPI's softirq does. [`combine`] merges the plans of all queues into the thread's.

use crate::{Nanos, Plan, PollLimits};

/// One poll of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Index of the queue in the thread's list.
    pub queue: usize,
    /// Most entries to take; never 0.
    pub budget: u32,
}

/// The state of a round. Kept between rounds, so that the next one continues at the queue where the
/// last one stopped.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Index of the queue to poll next.
    first: usize,
    weight: u32,
    left: u32,
    until: Nanos,
}

impl Round {
    /// Starts a round, after the thread has done its other work.
    #[inline]
    pub fn begin(&mut self, now: Nanos, limits: PollLimits) {
        // At least one poll, so that limits of zero still make progress.
        self.left = limits.budget.max(1);
        self.weight = limits.weight;
        self.until = now + limits.time.max(Nanos(1));
    }

    /// The next queue whose plan is `Poll`. `None`: there is none, or the budget or time is used
    /// up; [`combine`] over the same plans tells the two apart. Each poll must be followed by
    /// [`Round::took`].
    #[inline]
    pub fn turn(&mut self, now: Nanos, plans: &[Plan]) -> Option<Turn> {
        if self.left == 0 || now >= self.until {
            return None;
        }
        for _ in plans {
            let queue = if self.first < plans.len() { self.first } else { 0 };
            // Advance even if the round ends here, so that the next one starts with another queue.
            self.first = queue + 1;
            if let Some(&Plan::Poll { budget }) = plans.get(queue) {
                return Some(Turn { queue, budget: budget.min(self.weight).min(self.left).max(1) });
            }
        }
        None
    }

    /// Subtracts the entries that the poll took from the budget. An empty poll counts as one, so
    /// that each round ends.
    #[inline]
    pub fn took(&mut self, found: u32) {
        self.left = self.left.saturating_sub(found.max(1));
    }
}

/// The plan of a thread, from the plans of its queues: the most urgent kind, in the order poll,
/// spin, nap, sleep, until the earliest instant and for the fewest completions of any of them.
/// Before a `Nap` or `Sleep` the executor arms each queue whose own plan is `Sleep`; in a `Spin` it
/// polls every queue with commands in flight.
#[inline]
pub fn combine(plans: impl IntoIterator<Item = Plan>) -> Plan {
    let mut all = Plan::Idle;
    let (mut earliest, mut fewest) = (Nanos::MAX, u32::MAX);
    for plan in plans {
        if let Plan::Spin { until } | Plan::Nap { until, .. } | Plan::Sleep { until, .. } = plan {
            earliest = earliest.min(until);
        }
        if let Plan::Sleep { at_least, .. } = plan {
            fewest = fewest.min(at_least);
        }
        // One queue that must be polled keeps the whole thread awake.
        if urgency(plan) > urgency(all) {
            all = plan;
        }
    }
    match all {
        Plan::Spin { .. } => Plan::Spin { until: earliest },
        Plan::Nap { .. } => Plan::nap(earliest),
        Plan::Sleep { .. } => Plan::Sleep { until: earliest, at_least: fewest, keep_armed: false },
        Plan::Poll { .. } | Plan::Idle => all,
    }
}

fn urgency(plan: Plan) -> u8 {
    match plan {
        Plan::Idle => 0,
        Plan::Sleep { .. } => 1,
        Plan::Nap { .. } => 2,
        Plan::Spin { .. } => 3,
        Plan::Poll { .. } => 4,
    }
}

#[cfg(test)]
mod tests;
