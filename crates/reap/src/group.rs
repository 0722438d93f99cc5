//! Several queues of one thread, taking turns.

use std::io;

use units::Nanos;

use crate::error::WouldDeadlock;
use crate::queue::Queue;
use crate::thread::engine::{self, Place};
use crate::thread::executor;

/// The queues of one thread, of one device or of several. It looks at them round-robin, none for longer than its weight,
/// and sleeps until any of them has something.
pub struct Group {
    place: Place,
    queues: Vec<Queue>,
}

impl Group {
    /// Joins `queues`.
    ///
    /// # Errors
    /// The system has no epoll instance left.
    pub fn new(queues: Vec<Queue>) -> io::Result<Group> {
        let place = Place::new()?;
        for (key, lane) in (0..).zip(queues.iter().flat_map(Queue::lanes)) {
            place.poller().add(lane, key)?;
        }
        for lane in queues.iter().flat_map(Queue::lanes) {
            let first = queues.iter().flat_map(Queue::lanes).find(|first| first.is_beside(lane));
            first.into_iter().for_each(|first| lane.share_notification(first));
        }
        Ok(Group { place, queues })
    }

    /// The queues, in the order in which they were joined.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Drives all the queues, as their completion modes plan, until at least `min` requests can be reaped from all of
    /// them together, or until `until`. Without a limit it comes back when nothing is in flight. Returns how many.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`.
    pub fn wait(&self, min: usize, until: Nanos) -> Result<usize, WouldDeadlock> {
        if self.queues.iter().any(Queue::is_submitting) {
            return Err(WouldDeadlock);
        }
        let _inside = executor::enter()?;
        let finished = || self.queues.iter().map(Queue::finished).sum();
        loop {
            // Queues over several paths may hold requests for which there is no path, and look after them in time.
            let deadline = self.queues.iter().map(Queue::look_after_paths).fold(Nanos::MAX, Nanos::min);
            let held = deadline < Nanos::MAX;
            let for_others = until != Nanos::MAX || held;
            let enough = || finished() >= min || held && self.queues.iter().all(|queue| queue.in_flight() == 0);
            engine::together(self.queues.iter().flat_map(Queue::lanes), |lanes| {
                engine::report(self.place.drive(lanes, hw::now(), until.min(deadline), for_others, enough));
            });
            let over = finished() >= min || hw::now() >= until;
            if over || !held || until == Nanos::MAX && self.queues.iter().all(|queue| queue.in_flight() == 0) {
                return Ok(finished());
            }
        }
    }
}
