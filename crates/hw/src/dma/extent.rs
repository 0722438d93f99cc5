//! A contiguous range of bus addresses and the memory behind it: which blocks the device may access
//! now, and which chunks are pinned.
//!
//! A device that accesses memory by itself needs it pinned. A chunk is pinned when the first buffer
//! in it is allocated, so that only memory in use counts against RLIMIT_MEMLOCK.

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
use crate::ForkGuard;

/// Each 512 bytes have a mark: private, or lent. The mark of lent bytes is the log2 of the size of
/// their block, which is aligned to its size; a copy leases the block through the block's first
/// mark. A block of whole pages has one mark per page, that of the first 512 bytes.
///
/// ```text
/// a lent 8 KiB block (log2 = 13):   mark 0  1..7  8  9..15
///                                       13   -   13   -      "-": not used
/// ```
pub(super) const PRIVATE: u8 = lease::PRIVATE;

/// The marks of blocks of 512 bytes and of one page.
pub(super) const UNIT_LOG2: u8 = MIN_BLOCK.ilog2() as u8;
pub(super) const PAGE_LOG2: u8 = PAGE.ilog2() as u8;

/// Identifies a chunk of memory: 4 MiB, or less at the end of a region. Unique for the life of the
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    /// Number of the pool memory or region; never reused.
    pub memory: u64,
    /// Index of the chunk in it.
    pub index: u32,
}

/// How a transport pins memory and maps it at a bus address. A device in another process accesses
/// memory through its file; that process is trusted, like a device without an IOMMU, to touch only
/// lent buffers and rings.
pub trait Pinner: Debug + Send + Sync {
    /// Pins a chunk and makes it accessible to the device. `file`: the file that the chunk is a
    /// part of and its offset there, if the memory has a file. After an error nothing is pinned.
    fn pin(&self, chunk: Chunk, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()>;

    /// Whether only memory with a file can be pinned.
    fn needs_file(&self) -> bool {
        false
    }

    /// Whether the process that receives the files is trusted not to take pages away. If not, only
    /// memory whose file cannot lose pages is registered.
    fn is_trusted(&self) -> bool {
        false
    }

    /// Bytes per chunk: a multiple of 4 MiB. Memory that costs nothing until it is touched may be
    /// pinned as a whole.
    fn chunk_bytes(&self) -> u64 {
        CHUNK
    }

    /// Undoes `pin`, once for each pinned chunk, before its memory is freed.
    fn unpin(&self, chunk: Chunk);
}

/// The unit of pinning: [`Pinner::chunk_bytes`], less at the end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Address in this process.
    pub memory: NonNull<u8>,
    /// Bus address.
    pub addr: u64,
    /// Size in bytes: whole pages.
    pub bytes: u64,
}

/// Why memory could not be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// RLIMIT_MEMLOCK is too low.
    #[error(
        "a device needs {wanted} more bytes pinned in addition to {pinned}, and RLIMIT_MEMLOCK is {limit} bytes; \
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
    /// Another error.
    #[error("cannot pin {wanted} bytes for a device: {source}")]
    System {
        /// Bytes that were to be pinned.
        wanted: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The pinner of a device, and how much it has pinned.
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

    fn pin_error(&self, wanted: u64, source: io::Error) -> PinError {
        // These three are what kernels return when RLIMIT_MEMLOCK is exceeded.
        let refused =
            [libc::ENOMEM, libc::EPERM, libc::EAGAIN].map(Some).contains(&source.raw_os_error());
        match getrlimit(Resource::Memlock).current {
            Some(limit) if refused => {
                PinError::Limit { wanted, pinned: self.bytes.load(Ordering::Relaxed), limit }
            }
            _ => PinError::System { wanted, source },
        }
    }
}

/// The memory is owned by the creator of the extent. Dropping the extent unpins its chunks, before
/// the memory is freed.
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
    /// Whether each chunk is pinned.
    pinned: Mutex<Vec<bool>>,
    /// The file behind the memory, and the offset of the memory in it.
    pub file: Option<(OwnedFd, u64)>,
    /// The process that pinned the chunks.
    fork_guard: ForkGuard,
}

// SAFETY: pointers into the memory may be used from any thread: blocks are disjoint (each is
// allocated once), a block is `[u8]` only for its one `DmaBuf`, and all shared access is through
// atomics, or through copies that hold a lease.
unsafe impl Send for Extent {}
// SAFETY: as above.
unsafe impl Sync for Extent {}

impl Extent {
    /// # Safety
    /// `memory` is `bytes` initialised bytes, which stay in place until the extent is dropped, and
    /// are accessed only through it.
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
        Ok(Extent {
            memory,
            bytes,
            base,
            marks,
            id,
            pinning,
            pinned: Mutex::new(vec![false; chunks]),
            file,
            fork_guard: ForkGuard::current(),
        })
    }

    /// The address of the byte at `offset`, at most one past the last.
    pub fn at(&self, offset: u64) -> NonNull<u8> {
        assert!(offset <= self.bytes, "{offset} is not in an extent of {} bytes", self.bytes);
        // SAFETY: `offset` is at most the size of the memory.
        unsafe { self.memory.add(offset as usize) }
    }

    /// The chunk that contains all `len` bytes at bus address `addr`, if one does.
    #[inline]
    pub fn chunk_of(&self, addr: u64, len: u64) -> Option<ChunkId> {
        let offset =
            addr.checked_sub(self.base).filter(|offset| len > 0 && offset + len <= self.bytes)?;
        let index = offset / CHUNK;
        ((offset + len - 1) / CHUNK == index)
            .then_some(ChunkId { memory: self.id, index: index as u32 })
    }

    /// Address and size of chunk `index`.
    pub fn chunk(&self, index: u32) -> (NonNull<u8>, usize) {
        let offset = u64::from(index) * CHUNK;
        (self.at(offset), CHUNK.min(self.bytes - offset) as usize)
    }

    /// The marks of `len` bytes from `offset` on.
    pub fn marks(&self, offset: u64, len: u64) -> &[AtomicU8] {
        &self.marks[(offset / MIN_BLOCK) as usize..(offset + len).div_ceil(MIN_BLOCK) as usize]
    }

    /// Pins the chunks of `len` bytes from `offset` on that are not pinned yet.
    pub fn pin(&self, offset: u64, len: u64) -> Result<(), PinError> {
        let Some(pinning) = &self.pinning else { return Ok(()) };
        // Held while pinning: another thread that allocates from the same chunk must wait until it
        // is pinned.
        let mut pinned = lock(&self.pinned);
        for n in (offset / pinning.chunk) as usize..(offset + len).div_ceil(pinning.chunk) as usize
        {
            if pinned.get(n) == Some(&false) {
                let chunk = self.pinned_chunk(n, pinning);
                let file = self
                    .file
                    .as_ref()
                    .map(|(file, at)| (file.as_fd(), at + (chunk.addr - self.base)));
                pinning
                    .pinner
                    .pin(chunk, file)
                    .map_err(|source| pinning.pin_error(chunk.bytes, source))?;
                pinning.bytes.fetch_add(chunk.bytes, Ordering::Relaxed);
                pinned[n] = true;
            }
        }
        Ok(())
    }

    fn pinned_chunk(&self, n: usize, pinning: &Pinning) -> Chunk {
        let offset = n as u64 * pinning.chunk;
        Chunk {
            memory: self.at(offset),
            addr: self.base + offset,
            bytes: pinning.chunk.min(self.bytes - offset),
        }
    }

    /// Checks that all of a range is lent.
    #[inline]
    pub fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        let (mut at, end) = self.range(addr, len)?;
        while at < end {
            at = match self.block_at(at) {
                PRIVATE => return Err(BusError { addr, len }),
                // Paged blocks have a mark per page, others one per 512 bytes: step to the next
                // mark.
                block if block >= PAGE_LOG2 => at / PAGE * PAGE + PAGE,
                _ => at / MIN_BLOCK * MIN_BLOCK + MIN_BLOCK,
            };
        }
        Ok(())
    }

    /// The log2 of the size of the block that is lent at `offset`, or [`PRIVATE`].
    #[inline]
    fn block_at(&self, offset: u64) -> u8 {
        // First the mark of the page: a paged block leaves its other marks unused.
        match self.mark_at(offset / PAGE * PAGE) {
            paged if paged >= PAGE_LOG2 => paged,
            _ => match self.mark_at(offset) {
                small if small < PAGE_LOG2 => small,
                _ => PRIVATE,
            },
        }
    }

    /// Copies from a lent range, for the device.
    #[inline]
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.each_block(addr, into.len() as u64, |from, range| {
            let into = &mut into[range];
            // SAFETY: the block is inside the memory, and not taken back during the lease: no
            // reference to it exists. `into`, being a `&mut`, does not overlap it.
            unsafe {
                ptr::copy_nonoverlapping(from.as_ptr().cast_const(), into.as_mut_ptr(), into.len())
            };
        })
    }

    /// Copies to a lent range, for the device.
    #[inline]
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.each_block(addr, from.len() as u64, |to, range| {
            let from = &from[range];
            // SAFETY: the block is inside the memory, and during the lease neither taken back nor
            // copied by another thread: no reference to it exists, and `from` does not overlap it.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        })
    }

    /// Calls `copy` for each block of a range, with the address and the part of the range, under a
    /// lease: the block is not taken back and no other copy is in it. If not all of the range is
    /// lent, nothing is copied; if a part is taken back during the call, the blocks before it have
    /// been copied.
    #[inline]
    fn each_block(
        &self,
        addr: u64,
        len: u64,
        mut copy: impl FnMut(NonNull<u8>, Range<usize>),
    ) -> Result<(), BusError> {
        let refused = BusError { addr, len };
        let (offset, end) = self.range(addr, len)?;
        self.check(addr, len)?;
        let mut at = offset;
        while at < end {
            let log2 = self.block_at(at);
            if log2 == PRIVATE {
                return Err(refused);
            }
            // Blocks are aligned to their size; the lease is on the first mark of the block.
            let first = at >> log2 << log2;
            let mark = self.marks.get((first / MIN_BLOCK) as usize);
            let _lease = mark.and_then(|mark| lease::acquire(mark, log2)).ok_or(refused)?;
            let to = (first + (1 << log2)).min(end);
            copy(self.at(at), (at - offset) as usize..(to - offset) as usize);
            at = to;
        }
        Ok(())
    }

    /// Offsets of the first byte of a range and of the byte after it.
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
        // A forked child shares the pinner with its parent, and would unpin memory that the parent
        // uses.
        let Some(pinning) = self.pinning.as_ref().filter(|_| self.fork_guard.same_process()) else {
            return;
        };
        for (n, _) in lock(&self.pinned).iter().enumerate().filter(|(_, pinned)| **pinned) {
            let chunk = self.pinned_chunk(n, pinning);
            pinning.pinner.unpin(chunk);
            pinning.bytes.fetch_sub(chunk.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
