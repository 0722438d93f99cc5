//! A sparse medium in memory: terabytes in size, as large as what was written in fact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Media, MediaError};

/// Bytes in a page, the unit that a write allocates.
pub(crate) const PAGE: u64 = 4096;
/// Pages in a slab, the unit that is asked of the allocator and of the [`Budget`].
const SLAB_PAGES: u64 = 256;
/// Pages that one leaf of the page table maps.
const LEAF_PAGES: u64 = 1024;
/// The page-table entry of a page that was never written.
const HOLE: u32 = u32::MAX;

static ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];

/// A limit on what media really allocate, shared by clones: a sparse device may be larger than the machine.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Arc<AtomicU64>,
    limit: u64,
}

impl Budget {
    /// A budget of `bytes`. The caller decides; a quarter of the machine's memory is a good default.
    pub fn new(bytes: u64) -> Budget {
        Budget { left: Arc::new(AtomicU64::new(bytes)), limit: bytes }
    }

    /// Bytes not yet taken.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<(), MediaError> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .map(drop)
            .map_err(|_| MediaError::Full { limit: self.limit })
    }

    fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

type Leaf = Box<[u32; LEAF_PAGES as usize]>;

/// A sparse medium in memory. Pages of 4 KiB are taken from slabs in the order in which they are first written, so
/// random writes to a huge device cost what they write and a sequential fill is contiguous.
#[derive(Debug)]
pub struct Mem {
    bytes: u64,
    budget: Budget,
    table: Vec<Option<Leaf>>,
    slabs: Vec<Box<[u8]>>,
    /// Pages handed out so far; the number of the next one.
    pages: u64,
    slab_bytes: u64,
}

impl Mem {
    /// A medium of `bytes` bytes, all zero, that allocates from `budget`.
    pub fn new(bytes: u64, budget: Budget) -> Mem {
        let pages = bytes.div_ceil(PAGE);
        // Zeroed memory, which takes none until it is written: 2 GiB of table for 2^50 bytes.
        let table = vec![None; pages.div_ceil(LEAF_PAGES) as usize];
        Mem { bytes, budget, table, slabs: Vec::new(), pages: 0, slab_bytes: SLAB_PAGES.min(pages) * PAGE }
    }

    /// The bytes from `at` to the end of the page or of `len`, whichever is first, without copying them. Empty beyond
    /// the end of the medium.
    #[inline]
    pub(crate) fn piece(&self, at: u64, len: u64) -> &[u8] {
        let offset = at % PAGE;
        let end = (offset + len).min(PAGE).min(offset + self.bytes.saturating_sub(at));
        let page = self.lookup(at / PAGE).unwrap_or(&ZEROES);
        page.get(offset as usize..end as usize).unwrap_or_default()
    }

    /// The same for writing: allocates the page if it is a hole. `len` must not be 0.
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
        let start = u64::from(number) % SLAB_PAGES * PAGE + offset;
        let slab = self.slabs.get_mut((u64::from(number) / SLAB_PAGES) as usize);
        slab.and_then(|s| s.get_mut(start as usize..(start + end - offset) as usize)).filter(|s| !s.is_empty()).ok_or(out)
    }

    #[inline]
    fn entry(&self, page: u64) -> Option<u32> {
        let leaf = self.table.get((page / LEAF_PAGES) as usize)?;
        Some(leaf.as_ref().map_or(HOLE, |leaf| leaf[(page % LEAF_PAGES) as usize]))
    }

    #[inline]
    fn lookup(&self, page: u64) -> Option<&[u8; PAGE as usize]> {
        let number = self.entry(page).filter(|&n| n != HOLE)?;
        let start = (u64::from(number) % SLAB_PAGES * PAGE) as usize;
        self.slabs.get((u64::from(number) / SLAB_PAGES) as usize)?.get(start..)?.first_chunk()
    }

    #[cold]
    fn allocate(&mut self, page: u64) -> Result<u32, MediaError> {
        if self.pages.is_multiple_of(self.slab_bytes / PAGE) {
            self.budget.take(self.slab_bytes)?;
            self.slabs.push(vec![0; self.slab_bytes as usize].into());
        }
        // 2^32 − 1 pages of 4 KiB are 16 TiB of memory: a budget ends earlier.
        let number = self.pages as u32;
        self.pages += 1;
        if let Some(leaf) = self.table.get_mut((page / LEAF_PAGES) as usize) {
            leaf.get_or_insert_with(|| Box::new([HOLE; LEAF_PAGES as usize]))[(page % LEAF_PAGES) as usize] = number;
        }
        Ok(number)
    }

    fn in_range(&self, at: u64, len: usize) -> Result<(), MediaError> {
        let len = len as u64;
        if at.checked_add(len).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(MediaError::OutOfRange { at, len, bytes: self.bytes })
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        self.budget.give_back(self.slabs.len() as u64 * self.slab_bytes);
    }
}

impl Media for Mem {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn allocated(&self) -> u64 {
        self.pages * PAGE
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.in_range(at, into.len())?;
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
        self.in_range(at, from.len())?;
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

    fn flush(&mut self) -> Result<(), MediaError> {
        Ok(())
    }

    fn is_volatile(&self) -> bool {
        false
    }
}
