//! An open controller, file or block device, which a device and its queues share.
//! [`OpenController`] is the handle; dropping the last clone closes the controller.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use completion::Mode;
use hw::DmaPool;
use nvme::{Nsid, Sqe};
use units::Nanos;

use super::control::Control;
use super::events::EventKind;
use super::hw_queue::HwQueue;
use super::queue_shared::{FileQueues, Orphan, QueueShared};
use super::queue_table::QueueTable;
use super::reports::Reporter;
use crate::counters::{DeviceCounters, HardwareCounters};
use crate::error::{AdminError, QueueError, Refused};
use crate::health::Health;
use crate::mode::UnsupportedMode;
use crate::namespace::Namespace;
use crate::options::OpenOptions;
use crate::request::Request;
use crate::transport::{NO_TRANSPORT, Transport};

/// Maximum time that a caller waits for its admin command, which may be sent only after resets.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(60);

/// How long a thread that closes a queue waits for requests that the kernel was asked to cancel.
const CANCEL_TIMEOUT: Nanos = Nanos::from_secs(1);

/// An open controller. It is shut down when the last clone and the last queue are gone.
#[derive(Clone)]
pub(crate) struct OpenController(Arc<Shared>);

struct Shared {
    transport: Transport,
    /// A copy of the transport's number, which each batch reads without a match on the transport.
    number: u32,
    /// A copy of the transport's pool, for the same reason.
    pool: DmaPool,
    queue_table: QueueTable,
    files: Arc<FileQueues>,
    namespaces: Vec<Namespace>,
    sizes: NamespaceSizes,
    mode: AtomicU64,
    timeout: Nanos,
    control: Control,
    description: Description,
}

/// Identifies a controller, and says how the host uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The URI it was opened with.
    pub uri: String,
    /// Identify Controller MN.
    pub model: String,
    /// Identify Controller SN.
    pub serial: String,
    /// Identify Controller FR.
    pub firmware: String,
    /// Version that it complies with, such as `2.1`.
    pub version: String,
    /// Hardware queues in use.
    pub hardware_queues: usize,
    /// Maximum number of commands in flight on each hardware queue.
    pub depth: u32,
    /// Namespaces that cannot be used, each with the reason.
    pub refused: Vec<String>,
}

/// What the bring-up of a controller returns, to make an [`OpenController`] of.
pub(crate) struct Opened {
    pub transport: Transport,
    pub queues: Vec<Arc<HwQueue>>,
    pub namespaces: Vec<Namespace>,
    pub sizes: NamespaceSizes,
    pub control: Control,
    pub description: Description,
}

/// The current sizes of the namespaces in logical blocks, readable by any thread.
#[derive(Clone, Default)]
pub(crate) struct NamespaceSizes(Arc<SizeTable>);

#[derive(Default)]
struct SizeTable {
    sizes: Box<[(Nsid, AtomicU64)]>,
    transport: u32,
    /// The transport number that the data path compares with that of each request's namespace.
    /// While some namespace cannot be used, it is [`NO_TRANSPORT`], which is the number of no
    /// namespace: every request then takes the slow check.
    number: AtomicU32,
}

impl NamespaceSizes {
    /// The sizes of `namespaces`, on the transport of this number.
    pub(crate) fn of(namespaces: &[driver::Namespace], transport: u32) -> NamespaceSizes {
        let sizes = namespaces
            .iter()
            .map(|namespace| (namespace.nsid, AtomicU64::new(namespace.blocks)))
            .collect();
        NamespaceSizes(Arc::new(SizeTable { sizes, transport, number: AtomicU32::new(transport) }))
    }

    fn find(&self, nsid: Nsid) -> Option<&AtomicU64> {
        self.0.sizes.iter().find(|(other, _)| *other == nsid).map(|(_, blocks)| blocks)
    }

    /// Sets the size of a namespace; 0: it cannot be used. Returns the size before, or `None` if
    /// the namespace is unknown. Only the controller's task calls it.
    pub(crate) fn set(&self, nsid: Nsid, blocks: u64) -> Option<u64> {
        let before = self.find(nsid)?.swap(blocks, AcqRel);
        // The data path makes one comparison for all namespaces, so a namespace that is gone makes
        // requests to all of them slower.
        let any_gone = self.0.sizes.iter().any(|(_, blocks)| blocks.load(Relaxed) == 0);
        self.0.number.store(if any_gone { NO_TRANSPORT } else { self.0.transport }, Release);
        Some(before)
    }

    /// The size of a namespace; `None` if it is unknown.
    fn get(&self, nsid: Nsid) -> Option<u64> {
        self.find(nsid).map(|blocks| blocks.load(Acquire))
    }

    /// See [`SizeTable::number`].
    #[inline]
    fn number(&self) -> u32 {
        self.0.number.load(Acquire)
    }
}

impl OpenController {
    /// A controller that is up, with its queues in `queue_table`, or an open file, with its queues
    /// in `files`.
    pub(crate) fn new(
        opened: Opened,
        queue_table: QueueTable,
        files: Arc<FileQueues>,
        options: &OpenOptions,
    ) -> OpenController {
        let Opened { transport, namespaces, sizes, control, description, .. } = opened;
        let (number, pool, mode) =
            (transport.number(), transport.pool().clone(), AtomicU64::new(options.mode.into()));
        let timeout = options.timeout;
        OpenController(Arc::new(Shared {
            transport,
            number,
            pool,
            queue_table,
            files,
            namespaces,
            sizes,
            mode,
            timeout,
            control,
            description,
        }))
    }

    /// Takes a software queue for a thread: its hardware queue, and its index there. Must be
    /// followed by [`OpenController::release_queue`].
    ///
    /// # Errors
    /// All queues are taken, or the transport does not have the mode.
    pub(crate) fn take_queue(&self, mode: Mode) -> Result<(Arc<HwQueue>, u8), QueueError> {
        if mode.is_the_kernels() {
            return Err(UnsupportedMode::NotTheKernels(mode).into());
        }
        self.0.queue_table.take()
    }

    /// Adds a queue of a file, in `mode` or in the file's mode. Must be followed by
    /// [`OpenController::release_queue`] or [`OpenController::add_orphan`].
    ///
    /// # Errors
    /// All queues are taken, or the process has no descriptor left.
    pub(crate) fn add_queue(&self, mode: Option<Mode>) -> Result<Arc<QueueShared>, QueueError> {
        self.0.files.add(|| {
            let mode = mode.unwrap_or_else(|| self.mode());
            // The ring is not made yet, so it can be made for a mode of the kernel's own.
            if mode.is_the_kernels() { mode } else { self.mode_on(None, mode) }
        })
    }

    /// Hands a queue without a thread to the housekeeping thread, which polls it until nothing is
    /// open.
    pub(crate) fn add_orphan(&self, queue: Box<dyn Orphan>) {
        self.0.control.add_orphan(queue);
    }

    /// Returns a queue whose thread is gone. Another thread may take it; a queue of a file is
    /// removed.
    pub(crate) fn release_queue(&self, queue: &Arc<QueueShared>) {
        if !self.0.queue_table.give_back(queue) {
            self.0.files.remove(queue);
        }
    }

    /// The mode that a queue gets when the mode `asked` is requested. `made_for`: the kernel's own
    /// mode (IOPOLL, SQPOLL) for which the queue's ring was made.
    pub(crate) fn mode_on(&self, made_for: Option<Mode>, asked: Mode) -> Mode {
        // The kernel's own modes are flags of io_uring_setup: a ring cannot enter or leave them.
        if let Some(own) = made_for {
            return own;
        }
        // A file has no Interrupt Coalescing.
        if asked.moderation().is_some() && matches!(self.0.transport, Transport::Kernel(_)) {
            // The event is logged before the mode changes, so that a caller who sees another mode
            // finds the reason among the events.
            self.0.control.refuse_coalescing();
            return Mode::INTERRUPT;
        }
        if asked.is_the_kernels() { Mode::INTERRUPT } else { asked }
    }

    /// [`OpenController::mode_on`] for queue `number`. Logs an event if the queue's ring was not
    /// made for the mode.
    pub(crate) fn mode_for(&self, number: u16, made_for: Option<Mode>, asked: Mode) -> Mode {
        let in_force = self.mode_on(made_for, asked);
        // If the reason is coalescing, `mode_on` has logged it.
        if in_force != asked && (made_for.is_some() || asked.is_the_kernels()) {
            self.reporter().push(EventKind::ModeUnavailable { queue: number, asked, in_force });
        }
        in_force
    }

    /// The reporter for the controller's queues.
    pub(crate) fn reporter(&self) -> Reporter {
        self.0.control.reporter()
    }

    /// The time-out of a request.
    pub(crate) fn timeout(&self) -> Nanos {
        self.0.timeout
    }

    /// The namespaces that can be used.
    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.0.namespaces
    }

    /// The namespace with its current size.
    pub(crate) fn current(&self, namespace: &Namespace) -> Namespace {
        let ours = namespace.device() == self.0.number;
        match &self.0.transport {
            // A namespace of another device: its current size is not known here.
            _ if !ours => *namespace,
            Transport::Ring(_) => self
                .0
                .sizes
                .get(namespace.nsid())
                .map_or(*namespace, |blocks| namespace.with_blocks(blocks)),
            Transport::Kernel(transport) => transport.current(namespace),
        }
    }

    /// The pool of its buffers.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        &self.0.pool
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.0.transport
    }

    /// The mode that software queues begin with.
    pub(crate) fn mode(&self) -> Mode {
        Mode::try_from(self.0.mode.load(Relaxed)).unwrap_or(Mode::INTERRUPT)
    }

    /// How long [`crate::thread::queue_pair::QueuePair::close`] waits for requests that only the
    /// queue's thread can reap: until they time out, and then for the kernel to cancel them.
    pub(crate) fn close_timeout(&self) -> Nanos {
        self.0.timeout + CANCEL_TIMEOUT
    }

    /// Changes the completion mode of every queue, with requests in flight or without.
    pub(crate) fn set_mode(&self, mode: Mode) {
        // The device's mode is set first: a queue that is taken from now on begins in this mode, or
        // is in the list below.
        self.0.mode.store(mode.into(), Relaxed);
        for queue in self.queues() {
            queue.mode.request(self.mode_on(queue.made_for, mode));
            queue.notice();
        }
        self.wake_task();
    }

    /// Has the housekeeping thread step the controller's task.
    pub(crate) fn wake_task(&self) {
        self.0.control.kick();
    }

    /// All software queues, taken or not.
    fn queues(&self) -> impl Iterator<Item = Arc<QueueShared>> {
        self.0
            .queue_table
            .all()
            .iter()
            .flat_map(|queue| queue.users.iter().cloned())
            .chain(self.0.files.all())
    }

    /// From now on no request is retried.
    pub(crate) fn fail_retries(&self) {
        self.queues().for_each(|queue| queue.fail_retries());
    }

    /// Number of requests that are not finished, over all queues.
    pub(crate) fn in_flight(&self) -> u32 {
        self.queues().map(|queue| queue.open()).sum()
    }

    /// The controller's identity.
    pub(crate) fn description(&self) -> &Description {
        &self.0.description
    }

    /// The controller's health, with counts of resets and aborts.
    pub(crate) fn health(&self) -> Health {
        self.0.control.health()
    }

    /// Sends an admin command that `admin::checked` has returned, and waits for the completion.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub(crate) fn admin_command(&self, sqe: Sqe, data: &mut [u8]) -> Result<u32, AdminError> {
        if let Transport::Kernel(transport) = &self.0.transport {
            return transport.admin_command(&sqe, data);
        }
        let completion =
            self.0.control.admin_command(sqe, data.to_vec()).recv_timeout(MAX_COMMAND_TIME);
        let (result, filled) = completion.map_err(|error| match error {
            RecvTimeoutError::Timeout => AdminError::NoAnswer(MAX_COMMAND_TIME),
            RecvTimeoutError::Disconnected => AdminError::Gone,
        })??;
        data.copy_from_slice(&filled);
        Ok(result)
    }

    /// Requests a reset of the controller. Requests in flight are posted again after it.
    pub(crate) fn reset(&self) {
        self.0.control.request_reset();
    }

    /// Checks a request again that [`OpenController::checker`] has refused for the reason `why`.
    /// This is necessary because the checker refuses every request while some namespace cannot be
    /// used ([`SizeTable::number`]).
    ///
    /// # Errors
    /// The request, and why it is refused.
    #[cold]
    pub(crate) fn recheck(
        &self,
        why: Refused,
        request: Request,
    ) -> Result<Request, (Refused, Request)> {
        // Refused for another reason, or a namespace of another device.
        if !matches!(why, Refused::NoNamespace(_)) || request.namespace.device() != self.0.number {
            return Err((why, request));
        }
        let nsid = request.namespace.nsid();
        let (checked, request) = self.checker_for(self.0.number)(request);
        match checked {
            _ if self.0.sizes.get(nsid) == Some(0) => Err((Refused::Changed(nsid.0), request)),
            Ok(()) => Ok(request),
            Err(why) => Err((why, request)),
        }
    }

    /// The controller's counters since it was opened.
    pub(crate) fn counters(&self) -> DeviceCounters {
        let notify = self.0.transport.end().map(|end| end.notify_time()).unwrap_or_default();
        let doorbell_registers = match &self.0.transport {
            Transport::Ring(transport) => transport.doorbells_rung(),
            Transport::Kernel(_) => None,
        };
        let device = DeviceCounters {
            notify,
            doorbell_registers,
            leaked_bytes: self.pool().leaked(),
            ..self.0.files.counters()
        };
        // Hardware queues may share a vector. Its messages must be counted only once.
        let mut vectors = Vec::new();
        let mut is_counted = |vector| {
            let before = vectors.contains(&vector);
            vectors.push(vector);
            before
        };
        self.0
            .queue_table
            .all()
            .iter()
            .map(|queue| queue.device_counters(&mut is_counted))
            .fold(device, DeviceCounters::and)
    }

    /// The counters of one of the controller's hardware queues.
    pub(crate) fn hardware_counters(&self, queue: &HwQueue) -> HardwareCounters {
        let counters = || queue.pairs().map(|pair| pair.counters());
        let all = self.0.queue_table.all();
        let same_vector = all
            .iter()
            .map(|other| &other.pair)
            .filter(|other| other.vector() == queue.pair.vector());
        HardwareCounters {
            finished: counters().map(|pair| pair.finished).sum(),
            sq_doorbells: counters().map(|pair| pair.sq_doorbells).sum(),
            cq_doorbells: counters().map(|pair| pair.cq_doorbells).sum(),
            messages: queue.pair.messages(),
            drain_cpu: queue.drain.cpu(),
            vector_finished: same_vector.map(|other| other.counters().finished).sum(),
        }
    }

    /// A function that checks whether this controller can execute a request; see
    /// [`Request::check`].
    #[inline]
    pub(crate) fn checker(&self) -> impl Fn(Request) -> (Result<(), Refused>, Request) {
        self.checker_for(self.0.sizes.number())
    }

    /// A checker that accepts namespaces of the transport with this number.
    #[inline]
    fn checker_for(&self, number: u32) -> impl Fn(Request) -> (Result<(), Refused>, Request) {
        // Read once per batch.
        let (pool, key) = (self.pool(), self.pool().key());
        #[inline(always)] // A request stays in registers from the caller's iterator to its slot.
        move |request| {
            let (checked, request) = Request::check(request, pool);
            let checked = match &request.buf {
                _ if checked.is_err() => checked,
                _ if request.namespace.device() != number => {
                    Err(Refused::NoNamespace(request.namespace.nsid().0))
                }
                Some(buf) if !buf.is_of(key) => Err(Refused::ForeignBuffer),
                _ => Ok(()),
            };
            (checked, request)
        }
    }
}
