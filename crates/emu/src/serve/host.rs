//! The host of a controller that is served over vfio-user: guest memory that the client has shared,
//! registers written by messages or through a mapping, and interrupts by eventfd.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use hw::{Bar, DoorbellFile, EventFd, GuestMemory, Rights};
use nvme::regs;
use nvme::{CqSlots, Cqe, Doorbells, QueueId, Registers, SqSlots, Sqe, Vector};

use super::connection::ClientConnection;
use super::shadow::Shadow;
use crate::{BusError, Port, SendResult, ShadowBuffers};

/// CAP.DSTRD 0: doorbells are 4 bytes apart, so that all of them fit in one page (Doorbell Buffer
/// Config).
pub(super) const STRIDE: u8 = 0;

const READ: Rights = Rights { read: true, write: false };
const WRITE: Rights = Rights { read: false, write: true };

/// Entry loaded from a queue whose memory is unmapped: an opcode of no command set. No host sees
/// the entry's completion: the controller fails (CSTS.CFS) first.
const NO_COMMAND: u64 = 0x7f;

/// State that the controller and the PCI function share.
pub(super) struct Host {
    pub(super) memory: RefCell<GuestMemory>,
    bar: Bar,
    /// The doorbell registers, if the client may map them; otherwise they are in `bar`.
    mapped: RefCell<Option<DoorbellFile>>,
    vectors: RefCell<Box<[MsixVector]>>,
    /// Doorbell buffers in guest memory, if Doorbell Buffer Config is active.
    shadow: RefCell<Option<Shadow>>,
    /// Connection for DMA_READ and DMA_WRITE messages, for memory that came without a file
    /// descriptor.
    connection: RefCell<Option<Rc<ClientConnection>>>,
    /// The memory of a queue has become inaccessible.
    queue_lost: Cell<bool>,
}

/// One MSI-X vector.
#[derive(Default)]
struct MsixVector {
    /// Eventfd of the vector; `None` is treated as masked.
    eventfd: Option<EventFd>,
    pending: bool,
}

impl Host {
    /// A host without memory and interrupts, for a controller of this many I/O queues and vectors.
    pub(super) fn new(queues: u16, vectors: u16) -> Host {
        let vectors = (0..vectors).map(|_| MsixVector::default()).collect();
        Host {
            memory: RefCell::default(),
            bar: Bar::new(queues + 1),
            mapped: RefCell::default(),
            vectors: RefCell::new(vectors),
            shadow: RefCell::default(),
            connection: RefCell::default(),
            queue_lost: Cell::new(false),
        }
    }

    /// Sets or removes the eventfd of a vector. Returns false if there is no such vector.
    pub(super) fn set_vector(&self, vector: u32, eventfd: Option<EventFd>) -> bool {
        let mut vectors = self.vectors.borrow_mut();
        let line = vectors.get_mut(vector as usize);
        line.map(|line| line.eventfd = eventfd).is_some()
    }

    /// Signals a vector without the controller, for SET_IRQS with DATA_NONE or DATA_BOOL, by which
    /// a client tests its interrupts.
    pub(super) fn test_vector(&self, vector: u32) {
        if let Some(eventfd) =
            self.vectors.borrow().get(vector as usize).and_then(|line| line.eventfd.as_ref())
        {
            eventfd.signal();
        }
    }

    /// The Pending Bit Array, from vector 0, eight bits to a byte.
    pub(super) fn pending_bits(&self) -> Vec<u8> {
        let byte = |lines: &[MsixVector]| {
            lines.iter().enumerate().fold(0, |byte, (n, line)| byte | u8::from(line.pending) << n)
        };
        self.vectors.borrow().chunks(8).map(byte).collect()
    }

    /// Removes memory and interrupts when the client has disconnected.
    pub(super) fn forget(&self) {
        self.memory.borrow_mut().clear();
        self.connection.take();
        self.vectors.borrow_mut().fill_with(MsixVector::default);
        self.queue_lost.set(false);
    }

    /// Sets the connection of a new client, for access to its memory by messages.
    pub(super) fn set_connection(&self, connection: &Rc<ClientConnection>) {
        self.connection.replace(Some(connection.clone()));
    }

    /// Runs `what` on the connection. Returns false if there is none.
    fn ask(&self, what: impl FnOnce(&ClientConnection) -> bool) -> bool {
        self.connection.borrow().as_deref().is_some_and(what)
    }

    /// Whether a queue's memory has become inaccessible; clears the flag.
    pub(super) fn take_queue_lost(&self) -> bool {
        self.queue_lost.take()
    }

    /// Whether the client writes doorbells to memory.
    pub(super) fn has_shadow(&self) -> bool {
        self.shadow.borrow().is_some()
    }

    /// Value of a doorbell, from the shadow buffer or the register.
    fn doorbell(&self, queue: QueueId, completion: bool) -> u32 {
        let shadow = self.shadow.borrow();
        let in_memory = shadow
            .as_ref()
            .and_then(|shadow| shadow.value(&self.memory.borrow(), queue, completion));
        let value = in_memory.and_then(|value| self.note_lost(value)).flatten();
        value.unwrap_or_else(|| self.register(queue, completion))
    }

    /// Value of a doorbell register.
    #[inline]
    fn register(&self, queue: QueueId, completion: bool) -> u32 {
        match &*self.mapped.borrow() {
            Some(mapped) => mapped.load(offset(queue, completion)),
            None if completion => self.bar.cq_head(queue),
            None => self.bar.sq_tail(queue),
        }
    }

    /// Reads a register for a client's message.
    pub(super) fn read32(&self, offset: u32) -> u32 {
        match &*self.mapped.borrow() {
            Some(mapped) if offset >= regs::DOORBELLS => mapped.load(offset),
            _ => self.bar.read32(offset),
        }
    }

    /// Writes a register for a client's message.
    pub(super) fn write32(&self, offset: u32, value: u32) {
        match &*self.mapped.borrow() {
            Some(mapped) if offset >= regs::DOORBELLS => mapped.store(offset, value),
            _ => self.bar.write32(offset, value),
        }
    }

    /// Allocates a new doorbell file for the client to map. `bytes`: size of BAR 0. The previous
    /// client may still write to the old file, which is no longer read.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn new_doorbell_file(&self, bytes: u32) -> io::Result<()> {
        let fresh = DoorbellFile::new(bytes.into())?;
        self.mapped.replace(Some(fresh));
        Ok(())
    }

    /// Duplicates the descriptor of the doorbell file, for a client to map.
    ///
    /// # Errors
    /// No file descriptor is free.
    pub(super) fn doorbell_fd(&self) -> io::Result<Option<OwnedFd>> {
        self.mapped.borrow().as_ref().map(|file| file.as_fd().try_clone_to_owned()).transpose()
    }

    /// Sets a doorbell's initial value when its queue is created.
    fn set_doorbell(&self, queue: QueueId, completion: bool, value: u32) {
        match &*self.mapped.borrow() {
            Some(mapped) => mapped.store(offset(queue, completion), value),
            None if completion => self.bar.ring_cq(queue, value),
            None => self.bar.ring_sq(queue, value),
        }
        if let Some(shadow) = &*self.shadow.borrow() {
            self.note_lost(shadow.set(&self.memory.borrow(), queue, completion, value));
        }
    }

    /// Records that a queue's memory is lost, if an access to it has failed.
    fn note_lost<T>(&self, done: Result<T, BusError>) -> Option<T> {
        done.inspect_err(|_| self.queue_lost.set(true)).ok()
    }
}

/// The controller's [`Port`] over vfio-user.
#[derive(Clone)]
pub(super) struct GuestPort(pub(super) Rc<Host>);

/// A submission queue in guest memory. Its address is resolved for each entry, as the client may
/// map its pages separately and unmap them at any time.
pub(super) struct GuestSq {
    host: Rc<Host>,
    addr: u64,
}

/// A completion queue in guest memory.
pub(super) struct GuestCq {
    host: Rc<Host>,
    addr: u64,
}

impl SqSlots for GuestSq {
    fn store(&self, slot: u32, sqe: &Sqe) {
        let bytes: Vec<u8> = sqe.to_words().iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.host.note_lost(self.host.memory.borrow().write(
            self.addr + (u64::from(slot) << Sqe::SIZE_LOG2),
            &bytes,
            // Queues must be in mapped memory: no access by messages.
            |_, _| false,
        ));
    }

    fn load(&self, slot: u32) -> Sqe {
        let words = self.host.memory.borrow().load(self.addr + (u64::from(slot) << Sqe::SIZE_LOG2));
        Sqe::from_words(self.host.note_lost(words).unwrap_or([NO_COMMAND, 0, 0, 0, 0, 0, 0, 0]))
    }
}

impl CqSlots for GuestCq {
    fn store(&self, slot: u32, cqe: &Cqe) {
        self.host.note_lost(
            self.host
                .memory
                .borrow()
                .store(self.addr + (u64::from(slot) << Cqe::SIZE_LOG2), cqe.to_words()),
        );
    }

    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        let words =
            self.host.memory.borrow().load(self.addr + (u64::from(slot) << Cqe::SIZE_LOG2)).ok()?;
        let cqe = Cqe::from_words(words);
        (cqe.phase() == phase).then_some(cqe)
    }

    fn is_new(&self, slot: u32, phase: bool) -> bool {
        self.load(slot, phase).is_some()
    }
}

impl Port for GuestPort {
    type Sq = GuestSq;
    type Cq = GuestCq;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<GuestSq, BusError> {
        self.check_queue(addr, u64::from(entries) << Sqe::SIZE_LOG2, READ)?;
        Ok(GuestSq { host: self.0.clone(), addr })
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<GuestCq, BusError> {
        self.check_queue(addr, u64::from(entries) << Cqe::SIZE_LOG2, WRITE)?;
        Ok(GuestCq { host: self.0.clone(), addr })
    }

    #[inline]
    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.0
            .memory
            .borrow()
            .read(addr, into, |at, piece| self.0.ask(|client| client.read(at, piece)))
    }

    #[inline]
    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.0
            .memory
            .borrow()
            .write(addr, from, |at, piece| self.0.ask(|client| client.write(at, piece)))
    }

    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.0.memory.borrow().check(addr, len, READ, || self.0.ask(ClientConnection::answers))
    }

    #[inline]
    fn doorbells(&self) -> &impl Doorbells {
        &*self.0
    }

    #[inline]
    fn registers(&self) -> &impl Registers {
        &self.0.bar
    }

    fn send_message(&self, vector: Vector) -> SendResult {
        let mut vectors = self.0.vectors.borrow_mut();
        let Some(line) = vectors.get_mut(usize::from(vector.0)) else { return SendResult::Lost };
        match &line.eventfd {
            Some(eventfd) => {
                eventfd.signal();
                SendResult::Sent
            }
            None => {
                line.pending = true;
                SendResult::Masked
            }
        }
    }

    fn is_masked(&self, vector: Vector) -> bool {
        self.0.vectors.borrow().get(usize::from(vector.0)).is_none_or(|line| line.eventfd.is_none())
    }

    fn send_pending(&self, vector: Vector) -> SendResult {
        self.clear_pending(vector);
        self.send_message(vector)
    }

    fn shadow_doorbells(&self, buffers: Option<ShadowBuffers>) -> Result<(), BusError> {
        let Host { memory, bar, shadow, .. } = &*self.0;
        let register = |queue, completion| self.0.register(queue, completion);
        let made = buffers
            .map(|buffers| Shadow::new(buffers, &memory.borrow(), bar.doorbells(), register))
            .transpose()?;
        shadow.replace(made);
        Ok(())
    }

    fn arm_doorbell(&self, queue: QueueId, completion: bool) -> bool {
        let shadow = self.0.shadow.borrow();
        let armed = shadow.as_ref().map(|shadow| {
            shadow.arm(
                &self.0.memory.borrow(),
                queue,
                completion,
                self.0.register(queue, completion),
            )
        });
        // If the buffer is unmapped, report that the doorbell has moved: the step that follows
        // fails the controller.
        armed.is_some_and(|armed| self.0.note_lost(armed).unwrap_or(true))
    }

    fn clear_pending(&self, vector: Vector) {
        if let Some(line) = self.0.vectors.borrow_mut().get_mut(usize::from(vector.0)) {
            line.pending = false;
        }
    }
}

/// The doorbells as the controller reads them. The controller calls `ring_sq` and `ring_cq` only to
/// set the initial values of a new queue.
impl Doorbells for Host {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.set_doorbell(queue, false, tail);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.set_doorbell(queue, true, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.doorbell(queue, false)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.doorbell(queue, true)
    }
}

impl GuestPort {
    /// Checks that a queue is word aligned and its memory accessible with these rights.
    fn check_queue(&self, addr: u64, len: u64, rights: Rights) -> Result<(), BusError> {
        if !addr.is_multiple_of(8) {
            return Err(BusError { addr, len });
        }
        // Queues must be in mapped memory: no access by messages.
        self.0.memory.borrow().check(addr, len, rights, || false)
    }
}

/// Offset of a doorbell register.
fn offset(queue: QueueId, completion: bool) -> u32 {
    regs::DOORBELLS + ((2 * u32::from(queue.0) + u32::from(completion)) << (2 + STRIDE))
}
