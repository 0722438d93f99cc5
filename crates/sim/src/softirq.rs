//! The queues that irq_poll's softirq polls on one CPU: round-robin, within weight, budget and
//! time. After too many runs in a row ksoftirqd does the rest:
//!
//! ```text
//! interrupt -> schedule -> run 1 .. run n    (n <= restarts, 2 ms)  -> ksoftirqd
//! ```

use completion::{Plan, PollLimits, Round};
use units::Nanos;

use crate::Softirq;

/// Linux's `MAX_SOFTIRQ_TIME`: for how long `__do_softirq` restarts.
const MAX_SOFTIRQ_TIME: Nanos = Nanos::from_millis(2);

/// The queues whose interrupts this CPU takes, and which of them are scheduled.
#[derive(Debug, Default)]
pub(crate) struct Pollers {
    pub(crate) queues: Vec<usize>,
    /// By queue: whether it is to be polled.
    pub(crate) plans: Vec<Plan>,
    pub(crate) round: Round,
    pub(crate) stage: PollStage,
    limits: Softirq,
    /// Number of runs in a row.
    runs: u32,
    /// When the first run of `runs` began.
    began: Nanos,
    /// The rest is left to ksoftirqd: no interrupt runs the softirq, even if ksoftirqd has not
    /// started yet (as in Linux 4.9 to 6.4).
    pub(crate) handed_over: bool,
}

/// What the softirq does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PollStage {
    /// Nothing: the softirq is not raised.
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

    /// Adds queues whose interrupts this CPU takes.
    pub(crate) fn add(&mut self, queues: Vec<usize>) {
        self.plans.extend(queues.iter().map(|_| Plan::Idle));
        self.queues.extend(queues);
    }

    /// Whether the softirq runs at the end of an interrupt.
    pub(crate) fn is_raised(&self) -> bool {
        self.stage != PollStage::Quiet && !self.handed_over
    }

    /// Schedules the n-th queue to be polled, and raises the softirq.
    pub(crate) fn schedule(&mut self, n: usize, budget: u32, now: Nanos) {
        self.plans[n] = Plan::Poll { budget };
        // While a run is under way the queue joins the run; raising the softirq again would restart
        // the run's limits.
        if self.stage == PollStage::Quiet {
            (self.stage, self.runs, self.began) = (PollStage::Begin, 0, now);
        }
    }

    /// A run begins, with the limits of the mode.
    pub(crate) fn begin_run(&mut self, now: Nanos, limits: PollLimits) {
        self.round.begin(now, limits);
        self.stage = PollStage::Turn;
    }

    /// Ends a run. Returns whether ksoftirqd does the rest: queues are still scheduled, and there
    /// were too many runs in a row or a thread is to be scheduled (`resched`).
    pub(crate) fn end_run(&mut self, now: Nanos, resched: bool) -> bool {
        if !self.plans.iter().any(|plan| matches!(plan, Plan::Poll { .. })) {
            (self.stage, self.handed_over) = (PollStage::Quiet, false);
            return false;
        }
        self.stage = PollStage::Begin;
        self.runs += 1;
        // The three conditions of `__do_softirq`: restarts, time, need_resched.
        if self.runs >= self.limits.restarts.max(1)
            || now - self.began >= MAX_SOFTIRQ_TIME
            || resched
        {
            // ksoftirqd starts with new limits.
            (self.runs, self.began) = (0, now);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests;
