//! Tags: which of a queue's command slots are free.
//!
//! One thread at a time takes (the holder of the SQ lock, with the [`Taker`]), one returns (the holder of the CQ lock,
//! with the [`Returner`]), and the two never share a lock. So the free tags travel through a ring with one producer and
//! one consumer: a reaper stores each tag of a batch and then publishes all of them with one store, the taker loads
//! until it comes to the end that it knows of, and only then looks how far the other is. No locked instruction anywhere.
//! Tags are taken in the order in which they came back, so that each rests for as long as there are others.

use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicU16, AtomicU32};

/// One of a queue's command slots: below their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(pub(crate) u16);

/// The free tags of one hardware queue.
#[derive(Debug)]
pub(crate) struct Tags {
    /// As many places as tags or more, a power of two: a returned tag never meets one that was not taken.
    ring: Box<[AtomicU16]>,
    mask: u32,
    /// Tags returned so far, modulo 2^32.
    returned: AtomicU32,
    count: u32,
}

/// The right to take tags; there is one per [`Tags`], kept under the SQ lock.
#[derive(Debug)]
pub(crate) struct Taker {
    /// Tags taken so far, modulo 2^32.
    taken: u32,
    /// [`Tags::returned`], as last read.
    known: u32,
}

/// The right to return tags; there is one per [`Tags`], kept under the CQ lock.
#[derive(Debug)]
pub(crate) struct Returner {
    /// Tags stored so far, published or not.
    stored: u32,
}

/// The tags of a batch: the count of them, by value, so that it stays in a register of the loop.
#[derive(Debug)]
pub(crate) struct ReturnBatch<'a> {
    tags: &'a Tags,
    stored: u32,
}

impl Tags {
    /// `count` tags (1 to 65,535), all free, and the rights to take and to return them.
    ///
    /// # Panics
    /// If `count` is 0 or above 65,535: tags are numbered with 16 bits and CID FFFFh is never used.
    pub(crate) fn new(count: u32) -> (Tags, Taker, Returner) {
        assert!((1..=65_535).contains(&count), "a queue has 1 to 65535 tags, not {count}");
        let ring = (0..count.next_power_of_two()).map(|tag| AtomicU16::new(tag as u16)).collect();
        let tags = Tags { ring, mask: count.next_power_of_two() - 1, returned: AtomicU32::new(count), count };
        (tags, Taker { taken: 0, known: count }, Returner { stored: count })
    }

    /// The place of the tag that is the `n`-th ever; the ring has one more than `mask`.
    #[inline]
    fn place(&self, n: u32) -> &AtomicU16 {
        &self.ring[(n & self.mask) as usize]
    }
}

impl Taker {
    /// Takes a free tag; `None`: all are in use.
    pub(crate) fn take(&mut self, tags: &Tags) -> Option<Tag> {
        if self.taken == self.known {
            // Acquire: whatever was read of a slot was read before this side writes it.
            self.known = tags.returned.load(Acquire);
        }
        self.take_known(tags)
    }

    /// Takes a free tag that this side knows of; `None`: [`Taker::take`] may know more.
    #[inline]
    pub(crate) fn take_known(&mut self, tags: &Tags) -> Option<Tag> {
        if self.taken == self.known {
            return None;
        }
        let tag = tags.place(self.taken).load(Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some(Tag(tag))
    }

    /// Knows of no free tag any more, until it looks.
    pub(crate) fn forget(&mut self) {
        self.known = self.taken;
    }

    /// Whether no tag is free now. Somebody who then waits for one must look again after making the wait known, because
    /// tags come back without a lock.
    pub(crate) fn exhausted(&self, tags: &Tags) -> bool {
        self.taken == tags.returned.load(Relaxed)
    }

    /// Makes every tag free again, in use or not. For a reset: nobody may still hold a tag.
    pub(crate) fn reset(&mut self, returner: &mut Returner, tags: &Tags) {
        for (tag, place) in (0..).zip(&tags.ring) {
            place.store(tag, Relaxed);
        }
        (self.taken, self.known, returner.stored) = (0, tags.count, tags.count);
        tags.returned.store(tags.count, Release);
    }
}

impl<'a> ReturnBatch<'a> {
    /// As [`Returner::add`].
    #[inline]
    pub(crate) fn add(&mut self, tag: Tag) {
        self.tags.place(self.stored).store(tag.0, Relaxed);
        self.stored = self.stored.wrapping_add(1);
    }
}

impl Returner {
    /// Begins to note the tags of a batch; [`Returner::end`] it.
    #[inline]
    pub(crate) fn batch<'a>(&self, tags: &'a Tags) -> ReturnBatch<'a> {
        ReturnBatch { tags, stored: self.stored }
    }

    /// The tags of the batch are noted.
    #[inline]
    pub(crate) fn end(&mut self, batch: ReturnBatch<'_>) {
        self.stored = batch.stored;
    }

    /// Notes a tag to be returned by the next [`Returner::flush`]; its holder no longer uses it.
    #[inline]
    pub(crate) fn add(&mut self, tags: &Tags, tag: Tag) {
        tags.place(self.stored).store(tag.0, Relaxed);
        self.stored = self.stored.wrapping_add(1);
    }

    /// Returns what was noted.
    #[inline]
    pub(crate) fn flush(&mut self, tags: &Tags) {
        // Release: the tags, and whatever was read of their slots, are there before the taker comes.
        tags.returned.store(self.stored, Release);
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/tags_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, loom))]
#[path = "../tests/unit/wait_list_models.rs"]
mod wait_list_models;
