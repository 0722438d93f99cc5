//! The drain thread of `threaded`: one thread for each vector, which reaps and wakes the threads
//! that submitted, as a handler of Linux's `request_threaded_irq` does.
//!
//! ```text
//!  device ─ message ─► eventfd ─► drain thread ─ CQE ─► inbox of each queue ─► wake its thread
//! ```
//!
//! It takes the notification role (invariant 6) like any other thread that sleeps on the vector. So
//! queues in other modes may share the hardware queue, and modes may change at any time. It runs
//! while any software queue of the hardware queue is in `threaded`. The last queue to leave the
//! mode joins it: after that no other thread arms the vector, and a software queue without sharers
//! needs the role no more.

use std::sync::Arc;

use completion::{Mode, NoAblation, Notification, Plan, SleepCosts, WEIGHT, Waiter};
use driver::Completed;
use hw::Poller;
use sync::{Posted, SleepSteps, WaiterId, WakeFlag, sleep};
use units::Nanos;

use crate::shared::hw_queue::HwQueue;
use crate::transport::{KEY_NOTIFICATION, KEY_WAKE};

/// A software queue enters `threaded`: starts the drain thread if there is none. The thread
/// inherits the caller's CPU affinity.
///
/// # Errors
/// The system has no thread or descriptor left; nothing has changed.
pub(super) fn acquire(queue: &Arc<HwQueue>) -> std::io::Result<()> {
    queue.drain.acquire(|| {
        let worker = Worker::new(queue)?;
        std::thread::Builder::new().name("reap-drain".into()).spawn(move || worker.run())
    })
}

struct Worker {
    queue: Arc<HwQueue>,
    poller: Poller,
    taken: Vec<Completed>,
    events: Vec<u64>,
}

impl Worker {
    fn new(queue: &Arc<HwQueue>) -> std::io::Result<Worker> {
        let poller = Poller::new()?;
        poller.add(&queue.drain.wake, KEY_WAKE)?;
        if let Some(eventfd) = queue.pair.wait_on() {
            poller.add(eventfd, KEY_NOTIFICATION)?;
        }
        let (taken, events) = (Vec::with_capacity(WEIGHT as usize), Vec::with_capacity(8));
        Ok(Worker { queue: queue.clone(), poller, taken, events })
    }

    fn run(mut self) {
        let queue = self.queue.clone();
        queue.drain.started();
        let mut context = SleepContext::new(&mut self, &queue);
        loop {
            // Poll first: completions may have come while no thread was armed.
            context.waiter.begin_poll();
            queue.reap_for_owners(&mut context.worker.taken);
            // After the poll, so that the last one leaves nothing in the CQ unseen.
            if queue.drain.finish_if_unused() {
                break;
            }
            // Invariant 1: arm, check, block.
            sleep::arm(&mut context);
            let found = sleep::check(&mut context);
            // A key left over from the last wait would count as a message.
            context.worker.events.clear();
            if !found
                && let Err(error) = context.worker.poller.wait(None, &mut context.worker.events)
            {
                tracing::error!(%error, "a drain thread cannot sleep");
            }
            sleep::wake(&mut context);
            if context.worker.events.contains(&KEY_NOTIFICATION) {
                context.worker.notice_group();
            }
        }
        // Invariant 6: another thread may be asleep, registered for the role.
        if let Some(next_owner) = context.waiter.leave(&mut context.vector) {
            queue.wake_waiter(next_owner);
        }
    }

    /// In a group, other queues of a user's thread may post their messages to this vector
    /// (`posted_msi.rs`). A notice to the users has that thread poll all of its queues.
    fn notice_group(&self) {
        let queue = &self.queue;
        if queue.pair.posted(queue.pair.vector()).is_some_and(Posted::any) {
            queue.notice_all();
        }
    }
}

/// The drain thread's steps of going to sleep; [`sleep`] calls them in order.
struct SleepContext<'a> {
    worker: &'a mut Worker,
    vector: Vector<'a>,
    waiter: Waiter,
}

impl<'a> SleepContext<'a> {
    fn new(worker: &'a mut Worker, queue: &'a HwQueue) -> SleepContext<'a> {
        let vector = Vector { queue };
        let mut waiter = Waiter::new(Mode::THREADED, &SleepCosts::default(), NoAblation);
        waiter.plan = Plan::sleep(Nanos::MAX);
        SleepContext { worker, vector, waiter }
    }
}

/// The vector of a hardware queue, and the drain thread's part in its notification role.
struct Vector<'a> {
    queue: &'a HwQueue,
}

impl Notification for Vector<'_> {
    type Thread = WaiterId;

    fn is_shared(&self) -> bool {
        self.queue.is_shared()
    }

    fn has_own_vector(&self) -> bool {
        self.queue.pair.is_maskable()
    }

    fn arm(&mut self) {
        self.queue.pair.arm();
    }

    fn mask(&mut self) {
        if self.queue.pair.is_maskable() {
            self.queue.pair.mask();
        }
    }

    fn pending(&mut self) -> bool {
        self.queue.pending()
    }

    fn take_role(&mut self) -> bool {
        self.queue.role.try_take(self.queue.drain_id())
    }

    fn has_role(&self) -> bool {
        self.queue.role.owner() == Some(self.queue.drain_id())
    }

    fn release_role(&mut self) -> Option<WaiterId> {
        self.queue.role.release(self.queue.drain_id())
    }

    fn other_owner(&mut self) -> Option<WaiterId> {
        self.queue.role.owner().filter(|owner| *owner != self.queue.drain_id())
    }
}

impl SleepSteps for SleepContext<'_> {
    type Thread = WaiterId;

    fn flag(&self) -> &WakeFlag {
        self.vector.queue.drain.wake.flag()
    }

    fn register(&mut self) -> Option<WaiterId> {
        self.waiter.register(&mut self.vector)
    }

    fn unmask(&mut self) {
        self.waiter.arm(&mut self.vector);
    }

    fn notify(&self, thread: WaiterId) {
        self.vector.queue.wake_waiter(thread);
    }

    fn was_posted(&mut self) -> bool {
        // A queue in `threaded` is not in `posted`.
        false
    }

    fn has_entry(&mut self) -> bool {
        self.waiter.recheck(&mut self.vector).unwrap_or(false)
    }

    fn has_completions(&mut self) -> bool {
        // It has no inbox.
        false
    }

    fn is_wanted(&mut self) -> bool {
        // The last user may have left, and signalled, before the wake-up was armed.
        !self.vector.queue.drain.has_users()
    }

    fn mask(&mut self) {
        // The vector stays armed while it polls: `threaded` does not mask.
    }
}

#[cfg(test)]
mod tests;
