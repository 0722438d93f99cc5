//! Links: how a host reaches a controller.
//!
//! There is one so far, the embedded link: `device`'s controller in this process, over memory that both sides share,
//! with eventfds for vectors, as VFIO gives them. The driver above cannot tell it from a PCIe device.

mod embedded;
mod faults;
mod media;
pub(crate) mod profile;
mod properties;
mod runner;
mod stamps;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use ::device::Profile;
use hw::{Bar, DmaPool, Vectors};
use nvme::{Doorbells, QueueId, Registers, Vector};
use units::Nanos;

use crate::device::OpenOptions;
use crate::error::OpenError;
use crate::multipath::Seat;
use crate::uri::DeviceUri;
use embedded::Attachment;
use properties::HostProperties;
use runner::Runner;

/// log2 of the doorbell stride in bytes (CAP.DSTRD is two less): no two doorbells share a cache line.
const DOORBELL_STRIDE_LOG2: u32 = 6;

/// A controller within reach: its memory, its registers and doorbells, its vectors.
pub(crate) struct Link {
    pool: DmaPool,
    vectors: Arc<Vectors>,
    bells: Bells,
    properties: HostProperties,
    attachment: Arc<Attachment>,
    profile: Profile,
    seat: Option<Seat>,
    number: u32,
}

/// The host's writes to doorbells and registers. A device that sleeps for want of work is told of each.
#[derive(Clone)]
pub(crate) struct Bells {
    bar: Arc<Bar>,
    runner: Arc<Runner>,
}

impl Link {
    /// Builds the controller that `uri` describes and sets it going.
    pub(crate) fn embedded(uri: &DeviceUri, options: &OpenOptions) -> Result<Link, OpenError> {
        Link::build(uri, options, Link::new_pool(options)?, None)
    }

    /// The same as one of several paths, all of which reach `pool`.
    pub(crate) fn path(uri: &DeviceUri, options: &OpenOptions, pool: &DmaPool, member: Member<'_>, seat: Seat) -> Result<Link, OpenError> {
        Link::build(uri, options, pool.clone(), Some((member, seat)))
    }

    /// Memory for buffers and rings.
    pub(crate) fn new_pool(options: &OpenOptions) -> Result<DmaPool, OpenError> {
        DmaPool::new(options.pool_bytes).map_err(|source| OpenError::System { what: "buffer pool", source })
    }

    fn build(uri: &DeviceUri, options: &OpenOptions, pool: DmaPool, path: Option<(Member<'_>, Seat)>) -> Result<Link, OpenError> {
        let system = |what| move |source| OpenError::System { what, source };
        let (member, seat) = path.unzip();
        let bar = Arc::new(Bar::new(DOORBELL_STRIDE_LOG2, uri.queues + 1));
        let vectors = Arc::new(Vectors::new(uri.vectors).map_err(system("vectors"))?);
        let runner = Runner::shared(options.device_cpu).map_err(system("device thread"))?;
        let profile = uri.load_profile()?;
        let host = embedded::Host { pool: &pool, bar: &bar, vectors: &vectors };
        let attachment = embedded::attach(uri, options, &profile, host, &runner, member)?;
        let bells = Bells { bar, runner };
        let properties = HostProperties::new(bells.clone(), uri.late_properties.then_some(uri.seed));
        Ok(Link { pool, vectors, bells, properties, attachment, profile, seat, number: Link::next_number() })
    }

    /// A number that nothing else that has namespaces has.
    pub(crate) fn next_number() -> u32 {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        NUMBERS.fetch_add(1, Relaxed)
    }

    /// Where it is one of several paths: who is to know of it.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// The controller does not answer: from now on it cannot reach the host's memory. False: nothing can keep it from that.
    pub(crate) fn cut_off(&self) -> bool {
        self.attachment.gate.as_ref().map(handover::Gate::shut).is_some()
    }

    /// The controller has stopped, and forgotten what it was to do.
    pub(crate) fn let_in(&self) {
        if let Some(gate) = &self.attachment.gate {
            gate.open();
        }
    }

    /// A number that no other link of the process has.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The buffer pool that the controller reaches.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        &self.pool
    }

    /// The timing of the embedded controller.
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The vectors: masks, eventfds and message counts.
    pub(crate) fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    /// Doorbells, for the host.
    #[inline]
    pub(crate) fn doorbells(&self) -> &Bells {
        &self.bells
    }

    /// Properties, for whoever looks after the controller.
    pub(crate) fn properties(&self) -> &HostProperties {
        &self.properties
    }

    /// Time that the device spent on sending messages: what the host's notifications cost somebody else.
    pub(crate) fn notify_time(&self) -> Nanos {
        Nanos(self.attachment.notify_ns.load(Relaxed))
    }

    /// When the first message of a vector was sent that nobody has asked after yet.
    pub(crate) fn take_message_time(&self, vector: Vector) -> Option<Nanos> {
        self.attachment.take_message_time(vector)
    }

    /// Messages of one vector so far.
    pub(crate) fn messages(&self, vector: Vector) -> u64 {
        self.vectors.messages(vector)
    }

    /// While held, the device never sleeps, and gaps in its running are counted.
    pub(crate) fn runner(&self) -> &Arc<Runner> {
        &self.bells.runner
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.attachment.detach();
        self.bells.runner.kick();
    }
}

impl Doorbells for Bells {
    #[inline]
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.bar.ring_sq(queue, tail);
        self.runner.tell();
    }

    /// The device is not told: a completion queue holds as many entries as its queue has tags, so no completion waits
    /// for the head doorbell.
    #[inline]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.bar.ring_cq(queue, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.bar.sq_tail(queue)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.bar.cq_head(queue)
    }
}

impl Registers for Bells {
    fn read32(&self, offset: u32) -> u32 {
        self.bar.read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        self.bar.write32(offset, value);
        self.runner.tell();
    }
}

pub(crate) use embedded::{Member, subsystem};
pub use faults::Faults;
pub use runner::{ByHand, Measured};
pub use stamps::{Stamp, Stamps};
