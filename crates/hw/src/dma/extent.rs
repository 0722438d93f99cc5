//! A run of bus addresses, the memory behind it, which of it the device may reach, and what of it is pinned.
//!
//! Memory has to stay where it is if a device reaches it by itself. It is pinned by chunks, each when some of it is first given out: only so
//! much counts against RLIMIT_MEMLOCK as is used.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nvme::BusError;
use rustix::process::{Resource, getrlimit};
use sync::lease;
use zerocopy::FromZeros;

use super::{CHUNK, MIN_BLOCK, PAGE, lock};
use crate::Birth;

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

/// How a link pins memory and makes it reachable at a bus address, and the reverse. A device in another process reaches memory by its file: such a
/// process is trusted as a device without an IOMMU is, to touch nothing of it but what is lent, and rings.
pub trait Pinner: Debug + Send + Sync {
    /// From now on the chunk stays where it is, and the device reaches it. `file`: what it is a part of, and where it begins there, where a
    /// file stands behind the memory.
    /// After an error the chunk is as it was.
    fn pin(&self, chunk: Chunk, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()>;

    /// Whether it takes only memory with a file behind it.
    fn wants_file(&self) -> bool {
        false
    }

    /// Whether the process that gets such files is trusted to take no pages away. Otherwise only memory whose file keeps them is registered.
    fn trusts(&self) -> bool {
        false
    }

    /// Bytes of a chunk: a multiple of 4 MiB. Memory that costs nothing before it is touched may go as a whole.
    fn chunk_bytes(&self) -> u64 {
        CHUNK
    }

    /// The reverse, once for each chunk that was pinned: its memory is about to go.
    fn unpin(&self, chunk: Chunk);
}

/// What is pinned at once: 4 MiB, or as many as the pinner says; less at the end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it is for this process.
    pub memory: NonNull<u8>,
    /// Where it is for the device.
    pub addr: u64,
    /// Bytes, whole pages.
    pub bytes: u64,
}

/// Memory could not be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// More than the process may have pinned.
    #[error(
        "a device needs {wanted} more bytes pinned beside {pinned}, and RLIMIT_MEMLOCK is {limit} bytes; \
         raise it to {} or more (`ulimit -l {}`, or `LimitMEMLOCK={}` of a service)", .wanted + .pinned, (.wanted + .pinned).div_ceil(1024), .wanted + .pinned
    )]
    Limit {
        /// Bytes that were to be pinned.
        wanted: u64,
        /// Bytes that are pinned for this device already.
        pinned: u64,
        /// RLIMIT_MEMLOCK of the process, in bytes.
        limit: u64,
    },
    /// Anything else.
    #[error("cannot pin {wanted} bytes for a device: {source}")]
    System {
        /// Bytes that were to be pinned.
        wanted: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A device's way of pinning, and how much it has pinned.
#[derive(Debug)]
pub(super) struct Pinning {
    pub pinner: Arc<dyn Pinner>,
    /// Bytes that are pinned.
    pub bytes: AtomicU64,
    chunk: u64,
}

impl Pinning {
    pub fn new(pinner: Arc<dyn Pinner>) -> Pinning {
        let chunk = pinner.chunk_bytes().max(CHUNK) / CHUNK * CHUNK;
        Pinning { pinner, bytes: AtomicU64::new(0), chunk }
    }

    fn failed(&self, wanted: u64, source: io::Error) -> PinError {
        let refused = [libc::ENOMEM, libc::EPERM, libc::EAGAIN].map(Some).contains(&source.raw_os_error());
        match getrlimit(Resource::Memlock).current {
            Some(limit) if refused => PinError::Limit { wanted, pinned: self.bytes.load(Ordering::Relaxed), limit },
            _ => PinError::System { wanted, source },
        }
    }
}

/// The memory itself belongs to the extent's owner. Chunks are unpinned when the extent is dropped, before the memory goes.
#[derive(Debug)]
pub(super) struct Extent {
    memory: NonNull<u8>,
    pub bytes: u64,
    /// Bus address of the first byte.
    pub base: u64,
    /// One mark per 512 bytes.
    marks: Box<[AtomicU8]>,
    id: u64,
    pinning: Option<Arc<Pinning>>,
    /// Which chunks are.
    pinned: Mutex<Vec<bool>>,
    /// The file behind the memory, and where in that it begins.
    pub file: Option<(OwnedFd, u64)>,
    /// The process whose pins they are.
    born: Birth,
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
    pub unsafe fn new(
        (memory, bytes): (NonNull<u8>, u64),
        base: u64,
        pinning: Option<Arc<Pinning>>,
        file: Option<(OwnedFd, u64)>,
    ) -> io::Result<Extent> {
        static EXTENTS: AtomicU64 = AtomicU64::new(0);
        let id = EXTENTS.fetch_add(1, Ordering::Relaxed);
        let marks = <[AtomicU8]>::new_box_zeroed_with_elems(bytes.div_ceil(MIN_BLOCK) as usize)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let chunks = pinning.as_ref().map_or(0, |pinning| bytes.div_ceil(pinning.chunk)) as usize;
        Ok(Extent { memory, bytes, base, marks, id, pinning, pinned: Mutex::new(vec![false; chunks]), file, born: Birth::here() })
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

    /// The device reaches, or will reach once they are lent, `len` bytes from `offset` on: pins what is not pinned yet of their chunks.
    pub fn pin(&self, offset: u64, len: u64) -> Result<(), PinError> {
        let Some(pinning) = &self.pinning else { return Ok(()) };
        // Held meanwhile: another thread that gets memory of the same chunk waits until it is pinned.
        let mut pinned = lock(&self.pinned);
        for n in (offset / pinning.chunk) as usize..(offset + len).div_ceil(pinning.chunk) as usize {
            if pinned.get(n) == Some(&false) {
                let chunk = self.pinned_chunk(n, pinning);
                let file = self.file.as_ref().map(|(file, at)| (file.as_fd(), at + (chunk.addr - self.base)));
                pinning.pinner.pin(chunk, file).map_err(|source| pinning.failed(chunk.bytes, source))?;
                pinning.bytes.fetch_add(chunk.bytes, Ordering::Relaxed);
                pinned[n] = true;
            }
        }
        Ok(())
    }

    fn pinned_chunk(&self, n: usize, pinning: &Pinning) -> Chunk {
        let offset = n as u64 * pinning.chunk;
        Chunk { memory: self.at(offset), addr: self.base + offset, bytes: pinning.chunk.min(self.bytes - offset) }
    }

    /// Whether all of a range is lent.
    #[inline]
    pub fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        let (mut at, end) = self.range(addr, len)?;
        while at < end {
            at = match self.block_at(at) {
                PRIVATE => return Err(BusError { addr, len }),
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
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.each_block(addr, into.len() as u64, |from, range| {
            let into = &mut into[range];
            // SAFETY: the block is inside the memory, and while it is used it is not taken back: no reference to it exists. `into`, being a
            // `&mut`, does not overlap it.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast_const(), into.as_mut_ptr(), into.len()) };
        })
    }

    /// The device copies into a range that is lent.
    #[inline]
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
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
    fn each_block(&self, addr: u64, len: u64, mut copy: impl FnMut(NonNull<u8>, Range<usize>)) -> Result<(), BusError> {
        let refused = BusError { addr, len };
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
    fn range(&self, addr: u64, len: u64) -> Result<(u64, u64), BusError> {
        let refused = BusError { addr, len };
        let offset = addr.checked_sub(self.base).ok_or(refused)?;
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes).ok_or(refused)?;
        Ok((offset, end))
    }

    #[inline]
    fn mark_at(&self, offset: u64) -> u8 {
        self.marks.get((offset / MIN_BLOCK) as usize).map_or(PRIVATE, lease::kind_of)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        // A child has its parent's way to the device, and would unpin what the parent uses.
        let Some(pinning) = self.pinning.as_ref().filter(|_| self.born.is_here()) else { return };
        for (n, _) in lock(&self.pinned).iter().enumerate().filter(|(_, pinned)| **pinned) {
            let chunk = self.pinned_chunk(n, pinning);
            pinning.pinner.unpin(chunk);
            pinning.bytes.fetch_sub(chunk.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
