//! Software queues whose thread is gone: what they have in flight is still reaped, and its buffers come back.

use std::sync::{Arc, Mutex, PoisonError};

use completion::WEIGHT;
use driver::Completed;
use sync::sweep_orphan;
use units::Nanos;

use crate::shared::book::Failure;
use crate::shared::control::{Asks, Change};
use crate::shared::hw_queue::HwQueue;
use crate::shared::soft::Soft;
use crate::thread::executor;

/// How often abandoned software queues are looked at while something of theirs is in flight.
pub(super) const SWEEP_EVERY: Nanos = Nanos::from_millis(1);

/// Software queues without a thread.
pub(super) struct Orphans {
    list: Vec<(Arc<HwQueue>, u8)>,
    taken: Vec<Completed>,
}

impl Orphans {
    pub(super) fn new() -> Orphans {
        Orphans { list: Vec::new(), taken: Vec::with_capacity(WEIGHT as usize) }
    }

    /// Whether every open request has a thread that drives its queue.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Reaps for software queues of `queues` that have no thread. When to come again. `unserved`: tags have come back to a line
    /// that could not be served.
    pub(super) fn sweep(&mut self, asks: &Asks, queues: &[Arc<HwQueue>], now: Nanos, unserved: &mut bool) -> Nanos {
        for change in asks.changes().drain(..) {
            match change {
                Change::Orphaned(queue, me) => self.list.push((queue, me)),
                Change::Taken(queue, me) => {
                    self.list.retain(|(orphan, other)| *other != me || !Arc::ptr_eq(orphan, &queue));
                }
            }
        }
        if asks.is_closing() && self.list.is_empty() {
            // Futures may have outlived every queue.
            for queue in queues {
                for me in (0..queue.softs.len()).filter(|&me| queue.softs[me].open() > 0) {
                    self.list.push((queue.clone(), me as u8));
                }
            }
        }
        let taken = &mut self.taken;
        self.list.retain(|(queue, me)| {
            queue.take_for_owners(taken);
            let open = end_orphans(queue, *me);
            *unserved |= !queue.try_serve_line(now);
            open
        });
        if self.list.is_empty() { Nanos::MAX } else { now + SWEEP_EVERY }
    }
}

/// Does something with each, on a thread that is made for it: what it comes to is the application's code and may block, and this thread has
/// other devices to look after. Where the system has no thread left it is done here.
pub(super) fn elsewhere<T: Send + 'static>(name: &str, things: Vec<T>, with: fn(Vec<T>)) {
    if things.is_empty() {
        return;
    }
    let things = Arc::new(Mutex::new(things));
    let theirs = things.clone();
    let take = |things: &Mutex<Vec<T>>| std::mem::take(&mut *things.lock().unwrap_or_else(PoisonError::into_inner));
    if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(move || with(take(&theirs))) {
        tracing::warn!(%error, name, "the application's code runs on the housekeeping thread");
        with(take(&things));
    }
}

/// Ends what has been left in the inbox of a software queue without a thread. Whether anything of it is still open.
fn end_orphans(queue: &HwQueue, me: u8) -> bool {
    queue.softs.get(usize::from(me)).is_some_and(|soft| sweep_orphan(|| end_left(queue, soft, me), || soft.tell(), || soft.open() > 0))
}

/// Whether anything was found. `None`: another thread has the requests.
fn end_left(queue: &HwQueue, soft: &Soft, me: u8) -> Option<bool> {
    let mut book = soft.try_requests()?;
    let (mut wakers, mut outcomes, now) = (Vec::new(), Vec::new(), hw::now());
    let found = soft.inbox.take(usize::MAX, &mut outcomes) > 0;
    book.keep_registered();
    for outcome in outcomes {
        wakers.extend(book.end(outcome.token, outcome.how, now));
    }
    if queue.is_dead() {
        book.fail_waiting(Failure::DeviceLost, now);
    } else if book.is_waiting() {
        queue.join_line(me);
    }
    book.take_ended(&mut wakers);
    let memory = book.take_kept();
    drop(book);
    elsewhere("reap-wake", wakers, executor::wake_all);
    elsewhere("reap-let-go", memory, executor::let_go);
    Some(found)
}
