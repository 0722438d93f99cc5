//! Software queues whose thread is gone: what they have in flight is still reaped, and its buffers come back.

use std::sync::atomic::Ordering::Acquire;

use completion::{Mode, Policy};
use units::Nanos;

use super::asks::Change;
use super::{Keeper, lock};
use crate::executor;
use crate::looker::Looker;

/// How often abandoned software queues are looked at while something of theirs is in flight.
const SWEEP_EVERY: Nanos = Nanos::from_millis(1);

impl Keeper {
    /// Reaps for software queues that have no thread. When to come again.
    pub(super) fn sweep(&mut self, now: Nanos) -> Nanos {
        for change in lock(&self.asks.changes).drain(..) {
            match change {
                Change::Orphaned(queue, me) => self.orphans.push((queue, Looker::new(me, Policy::new(Mode::POLL)))),
                Change::Taken(queue, me) => {
                    let taken = &queue.softs[usize::from(me)];
                    self.orphans.retain(|(orphan, looker)| !std::ptr::eq(looker.soft_of(orphan), &**taken));
                }
            }
        }
        if self.asks.closing.load(Acquire) && self.orphans.is_empty() {
            // Futures may have outlived every queue.
            for queue in &self.queues {
                for me in (0..queue.softs.len()).filter(|&me| queue.softs[me].open() > 0) {
                    self.orphans.push((queue.clone(), Looker::new(me as u8, Policy::new(Mode::POLL))));
                }
            }
        }
        self.orphans.retain_mut(|(queue, looker)| {
            let soft = looker.soft_of(queue);
            let found = looker.look(queue, soft, u32::MAX).is_some();
            executor::wake_all(looker.take_wakers());
            if found || looker.seen.pending {
                // Somebody may have taken the queue meanwhile, and sleep because this look was faster than his.
                soft.tell();
            }
            soft.open() > 0
        });
        if self.orphans.is_empty() { Nanos::MAX } else { now + SWEEP_EVERY }
    }
}
