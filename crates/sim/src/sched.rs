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
    pub(crate) fifo: bool,
}

/// The threads that are ready and do not run.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    queue: Vec<(Share, TaskId)>,
    /// No thread of this CPU has had less.
    min_vruntime: Nanos,
    /// Of those that come first, in the order in which they became ready.
    fifo: std::collections::VecDeque<(Share, TaskId)>,
}

impl RunQueue {
    /// A thread is ready. `woken`: it has slept, and is placed near the others, a slice ahead at most.
    pub(crate) fn enqueue(&mut self, task: TaskId, share: &mut Share, woken: bool, scheduler: &Scheduler) {
        if share.fifo {
            // One that was interrupted by a quota's end is still the first of them.
            if woken {
                self.fifo.push_back((*share, task))
            } else {
                self.fifo.push_front((*share, task))
            }
            return;
        }
        if woken {
            share.vruntime = share.vruntime.max(self.min_vruntime - scheduler.slice);
        }
        self.queue.push((*share, task));
    }

    /// The one whose turn it is. `throttled`: those that come first have had their part of the period, so that others are before them.
    pub(crate) fn pick_next(&mut self, throttled: bool) -> Option<TaskId> {
        if !self.fifo.is_empty() && (!throttled || self.queue.is_empty()) {
            return self.fifo.pop_front().map(|(_, task)| task);
        }
        let next = self.queue.iter().enumerate().min_by_key(|(_, (share, task))| (share.vruntime, *task))?.0;
        let (share, task) = self.queue.swap_remove(next);
        self.min_vruntime = self.min_vruntime.max(share.vruntime);
        Some(task)
    }

    /// Whether anybody is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.fifo.is_empty()
    }

    /// Whether one is ready that does not come first.
    pub(crate) fn has_fair(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether one is ready that does.
    pub(crate) fn has_fifo(&self) -> bool {
        !self.fifo.is_empty()
    }

    /// Whether a thread that has just become ready takes the CPU from the current one.
    pub(crate) fn preempts(new: &Share, current: &Share, throttled: bool, scheduler: &Scheduler) -> bool {
        if new.fifo || current.fifo {
            return new.fifo && !current.fifo && !throttled;
        }
        new.vruntime + scheduler.wakeup_granularity < current.vruntime
    }
}

/// What the threads that come first have had of a CPU's current period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RtQuota {
    /// The period is over then.
    ends: Nanos,
    used: Nanos,
}

impl RtQuota {
    /// They have had so much more, until `now`.
    pub(crate) fn charge(&mut self, now: Nanos, ran: Nanos, scheduler: &Scheduler) {
        self.renew(now, scheduler);
        self.used += ran;
    }

    /// What is left of it.
    pub(crate) fn remaining(&mut self, now: Nanos, scheduler: &Scheduler) -> Nanos {
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
            *self = RtQuota { ends: Nanos((now.0 / period).saturating_add(1).saturating_mul(period)), used: Nanos::ZERO };
        }
    }
}

#[cfg(test)]
mod tests;
