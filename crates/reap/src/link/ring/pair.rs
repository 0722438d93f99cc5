//! A queue pair over memory of the link's pool.

use driver::{Exclusive, QueuePair, QueueSizes};
use hw::{CqRing, RingMemory, SqRing};
use nvme::QueueId;

use super::RingLink;

/// A queue pair over rings in the link's pool.
pub(crate) type Pair = QueuePair<SqRing, CqRing>;

/// A queue pair that no thread posts to or reaps.
pub(crate) type HeldPair<'a> = Exclusive<'a, SqRing, CqRing>;

/// Ring memory of a queue pair. The controller may use it for as long as this lives.
pub(crate) struct Rings {
    sq: RingMemory,
    cq: RingMemory,
}

impl Rings {
    /// Memory for rings of these sizes.
    ///
    /// # Errors
    /// The pool has no room for them.
    pub(crate) fn new(link: &RingLink, sizes: QueueSizes) -> Result<Rings, hw::AllocError> {
        let sq = link.pool().alloc_ring((sizes.sq_entries as usize) << nvme::Sqe::SIZE_LOG2)?;
        let cq = link.pool().alloc_ring((sizes.cq_entries as usize) << nvme::Cqe::SIZE_LOG2)?;
        Ok(Rings { sq, cq })
    }

    /// Bus addresses of submission and completion queue.
    pub(crate) fn addrs(&self) -> (u64, u64) {
        (self.sq.addr(), self.cq.addr())
    }

    /// The queue pair over this memory. `None` only if the sizes are not those it was made for.
    pub(crate) fn pair(&self, link: &RingLink, id: QueueId, sizes: QueueSizes) -> Option<Pair> {
        let sq = link.pool().sq(self.sq.addr(), sizes.sq_entries)?;
        let cq = link.pool().cq(self.cq.addr(), sizes.cq_entries)?;
        QueuePair::new(id, sizes, sq, cq).ok()
    }
}
