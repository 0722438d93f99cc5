//! A port that lies: the fault injector.
//!
//! [`FaultyPort`] wraps any [`Port`]; the controller behind it is sound, what reaches the host is not. Whoever steps the
//! controller also calls [`FaultyPort::advance`], which sends the messages that are late.

mod plan;
mod rings;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nvme::regs::{self, Cc, Csts};
use nvme::{Cid, Doorbells, QueueId, Registers, Sqe, Status, Vector};
use units::Nanos;

use crate::{Begun, BusError, KnownTime, Port};

use plan::Dice;
pub use plan::FaultPlan;
use rings::CqState;
pub use rings::{FaultyCq, FaultySq};

/// Something that goes wrong once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A message does not go out.
    LoseMessage,
    /// A message goes out this much later.
    DelayMessage(Nanos),
    /// A message goes out twice.
    DoubleMessage,
    /// An entry carries the CID of the command that completed before it on its queue; its own command never completes.
    StaleCid,
    /// An entry carries a CID that nobody used lately; its own command never completes.
    UnknownCid,
    /// An entry is posted twice, unless there is no room or the host has not taken any yet.
    DoubleEntry,
    /// An entry is stored with the wrong phase tag: the host never sees it, nor any after it on its queue.
    WrongPhase,
    /// A command ends with this status; what it did remains done.
    Status(Status),
    /// An entry is not posted: the command is carried out and never completes.
    SwallowEntry,
    /// A command is not carried out and never completes.
    SwallowCommand,
    /// CSTS.CFS: at this entry the controller fails, and is silent until the host resets it.
    Fatal,
}

/// What a fault happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    Message,
    Entry,
    Command,
}

impl Fault {
    pub(crate) fn occasion(self) -> Occasion {
        match self {
            Fault::LoseMessage | Fault::DelayMessage(_) | Fault::DoubleMessage => Occasion::Message,
            Fault::SwallowCommand => Occasion::Command,
            _ => Occasion::Entry,
        }
    }
}

/// A fault that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Which.
    pub fault: Fault,
    /// The submission queue and the command that it hit; a message has none.
    pub command: Option<(QueueId, Cid)>,
}

/// A port with faults. Clones are handles on the same one.
#[derive(Debug)]
pub struct FaultyPort<P> {
    inner: Arc<P>,
    state: Arc<Mutex<State>>,
}

impl<P> Clone for FaultyPort<P> {
    fn clone(&self) -> Self {
        FaultyPort { inner: self.inner.clone(), state: self.state.clone() }
    }
}

#[derive(Debug)]
struct State {
    dice: Dice,
    now: Nanos,
    /// Messages under way, in the order of sending.
    late: Vec<(Nanos, Vector)>,
    /// CSTS.CFS is ours.
    fatal: bool,
    /// What the controller saw of each tail last, by queue: all it sees while fatal.
    tails: Vec<u32>,
    /// Queues that were mapped last and have no identifier yet, and completion queues that have one.
    unnamed_sq: Option<Arc<OnceLock<QueueId>>>,
    unnamed_cq: Option<Arc<Mutex<CqState>>>,
    cqs: Vec<Option<Arc<Mutex<CqState>>>>,
    /// Commands whose entries must not be posted.
    swallowed: Vec<(QueueId, Cid)>,
    injected: Vec<Injected>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Port> FaultyPort<P> {
    /// Wraps `inner`.
    pub fn new(inner: P, plan: FaultPlan) -> FaultyPort<P> {
        let state = State {
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
        FaultyPort { inner: Arc::new(inner), state: Arc::new(Mutex::new(state)) }
    }

    /// The port behind.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Sends the late messages that are due by now. To be called before each step of the controller.
    pub fn advance(&self, now: Nanos) {
        let due: Vec<_> = {
            let mut state = lock(&self.state);
            state.now = now;
            state.late.extract_if(.., |&mut (at, _)| at <= now).collect()
        };
        for (_, vector) in due {
            self.inner.message(vector);
        }
    }

    /// When the next late message is due.
    pub fn next_late(&self) -> Option<Nanos> {
        lock(&self.state).late.iter().map(|&(at, _)| at).min()
    }

    /// The faults so far, in order.
    pub fn injected(&self) -> Vec<Injected> {
        lock(&self.state).injected.clone()
    }

    /// From now on a different plan; occasions count from here.
    pub fn set_plan(&self, plan: FaultPlan) {
        lock(&self.state).dice = Dice::new(plan);
    }

    fn fail(&self) {
        lock(&self.state).fatal = true;
        let csts = Csts::from_bits(self.inner.registers().read32(regs::CSTS)).with_cfs(true);
        self.inner.registers().write32(regs::CSTS, csts.into_bits());
    }

    /// The command's entry is not to be posted.
    fn swallow(&self, queue: QueueId, cid: Cid) {
        lock(&self.state).swallowed.push((queue, cid));
    }

    /// Whether a command was swallowed; its CID may be used again afterwards.
    fn was_swallowed(&self, command: (QueueId, Cid)) -> bool {
        let mut state = lock(&self.state);
        let found = state.swallowed.iter().position(|&c| c == command);
        found.map(|at| state.swallowed.swap_remove(at)).is_some()
    }

    /// The last fault could not happen after all.
    fn take_back(&self) {
        lock(&self.state).injected.pop();
    }

    fn is_fatal(&self) -> bool {
        lock(&self.state).fatal
    }

    /// The fault, if any, that meets an occasion.
    fn throw(&self, occasion: Occasion, queue: QueueId, command: Option<(QueueId, Cid)>) -> Option<Fault> {
        let mut state = lock(&self.state);
        if state.fatal {
            return None;
        }
        let fault = state.dice.throw(occasion, queue)?;
        state.injected.push(Injected { fault, command });
        Some(fault)
    }
}

impl<P: Port> Port for FaultyPort<P> {
    type Sq = FaultySq<P>;
    type Cq = FaultyCq<P>;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<FaultySq<P>, BusError> {
        let sq = FaultySq::new(self.inner.map_sq(addr, entries)?, self.clone());
        lock(&self.state).unnamed_sq = Some(sq.id());
        Ok(sq)
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<FaultyCq<P>, BusError> {
        let cq = FaultyCq::new(self.inner.map_cq(addr, entries)?, self.clone(), entries);
        lock(&self.state).unnamed_cq = Some(cq.state());
        Ok(cq)
    }

    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.inner.dma_read(addr, into)
    }

    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.inner.dma_write(addr, from)
    }

    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.inner.check(addr, len)
    }

    fn doorbells(&self) -> &impl Doorbells {
        self
    }

    fn registers(&self) -> &impl Registers {
        self
    }

    fn message(&self, vector: Vector) -> bool {
        if self.is_fatal() {
            return false;
        }
        match self.throw(Occasion::Message, QueueId(vector.0), None) {
            Some(Fault::LoseMessage) => false,
            Some(Fault::DelayMessage(by)) => {
                let mut state = lock(&self.state);
                let at = state.now + by;
                state.late.push((at, vector));
                false
            }
            Some(Fault::DoubleMessage) => {
                let first = self.inner.message(vector);
                self.inner.message(vector) || first
            }
            _ => self.inner.message(vector),
        }
    }

    fn service_time(&self, queue: QueueId, command: &Sqe) -> Option<KnownTime> {
        self.inner.service_time(queue, command)
    }

    fn begun(&self, command: &Begun) {
        self.inner.begun(command);
    }

    fn ended(&self, queue: QueueId, cid: Cid, now: Nanos) {
        self.inner.ended(queue, cid, now);
    }
}

/// The registers as the controller sees them.
impl<P: Port> Registers for FaultyPort<P> {
    fn read32(&self, offset: u32) -> u32 {
        let value = self.inner.registers().read32(offset);
        if offset == regs::CC && !Cc::from_bits(value).en() {
            let mut state = lock(&self.state);
            state.fatal = false;
            state.swallowed.clear();
        }
        value
    }

    fn write32(&self, offset: u32, value: u32) {
        let cfs = offset == regs::CSTS && self.is_fatal();
        let value = if cfs { Csts::from_bits(value).with_cfs(true).into_bits() } else { value };
        self.inner.registers().write32(offset, value);
    }
}

/// The doorbells as the controller sees them: heads are those of the entries that it means to have posted.
impl<P: Port> Doorbells for FaultyPort<P> {
    /// The controller clears the doorbells of a queue right after mapping it: here it learns its identifier.
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        let mut state = lock(&self.state);
        if let Some(id) = state.unnamed_sq.take() {
            // Only just mapped: it has none yet.
            let _ = id.set(queue);
        }
        if let Some(seen) = state.tails.get_mut(usize::from(queue.0)) {
            *seen = tail;
        }
        drop(state);
        self.inner.doorbells().ring_sq(queue, tail);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        let mut state = lock(&self.state);
        if let Some(cq) = state.unnamed_cq.take() {
            let n = usize::from(queue.0);
            if state.cqs.len() <= n {
                state.cqs.resize(n + 1, None);
            }
            lock(&cq).name(queue);
            state.cqs[n] = Some(cq);
        }
        drop(state);
        self.inner.doorbells().ring_cq(queue, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        let n = usize::from(queue.0);
        let mut state = lock(&self.state);
        if state.tails.len() <= n {
            state.tails.resize(n + 1, 0);
        }
        if !state.fatal {
            state.tails[n] = self.inner.doorbells().sq_tail(queue);
        }
        state.tails[n]
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        let head = self.inner.doorbells().cq_head(queue);
        let cq = lock(&self.state).cqs.get(usize::from(queue.0)).cloned().flatten();
        cq.map_or(head, |cq| lock(&cq).intended_head(head))
    }
}

#[cfg(test)]
mod tests;
