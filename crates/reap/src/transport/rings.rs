//! A controller reached through rings in memory that both sides share: its registers and doorbells, its vectors.
//!
//! | question | file |
//! | --- | --- |
//! | where are commands posted and completions found? | `ring_pair.rs` |
//! | where are the lists of long transfers? | `prp_table.rs` |
//! | when do answers to its properties come? | `properties.rs` |
//!
//! The controller is the embedded one (`embedded.rs`), one on the bus (`pci.rs`), or another process's (`vfio_user.rs`). The driver above cannot tell them
//! apart.

mod properties;
mod prp_table;
mod ring_pair;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use completion::Mode;
use driver::{Exclusive, Inventory, QueuePair, QueueSizes};
use hw::vfio::{PciDevice, PciRegisters};
use hw::{CqRing, DmaPool, EventFd, Memory, PoolOptions, Region, RegisterError, RingMemory, SqRing, Vectors};
use nvme::{Doorbells, Nsid, QueueId, Vector};
use units::Nanos;

use super::embedded::{self, EmbeddedHandle, EmbeddedOptions, HostResources, SubsystemMember};
use super::registers::{BusRegisters, ControllerRegisters};
use super::vfio_user::{Reconnect, RemoteController, ServerEvent};
use super::{Mask, Messages, TransportFacts, next_number};
use crate::error::OpenError;
use crate::mode::ModeNote;
use crate::uri::DeviceUri;
pub(crate) use prp_table::PrpTable;

use properties::HostProperties;
pub(crate) use ring_pair::{RingPair, RingPosting};

/// Most bytes of one command, whatever its buffer's offset: what a list of the PRP table describes.
pub(crate) const MAX_TRANSFER: u32 = PrpTable::MAX_BYTES;

/// Memory that controllers reach, and the PRP lists of its buffers: of one controller, or of all the paths of a device.
#[derive(Clone)]
pub(crate) struct DmaContext {
    pub pool: DmaPool,
    lists: Arc<PrpTable>,
}

impl DmaContext {
    /// Memory of `bytes` for buffers and rings.
    ///
    /// # Errors
    /// The system has no such range of addresses.
    pub(crate) fn new(bytes: u64) -> Result<DmaContext, OpenError> {
        DmaContext::of(&PoolOptions::default(), bytes)
    }

    /// The same of memory that is of some kind.
    ///
    /// # Errors
    /// The system has no such range of addresses, or does not pin what the lists take.
    pub(crate) fn of(options: &PoolOptions, bytes: u64) -> Result<DmaContext, OpenError> {
        let pool = options.open(bytes).map_err(|source| OpenError::System { what: "buffer pool", source })?;
        let lists = PrpTable::new(&pool).map_err(|error| OpenError::no_memory(error, bytes, 0))?;
        Ok(DmaContext { pool, lists: Arc::new(lists) })
    }
}

/// A controller within reach: its memory, its registers and doorbells, its vectors. Fields are dropped in this order: nothing of it
/// reaches memory when that goes.
pub(crate) struct RingController {
    registers: ControllerRegisters,
    properties: HostProperties,
    endpoint: Endpoint,
    vectors: Arc<Vectors>,
    facts: TransportFacts,
    dma: DmaContext,
    /// SGLs are used where the controller has them.
    wants_sgls: bool,
    /// It has them.
    sgls: AtomicBool,
    number: u32,
    notes: Vec<String>,
    /// Namespaces whose Write Zeroes takes the Deallocate bit.
    deac_namespaces: Mutex<Vec<Nsid>>,
}

/// The controller's end.
enum Endpoint {
    /// In this process.
    Embedded(Box<EmbeddedHandle>),
    /// On the bus, or as good as.
    Bus(BusController),
}

/// A controller on the bus or in another process, and what its host has for it.
pub(super) struct BusResources {
    pub controller: BusController,
    pub registers: PciRegisters,
    /// Its vectors, whose messages signal already.
    pub vectors: Vectors,
    pub dma: DmaContext,
    /// SGLs are to be used where the controller has them.
    pub wants_sgls: bool,
    /// What is otherwise than was asked for.
    pub notes: Vec<String>,
    /// Doorbells are kept in memory, if the controller offers to read them there.
    pub shadow: bool,
}

impl RingController {
    /// Builds the controller that `uri` describes and sets it going. Where it is one of several paths, it is a
    /// `member` of a subsystem.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn embedded(
        uri: &DeviceUri,
        options: &EmbeddedOptions,
        dma: DmaContext,
        member: Option<SubsystemMember<'_>>,
    ) -> Result<RingController, OpenError> {
        let mask = if uri.masks { Mask::Bit } else { Mask::Unread };
        let vectors = hw::vectors(uri.vectors, uri.masks).map_err(|source| OpenError::System { what: "vectors", source })?;
        let vectors = Arc::new(vectors);
        let messages = if vectors.are_counted() { Messages::Exact } else { Messages::Unknown };
        let facts = TransportFacts { mask, messages };
        let (registers, end) = embedded::attach(uri, options, HostResources { pool: &dma.pool, vectors: &vectors }, member)?;
        let registers = ControllerRegisters::Embedded(registers);
        let properties = HostProperties::new(registers.clone(), uri.late_properties.then_some(uri.seed));
        let (endpoint, number, notes) = (Endpoint::Embedded(Box::new(end)), next_number(), Vec::new());
        let (wants_sgls, sgls, deac_namespaces) = (true, AtomicBool::default(), Mutex::default());
        Ok(RingController { registers, properties, endpoint, vectors, facts, dma, wants_sgls, sgls, number, notes, deac_namespaces })
    }

    /// A controller on the bus, or in another process. VFIO leaves its vectors' masks to the kernel, so that nothing holds messages back.
    ///
    /// # Errors
    /// The pool has no room for the doorbells.
    pub(super) fn on_bus(bus: BusResources, pool_bytes: u64) -> Result<RingController, OpenError> {
        let BusResources { controller, registers, vectors, dma, wants_sgls, notes, shadow } = bus;
        let pages = shadow.then(|| dma.pool.alloc_doorbells(registers.stride())).transpose();
        let pages = pages.map_err(|error| OpenError::no_memory(error, pool_bytes, 0))?;
        let messages = if vectors.are_counted() { Messages::Exact } else { Messages::Unknown };
        let facts = TransportFacts { mask: Mask::Unread, messages };
        let registers = ControllerRegisters::Bus(Arc::new(BusRegisters::new(registers, pages)));
        let properties = HostProperties::on_bus(registers.clone(), controller.clone());
        let (endpoint, vectors, number) = (Endpoint::Bus(controller), Arc::new(vectors), next_number());
        let (sgls, deac_namespaces) = (AtomicBool::default(), Mutex::default());
        Ok(RingController { registers, properties, endpoint, vectors, facts, dma, wants_sgls, sgls, number, notes, deac_namespaces })
    }

    /// Bus addresses of doorbells in memory and of their EventIdx, where they can be kept.
    pub(crate) fn doorbell_pages(&self) -> Option<(u64, u64)> {
        self.registers.shadow().map(|shadow| shadow.words().addrs())
    }

    /// Whether the controller reads them, from here on. No I/O queue is in use meanwhile.
    pub(crate) fn keep_doorbells(&self, kept: bool) {
        self.registers.shadow().into_iter().for_each(|shadow| shadow.keep(kept));
    }

    /// The controller has stopped, and has forgotten them.
    pub(crate) fn forget_doorbells(&self) {
        if let Some(shadow) = self.registers.shadow() {
            shadow.keep(false);
            shadow.words().clear();
        }
    }

    /// The controller may still write there: nobody else may ever have that memory.
    pub(crate) fn leak_doorbells(&self) {
        self.registers.shadow().into_iter().for_each(|shadow| std::mem::forget(shadow.words().clone()));
    }

    /// Registers of I/O queues that were written while doorbells were kept in memory. `None`: they are not.
    pub(crate) fn doorbells_rung(&self) -> Option<u64> {
        self.registers.shadow().filter(|shadow| shadow.is_kept() || shadow.rung() > 0).map(|shadow| shadow.rung())
    }

    /// What a mode comes to on it, where that is something else than its name says.
    pub(crate) fn mode_note(&self, mode: Mode) -> Option<ModeNote> {
        (self.is_on_bus() && mode.facts().posted).then_some(ModeNote::Signals(mode))
    }

    /// What was found when it was opened.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What its bring-up has found, the first or one after a reset. No I/O queue is in use meanwhile.
    pub(crate) fn learn(&self, inventory: &Inventory) {
        self.keep_doorbells(inventory.doorbells_kept);
        self.sgls.store(self.wants_sgls && inventory.limits.is_some_and(|limits| limits.sgls), Relaxed);
        let deac_namespaces = inventory.namespaces.iter().filter(|ns| ns.frees_zeroes).map(|ns| ns.nsid).collect();
        *self.deac_namespaces.lock().unwrap_or_else(PoisonError::into_inner) = deac_namespaces;
    }

    /// Whether data that would need a PRP list are named by an SGL descriptor.
    #[inline]
    pub(crate) fn sgls(&self) -> bool {
        self.sgls.load(Relaxed)
    }

    /// Whether a Write Zeroes to this namespace may ask to deallocate.
    pub(super) fn frees_zeroes(&self, nsid: Nsid) -> bool {
        self.deac_namespaces.lock().unwrap_or_else(PoisonError::into_inner).contains(&nsid)
    }

    /// The PRP lists of every buffer of the pool.
    pub(crate) fn prp_table(&self) -> Arc<PrpTable> {
        self.dma.lists.clone()
    }

    /// Memory of the caller's that the controller can reach from now on.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub(crate) fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        prp_table::register(&self.dma.pool, memory)
    }

    /// The controller does not answer: from now on it cannot reach the host's memory. False: nothing can keep it from that.
    pub(crate) fn cut_off(&self) -> bool {
        self.end().is_some_and(EmbeddedHandle::cut_off)
    }

    /// The controller has stopped, and forgotten what it was to do.
    pub(crate) fn let_in(&self) {
        self.end().into_iter().for_each(EmbeddedHandle::let_in);
    }

    /// A number that no other transport of the process has.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The buffer pool that the controller reaches.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        &self.dma.pool
    }

    /// The controller's end, where it is in this process.
    pub(crate) fn end(&self) -> Option<&EmbeddedHandle> {
        match &self.endpoint {
            Endpoint::Embedded(end) => Some(end),
            Endpoint::Bus(_) => None,
        }
    }

    /// What has happened to the way to it since this was asked last.
    pub(crate) fn news(&self) -> Option<ServerEvent> {
        match &self.endpoint {
            Endpoint::Bus(BusController::VfioUser(remote)) => remote.news(),
            _ => None,
        }
    }

    /// The controller is lost, and nothing is sent to it. If its server is gone it is looked for again and again from now on. At `quiet_at` the
    /// controller has come to rest, whatever has become of its server.
    pub(crate) fn look_for_it(&self, quiet_at: Nanos) {
        if let (Endpoint::Bus(BusController::VfioUser(remote)), ControllerRegisters::Bus(registers)) = (&self.endpoint, &self.registers)
            && remote.is_over()
        {
            let (remote, registers, vectors) = (remote.clone(), registers.clone(), self.vectors.clone());
            Reconnect { remote, registers, vectors, quiet_at }.begin();
        }
    }

    /// What it can do, and what not.
    pub(crate) fn facts(&self) -> TransportFacts {
        self.facts
    }

    /// Whether it is on the bus, or as good as: another process's.
    pub(crate) fn is_on_bus(&self) -> bool {
        matches!(self.endpoint, Endpoint::Bus(_))
    }

    /// From now on the notification of `home` stands for messages of `vector`; `None`: they signal its own eventfd. Arming and a look
    /// follow: one that is on its way may go the old one, or none. False: they go where they went.
    pub(crate) fn route(&self, vector: Vector, home: Option<Vector>) -> bool {
        let controller = match &self.endpoint {
            Endpoint::Embedded(_) => {
                self.vectors.route(vector.0, home.map(|home| home.0));
                return true;
            }
            Endpoint::Bus(controller) => controller,
        };
        let to = |to: Vector| self.vectors.signal(to.0).map_or(Ok(()), |signal| controller.signal_from(vector, to, signal));
        let moved = to(home.unwrap_or(vector));
        let Err(error) = moved else { return true };
        tracing::warn!(%error, vector = vector.0, ?home, "a vector's messages do not go to another eventfd");
        // It may have let go of the old one by then.
        if let Err(error) = to(vector) {
            tracing::error!(%error, vector = vector.0, "a vector's messages do not go to their own eventfd");
        }
        false
    }

    /// Whether a hardware queue is to have a second pair, which does not notify: where notifications cannot be masked.
    pub(crate) fn has_poll_queues(&self) -> bool {
        self.facts.mask == Mask::Unread
    }

    /// The vector of the n-th of `queues` I/O queues, and whether it is that queue's alone.
    /// Vector 0 is the admin queue's, and shared only if there is no other.
    pub(crate) fn vector_of(&self, n: usize, queues: usize) -> (Vector, bool) {
        match usize::from(self.vectors.len()).saturating_sub(1) {
            0 => (Vector(0), false),
            io => (Vector((1 + n % io) as u16), n < io && n + io >= queues),
        }
    }

    /// What a vector's messages signal; `None`: there is no such vector.
    pub(crate) fn eventfd(&self, vector: Vector) -> Option<&EventFd> {
        self.vectors.signal(vector.0)
    }

    /// Allows the messages of a vector.
    #[inline]
    pub(crate) fn arm(&self, vector: Vector) {
        self.registers.unmask(&self.vectors, vector);
    }

    /// Doorbells, for the host.
    #[inline]
    pub(crate) fn doorbells(&self) -> &impl Doorbells {
        &self.registers
    }

    /// Properties, for the thread that looks after the controller.
    pub(crate) fn properties(&self) -> &HostProperties {
        &self.properties
    }

    /// Messages of one vector so far, as the host's eventfd has counted them.
    pub(crate) fn messages(&self, vector: Vector) -> u64 {
        self.vectors.messages(vector.0)
    }

    /// Notifications that came of messages, and were signalled by this vector's eventfd.
    pub(crate) fn notifications(&self, vector: Vector) -> u64 {
        self.vectors.notifications(vector.0)
    }
}

impl Drop for RingController {
    fn drop(&mut self) {
        match &self.endpoint {
            Endpoint::Embedded(end) => end.detach(),
            Endpoint::Bus(BusController::Pci(_)) => {}
            Endpoint::Bus(BusController::VfioUser(remote)) => remote.close(),
        }
    }
}

/// A controller that is not in this process.
#[derive(Clone)]
pub(in crate::transport) enum BusController {
    /// On the bus. It is reset when it is closed.
    Pci(Arc<PciDevice>),
    /// In another process, which hears of the end when it is closed.
    VfioUser(Arc<RemoteController>),
}

impl BusController {
    /// Messages of `vector` signal `signal`, the eventfd of `home`, from now on.
    fn signal_from(&self, vector: Vector, home: Vector, signal: &EventFd) -> std::io::Result<()> {
        match self {
            BusController::Pci(device) => device.signal_from(vector, signal),
            BusController::VfioUser(remote) => remote.signal_from(vector, home, signal).map_err(std::io::Error::other),
        }
    }

    /// As [`driver::Properties::reset_function`].
    fn reset_function(&self) -> bool {
        let done = match self {
            BusController::Pci(device) => device.reset().map_err(|error| error.to_string()),
            BusController::VfioUser(remote) => remote.reset().map_err(|error| error.to_string()),
        };
        match &done {
            Ok(()) => tracing::warn!("the controller did not stop, and its function was reset"),
            Err(error) => tracing::warn!(error, "the controller does not stop, and its function cannot be reset"),
        }
        done.is_ok()
    }
}

/// A queue pair over rings in the transport's pool.
pub(crate) type Pair = QueuePair<SqRing, CqRing>;

/// A queue pair that no thread posts to or reaps.
pub(crate) type HeldPair<'a> = Exclusive<'a, SqRing, CqRing>;

/// Ring memory of a queue pair. The controller may use it for as long as this lives.
pub(crate) struct Rings {
    sq: Arc<RingMemory>,
    cq: Arc<RingMemory>,
}

impl Rings {
    /// Memory for rings of these sizes.
    ///
    /// # Errors
    /// The pool has no room for them.
    pub(crate) fn new(controller: &RingController, sizes: QueueSizes) -> Result<Rings, hw::AllocError> {
        let sq = controller.pool().alloc_ring((sizes.sq_entries as usize) << nvme::Sqe::SIZE_LOG2)?;
        let cq = controller.pool().alloc_ring((sizes.cq_entries as usize) << nvme::Cqe::SIZE_LOG2)?;
        Ok(Rings { sq, cq })
    }

    /// Bus addresses of submission and completion queue.
    pub(crate) fn addrs(&self) -> (u64, u64) {
        (self.sq.addr(), self.cq.addr())
    }

    /// The queue pair over this memory. `None` only if the sizes are not those it was made for.
    pub(crate) fn pair(&self, controller: &RingController, id: QueueId, sizes: QueueSizes) -> Option<Pair> {
        let sq = controller.pool().sq(self.sq.addr(), sizes.sq_entries)?;
        let cq = controller.pool().cq(self.cq.addr(), sizes.cq_entries)?;
        QueuePair::new(id, sizes, sq, cq).ok()
    }
}
