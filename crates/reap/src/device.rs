//! Devices: opened by URI, shared by threads, each of which takes a software queue.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use ::device::Profile;
use blkmq::QueueMap;
use completion::{LatencySlack, Mode, Tuning};
use driver::Inventory;
use hw::{AllocError, DmaBuf, DmaPool, Memory, Region, RegisterError};
use units::Nanos;

use crate::control::{Control, Sizes};
use crate::cycle;
use crate::error::{OpenError, QueueError, Refused};
use crate::health::Health;
use crate::housekeeping::Housekeeper;
use crate::hw_queue::HwQueue;
use crate::link::{ByHand, Faults, Link, Measured, Stamps};
use crate::namespace::Namespace;
use crate::prp_table;
use crate::queue::Queue;
use crate::request::Request;
use crate::uri::DeviceUri;

/// How a device is opened. Start from `OpenOptions::default()`.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Software queues: how many threads will use the device at once, 1 to 256.
    pub software_queues: usize,
    /// Hardware queues that they share; no more than there are software queues, and no more than the controller grants.
    pub hardware_queues: usize,
    /// Commands in flight on each hardware queue, as far as the controller allows.
    pub depth: u32,
    /// The completion mode that queues start with.
    pub mode: Mode,
    /// How much later than if polled a command may be found, as a share of its device time. Only
    /// [`Mode::ADAPTIVE`] asks.
    pub latency_slack: LatencySlack,
    /// After this long without an answer a command is aborted, then the controller reset. Admin commands are given as
    /// long, within half a second and ten. It counts from the clock read that the request was submitted with. Where the queue's
    /// thread computes for longer than this, what it has started is announced, and what has completed is taken for it, before
    /// anything is aborted.
    pub timeout: Nanos,
    /// Most bytes of buffers and rings. Address space only: memory is taken as it is first touched.
    pub pool_bytes: u64,
    /// The CPU of the embedded device's thread; counts for the first device of a process.
    pub device_cpu: Option<usize>,
    /// Faults for the embedded controller to commit: for tests. Without, it has none, and pays nothing for the possibility.
    pub faults: Option<Faults>,
    /// Where the embedded controller notes down how long each command took it: for recordings. Without, it pays nothing for
    /// the possibility; with [`OpenOptions::faults`], nothing is noted down.
    pub stamps: Option<Stamps>,
    /// Of a `multipath:` device: faults for each path's controller, by path.
    pub path_faults: Vec<Option<Faults>>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            software_queues: 1,
            hardware_queues: 1,
            depth: 256,
            mode: Mode::INTERRUPT,
            latency_slack: LatencySlack::default(),
            timeout: Nanos::from_secs(30),
            pool_bytes: 256 << 20,
            device_cpu: None,
            faults: None,
            stamps: None,
            path_faults: Vec::new(),
        }
    }
}

/// An open controller: what [`crate::Device`] is, or has one of for each path. Shut down when the last clone and the last
/// queue are gone.
#[derive(Clone)]
pub(crate) struct Single(Arc<Shared>);

/// What queues, the device and the housekeeping thread share.
pub(crate) struct Shared {
    link: Arc<Link>,
    queues: Vec<Arc<HwQueue>>,
    namespaces: Vec<Namespace>,
    sizes: Sizes,
    /// Software queues that nobody has: hardware queue and place in it, in descending order.
    free: Mutex<Vec<(usize, u8)>>,
    mode: AtomicU32,
    slack: LatencySlack,
    control: Control,
    description: Description,
}

/// Which controller it is, and how the host uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What the device has counted, over all queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Messages that the I/O vectors have sent.
    pub messages: u64,
    /// Notifications that came of them: fewer, where messages are posted.
    pub notifications: u64,
    /// Time that sending them took the device.
    pub notify: Nanos,
    /// Writes to submission queue doorbells.
    pub sq_doorbells: u64,
    /// Writes to completion queue doorbells.
    pub cq_doorbells: u64,
    /// Bytes of buffers that a lost controller may still write to.
    pub leaked_bytes: u64,
}

/// What has been counted of one hardware queue, for all the software queues that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardwareCounters {
    /// Commands that have ended.
    pub finished: u64,
    /// Writes to its submission queue doorbell.
    pub sq_doorbells: u64,
    /// Writes to its completion queue doorbell.
    pub cq_doorbells: u64,
    /// Messages of its vector, which other queues may share.
    pub messages: u64,
    /// CPU time of its drain thread, in `threaded`.
    pub drain_cpu: Nanos,
    /// Commands that have ended on all the queues of that vector.
    pub vector_finished: u64,
}

impl Single {
    /// Opens the device of `uri`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn open_with(uri: &str, options: &OpenOptions) -> Result<Single, OpenError> {
        let parsed: DeviceUri = uri.parse()?;
        Single::open(Link::embedded(&parsed, options)?, uri, options).map(|(single, _)| single)
    }

    /// Brings up the controller of `link`.
    pub(crate) fn open(link: Link, uri: &str, options: &OpenOptions) -> Result<(Single, Inventory), OpenError> {
        if options.timeout == Nanos::ZERO {
            return Err(OpenError::Options("with a time-out of 0 every command would be late at once; give `timeout` some seconds".into()));
        }
        cycle::prepare(options.mode);
        let link = Arc::new(link);
        let opened = Housekeeper::shared()?.open(link.clone(), options)?;
        let map = QueueMap::new(options.software_queues, opened.queues.len()).map_err(|e| OpenError::Options(e.to_string()))?;
        let place = |software: usize| {
            let hardware = map.hardware_of(software);
            (hardware, (software - map.software_of(hardware).start) as u8)
        };
        let description = Description { uri: uri.to_owned(), ..opened.description };
        let single = Single(Arc::new(Shared {
            link,
            queues: opened.queues,
            namespaces: opened.namespaces,
            sizes: opened.sizes,
            free: Mutex::new((0..options.software_queues).rev().map(place).collect()),
            mode: AtomicU32::new(options.mode.into()),
            slack: options.latency_slack,
            control: opened.control,
            description,
        }));
        Ok((single, opened.inventory))
    }

    /// A software queue for one thread.
    ///
    /// # Errors
    /// All of them are taken, or the system is out of descriptors.
    pub fn queue(&self) -> Result<Queue, QueueError> {
        let (hardware, me) = self.0.free().pop().ok_or(QueueError::AllTaken { queues: self.0.software_queues() })?;
        let queue = &self.0.queues[hardware];
        let taken = Queue::new(self.0.clone(), queue.clone(), me).inspect_err(|_| self.0.free().push((hardware, me)))?;
        self.0.control.taken(queue, me);
        Ok(taken)
    }

    /// The namespaces that can be used.
    pub fn namespaces(&self) -> &[Namespace] {
        self.0.namespaces()
    }

    /// The same namespace in the size that it has now.
    pub(crate) fn current(&self, namespace: &Namespace) -> Namespace {
        let ours = namespace.device() == self.0.link.number();
        self.0.sizes.get(namespace.nsid()).filter(|_| ours).map_or(*namespace, |blocks| namespace.with_blocks(blocks))
    }

    /// A buffer that the device can reach, of `len` bytes.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn buffer(&self, len: usize) -> Result<DmaBuf, AllocError> {
        self.0.pool().alloc(len)
    }

    /// Memory of the caller's that the device can reach from now on.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub(crate) fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        prp_table::register(self.0.pool(), memory)
    }

    /// Changes the completion mode of every queue, with requests in flight or without.
    pub fn set_mode(&self, mode: Mode) {
        cycle::prepare(mode);
        self.0.mode.store(mode.into(), Relaxed);
        for soft in self.0.queues.iter().flat_map(|queue| &queue.softs) {
            soft.mode.ask(mode);
            soft.tell();
        }
        self.0.control.mode_asked();
    }

    /// From now on no request is posted again.
    pub(crate) fn lose_patience(&self) {
        for soft in self.0.queues.iter().flat_map(|queue| &queue.softs) {
            soft.requests().lose_patience();
            soft.tell();
        }
    }

    /// Requests that are not finished, over all queues.
    pub(crate) fn in_flight(&self) -> u32 {
        self.0.queues.iter().flat_map(|queue| &queue.softs).map(|soft| soft.open()).sum()
    }

    /// Which controller it is.
    pub fn description(&self) -> &Description {
        &self.0.description
    }

    /// The timing of an embedded controller.
    pub fn profile(&self) -> Option<&Profile> {
        Some(self.0.link.profile())
    }

    /// Whether the controller works, and what has happened to it.
    pub fn health(&self) -> Health {
        self.0.control.health()
    }

    /// What has been counted since it was opened.
    pub fn counters(&self) -> DeviceCounters {
        let mut sum =
            DeviceCounters { notify: self.0.link.notify_time(), leaked_bytes: self.0.pool().leaked(), ..DeviceCounters::default() };
        let mut vectors = Vec::new();
        for queue in &self.0.queues {
            let counters = queue.pair.counters();
            sum.sq_doorbells += counters.sq_doorbells;
            sum.cq_doorbells += counters.cq_doorbells;
            if !vectors.contains(&queue.vector) {
                vectors.push(queue.vector);
                sum.messages += self.0.link.messages(queue.vector);
                sum.notifications += self.0.link.vectors().notifications(queue.vector);
            }
        }
        sum
    }

    /// Keeps the embedded device's thread from sleeping, and counts its gaps, for as long as the guard lives.
    pub fn measure(&self) -> Measured {
        Measured::new(self.0.link.runner())
    }

    /// Stops the embedded devices' thread: from now on all embedded controllers of the process run by hand.
    pub fn by_hand(&self) -> ByHand {
        ByHand::new(self.0.link.runner())
    }

    /// The CPU that the embedded device's thread is pinned to.
    pub fn device_cpu(&self) -> Option<usize> {
        self.0.link.runner().cpu()
    }

    /// The housekeeping thread is to look at what it was asked for.
    pub(crate) fn kick_keeper(&self) {
        self.0.control.kick();
    }

    /// The device thread is to look at what happens to its controllers.
    pub(crate) fn kick_device(&self) {
        self.0.link.runner().kick();
    }

    /// Resets the controller now. Requests in flight are posted again.
    pub fn reset(&self) {
        self.0.control.ask_reset();
    }
}

impl DeviceCounters {
    /// Of both together.
    pub(crate) fn and(self, other: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            messages: self.messages + other.messages,
            notifications: self.notifications + other.notifications,
            notify: self.notify + other.notify,
            sq_doorbells: self.sq_doorbells + other.sq_doorbells,
            cq_doorbells: self.cq_doorbells + other.cq_doorbells,
            // Paths share their pool.
            leaked_bytes: self.leaked_bytes.max(other.leaked_bytes),
        }
    }
}

impl HardwareCounters {
    /// Of both together.
    pub(crate) fn and(self, other: HardwareCounters) -> HardwareCounters {
        HardwareCounters {
            finished: self.finished + other.finished,
            sq_doorbells: self.sq_doorbells + other.sq_doorbells,
            cq_doorbells: self.cq_doorbells + other.cq_doorbells,
            messages: self.messages + other.messages,
            drain_cpu: self.drain_cpu + other.drain_cpu,
            vector_finished: self.vector_finished + other.vector_finished,
        }
    }
}

impl Shared {
    pub(crate) fn mode(&self) -> Mode {
        Mode::try_from(self.mode.load(Relaxed)).unwrap_or(Mode::INTERRUPT)
    }

    pub(crate) fn mode_asked(&self) {
        self.control.mode_asked();
    }

    /// What policies are told of the user and the machine.
    pub(crate) fn tuning(&self) -> Tuning {
        Tuning { slack: self.slack, machine: cycle::known() }
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        self.link.pool()
    }

    pub(crate) fn hardware_counters(&self, queue: &HwQueue) -> HardwareCounters {
        let pair = queue.pair.counters();
        let vector_finished = self.queues.iter().filter(|q| q.vector == queue.vector).map(|q| q.pair.counters().finished).sum();
        HardwareCounters {
            finished: pair.finished,
            sq_doorbells: pair.sq_doorbells,
            cq_doorbells: pair.cq_doorbells,
            messages: self.link.messages(queue.vector),
            drain_cpu: queue.drain.cpu(),
            vector_finished,
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<(usize, u8)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn software_queues(&self) -> usize {
        self.queues.iter().map(|queue| queue.softs.len()).sum()
    }

    /// Says whether a request can be carried out on this device.
    #[inline]
    pub(crate) fn checker(&self) -> impl Fn(&Request) -> Result<(), Refused> {
        let (number, pool) = (self.link.number(), self.pool());
        move |request| {
            request.check()?;
            if request.namespace.device() != number {
                return Err(Refused::NoNamespace(request.namespace.nsid().0));
            }
            match &request.buf {
                Some(buf) if !pool.owns(buf) => Err(Refused::ForeignBuffer),
                _ => Ok(()),
            }
        }
    }

    /// A software queue is no longer used. What it has in flight is looked after by the housekeeping thread.
    pub(crate) fn give_back(&self, queue: &Arc<HwQueue>, me: u8) {
        if let Some(hardware) = self.queues.iter().position(|q| Arc::ptr_eq(q, queue)) {
            self.control.orphan(queue, me);
            self.free().push((hardware, me));
        }
    }
}
