//! One thread's software queues: one for each device that its job uses.

use std::io;

use anyhow::Result;
use completion::{LatencyPrice, Mode, Placement, Spin};
use reap::{Completion, Counters, Device, Group, Instant, LocalQueue, Nanos, Queue, QueueError, Refused, Request, WouldDeadlock};

/// One queue of a thread.
pub enum Held {
    /// The thread's own: the cheapest there is.
    Own(LocalQueue),
    /// One that other threads may drain.
    Any(Queue),
}

impl Held {
    /// The calling thread's queue of `device`, for `mode`.
    ///
    /// # Errors
    /// There is none left.
    pub fn take(device: &Device, mode: Mode) -> Result<Held, QueueError> {
        // Of a device in this process any thread may drain any queue; the kernel's are one thread's, unless they are asked for otherwise.
        let drained = mode.placement() == Placement::DrainThread && device.embedded().is_none();
        if drained { device.queue().map(Held::Any) } else { device.local_queue_in(mode).map(Held::Own) }
    }
}

impl AsRef<Queue> for Held {
    #[inline]
    fn as_ref(&self) -> &Queue {
        match self {
            Held::Own(queue) => queue,
            Held::Any(queue) => queue,
        }
    }
}

/// The queues of one thread, in the order of its job's targets. What it has the library do is never inlined: it is called
/// once per batch, and a count of instructions can tell it from the load generator.
pub enum Lanes {
    /// The usual case: the queue drives itself.
    One(Held),
    /// They take turns.
    Many(Group<Held>),
}

impl Lanes {
    /// Joins `queues`, of which there is at least one.
    pub fn new(mut queues: Vec<Held>) -> io::Result<Lanes> {
        match queues.pop() {
            Some(only) if queues.is_empty() => Ok(Lanes::One(only)),
            Some(last) => {
                queues.push(last);
                Group::new(queues).map(Lanes::Many)
            }
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "a thread without a queue")),
        }
    }

    fn all(&self) -> &[Held] {
        match self {
            Lanes::One(queue) => std::slice::from_ref(queue),
            Lanes::Many(group) => group.queues(),
        }
    }

    /// In the order of the job's targets.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.all().iter().map(AsRef::as_ref)
    }

    /// Submits `requests` on the queue of `target`. Where the thread `waits` next, the wait may announce them, in one system call.
    ///
    /// # Errors
    /// The first that is refused: those after it stay in the iterator.
    #[inline(never)]
    pub fn submit(
        &self,
        target: usize,
        now: Nanos,
        waits: bool,
        requests: impl Iterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        match self.all().get(target) {
            Some(queue) => queue.as_ref().submit_or_post_at(instant(now), waits, requests),
            None => Ok(()),
        }
    }

    /// Whether completions may be found during a commit.
    pub fn looks_on_commit(&self) -> bool {
        self.queues().any(Queue::looks_on_commit)
    }

    /// Waits as the completion mode plans, until `min` requests are finished, until `until`, or, without that limit,
    /// until nothing is in flight.
    #[inline(never)]
    pub fn wait(&self, min: usize, until: Nanos) -> Result<(), WouldDeadlock> {
        let limit = (until < Nanos::MAX).then(|| instant(until));
        match self {
            Lanes::One(queue) => queue.as_ref().wait(min, limit),
            Lanes::Many(group) => group.wait(min, limit),
        }
        .map(drop)
    }

    /// Tells the policies since when an I/O has waited for room.
    pub fn set_wants_room_at(&self, due: Option<Nanos>) {
        let due = due.map(instant);
        self.queues().for_each(|queue| queue.set_wants_room_at(due));
    }

    /// Moves what is finished to `found`.
    #[inline(never)]
    pub fn reap(&self, found: &mut Vec<Completion>) {
        for queue in self.queues() {
            if found.len() < found.capacity() {
                queue.reap(found);
            }
        }
    }

    pub fn set_mode(&self, mode: Mode) {
        self.queues().for_each(|queue| queue.set_mode(mode));
    }

    pub fn set_latency_price(&self, price: LatencyPrice) {
        self.queues().for_each(|queue| queue.set_latency_price(price));
    }

    /// What spinning means where others want the CPU.
    pub fn set_spin(&self, spin: Spin) {
        self.queues().for_each(|queue| queue.set_spin(spin));
    }

    /// What the queues have counted since the last call, added up.
    pub fn take_counters(&self) -> Counters {
        self.queues().map(Queue::take_counters).reduce(Counters::and).unwrap_or_default()
    }
}

/// An instant of [`hw::now`], as the library has it: they read the same clock.
#[inline]
fn instant(at: Nanos) -> Instant {
    Instant::from_nanos(at.0)
}
