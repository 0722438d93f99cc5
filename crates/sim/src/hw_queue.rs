//! A hardware queue as all who use it share it: the queue pair, its two locks as far as time is concerned, its vector.

use std::cell::Cell;
use std::rc::Rc;

use completion::Coalesce;
use driver::{Completed, QueuePair, Reaped};
use handover::LookRole;
use nvme::Vector;
use units::Nanos;

use crate::host::TaskId;
use crate::port::{HostBar, SimCq, SimSq, Vectors};
use crate::{Costs, Lines};

/// A queue pair in simulated memory.
pub(crate) type Pair = QueuePair<SimSq, SimCq>;

/// A hardware queue.
#[derive(Debug)]
pub(crate) struct HwQueue {
    /// Its number among all queues of the machine.
    pub(crate) index: usize,
    pub(crate) device: usize,
    pub(crate) pair: Pair,
    pub(crate) bells: HostBar,
    vectors: Rc<Vectors>,
    pub(crate) vector: Vector,
    /// Several queues have its vector. Then it is never masked: one queue's mask would be another's lost wake-up.
    pub(crate) vector_shared: bool,
    /// The threads of the software queues that post to it, and those of them that spin on it or wait for a tag.
    pub(crate) users: Vec<TaskId>,
    pub(crate) spinners: Vec<TaskId>,
    pub(crate) stuck: Vec<TaskId>,
    /// Several software queues post to it.
    pub(crate) shared: bool,
    /// Who among the users sleeps on the vector.
    pub(crate) role: LookRole,
    /// What its vector's eventfd counts: so often it was signalled and not read.
    pub(crate) signals: u32,
    /// What the device holds back of its messages, or is about to.
    pub(crate) holding: Coalesce,
    /// Somebody holds the completion queue's lock.
    held: bool,
    /// Somebody found it held.
    turned_away: Cell<bool>,
    /// The submission queue's lock is held until then.
    sq_free_at: Nanos,
}

/// What a look under the lock came to.
pub(crate) struct Looked {
    pub(crate) reaped: Reaped,
    pub(crate) cost: Nanos,
}

impl HwQueue {
    pub(crate) fn new(index: usize, device: usize, pair: Pair, bells: HostBar, vectors: Rc<Vectors>, vector: Vector) -> HwQueue {
        HwQueue {
            index,
            device,
            pair,
            bells,
            vectors,
            vector,
            vector_shared: false,
            users: Vec::new(),
            spinners: Vec::new(),
            stuck: Vec::new(),
            shared: false,
            role: LookRole::new(8),
            signals: 0,
            holding: Coalesce::OFF,
            held: false,
            turned_away: Cell::new(false),
            sq_free_at: Nanos::ZERO,
        }
    }

    /// Cache lines of all queues: two each.
    pub(crate) fn lines(queues: usize) -> usize {
        2 * queues
    }

    /// Allows its vector's messages.
    pub(crate) fn arm(&self) {
        self.vectors.arm(self.vector);
    }

    /// Forbids them, unless another queue has the same vector.
    pub(crate) fn mask(&self) {
        if !self.vector_shared {
            self.vectors.mask(self.vector);
        }
    }

    /// How long whoever wants the submission queue's lock now has to wait.
    pub(crate) fn sq_wait(&self, now: Nanos) -> Nanos {
        self.sq_free_at - now
    }

    /// Holds the submission queue's lock from now on, for the line, the stores and the doorbell.
    pub(crate) fn hold_sq(&mut self, now: Nanos, cpu: usize, costs: &Costs, lines: &mut Lines) -> Nanos {
        let cost = lines.write(cpu, 2 * self.index) + costs.memory.mmio;
        self.sq_free_at = now + cost;
        cost
    }

    /// Tries the completion queue's lock and takes entries under it. Whoever gets it has to [`HwQueue::release`] it before
    /// it does anything else. `None`: somebody else has it.
    pub(crate) fn try_look(
        &mut self,
        cpu: usize,
        budget: u32,
        costs: &Costs,
        lines: &mut Lines,
        taken: &mut Vec<Completed>,
    ) -> Option<Looked> {
        if self.held {
            self.turned_away.set(true);
            return None;
        }
        let reaped = self.pair.try_reap(&self.bells, budget, taken)?;
        self.held = true;
        let doorbell = if reaped.found > 0 { costs.memory.mmio } else { Nanos::ZERO };
        let line = lines.write(cpu, 2 * self.index + 1);
        let entries = Nanos(costs.library.entry.0 * u64::from(reaped.found));
        Some(Looked { reaped, cost: costs.library.reap + line + doorbell + entries })
    }

    /// The look after arming. Whoever holds the lock looks once more when it releases it, so it is let be.
    pub(crate) fn look_once_more(&self) -> bool {
        let pending = self.pair.pending();
        if pending && self.held {
            self.turned_away.set(true);
        }
        pending && !self.held
    }

    /// Releases the lock and looks once more. Whether an entry waits, and whether somebody was turned away who might have
    /// taken it.
    pub(crate) fn release(&mut self) -> (bool, bool) {
        self.held = false;
        let pending = self.pair.pending();
        (pending, self.turned_away.take() && pending)
    }
}
