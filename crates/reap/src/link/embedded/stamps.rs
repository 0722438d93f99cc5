//! Stamps: what an embedded controller notes down of each command while a run is recorded.
//!
//! The notes travel in blocks, so that the device's thread allocates and locks once for thousands of commands. A
//! controller that nobody records is put together without any of this.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

use emu::{Begun, BusError, KnownTime, Message, Port};
use nvme::{Cid, Doorbells, QueueId, Registers, Sqe, Vector};
use units::{Nanos, Op};

/// Commands to a block.
const BLOCK: usize = 4096;

/// One command, as the controller that served it saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// What it did.
    pub op: Op,
    /// First byte in its namespace; 0 for a Flush.
    pub offset: u64,
    /// Bytes moved. A long request is several commands.
    pub bytes: u32,
    /// The controller's clock ([`crate::Instant::now`]) when it took the command from its queue.
    pub fetched: Nanos,
    /// How long it then waited for others: for the ceiling, the link, a channel.
    pub queued: Nanos,
    /// How long it took after that by the device's profile.
    pub service: Nanos,
    /// How much later than due its entry was posted: the device's own thread was busy with another command.
    pub late: Nanos,
}

/// Has an embedded controller stamp its commands, once [`Stamps::start`] was called. Goes into
/// [`EmbeddedOptions::stamps`](crate::EmbeddedOptions::stamps) of one device; clones are handles on the same one.
#[derive(Clone)]
pub struct Stamps {
    on: Arc<AtomicBool>,
    sender: mpsc::Sender<Vec<Stamp>>,
}

impl Stamps {
    /// A handle, and where the stamps arrive, in the order in which commands ended. The channel ends when the controller and
    /// all the handles are gone.
    pub fn new() -> (Stamps, mpsc::Receiver<Vec<Stamp>>) {
        let (sender, receiver) = mpsc::channel();
        (Stamps { on: Arc::default(), sender }, receiver)
    }

    /// Commands that are fetched from now on are stamped.
    pub fn start(&self) {
        self.on.store(true, Relaxed);
    }

    /// Has `port` stamp.
    pub(super) fn wrap<P: Port>(&self, port: P) -> Stamping<P> {
        let notes = Notes { stamps: self.clone(), block: Vec::with_capacity(BLOCK), open: HashMap::with_capacity(BLOCK) };
        Stamping { inner: port, notes: RefCell::new(notes) }
    }
}

impl fmt::Debug for Stamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamps").field("on", &self.on.load(Relaxed)).finish_non_exhaustive()
    }
}

/// A bus that notes down what passes.
pub(super) struct Stamping<P> {
    inner: P,
    notes: RefCell<Notes>,
}

struct Notes {
    stamps: Stamps,
    block: Vec<Stamp>,
    /// The commands in service.
    open: HashMap<(QueueId, Cid), Open>,
}

#[derive(Clone, Copy)]
struct Open {
    stamp: Stamp,
    due: Nanos,
}

impl Notes {
    fn begun(&mut self, begun: &Begun) {
        let &Begun { queue, cid, op, offset, bytes, fetched, begins, due } = begun;
        let stamp = Stamp { op, offset, bytes, fetched, queued: begins - fetched, service: due - begins, late: Nanos::ZERO };
        self.open.insert((queue, cid), Open { stamp, due });
    }

    fn ended(&mut self, queue: QueueId, cid: Cid, now: Nanos) {
        let Some(open) = self.open.remove(&(queue, cid)) else { return };
        self.block.push(Stamp { late: now - open.due, ..open.stamp });
        if self.block.len() == BLOCK {
            self.send(Vec::with_capacity(BLOCK));
        }
    }

    fn send(&mut self, next: Vec<Stamp>) {
        // Nobody listens any more only if the recording has failed, which the listener has said.
        _ = self.stamps.sender.send(std::mem::replace(&mut self.block, next));
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.send(Vec::new());
    }
}

impl<P: Port> Port for Stamping<P> {
    type Sq = P::Sq;
    type Cq = P::Cq;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<P::Sq, BusError> {
        self.inner.map_sq(addr, entries)
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<P::Cq, BusError> {
        self.inner.map_cq(addr, entries)
    }

    #[inline]
    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.inner.dma_read(addr, into)
    }

    #[inline]
    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.inner.dma_write(addr, from)
    }

    #[inline]
    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.inner.check(addr, len)
    }

    #[inline]
    fn doorbells(&self) -> &impl Doorbells {
        self.inner.doorbells()
    }

    #[inline]
    fn registers(&self) -> &impl Registers {
        self.inner.registers()
    }

    fn message(&self, vector: Vector) -> Message {
        self.inner.message(vector)
    }

    fn is_masked(&self, vector: Vector) -> bool {
        self.inner.is_masked(vector)
    }

    fn send_pending(&self, vector: Vector) -> Message {
        self.inner.send_pending(vector)
    }

    fn clear_pending(&self, vector: Vector) {
        self.inner.clear_pending(vector);
    }

    fn service_time(&self, queue: QueueId, command: &Sqe) -> Option<KnownTime> {
        self.inner.service_time(queue, command)
    }

    fn begun(&self, command: &Begun) {
        let mut notes = self.notes.borrow_mut();
        if notes.stamps.on.load(Relaxed) {
            notes.begun(command);
        }
    }

    fn ended(&self, queue: QueueId, cid: Cid, now: Nanos) {
        self.notes.borrow_mut().ended(queue, cid, now);
    }
}

#[cfg(test)]
mod tests;
