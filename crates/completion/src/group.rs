//! Who looks: the queues of one thread take turns.

use units::Nanos;

use crate::{Plan, WEIGHT};

/// How the queues of one thread share it: round-robin, none for longer than its weight, all of them together for no
/// longer than budget and time limit, so that whatever else the thread has to do gets its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Most entries of one queue's turn.
    pub weight: u32,
    /// Most entries of a round over all queues.
    pub budget: u32,
    /// Longest round. A turn under way is not cut short.
    pub time_limit: Nanos,
}

/// The figures of irq_poll: weight 64, budget 256. Its softirq stops when the tick moves on; 2 ms is what NAPI allows.
impl Default for Group {
    fn default() -> Group {
        Group { weight: WEIGHT, budget: 256, time_limit: Nanos::from_millis(2) }
    }
}

/// One queue's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Index of the queue in the thread's list.
    pub queue: usize,
    /// Most entries to take; never 0.
    pub budget: u32,
}

/// The round under way. It lives as long as the thread, so that a round that was cut short goes on where it stopped.
#[derive(Clone, Debug, Default)]
pub struct Round {
    group: Group,
    /// The queue whose turn it is next.
    first: usize,
    left: u32,
    until: Nanos,
}

impl Round {
    /// No round yet: [`Round::begin`] starts one.
    pub fn new(group: Group) -> Round {
        Round { group, first: 0, left: 0, until: Nanos::ZERO }
    }

    /// Starts a round, after the thread has done whatever else it has to do.
    #[inline]
    pub fn begin(&mut self, now: Nanos) {
        // A round has at least one turn, or a group with nothing to spend would never look.
        self.left = self.group.budget.max(1);
        self.until = now + self.group.time_limit.max(Nanos(1));
    }

    /// Whose turn it is: the next queue that plans to look. `None`: no queue does, or the round is over; what
    /// [`combine`] says of the same plans tells which. Each turn is followed by [`Round::took`].
    #[inline]
    pub fn turn(&mut self, now: Nanos, plans: &[Plan]) -> Option<Turn> {
        if self.left == 0 || now >= self.until {
            return None;
        }
        for _ in plans {
            let queue = if self.first < plans.len() { self.first } else { 0 };
            self.first = queue + 1;
            if let Some(&Plan::Look { budget }) = plans.get(queue) {
                return Some(Turn { queue, budget: budget.min(self.group.weight).min(self.left).max(1) });
            }
        }
        None
    }

    /// Counts the entries that the turn took. A turn that found nothing counts as one, so that a round always ends.
    #[inline]
    pub fn took(&mut self, found: u32) {
        self.left = self.left.saturating_sub(found.max(1));
    }
}

/// What a thread does whose queues plan this: look if any does, else spin if any does, else nap, else sleep, until the
/// earliest instant that any of them named, and for as few completions as any of them waits for. Where the answer is `Nap` or `Sleep`, the executor first arms each queue
/// whose own plan is `Sleep`; where it is `Spin`, it looks at every queue with commands in flight.
#[inline]
pub fn combine(plans: impl IntoIterator<Item = Plan>) -> Plan {
    let mut all = Plan::Rest;
    let (mut earliest, mut fewest) = (Nanos::MAX, u32::MAX);
    for plan in plans {
        if let Plan::Spin { until } | Plan::Nap { until } | Plan::Sleep { until, .. } = plan {
            earliest = earliest.min(until);
        }
        if let Plan::Sleep { at_least, .. } = plan {
            fewest = fewest.min(at_least);
        }
        if urgency(plan) > urgency(all) {
            all = plan;
        }
    }
    match all {
        Plan::Spin { .. } => Plan::Spin { until: earliest },
        Plan::Nap { .. } => Plan::Nap { until: earliest },
        Plan::Sleep { .. } => Plan::Sleep { until: earliest, at_least: fewest },
        Plan::Look { .. } | Plan::Rest => all,
    }
}

fn urgency(plan: Plan) -> u8 {
    match plan {
        Plan::Rest => 0,
        Plan::Sleep { .. } => 1,
        Plan::Nap { .. } => 2,
        Plan::Spin { .. } => 3,
        Plan::Look { .. } => 4,
    }
}

#[cfg(test)]
mod tests;
