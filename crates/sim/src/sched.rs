//! The scheduler of one CPU. Interrupt threads (SCHED_FIFO) run first, in the order in which they
//! became ready. Of the other threads the one with the least virtual run time runs, as in CFS.

use units::Nanos;

use crate::Scheduler;

/// The number of a thread.
pub(crate) type TaskId = usize;

/// The scheduler's data of a thread (`sched_entity` in Linux).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchedEntity {
    /// CPU time that the thread has used (virtual run time). After a sleep it is raised, if
    /// necessary, to the queue's `min_vruntime` minus one slice.
    pub(crate) vruntime: Nanos,
    /// SCHED_FIFO: it runs before all others until it sleeps.
    pub(crate) fifo: bool,
}

/// The threads that are ready and do not run.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    /// Threads of normal priority.
    queue: Vec<(SchedEntity, TaskId)>,
    /// The largest virtual run time of the threads picked so far, as in CFS. A thread that has
    /// slept may have up to one slice less.
    min_vruntime: Nanos,
    /// SCHED_FIFO threads, in the order in which they became ready.
    fifo: std::collections::VecDeque<(SchedEntity, TaskId)>,
}

impl RunQueue {
    /// A thread is ready. `woken`: it has slept.
    pub(crate) fn enqueue(
        &mut self,
        task: TaskId,
        share: &mut SchedEntity,
        woken: bool,
        scheduler: &Scheduler,
    ) {
        if share.fifo {
            // A thread preempted at the end of the quota stays first.
            if woken {
                self.fifo.push_back((*share, task))
            } else {
                self.fifo.push_front((*share, task))
            }
            return;
        }
        if woken {
            // By sleeping a thread gains at most one slice over the other threads.
            share.vruntime = share.vruntime.max(self.min_vruntime - scheduler.slice);
        }
        self.queue.push((*share, task));
    }

    /// Takes the next thread. `throttled`: the quota of SCHED_FIFO threads is used up, so threads
    /// of normal priority run before them.
    pub(crate) fn pick_next(&mut self, throttled: bool) -> Option<TaskId> {
        if !self.fifo.is_empty() && (!throttled || self.queue.is_empty()) {
            return self.fifo.pop_front().map(|(_, task)| task);
        }
        let next = self
            .queue
            .iter()
            .enumerate()
            .min_by_key(|(_, (share, task))| (share.vruntime, *task))?
            .0;
        let (share, task) = self.queue.swap_remove(next);
        self.min_vruntime = self.min_vruntime.max(share.vruntime);
        Some(task)
    }

    /// Whether no thread is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.fifo.is_empty()
    }

    /// Whether a thread of normal priority is ready.
    pub(crate) fn has_fair(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a SCHED_FIFO thread is ready.
    pub(crate) fn has_fifo(&self) -> bool {
        !self.fifo.is_empty()
    }

    /// Whether a thread that has just become ready preempts the current one.
    pub(crate) fn preempts(
        new: &SchedEntity,
        current: &SchedEntity,
        throttled: bool,
        scheduler: &Scheduler,
    ) -> bool {
        if new.fifo || current.fifo {
            return new.fifo && !current.fifo && !throttled;
        }
        new.vruntime + scheduler.wakeup_granularity < current.vruntime
    }
}

/// CPU time that SCHED_FIFO threads have had in the current period (`sched_rt_runtime_us`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RtQuota {
    /// The end of the period.
    ends: Nanos,
    used: Nanos,
}

impl RtQuota {
    /// Charges CPU time that a SCHED_FIFO thread has used up to `now`.
    pub(crate) fn charge(&mut self, now: Nanos, ran: Nanos, scheduler: &Scheduler) {
        self.renew(now, scheduler);
        self.used += ran;
    }

    /// The rest of the current period's quota.
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
            *self = RtQuota {
                ends: Nanos((now.0 / period).saturating_add(1).saturating_mul(period)),
                used: Nanos::ZERO,
            };
        }
    }
}

#[cfg(test)]
mod tests;
