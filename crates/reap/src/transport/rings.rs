//! A controller whose rings are in memory that it shares with the host: the embedded controller
//! (`embedded.rs`), a PCI drive (`pci.rs`), a vfio-user server (`vfio_user.rs`), or an NVMe/TCP
//! target, whose rings are private (`tcp.rs`). The driver above cannot tell them apart.
//!
//! ```text
//!            host memory (DmaContext)                       controller
//!   ┌───────────────────────────────────────────┐
//!   │ SQ ring, CQ ring, buffers, PRP table      │  ◄─DMA─►  embedded │ PCI │ vfio-user
//!   └───────────────────────────────────────────┘
//!      registers, doorbells ─────────────────────────────►  BAR0 (memory or messages)
//!      eventfd per vector   ◄─────────────────────────────  MSI-X message
//! ```
//!
//! DMA ownership: rings and the PRP table belong to the controller until it has stopped (CSTS.RDY =
//! 0) or is gone for good; a buffer belongs to it from the post of its command until its
//! completion. Memory that a controller might still write to is leaked, never reused.
//!
//! | question | file |
//! | --- | --- |
//! | where are commands posted and completions reaped? | `ring_pair.rs` |
//! | where are the PRP lists of long transfers? | `prp_table.rs` |
//! | how are controller properties (registers) read and written? | `properties.rs` |

mod properties;
mod prp_table;
mod ring_pair;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use completion::Mode;
use driver::{Exclusive, Inventory, QueuePair, QueueSizes};
use hw::vfio::{PciDevice, PciRegisters};
use hw::{
    CqRing, DmaPool, EventFd, Memory, PoolOptions, Region, RegisterError, RingMemory, SqRing,
    Vectors,
};
use nvme::{Doorbells, Nsid, QueueId, Vector};
use units::Nanos;

use super::embedded::{self, EmbeddedHandle, EmbeddedOptions, HostResources, SubsystemMember};
use super::registers::{BusRegisters, ControllerRegisters};
use super::tcp::TcpController;
use super::vfio_user::{Reconnect, RemoteController, ServerEvent};
use super::{Mask, Messages, TransportFacts, next_number};
use crate::error::OpenError;
use crate::mode::ModeNote;
use crate::uri::DeviceUri;
pub(crate) use prp_table::PrpTable;

use properties::HostProperties;
pub(crate) use ring_pair::{RingPair, RingPosting};

/// The maximum number of bytes of one command, whatever its buffer's offset within a page: what one
/// list of the PRP table describes.
pub(crate) const MAX_TRANSFER: u32 = PrpTable::MAX_BYTES;

/// A pool of DMA memory and the PRP lists of its buffers. One controller's, or shared by all paths
/// of a multipath device.
#[derive(Clone)]
pub(crate) struct DmaContext {
    pub pool: DmaPool,
    lists: Arc<PrpTable>,
}

impl DmaContext {
    /// A pool of `bytes` bytes, of ordinary memory.
    ///
    /// # Errors
    /// The system has no such range of addresses.
    pub(crate) fn new(bytes: u64) -> Result<DmaContext, OpenError> {
        DmaContext::of(&PoolOptions::default(), bytes)
    }

    /// A pool of `bytes` bytes with these options (backing, pinning, address range).
    ///
    /// # Errors
    /// The system has no such range of addresses, or cannot pin the memory of the PRP table.
    pub(crate) fn of(options: &PoolOptions, bytes: u64) -> Result<DmaContext, OpenError> {
        let pool = options
            .open(bytes)
            .map_err(|source| OpenError::System { what: "buffer pool", source })?;
        let lists = PrpTable::new(&pool).map_err(|error| OpenError::from_alloc(error, bytes, 0))?;
        Ok(DmaContext { pool, lists: Arc::new(lists) })
    }
}

/// An open controller: its registers, properties, vectors and memory. Fields are dropped in this
/// order: the endpoint must be detached before the memory goes.
pub(crate) struct RingController {
    registers: ControllerRegisters,
    properties: HostProperties,
    endpoint: Endpoint,
    vectors: Arc<Vectors>,
    facts: TransportFacts,
    dma: DmaContext,
    /// The URI allows SGLs (`sgl=`).
    wants_sgls: bool,
    /// SGLs are allowed and the controller supports them. Set by every bring-up.
    sgls: AtomicBool,
    number: u32,
    notes: Vec<String>,
    /// Namespaces whose Write Zeroes supports the Deallocate bit (DLFEAT bit 3).
    deac_namespaces: Mutex<Vec<Nsid>>,
}

/// Where the controller is.
enum Endpoint {
    /// In this process.
    Embedded(Box<EmbeddedHandle>),
    /// A PCI function, a vfio-user server, or a target over NVMe/TCP.
    Bus(BusController),
}

/// What [`RingController::on_bus`] puts together.
pub(super) struct BusResources {
    pub controller: BusController,
    pub registers: PciRegisters,
    /// Its vectors; their messages signal eventfds already.
    pub vectors: Vectors,
    pub dma: DmaContext,
    /// The URI allows SGLs.
    pub wants_sgls: bool,
    /// Notes for the user about what differs from what was asked for.
    pub notes: Vec<String>,
    /// Set memory aside for shadow doorbells.
    pub shadow: bool,
}

impl RingController {
    /// Creates the embedded controller that `uri` describes and hands it to the device thread.
    /// `member`: it is one of the controllers of a subsystem.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn embedded(
        uri: &DeviceUri,
        options: &EmbeddedOptions,
        dma: DmaContext,
        member: Option<SubsystemMember<'_>>,
    ) -> Result<RingController, OpenError> {
        // `masks=no` makes the embedded controller behave as a drive does under VFIO.
        let mask = if uri.masks { Mask::Bit } else { Mask::Unread };
        let vectors = hw::vectors(uri.vectors, uri.masks)
            .map_err(|source| OpenError::System { what: "vectors", source })?;
        let vectors = Arc::new(vectors);
        // Not every kernel shows the count of an eventfd in /proc/self/fdinfo.
        let messages = if vectors.are_counted() { Messages::Exact } else { Messages::Unknown };
        let facts = TransportFacts { mask, messages };
        let (registers, end) = embedded::attach(
            uri,
            options,
            HostResources { pool: &dma.pool, vectors: &vectors },
            member,
        )?;
        let registers = ControllerRegisters::Embedded(registers);
        let properties =
            HostProperties::new(registers.clone(), uri.late_properties.then_some(uri.seed));
        let (endpoint, number, notes) =
            (Endpoint::Embedded(Box::new(end)), next_number(), Vec::new());
        // Wanted always: the embedded controller reports SGLS only with `sgl=yes`.
        let (wants_sgls, sgls, deac_namespaces) = (true, AtomicBool::default(), Mutex::default());
        Ok(RingController {
            registers,
            properties,
            endpoint,
            vectors,
            facts,
            dma,
            wants_sgls,
            sgls,
            number,
            notes,
            deac_namespaces,
        })
    }

    /// A PCI function or a vfio-user server. VFIO leaves the vectors' mask bits to the kernel, so
    /// interrupts cannot be masked.
    ///
    /// # Errors
    /// The pool has no room for the doorbells.
    pub(super) fn on_bus(bus: BusResources, pool_bytes: u64) -> Result<RingController, OpenError> {
        let BusResources { controller, registers, vectors, dma, wants_sgls, notes, shadow } = bus;
        // Allocated before the controller is known to offer them, because bring-up sends their
        // address.
        let pages = shadow.then(|| dma.pool.alloc_doorbells(registers.stride())).transpose();
        let pages = pages.map_err(|error| OpenError::from_alloc(error, pool_bytes, 0))?;
        let messages = if vectors.are_counted() { Messages::Exact } else { Messages::Unknown };
        let facts = TransportFacts { mask: Mask::Unread, messages };
        let registers = ControllerRegisters::Bus(Arc::new(BusRegisters::new(registers, pages)));
        let properties = HostProperties::on_bus(registers.clone(), controller.clone());
        let (endpoint, vectors, number) =
            (Endpoint::Bus(controller), Arc::new(vectors), next_number());
        let (sgls, deac_namespaces) = (AtomicBool::default(), Mutex::default());
        Ok(RingController {
            registers,
            properties,
            endpoint,
            vectors,
            facts,
            dma,
            wants_sgls,
            sgls,
            number,
            notes,
            deac_namespaces,
        })
    }

    /// A controller over NVMe/TCP. `vectors`: that of the admin queue, and one for each I/O queue,
    /// whose interrupt is its socket.
    pub(super) fn over_tcp(
        tcp: Arc<TcpController>,
        vectors: Arc<Vectors>,
        dma: DmaContext,
        notes: Vec<String>,
    ) -> RingController {
        let facts = TransportFacts { mask: Mask::Unread, messages: Messages::Unknown };
        let (registers, controller) =
            (ControllerRegisters::Tcp(tcp.clone()), BusController::Tcp(tcp));
        let properties = HostProperties::on_bus(registers.clone(), controller.clone());
        let (endpoint, number, wants_sgls) = (Endpoint::Bus(controller), next_number(), true);
        let (sgls, deac_namespaces) = (AtomicBool::default(), Mutex::default());
        RingController {
            registers,
            properties,
            endpoint,
            vectors,
            facts,
            dma,
            wants_sgls,
            sgls,
            number,
            notes,
            deac_namespaces,
        }
    }

    /// The connections, if it is a controller over NVMe/TCP.
    pub(crate) fn tcp(&self) -> Option<&TcpController> {
        match &self.registers {
            ControllerRegisters::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// The maximum number of I/O queues that the transport allows.
    pub(crate) fn max_queues(&self) -> usize {
        self.tcp().map_or(usize::MAX, TcpController::queues)
    }

    /// Bus addresses of the shadow doorbell and EventIdx pages, if there are any (PRP 1 and PRP 2
    /// of Doorbell Buffer Config).
    pub(crate) fn doorbell_pages(&self) -> Option<(u64, u64)> {
        self.registers.shadow().map(|shadow| shadow.words().addrs())
    }

    /// Starts or stops writing shadow doorbells. Only while no I/O queue is in use: a queue that
    /// rang one kind of doorbell must not go on with the other.
    pub(crate) fn keep_doorbells(&self, kept: bool) {
        self.registers.shadow().into_iter().for_each(|shadow| shadow.set_enabled(kept));
    }

    /// After a reset the controller no longer reads shadow doorbells (Base §5.2.5): stop writing
    /// them, and zero the pages for the next bring-up.
    pub(crate) fn forget_doorbells(&self) {
        if let Some(shadow) = self.registers.shadow() {
            // In this order: once nothing is written there, the pages can be cleared.
            shadow.set_enabled(false);
            shadow.words().clear();
        }
    }

    /// Leaks the shadow doorbell pages: a controller that could not be stopped may still write
    /// EventIdx there.
    pub(crate) fn leak_doorbells(&self) {
        self.registers
            .shadow()
            .into_iter()
            .for_each(|shadow| std::mem::forget(shadow.words().clone()));
    }

    /// Doorbell registers that were written although shadow doorbells were in use. `None`: shadow
    /// doorbells are not used.
    pub(crate) fn doorbells_rung(&self) -> Option<u64> {
        self.registers
            .shadow()
            .filter(|shadow| shadow.is_enabled() || shadow.rung() > 0)
            .map(|shadow| shadow.rung())
    }

    /// How `mode` differs on this controller from what its name says.
    pub(crate) fn mode_note(&self, mode: Mode) -> Option<ModeNote> {
        match self.tcp() {
            Some(_) => (mode.facts().posted || mode.moderation().is_some())
                .then_some(ModeNote::NoInterrupts(mode)),
            None => (self.is_on_bus() && mode.facts().posted).then_some(ModeNote::Signals(mode)),
        }
    }

    /// Notes for the user about what was found at open.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Takes over what a bring-up found, the first one or one after a reset. Only while no I/O
    /// queue is in use.
    pub(crate) fn learn(&self, inventory: &Inventory) {
        self.keep_doorbells(inventory.shadow_doorbells_active);
        // Over TCP a data pointer stays on this side, and an SGL says how long the data are.
        let has_sgls = self.tcp().is_some() || inventory.limits.is_some_and(|limits| limits.sgls);
        self.sgls.store(self.wants_sgls && has_sgls, Relaxed);
        self.tcp().into_iter().for_each(|tcp| tcp.learn(&inventory.namespaces));
        // Replaced as a whole: a reset may follow a format change.
        let deac_namespaces = inventory
            .namespaces
            .iter()
            .filter(|ns| ns.deallocates_zeroes)
            .map(|ns| ns.nsid)
            .collect();
        *self.deac_namespaces.lock().unwrap_or_else(PoisonError::into_inner) = deac_namespaces;
    }

    /// Whether transfers that would need a PRP list use an SGL data block.
    #[inline]
    pub(crate) fn sgls(&self) -> bool {
        // Relaxed: it changes only while no I/O queue is in use, and taking a queue's lock orders
        // it.
        self.sgls.load(Relaxed)
    }

    /// Whether a Write Zeroes to this namespace may set the Deallocate bit (CDW12.DEAC).
    pub(super) fn deallocates_zeroes(&self, nsid: Nsid) -> bool {
        self.deac_namespaces.lock().unwrap_or_else(PoisonError::into_inner).contains(&nsid)
    }

    /// The PRP lists of every buffer of the pool.
    pub(crate) fn prp_table(&self) -> Arc<PrpTable> {
        self.dma.lists.clone()
    }

    /// Registers memory of the caller's for DMA, with a PRP table of its own.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub(crate) fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        prp_table::register(&self.dma.pool, memory)
    }

    /// Blocks the DMA of a controller that does not answer, so that its buffers can be reused.
    /// False: nothing can block it.
    pub(crate) fn block_dma(&self) -> bool {
        if let Some(tcp) = self.tcp() {
            // Only this side writes to buffers, and it has closed the connections then.
            tcp.disconnect();
            return true;
        }
        self.end().is_some_and(EmbeddedHandle::block_dma)
    }

    /// Allows DMA again after the controller has stopped: it has no command left that could touch
    /// an old buffer.
    pub(crate) fn allow_dma(&self) {
        self.end().into_iter().for_each(EmbeddedHandle::allow_dma);
    }

    /// The transport's number, unique in the process.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The pool of DMA buffers that the controller can access.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        &self.dma.pool
    }

    /// The embedded controller's handle; `None`: the controller is not in this process.
    pub(crate) fn end(&self) -> Option<&EmbeddedHandle> {
        match &self.endpoint {
            Endpoint::Embedded(end) => Some(end),
            Endpoint::Bus(_) => None,
        }
    }

    /// The next event of the connection to a vfio-user server, if there is one.
    pub(crate) fn news(&self) -> Option<ServerEvent> {
        match &self.endpoint {
            Endpoint::Bus(BusController::VfioUser(remote)) => remote.news(),
            Endpoint::Bus(BusController::Tcp(tcp)) => tcp.news(),
            _ => None,
        }
    }

    /// Starts to reconnect to a server whose connection has ended. The controller is lost since
    /// `lost_since`, and nothing is in flight to it. After `quiet` the old controller has stopped,
    /// whatever became of its server: its keep-alive has run out. `None`: that is never known.
    pub(crate) fn start_reconnect(&self, lost_since: Nanos, quiet: Option<Nanos>) {
        if let Some(tcp) = self.tcp() {
            return tcp.start_reconnect(quiet.unwrap_or(Nanos::MAX));
        }
        let quiet_at = quiet.map_or(Nanos::MAX, |quiet| lost_since + quiet);
        if let (Endpoint::Bus(BusController::VfioUser(remote)), ControllerRegisters::Bus(registers)) = (&self.endpoint, &self.registers)
            // Still connected: the controller itself failed, and its reset is tried instead.
            && remote.is_over()
        {
            let (remote, registers, vectors) =
                (remote.clone(), registers.clone(), self.vectors.clone());
            Reconnect { remote, registers, vectors, quiet_at }.begin();
        }
    }

    /// Masking and counting.
    pub(crate) fn facts(&self) -> TransportFacts {
        self.facts
    }

    /// Whether it is a PCI function or a vfio-user server.
    pub(crate) fn is_on_bus(&self) -> bool {
        matches!(self.endpoint, Endpoint::Bus(BusController::Pci(_) | BusController::VfioUser(_)))
    }

    /// Directs the messages of `vector` to the notification of `home`; `None`: back to its own
    /// eventfd. The caller must arm and poll afterwards: a message that is on its way may signal
    /// the old eventfd. False: nothing changed.
    pub(crate) fn route(&self, vector: Vector, home: Option<Vector>) -> bool {
        let controller = match &self.endpoint {
            Endpoint::Embedded(_) => {
                // The embedded controller reads the route at each message.
                self.vectors.route(vector.0, home.map(|home| home.0));
                return true;
            }
            // A queue's interrupt is its socket.
            Endpoint::Bus(BusController::Tcp(_)) => return false,
            Endpoint::Bus(controller) => controller,
        };
        // An eventfd that does not exist has nothing to direct: success.
        let to = |to: Vector| {
            self.vectors
                .signal(to.0)
                .map_or(Ok(()), |signal| controller.signal_from(vector, to, signal))
        };
        let moved = to(home.unwrap_or(vector));
        let Err(error) = moved else { return true };
        tracing::warn!(%error, vector = vector.0, ?home, "a vector's messages do not go to another eventfd");
        // The device may have dropped the old eventfd before it failed: set it again.
        if let Err(error) = to(vector) {
            tracing::error!(%error, vector = vector.0, "a vector's messages do not go to their own eventfd");
        }
        false
    }

    /// Whether hardware queues have a second queue pair without interrupts: where interrupts cannot
    /// be masked, polling the first one would not avoid them.
    pub(crate) fn has_poll_queues(&self) -> bool {
        // A socket that is not waited for causes no interrupt.
        self.facts.mask == Mask::Unread && self.tcp().is_none()
    }

    /// The vector of the n-th of `queues` I/O queues, and whether no other queue shares it. Vector
    /// 0 is the admin queue's, and shared only if there is no other.
    pub(crate) fn vector_of(&self, n: usize, queues: usize) -> (Vector, bool) {
        match usize::from(self.vectors.len()).saturating_sub(1) {
            // One vector in all: shared with the admin queue.
            0 => (Vector(0), false),
            // Queues take the I/O vectors in turn. A vector is exclusive if no other queue maps to
            // it.
            io => (Vector((1 + n % io) as u16), n < io && n + io >= queues),
        }
    }

    /// The eventfd that a vector's messages signal; `None`: there is no such vector.
    pub(crate) fn eventfd(&self, vector: Vector) -> Option<&EventFd> {
        self.vectors.signal(vector.0)
    }

    /// Unmasks a vector.
    #[inline]
    pub(crate) fn arm(&self, vector: Vector) {
        self.registers.unmask(&self.vectors, vector);
    }

    /// The doorbells.
    #[inline]
    pub(crate) fn doorbells(&self) -> &impl Doorbells {
        &self.registers
    }

    /// The controller's properties (Base §3.1.4), for the controller's task.
    pub(crate) fn properties(&self) -> &HostProperties {
        &self.properties
    }

    /// Messages of one vector so far, as its eventfd has counted them.
    pub(crate) fn messages(&self, vector: Vector) -> u64 {
        self.vectors.messages(vector.0)
    }

    /// Notifications of messages that were signalled through this vector's eventfd.
    pub(crate) fn notifications(&self, vector: Vector) -> u64 {
        self.vectors.notifications(vector.0)
    }
}

impl Drop for RingController {
    fn drop(&mut self) {
        match &self.endpoint {
            // A PCI function resets itself when its last handle is dropped.
            Endpoint::Embedded(end) => end.detach(),
            Endpoint::Bus(BusController::Pci(_)) => {}
            Endpoint::Bus(BusController::VfioUser(remote)) => remote.close(),
            Endpoint::Bus(BusController::Tcp(tcp)) => tcp.close(),
        }
    }
}

/// A controller outside this process.
#[derive(Clone)]
pub(in crate::transport) enum BusController {
    /// A PCI function, opened through VFIO. Closing it resets it.
    Pci(Arc<PciDevice>),
    /// A controller that a vfio-user server runs. Closing it ends the connection.
    VfioUser(Arc<RemoteController>),
    /// A controller over NVMe/TCP.
    Tcp(Arc<TcpController>),
}

impl BusController {
    /// Makes the messages of `vector` signal `signal`, the eventfd of `home`, from now on.
    fn signal_from(&self, vector: Vector, home: Vector, signal: &EventFd) -> std::io::Result<()> {
        match self {
            BusController::Pci(device) => device.signal_from(vector, signal),
            BusController::VfioUser(remote) => {
                remote.signal_from(vector, home, signal).map_err(std::io::Error::other)
            }
            BusController::Tcp(_) => Ok(()),
        }
    }

    /// Resets the function (FLR, or DEVICE_RESET); see [`driver::Properties::reset_function`].
    fn reset_function(&self) -> bool {
        let done = match self {
            BusController::Pci(device) => device.reset().map_err(|error| error.to_string()),
            BusController::VfioUser(remote) => remote.reset().map_err(|error| error.to_string()),
            BusController::Tcp(_) => return false,
        };
        match &done {
            Ok(()) => tracing::warn!("the controller did not stop, and its function was reset"),
            Err(error) => tracing::warn!(
                error,
                "the controller does not stop, and its function cannot be reset"
            ),
        }
        done.is_ok()
    }
}

/// A queue pair over rings in the pool.
pub(crate) type Pair = QueuePair<SqRing, CqRing>;

/// A queue pair that is locked exclusively: no thread posts to it or reaps it.
pub(crate) type HeldPair<'a> = Exclusive<'a, SqRing, CqRing>;

/// The ring memory of a queue pair. The controller may access it for as long as this lives.
pub(crate) struct Rings {
    sq: Arc<RingMemory>,
    cq: Arc<RingMemory>,
}

impl Rings {
    /// Memory for rings of these sizes.
    ///
    /// # Errors
    /// The pool has no room for them.
    pub(crate) fn new(
        controller: &RingController,
        sizes: QueueSizes,
    ) -> Result<Rings, hw::AllocError> {
        let sq =
            controller.pool().alloc_ring((sizes.sq_entries as usize) << nvme::Sqe::SIZE_LOG2)?;
        let cq =
            controller.pool().alloc_ring((sizes.cq_entries as usize) << nvme::Cqe::SIZE_LOG2)?;
        Ok(Rings { sq, cq })
    }

    /// Bus addresses of the submission queue and the completion queue.
    pub(crate) fn addrs(&self) -> (u64, u64) {
        (self.sq.addr(), self.cq.addr())
    }

    /// The queue pair over this memory. `None`: the sizes are not those of the memory.
    pub(crate) fn pair(
        &self,
        controller: &RingController,
        id: QueueId,
        sizes: QueueSizes,
    ) -> Option<Pair> {
        let sq = controller.pool().sq(self.sq.addr(), sizes.sq_entries)?;
        let cq = controller.pool().cq(self.cq.addr(), sizes.cq_entries)?;
        QueuePair::new(id, sizes, sq, cq).ok()
    }
}
