//! The party that takes a queue's entries for others: an interrupt handler, a poller in a softirq, or a vector's thread. The queue's policy says
//! when to look. What they do step by step is in `draining.rs`.

use std::convert::Infallible;

use completion::{Mode, Notification, Policy, Sleeper, Tuning, Waiter, Woke};
use driver::Completed;
use units::Nanos;
use workload::Histogram;

use crate::LibraryCosts;
use crate::habits::Habits;
use crate::hw_queue::HwQueue;
use crate::report::Tally;

/// Room for what one look takes: no policy's budget is larger.
pub(crate) const TAKEN: usize = 1024;

/// The drain of one queue.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) waiter: Waiter<Habits>,
    tuning: Tuning,
    pub(super) at: At,
    /// It is over only until an instant.
    pub(super) naps: bool,
    pub(super) taken: Vec<Completed>,
    pub(crate) tally: Tally,
    pub(crate) cycles: Cycles,
}

/// What notifications brought, from each until its queue was armed again.
#[derive(Debug, Default)]
pub(crate) struct Cycles {
    /// The notification that nobody has looked for yet.
    pub(super) notified: Option<Nanos>,
    pub(super) taken: u64,
    /// From notifications to the first looks, in nanoseconds.
    pub(crate) delays: Histogram,
    /// Entries of each cycle.
    pub(crate) entries: Histogram,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Asking the policy.
    Decide,
    /// The look's time is over: the lock is released, and what was taken goes to its owners.
    Release,
    /// At this step of going to sleep.
    Sleep(usize),
}

impl Drain {
    pub(crate) fn new(mode: Mode, tuning: Tuning, habits: Habits) -> Drain {
        let mut waiter = Waiter::new(Policy::with(mode, &tuning), habits);
        // A thread that submits has nothing to do with the notification.
        waiter.owner = true;
        Drain {
            waiter,
            tuning,
            at: At::Decide,
            naps: false,
            taken: Vec::with_capacity(TAKEN),
            tally: Tally::default(),
            cycles: Cycles::default(),
        }
    }

    /// Takes over another mode, between two steps.
    pub(crate) fn switch(&mut self, mode: Mode) {
        self.waiter.policy = Policy::with(mode, &self.tuning);
    }

    /// Whether it is not in the middle of a look, or of going to sleep.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.at == At::Decide
    }
}

/// A queue's notification has come: masks it, if the policy wants that. What that costs.
pub(crate) fn notified(drain: &mut Drain, queue: &HwQueue, now: Nanos, habits: &Habits, costs: &LibraryCosts) -> Nanos {
    drain.cycles.notified.get_or_insert(now);
    let busy = drain.waiter.seen.lock_busy;
    // The lock's holder at the last look may have released it before this entry came.
    drain.waiter.woken(Woke::NOTIFIED);
    drain.waiter.seen.lock_busy = busy && !habits.hears_anew;
    drain.tally.begin_drain();
    if !drain.waiter.policy.masks() {
        return Nanos::ZERO;
    }
    queue.mask();
    costs.mask
}

/// A hardware queue as its drain meets it: nobody else has to do with its notification.
pub(super) struct Vector<'a>(pub(super) &'a HwQueue);

impl Notification for Vector<'_> {
    type Thread = Infallible;

    fn is_shared(&self) -> bool {
        false
    }

    fn is_alone(&self) -> bool {
        !self.0.vector_shared
    }

    fn arm(&mut self) {
        self.0.arm();
    }

    fn mask(&mut self) {
        self.0.mask();
    }

    fn pending(&mut self) -> bool {
        self.0.look_once_more()
    }

    fn take_role(&mut self) -> bool {
        true
    }

    fn has_role(&self) -> bool {
        true
    }

    fn release_role(&mut self) -> Option<Infallible> {
        None
    }

    fn other_owner(&mut self) -> Option<Infallible> {
        None
    }
}

/// A drain that goes to sleep.
pub(super) struct Resting<'a>(pub(super) &'a mut Waiter<Habits>, pub(super) Vector<'a>);

impl Sleeper for Resting<'_> {
    fn arm(&mut self) -> bool {
        self.0.arm(&mut self.1)
    }

    fn look(&mut self) -> Option<bool> {
        self.0.look_once_more(&mut self.1)
    }
}
