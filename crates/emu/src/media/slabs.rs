//! Page allocator of sparse media: slabs of pages, allocated from a budget and returned to it.

use std::collections::BTreeSet;

use super::MediaError;
use super::budget::Budget;

/// Bytes of a page, the unit of allocation for writes.
pub(super) const PAGE: u64 = 4096;

/// Pages of a slab, the unit that is taken from the memory allocator and the [`Budget`].
pub(super) const SLAB_PAGES: u64 = 256;

/// State of an allocated slab.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Bitmap of the used pages.
    taken: [u64; (SLAB_PAGES / 64) as usize],
    count: u16,
    /// Pages from this index on were never used, and are still zero.
    touched: u16,
}

impl Usage {
    /// The first free page of `pages`.
    fn first_free(&self, pages: u16) -> Option<u16> {
        let words = (0u16..).zip(&self.taken).find(|(_, word)| **word != u64::MAX);
        words.map(|(n, word)| n * 64 + word.trailing_ones() as u16).filter(|&page| page < pages)
    }

    fn set(&mut self, page: u16, taken: bool) {
        let (word, bit) = (usize::from(page / 64), 1 << (page % 64));
        if taken {
            self.taken[word] |= bit;
            self.count += 1;
        } else {
            self.taken[word] &= !bit;
            self.count -= 1;
        }
    }
}

/// Slabs of pages with consecutive page numbers. A slab is freed with its last page.
#[derive(Debug)]
pub(super) struct Slabs {
    budget: Budget,
    /// Memory of each slab; empty if it was freed.
    memory: Vec<Box<[u8]>>,
    usage: Vec<Usage>,
    /// Slabs with free pages. The lowest is used first, so that a sequential fill is contiguous.
    partial: BTreeSet<u32>,
    /// Freed slabs, whose numbers can be reused.
    gone: Vec<u32>,
    /// Pages per slab.
    pages: u16,
    /// Pages in use.
    pub(super) in_use: u64,
}

impl Slabs {
    /// For a medium of `pages` pages; a small medium has small slabs.
    pub(super) fn new(pages: u64, budget: Budget) -> Slabs {
        let pages = SLAB_PAGES.min(pages) as u16;
        Slabs {
            budget,
            memory: Vec::new(),
            usage: Vec::new(),
            partial: BTreeSet::new(),
            gone: Vec::new(),
            pages,
            in_use: 0,
        }
    }

    fn slab_bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE
    }

    /// The bytes of a page from `offset`.
    #[inline]
    pub(super) fn page(&self, number: u32, offset: u64) -> Option<&[u8]> {
        let start = (u64::from(number) % SLAB_PAGES * PAGE + offset) as usize;
        self.memory.get((u64::from(number) / SLAB_PAGES) as usize)?.get(start..)
    }

    /// As [`Slabs::page`], for writing.
    #[inline]
    pub(super) fn page_mut(&mut self, number: u32, offset: u64) -> Option<&mut [u8]> {
        let start = (u64::from(number) % SLAB_PAGES * PAGE + offset) as usize;
        self.memory.get_mut((u64::from(number) / SLAB_PAGES) as usize)?.get_mut(start..)
    }

    /// Allocates a zeroed page.
    ///
    /// # Errors
    /// The budget has no room for another slab.
    pub(super) fn take(&mut self) -> Result<u32, MediaError> {
        let slab = match self.partial.first() {
            Some(&slab) => slab,
            None => self.grow()?,
        };
        let pages = self.pages;
        let Some(usage) = self.usage.get_mut(slab as usize) else { return Err(self.budget.full()) };
        let Some(page) = usage.first_free(pages) else { return Err(self.budget.full()) };
        usage.set(page, true);
        // Memory fresh from the allocator is zero already, and touching it would make it resident.
        let used_before = page < usage.touched;
        usage.touched = usage.touched.max(page + 1);
        if usage.count == pages {
            self.partial.remove(&slab);
        }
        self.in_use += 1;
        // Page numbers are 32 bits: 2^32 − 1 pages are 16 TiB, more than any budget.
        let number = (u64::from(slab) * SLAB_PAGES) as u32 + u32::from(page);
        if used_before
            && let Some(bytes) =
                self.page_mut(number, 0).and_then(|bytes| bytes.get_mut(..PAGE as usize))
        {
            bytes.fill(0);
        }
        Ok(number)
    }

    fn grow(&mut self) -> Result<u32, MediaError> {
        // The slab is charged before it is allocated: another medium may take the rest of the
        // budget.
        self.budget.take(self.slab_bytes())?;
        let memory = vec![0; self.slab_bytes() as usize].into_boxed_slice();
        let slab = match self.gone.pop() {
            Some(slab) => slab,
            None => {
                self.memory.push(Box::default());
                self.usage.push(Usage::default());
                self.memory.len() as u32 - 1
            }
        };
        self.memory[slab as usize] = memory;
        self.usage[slab as usize] = Usage::default();
        self.partial.insert(slab);
        Ok(slab)
    }

    /// Frees a page.
    pub(super) fn give_back(&mut self, number: u32) {
        let (slab, page) =
            ((u64::from(number) / SLAB_PAGES) as u32, (u64::from(number) % SLAB_PAGES) as u16);
        let Some(usage) = self.usage.get_mut(slab as usize) else { return };
        usage.set(page, false);
        self.in_use -= 1;
        if usage.count > 0 {
            self.partial.insert(slab);
            return;
        }
        self.partial.remove(&slab);
        self.memory[slab as usize] = Box::default();
        self.gone.push(slab);
        self.budget.give_back(self.slab_bytes());
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        // Freed slabs have been returned to the budget already.
        let slabs = self.memory.len() - self.gone.len();
        self.budget.give_back(slabs as u64 * self.slab_bytes());
    }
}
