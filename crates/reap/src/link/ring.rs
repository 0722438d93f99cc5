//! A controller reached through rings in memory that both sides share: its registers and doorbells, its vectors.
//!
//! | question | file |
//! | --- | --- |
//! | where are commands posted and completions found? | `lane.rs`, over `pair.rs` |
//! | how is a lane watched, closed and emptied? | `tended.rs` |
//! | where are the lists of long transfers? | `prp_table.rs` |
//!
//! The controller is the embedded one so far. The driver above cannot tell it from a PCIe device.

mod lane;
mod pair;
mod prp_table;
mod tended;

use std::sync::Arc;

use hw::{DmaPool, EventFd, Memory, Region, RegisterError, Vectors};
use nvme::{Doorbells, Vector};

use super::embedded::{self, Bells, EmbeddedOptions, End, Host, HostProperties, Member};
use super::facts::{Facts, Mask, Messages, Reaper};
use super::number::next_number;
use crate::error::OpenError;
use crate::uri::{DeviceUri, Wire};
pub(crate) use prp_table::PrpTable;

pub(crate) use lane::{RingLane, RingPosting};
pub(super) use lane::{command, dataless};
pub(crate) use pair::{Pair, Rings};
pub(super) use tended::Between;
pub(crate) use tended::{Held, Tended};

/// Most bytes of one command, whatever its buffer's offset: what a list of the PRP table describes.
pub(crate) const MAX_TRANSFER: u32 = PrpTable::MAX_BYTES;

/// Memory that controllers reach, and the PRP lists of its buffers: of one controller, or of all the paths of a device.
#[derive(Clone)]
pub(crate) struct Reach {
    pub pool: DmaPool,
    lists: Arc<PrpTable>,
}

impl Reach {
    /// Memory of `bytes` for buffers and rings.
    ///
    /// # Errors
    /// The system has no such range of addresses.
    pub(crate) fn new(bytes: u64) -> Result<Reach, OpenError> {
        let pool = DmaPool::new(bytes).map_err(|source| OpenError::System { what: "buffer pool", source })?;
        let lists = PrpTable::new(&pool).map_err(|_| OpenError::PoolTooSmall { bytes, queues: 0 })?;
        Ok(Reach { pool, lists: Arc::new(lists) })
    }
}

/// A controller within reach: its memory, its registers and doorbells, its vectors.
pub(crate) struct RingLink {
    reach: Reach,
    vectors: Arc<Vectors>,
    facts: Facts,
    bells: Bells,
    properties: HostProperties,
    end: End,
    number: u32,
}

impl RingLink {
    /// Builds the controller that `uri` describes and sets it going. Where it is one of several paths, it is a
    /// `member` of a subsystem.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn embedded(
        uri: &DeviceUri,
        options: &EmbeddedOptions,
        reach: Reach,
        member: Option<Member<'_>>,
    ) -> Result<RingLink, OpenError> {
        let mask = match (uri.wire, uri.masks) {
            (Wire::Rings, true) => Mask::Bit,
            (Wire::Rings, false) => Mask::Unread,
            _ => Mask::Unwatched,
        };
        let reaper = if uri.owner { Reaper::Owner } else { Reaper::Any };
        let vectors = Vectors::new(uri.vectors, uri.masks).map_err(|source| OpenError::System { what: "vectors", source })?;
        let vectors = Arc::new(vectors);
        let messages = match uri.wire {
            Wire::Rings if vectors.are_counted() => Messages::Exact,
            Wire::Rings => Messages::Unknown,
            _ => Messages::Wakeups,
        };
        let facts = Facts { mask, reaper, messages };
        let (bells, end) = embedded::attach(uri, options, Host { pool: &reach.pool, vectors: &vectors }, member)?;
        let properties = HostProperties::new(bells.clone(), uri.late_properties.then_some(uri.seed));
        Ok(RingLink { reach, vectors, facts, bells, properties, end, number: next_number() })
    }

    /// The PRP lists of every buffer of the pool.
    pub(crate) fn prp_table(&self) -> Arc<PrpTable> {
        self.reach.lists.clone()
    }

    /// Memory of the caller's that the controller can reach from now on.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub(crate) fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        prp_table::register(&self.reach.pool, memory)
    }

    /// The controller does not answer: from now on it cannot reach the host's memory. False: nothing can keep it from that.
    pub(crate) fn cut_off(&self) -> bool {
        self.end.cut_off()
    }

    /// The controller has stopped, and forgotten what it was to do.
    pub(crate) fn let_in(&self) {
        self.end.let_in();
    }

    /// A number that no other link of the process has.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The buffer pool that the controller reaches.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        &self.reach.pool
    }

    /// The controller's end, where it is in this process.
    pub(crate) fn end(&self) -> Option<&End> {
        Some(&self.end)
    }

    /// What it can do, and what not.
    pub(crate) fn facts(&self) -> Facts {
        self.facts
    }

    /// Whether a hardware queue is to have a second lane, which does not notify: where notifications cannot be masked.
    pub(crate) fn has_two_lanes(&self) -> bool {
        self.facts.mask == Mask::Unread
    }

    /// The vector of the n-th of `queues` I/O queues, and whether it is that queue's alone and may therefore be masked.
    /// Vector 0 is the admin queue's, and shared only if there is no other.
    pub(crate) fn vector_of(&self, n: usize, queues: usize) -> (Vector, bool) {
        let masks = self.facts.mask == Mask::Bit;
        match usize::from(self.vectors.len()).saturating_sub(1) {
            0 => (Vector(0), false),
            io => (Vector((1 + n % io) as u16), masks && n < io && n + io >= queues),
        }
    }

    /// What a vector's messages signal; `None`: there is no such vector.
    pub(crate) fn eventfd(&self, vector: Vector) -> Option<&EventFd> {
        self.vectors.eventfd(vector)
    }

    /// Allows the messages of a vector.
    #[inline]
    pub(crate) fn arm(&self, vector: Vector) {
        self.bells.unmask(&self.vectors, vector);
    }

    /// Doorbells, for the host.
    #[inline]
    pub(crate) fn doorbells(&self) -> &impl Doorbells {
        &self.bells
    }

    /// Properties, for the thread that looks after the controller.
    pub(crate) fn properties(&self) -> &HostProperties {
        &self.properties
    }

    /// Messages of one vector so far, as the host's eventfd has counted them.
    pub(crate) fn messages(&self, vector: Vector) -> u64 {
        self.vectors.messages(vector)
    }

    /// Notifications that came of messages, and were signalled by this vector's eventfd.
    pub(crate) fn notifications(&self, vector: Vector) -> u64 {
        self.vectors.notifications(vector)
    }
}

impl Drop for RingLink {
    fn drop(&mut self) {
        self.end.detach();
    }
}
