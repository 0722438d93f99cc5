//! Adapter between a fabric connection and the controller, which expects rings and bus addresses.
//!
//! A received command is appended to a queue that the controller reads as a ring; its data are in a
//! heap buffer, and the PRPs of the command are rewritten to addresses that this module resolves to
//! that buffer.
//!
//! ```text
//!   CapsuleCmd ─► post() ─► Ring ─► controller: fetch, dma_read / dma_write at synthetic addresses
//!   CapsuleResp, C2HData ◄─ take_posted() ◄─ completion queue entry + buffer
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use hw::Bar;
use nvme::fabrics::{Direction, direction_of};
use nvme::prp::Dptr;
use nvme::regs::{self, Cc};
use nvme::sgl::Descriptor;
use nvme::{CqSlots, Cqe, Doorbells, QueueId, Registers, SqSlots, Sqe, Vector};

use crate::{BusError, Port, SendResult};

/// Base of the synthetic addresses of rings; each queue has its own range above.
const RINGS: u64 = 1 << 61;
/// Address bit of a PRP list, whose entries are computed when the controller reads them.
const LIST: u64 = 1 << 62;
/// log2 of a buffer's address range in bytes, larger than any transfer. Buffer `key` is at (`key` +
/// 1) << this.
const BUFFER_LOG2: u32 = 30;

/// State that an association's server shares with its controller's port.
pub(super) struct FabricHost {
    pub(super) bar: Bar,
    rings: RefCell<Vec<Option<Rc<Ring>>>>,
    buffers: RefCell<HashMap<u32, Buffer>>,
    /// Posted entries that the server has not sent yet.
    posted: RefCell<VecDeque<Cqe>>,
}

/// A submission queue: received commands that the controller has not fetched. It grows on demand: a
/// ring of 1,024 entries would take 64 KiB for an idle connection.
struct Ring {
    commands: RefCell<VecDeque<Sqe>>,
    tail: Cell<u32>,
    entries: u32,
}

/// Data buffer of a command.
struct Buffer {
    bytes: Vec<u8>,
    /// The data go to the host.
    to_host: bool,
    /// Bytes that the controller has written, from the start of the buffer.
    written: usize,
}

/// Key of a command's buffer, unique within the association.
fn key(queue: QueueId, cid: u16) -> u32 {
    u32::from(queue.0) << 16 | u32::from(cid)
}

impl FabricHost {
    /// Creates the state for a controller with this many I/O queues.
    pub(super) fn new(queues: u16) -> FabricHost {
        FabricHost {
            bar: Bar::new(queues + 1),
            rings: RefCell::new((0..=queues).map(|_| None).collect()),
            buffers: RefCell::default(),
            posted: RefCell::default(),
        }
    }

    /// Synthetic address of a queue's ring.
    pub(super) fn ring_at(queue: QueueId) -> u64 {
        RINGS | u64::from(queue.0) << 16
    }

    /// Appends a command to a queue. Returns false if there is no such queue.
    pub(super) fn post(&self, queue: QueueId, mut sqe: Sqe, data: Vec<u8>) -> bool {
        let rings = self.rings.borrow();
        let Some(Some(ring)) = rings.get(usize::from(queue.0)) else { return false };
        // A CID is unique among a queue's outstanding commands, so the pair identifies the buffer.
        let key = key(queue, sqe.cid);
        let (addr, len) = ((u64::from(key) + 1) << BUFFER_LOG2, data.len() as u64);
        let dptr = if queue == QueueId::ADMIN {
            // Admin commands use PRPs on PCIe, and the controller does not check their lengths: the
            // SGL of the capsule is replaced.
            sqe.flags &= !Sqe::PSDT_SGL;
            let page = 4096 << Cc::from_bits(self.bar.read32(regs::CC)).mps();
            // PRP2 is the second page of two, or a list of more (Base 4.3.1).
            let second = if len > 2 * page { LIST | addr } else { addr + page };
            Dptr { prp1: if len > 0 { addr } else { 0 }, prp2: if len > page { second } else { 0 } }
        } else {
            // Linux always sends a full page for Dataset Management; only the ranges in use are
            // data.
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
        // The tail is moved after the command was queued: the controller fetches up to the tail.
        self.bar.ring_sq(queue, ring.tail.get());
        true
    }

    /// Removes the next posted entry, with the data that the controller has written for its
    /// command.
    pub(super) fn take_posted(&self) -> Option<(QueueId, Cqe, Vec<u8>)> {
        let cqe = self.posted.borrow_mut().pop_front()?;
        let mut buffers = self.buffers.borrow_mut();
        let buffer = buffers.remove(&key(QueueId(cqe.sq_id), cqe.cid));
        if buffers.is_empty() {
            // Capacity that a burst has needed is released.
            buffers.shrink_to(64);
            self.posted.borrow_mut().shrink_to(64);
        }
        drop(buffers);
        let mut data = Vec::new();
        if let Some(buffer) = buffer.filter(|buffer| buffer.to_host) {
            data = buffer.bytes;
            // An I/O command returns its whole buffer; an admin command may return less.
            if cqe.sq_id == QueueId::ADMIN.0 {
                data.truncate(buffer.written);
            }
        }
        Some((QueueId(cqe.sq_id), cqe, data))
    }

    /// Drops the commands of one queue, or of all.
    pub(super) fn forget(&self, queue: Option<QueueId>) {
        let other = |of: u16| queue.is_some_and(|queue| queue.0 != of);
        self.buffers.borrow_mut().retain(|key, _| other((key >> 16) as u16));
        self.posted.borrow_mut().retain(|cqe| other(cqe.sq_id));
    }

    /// Resolves a synthetic address to the buffer it lies in.
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

/// The controller's [`Port`] on a fabric.
#[derive(Clone)]
pub(super) struct FabricPort(pub(super) Rc<FabricHost>);

/// A submission queue.
pub(super) struct FabricSq(Rc<Ring>);

/// A completion queue: an entry that is stored is handed to the server, and counts as consumed at
/// once.
pub(super) struct FabricCq {
    host: Rc<FabricHost>,
    queue: QueueId,
    entries: u32,
}

impl SqSlots for FabricSq {
    /// Not used: commands are appended by [`FabricHost::post`].
    fn store(&self, _: u32, _: &Sqe) {}

    /// Removes the next command. The controller loads each slot once, in order.
    fn load(&self, _: u32) -> Sqe {
        let mut commands = self.0.commands.borrow_mut();
        let sqe = commands.pop_front().unwrap_or_default();
        if commands.is_empty() {
            // Capacity that a burst has needed is released, because connections are often idle.
            commands.shrink_to(64);
        }
        sqe
    }
}

impl CqSlots for FabricCq {
    fn store(&self, slot: u32, cqe: &Cqe) {
        self.host.posted.borrow_mut().push_back(*cqe);
        // The server takes every entry, so the controller must never see a full completion queue.
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
        // PRP1 is the first page of the buffer, so list entry n is page n + 1.
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

    fn send_message(&self, _: Vector) -> SendResult {
        SendResult::Sent
    }

    fn is_masked(&self, _: Vector) -> bool {
        false
    }
}
