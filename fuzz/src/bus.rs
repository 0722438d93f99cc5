//! The host's memory, rings, registers and doorbells, as a controller reaches them; and a host in a
//! few lines.

use std::cell::RefCell;
use std::rc::Rc;

use emu::{BusError, Config, Controller, NamespaceConfig, Port, SendResult, Step};
use nvme::admin::{CreateCq, CreateSq};
use nvme::prp::Dptr;
use nvme::regs::{self, Aqa, Cc};
use nvme::{CqSlots, Cqe, Doorbells, Lba, Nsid, QueueId, Registers, SqSlots, Sqe, Vector};
use units::Nanos;

/// Where the host's memory begins.
pub const BASE: u64 = 0x4000_0000;
/// Doorbells that there are; a host rings others in vain.
const QUEUES: usize = 256;

#[derive(Clone)]
pub struct Bus(Rc<Shared>);

struct Shared {
    memory: RefCell<Vec<u8>>,
    registers: RefCell<Vec<u32>>,
    doorbells: RefCell<Vec<[u32; 2]>>,
}

impl Bus {
    pub fn new(bytes: usize) -> Bus {
        Bus(Rc::new(Shared {
            memory: RefCell::new(vec![0; bytes]),
            registers: RefCell::new(vec![0; 1024]),
            doorbells: RefCell::new(vec![[0; 2]; QUEUES]),
        }))
    }

    fn range(&self, addr: u64, len: u64) -> Result<std::ops::Range<usize>, BusError> {
        let error = BusError { addr, len };
        let start = addr.checked_sub(BASE).ok_or(error)?;
        let end = start
            .checked_add(len)
            .filter(|&end| end <= self.0.memory.borrow().len() as u64)
            .ok_or(error)?;
        Ok(start as usize..end as usize)
    }

    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        let range = self.range(addr, into.len() as u64)?;
        into.copy_from_slice(&self.0.memory.borrow()[range]);
        Ok(())
    }

    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        let range = self.range(addr, from.len() as u64)?;
        self.0.memory.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }

    fn words<const N: usize>(&self, addr: u64) -> [u64; N] {
        std::array::from_fn(|n| {
            let mut word = [0; 8];
            self.read(addr + n as u64 * 8, &mut word)
                .expect("a ring was checked when it was mapped");
            u64::from_le_bytes(word)
        })
    }

    fn set_words(&self, addr: u64, words: &[u64]) {
        for (n, word) in words.iter().enumerate() {
            self.write(addr + n as u64 * 8, &word.to_le_bytes())
                .expect("a ring was checked when it was mapped");
        }
    }

    fn bell(&self, queue: QueueId, side: usize) -> u32 {
        self.0.doorbells.borrow().get(usize::from(queue.0)).map_or(0, |doorbells| doorbells[side])
    }

    fn set_bell(&self, queue: QueueId, side: usize, value: u32) {
        if let Some(doorbells) = self.0.doorbells.borrow_mut().get_mut(usize::from(queue.0)) {
            doorbells[side] = value;
        }
    }
}

/// A ring in the host's memory.
#[derive(Clone)]
pub struct Ring {
    bus: Bus,
    addr: u64,
    entries: u32,
}

impl Ring {
    /// Of `entries` of so many bytes.
    pub fn at(bus: &Bus, addr: u64, entries: u32, entry: u64) -> Result<Ring, BusError> {
        bus.range(addr, u64::from(entries) * entry)?;
        Ok(Ring { bus: bus.clone(), addr, entries })
    }
}

impl SqSlots for Ring {
    fn store(&self, slot: u32, sqe: &Sqe) {
        assert!(slot < self.entries, "beyond the submission queue");
        self.bus.set_words(self.addr + u64::from(slot) * 64, &sqe.to_words());
    }

    fn load(&self, slot: u32) -> Sqe {
        assert!(slot < self.entries, "beyond the submission queue");
        Sqe::from_words(self.bus.words(self.addr + u64::from(slot) * 64))
    }
}

impl CqSlots for Ring {
    fn store(&self, slot: u32, cqe: &Cqe) {
        assert!(slot < self.entries, "beyond the completion queue");
        self.bus.set_words(self.addr + u64::from(slot) * 16, &cqe.to_words());
    }

    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        assert!(slot < self.entries, "beyond the completion queue");
        let words: [u64; 2] = self.bus.words(self.addr + u64::from(slot) * 16);
        (Cqe::phase_of(words[1]) == phase).then(|| Cqe::from_words(words))
    }

    fn is_new(&self, slot: u32, phase: bool) -> bool {
        CqSlots::load(self, slot, phase).is_some()
    }
}

impl Registers for Bus {
    fn read32(&self, offset: u32) -> u32 {
        self.0.registers.borrow()[offset as usize / 4]
    }

    fn write32(&self, offset: u32, value: u32) {
        self.0.registers.borrow_mut()[offset as usize / 4] = value;
    }
}

impl Doorbells for Bus {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.set_bell(queue, 0, tail);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.set_bell(queue, 1, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.bell(queue, 0)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.bell(queue, 1)
    }
}

impl Port for Bus {
    type Sq = Ring;
    type Cq = Ring;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<Ring, BusError> {
        Ring::at(self, addr, entries, 64)
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<Ring, BusError> {
        Ring::at(self, addr, entries, 16)
    }

    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.read(addr, into)
    }

    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.write(addr, from)
    }

    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.range(addr, len).map(drop)
    }

    fn doorbells(&self) -> &impl Doorbells {
        self
    }

    fn registers(&self) -> &impl Registers {
        self
    }

    fn send_message(&self, _: Vector) -> SendResult {
        SendResult::Sent
    }

    fn is_masked(&self, _: Vector) -> bool {
        false
    }
}

/// A host that knows how to bring a controller up, and one I/O queue pair.
pub struct Host {
    pub controller: Controller<Bus>,
    pub bus: Bus,
    pub now: Nanos,
    /// Tails of the admin queue and of queue 1.
    tails: [u32; 2],
}

/// Entries of the admin queues.
const ADMIN: u32 = 16;
/// Where the rings lie: submission and completion queue of the admin queue and of queue 1. Behind
/// them is memory for data.
const RINGS: [[u64; 2]; 2] = [[BASE, BASE + 0x1000], [BASE + 0x2000, BASE + 0x3000]];
pub const DATA: u64 = BASE + 0x4000;

impl Host {
    pub fn new(config: Config, namespaces: Vec<NamespaceConfig>, bus: Bus) -> Host {
        Host {
            controller: Controller::new(config, namespaces, bus.clone()),
            bus,
            now: Nanos(1_000),
            tails: [0; 2],
        }
    }

    /// Enables the controller.
    pub fn enable(&mut self) {
        self.bus.write32(regs::AQA, Aqa::of(ADMIN, ADMIN).into_bits());
        self.bus.write64(regs::ASQ, RINGS[0][0]);
        self.bus.write64(regs::ACQ, RINGS[0][1]);
        self.bus
            .write32(regs::CC, Cc::new().with_en(true).with_iosqes(6).with_iocqes(4).into_bits());
        self.run(4);
    }

    /// Makes queue pair 1, of at most 64 entries.
    pub fn create_queue(&mut self, entries: u32) {
        let (queue, vector) = (QueueId(1), Some(Vector(1)));
        let cq = CreateCq { queue, entries, addr: RINGS[1][1], contiguous: true, vector };
        let sq = CreateSq {
            queue,
            entries,
            addr: RINGS[1][0],
            contiguous: true,
            priority: 0,
            cq: queue,
        };
        self.post(0, ADMIN, cq.to_sqe());
        self.run(4);
        self.post(0, ADMIN, sq.to_sqe());
        self.run(4);
    }

    fn post(&mut self, queue: usize, entries: u32, sqe: Sqe) {
        let ring = Ring { bus: self.bus.clone(), addr: RINGS[queue][0], entries };
        SqSlots::store(&ring, self.tails[queue], &Sqe { cid: self.tails[queue] as u16, ..sqe });
        self.tails[queue] = (self.tails[queue] + 1) % entries;
        self.bus.ring_sq(QueueId(queue as u16), self.tails[queue]);
    }

    /// Stores 64 bytes of any kind in the next slot of the admin queue or of queue 1, and announces
    /// them or not.
    pub fn post_words(&mut self, queue: usize, words: [u64; 8], announced: bool) {
        self.bus.set_words(RINGS[queue][0] + u64::from(self.tails[queue]) * 64, &words);
        self.tails[queue] = (self.tails[queue] + 1) % ADMIN;
        if announced {
            self.bus.ring_sq(QueueId(queue as u16), self.tails[queue]);
        }
    }

    /// Posts a Read of a block. Queue 1 has 16 entries, and nothing is reaped.
    pub fn read(&mut self, lba: u64) {
        let dptr = Dptr { prp1: DATA, prp2: 0 };
        self.post(1, 16, nvme::io::read(Nsid(1), Lba(lba), 1, dptr, nvme::io::Flags::NONE));
    }

    /// Posts a Flush.
    pub fn flush(&mut self) {
        self.post(1, 16, nvme::io::flush(Nsid(1)));
    }

    /// Steps at most so often, and lets time pass as the controller says.
    pub fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            let Step { worked, next } = self.controller.step(self.now);
            match next {
                Some(next) if !worked => self.now = self.now.max(next),
                None if !worked => return,
                _ => {}
            }
        }
    }
}
