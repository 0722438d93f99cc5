//! The fair scheduler of one CPU: of the threads that are ready, whoever has had the least CPU time is next.

use units::Nanos;

use crate::Scheduler;

/// Names a thread.
pub(crate) type TaskId = usize;

/// What the scheduler knows of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// CPU time that it has had, or is taken to have had: who sleeps saves none up.
    pub(crate) vruntime: Nanos,
    /// It runs before any other, as interrupt threads do.
    pub(crate) first: bool,
}

/// The threads that are ready and do not run.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queue: Vec<(Share, TaskId)>,
    /// No thread of this CPU has had less.
    floor: Nanos,
}

impl Ready {
    /// A thread is ready. `woken`: it has slept, and is placed near the others, a slice ahead at most.
    pub(crate) fn add(&mut self, task: TaskId, share: &mut Share, woken: bool, scheduler: &Scheduler) {
        if woken {
            share.vruntime = share.vruntime.max(self.floor - scheduler.slice);
        }
        self.queue.push((*share, task));
    }

    /// The one whose turn it is.
    pub(crate) fn take(&mut self) -> Option<TaskId> {
        let next = self.queue.iter().enumerate().min_by_key(|(_, (share, task))| (!share.first, share.vruntime, *task))?.0;
        let (share, task) = self.queue.swap_remove(next);
        if !share.first {
            self.floor = self.floor.max(share.vruntime);
        }
        Some(task)
    }

    /// Whether anybody is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a thread that has just become ready takes the CPU from the current one.
    pub(crate) fn preempts(new: &Share, current: &Share, scheduler: &Scheduler) -> bool {
        if new.first || current.first {
            return new.first && !current.first;
        }
        new.vruntime + scheduler.wakeup_granularity < current.vruntime
    }
}

#[cfg(test)]
mod tests;
