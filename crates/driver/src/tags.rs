//! Tags: the free command slots of a queue pair.
//!
//! One thread at a time takes tags (the holder of the SQ lock, with the [`Taker`]), and one returns
//! them (the holder of the CQ lock, with the [`Returner`]). They share no lock. So free tags travel
//! through a ring with one producer and one consumer:
//!
//! ```text
//!   returner:  ring[stored++] = tag, for each of a batch     returned = stored (release)
//!   taker:     tag = ring[taken++], until taken == known     then known = returned (acquire)
//! ```
//!
//! There is no locked instruction, and the taker reads the shared counter only when it has used up
//! the tags it knows of. Tags are taken in the order in which they were returned, so each stays
//! free for as long as possible. When a repeated completion arrives, its tag is then usually free,
//! so that the repetition is recognised.

use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicU16, AtomicU32};

/// The number of a command slot, below the number of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(pub(crate) u16);

/// The free tags of a queue pair.
#[derive(Debug)]
pub(crate) struct Tags {
    /// At least one place per tag, a power of two: a returned tag never overwrites one that was not
    /// taken.
    ring: Box<[AtomicU16]>,
    mask: u32,
    /// Tags returned so far, modulo 2^32.
    returned: AtomicU32,
    count: u32,
}

/// The right to take tags. There is one per [`Tags`], kept under the SQ lock.
#[derive(Debug)]
pub(crate) struct Taker {
    /// Tags taken so far, modulo 2^32.
    taken: u32,
    /// [`Tags::returned`] as last read.
    known: u32,
}

/// The right to return tags. There is one per [`Tags`], kept under the CQ lock.
#[derive(Debug)]
pub(crate) struct Returner {
    /// Tags stored so far, published or not.
    stored: u32,
}

/// A batch of tags to return. It holds the count by value, so that the reaping loop keeps it in a
/// register.
#[derive(Debug)]
pub(crate) struct ReturnBatch<'a> {
    tags: &'a Tags,
    stored: u32,
}

impl Tags {
    /// `count` free tags (1 to 65,535), and the rights to take and to return them.
    ///
    /// # Panics
    ///
    /// If `count` is 0 or above 65,535: tags have 16 bits, and CID FFFFh is never used.
    pub(crate) fn new(count: u32) -> (Tags, Taker, Returner) {
        assert!((1..=65_535).contains(&count), "a queue has 1 to 65535 tags, not {count}");
        let ring = (0..count.next_power_of_two()).map(|tag| AtomicU16::new(tag as u16)).collect();
        let tags = Tags {
            ring,
            mask: count.next_power_of_two() - 1,
            returned: AtomicU32::new(count),
            count,
        };
        (tags, Taker { taken: 0, known: count }, Returner { stored: count })
    }

    /// The place of the `n`-th tag ever returned; the ring has `mask + 1` places.
    #[inline]
    fn place(&self, n: u32) -> &AtomicU16 {
        &self.ring[(n & self.mask) as usize]
    }
}

impl Taker {
    /// Takes a free tag. `None`: all are in use.
    pub(crate) fn take(&mut self, tags: &Tags) -> Option<Tag> {
        if self.taken == self.known {
            // Acquire: the reaper's reads of the command slot come before this side's writes to it.
            self.known = tags.returned.load(Acquire);
        }
        self.take_known(tags)
    }

    /// Takes a free tag that this side knows of. `None`: [`Taker::take`] may find more.
    #[inline]
    pub(crate) fn take_known(&mut self, tags: &Tags) -> Option<Tag> {
        if self.taken == self.known {
            return None;
        }
        let tag = tags.place(self.taken).load(Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some(Tag(tag))
    }

    /// Forgets the free tags that this side knows of; [`Taker::take`] finds them again.
    pub(crate) fn forget(&mut self) {
        self.known = self.taken;
    }

    /// Whether no tag is free now. A thread that waits for one must check again after making its
    /// wait visible, because tags are returned without a lock.
    pub(crate) fn exhausted(&self, tags: &Tags) -> bool {
        self.taken == tags.returned.load(Relaxed)
    }

    /// Makes every tag free, for a reset. No thread may still use one.
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
    /// Begins a batch, which has to be passed to [`Returner::end`].
    #[inline]
    pub(crate) fn batch<'a>(&self, tags: &'a Tags) -> ReturnBatch<'a> {
        ReturnBatch { tags, stored: self.stored }
    }

    /// Ends a batch.
    #[inline]
    pub(crate) fn end(&mut self, batch: ReturnBatch<'_>) {
        self.stored = batch.stored;
    }

    /// Adds a tag for the next [`Returner::flush`]; its command has ended.
    #[inline]
    pub(crate) fn add(&mut self, tags: &Tags, tag: Tag) {
        tags.place(self.stored).store(tag.0, Relaxed);
        self.stored = self.stored.wrapping_add(1);
    }

    /// Returns the tags added.
    #[inline]
    pub(crate) fn flush(&mut self, tags: &Tags) {
        // Release: the tags are in the ring, and the reads of their slots are done, before the
        // taker sees the count.
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
