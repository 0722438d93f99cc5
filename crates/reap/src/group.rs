//! Several queues of one thread, taking turns.

use std::io;

use units::Nanos;

use crate::engine::Place;
use crate::error::WouldDeadlock;
use crate::executor;
use crate::queue::{self, Queue};

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
        for (key, queue) in (0..).zip(&queues) {
            place.poller().add(queue, key)?;
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
        let _inside = executor::enter()?;
        let finished = || self.queues.iter().map(Queue::finished).sum();
        queue::report(self.place.drive(&self.queues, hw::now(), until, until != Nanos::MAX, || finished() >= min));
        Ok(finished())
    }
}
