//! A software queue in a foreign loop, which waits on its file descriptor: epoll, an async runtime.

use std::os::fd::{AsFd, BorrowedFd};

use completion::Plan;
use units::Nanos;

use super::SoftQueue;
use crate::thread::engine::{Driven, KEY_VECTOR};

/// What [`crate::Queue::turn`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turned {
    /// Entries found.
    pub found: u32,
    /// There is more to do at once: call again, after whatever else the loop has to do. Otherwise the file descriptor
    /// becomes readable when there is.
    pub more: bool,
}

impl SoftQueue {
    /// For a foreign loop: commits, takes at most `budget` entries, and leaves the notification armed, so that the
    /// queue's file descriptor becomes readable when there is more. Never blocks, never spins. See
    /// [`crate::Queue::leave_loop`] before the loop stops watching.
    pub(crate) fn turn(&self, budget: u32) -> Turned {
        if !self.is_here() {
            return Turned { found: 0, more: false };
        }
        if self.is_submitting() {
            // Inside the application's iterator: once it is over there may be something.
            return Turned { found: 0, more: true };
        }
        self.in_loop.set(true);
        self.sleeps_elsewhere();
        _ = self.place.drain(KEY_VECTOR);
        self.commit();
        self.adopt();
        let (found, _) = self.look(budget.max(1));
        self.commit();
        self.looker.borrow_mut().waiter.seen.leaving = true;
        if !matches!(self.plan(hw::now(), Nanos::MAX), Plan::Nap { .. }) {
            // No other thread takes completions while the loop waits, whatever the plan.
            self.looker.borrow_mut().waiter.plan = Plan::sleep(Nanos::MAX);
        }
        self.arm();
        // A mode that was asked for before the bell was armed was told to nobody.
        let more = self.look_before_leaving() || self.soft.done() > 0 || self.soft.mode_asked();
        Turned { found, more }
    }

    /// The look after arming, whatever the mode: the loop may come back only when the descriptor is readable.
    fn look_before_leaving(&self) -> bool {
        let mut looker = self.looker.borrow_mut();
        let found =
            self.posting.found() || !self.soft.inbox.is_empty() || self.has_to_fail() || looker.waiter.owner && self.queue.pending();
        if found {
            looker.waiter.found_something();
        }
        found
    }

    /// For a foreign loop on a shared hardware queue, before it stops watching the descriptor for a while: hands on the
    /// role of being woken by the queue's vector, which [`crate::Queue::turn`] took, to a thread that waits for it (law 6).
    pub(crate) fn leave_loop(&self) {
        self.in_loop.set(false);
        if !self.is_here() {
            return;
        }
        self.leave();
        self.soft.wake.mask();
    }

    /// For a foreign loop: when to call [`crate::Queue::turn`] at the latest even though the file descriptor is quiet.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        match self.looker.borrow().waiter.plan {
            Plan::Spin { until } | Plan::Nap { until } | Plan::Sleep { until, .. } => Some(until).filter(|&u| u != Nanos::MAX),
            Plan::Look { .. } | Plan::Rest => None,
        }
    }
}

/// Readable when [`crate::Queue::turn`] has something to do.
impl AsFd for SoftQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.as_fd()
    }
}

#[cfg(test)]
mod tests;
