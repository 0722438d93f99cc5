//! How far a completion queue really is.

use nvme::{Cid, Producer, QueueId};

/// Where a queue really is: swallowed and doubled entries shift what the controller means to post against what the
/// host finds.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) id: QueueId,
    pub(super) ring: Producer,
    pub(super) entries: u32,
    /// Entries swallowed less entries doubled.
    pub(super) shift: i64,
    /// Entries that the host has taken, and the head that said so.
    pub(super) taken: u64,
    pub(super) head: u32,
    /// The CID of the last entry that was posted.
    pub(super) last: Option<Cid>,
}

impl Posted {
    pub(super) fn new(entries: u32) -> Posted {
        let ring = Producer::new(entries);
        Posted { id: QueueId::ADMIN, ring, entries, shift: 0, taken: 0, head: 0, last: None }
    }

    pub(super) fn name(&mut self, id: QueueId) {
        self.id = id;
    }

    pub(super) fn look_at(&mut self, head: u32) {
        if head < self.entries {
            let moved = (head + self.entries - self.head) % self.entries;
            self.taken += u64::from(moved);
            self.head = head;
        }
    }

    /// The head that the controller is to see: as if every entry had gone its way.
    pub(super) fn intended_head(&mut self, head: u32) -> u32 {
        if head >= self.entries {
            return head;
        }
        self.look_at(head);
        let intended = self.taken.saturating_add_signed(self.shift);
        (intended % u64::from(self.entries)) as u32
    }
}
