//! A minimal host over plain memory, for the tests of this crate.

#[path = "exercise.rs"]
mod exercise;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use nvme::admin::{CreateCq, CreateSq};
use nvme::prp::{Dptr, PageSize};
use nvme::regs::{self, Aqa, Cc, Csts};
use nvme::{
    Cid, CqSlots, Cqe, Doorbells, Lba, Nsid, QueueId, Registers, RingIndex, SqSlots, Sqe, Vector,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

use crate::{BusError, Config, Controller, NamespaceConfig, Port, SendResult, ShadowBuffers, Step};

pub(crate) use exercise::exercise;

/// Bus address of the host's memory.
pub(crate) const BASE: u64 = 0x4000_0000;

/// Host memory that the controller may access.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Rc<RefCell<Vec<u8>>>);

impl Memory {
    fn new(bytes: usize) -> Memory {
        Memory(Rc::new(RefCell::new(vec![0; bytes])))
    }

    fn range(&self, addr: u64, len: u64) -> Result<std::ops::Range<usize>, BusError> {
        let error = BusError { addr, len };
        let start = addr.checked_sub(BASE).ok_or(error)?;
        let end = start
            .checked_add(len)
            .filter(|&end| end <= self.0.borrow().len() as u64)
            .ok_or(error)?;
        Ok(start as usize..end as usize)
    }

    pub(crate) fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        let range = self.range(addr, into.len() as u64)?;
        into.copy_from_slice(&self.0.borrow()[range]);
        Ok(())
    }

    pub(crate) fn write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        let range = self.range(addr, from.len() as u64)?;
        self.0.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }

    pub(crate) fn bytes(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(addr, &mut bytes).unwrap();
        bytes
    }
}

/// A queue in host memory.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    memory: Memory,
    bar: Rc<Bar>,
    addr: u64,
    entries: u32,
}

impl SqSlots for Ring {
    fn store(&self, slot: u32, sqe: &Sqe) {
        assert!(slot < self.entries);
        let bytes: Vec<u8> = sqe.to_words().iter().flat_map(|w| w.to_le_bytes()).collect();
        self.memory.write(self.addr + u64::from(slot) * 64, &bytes).unwrap();
    }

    fn load(&self, slot: u32) -> Sqe {
        assert!(slot < self.entries, "the controller reads beyond the ring");
        let bytes = self.memory.bytes(self.addr + u64::from(slot) * 64, 64);
        Sqe::from_words(std::array::from_fn(|n| {
            u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().unwrap())
        }))
    }
}

impl CqSlots for Ring {
    fn store(&self, slot: u32, cqe: &Cqe) {
        assert!(slot < self.entries, "the controller writes beyond the ring");
        self.bar.note_entry(self.addr, slot, self.entries);
        let bytes: Vec<u8> = cqe.to_words().iter().flat_map(|w| w.to_le_bytes()).collect();
        self.memory.write(self.addr + u64::from(slot) * 16, &bytes).unwrap();
    }

    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        let bytes = self.memory.bytes(self.addr + u64::from(slot) * 16, 16);
        let cqe = Cqe::from_words(std::array::from_fn(|n| {
            u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().unwrap())
        }));
        (cqe.phase() == phase).then_some(cqe)
    }

    fn is_new(&self, slot: u32, phase: bool) -> bool {
        CqSlots::load(self, slot, phase).is_some()
    }
}

/// Registers and doorbells.
#[derive(Debug)]
pub(crate) struct Bar {
    registers: RefCell<Vec<u32>>,
    doorbells: RefCell<Vec<[u32; 2]>>,
    /// Completion queues by address: identifier, and the slot after the last entry.
    cqs: RefCell<HashMap<u64, (QueueId, u32)>>,
    /// The controller has overwritten entries that the host had not consumed.
    pub(crate) overrun: Cell<bool>,
    /// Negative test: every head doorbell reads as if the host had consumed all entries.
    never_full: Cell<bool>,
    /// The host moves this queue's head right after the controller's next read of it.
    pub(crate) late_head: Cell<Option<(QueueId, u32)>>,
}

impl Bar {
    fn note_entry(&self, addr: u64, slot: u32, entries: u32) {
        if let Some((id, tail)) = self.cqs.borrow_mut().get_mut(&addr) {
            *tail = (slot + 1) % entries;
            if *tail == self.doorbells.borrow()[usize::from(id.0)][1] {
                self.overrun.set(true);
            }
        }
    }
}

impl Registers for Bar {
    fn read32(&self, offset: u32) -> u32 {
        self.registers.borrow()[offset as usize / 4]
    }

    fn write32(&self, offset: u32, value: u32) {
        self.registers.borrow_mut()[offset as usize / 4] = value;
    }
}

impl Doorbells for Bar {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.doorbells.borrow_mut()[usize::from(queue.0)][0] = tail;
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.doorbells.borrow_mut()[usize::from(queue.0)][1] = head;
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.doorbells.borrow()[usize::from(queue.0)][0]
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        if self.never_full.get() {
            return self
                .cqs
                .borrow()
                .values()
                .find(|(id, _)| *id == queue)
                .map_or(0, |&(_, tail)| tail);
        }
        let head = self.doorbells.borrow()[usize::from(queue.0)][1];
        if let Some((_, later)) = self.late_head.get().filter(|&(of, _)| of == queue) {
            self.late_head.set(None);
            self.ring_cq(queue, later);
        }
        head
    }
}

/// State shared by host and controller.
#[derive(Clone, Debug)]
pub(crate) struct TestPort {
    pub(crate) memory: Memory,
    pub(crate) bar: Rc<Bar>,
    pub(crate) masked: Rc<Cell<bool>>,
    /// Messages attempted, by vector.
    pub(crate) messages: Rc<RefCell<Vec<u64>>>,
    /// Vectors whose Pending bit was sent as a message, in order.
    pub(crate) pended: Rc<RefCell<Vec<Vector>>>,
    /// Bytes that the controller wrote to host memory outside queues.
    pub(crate) dma_written: Rc<Cell<u64>>,
    /// The shadow doorbell buffers, and the doorbells armed since this was last read.
    pub(crate) shadow: Rc<Cell<Option<ShadowBuffers>>>,
    pub(crate) awaited: Rc<RefCell<Vec<(QueueId, bool)>>>,
}

impl TestPort {
    pub(crate) fn new(bytes: usize) -> TestPort {
        let bar = Bar {
            registers: RefCell::new(vec![0; 1024]),
            doorbells: RefCell::new(vec![[0; 2]; 256]),
            cqs: RefCell::default(),
            overrun: Cell::new(false),
            never_full: Cell::new(false),
            late_head: Cell::default(),
        };
        TestPort {
            memory: Memory::new(bytes),
            bar: Rc::new(bar),
            masked: Rc::default(),
            messages: Rc::new(RefCell::new(vec![0; 256])),
            pended: Rc::default(),
            dma_written: Rc::default(),
            shadow: Rc::default(),
            awaited: Rc::default(),
        }
    }
}

impl Port for TestPort {
    type Sq = Ring;
    type Cq = Ring;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<Ring, BusError> {
        self.memory.range(addr, u64::from(entries) * 64)?;
        Ok(Ring { memory: self.memory.clone(), bar: self.bar.clone(), addr, entries })
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<Ring, BusError> {
        self.memory.range(addr, u64::from(entries) * 16)?;
        Ok(Ring { memory: self.memory.clone(), bar: self.bar.clone(), addr, entries })
    }

    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.memory.read(addr, into)
    }

    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.dma_written.set(self.dma_written.get() + from.len() as u64);
        self.memory.write(addr, from)
    }

    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.memory.range(addr, len).map(drop)
    }

    fn doorbells(&self) -> &impl Doorbells {
        &*self.bar
    }

    fn registers(&self) -> &impl Registers {
        &*self.bar
    }

    fn send_message(&self, vector: Vector) -> SendResult {
        self.messages.borrow_mut()[usize::from(vector.0)] += 1;
        if self.masked.get() { SendResult::Masked } else { SendResult::Sent }
    }

    fn is_masked(&self, _: Vector) -> bool {
        self.masked.get()
    }

    fn send_pending(&self, vector: Vector) -> SendResult {
        self.pended.borrow_mut().push(vector);
        SendResult::Sent
    }

    fn shadow_doorbells(&self, buffers: Option<ShadowBuffers>) -> Result<(), BusError> {
        for at in buffers.iter().flat_map(|buffers| [buffers.doorbells, buffers.events]) {
            self.memory.range(at, 4096)?;
        }
        self.shadow.set(buffers);
        Ok(())
    }

    fn arm_doorbell(&self, queue: QueueId, completion: bool) -> bool {
        self.awaited.borrow_mut().push((queue, completion));
        false
    }
}

/// Host side of a queue pair.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) id: QueueId,
    pub(crate) cq_id: QueueId,
    pub(crate) sq: Ring,
    pub(crate) cq: Ring,
    pub(crate) tail: RingIndex,
    pub(crate) head: RingIndex,
}

/// A host with a controller.
pub(crate) struct Host<P: Port> {
    pub(crate) device: Controller<P>,
    /// The host's port, without wrappers of the controller's.
    pub(crate) port: TestPort,
    pub(crate) now: Nanos,
    pub(crate) admin: Pair,
    next_page: u64,
    next_cid: u16,
    /// Completed Asynchronous Event Requests.
    pub(crate) events: Vec<Cqe>,
}

impl Host<TestPort> {
    pub(crate) fn new(config: Config, namespaces: Vec<NamespaceConfig>) -> Host<TestPort> {
        Host::with_port(config, namespaces, TestPort::new(16 << 20), |port| port)
    }
}

impl<P: Port> Host<P> {
    pub(crate) fn with_port(
        config: Config,
        namespaces: Vec<NamespaceConfig>,
        port: TestPort,
        wrap: impl FnOnce(TestPort) -> P,
    ) -> Host<P> {
        Host::of(port, |port| Controller::new(config, namespaces, wrap(port)))
    }

    /// A host whose controller is created by `make` on this port.
    pub(crate) fn of(port: TestPort, make: impl FnOnce(TestPort) -> Controller<P>) -> Host<P> {
        let device = make(port.clone());
        let mut pages = BASE;
        let admin = pair(&port, &mut pages, QueueId(0), QueueId(0), 32, 32);
        Host {
            device,
            port,
            now: Nanos(1_000),
            admin,
            next_page: pages,
            next_cid: 0,
            events: Vec::new(),
        }
    }

    pub(crate) fn csts(&self) -> Csts {
        Csts::from_bits(self.port.bar.read32(regs::CSTS))
    }

    pub(crate) fn set_cc(&mut self, cc: Cc) {
        self.port.bar.write32(regs::CC, cc.into_bits());
    }

    pub(crate) fn cc() -> Cc {
        Cc::new().with_en(true).with_iosqes(6).with_iocqes(4)
    }

    /// Steps at the current time until nothing happens.
    pub(crate) fn settle(&mut self) -> Step {
        for _ in 0..10_000 {
            let step = self.device.step(self.now);
            if !step.worked {
                return step;
            }
        }
        panic!("the controller never comes to rest");
    }

    /// Steps through the controller's events until this instant.
    pub(crate) fn run_until(&mut self, until: Nanos) {
        loop {
            let step = self.settle();
            match step.next.filter(|&next| next <= until) {
                Some(next) => {
                    assert!(
                        next > self.now,
                        "an event at {next} that a step at {} leaves undone",
                        self.now
                    );
                    self.now = next;
                }
                None => break,
            }
        }
        self.now = until;
        self.settle();
    }

    /// Enables the controller (Base 3.5.1), without waiting for CSTS.RDY.
    pub(crate) fn enable(&mut self) {
        let bar = self.port.bar.clone();
        (self.admin.tail, self.admin.head) =
            (RingIndex::new(self.admin.sq.entries), RingIndex::new(self.admin.cq.entries));
        // A driver clears the phase tags of queue memory that it reuses.
        clear(&self.admin.cq);
        bar.write32(regs::AQA, Aqa::of(self.admin.sq.entries, self.admin.cq.entries).into_bits());
        bar.write64(regs::ASQ, self.admin.sq.addr);
        bar.write64(regs::ACQ, self.admin.cq.addr);
        self.set_cc(Self::cc());
        self.settle();
    }

    /// Enables the controller and waits for CSTS.RDY.
    pub(crate) fn ready(mut self) -> Self {
        self.enable();
        assert!(self.csts().rdy() && !self.csts().cfs());
        self
    }

    /// Allocates `pages` pages of memory.
    pub(crate) fn page(&mut self, pages: u64) -> u64 {
        let at = self.next_page;
        self.next_page += pages * 4096;
        at
    }

    pub(crate) fn cid(&mut self) -> Cid {
        self.next_cid = (self.next_cid + 1) % 0x7fff;
        Cid(self.next_cid)
    }

    /// The last CID used.
    pub(crate) fn last_cid(&self) -> Cid {
        Cid(self.next_cid)
    }

    pub(crate) fn post(&self, pair: &mut Pair, mut sqe: Sqe, cid: Cid) {
        sqe.cid = cid.0;
        SqSlots::store(&pair.sq, pair.tail.slot(), &sqe);
        pair.tail.advance();
    }

    pub(crate) fn ring(&self, pair: &Pair) {
        self.port.bar.ring_sq(pair.id, pair.tail.slot());
    }

    /// Reaps at most `budget` entries and writes the head doorbell.
    pub(crate) fn reap(&self, pair: &mut Pair, budget: usize) -> Vec<Cqe> {
        reap(&self.port, pair, budget)
    }

    /// Executes an admin command. Event completions in the meantime are kept in `events`.
    pub(crate) fn admin(&mut self, sqe: Sqe) -> Cqe {
        let cid = self.post_admin(sqe);
        let mut answer = None;
        for _ in 0..3 {
            self.settle();
            for cqe in self.reap_admin() {
                if cqe.cid() == cid { answer = Some(cqe) } else { self.events.push(cqe) }
            }
            if let Some(cqe) = answer {
                return cqe;
            }
        }
        panic!("no answer to admin command {sqe:?}")
    }

    /// Submits an admin command without waiting.
    pub(crate) fn post_admin(&mut self, sqe: Sqe) -> Cid {
        let cid = self.cid();
        SqSlots::store(&self.admin.sq, self.admin.tail.slot(), &Sqe { cid: cid.0, ..sqe });
        self.admin.tail.advance();
        self.port.bar.ring_sq(QueueId::ADMIN, self.admin.tail.slot());
        cid
    }

    pub(crate) fn reap_admin(&mut self) -> Vec<Cqe> {
        let Host { port, admin, .. } = self;
        reap(port, admin, usize::MAX)
    }

    /// Creates an I/O queue pair with the vector of the same number.
    pub(crate) fn pair(&mut self, id: u16, entries: u32) -> Pair {
        self.pair_with(id, id, entries, entries, Some(Vector(id)))
    }

    /// Creates an I/O submission queue; its completion queue too if `vector` is given.
    pub(crate) fn pair_with(
        &mut self,
        sq: u16,
        cq: u16,
        sq_entries: u32,
        cq_entries: u32,
        vector: Option<Vector>,
    ) -> Pair {
        let pair =
            pair(&self.port, &mut self.next_page, QueueId(sq), QueueId(cq), sq_entries, cq_entries);
        let create = CreateCq {
            queue: QueueId(cq),
            entries: cq_entries,
            addr: pair.cq.addr,
            contiguous: true,
            vector,
        };
        assert!(self.admin(create.to_sqe()).status().is_success());
        self.attach_sq(&pair);
        pair
    }

    /// Creates a further submission queue for the completion queue of `of`.
    pub(crate) fn sharing(&mut self, sq: u16, of: &Pair, entries: u32) -> Pair {
        let mut pair = pair(&self.port, &mut self.next_page, QueueId(sq), of.cq_id, entries, 2);
        self.port.bar.cqs.borrow_mut().remove(&pair.cq.addr);
        pair.cq = of.cq.clone();
        self.attach_sq(&pair);
        pair
    }

    fn attach_sq(&mut self, pair: &Pair) {
        let create = CreateSq {
            queue: pair.id,
            entries: pair.sq.entries,
            addr: pair.sq.addr,
            contiguous: true,
            priority: 0,
            cq: pair.cq_id,
        };
        assert!(self.admin(create.to_sqe()).status().is_success());
    }
}

fn reap(port: &TestPort, pair: &mut Pair, budget: usize) -> Vec<Cqe> {
    let mut found = Vec::new();
    while found.len() < budget
        && let Some(cqe) = CqSlots::load(&pair.cq, pair.head.slot(), pair.head.phase())
    {
        pair.head.advance();
        found.push(cqe);
    }
    if !found.is_empty() {
        port.bar.ring_cq(pair.cq_id, pair.head.slot());
    }
    found
}

fn pair(
    port: &TestPort,
    pages: &mut u64,
    id: QueueId,
    cq_id: QueueId,
    sq_entries: u32,
    cq_entries: u32,
) -> Pair {
    let mut ring = |entries: u32, entry: u64| {
        let addr = *pages;
        *pages += (u64::from(entries) * entry).next_multiple_of(4096);
        Ring { memory: port.memory.clone(), bar: port.bar.clone(), addr, entries }
    };
    let (sq, cq) = (ring(sq_entries, 64), ring(cq_entries, 16));
    port.bar.cqs.borrow_mut().insert(cq.addr, (cq_id, 0));
    Pair { id, cq_id, sq, cq, tail: RingIndex::new(sq_entries), head: RingIndex::new(cq_entries) }
}

fn clear(ring: &Ring) {
    ring.memory.write(ring.addr, &vec![0; ring.entries as usize * 16]).unwrap();
}

/// PRPs to at most two pages.
pub(crate) fn short(addr: u64, len: u64) -> Dptr {
    Dptr::short(addr, len, PageSize::MIN).unwrap()
}

/// A Read of `blocks` blocks into `bytes` bytes at `addr`.
pub(crate) fn read(lba: u64, blocks: u32, addr: u64, bytes: u64) -> Sqe {
    nvme::io::read(Nsid(1), Lba(lba), blocks, short(addr, bytes), nvme::io::Flags::NONE)
}

/// The same for a Write.
pub(crate) fn write(lba: u64, blocks: u32, addr: u64, bytes: u64) -> Sqe {
    nvme::io::write(Nsid(1), Lba(lba), blocks, short(addr, bytes), nvme::io::Flags::NONE)
}

/// A sparse namespace in memory.
pub(crate) fn mem(bytes: u64, block: u32) -> NamespaceConfig {
    NamespaceConfig::mem(crate::Mem::new(bytes, crate::Budget::new(64 << 20)), block).unwrap()
}

/// Negative test: a port whose head doorbells read as if the host had consumed all entries.
pub(crate) fn never_full(port: TestPort) -> TestPort {
    port.bar.never_full.set(true);
    port
}

/// A pseudo-random generator with the same sequence on every machine.
pub(crate) fn random_below(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    move |below| random.next_u64() % below
}
