//! The task of a file or a block device: wakes threads whose requests are late, polls queues whose
//! thread is gone, and closes the device.

use std::sync::Arc;

use hw::EventFd;
use units::Nanos;

use super::orphans::SWEEP_EVERY;
use super::{DeviceTask, TaskStatus};
use crate::error::OpenError;
use crate::shared::control::ControlShared;
use crate::shared::queue_shared::{FileQueues, Orphan};
use crate::thread::block_on;
use crate::wake::{on_another_thread, wake_all};

/// After the close, how long to wait for requests that the kernel was asked to cancel.
const CLOSING: Nanos = Nanos::from_secs(10);

/// Shortest interval between two wake-ups of a thread for late requests.
const LATE_EVERY: Nanos = Nanos::from_secs(1);

/// The task of one file or block device.
pub(crate) struct FileTask {
    shared: Arc<ControlShared>,
    queues: Arc<FileQueues>,
    timeout: Nanos,
    /// Queues whose thread is gone, with requests in flight.
    orphans: Vec<Box<dyn Orphan>>,
    /// Set when the device is closed: open requests are lost then.
    closes_at: Option<Nanos>,
}

impl FileTask {
    pub(super) fn new(
        shared: Arc<ControlShared>,
        queues: Arc<FileQueues>,
        timeout: Nanos,
    ) -> FileTask {
        FileTask { shared, queues, timeout, orphans: Vec::new(), closes_at: None }
    }

    /// Wakes threads that sleep while requests of theirs are late: only a queue's own thread can
    /// cancel them. Returns when to step again.
    fn wake_late(&self, now: Nanos) -> Nanos {
        // A request that is posted after this step is late after one time-out. A step before that
        // finds the queue's `late_at`.
        let mut until = now + Nanos(self.timeout.0 / 2).max(SWEEP_EVERY);
        for queue in self.queues.all().iter().filter(|queue| queue.open() > 0) {
            if queue.late_at() <= now {
                queue.wake.notify();
            }
            until = until.min(queue.late_at().max(now + LATE_EVERY));
        }
        until
    }
}

impl DeviceTask for FileTask {
    fn vector(&self) -> Option<&EventFd> {
        None
    }

    fn refuse(&mut self, error: OpenError) {
        // Never called: it has no vector, whose registration could fail.
        tracing::error!(%error, "the task of a file cannot run");
    }

    fn step(&mut self, now: Nanos) -> TaskStatus {
        // `is_closing` first: after that no queue can lose its thread, so `take_orphans` returns
        // the last ones.
        let closing = self.shared.is_closing();
        self.orphans.append(&mut self.shared.take_orphans());
        if closing && self.closes_at.is_none() {
            self.closes_at = Some(now + CLOSING);
            self.orphans.iter_mut().for_each(|orphan| orphan.cancel_all());
        }
        let gives_up = self.closes_at.is_some_and(|at| now >= at);
        self.orphans.retain_mut(|orphan| {
            let (mut wakers, mut memory) = orphan.poll_orphan(now);
            if gives_up {
                let (more, more_memory) = orphan.lose_all();
                wakers.extend(more);
                memory.extend(more_memory);
            }
            // Both run the application's code, which may block.
            on_another_thread("reap-wake", wakers, wake_all);
            on_another_thread("reap-drop", memory, block_on::drop_buffers);
            let open = orphan.shared().open() > 0;
            if !open {
                self.queues.remove(orphan.shared());
            }
            open
        });
        // A file has no reset.
        _ = self.shared.take_reset();
        self.shared.health().aborts += self.shared.reporter.take_cancelled();
        if closing && self.orphans.is_empty() {
            return TaskStatus::Ended;
        }
        let until = self.wake_late(now);
        TaskStatus::Until(if self.orphans.is_empty() {
            until
        } else {
            until.min(now + SWEEP_EVERY)
        })
    }
}

#[cfg(test)]
mod tests;
