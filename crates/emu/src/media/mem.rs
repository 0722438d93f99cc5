//! A sparse medium in memory: its size may be terabytes, but it uses memory only for the pages that
//! were written.

use super::budget::Budget;
use super::slabs::{PAGE, Slabs};
use super::{Media, MediaError};

/// Pages per leaf of the page table.
const LEAF_PAGES: u64 = 1024;
/// Bytes per leaf of the page table.
const LEAF_BYTES: u64 = LEAF_PAGES * PAGE;
/// Page-table entry of a page that is not allocated.
const HOLE: u32 = u32::MAX;

static ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];

type Leaf = Box<[u32; LEAF_PAGES as usize]>;

/// A sparse medium in memory. Pages of 4 KiB are allocated from slabs in the order of their first
/// write, so that random writes to a large device allocate only the pages written, and a sequential
/// fill is contiguous. Deallocated pages are reused; a slab without used pages is returned to the
/// budget.
#[derive(Debug)]
pub struct Mem {
    bytes: u64,
    table: Vec<Option<Leaf>>,
    slabs: Slabs,
}

impl Mem {
    /// A medium of `bytes` zero bytes that allocates from `budget`.
    pub fn new(bytes: u64, budget: Budget) -> Mem {
        let pages = bytes.div_ceil(PAGE);
        // Zeroed memory, which the kernel does not allocate until it is written: 2 GiB for 2^50
        // bytes.
        let table = vec![None; pages.div_ceil(LEAF_PAGES) as usize];
        Mem { bytes, table, slabs: Slabs::new(pages, budget) }
    }

    /// The bytes from `at` to the end of the page or of `len`, whichever is first, without a copy.
    /// Empty beyond the end of the medium.
    #[inline]
    pub(crate) fn piece(&self, at: u64, len: u64) -> &[u8] {
        let offset = at % PAGE;
        let end = (offset + len).min(PAGE).min(offset + self.bytes.saturating_sub(at));
        // A page that was never written reads as zeroes, without being allocated.
        let page = self.lookup(at / PAGE).unwrap_or(&ZEROES);
        page.get(offset as usize..end as usize).unwrap_or_default()
    }

    /// As [`Mem::piece`], for writing: allocates the page if necessary. `len` must not be 0.
    #[inline]
    pub(crate) fn piece_mut(&mut self, at: u64, len: u64) -> Result<&mut [u8], MediaError> {
        let offset = at % PAGE;
        let end = (offset + len).min(PAGE).min(offset + self.bytes.saturating_sub(at));
        let out = MediaError::OutOfRange { at, len, bytes: self.bytes };
        let number = match self.entry(at / PAGE) {
            Some(HOLE) => self.allocate(at / PAGE)?,
            Some(number) => number,
            None => return Err(out),
        };
        let page = self.slabs.page_mut(number, offset);
        page.and_then(|page| page.get_mut(..(end - offset) as usize))
            .filter(|piece| !piece.is_empty())
            .ok_or(out)
    }

    #[inline]
    fn entry(&self, page: u64) -> Option<u32> {
        let leaf = self.table.get((page / LEAF_PAGES) as usize)?;
        Some(leaf.as_ref().map_or(HOLE, |leaf| leaf[(page % LEAF_PAGES) as usize]))
    }

    #[inline]
    fn lookup(&self, page: u64) -> Option<&[u8; PAGE as usize]> {
        let number = self.entry(page).filter(|&n| n != HOLE)?;
        self.slabs.page(number, 0)?.first_chunk()
    }

    #[cold]
    fn allocate(&mut self, page: u64) -> Result<u32, MediaError> {
        let number = self.slabs.take()?;
        if let Some(leaf) = self.table.get_mut((page / LEAF_PAGES) as usize) {
            leaf.get_or_insert_with(|| Box::new([HOLE; LEAF_PAGES as usize]))
                [(page % LEAF_PAGES) as usize] = number;
        }
        Ok(number)
    }

    /// Deallocates a page.
    fn punch(&mut self, page: u64) {
        let Some(Some(leaf)) = self.table.get_mut((page / LEAF_PAGES) as usize) else { return };
        // The page is not cleared here: the allocator clears it when it is used again.
        let number = std::mem::replace(&mut leaf[(page % LEAF_PAGES) as usize], HOLE);
        if number != HOLE {
            self.slabs.give_back(number);
        }
    }

    /// Deallocates all pages of a leaf.
    fn punch_leaf(&mut self, leaf: u64) {
        let Some(leaf) = self.table.get_mut(leaf as usize).and_then(Option::take) else { return };
        leaf.iter()
            .filter(|&&number| number != HOLE)
            .for_each(|&number| self.slabs.give_back(number));
    }

    /// Zeroes the part of a page from `at` to `end`; a page that is not allocated stays so.
    fn zero_piece(&mut self, at: u64, end: u64) {
        let Some(number) = self.entry(at / PAGE).filter(|&number| number != HOLE) else { return };
        let piece = self
            .slabs
            .page_mut(number, at % PAGE)
            .and_then(|page| page.get_mut(..(end - at) as usize));
        piece.into_iter().for_each(|piece| piece.fill(0));
    }

    fn in_range(&self, at: u64, len: u64) -> Result<(), MediaError> {
        if at.checked_add(len).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(MediaError::OutOfRange { at, len, bytes: self.bytes })
    }
}

impl Media for Mem {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn allocated(&self) -> u64 {
        self.slabs.in_use * PAGE
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.in_range(at, into.len() as u64)?;
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let piece = self.piece(at, rest.len() as u64);
            let (now, later) = rest.split_at_mut(piece.len());
            now.copy_from_slice(piece);
            at += piece.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn write_at(&mut self, at: u64, from: &[u8], _fua: bool) -> Result<(), MediaError> {
        self.in_range(at, from.len() as u64)?;
        let (mut at, mut rest) = (at, from);
        while !rest.is_empty() {
            let piece = self.piece_mut(at, rest.len() as u64)?;
            let (now, later) = rest.split_at(piece.len());
            piece.copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        _fua: bool,
    ) -> Result<(), MediaError> {
        self.in_range(at, len)?;
        let (mut at, end) = (at, at + len);
        while at < end {
            let leaf = at / LEAF_BYTES;
            let leaf_end = ((leaf + 1) * LEAF_BYTES).min(end);
            if deallocate && leaf_end - at == LEAF_BYTES {
                self.punch_leaf(leaf);
            }
            if self.table.get(leaf as usize).is_none_or(Option::is_none) {
                at = leaf_end;
                continue;
            }
            let page_end = ((at / PAGE + 1) * PAGE).min(end);
            // The medium may end within its last page.
            if deallocate
                && at.is_multiple_of(PAGE)
                && (page_end - at == PAGE || page_end == self.bytes)
            {
                self.punch(at / PAGE);
            } else {
                self.zero_piece(at, page_end);
            }
            at = page_end;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        Ok(())
    }

    fn is_volatile(&self) -> bool {
        false
    }
}
