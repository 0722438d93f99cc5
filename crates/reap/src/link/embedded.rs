//! The embedded controller's end of the link: its port over the host's memory, and how it is put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{Ana, BusError, Config, Controller, Mem, Namespace, Port, Profile, Step, Subsystem};
use handover::Gate;
use hw::{Bar, CqRing, DmaPool, OutOfPool, SqRing, Vectors};
use nvme::{Doorbells, Registers, Vector};
use units::Nanos;

use super::faults::Faulty;
use super::media::FileMedia;
use super::runner::{Runner, Stepper};
use crate::device::OpenOptions;
use crate::error::OpenError;
use crate::uri::{Backing, DeviceUri};

/// What link and device thread share of one controller.
pub(super) struct Attachment {
    detached: AtomicBool,
    /// Nanoseconds spent on sending messages.
    pub notify_ns: AtomicU64,
    /// By vector, when the first message was sent that nobody has asked after yet; 0: none.
    message_at: Box<[AtomicU64]>,
    /// Between the controller and the host's memory, where it can be cut off from it.
    pub gate: Option<Gate>,
}

impl Attachment {
    fn new(vectors: u16, gate: Option<Gate>) -> Attachment {
        let message_at = (0..vectors).map(|_| AtomicU64::new(0)).collect();
        Attachment { detached: AtomicBool::new(false), notify_ns: AtomicU64::new(0), message_at, gate }
    }

    fn message_sent(&self, vector: Vector, at: Nanos) {
        if let Some(first) = self.message_at.get(usize::from(vector.0))
            && first.load(Ordering::Relaxed) == 0
        {
            first.store(at.0, Ordering::Relaxed);
        }
    }

    pub(super) fn take_message_time(&self, vector: Vector) -> Option<Nanos> {
        let at = self.message_at.get(usize::from(vector.0))?.swap(0, Ordering::Relaxed);
        (at > 0).then_some(Nanos(at))
    }

    pub(super) fn detach(&self) {
        self.detached.store(true, Ordering::Release);
    }

    pub(super) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }
}

/// The host as the controller sees it.
pub(super) struct EmbeddedPort {
    pool: DmaPool,
    bar: Arc<Bar>,
    vectors: Arc<Vectors>,
    attachment: Arc<Attachment>,
}

impl Port for EmbeddedPort {
    type Sq = SqRing;
    type Cq = CqRing;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<SqRing, BusError> {
        self.pool.sq(addr, entries).ok_or(BusError { addr, len: u64::from(entries) << nvme::Sqe::SIZE_LOG2 })
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<CqRing, BusError> {
        self.pool.cq(addr, entries).ok_or(BusError { addr, len: u64::from(entries) << nvme::Cqe::SIZE_LOG2 })
    }

    #[inline]
    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        let _inside = self.enter(addr, into.len())?;
        self.pool.dma_read(addr, into).map_err(refused)
    }

    #[inline]
    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        let _inside = self.enter(addr, from.len())?;
        self.pool.dma_write(addr, from).map_err(refused)
    }

    #[inline]
    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.pool.check(addr, len).map_err(refused)
    }

    #[inline]
    fn doorbells(&self) -> &impl Doorbells {
        &*self.bar
    }

    #[inline]
    fn registers(&self) -> &impl Registers {
        &*self.bar
    }

    fn message(&self, vector: Vector) -> bool {
        // The clock is only read where a message is likely: the mask is read again, properly, by `message`.
        let armed = self.vectors.bell(vector).is_some_and(handover::Bell::is_armed);
        let before = if armed { hw::now() } else { Nanos::ZERO };
        if armed {
            self.attachment.message_sent(vector, before);
        }
        let sent = self.vectors.message(vector);
        if armed && sent {
            // One writer: the device thread.
            let spent = self.attachment.notify_ns.load(Ordering::Relaxed) + (hw::now() - before).0;
            self.attachment.notify_ns.store(spent, Ordering::Relaxed);
        }
        sent
    }
}

impl EmbeddedPort {
    /// While the result lives the host does not take the memory back.
    #[inline]
    fn enter(&self, addr: u64, len: usize) -> Result<Option<handover::Pass<'_>>, BusError> {
        let Some(gate) = &self.attachment.gate else { return Ok(None) };
        gate.enter().map(Some).ok_or(BusError { addr, len: len as u64 })
    }
}

fn refused(error: OutOfPool) -> BusError {
    BusError { addr: error.addr, len: error.len }
}

impl<P: Port + Send> Stepper for Controller<P>
where
    P::Sq: Send,
    P::Cq: Send,
{
    fn step(&mut self, now: Nanos) -> Step {
        Controller::step(self, now)
    }
}

/// What a controller can reach of its host.
pub(super) struct Host<'a> {
    pub pool: &'a DmaPool,
    pub bar: &'a Arc<Bar>,
    pub vectors: &'a Arc<Vectors>,
}

/// What a controller that is one of several paths has beside what its URI says.
pub(crate) struct Member<'a> {
    /// Whose controller it becomes; its namespaces are the controller's.
    pub subsystem: &'a mut Subsystem,
    /// The state of its ANA group at power-on.
    pub ana: nvme::AnaState,
}

/// Puts together the controller of `uri` and hands it to the device thread.
pub(super) fn attach(
    uri: &DeviceUri,
    options: &OpenOptions,
    profile: &Profile,
    Host { pool, bar, vectors }: Host<'_>,
    runner: &Runner,
    member: Option<Member<'_>>,
) -> Result<Arc<Attachment>, OpenError> {
    let mut config = Config::new(profile.clone());
    config.seed = uri.seed;
    config.queue_pairs = uri.queues;
    config.queue_entries = uri.entries;
    config.vectors = uri.vectors;
    let attachment = Arc::new(Attachment::new(vectors.len(), member.as_ref().map(|_| Gate::default())));
    let port = EmbeddedPort { pool: pool.clone(), bar: bar.clone(), vectors: vectors.clone(), attachment: attachment.clone() };
    let stepper: Box<dyn Stepper> = match (&options.faults, &options.stamps) {
        (None, None) => Box::new(controller(config, uri, member, port)?),
        (None, Some(stamps)) => Box::new(controller(config, uri, member, stamps.wrap(port))?),
        (Some(faults), _) => {
            let port = faults.wrap(port);
            let controller = controller(config, uri, member, port.clone())?;
            Box::new(Faulty { controller, port, faults: faults.clone(), bar: bar.clone() })
        }
    };
    runner.attach(stepper, attachment.clone());
    Ok(attachment)
}

/// A controller of its own, or one of a subsystem.
fn controller<P: Port>(mut config: Config, uri: &DeviceUri, member: Option<Member<'_>>, port: P) -> Result<Controller<P>, OpenError> {
    let Some(Member { subsystem, ana }) = member else { return Ok(Controller::new(config, namespaces(uri)?, port)) };
    config.controller_id = subsystem.next_controller_id();
    config.ana = Some(Ana::new(ana));
    subsystem.controller(config, Vec::new(), port).map_err(|e| OpenError::Options(e.to_string()))
}

/// A subsystem with the namespaces of `uri`, and no controller yet.
pub(crate) fn subsystem(uri: &DeviceUri, nqn: &str) -> Result<Subsystem, OpenError> {
    let options = |e: device::SubsystemError| OpenError::Options(e.to_string());
    let mut subsystem = Subsystem::new(nqn).map_err(options)?;
    for namespace in namespaces(uri)? {
        subsystem.share(namespace).map_err(options)?;
    }
    Ok(subsystem)
}

fn namespaces(uri: &DeviceUri) -> Result<Vec<Namespace>, OpenError> {
    match &uri.backing {
        Backing::Mem { bytes } => {
            let budget = device::Budget::new(uri.alloc_limit.unwrap_or_else(|| hw::memory_bytes() / 4));
            let namespace = |_| Namespace::mem(Mem::new(*bytes, budget.clone()), uri.lba_bytes).map_err(|e| bad_size(uri, e));
            (0..uri.namespaces).map(namespace).collect()
        }
        Backing::File { path, bytes } => {
            if uri.namespaces != 1 {
                return Err(media(path, "a file holds one namespace; leave `namespaces=` out"));
            }
            let file = FileMedia::open(path, *bytes, uri.lba_bytes)?;
            Ok(vec![Namespace::new(file, uri.lba_bytes).map_err(|e| media(path, &e.to_string()))?])
        }
    }
}

fn bad_size(uri: &DeviceUri, error: device::NamespaceError) -> OpenError {
    OpenError::Profile { name: uri.to_string(), what: error.to_string() }
}

fn media(path: &std::path::Path, what: &str) -> OpenError {
    OpenError::Media { path: path.to_owned(), what: what.to_owned(), source: None }
}
