//! Software queues whose thread is gone: what they have in flight is still reaped, and its buffers come back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use units::Nanos;

use super::Keeper;
use crate::shared::book::Failure;
use crate::shared::control::Change;
use crate::shared::hw_queue::HwQueue;
use crate::thread::executor;

/// How often abandoned software queues are looked at while something of theirs is in flight.
const SWEEP_EVERY: Nanos = Nanos::from_millis(1);

impl Keeper {
    /// Reaps for software queues that have no thread. When to come again.
    pub(super) fn sweep(&mut self, now: Nanos) -> Nanos {
        for change in self.asks.changes().drain(..) {
            match change {
                Change::Orphaned(queue, me) => self.orphans.push((queue, me)),
                Change::Taken(queue, me) => {
                    self.orphans.retain(|(orphan, other)| *other != me || !std::sync::Arc::ptr_eq(orphan, &queue));
                }
            }
        }
        if self.asks.is_closing() && self.orphans.is_empty() {
            // Futures may have outlived every queue.
            for queue in &self.queues {
                for me in (0..queue.softs.len()).filter(|&me| queue.softs[me].open() > 0) {
                    self.orphans.push((queue.clone(), me as u8));
                }
            }
        }
        let taken = &mut self.taken;
        self.orphans.retain(|(queue, me)| {
            queue.take_for_owners(taken);
            // What nobody claims is dropped here: memory of an application's, whose end is the application's code.
            let open = catch_unwind(AssertUnwindSafe(|| end_orphans(queue, *me)));
            self.unserved |= !queue.try_serve_line(now);
            open.unwrap_or_else(|_| {
                tracing::error!("what an abandoned request owned has panicked when it was dropped");
                true
            })
        });
        if self.orphans.is_empty() { Nanos::MAX } else { now + SWEEP_EVERY }
    }
}

/// Ends what has been left in the inbox of a software queue without a thread. Whether anything of it is still open.
fn end_orphans(queue: &HwQueue, me: u8) -> bool {
    let Some(soft) = queue.softs.get(usize::from(me)) else { return false };
    // A thread has taken the queue meanwhile, and looks after it.
    let Some(mut book) = soft.try_requests() else { return true };
    let (mut wakers, mut outcomes, now) = (Vec::new(), Vec::new(), hw::now());
    let found = soft.inbox.take(usize::MAX, &mut outcomes) > 0;
    for outcome in outcomes {
        wakers.extend(book.end(outcome.token, outcome.how, now));
    }
    if queue.is_dead() {
        book.fail_waiting(Failure::DeviceLost, now);
    } else if queue.lacks_its_owner() {
        // Nobody can post it again. A thread that takes the queue enters nothing before this book is unlocked.
        book.fail_waiting(Failure::TimedOut, now);
    } else if book.is_waiting() {
        queue.join_line(me);
    }
    book.take_ended(&mut wakers);
    drop(book);
    executor::wake_all(wakers);
    if found {
        // Somebody may have taken the queue meanwhile, and sleep because this was faster.
        soft.tell();
    }
    soft.open() > 0
}
