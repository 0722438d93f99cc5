//! The scheduler of one CPU: of the threads that are ready, those of interrupts come first, in the order in which they became ready, and of
//! the others the one that has had the least CPU time is next.

use units::Nanos;

use crate::Scheduler;

/// Names a thread.
pub(crate) type TaskId = usize;

/// What the scheduler knows of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// CPU time that it has had, or is taken to have had: who sleeps saves none up.
    pub(crate) vruntime: Nanos,
    /// It runs before any other, until it sleeps: interrupt threads are `SCHED_FIFO` at priority 50.
    pub(crate) first: bool,
}

/// The threads that are ready and do not run.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queue: Vec<(Share, TaskId)>,
    /// No thread of this CPU has had less.
    floor: Nanos,
    /// Of those that come first, in the order in which they became ready.
    first: std::collections::VecDeque<(Share, TaskId)>,
}

impl Ready {
    /// A thread is ready. `woken`: it has slept, and is placed near the others, a slice ahead at most.
    pub(crate) fn add(&mut self, task: TaskId, share: &mut Share, woken: bool, scheduler: &Scheduler) {
        if share.first {
            // One that was interrupted by a quota's end is still the first of them.
            if woken {
                self.first.push_back((*share, task))
            } else {
                self.first.push_front((*share, task))
            }
            return;
        }
        if woken {
            share.vruntime = share.vruntime.max(self.floor - scheduler.slice);
        }
        self.queue.push((*share, task));
    }

    /// The one whose turn it is. `throttled`: those that come first have had their part of the period, so that others are before them.
    pub(crate) fn take(&mut self, throttled: bool) -> Option<TaskId> {
        if !self.first.is_empty() && (!throttled || self.queue.is_empty()) {
            return self.first.pop_front().map(|(_, task)| task);
        }
        let next = self.queue.iter().enumerate().min_by_key(|(_, (share, task))| (share.vruntime, *task))?.0;
        let (share, task) = self.queue.swap_remove(next);
        self.floor = self.floor.max(share.vruntime);
        Some(task)
    }

    /// Whether anybody is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.first.is_empty()
    }

    /// Whether one is ready that does not come first.
    pub(crate) fn has_others(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether one is ready that does.
    pub(crate) fn has_first(&self) -> bool {
        !self.first.is_empty()
    }

    /// Whether a thread that has just become ready takes the CPU from the current one.
    pub(crate) fn preempts(new: &Share, current: &Share, throttled: bool, scheduler: &Scheduler) -> bool {
        if new.first || current.first {
            return new.first && !current.first && !throttled;
        }
        new.vruntime + scheduler.wakeup_granularity < current.vruntime
    }
}

/// What the threads that come first have had of a CPU's current period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quota {
    /// The period is over then.
    ends: Nanos,
    used: Nanos,
}

impl Quota {
    /// They have had so much more, until `now`.
    pub(crate) fn spend(&mut self, now: Nanos, ran: Nanos, scheduler: &Scheduler) {
        self.renew(now, scheduler);
        self.used += ran;
    }

    /// What is left of it.
    pub(crate) fn left(&mut self, now: Nanos, scheduler: &Scheduler) -> Nanos {
        if scheduler.rt_runtime >= scheduler.rt_period {
            return Nanos::MAX;
        }
        self.renew(now, scheduler);
        scheduler.rt_runtime - self.used
    }

    /// When the next period begins.
    pub(crate) fn ends(&self) -> Nanos {
        self.ends
    }

    fn renew(&mut self, now: Nanos, scheduler: &Scheduler) {
        if now >= self.ends {
            let period = scheduler.rt_period.0.max(1);
            *self = Quota { ends: Nanos((now.0 / period).saturating_add(1).saturating_mul(period)), used: Nanos::ZERO };
        }
    }
}

#[cfg(test)]
mod tests;
