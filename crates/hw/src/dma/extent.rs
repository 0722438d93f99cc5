//! A run of bus addresses, the memory behind it, and which of it the device may reach.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use sync::lease;
use zerocopy::FromZeros;

use super::pins::{PinError, Pins};
use super::{CHUNK, MIN_BLOCK, PAGE};

/// A bus address range that is not, as a whole, lent to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bus address {addr:#x}..+{len:#x} is not memory that is lent to the device")]
pub struct OutOfPool {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// What the device may do with 512 bytes: nothing, or copy. Where it may, the mark is the log2 of the bytes of the block that they lie in,
/// which begins at a multiple of its size: a copy claims the block by its first mark. A block of whole pages is marked once per page, on
/// the page's first 512 bytes.
pub(super) const PRIVATE: u8 = lease::PRIVATE;

/// The marks of pieces of 512 bytes and of pages that are blocks of their own.
pub(super) const PIECE_LOG2: u8 = MIN_BLOCK.ilog2() as u8;
pub(super) const PAGE_LOG2: u8 = PAGE.ilog2() as u8;

/// A chunk of memory: 4 MiB, or less at the end of a region. No two in the life of a process are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// The pool's own memory, or the region's: a number that no other ever has.
    pub memory: u64,
    /// Which of its chunks, counted from its first byte.
    pub index: u32,
}

/// The memory itself belongs to the extent's owner.
#[derive(Debug)]
pub(super) struct Extent {
    memory: NonNull<u8>,
    pub bytes: u64,
    /// Bus address of the first byte.
    pub base: u64,
    /// One mark per 512 bytes.
    marks: Box<[AtomicU8]>,
    pins: Option<Pins>,
    id: u64,
}

// SAFETY: pointers into the memory may be used from any thread: blocks are disjoint (each is given out once), a block is
// `[u8]` only for its one `DmaBuf`, and everything shared goes through atomics or through copies for which the marks are claimed.
unsafe impl Send for Extent {}
// SAFETY: as above.
unsafe impl Sync for Extent {}

impl Extent {
    /// # Safety
    /// `memory` is `bytes` initialised bytes, which stay where they are until the extent is dropped, and which nobody reaches
    /// but through it.
    pub unsafe fn new(memory: NonNull<u8>, bytes: u64, base: u64, pins: Option<Pins>) -> io::Result<Extent> {
        static EXTENTS: AtomicU64 = AtomicU64::new(0);
        let id = EXTENTS.fetch_add(1, Ordering::Relaxed);
        let marks = <[AtomicU8]>::new_box_zeroed_with_elems(bytes.div_ceil(MIN_BLOCK) as usize)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Extent { memory, bytes, base, marks, pins, id })
    }

    /// Where the byte at `offset` is, at most one past the last.
    pub fn at(&self, offset: u64) -> NonNull<u8> {
        assert!(offset <= self.bytes, "{offset} is not in an extent of {} bytes", self.bytes);
        // SAFETY: `offset` is at most the size of the memory.
        unsafe { self.memory.add(offset as usize) }
    }

    /// The chunk that holds all of the `len` bytes at bus address `addr`, if one does.
    #[inline]
    pub fn piece(&self, addr: u64, len: u64) -> Option<Piece> {
        let offset = addr.checked_sub(self.base).filter(|offset| len > 0 && offset + len <= self.bytes)?;
        let index = offset / CHUNK;
        ((offset + len - 1) / CHUNK == index).then_some(Piece { memory: self.id, index: index as u32 })
    }

    /// Where chunk `index` is, and its bytes.
    pub fn chunk(&self, index: u32) -> (NonNull<u8>, usize) {
        let offset = u64::from(index) * CHUNK;
        (self.at(offset), CHUNK.min(self.bytes - offset) as usize)
    }

    /// The marks of `len` bytes from `offset` on.
    pub fn marks(&self, offset: u64, len: u64) -> &[AtomicU8] {
        &self.marks[(offset / MIN_BLOCK) as usize..(offset + len).div_ceil(MIN_BLOCK) as usize]
    }

    /// The device reaches, or will reach once they are lent, `len` bytes from `offset` on.
    pub fn pin(&self, offset: u64, len: u64) -> Result<(), PinError> {
        self.pins.as_ref().map_or(Ok(()), |pins| pins.pin(offset, len))
    }

    /// Whether all of a range is lent.
    #[inline]
    pub fn check(&self, addr: u64, len: u64) -> Result<(), OutOfPool> {
        let (mut at, end) = self.range(addr, len)?;
        while at < end {
            at = match self.block_at(at) {
                PRIVATE => return Err(OutOfPool { addr, len }),
                block if block >= PAGE_LOG2 => at / PAGE * PAGE + PAGE,
                _ => at / MIN_BLOCK * MIN_BLOCK + MIN_BLOCK,
            };
        }
        Ok(())
    }

    /// The log2 of the bytes of the block that is lent at `offset`; [`PRIVATE`]: none is.
    #[inline]
    fn block_at(&self, offset: u64) -> u8 {
        match self.mark_at(offset / PAGE * PAGE) {
            paged if paged >= PAGE_LOG2 => paged,
            _ => match self.mark_at(offset) {
                small if small < PAGE_LOG2 => small,
                _ => PRIVATE,
            },
        }
    }

    /// The device copies from a range that is lent.
    #[inline]
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), OutOfPool> {
        self.each_block(addr, into.len() as u64, |from, range| {
            let into = &mut into[range];
            // SAFETY: the block is inside the memory, and while it is used it is not taken back: no reference to it exists. `into`, being a
            // `&mut`, does not overlap it.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast_const(), into.as_mut_ptr(), into.len()) };
        })
    }

    /// The device copies into a range that is lent.
    #[inline]
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), OutOfPool> {
        self.each_block(addr, from.len() as u64, |to, range| {
            let from = &from[range];
            // SAFETY: the block is inside the memory, and while it is used it is not taken back, nor used by another: no reference to it
            // exists, and `from` is none.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        })
    }

    /// Calls `copy` with where the bytes of each block of a range are, and which of the range's bytes they are. Nobody takes the block back
    /// meanwhile, and no other copy is in it. Where not all of the range is lent nothing is copied, unless some of it is taken back in
    /// between: then what was not.
    #[inline]
    fn each_block(&self, addr: u64, len: u64, mut copy: impl FnMut(NonNull<u8>, Range<usize>)) -> Result<(), OutOfPool> {
        let refused = OutOfPool { addr, len };
        let (offset, end) = self.range(addr, len)?;
        self.check(addr, len)?;
        let mut at = offset;
        while at < end {
            let log2 = self.block_at(at);
            if log2 == PRIVATE {
                return Err(refused);
            }
            let first = at >> log2 << log2;
            let mark = self.marks.get((first / MIN_BLOCK) as usize);
            let _used = mark.and_then(|mark| lease::acquire(mark, log2)).ok_or(refused)?;
            let to = (first + (1 << log2)).min(end);
            copy(self.at(at), (at - offset) as usize..(to - offset) as usize);
            at = to;
        }
        Ok(())
    }

    /// Where a range begins and ends in the memory.
    #[inline]
    fn range(&self, addr: u64, len: u64) -> Result<(u64, u64), OutOfPool> {
        let refused = OutOfPool { addr, len };
        let offset = addr.checked_sub(self.base).ok_or(refused)?;
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes).ok_or(refused)?;
        Ok((offset, end))
    }

    #[inline]
    fn mark_at(&self, offset: u64) -> u8 {
        self.marks.get((offset / MIN_BLOCK) as usize).map_or(PRIVATE, lease::kind_of)
    }
}
