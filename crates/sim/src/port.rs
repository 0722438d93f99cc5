//! The bus between the simulated host and a controller: memory, rings, registers, doorbells and
//! vectors, as plain values on one thread. Every access is atomic and in order; the loom models
//! cover what real hardware may reorder.

mod memory;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use emu::{BusError, Port, SendResult};
use nvme::{Doorbells, QueueId, Registers, Sqe, Vector, regs};
use units::Nanos;

use crate::dies::DieTimes;
pub(crate) use memory::{Memory, SimCq, SimSq};

/// A controller's BAR, from the controller's side.
#[derive(Debug)]
pub(crate) struct BarRegisters {
    registers: Vec<Cell<u32>>,
    doorbells: Vec<Cell<u32>>,
}

impl BarRegisters {
    fn new(queue_pairs: u16) -> BarRegisters {
        let zeroes = |n: usize| vec![Cell::new(0); n];
        BarRegisters {
            registers: zeroes((regs::DOORBELLS / 4) as usize),
            doorbells: zeroes(2 * (usize::from(queue_pairs) + 1)),
        }
    }

    fn doorbell(&self, queue: QueueId, completion: bool) -> Option<&Cell<u32>> {
        self.doorbells.get(2 * usize::from(queue.0) + usize::from(completion))
    }
}

impl Registers for BarRegisters {
    fn read32(&self, offset: u32) -> u32 {
        self.registers.get((offset / 4) as usize).map_or(u32::MAX, Cell::get)
    }

    fn write32(&self, offset: u32, value: u32) {
        if let Some(register) = self.registers.get((offset / 4) as usize) {
            register.set(value);
        }
    }
}

impl Doorbells for BarRegisters {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        if let Some(doorbell) = self.doorbell(queue, false) {
            doorbell.set(tail);
        }
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        if let Some(doorbell) = self.doorbell(queue, true) {
            doorbell.set(head);
        }
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.doorbell(queue, false).map_or(0, Cell::get)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.doorbell(queue, true).map_or(0, Cell::get)
    }
}

/// The BAR, from the host's side: writes are recorded, so that the simulator steps the controller.
#[derive(Clone, Debug)]
pub(crate) struct HostBar {
    bar: Rc<BarRegisters>,
    written: Written,
    device: usize,
    /// A write to a CQ head doorbell can change what the controller does, so the controller is
    /// stepped for it.
    heads_matter: bool,
}

/// A bit for each of up to 64 controllers: the host has written to its registers or doorbells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Rc<Cell<u64>>);

impl Written {
    /// Clears the bit of a controller. Returns whether it was set.
    pub(crate) fn take(&self, device: usize) -> bool {
        let all = self.0.get();
        self.0.set(all & !(1 << device));
        all >> device & 1 == 1
    }

    /// The first controller that the host has written to.
    pub(crate) fn first(&self) -> Option<usize> {
        let all = self.0.get();
        (all != 0).then(|| all.trailing_zeros() as usize)
    }

    fn add(&self, device: usize) {
        self.0.set(self.0.get() | 1 << device);
    }
}

impl HostBar {
    /// The host has unmasked a vector: has the controller stepped.
    pub(crate) fn unmasked(&self) {
        self.written.add(self.device);
    }
}

impl Registers for HostBar {
    fn read32(&self, offset: u32) -> u32 {
        self.bar.read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        self.written.add(self.device);
        self.bar.write32(offset, value);
    }
}

impl Doorbells for HostBar {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.written.add(self.device);
        self.bar.ring_sq(queue, tail);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        // Otherwise a controller reads the head when it fetches commands. It never waits for the
        // head to move, because a CQ has room for every tag.
        if self.heads_matter {
            self.written.add(self.device);
        }
        self.bar.ring_cq(queue, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.bar.sq_tail(queue)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.bar.cq_head(queue)
    }
}

/// The interrupt vectors of a controller, with the messages that are still to be sent to CPUs.
#[derive(Debug)]
pub(crate) struct Vectors {
    states: Vec<VectorState>,
    raised: RefCell<Vec<Vector>>,
}

#[derive(Clone, Debug, Default)]
struct VectorState {
    armed: Cell<bool>,
    /// The Pending bit (PCIe MSI-X PBA): a message was masked.
    pending: Cell<bool>,
    /// The host has unmasked the vector since `pending` was set, and that write is on its way to
    /// the controller. A later mask arrives after it, so the message is sent all the same.
    unmasked: Cell<bool>,
    messages: Cell<u64>,
    suppressed: Cell<u64>,
}

impl Vectors {
    fn new(count: u16) -> Vectors {
        Vectors {
            states: vec![VectorState::default(); usize::from(count)],
            raised: RefCell::default(),
        }
    }

    /// Unmasks a vector. Returns whether its Pending bit is set; the controller must then be
    /// stepped when the write reaches it.
    pub(crate) fn arm(&self, vector: Vector) -> bool {
        let Some(state) = self.state(vector) else { return false };
        state.armed.set(true);
        // The message is sent only when the write has reached the controller, after the bus delay.
        if state.pending.get() {
            state.unmasked.set(true);
        }
        state.pending.get()
    }

    /// Masks a vector.
    pub(crate) fn mask(&self, vector: Vector) {
        if let Some(state) = self.state(vector) {
            state.armed.set(false);
        }
    }

    /// Number of messages of I/O queues' vectors: all but vector 0, which is the admin queue's.
    pub(crate) fn messages(&self) -> u64 {
        self.states.iter().skip(1).map(|state| state.messages.get()).sum()
    }

    /// Number of masked messages of I/O queues' vectors.
    pub(crate) fn suppressed(&self) -> u64 {
        self.states.iter().skip(1).map(|state| state.suppressed.get()).sum()
    }

    /// The vectors raised since the last call, in order.
    pub(crate) fn take_raised(&self, into: &mut Vec<Vector>) {
        into.append(&mut self.raised.borrow_mut());
    }

    fn state(&self, vector: Vector) -> Option<&VectorState> {
        self.states.get(usize::from(vector.0))
    }
}

/// The simulator's bus.
#[derive(Clone, Debug)]
pub(crate) struct SimPort {
    memory: Memory,
    bar: Rc<BarRegisters>,
    pub(crate) vectors: Rc<Vectors>,
    /// While it is true the controller cannot reach memory.
    pub(crate) dma_blocked: Rc<Cell<bool>>,
    /// The drive's dies, if they limit its service times.
    dies: Option<Rc<DieTimes>>,
}

impl SimPort {
    /// A bus for a controller with this many I/O queue pairs and vectors.
    pub(crate) fn new(
        memory: Memory,
        queue_pairs: u16,
        vectors: u16,
        dies: Option<Rc<DieTimes>>,
    ) -> SimPort {
        let (bar, vectors) =
            (Rc::new(BarRegisters::new(queue_pairs)), Rc::new(Vectors::new(vectors)));
        SimPort { memory, bar, vectors, dma_blocked: Rc::default(), dies }
    }

    /// The host's view of the registers and doorbells.
    pub(crate) fn host_bar(&self, device: usize, written: &Written, heads_matter: bool) -> HostBar {
        HostBar { bar: Rc::clone(&self.bar), written: written.clone(), device, heads_matter }
    }

    fn admit(&self, addr: u64, len: usize) -> Result<(), BusError> {
        if self.dma_blocked.get() { Err(BusError { addr, len: len as u64 }) } else { Ok(()) }
    }
}

impl Port for SimPort {
    type Sq = SimSq;
    type Cq = SimCq;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<SimSq, BusError> {
        self.memory.sq(addr, entries)
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<SimCq, BusError> {
        self.memory.cq(addr, entries)
    }

    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.admit(addr, into.len())?;
        self.memory.read(addr, into)
    }

    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.admit(addr, from.len())?;
        self.memory.write(addr, from)
    }

    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.memory.check(addr, len).map(drop)
    }

    fn doorbells(&self) -> &impl Doorbells {
        &*self.bar
    }

    fn registers(&self) -> &impl Registers {
        &*self.bar
    }

    fn send_message(&self, vector: Vector) -> SendResult {
        let Some(state) = self.vectors.state(vector) else { return SendResult::Lost };
        if state.armed.get() {
            state.messages.set(state.messages.get() + 1);
            self.vectors.raised.borrow_mut().push(vector);
            return SendResult::Sent;
        }
        state.suppressed.set(state.suppressed.get() + 1);
        state.pending.set(true);
        SendResult::Masked
    }

    /// Whether the Pending bit is set and the unmasking write has not reached the controller yet.
    fn is_masked(&self, vector: Vector) -> bool {
        self.vectors.state(vector).is_some_and(|state| !state.armed.get() && !state.unmasked.get())
    }

    /// Sends the message that the Pending bit stands for. It no longer counts as suppressed.
    fn send_pending(&self, vector: Vector) -> SendResult {
        let Some(state) = self.vectors.state(vector) else { return SendResult::Lost };
        self.clear_pending(vector);
        state.suppressed.set(state.suppressed.get() - 1);
        state.messages.set(state.messages.get() + 1);
        self.vectors.raised.borrow_mut().push(vector);
        SendResult::Sent
    }

    fn clear_pending(&self, vector: Vector) {
        if let Some(state) = self.vectors.state(vector) {
            state.pending.set(false);
            state.unmasked.set(false);
        }
    }

    fn service_time(&self, command: &Sqe) -> Option<Nanos> {
        self.dies.as_ref().map(|dies| dies.time(command))
    }
}

#[cfg(test)]
mod tests;
