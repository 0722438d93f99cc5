//! Several queues of one thread, taking turns.

use std::fmt;
use std::io;

use units::Nanos;

use crate::error::WouldDeadlock;
use crate::instant::{Instant, deadline};
use crate::queue::Queue;
use crate::thread::block_on;
use crate::thread::event_loop::{self, EventLoop};
use crate::thread::path_queue::PathQueue;

/// The queues of one thread, of one device or of several. It looks at them round-robin, none for longer than its weight,
/// and sleeps until any of them has something.
///
/// `Q` is [`Queue`], or [`crate::LocalQueue`] of the thread's own.
pub struct Group<Q = Queue> {
    event_loop: EventLoop,
    queues: Vec<Q>,
}

impl<Q: fmt::Debug> fmt::Debug for Group<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl<Q: AsRef<Queue>> Group<Q> {
    /// Joins `queues`.
    ///
    /// # Errors
    /// The system has no epoll instance left.
    pub fn new(queues: Vec<Q>) -> io::Result<Group<Q>> {
        let event_loop = EventLoop::new()?;
        for (key, path_queue) in (0..).zip(path_queues(&queues)) {
            event_loop.poller().add(path_queue, key)?;
        }
        path_queues(&queues).for_each(PathQueue::allow_external_sleep);
        for path_queue in path_queues(&queues) {
            let first = path_queues(&queues).find(|first| first.shares_controller(path_queue));
            first.into_iter().for_each(|first| path_queue.share_notification(first));
        }
        Ok(Group { event_loop, queues })
    }

    /// The queues, in the order in which they were joined.
    pub fn queues(&self) -> &[Q] {
        &self.queues
    }

    /// Drives all the queues, as their completion modes plan, until at least `min` requests can be reaped from all of
    /// them together, or until `until`. Without a limit it comes back when nothing is in flight. Returns how many.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`.
    pub fn wait(&self, min: usize, until: Option<Instant>) -> Result<usize, WouldDeadlock> {
        let until = deadline(until);
        if self.each().any(Queue::is_submitting) {
            return Err(WouldDeadlock);
        }
        let _inside = block_on::enter()?;
        let finished = || self.each().map(Queue::finished).sum();
        if path_queues(&self.queues).any(|path_queue| !path_queue.same_process()) {
            // Nothing comes any more in this process.
            return Ok(finished());
        }
        loop {
            // Queues over several paths may hold requests for which there is no path, and look after them in time.
            let deadline = self.each().map(Queue::look_after_paths).fold(Nanos::MAX, Nanos::min);
            let held = deadline < Nanos::MAX;
            let for_others = until != Nanos::MAX || held;
            let enough = || finished() >= min || held && self.each().all(|queue| queue.in_flight() == 0);
            event_loop::together(path_queues(&self.queues), |path_queues| {
                event_loop::report(self.event_loop.drive(path_queues, hw::now(), until.min(deadline), for_others, enough));
                path_queues.iter().for_each(|path_queue| path_queue.commit());
            });
            let over = finished() >= min || hw::now() >= until;
            if over || !held || until == Nanos::MAX && self.each().all(|queue| queue.in_flight() == 0) {
                return Ok(finished());
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = &Queue> + Clone {
        self.queues.iter().map(AsRef::as_ref)
    }
}

/// The queues below, one for each path of each.
fn path_queues<Q: AsRef<Queue>>(queues: &[Q]) -> impl Iterator<Item = &PathQueue> + Clone {
    queues.iter().flat_map(|queue| queue.as_ref().path_queues())
}
