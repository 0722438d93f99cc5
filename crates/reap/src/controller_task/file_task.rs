//! What is looked after of a file or a block device: late requests, queues that their threads have left, and the end.

use std::sync::Arc;

use hw::EventFd;
use units::Nanos;

use super::orphans::SWEEP_EVERY;
use super::{Charge, Turn};
use crate::error::OpenError;
use crate::shared::control::Asks;
use crate::shared::queue_shared::{FileQueues, Orphan};
use crate::thread::block_on;
use crate::wake::{on_another_thread, wake_all};

/// How long a device that is closed waits for what the kernel has not answered.
const CLOSING: Nanos = Nanos::from_secs(10);

/// Late requests are looked for at most this often.
const LATE_EVERY: Nanos = Nanos::from_secs(1);

/// Looks after one file or block device.
pub(crate) struct FileTask {
    asks: Arc<Asks>,
    queues: Arc<FileQueues>,
    timeout: Nanos,
    orphans: Vec<Box<dyn Orphan>>,
    /// When what is left is given up: known once the device is closed.
    closes_at: Option<Nanos>,
}

impl FileTask {
    pub(super) fn new(asks: Arc<Asks>, queues: Arc<FileQueues>, timeout: Nanos) -> FileTask {
        FileTask { asks, queues, timeout, orphans: Vec::new(), closes_at: None }
    }

    /// Each queue's thread cancels its own late requests: it is woken for that if it sleeps. When to come again.
    fn wake_late(&self, now: Nanos) -> Nanos {
        // What is posted from now on is late after its time-out.
        let mut until = now + Nanos(self.timeout.0 / 2).max(SWEEP_EVERY);
        for queue in self.queues.all().iter().filter(|queue| queue.open() > 0) {
            if queue.late_at() <= now {
                queue.wake.tell();
            }
            until = until.min(queue.late_at().max(now + LATE_EVERY));
        }
        until
    }
}

impl Charge for FileTask {
    fn vector(&self) -> Option<&EventFd> {
        None
    }

    fn refuse(&mut self, error: OpenError) {
        tracing::error!(%error, "a file cannot be looked after");
    }

    fn turn(&mut self, now: Nanos) -> Turn {
        // In this order: once the device is closing no queue is left that could lose its thread.
        let closing = self.asks.is_closing();
        self.orphans.append(&mut self.asks.take_orphans());
        if closing && self.closes_at.is_none() {
            self.closes_at = Some(now + CLOSING);
            self.orphans.iter_mut().for_each(|orphan| orphan.cancel_all());
        }
        let gives_up = self.closes_at.is_some_and(|at| now >= at);
        self.orphans.retain_mut(|orphan| {
            let (mut wakers, mut memory) = orphan.turn(now);
            if gives_up {
                let (more, more_memory) = orphan.lose_all();
                wakers.extend(more);
                memory.extend(more_memory);
            }
            on_another_thread("reap-wake", wakers, wake_all);
            on_another_thread("reap-let-go", memory, block_on::let_go);
            let open = orphan.shared().open() > 0;
            if !open {
                self.queues.remove(orphan.shared());
            }
            open
        });
        _ = self.asks.take_reset();
        self.asks.health().aborts += self.asks.reporter.take_cancelled();
        if closing && self.orphans.is_empty() {
            return Turn::Ended;
        }
        let until = self.wake_late(now);
        Turn::Until(if self.orphans.is_empty() { until } else { until.min(now + SWEEP_EVERY) })
    }
}

#[cfg(test)]
mod tests;
