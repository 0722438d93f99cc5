//! An open controller: what its queues, its device and the thread that looks after it share.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use completion::{Mode, Moderation};
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
use crate::transport::{NO_LINK, Transport};

/// A caller's admin command takes longer than others may where a reset comes between, or several.
const LONGEST_COMMAND: Duration = Duration::from_secs(60);

/// How long a thread that leaves a queue waits for requests that the kernel was asked to cancel.
const LEAVING: Nanos = Nanos::from_secs(1);

/// An open controller. Shut down when the last clone and the last queue are gone.
#[derive(Clone)]
pub(crate) struct Controller(Arc<Shared>);

struct Shared {
    transport: Transport,
    /// The transport's number, and its pool, which each batch asks for.
    number: u32,
    pool: DmaPool,
    queue_table: QueueTable,
    files: Arc<FileQueues>,
    namespaces: Vec<Namespace>,
    sizes: Sizes,
    mode: AtomicU64,
    timeout: Nanos,
    control: Control,
    description: Description,
}

/// Which controller it is, and how the host uses it.
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
    /// Commands in flight on each.
    pub depth: u32,
    /// Namespaces that cannot be used, and why.
    pub refused: Vec<String>,
}

/// What a controller is made of, once it is up.
pub(crate) struct Opened {
    pub transport: Transport,
    pub queues: Vec<Arc<HwQueue>>,
    pub namespaces: Vec<Namespace>,
    pub sizes: Sizes,
    pub control: Control,
    pub description: Description,
}

/// How large the namespaces are now, in logical blocks, for any thread to read.
#[derive(Clone, Default)]
pub(crate) struct Sizes(Arc<Known>);

#[derive(Default)]
struct Known {
    sizes: Box<[(Nsid, AtomicU64)]>,
    transport: u32,
    /// The number that each request's namespace is compared with: the transport's, or that of none once a namespace shows no blocks, so that
    /// each is looked up.
    number: AtomicU32,
}

impl Sizes {
    /// Of the namespaces of the transport that has this number.
    pub(crate) fn of(namespaces: &[driver::Namespace], transport: u32) -> Sizes {
        let sizes = namespaces.iter().map(|namespace| (namespace.nsid, AtomicU64::new(namespace.blocks))).collect();
        Sizes(Arc::new(Known { sizes, transport, number: AtomicU32::new(transport) }))
    }

    fn find(&self, nsid: Nsid) -> Option<&AtomicU64> {
        self.0.sizes.iter().find(|(other, _)| *other == nsid).map(|(_, blocks)| blocks)
    }

    /// A namespace has this size from now on; 0: it cannot be used any more. What it was before, if there is one of that identifier.
    /// Called by the controller's task alone.
    pub(crate) fn set(&self, nsid: Nsid, blocks: u64) -> Option<u64> {
        let before = self.find(nsid)?.swap(blocks, AcqRel);
        let any_gone = self.0.sizes.iter().any(|(_, blocks)| blocks.load(Relaxed) == 0);
        self.0.number.store(if any_gone { NO_LINK } else { self.0.transport }, Release);
        Some(before)
    }

    /// The size of a namespace, if there is one of that identifier.
    fn get(&self, nsid: Nsid) -> Option<u64> {
        self.find(nsid).map(|blocks| blocks.load(Acquire))
    }

    /// See [`Known::number`].
    #[inline]
    fn number(&self) -> u32 {
        self.0.number.load(Acquire)
    }
}

impl Controller {
    /// A controller that is up, with its queues in `queue_table`; or a file that is open, with its queues in `files`.
    pub(crate) fn new(opened: Opened, queue_table: QueueTable, files: Arc<FileQueues>, options: &OpenOptions) -> Controller {
        let Opened { transport, namespaces, sizes, control, description, .. } = opened;
        let (number, pool, mode) = (transport.number(), transport.pool().clone(), AtomicU64::new(options.mode.into()));
        let timeout = options.timeout;
        Controller(Arc::new(Shared { transport, number, pool, queue_table, files, namespaces, sizes, mode, timeout, control, description }))
    }

    /// Takes a software queue for a thread: its hardware queue, and its place there. [`Controller::begun`] or
    /// [`Controller::give_back`] follows.
    ///
    /// # Errors
    /// All of them are taken, or there is no such mode on the transport.
    pub(crate) fn take(&self, mode: Mode) -> Result<(Arc<HwQueue>, u8), QueueError> {
        if mode.is_the_kernels() {
            return Err(UnsupportedMode::NotTheKernels(mode).into());
        }
        self.0.queue_table.take()
    }

    /// Another queue of a file, in `mode` if the file has that, or in the file's. [`Controller::adopt`] or [`Controller::retire`] follows.
    ///
    /// # Errors
    /// All of them are taken, or the system is out of descriptors.
    pub(crate) fn add_queue(&self, mode: Option<Mode>) -> Result<Arc<QueueShared>, QueueError> {
        self.0.files.add(|| {
            let mode = mode.unwrap_or_else(|| self.mode());
            if mode.is_the_kernels() { mode } else { self.mode_on(None, mode) }
        })
    }

    /// A queue has no thread any more, and something is still open: it is polled by the thread that looks after the controller.
    pub(crate) fn adopt(&self, queue: Box<dyn Orphan>) {
        self.0.control.adopt(queue);
    }

    /// A queue has no thread any more: another thread may take it, or of a file its place.
    pub(crate) fn retire(&self, queue: &Arc<QueueShared>) {
        if !self.0.queue_table.give_back(queue) {
            self.0.files.remove(queue);
        }
    }

    /// The mode in force on a queue where `asked` is asked for, and whose rings were `made_for` a mode of the kernel's own if any. Rings
    /// that were made for a mode of the kernel's own have that mode and no other, and no other rings have such a mode; of a file the
    /// kernel coalesces nothing.
    pub(crate) fn mode_on(&self, made_for: Option<Mode>, asked: Mode) -> Mode {
        if let Some(own) = made_for {
            return own;
        }
        let coalesces = asked.moderation().is_some_and(|moderation| moderation != Moderation::Asked);
        if coalesces && matches!(self.0.transport, Transport::Kernel(_)) {
            // Before the mode changes: a caller that finds its queue in another mode finds among the events why.
            self.0.control.refuse_coalescing();
            return Mode::INTERRUPT;
        }
        if asked.is_the_kernels() { Mode::INTERRUPT } else { asked }
    }

    /// The same for queue `number`. Where its rings are the reason for another mode, an event says so.
    pub(crate) fn mode_for(&self, number: u16, made_for: Option<Mode>, asked: Mode) -> Mode {
        let means = self.mode_on(made_for, asked);
        if means != asked && (made_for.is_some() || asked.is_the_kernels()) {
            self.reporter().push(EventKind::ModeUnavailable { queue: number, asked, in_force: means });
        }
        means
    }

    /// What its queues report to.
    pub(crate) fn reporter(&self) -> Reporter {
        self.0.control.reporter()
    }

    /// How long a request may take.
    pub(crate) fn timeout(&self) -> Nanos {
        self.0.timeout
    }

    /// The namespaces that can be used.
    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.0.namespaces
    }

    /// The same namespace in the size that it has now.
    pub(crate) fn current(&self, namespace: &Namespace) -> Namespace {
        let ours = namespace.device() == self.0.number;
        match &self.0.transport {
            _ if !ours => *namespace,
            Transport::Ring(_) => self.0.sizes.get(namespace.nsid()).map_or(*namespace, |blocks| namespace.with_blocks(blocks)),
            Transport::Kernel(transport) => transport.current(namespace),
        }
    }

    /// The buffers that it reaches.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        &self.0.pool
    }

    /// How it is reached.
    pub(crate) fn transport(&self) -> &Transport {
        &self.0.transport
    }

    /// The mode that software queues begin with.
    pub(crate) fn mode(&self) -> Mode {
        Mode::try_from(self.0.mode.load(Relaxed)).unwrap_or(Mode::INTERRUPT)
    }

    /// How long a thread stays for what is in flight on a queue that it alone can use, and that it leaves: until that is late, and then for
    /// the kernel to cancel it.
    pub(crate) fn stays(&self) -> Nanos {
        self.0.timeout + LEAVING
    }

    /// Changes the completion mode of every queue, with requests in flight or without.
    pub(crate) fn set_mode(&self, mode: Mode) {
        self.0.mode.store(mode.into(), Relaxed);
        for queue in self.queues() {
            queue.mode.ask(self.mode_on(queue.made_for, mode));
            queue.notice();
        }
        self.wake_task();
    }

    /// The housekeeping thread is to look at what it was asked for; at another mode that was asked for, too.
    pub(crate) fn wake_task(&self) {
        self.0.control.kick();
    }

    /// Its queues, with a thread or without.
    fn queues(&self) -> impl Iterator<Item = Arc<QueueShared>> {
        self.0.queue_table.all().iter().flat_map(|queue| queue.users.iter().cloned()).chain(self.0.files.all())
    }

    /// From now on no request is posted again.
    pub(crate) fn fail_retries(&self) {
        self.queues().for_each(|queue| queue.fail_retries());
    }

    /// Requests that are not finished, over all queues.
    pub(crate) fn in_flight(&self) -> u32 {
        self.queues().map(|queue| queue.open()).sum()
    }

    /// Which controller it is.
    pub(crate) fn description(&self) -> &Description {
        &self.0.description
    }

    /// Whether the controller works, and what has happened to it.
    pub(crate) fn health(&self) -> Health {
        self.0.control.health()
    }

    /// Sends an admin command, which was checked, and waits for its answer.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub(crate) fn admin_command(&self, sqe: Sqe, data: &mut [u8]) -> Result<u32, AdminError> {
        if let Transport::Kernel(transport) = &self.0.transport {
            return transport.admin_command(&sqe, data);
        }
        let answer = self.0.control.admin_command(sqe, data.to_vec()).recv_timeout(LONGEST_COMMAND);
        let (result, filled) = answer.map_err(|error| match error {
            RecvTimeoutError::Timeout => AdminError::NoAnswer(LONGEST_COMMAND),
            RecvTimeoutError::Disconnected => AdminError::Gone,
        })??;
        data.copy_from_slice(&filled);
        Ok(result)
    }

    /// Resets the controller now. Requests in flight are posted again.
    pub(crate) fn reset(&self) {
        self.0.control.ask_reset();
    }

    /// A request that [`Controller::checker`] has refused for `why`. Where some namespace is not what it was, that refuses every one, and each is
    /// looked up here.
    ///
    /// # Errors
    /// It is refused, and for this.
    #[cold]
    pub(crate) fn look_up(&self, why: Refused, request: Request) -> Result<Request, (Refused, Request)> {
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

    /// What has been counted since it was opened.
    pub(crate) fn counters(&self) -> DeviceCounters {
        let notify = self.0.transport.end().map(|end| end.notify_time()).unwrap_or_default();
        let doorbell_registers = match &self.0.transport {
            Transport::Ring(transport) => transport.doorbells_rung(),
            Transport::Kernel(_) => None,
        };
        let device = DeviceCounters { notify, doorbell_registers, leaked_bytes: self.pool().leaked(), ..self.0.files.counters() };
        let mut vectors = Vec::new();
        let mut is_counted = |vector| {
            let before = vectors.contains(&vector);
            vectors.push(vector);
            before
        };
        self.0.queue_table.all().iter().map(|queue| queue.counted(&mut is_counted)).fold(device, DeviceCounters::and)
    }

    /// What has been counted of one of its hardware queues.
    pub(crate) fn hardware_counters(&self, queue: &HwQueue) -> HardwareCounters {
        let counters = || queue.pairs().map(|pair| pair.counters());
        let all = self.0.queue_table.all();
        let beside = all.iter().map(|other| &other.pair).filter(|other| other.vector() == queue.pair.vector());
        HardwareCounters {
            finished: counters().map(|pair| pair.finished).sum(),
            sq_doorbells: counters().map(|pair| pair.sq_doorbells).sum(),
            cq_doorbells: counters().map(|pair| pair.cq_doorbells).sum(),
            messages: queue.pair.messages(),
            drain_cpu: queue.drain.cpu(),
            vector_finished: beside.map(|other| other.counters().finished).sum(),
        }
    }

    /// Says whether a request can be carried out on this controller; see [`Request::check`].
    #[inline]
    pub(crate) fn checker(&self) -> impl Fn(Request) -> (Result<(), Refused>, Request) {
        self.checker_for(self.0.sizes.number())
    }

    /// The same for namespaces of the number `number`.
    #[inline]
    fn checker_for(&self, number: u32) -> impl Fn(Request) -> (Result<(), Refused>, Request) {
        let (pool, key) = (self.pool(), self.pool().key());
        #[inline(always)] // A request stays in registers from the caller's iterator to its slot.
        move |request| {
            let (checked, request) = Request::check(request, pool);
            let checked = match &request.buf {
                _ if checked.is_err() => checked,
                _ if request.namespace.device() != number => Err(Refused::NoNamespace(request.namespace.nsid().0)),
                Some(buf) if !buf.is_of(key) => Err(Refused::ForeignBuffer),
                _ => Ok(()),
            };
            (checked, request)
        }
    }
}
