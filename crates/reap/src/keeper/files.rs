//! What is looked after of a file or a block device: requests that the kernel does not answer in time, queues that their threads
//! have left, and the end.

use std::sync::Arc;

use hw::EventFd;
use units::Nanos;

use super::moderation::fall_back;
use super::orphans::Orphans;
use super::{AGAIN, Charge, Turn};
use crate::error::OpenError;
use crate::shared::control::Asks;
use crate::shared::hw_queue::HwQueue;
use crate::shared::roster::{Present, Roster};

/// How long a device that nobody uses any more waits for what the kernel has not answered.
const CLOSING: Nanos = Nanos::from_secs(10);

/// Between two looks at the age of what is in flight, at most.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// Looks after one file or block device.
pub(crate) struct FileKeeper {
    roster: Arc<Roster>,
    asks: Arc<Asks>,
    orphans: Orphans,
    timeout: Nanos,
    look_at: Nanos,
    /// Since when nobody uses it any more.
    closing_since: Option<Nanos>,
}

impl FileKeeper {
    pub(super) fn new(roster: Arc<Roster>, asks: Arc<Asks>, timeout: Nanos) -> FileKeeper {
        FileKeeper { roster, asks, orphans: Orphans::new(), timeout, look_at: Nanos::ZERO, closing_since: None }
    }

    fn note(&self, what: String) {
        tracing::warn!("{what}");
        self.asks.health().note(what);
    }

    /// Nothing in the kernel can be aborted for sure: what is late is cancelled where that can be, and comes back with its own
    /// completion and not before.
    fn look_at_ages(&mut self, queues: &[Arc<HwQueue>], timeout: Nanos, now: Nanos) {
        for queue in queues {
            let late = queue.cancel_late(now, timeout);
            if late > 0 {
                self.asks.health().aborts += late;
                let me = queue.lane.id().0 - 1;
                self.note(format!("{late} requests of queue {me} have no answer after {timeout}: the kernel is asked to cancel them"));
            }
        }
        self.look_at = now + Nanos(timeout.0 / 4).min(LOOK_EVERY).max(AGAIN);
    }

    /// Nobody uses the device any more. When to come again; `None`: it is over.
    fn close(&mut self, present: &mut Present<'_>, now: Nanos) -> Option<Nanos> {
        let is_busy = |queue: &&Arc<HwQueue>| queue.softs.iter().any(|soft| soft.open() > 0);
        let left: Vec<_> = present.queues().iter().filter(is_busy).cloned().collect();
        if left.is_empty() {
            return None;
        }
        let since = *self.closing_since.get_or_insert(now);
        if now < since + CLOSING {
            self.look_at_ages(present.queues(), Nanos::ZERO, now);
            return Some(since + CLOSING);
        }
        for queue in left.into_iter().filter(|queue| queue.lacks_its_owner()) {
            // Only the thread that is gone could have taken its completions.
            tracing::error!(
                queue = queue.lane.id().0,
                "a closed file has requests that the kernel has not answered: their buffers are leaked"
            );
            self.orphans.forget(&queue);
            present.abandon(queue);
        }
        // What other rings have is taken whenever it comes: until then this thread keeps ring and memory.
        (!self.orphans.is_empty()).then_some(now + LOOK_EVERY)
    }
}

impl Charge for FileKeeper {
    fn vector(&self) -> Option<&EventFd> {
        None
    }

    fn refuse(&mut self, error: OpenError) {
        tracing::error!(%error, "a file cannot be looked after");
    }

    fn turn(&mut self, now: Nanos) -> Turn {
        _ = self.asks.take_reset();
        self.asks.reporter.violations().clear();
        let notes: Vec<_> = self.asks.reporter.notes().drain(..).collect();
        notes.into_iter().for_each(|what| self.note(what));
        let roster = self.roster.clone();
        let mut present = roster.present();
        let mut until = self.orphans.sweep(&self.asks, present.queues(), now, &mut false);
        present.retire();
        // Locked meanwhile: a caller that finds its queue in another mode finds in the health why.
        let mut health = self.asks.health();
        health.coalescing_refused |= fall_back(present.queues());
        drop(health);
        if self.asks.is_closing() {
            match self.close(&mut present, now) {
                Some(at) => until = until.min(at),
                None => return Turn::Ended,
            }
        } else if now >= self.look_at {
            self.look_at_ages(present.queues(), self.timeout, now);
        }
        let busy = present.queues().iter().any(|queue| queue.lane.in_flight() > 0);
        // With nothing in flight there is nothing that could be late; the next batch is at most a look away.
        Turn::Until(if busy { until.min(self.look_at) } else { until.min(now + Nanos(self.timeout.0 / 2)) })
    }
}

#[cfg(test)]
mod tests;
