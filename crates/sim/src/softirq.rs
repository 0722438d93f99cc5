//! The pollers of one CPU: the list that irq_poll's softirq goes through, round-robin, within weight, budget and time.

use completion::{Plan, PollLimits, Round};
use units::Nanos;

use crate::Softirq;

/// For how long `__do_softirq` restarts at most.
const MOST_TIME: Nanos = Nanos::from_millis(2);

/// The queues whose interrupts this CPU takes, and which of them are scheduled.
#[derive(Debug, Default)]
pub(crate) struct Pollers {
    pub(crate) queues: Vec<usize>,
    /// Of each, whether it is to be looked at.
    pub(crate) plans: Vec<Plan>,
    pub(crate) round: Round,
    pub(crate) stage: PollStage,
    limits: Softirq,
    /// Runs in a row, and when the first of them began.
    runs: u32,
    began: Nanos,
    /// The rest is ksoftirqd's, also while it has not begun (as in Linux 4.9 to 6.4).
    pub(crate) handed_over: bool,
}

/// What the softirq does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PollStage {
    /// Nothing: it is not raised.
    #[default]
    Quiet,
    /// A run begins.
    Begin,
    /// The next queue's turn.
    Turn,
    /// The rest of a queue's turn.
    Queue(usize),
}

impl Pollers {
    pub(crate) fn new(limits: Softirq) -> Pollers {
        Pollers { limits, ..Pollers::default() }
    }

    /// This CPU takes the interrupts of these queues.
    pub(crate) fn add(&mut self, queues: Vec<usize>) {
        self.plans.extend(queues.iter().map(|_| Plan::Rest));
        self.queues.extend(queues);
    }

    /// Whether the softirq has something to do at the end of an interrupt.
    pub(crate) fn is_raised(&self) -> bool {
        self.stage != PollStage::Quiet && !self.handed_over
    }

    /// A queue is to be looked at.
    pub(crate) fn schedule(&mut self, n: usize, budget: u32, now: Nanos) {
        self.plans[n] = Plan::Look { budget };
        if self.stage == PollStage::Quiet {
            (self.stage, self.runs, self.began) = (PollStage::Begin, 0, now);
        }
    }

    /// A run begins, in a mode of these limits.
    pub(crate) fn begin_run(&mut self, now: Nanos, limits: PollLimits) {
        self.round.begin(now, limits);
        self.stage = PollStage::Turn;
    }

    /// A run is over. Whether the rest is to be ksoftirqd's, because there have been too many runs in a row, or because a
    /// thread is to have the CPU.
    pub(crate) fn end_run(&mut self, now: Nanos, wanted: bool) -> bool {
        if !self.plans.iter().any(|plan| matches!(plan, Plan::Look { .. })) {
            (self.stage, self.handed_over) = (PollStage::Quiet, false);
            return false;
        }
        self.stage = PollStage::Begin;
        self.runs += 1;
        if self.runs >= self.limits.restarts.max(1) || now - self.began >= MOST_TIME || wanted {
            (self.runs, self.began) = (0, now);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests;
