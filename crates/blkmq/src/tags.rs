//! Tags: which of a queue's command slots are free.
//!
//! One thread at a time takes (whoever holds the SQ lock, with the [`Taker`]), any thread returns (whoever holds the CQ
//! lock, with a [`Returner`]). The two never share a lock, so the free tags travel through a bitmap of atomic words: a
//! reaper returns a whole batch with one `fetch_or` per word, the taker swaps out a word at a time and then takes tags
//! from it with plain arithmetic.

use handover::sync::atomic::AtomicU64;
use handover::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// One of a queue's command slots: below [`Tags::count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

const BITS: u32 = u64::BITS;

/// The free tags of one hardware queue, as far as the taker has not fetched them.
#[derive(Debug)]
pub struct Tags {
    returned: Box<[AtomicU64]>,
    count: u32,
}

/// The right to take tags; there is one per [`Tags`], kept under the SQ lock.
#[derive(Debug)]
pub struct Taker {
    /// Free tags that only this side knows of: bit `i` is tag `64 * at + i`.
    word: u64,
    at: u32,
}

/// Collects the tags of a batch and returns them together. Kept under the CQ lock, so that nothing is allocated.
#[derive(Debug)]
pub struct Returner {
    /// The word that tags are being noted for, and its tags: in most batches there is no other.
    at: u32,
    bits: u64,
    /// The other words of this batch, and which they are.
    words: Box<[u64]>,
    touched: Vec<u32>,
}

impl Tags {
    /// `count` tags (1 to 65,535), all free, and the right to take them.
    ///
    /// # Panics
    /// If `count` is 0 or above 65,535: tags are numbered with 16 bits and CID FFFFh is never used.
    pub fn new(count: u32) -> (Tags, Taker) {
        assert!((1..=65_535).contains(&count), "a queue has 1 to 65535 tags, not {count}");
        let words = count.div_ceil(BITS);
        let returned = (0..words).map(|at| AtomicU64::new(full_word(count, at))).collect();
        (Tags { returned, count }, Taker { word: 0, at: words - 1 })
    }

    /// How many tags there are, free or not.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A collector for returning tags.
    pub fn returner(&self) -> Returner {
        let words = self.returned.len();
        Returner { at: 0, bits: 0, words: vec![0; words].into(), touched: Vec::with_capacity(words) }
    }

    /// Returns one tag at once; the caller no longer uses it.
    pub fn give_back(&self, tag: Tag) {
        let (at, bit) = split(tag);
        self.give_back_word(at, bit);
    }

    #[inline]
    fn give_back_word(&self, at: u32, bits: u64) {
        if bits == 0 {
            return;
        }
        let Some(word) = self.returned.get(at as usize) else {
            debug_assert!(false, "tag word {at} does not exist");
            return;
        };
        // Release: whatever was read of a slot was read before the slot's next user writes it.
        let before = word.fetch_or(bits, Release);
        debug_assert_eq!(before & bits, 0, "tags of word {at} were returned twice");
    }
}

impl Taker {
    /// Takes a free tag; `None`: all are in use.
    #[inline]
    pub fn take(&mut self, tags: &Tags) -> Option<Tag> {
        if self.word == 0 && !self.refill(tags) {
            return None;
        }
        let bit = self.word.trailing_zeros();
        self.word &= self.word - 1;
        Some(Tag((self.at * BITS + bit) as u16))
    }

    /// Whether no tag is free now. Somebody who then waits for one must look again after making the wait known, because
    /// tags come back without a lock.
    pub fn exhausted(&self, tags: &Tags) -> bool {
        self.word == 0 && tags.returned.iter().all(|word| word.load(Relaxed) == 0)
    }

    /// Makes every tag free again, in use or not. For a reset: nobody may still hold a tag or be returning one.
    pub fn reset(&mut self, tags: &Tags) {
        self.word = 0;
        for (at, word) in (0..).zip(&tags.returned) {
            word.store(full_word(tags.count, at), Relaxed);
        }
    }

    /// Fetches the next word that has free tags, going round so that each word's turn comes.
    fn refill(&mut self, tags: &Tags) -> bool {
        let words = tags.returned.len() as u32;
        for _ in 0..words {
            self.at = if self.at + 1 >= words { 0 } else { self.at + 1 };
            let word = &tags.returned[self.at as usize];
            // The load keeps the cache line shared while there is nothing to fetch.
            if word.load(Relaxed) != 0 {
                self.word = word.swap(0, Acquire);
                return true;
            }
        }
        false
    }
}

impl Returner {
    /// Notes tags to be returned by the next [`Returner::flush`].
    #[inline]
    pub fn add(&mut self, tags: impl IntoIterator<Item = Tag>) {
        let (mut at, mut bits) = (self.at, self.bits);
        for tag in tags {
            let (word, bit) = split(tag);
            if word != at {
                self.put_aside(at, bits);
                (at, bits) = (word, 0);
            }
            bits |= bit;
        }
        (self.at, self.bits) = (at, bits);
    }

    /// Returns what was noted: one atomic operation per word touched.
    #[inline]
    pub fn flush(&mut self, tags: &Tags) {
        if !self.touched.is_empty() {
            self.flush_aside(tags);
        }
        tags.give_back_word(self.at, std::mem::take(&mut self.bits));
    }

    #[cold]
    #[inline(never)]
    fn put_aside(&mut self, at: u32, bits: u64) {
        let Some(word) = self.words.get_mut(at as usize) else {
            debug_assert!(false, "tag word {at} does not exist");
            return;
        };
        if *word == 0 && bits != 0 {
            self.touched.push(at);
        }
        *word |= bits;
    }

    #[cold]
    #[inline(never)]
    fn flush_aside(&mut self, tags: &Tags) {
        self.put_aside(self.at, self.bits);
        self.bits = 0;
        while let Some(at) = self.touched.pop() {
            tags.give_back_word(at, std::mem::take(&mut self.words[at as usize]));
        }
    }
}

fn split(tag: Tag) -> (u32, u64) {
    (u32::from(tag.0) / BITS, 1 << (u32::from(tag.0) % BITS))
}

/// Word `at` of a bitmap of `count` ones.
fn full_word(count: u32, at: u32) -> u64 {
    let rest = count - at * BITS;
    if rest >= BITS { u64::MAX } else { (1 << rest) - 1 }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
