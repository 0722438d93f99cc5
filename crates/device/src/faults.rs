//! A port that lies: the fault injector.
//!
//! [`FaultyPort`] wraps any [`Port`]; the controller behind it is sound, what reaches the host is not. The thread that steps the
//! controller also calls [`FaultyPort::advance`], which sends the messages that are late.

mod bells;
mod fault;
mod injector;
mod plan;
mod posted;
mod rings;

use nvme::regs::{self, Cc, Csts};
use nvme::{Cid, Doorbells, QueueId, Registers, Sqe, Vector};
use units::Nanos;

use crate::{Begun, BusError, KnownTime, Message, Port, ShadowBuffers};

use bells::LateBells;
use fault::Occasion;
use injector::{Injector, lock};
use plan::Dice;

pub use fault::{Fault, Injected};
pub use plan::FaultPlan;
pub use rings::{FaultyCq, FaultySq};

/// A port with faults. Clones are handles on the same one.
#[derive(Debug)]
pub struct FaultyPort<P>(Injector<P>);

impl<P> Clone for FaultyPort<P> {
    fn clone(&self) -> Self {
        FaultyPort(self.0.clone())
    }
}

impl<P: Port> FaultyPort<P> {
    /// Wraps `inner`.
    pub fn new(inner: P, plan: FaultPlan) -> FaultyPort<P> {
        FaultyPort(Injector::new(inner, plan))
    }

    /// The port behind.
    pub fn inner(&self) -> &P {
        &self.0.inner
    }

    /// Sends the late messages that are due by now. To be called before each step of the controller.
    pub fn advance(&self, now: Nanos) {
        let due: Vec<_> = {
            let mut state = lock(&self.0.state);
            state.now = now;
            // One whose vector is masked waits on: it goes out at the first call after the unmasking.
            let inner = &self.0.inner;
            state.late.extract_if(.., |&mut (at, vector)| at <= now && !inner.is_masked(vector)).collect()
        };
        for (_, vector) in due {
            self.0.inner.message(vector);
        }
    }

    /// When the next late message, or doorbell write, is due that is not due yet.
    pub fn next_late(&self) -> Option<Nanos> {
        let state = lock(&self.0.state);
        let message = state.late.iter().map(|&(at, _)| at).filter(|&at| at > state.now).min();
        message.into_iter().chain(state.bells.next(state.now)).min()
    }

    /// A message meets its fault, if there is one for it; else `send` sends it.
    fn send(&self, vector: Vector, send: impl FnOnce() -> Message) -> Message {
        if self.0.is_fatal() {
            return Message::Lost;
        }
        match self.0.throw(Occasion::Message, QueueId(vector.0), None) {
            Some(Fault::LoseMessage) => Message::Lost,
            Some(Fault::DelayMessage(by)) => {
                let mut state = lock(&self.0.state);
                let at = state.now + by;
                state.late.push((at, vector));
                Message::Lost
            }
            Some(Fault::DoubleMessage) => {
                let first = send();
                self.0.inner.message(vector);
                first
            }
            _ => send(),
        }
    }

    /// The faults so far, in order.
    pub fn injected(&self) -> Vec<Injected> {
        lock(&self.0.state).injected.clone()
    }

    /// From now on a different plan; occasions count from here.
    pub fn set_plan(&self, plan: FaultPlan) {
        let mut state = lock(&self.0.state);
        // Writes that are on their way go on.
        if plan.late_doorbells() != state.dice.plan().late_doorbells() {
            state.bells = LateBells::new(plan.late_doorbells());
        }
        state.dice = Dice::new(plan);
    }
}

impl<P: Port> Port for FaultyPort<P> {
    type Sq = FaultySq<P>;
    type Cq = FaultyCq<P>;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<FaultySq<P>, BusError> {
        let sq = FaultySq::new(self.0.inner.map_sq(addr, entries)?, self.0.clone());
        lock(&self.0.state).unnamed_sq = Some(sq.id());
        Ok(sq)
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<FaultyCq<P>, BusError> {
        let cq = FaultyCq::new(self.0.inner.map_cq(addr, entries)?, self.0.clone(), entries);
        lock(&self.0.state).unnamed_cq = Some(cq.state());
        Ok(cq)
    }

    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.0.inner.dma_read(addr, into)
    }

    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.0.inner.dma_write(addr, from)
    }

    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.0.inner.check(addr, len)
    }

    fn doorbells(&self) -> &impl Doorbells {
        self
    }

    fn registers(&self) -> &impl Registers {
        self
    }

    fn message(&self, vector: Vector) -> Message {
        self.send(vector, || self.0.inner.message(vector))
    }

    fn is_masked(&self, vector: Vector) -> bool {
        self.0.inner.is_masked(vector)
    }

    fn send_pending(&self, vector: Vector) -> Message {
        let message = self.send(vector, || self.0.inner.send_pending(vector));
        if message == Message::Lost {
            self.0.inner.clear_pending(vector);
        }
        message
    }

    fn clear_pending(&self, vector: Vector) {
        self.0.inner.clear_pending(vector);
    }

    fn shadow_doorbells(&self, buffers: Option<ShadowBuffers>) -> Result<(), BusError> {
        self.0.inner.shadow_doorbells(buffers)
    }

    fn arm_doorbell(&self, queue: QueueId, completion: bool) -> bool {
        self.0.inner.arm_doorbell(queue, completion)
    }

    fn service_time(&self, queue: QueueId, command: &Sqe) -> Option<KnownTime> {
        self.0.inner.service_time(queue, command)
    }

    fn begun(&self, command: &Begun) {
        self.0.inner.begun(command);
    }

    fn ended(&self, queue: QueueId, cid: Cid, now: Nanos) {
        self.0.inner.ended(queue, cid, now);
    }
}

/// The registers as the controller sees them.
impl<P: Port> Registers for FaultyPort<P> {
    fn read32(&self, offset: u32) -> u32 {
        let value = self.0.inner.registers().read32(offset);
        if offset == regs::CC && !Cc::from_bits(value).en() {
            let mut state = lock(&self.0.state);
            state.fatal = false;
            state.swallowed.clear();
        }
        value
    }

    fn write32(&self, offset: u32, value: u32) {
        let cfs = offset == regs::CSTS && self.0.is_fatal();
        let value = if cfs { Csts::from_bits(value).with_cfs(true).into_bits() } else { value };
        self.0.inner.registers().write32(offset, value);
    }
}

/// The doorbells as the controller sees them: heads are those of the entries that it means to have posted.
impl<P: Port> Doorbells for FaultyPort<P> {
    /// The controller clears the doorbells of a queue right after mapping it: here it learns its identifier.
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        let mut state = lock(&self.0.state);
        if let Some(id) = state.unnamed_sq.take() {
            // Only just mapped: it has none yet.
            let _ = id.set(queue);
        }
        if let Some(seen) = state.tails.get_mut(usize::from(queue.0)) {
            *seen = tail;
        }
        state.bells.set((queue, false), tail);
        drop(state);
        self.0.inner.doorbells().ring_sq(queue, tail);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        let mut state = lock(&self.0.state);
        if let Some(cq) = state.unnamed_cq.take() {
            let n = usize::from(queue.0);
            if state.cqs.len() <= n {
                state.cqs.resize(n + 1, None);
            }
            lock(&cq).name(queue);
            state.cqs[n] = Some(cq);
        }
        state.bells.set((queue, true), head);
        drop(state);
        self.0.inner.doorbells().ring_cq(queue, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        let n = usize::from(queue.0);
        let mut state = lock(&self.0.state);
        if state.tails.len() <= n {
            state.tails.resize(n + 1, 0);
        }
        if !state.fatal {
            let (tail, now) = (self.0.inner.doorbells().sq_tail(queue), state.now);
            state.tails[n] = state.bells.see((queue, false), tail, now);
        }
        state.tails[n]
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        let head = self.0.cq_head(queue);
        let cq = lock(&self.0.state).cqs.get(usize::from(queue.0)).cloned().flatten();
        cq.map_or(head, |cq| lock(&cq).intended_head(head))
    }
}

#[cfg(test)]
mod tests;
