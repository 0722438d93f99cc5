//! A software queue in a foreign loop, which waits on its file descriptor: epoll, an async runtime.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};

use completion::{Plan, Woke};
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
    /// becomes readable when there is, or [`crate::Queue::next_deadline`] comes.
    pub more: bool,
}

impl SoftQueue {
    /// For a foreign loop: commits, takes at most `budget` entries, and leaves the notification armed, or masked until
    /// [`SoftQueue::next_deadline`]. Never blocks, never spins. See [`crate::Queue::leave_loop`] before the loop stops watching.
    pub(crate) fn turn(&self, budget: u32) -> Turned {
        if !self.is_here() {
            return Turned { found: 0, more: false };
        }
        if self.is_submitting() {
            // Inside the application's iterator: once it is over there may be something.
            return Turned { found: 0, more: true };
        }
        self.in_loop.set(true);
        _ = self.place.drain(KEY_VECTOR);
        self.commit();
        self.adopt();
        let weighs = self.weighs_sleeps();
        let before = if weighs { self.returns(hw::now()) } else { 0 };
        let (found, _) = self.look(budget.max(1));
        self.commit();
        let there = found + before > 0;
        self.looker.borrow_mut().waiter.seen.found += before;
        let now = hw::now();
        self.plan_to_leave(now);
        if weighs && there {
            self.outside.leaves(now);
        }
        self.arm();
        // A mode that was asked for before the bell was armed was told to nobody.
        let more = self.look_before_leaving() || self.soft.done() > 0 || self.soft.mode_asked();
        Turned { found, more }
    }

    fn plan_to_leave(&self, now: Nanos) {
        self.looker.borrow_mut().waiter.seen.leaving = true;
        let naps = matches!(self.plan(now, Nanos::MAX), Plan::Nap { .. });
        let waiter = &mut self.looker.borrow_mut().waiter;
        if !naps {
            // No other thread takes completions while the loop waits, whatever the plan.
            waiter.plan = Plan::sleep(Nanos::MAX);
        } else if waiter.silent() == 0 {
            waiter.wakes(&self.vector());
            waiter.mask_or_keep(self.soft.open(), &mut self.vector());
        }
    }

    /// Tells the policy of the time outside. It answers with a look, which follows anyway. How many were found there, at a commit.
    fn returns(&self, now: Nanos) -> u32 {
        let mut looker = self.looker.borrow_mut();
        let found = looker.waiter.seen.found;
        looker.waiter.seen.cycle = self.outside.computed(now);
        looker.waiter.woken(Woke::OTHER);
        looker.next(&self.soft, now, Nanos::MAX, &mut self.vector());
        found
    }

    /// The look after arming, whatever the mode: the loop may come back only when the descriptor is readable.
    fn look_before_leaving(&self) -> bool {
        let mut looker = self.looker.borrow_mut();
        let found = self.posting.found() || !self.soft.inbox.is_empty() || self.has_to_fail() || looker.waiter.owner && self.queue.hint();
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

    /// For a foreign loop: when to call [`crate::Queue::turn`] at the latest although the file descriptor is quiet.
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

/// Of this many turns that found something one is followed, where the policy weighs what comes after.
const MEASURED_TURNS: u32 = 8;

/// A thread between two turns.
#[derive(Default)]
pub(super) struct Outside {
    turns: Cell<u32>,
    /// When it left, and how often it had slept until then; of a time that is measured.
    left: Cell<Option<(Nanos, u64)>>,
}

impl Outside {
    /// The thread leaves with something to compute: one time in this many, how it goes on is measured.
    pub(super) fn leaves(&self, now: Nanos) {
        self.turns.set(self.turns.get().wrapping_add(1));
        if self.turns.get().is_multiple_of(MEASURED_TURNS) {
            self.left.set(Some((now, hw::thread_usage().sleeps)));
        }
    }

    /// How long the thread has computed since it left: not at all, if it slept meanwhile. `None`: that was not measured.
    pub(super) fn computed(&self, now: Nanos) -> Option<Nanos> {
        let (left, sleeps) = self.left.take()?;
        Some(if hw::thread_usage().sleeps == sleeps { now - left } else { Nanos::ZERO })
    }
}

#[cfg(test)]
mod tests;
