//! Who looks: the queues of one thread take turns.

use units::Nanos;

use crate::{KeepArmed, Plan, PollLimits};

/// One queue's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Index of the queue in the thread's list.
    pub queue: usize,
    /// Most entries to take; never 0.
    pub budget: u32,
}

/// The round under way. It lives as long as the thread, so that a round that was cut short goes on
/// where it stopped.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The queue whose turn it is next.
    first: usize,
    weight: u32,
    left: u32,
    until: Nanos,
}

impl Round {
    /// Starts a round, after the thread has done whatever else it has to do.
    #[inline]
    pub fn begin(&mut self, now: Nanos, limits: PollLimits) {
        // A round has at least one turn, or limits of nothing would never poll.
        self.left = limits.budget.max(1);
        self.weight = limits.weight;
        self.until = now + limits.time.max(Nanos(1));
    }

    /// Whose turn it is: the next queue that plans to look. `None`: no queue does, or the round is
    /// over; what [`combine`] says of the same plans tells which. Each turn is followed by
    /// [`Round::took`].
    #[inline]
    pub fn turn(&mut self, now: Nanos, plans: &[Plan]) -> Option<Turn> {
        if self.left == 0 || now >= self.until {
            return None;
        }
        for _ in plans {
            let queue = if self.first < plans.len() { self.first } else { 0 };
            self.first = queue + 1;
            if let Some(&Plan::Poll { budget }) = plans.get(queue) {
                return Some(Turn { queue, budget: budget.min(self.weight).min(self.left).max(1) });
            }
        }
        None
    }

    /// Counts the entries that the turn took. A turn that found nothing counts as one, so that a
    /// round always ends.
    #[inline]
    pub fn took(&mut self, found: u32) {
        self.left = self.left.saturating_sub(found.max(1));
    }
}

/// What a thread does whose queues plan this: look if any does, else spin if any does, else nap,
/// else sleep, until the earliest instant that any of them named, and for as few completions as any
/// of them waits for. Where the answer is `Nap` or `Sleep`, the executor first arms each queue
/// whose own plan is `Sleep`; where it is `Spin`, it looks at every queue with commands in flight.
#[inline]
pub fn combine(plans: impl IntoIterator<Item = Plan>) -> Plan {
    let mut all = Plan::Rest;
    let (mut earliest, mut fewest) = (Nanos::MAX, u32::MAX);
    for plan in plans {
        if let Plan::Spin { until } | Plan::Nap { until, .. } | Plan::Sleep { until, .. } = plan {
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
        Plan::Nap { .. } => Plan::nap(earliest),
        Plan::Sleep { .. } => {
            Plan::Sleep { until: earliest, at_least: fewest, hold: 0, keep_armed: KeepArmed::Never }
        }
        Plan::Poll { .. } | Plan::Rest => all,
    }
}

fn urgency(plan: Plan) -> u8 {
    match plan {
        Plan::Rest => 0,
        Plan::Sleep { .. } => 1,
        Plan::Nap { .. } => 2,
        Plan::Spin { .. } => 3,
        Plan::Poll { .. } => 4,
    }
}

#[cfg(test)]
mod tests;
