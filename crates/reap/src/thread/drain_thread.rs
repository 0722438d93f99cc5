//! `threaded`: a thread for each vector that drains its queue and wakes those who submitted, as `request_threaded_irq`
//! has it.
//!
//! To the look role (law 6) it is one more sleeper, which waits on the vector and leaves every entry in its owner's inbox.
//! So software queues in other modes may share the hardware queue meanwhile, and the modes may be switched at any time. It
//! runs as long as some software queue is in that mode. The last one to leave the mode waits for its end: after that nobody
//! else arms the vector, and a software queue that has the hardware queue to itself goes by the role no more.

use std::sync::Arc;
use std::thread::JoinHandle;

use completion::{Cycle, Lawful, Mode, Notification, Plan, WEIGHT, Waiter};
use driver::Completed;
use hw::Poller;
use sync::{Posted, SleepSteps, WaiterId, WakeFlag, sleep};
use units::Nanos;

use crate::shared::hw_queue::HwQueue;
use crate::transport::{KEY_NOTIFICATION, KEY_WAKE};

/// A software queue's thread enters the mode. The drain thread runs where the caller may.
///
/// # Errors
/// The system has no thread or descriptor left; nothing has changed.
pub(super) fn engage(queue: &Arc<HwQueue>) -> std::io::Result<()> {
    queue.drain.engage(|| begin(queue))
}

fn begin(queue: &Arc<HwQueue>) -> std::io::Result<JoinHandle<()>> {
    let worker = Worker::new(queue)?;
    std::thread::Builder::new().name("reap-drain".into()).spawn(move || worker.run())
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
        queue.drain.begun();
        let mut side = Side::new(&mut self, &queue);
        loop {
            side.waiter.begin_look();
            queue.take_for_owners(&mut side.worker.taken);
            if queue.drain.is_dismissed() {
                break;
            }
            sleep::arm(&mut side);
            let found = sleep::check(&mut side);
            side.worker.events.clear();
            if !found && let Err(error) = side.worker.poller.wait(None, &mut side.worker.events) {
                tracing::error!(%error, "a drain thread cannot sleep");
            }
            sleep::wake(&mut side);
            if side.worker.events.contains(&KEY_NOTIFICATION) {
                side.worker.pass_on();
            }
        }
        if let Some(heir) = side.waiter.leave(&mut side.vector) {
            queue.tell_sleeper(heir);
        }
    }

    /// In a group the vector's notification may stand for messages of other queues as well, whose thread leaves the vector to this
    /// one. It is the thread that waits for this queue, and looks at all of them when it is told.
    fn pass_on(&self) {
        let queue = &self.queue;
        if queue.pair.posted(queue.pair.vector()).is_some_and(Posted::any) {
            queue.notice_all();
        }
    }
}

/// The drain thread, as it goes to sleep on its queue and comes back: law 6, whose order [`sleep`] has.
struct Side<'a> {
    worker: &'a mut Worker,
    vector: Vector<'a>,
    waiter: Waiter,
}

impl<'a> Side<'a> {
    fn new(worker: &'a mut Worker, queue: &'a HwQueue) -> Side<'a> {
        let vector = Vector { queue };
        let mut waiter = Waiter::new(Mode::THREADED, &Cycle::default(), Lawful);
        waiter.plan = Plan::sleep(Nanos::MAX);
        Side { worker, vector, waiter }
    }
}

/// The vector of a hardware queue, as its drain thread sees it.
struct Vector<'a> {
    queue: &'a HwQueue,
}

impl Notification for Vector<'_> {
    type Thread = WaiterId;

    fn is_shared(&self) -> bool {
        self.queue.is_shared()
    }

    fn is_alone(&self) -> bool {
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

impl SleepSteps for Side<'_> {
    type Thread = WaiterId;

    fn flag(&self) -> &WakeFlag {
        self.vector.queue.drain.wake.flag()
    }

    fn register(&mut self) -> Option<WaiterId> {
        self.waiter.register(&mut self.vector)
    }

    fn allow(&mut self) {
        self.waiter.arm(&mut self.vector);
    }

    fn tell(&self, thread: WaiterId) {
        self.vector.queue.tell_sleeper(thread);
    }

    fn was_posted(&mut self) -> bool {
        false
    }

    fn has_entry(&mut self) -> bool {
        self.waiter.look_once_more(&mut self.vector).unwrap_or(false)
    }

    /// Nobody leaves anything for it.
    fn has_mail(&mut self) -> bool {
        false
    }

    fn is_wanted(&mut self) -> bool {
        !self.vector.queue.drain.is_wanted()
    }

    /// Its mode does not mask.
    fn mask(&mut self) {}
}

#[cfg(test)]
mod tests;
