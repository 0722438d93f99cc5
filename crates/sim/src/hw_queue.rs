//! A hardware queue, which several threads may share: its queue pairs, its submission and
//! completion queue locks, and its interrupt vector.
//!
//! If vectors cannot be masked, a hardware queue has a second queue pair, whose completions send no
//! message (IEN = 0):
//!
//! ```text
//! vector can be masked      pair
//! vector cannot be masked   pair (interrupt queue) + polled (poll queue)
//! ```

use std::cell::Cell;
use std::rc::Rc;

use completion::Route;
use driver::{Completed, QueuePair, Reaped};
use nvme::Vector;
use sync::NotificationRole;
use units::Nanos;

use crate::port::{HostBar, SimCq, SimSq, Vectors};
use crate::sched::TaskId;
use crate::{Costs, Lines};

/// A queue pair in simulated memory.
pub(crate) type Pair = QueuePair<SimSq, SimCq>;

/// A hardware queue.
#[derive(Debug)]
pub(crate) struct HwQueue {
    /// Its number among all queues of the machine.
    pub(crate) index: usize,
    pub(crate) device: usize,
    /// The interrupt queue: its completions send messages.
    pair: Pair,
    /// The poll queue, if vectors cannot be masked. A command completes on the pair that it was
    /// posted to.
    polled: Option<Pair>,
    /// The last poll began with the poll queue; the next poll begins with the other pair.
    polled_first: bool,
    pub(crate) bar: HostBar,
    vectors: Rc<Vectors>,
    pub(crate) vector: Vector,
    /// Several hardware queues use the same vector. It is then never masked: masking it for one
    /// queue would suppress the wake-ups of another.
    pub(crate) vector_shared: bool,
    /// The threads whose software queues post to this queue.
    pub(crate) users: Vec<TaskId>,
    /// The users that are spinning.
    pub(crate) spinners: Vec<TaskId>,
    /// The users that wait for a tag.
    pub(crate) tag_waiters: Vec<TaskId>,
    /// Several software queues post to this queue.
    pub(crate) shared: bool,
    /// Which user sleeps on the vector.
    pub(crate) role: NotificationRole,
    /// The counter of its vector's eventfd.
    signals: Cell<u32>,
    /// Messages posted by an in-process controller: whether the posted bit is set, and whether a
    /// notification is outstanding.
    posted: Cell<(bool, bool)>,
    /// A sleeping thread reads the eventfd. A vector that cannot be masked is "masked" by not
    /// reading its eventfd.
    read: Cell<bool>,
    /// The completion queue's lock is held.
    cq_locked: bool,
    /// Another party found the completion queue's lock held.
    contended: Cell<bool>,
    /// The submission queue's lock is held until this instant.
    sq_locked_until: Nanos,
}

/// The result of a poll under the lock.
pub(crate) struct PollResult {
    pub(crate) reaped: Reaped,
    pub(crate) cost: Nanos,
}

impl HwQueue {
    pub(crate) fn new(
        index: usize,
        device: usize,
        (pair, polled): (Pair, Option<Pair>),
        bar: HostBar,
        vectors: Rc<Vectors>,
        vector: Vector,
    ) -> HwQueue {
        HwQueue {
            index,
            device,
            pair,
            polled,
            polled_first: false,
            bar,
            vectors,
            vector,
            vector_shared: false,
            users: Vec::new(),
            spinners: Vec::new(),
            tag_waiters: Vec::new(),
            shared: false,
            role: NotificationRole::new(8),
            signals: Cell::new(0),
            posted: Cell::default(),
            read: Cell::new(true),
            cq_locked: false,
            contended: Cell::new(false),
            sq_locked_until: Nanos::ZERO,
        }
    }

    /// Number of cache lines of all queues: two for each.
    pub(crate) fn lines(queues: usize) -> usize {
        2 * queues
    }

    /// Its queue pairs: one, or two where vectors cannot be masked.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        std::iter::once(&self.pair).chain(&self.polled)
    }

    /// The queue pair for a batch with this route.
    pub(crate) fn pair_for(&self, route: Route) -> &Pair {
        match (route, &self.polled) {
            (Route::Poll, Some(polled)) => polled,
            _ => &self.pair,
        }
    }

    /// Whether a completion queue has an entry.
    pub(crate) fn pending(&self) -> bool {
        self.pairs().any(|pair| pair.pending())
    }

    /// Commands in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.pairs().map(|pair| pair.in_flight()).sum()
    }

    /// Commands in flight on the poll queue, whose completion sends no message.
    pub(crate) fn polled_in_flight(&self) -> u32 {
        self.polled.as_ref().map_or(0, |polled| polled.in_flight())
    }

    /// Commands that have completed on the poll queue.
    pub(crate) fn polled_finished(&self) -> u64 {
        self.polled.as_ref().map_or(0, |polled| polled.counters().finished)
    }

    /// Unmasks the vector. If vectors cannot be masked, resets the eventfd's count, and has the
    /// eventfd read from now on.
    pub(crate) fn arm(&self) {
        if self.vectors.arm(self.vector) {
            // A Pending bit is set: the controller sends its message when the write reaches it.
            self.bar.unmasked();
        }
        // Signals while the eventfd was not read count as masked messages: the poll after arming
        // finds their entries.
        if !self.read.replace(true) {
            self.signals.set(0);
        }
    }

    /// Masks the vector, unless another queue shares it. If vectors cannot be masked, has the
    /// eventfd not read from now on.
    pub(crate) fn mask(&self) {
        if self.vector_shared {
            return;
        }
        match self.polled {
            None => self.vectors.mask(self.vector),
            Some(_) => self.read.set(false),
        }
    }

    /// Signals the vector's eventfd. Returns whether a thread reads it.
    pub(crate) fn signal(&self) -> bool {
        self.signals.set(self.signals.get().saturating_add(1));
        self.read.get()
    }

    /// An in-process controller posts a message. Returns whether it has to signal the eventfd,
    /// because no notification was outstanding. As in the library, messages of vectors that are
    /// shared or cannot be masked are not posted, and always signal.
    pub(crate) fn post(&self) -> bool {
        self.vector_shared || self.polled.is_some() || !self.posted.replace((true, true)).1
    }

    /// Whether a posted notification is outstanding.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.posted.get().1
    }

    /// Clears the posted bit. Returns whether it was set.
    pub(crate) fn take_posted(&self) -> bool {
        let (bit, outstanding) = self.posted.get();
        self.posted.set((false, outstanding));
        bit
    }

    /// From now on the next message signals: the thread goes to sleep, or messages are no longer
    /// posted.
    pub(crate) fn clear_outstanding(&self) {
        self.posted.set((self.posted.get().0, false));
    }

    /// Signals that no thread has read.
    pub(crate) fn signals(&self) -> u32 {
        // The posted bit counts as a signal: it may have been set while a notification was
        // outstanding, and the thread must find it before it sleeps.
        if self.read.get() { self.signals.get().max(self.posted.get().0.into()) } else { 0 }
    }

    /// Reads the eventfd and the posted bit.
    pub(crate) fn take_signals(&self) {
        self.take_posted();
        self.signals.set(0);
    }

    /// How long a thread that needs the submission queue's lock now has to wait for it.
    pub(crate) fn sq_wait(&self, now: Nanos) -> Nanos {
        self.sq_locked_until - now
    }

    /// Holds the submission queue's lock for as long as it takes to transfer its cache line and to
    /// write the doorbell. Returns that time.
    pub(crate) fn hold_sq(
        &mut self,
        now: Nanos,
        cpu: usize,
        costs: &Costs,
        lines: &mut Lines,
    ) -> Nanos {
        let cost = lines.write(cpu, 2 * self.index) + costs.memory.mmio;
        self.sq_locked_until = now + cost;
        cost
    }

    /// Tries the completion queue's lock and reaps entries under it. The caller has to
    /// [`HwQueue::release`] the lock in its next step. `None`: another party holds it.
    pub(crate) fn try_poll(
        &mut self,
        cpu: usize,
        budget: u32,
        costs: &Costs,
        lines: &mut Lines,
        taken: &mut Vec<Completed>,
    ) -> Option<PollResult> {
        if self.cq_locked {
            // The holder checks again on release: the entry may have come after its poll.
            self.contended.set(true);
            return None;
        }
        let mut reaped = Reaped::default();
        let (mut doorbells, mut looks) = (0, 0);
        // The two pairs take turns at being first, so that a busy one does not use up the whole
        // budget each time.
        self.polled_first = !self.polled_first;
        let polled = self.polled.as_ref();
        let (first, second) = match polled {
            Some(polled) if self.polled_first => (polled, Some(&self.pair)),
            _ => (&self.pair, polled),
        };
        for pair in std::iter::once(first).chain(second) {
            let here = pair.try_reap(&self.bar, budget - reaped.found, taken)?;
            // One doorbell write per poll, not per entry, as in Linux's `nvme_poll_cq`.
            doorbells += u64::from(here.found > 0);
            looks += 1;
            reaped.found += here.found;
            reaped.violation = reaped.violation.or(here.violation);
        }
        reaped.budget_used_up = reaped.found == budget;
        self.cq_locked = true;
        let doorbell = Nanos(costs.memory.mmio.0 * doorbells + costs.library.look.0 * (looks - 1));
        // The lock and the head are on one cache line, which the last holder's CPU has.
        let line = lines.write(cpu, 2 * self.index + 1);
        let entries = Nanos(costs.library.entry.0 * u64::from(reaped.found));
        Some(PollResult { reaped, cost: costs.library.reap + line + doorbell + entries })
    }

    /// The check after arming: whether an entry is pending. False while the lock is held, because
    /// the holder checks again on release.
    pub(crate) fn recheck(&self) -> bool {
        let pending = self.pending();
        // As after a failed poll: on release the holder must have the queue polled for this entry.
        if pending && self.cq_locked {
            self.contended.set(true);
        }
        pending && !self.cq_locked
    }

    /// Releases the lock and checks once more. Returns whether an entry is pending, and whether, in
    /// addition, another party found the lock held and so did not poll for that entry.
    pub(crate) fn release(&mut self) -> (bool, bool) {
        self.cq_locked = false;
        let pending = self.pending();
        (pending, self.contended.take() && pending)
    }
}
