//! What the port and its rings share: the faults that are to come, and what came of the earlier ones.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nvme::regs::{self, Csts};
use nvme::{Cid, Doorbells, QueueId, Registers, Vector};
use units::Nanos;

use super::bells::LateBells;
use super::fault::{Fault, Injected, Occasion};
use super::plan::{Dice, FaultPlan};
use super::posted::Posted;
use crate::Port;

/// The sound port, and what is done to it. Clones are handles on the same one.
#[derive(Debug)]
pub(super) struct Injector<P> {
    pub(super) inner: Arc<P>,
    pub(super) state: Arc<Mutex<State>>,
}

impl<P> Clone for Injector<P> {
    fn clone(&self) -> Self {
        Injector { inner: self.inner.clone(), state: self.state.clone() }
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) dice: Dice,
    pub(super) now: Nanos,
    /// Doorbell writes under way.
    pub(super) bells: LateBells,
    /// Messages under way, in the order of sending.
    pub(super) late: Vec<(Nanos, Vector)>,
    /// CSTS.CFS is ours.
    pub(super) fatal: bool,
    /// What the controller saw of each tail last, by queue: all it sees while fatal.
    pub(super) tails: Vec<u32>,
    /// Queues that were mapped last and have no identifier yet, and completion queues that have one.
    pub(super) unnamed_sq: Option<Arc<OnceLock<QueueId>>>,
    pub(super) unnamed_cq: Option<Arc<Mutex<Posted>>>,
    pub(super) cqs: Vec<Option<Arc<Mutex<Posted>>>>,
    /// Commands whose entries must not be posted.
    pub(super) swallowed: Vec<(QueueId, Cid)>,
    pub(super) injected: Vec<Injected>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Port> Injector<P> {
    pub(super) fn new(inner: P, plan: FaultPlan) -> Injector<P> {
        let state = State {
            bells: LateBells::new(plan.late_doorbells()),
            dice: Dice::new(plan),
            now: Nanos::ZERO,
            late: Vec::new(),
            fatal: false,
            tails: Vec::new(),
            unnamed_sq: None,
            unnamed_cq: None,
            cqs: Vec::new(),
            swallowed: Vec::new(),
            injected: Vec::new(),
        };
        Injector { inner: Arc::new(inner), state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn fail(&self) {
        lock(&self.state).fatal = true;
        let csts = Csts::from_bits(self.inner.registers().read32(regs::CSTS)).with_cfs(true);
        self.inner.registers().write32(regs::CSTS, csts.into_bits());
    }

    /// A head doorbell, as far as it has arrived.
    pub(super) fn cq_head(&self, queue: QueueId) -> u32 {
        let mut state = lock(&self.state);
        let (head, now) = (self.inner.doorbells().cq_head(queue), state.now);
        state.bells.see((queue, true), head, now)
    }

    /// The command's entry is not to be posted.
    pub(super) fn swallow(&self, queue: QueueId, cid: Cid) {
        lock(&self.state).swallowed.push((queue, cid));
    }

    /// Whether a command was swallowed; its CID may be used again afterwards.
    pub(super) fn was_swallowed(&self, command: (QueueId, Cid)) -> bool {
        let mut state = lock(&self.state);
        let found = state.swallowed.iter().position(|&c| c == command);
        found.map(|at| state.swallowed.swap_remove(at)).is_some()
    }

    /// The last fault could not happen after all.
    pub(super) fn take_back(&self) {
        lock(&self.state).injected.pop();
    }

    pub(super) fn is_fatal(&self) -> bool {
        lock(&self.state).fatal
    }

    /// The fault, if any, that meets an occasion.
    pub(super) fn throw(&self, occasion: Occasion, queue: QueueId, command: Option<(QueueId, Cid)>) -> Option<Fault> {
        let mut state = lock(&self.state);
        if state.fatal {
            return None;
        }
        let fault = state.dice.throw(occasion, queue)?;
        state.injected.push(Injected { fault, command });
        Some(fault)
    }
}
