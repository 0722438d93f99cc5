//! An open controller: what its queues, its device and the thread that looks after it share.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use completion::{LatencyPrice, Mode};
use hw::DmaPool;
use nvme::{Nsid, Sqe};
use units::Nanos;

use super::control::Control;
use super::hw_queue::HwQueue;
use super::roster::Roster;
use crate::counters::{DeviceCounters, HardwareCounters};
use crate::error::{AdminError, QueueError, Refused};
use crate::health::Health;
use crate::link::{Link, NO_LINK, Reaper};
use crate::namespace::Namespace;
use crate::options::OpenOptions;
use crate::request::Request;

/// A caller's admin command takes longer than others may where a reset comes between, or several.
const LONGEST_COMMAND: Duration = Duration::from_secs(60);

/// How long a thread that leaves a queue of its own stays at least, for commands that end in their usual time; and for those that the
/// kernel is asked to cancel at their time-out.
const LEAVING: Nanos = Nanos::from_secs(1);

/// An open controller. Shut down when the last clone and the last queue are gone.
#[derive(Clone)]
pub(crate) struct Controller(Arc<Shared>);

struct Shared {
    link: Link,
    /// The link's number, and its pool, which each batch asks for.
    number: u32,
    pool: DmaPool,
    roster: Arc<Roster>,
    namespaces: Vec<Namespace>,
    sizes: Sizes,
    mode: AtomicU32,
    price: LatencyPrice,
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
    pub link: Link,
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
    link: u32,
    /// The number that each request's namespace is compared with: the link's, or that of none once a namespace shows no blocks, so that
    /// each is looked up.
    number: AtomicU32,
}

impl Sizes {
    /// Of the namespaces of the link that has the number `link`.
    pub(crate) fn of(namespaces: &[driver::Namespace], link: u32) -> Sizes {
        let sizes = namespaces.iter().map(|namespace| (namespace.nsid, AtomicU64::new(namespace.blocks))).collect();
        Sizes(Arc::new(Known { sizes, link, number: AtomicU32::new(link) }))
    }

    fn find(&self, nsid: Nsid) -> Option<&AtomicU64> {
        self.0.sizes.iter().find(|(other, _)| *other == nsid).map(|(_, blocks)| blocks)
    }

    /// A namespace has this size from now on; 0: it cannot be used any more. What it was before, if there is one of that identifier.
    /// Called by the controller's keeper alone.
    pub(crate) fn set(&self, nsid: Nsid, blocks: u64) -> Option<u64> {
        let before = self.find(nsid)?.swap(blocks, AcqRel);
        let any_gone = self.0.sizes.iter().any(|(_, blocks)| blocks.load(Relaxed) == 0);
        self.0.number.store(if any_gone { NO_LINK } else { self.0.link }, Release);
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

impl Drop for Shared {
    fn drop(&mut self) {
        self.roster.shut();
    }
}

impl Controller {
    /// A controller that is up, or a file that is open, with its queues.
    pub(crate) fn new(opened: Opened, roster: Arc<Roster>, options: &OpenOptions) -> Controller {
        let Opened { link, namespaces, sizes, control, description, .. } = opened;
        let (number, pool, mode) = (link.number(), link.pool().clone(), AtomicU32::new(options.mode.into()));
        let (price, timeout) = (options.latency_price, options.timeout);
        Controller(Arc::new(Shared { link, number, pool, roster, namespaces, sizes, mode, price, timeout, control, description }))
    }

    /// Takes a software queue for a thread: its hardware queue, and its place there. [`Controller::begun`] or
    /// [`Controller::give_back`] follows.
    ///
    /// # Errors
    /// All of them are taken, or each belongs to one thread and `user` does not, or there is no such mode on the link.
    pub(crate) fn take(&self, user: Reaper, mode: Mode) -> Result<(Arc<HwQueue>, u8), QueueError> {
        if user == Reaper::Any && self.0.link.belongs_to_one_thread() {
            return Err(QueueError::OneThread);
        }
        if mode.is_the_kernels() && matches!(self.0.link, Link::Ring(_)) {
            return Err(QueueError::NotTheKernels(mode));
        }
        self.0.roster.take(user, mode)
    }

    /// A software queue has a thread that drives it.
    pub(crate) fn begun(&self, queue: &Arc<HwQueue>, me: u8) {
        if self.0.roster.grows() {
            // Nobody has had it before, so that there is nothing to take over; its mode may not be one that there is.
            return self.kick_keeper();
        }
        self.0.control.taken(queue, me);
    }

    /// A software queue is no longer used. What it has in flight is looked after by the housekeeping thread.
    pub(crate) fn give_back(&self, queue: &Arc<HwQueue>, me: u8) {
        self.0.control.orphan(queue, me);
        self.0.roster.give_back(queue, me);
    }

    /// The namespaces that can be used.
    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.0.namespaces
    }

    /// The same namespace in the size that it has now.
    pub(crate) fn current(&self, namespace: &Namespace) -> Namespace {
        let ours = namespace.device() == self.0.number;
        match &self.0.link {
            _ if !ours => *namespace,
            Link::Ring(_) => self.0.sizes.get(namespace.nsid()).map_or(*namespace, |blocks| namespace.with_blocks(blocks)),
            Link::Kernel(link) => link.current(namespace),
        }
    }

    /// The buffers that it reaches.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        &self.0.pool
    }

    /// How it is reached.
    pub(crate) fn link(&self) -> &Link {
        &self.0.link
    }

    /// The mode that software queues begin with.
    pub(crate) fn mode(&self) -> Mode {
        Mode::try_from(self.0.mode.load(Relaxed)).unwrap_or(Mode::INTERRUPT)
    }

    /// How late `adaptive` may be.
    pub(crate) fn price(&self) -> LatencyPrice {
        self.0.price
    }

    /// How long a thread stays for what is in flight on a queue that belongs to it, and that it leaves. Where a controller carries commands
    /// out, a reset takes back what is left. What the kernel has nobody else can take, so that it has all the time that a command has.
    pub(crate) fn stays(&self) -> Nanos {
        match &self.0.link {
            Link::Ring(_) => LEAVING,
            Link::Kernel(_) => self.0.timeout + LEAVING,
        }
    }

    /// Changes the completion mode of every queue, with requests in flight or without.
    pub(crate) fn set_mode(&self, mode: Mode) {
        self.0.mode.store(mode.into(), Relaxed);
        for queue in self.0.roster.all() {
            for soft in &queue.softs {
                soft.mode.ask(queue.means(mode));
                soft.tell();
            }
        }
        self.kick_keeper();
    }

    /// The housekeeping thread is to look at what it was asked for; at another mode that was asked for, too.
    pub(crate) fn kick_keeper(&self) {
        self.0.control.kick();
    }

    /// From now on no request is posted again.
    pub(crate) fn lose_patience(&self) {
        self.0.roster.all().iter().flat_map(|queue| &queue.softs).for_each(|soft| soft.lose_patience());
    }

    /// Requests that are not finished, over all queues.
    pub(crate) fn in_flight(&self) -> u32 {
        self.0.roster.all().iter().flat_map(|queue| &queue.softs).map(|soft| soft.open()).sum()
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
        if let Link::Kernel(link) = &self.0.link {
            return link.admin_command(&sqe, data);
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

    /// [`Controller::checker`] where that refuses every request because some namespace is not what it was: each is looked up.
    pub(crate) fn looking_checker(&self) -> impl Fn(Request) -> (Result<(), Refused>, Request) {
        let (number, check) = (self.0.number, self.checker_for(self.0.number));
        move |request| {
            let (nsid, ours) = (request.namespace.nsid(), request.namespace.device() == number);
            let (checked, request) = check(request);
            let is_gone = ours && self.0.sizes.get(nsid) == Some(0);
            (if is_gone { Err(Refused::Changed(nsid.0)) } else { checked }, request)
        }
    }

    /// Whether [`Controller::looking_checker`] is to be asked of a request that [`Controller::checker`] has refused so.
    #[cold]
    pub(crate) fn looks_up(&self, (why, request): &(Refused, Request)) -> bool {
        matches!(why, Refused::NoNamespace(_)) && request.namespace.device() == self.0.number
    }

    /// What has been counted since it was opened.
    pub(crate) fn counters(&self) -> DeviceCounters {
        let notify = self.0.link.end().map(|end| end.notify_time()).unwrap_or_default();
        let doorbell_registers = match &self.0.link {
            Link::Ring(link) => link.doorbells_rung(),
            Link::Kernel(_) => None,
        };
        let device = DeviceCounters { notify, doorbell_registers, leaked_bytes: self.pool().leaked(), ..self.0.roster.past() };
        let mut vectors = Vec::new();
        let mut is_counted = |vector| {
            let before = vectors.contains(&vector);
            vectors.push(vector);
            before
        };
        let queues = self.0.roster.all();
        queues.iter().map(|queue| queue.counted(&mut is_counted)).fold(device, DeviceCounters::and)
    }

    /// What has been counted of one of its hardware queues.
    pub(crate) fn hardware_counters(&self, queue: &HwQueue) -> HardwareCounters {
        let counters = || queue.lanes().map(|lane| lane.counters());
        let all = self.0.roster.all();
        let beside = all.iter().map(|other| &other.lane).filter(|other| other.vector() == queue.lane.vector());
        HardwareCounters {
            finished: counters().map(|lane| lane.finished).sum(),
            sq_doorbells: counters().map(|lane| lane.sq_doorbells).sum(),
            cq_doorbells: counters().map(|lane| lane.cq_doorbells).sum(),
            messages: queue.lane.messages(),
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
        let pool = self.pool();
        let key = pool.key();
        let reaches = move |request: &Request| {
            if request.namespace.device() != number {
                return Err(Refused::NoNamespace(request.namespace.nsid().0));
            }
            match &request.buf {
                Some(buf) if !buf.is_of(key) => Err(Refused::ForeignBuffer),
                _ => Ok(()),
            }
        };
        move |request| {
            let (checked, request) = Request::check(request, pool);
            (checked.and_then(|()| reaches(&request)), request)
        }
    }
}
