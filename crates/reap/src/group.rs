//! Several queues of one thread, driven in turns.

use std::fmt;
use std::io;

use units::Nanos;

use crate::error::WouldDeadlock;
use crate::instant::{Instant, deadline};
use crate::queue::Queue;
use crate::thread::block_on;
use crate::thread::event_loop::{self, EventLoop};
use crate::thread::path_queue::PathQueue;

/// The queues of one thread, of one device or several. They are polled round-robin within their
/// weights, and the thread sleeps until one of them has completions.
///
/// `Q` is [`Queue`], or [`crate::LocalQueue`].
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
        // The group sleeps in its own epoll instance, not in a queue's.
        path_queues(&queues).for_each(PathQueue::allow_external_sleep);
        for path_queue in path_queues(&queues) {
            // In `posted` the vectors of one controller signal one eventfd.
            let first = path_queues(&queues).find(|first| first.shares_controller(path_queue));
            first.into_iter().for_each(|first| path_queue.share_notification(first));
        }
        Ok(Group { event_loop, queues })
    }

    /// The queues, in the order in which they were joined.
    pub fn queues(&self) -> &[Q] {
        &self.queues
    }

    /// Drives all queues as their completion modes plan, until at least `min` requests in all can
    /// be reaped, or until `until`. Without a limit it returns when nothing is in flight. Returns
    /// how many can be reaped.
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
            // In a forked child nothing completes: the devices are the parent's.
            return Ok(finished());
        }
        loop {
            // Queues over paths may hold requests without a path, which have deadlines of their
            // own.
            let deadline = self.each().map(Queue::poll_paths).fold(Nanos::MAX, Nanos::min);
            let held = deadline < Nanos::MAX;
            let for_others = until != Nanos::MAX || held;
            let enough =
                || finished() >= min || held && self.each().all(|queue| queue.in_flight() == 0);
            event_loop::together(path_queues(&self.queues), |path_queues| {
                event_loop::report(self.event_loop.drive(
                    path_queues,
                    hw::now(),
                    until.min(deadline),
                    for_others,
                    enough,
                ));
                // Retries that the paths' work posted.
                path_queues.iter().for_each(|path_queue| path_queue.commit());
            });
            let over = finished() >= min || hw::now() >= until;
            // Only queues over paths come round again: a held request may have been sent.
            if over
                || !held
                || until == Nanos::MAX && self.each().all(|queue| queue.in_flight() == 0)
            {
                return Ok(finished());
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = &Queue> + Clone {
        self.queues.iter().map(AsRef::as_ref)
    }
}

/// The queues of all paths of `queues`.
fn path_queues<Q: AsRef<Queue>>(queues: &[Q]) -> impl Iterator<Item = &PathQueue> + Clone {
    queues.iter().flat_map(|queue| queue.as_ref().path_queues())
}
