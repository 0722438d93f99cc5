//! A hardware queue as all who use it share it: its queue pairs, its two locks as far as time is concerned, its vector.

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
    /// The queue pair whose completions send messages.
    pair: Pair,
    /// Where vectors cannot be masked, one beside it whose completions send none. Each command stays where it was sent.
    polled: Option<Pair>,
    /// Which of the two comes first in the next look.
    polled_first: bool,
    pub(crate) bar: HostBar,
    vectors: Rc<Vectors>,
    pub(crate) vector: Vector,
    /// Several queues have its vector. Then it is never masked: one queue's mask would be another's lost wake-up.
    pub(crate) vector_shared: bool,
    /// The threads of the software queues that post to it, and those of them that spin on it or wait for a tag.
    pub(crate) users: Vec<TaskId>,
    pub(crate) spinners: Vec<TaskId>,
    pub(crate) tag_waiters: Vec<TaskId>,
    /// Several software queues post to it.
    pub(crate) shared: bool,
    /// Who among the users sleeps on the vector.
    pub(crate) role: NotificationRole,
    /// What its vector's eventfd counts: so often it was signalled and not read.
    signals: Cell<u32>,
    /// Its vector's messages are posted by a controller in process: the bit, and whether a notification is outstanding.
    posted: Cell<(bool, bool)>,
    /// A thread that sleeps reads the eventfd. Where the vector cannot be masked this is its mask: messages come all the same.
    read: Cell<bool>,
    /// This many entries its device holds back before a message, as it has confirmed.
    pub(crate) coalescing: u32,
    /// Somebody holds the completion queue's lock.
    cq_locked: bool,
    /// Somebody found it held.
    contended: Cell<bool>,
    /// The submission queue's lock is held until then.
    sq_locked_until: Nanos,
}

/// What a look under the lock came to.
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
            coalescing: 0,
            cq_locked: false,
            contended: Cell::new(false),
            sq_locked_until: Nanos::ZERO,
        }
    }

    /// Cache lines of all queues: two each.
    pub(crate) fn lines(queues: usize) -> usize {
        2 * queues
    }

    /// Its queue pairs: one, or two where vectors cannot be masked.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        std::iter::once(&self.pair).chain(&self.polled)
    }

    /// The queue pair that a batch goes to, if its mode says this.
    pub(crate) fn pair_for(&self, route: Route) -> &Pair {
        match (route, &self.polled) {
            (Route::Poll, Some(polled)) => polled,
            _ => &self.pair,
        }
    }

    /// Whether an entry waits.
    pub(crate) fn pending(&self) -> bool {
        self.pairs().any(|pair| pair.pending())
    }

    /// Commands in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.pairs().map(|pair| pair.in_flight()).sum()
    }

    /// Of these, the ones of which no message will tell.
    pub(crate) fn polled_in_flight(&self) -> u32 {
        self.polled.as_ref().map_or(0, |polled| polled.in_flight())
    }

    /// Commands that have completed without a message.
    pub(crate) fn polled_finished(&self) -> u64 {
        self.polled.as_ref().map_or(0, |polled| polled.counters().finished)
    }

    /// Allows its vector's messages. Where they always come: reads what has come unread, and from now on whatever comes.
    pub(crate) fn arm(&self) {
        if self.vectors.arm(self.vector) {
            self.bar.unmasked();
        }
        if !self.read.replace(true) {
            self.signals.set(0);
        }
    }

    /// Forbids them, unless another queue has the same vector. Where they always come: leaves them unread.
    pub(crate) fn mask(&self) {
        if self.vector_shared {
            return;
        }
        match self.polled {
            None => self.vectors.mask(self.vector),
            Some(_) => self.read.set(false),
        }
    }

    /// Its vector's eventfd is signalled. Whether anybody reads it.
    pub(crate) fn signal(&self) -> bool {
        self.signals.set(self.signals.get().saturating_add(1));
        self.read.get()
    }

    /// A controller in process posts a message. Whether it has to signal the eventfd: no notification is outstanding. As in the engine a
    /// vector that several queues have, or that cannot be masked, is not posted.
    pub(crate) fn post(&self) -> bool {
        self.vector_shared || self.polled.is_some() || !self.posted.replace((true, true)).1
    }

    /// Whether it would not.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.posted.get().1
    }

    /// Takes the bit.
    pub(crate) fn take_posted(&self) -> bool {
        let (bit, outstanding) = self.posted.get();
        self.posted.set((false, outstanding));
        bit
    }

    /// The next message notifies: its thread goes to sleep, or nothing is posted any more.
    pub(crate) fn clear_outstanding(&self) {
        self.posted.set((self.posted.get().0, false));
    }

    /// Signals that no thread has read yet.
    pub(crate) fn signals(&self) -> u32 {
        // A bit that was set while a notification was outstanding is found before its reader sleeps.
        if self.read.get() { self.signals.get().max(self.posted.get().0.into()) } else { 0 }
    }

    /// They are read.
    pub(crate) fn take_signals(&self) {
        self.take_posted();
        self.signals.set(0);
    }

    /// How long a thread that wants the submission queue's lock now has to wait.
    pub(crate) fn sq_wait(&self, now: Nanos) -> Nanos {
        self.sq_locked_until - now
    }

    /// Holds the submission queue's lock from now on, for the line, the stores and the doorbell.
    pub(crate) fn hold_sq(&mut self, now: Nanos, cpu: usize, costs: &Costs, lines: &mut Lines) -> Nanos {
        let cost = lines.write(cpu, 2 * self.index) + costs.memory.mmio;
        self.sq_locked_until = now + cost;
        cost
    }

    /// Tries the completion queue's lock and takes entries under it. A party that gets it has to [`HwQueue::release`] it before
    /// it does anything else. `None`: somebody else has it.
    pub(crate) fn try_poll(
        &mut self,
        cpu: usize,
        budget: u32,
        costs: &Costs,
        lines: &mut Lines,
        taken: &mut Vec<Completed>,
    ) -> Option<PollResult> {
        if self.cq_locked {
            self.contended.set(true);
            return None;
        }
        let mut reaped = Reaped::default();
        let (mut doorbells, mut looks) = (0, 0);
        // Neither is kept waiting by the other.
        self.polled_first = !self.polled_first;
        let polled = self.polled.as_ref();
        let (first, second) = match polled {
            Some(polled) if self.polled_first => (polled, Some(&self.pair)),
            _ => (&self.pair, polled),
        };
        for pair in std::iter::once(first).chain(second) {
            let here = pair.try_reap(&self.bar, budget - reaped.found, taken)?;
            doorbells += u64::from(here.found > 0);
            looks += 1;
            reaped.found += here.found;
            reaped.violation = reaped.violation.or(here.violation);
        }
        reaped.budget_used_up = reaped.found == budget;
        self.cq_locked = true;
        let doorbell = Nanos(costs.memory.mmio.0 * doorbells + costs.library.look.0 * (looks - 1));
        let line = lines.write(cpu, 2 * self.index + 1);
        let entries = Nanos(costs.library.entry.0 * u64::from(reaped.found));
        Some(PollResult { reaped, cost: costs.library.reap + line + doorbell + entries })
    }

    /// The look after arming. The lock's holder looks once more when it releases it, so it is let be.
    pub(crate) fn recheck(&self) -> bool {
        let pending = self.pending();
        if pending && self.cq_locked {
            self.contended.set(true);
        }
        pending && !self.cq_locked
    }

    /// Releases the lock and looks once more. Whether an entry waits, and whether somebody was turned away who might have
    /// taken it.
    pub(crate) fn release(&mut self) -> (bool, bool) {
        self.cq_locked = false;
        let pending = self.pending();
        (pending, self.contended.take() && pending)
    }
}
