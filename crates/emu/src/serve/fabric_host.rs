//! The host of a controller on a fabric, as the controller sees it: rings, registers and data that
//! the server keeps for it.
//!
//! A controller reads commands from rings, and data at addresses. A connection has neither: a
//! command that has come is put into a ring of the server's, its data into a buffer, and the
//! address in the command leads there.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use hw::Bar;
use nvme::fabrics::{Direction, direction_of};
use nvme::prp::Dptr;
use nvme::regs::{self, Cc};
use nvme::sgl::Descriptor;
use nvme::{CqSlots, Cqe, Doorbells, QueueId, Registers, SqSlots, Sqe, Vector};

use crate::{BusError, Message, Port};

/// Where rings are: each queue has a place of its own from here on.
const RINGS: u64 = 1 << 61;
/// Set in the address of a PRP list, which is made up while it is read.
const LIST: u64 = 1 << 62;
/// A buffer is at its key, and one, in units of this: more than any command has.
const BUFFER_LOG2: u32 = 30;

/// What an association's server, and its controller's port, share.
pub(super) struct FabricHost {
    pub(super) bar: Bar,
    rings: RefCell<Vec<Option<Rc<Ring>>>>,
    buffers: RefCell<HashMap<u32, Buffer>>,
    /// Entries that have been posted, and not been taken.
    posted: RefCell<VecDeque<Cqe>>,
}

/// A submission queue: commands that have come and were not fetched. A ring of 1,024 entries would
/// take 64 KiB of an idle connection.
struct Ring {
    commands: RefCell<VecDeque<Sqe>>,
    tail: Cell<u32>,
    entries: u32,
}

/// Data of a command.
struct Buffer {
    bytes: Vec<u8>,
    /// They go to the host.
    to_host: bool,
    /// Bytes that the controller has written, from the first on.
    written: usize,
}

/// Tells a command from all others of its association.
fn key(queue: QueueId, cid: u16) -> u32 {
    u32::from(queue.0) << 16 | u32::from(cid)
}

impl FabricHost {
    /// One of a controller with this many I/O queues.
    pub(super) fn new(queues: u16) -> FabricHost {
        FabricHost {
            bar: Bar::new(queues + 1),
            rings: RefCell::new((0..=queues).map(|_| None).collect()),
            buffers: RefCell::default(),
            posted: RefCell::default(),
        }
    }

    /// Where the rings of a queue are.
    pub(super) fn ring_at(queue: QueueId) -> u64 {
        RINGS | u64::from(queue.0) << 16
    }

    /// Puts a command into its queue. False: there is no such queue.
    pub(super) fn post(&self, queue: QueueId, mut sqe: Sqe, data: Vec<u8>) -> bool {
        let rings = self.rings.borrow();
        let Some(Some(ring)) = rings.get(usize::from(queue.0)) else { return false };
        let key = key(queue, sqe.cid);
        let (addr, len) = ((u64::from(key) + 1) << BUFFER_LOG2, data.len() as u64);
        let dptr = if queue == QueueId::ADMIN {
            // Admin commands have PRPs on a bus, and the controller judges none of it by length.
            sqe.flags &= !Sqe::PSDT_SGL;
            let page = 4096 << Cc::from_bits(self.bar.read32(regs::CC)).mps();
            let second = if len > 2 * page { LIST | addr } else { addr + page };
            Dptr { prp1: if len > 0 { addr } else { 0 }, prp2: if len > page { second } else { 0 } }
        } else {
            // Linux gives a list of ranges room for as many as there may be.
            let ranges = nvme::io::DatasetManagement::from_sqe(&sqe).bytes() as u64;
            let most =
                if sqe.opcode == nvme::opcode::io::DATASET_MANAGEMENT { ranges } else { len };
            Descriptor::data_block(addr, len.min(most) as u32).dptr()
        };
        (sqe.prp1, sqe.prp2) = (dptr.prp1, dptr.prp2);
        if len > 0 {
            let to_host = direction_of(&sqe) == Direction::ToHost;
            self.buffers.borrow_mut().insert(key, Buffer { bytes: data, to_host, written: 0 });
        }
        ring.commands.borrow_mut().push_back(sqe);
        ring.tail.set((ring.tail.get() + 1) % ring.entries);
        self.bar.ring_sq(queue, ring.tail.get());
        true
    }

    /// The next entry that has been posted, with the data that the controller has written for its
    /// command.
    pub(super) fn take_posted(&self) -> Option<(QueueId, Cqe, Vec<u8>)> {
        let cqe = self.posted.borrow_mut().pop_front()?;
        let mut buffers = self.buffers.borrow_mut();
        let buffer = buffers.remove(&key(QueueId(cqe.sq_id), cqe.cid));
        if buffers.is_empty() {
            // What a burst took is given back.
            buffers.shrink_to(64);
            self.posted.borrow_mut().shrink_to(64);
        }
        drop(buffers);
        let mut data = Vec::new();
        if let Some(buffer) = buffer.filter(|buffer| buffer.to_host) {
            data = buffer.bytes;
            // An I/O command has as many as its buffer, an admin command maybe fewer.
            if cqe.sq_id == QueueId::ADMIN.0 {
                data.truncate(buffer.written);
            }
        }
        Some((QueueId(cqe.sq_id), cqe, data))
    }

    /// The commands of a queue, or of all, are gone.
    pub(super) fn forget(&self, queue: Option<QueueId>) {
        let other = |of: u16| queue.is_some_and(|queue| queue.0 != of);
        self.buffers.borrow_mut().retain(|key, _| other((key >> 16) as u16));
        self.posted.borrow_mut().retain(|cqe| other(cqe.sq_id));
    }

    /// Finds the bytes at an address in the buffer that is there.
    fn reach<T>(
        &self,
        addr: u64,
        len: usize,
        with: impl FnOnce(&mut Buffer, usize) -> Option<T>,
    ) -> Result<T, BusError> {
        let error = BusError { addr, len: len as u64 };
        let key = u32::try_from((addr >> BUFFER_LOG2).wrapping_sub(1)).map_err(|_| error)?;
        let offset = (addr & ((1 << BUFFER_LOG2) - 1)) as usize;
        let mut buffers = self.buffers.borrow_mut();
        let buffer = buffers.get_mut(&key).filter(|buffer| offset + len <= buffer.bytes.len());
        buffer.and_then(|buffer| with(buffer, offset)).ok_or(error)
    }
}

/// A controller's way to its host.
#[derive(Clone)]
pub(super) struct FabricPort(pub(super) Rc<FabricHost>);

/// A submission queue.
pub(super) struct FabricSq(Rc<Ring>);

/// A completion queue: what is stored there goes to the host, and is consumed at once.
pub(super) struct FabricCq {
    host: Rc<FabricHost>,
    queue: QueueId,
    entries: u32,
}

impl SqSlots for FabricSq {
    /// The server posts commands by [`FabricHost::post`].
    fn store(&self, _: u32, _: &Sqe) {}

    /// The controller fetches each command once, in the order in which they came.
    fn load(&self, _: u32) -> Sqe {
        let mut commands = self.0.commands.borrow_mut();
        let sqe = commands.pop_front().unwrap_or_default();
        if commands.is_empty() {
            commands.shrink_to(64);
        }
        sqe
    }
}

impl CqSlots for FabricCq {
    fn store(&self, slot: u32, cqe: &Cqe) {
        self.host.posted.borrow_mut().push_back(*cqe);
        self.host.bar.ring_cq(self.queue, (slot + 1) % self.entries);
    }

    fn load(&self, _: u32, _: bool) -> Option<Cqe> {
        None
    }

    fn is_new(&self, _: u32, _: bool) -> bool {
        false
    }
}

impl Port for FabricPort {
    type Sq = FabricSq;
    type Cq = FabricCq;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<FabricSq, BusError> {
        let ring = Rc::new(Ring { commands: RefCell::default(), tail: Cell::new(0), entries });
        let mut rings = self.0.rings.borrow_mut();
        let place = rings
            .get_mut(((addr & !RINGS) >> 16) as usize)
            .ok_or(BusError { addr, len: entries.into() })?;
        *place = Some(ring.clone());
        Ok(FabricSq(ring))
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<FabricCq, BusError> {
        Ok(FabricCq {
            host: self.0.clone(),
            queue: QueueId(((addr & !RINGS) >> 16) as u16),
            entries,
        })
    }

    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        if addr & LIST == 0 {
            return self.0.reach(addr, into.len(), |buffer, at| {
                into.copy_from_slice(buffer.bytes.get(at..at + into.len())?);
                Some(())
            });
        }
        // Entry n is the page after n + 1 others of the buffer.
        let page = 4096u64 << Cc::from_bits(self.0.bar.read32(regs::CC)).mps();
        let base = addr & !LIST & !((1 << BUFFER_LOG2) - 1);
        for (n, entry) in (addr % (1 << BUFFER_LOG2) / 8..).zip(into.chunks_mut(8)) {
            let bytes = (base + (n + 1) * page).to_le_bytes();
            entry.copy_from_slice(bytes.get(..entry.len()).unwrap_or_default());
        }
        Ok(())
    }

    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.0.reach(addr, from.len(), |buffer, at| {
            buffer.bytes.get_mut(at..at + from.len())?.copy_from_slice(from);
            buffer.written = buffer.written.max(at + from.len());
            Some(())
        })
    }

    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.0.reach(addr, len as usize, |_, _| Some(()))
    }

    fn doorbells(&self) -> &impl Doorbells {
        &self.0.bar
    }

    fn registers(&self) -> &impl Registers {
        &self.0.bar
    }

    fn message(&self, _: Vector) -> Message {
        Message::Sent
    }

    fn is_masked(&self, _: Vector) -> bool {
        false
    }
}
