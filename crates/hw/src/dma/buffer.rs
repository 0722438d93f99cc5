//! Buffers: held by the application as bytes ([`DmaBuf`]), or lent to the device ([`Lent`]).
//! Lending marks the blocks of the buffer in the extent; taking it back revokes the marks and waits
//! for a copy in progress.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sync::lease;

use super::buddy::block_size;
use super::extent::{ChunkId, Extent, PAGE_LOG2, PRIVATE, UNIT_LOG2};
use super::pool::{AllocError, DmaPool, Pool};
use super::region::{AnyRegion, Attachment};
use super::{CHUNK, MIN_BLOCK, PAGE};

impl DmaPool {
    /// Allocates a buffer of `len` bytes, aligned to 4 KiB if it is at least that long, else to 512
    /// bytes. The contents are unspecified. Takes a lock: keep buffers, do not allocate per I/O.
    pub fn alloc(&self, len: usize) -> Result<DmaBuf, AllocError> {
        if len == 0 {
            // `drop` frees no block for an empty buffer, so it must not have one.
            return Ok(self.empty());
        }
        let offset = self.0.alloc_block(len)?;
        Ok(DmaBuf::new(&self.0.own, (offset, len), len >= PAGE as usize, self.0.clone(), None))
    }

    /// An empty buffer.
    pub fn empty(&self) -> DmaBuf {
        DmaBuf(Box::new(Block {
            data: NonNull::dangling(),
            len: 0,
            addr: self.0.own.base,
            marks: NonNull::from(&EMPTY_MARK[..]),
            lent: UNIT_LOG2,
            one_mark: true,
            pool: self.0.clone(),
            region: None,
        }))
    }

    /// Identifies the pool in one word, for comparison in a loop over buffers. Valid while the pool
    /// exists.
    #[inline]
    pub fn key(&self) -> PoolKey {
        PoolKey(Arc::as_ptr(&self.0).addr())
    }
}

/// See [`DmaPool::key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolKey(usize);

/// A buffer that the device can access once it is lent. Until then it is exclusive to its holder
/// and dereferences to `[u8]`.
///
/// One word, because it moves several times per I/O through requests and completions.
#[derive(Debug)]
pub struct DmaBuf(Box<Block>);

/// The description of a buffer, made when it is allocated.
#[derive(Debug)]
struct Block {
    data: NonNull<u8>,
    len: usize,
    addr: u64,
    /// The marks of its 512-byte units.
    marks: NonNull<[AtomicU8]>,
    /// Value of the marks while the buffer is lent: log2 of the block size.
    lent: u8,
    /// Only the first mark is used.
    one_mark: bool,
    /// The pool whose device can access it.
    pool: Arc<Pool>,
    /// The region that it is a range of; `None`: memory of the pool.
    region: Option<Arc<AnyRegion>>,
}

// SAFETY: the block is exclusive to this buffer, like a `Box<[u8]>`; the marks are atomics owned by
// the extent.
unsafe impl Send for Block {}
// SAFETY: through `&DmaBuf` the block is only read.
unsafe impl Sync for Block {}

/// The mark of empty buffers: lending one must change no mark of an extent.
static EMPTY_MARK: [AtomicU8; 1] = [AtomicU8::new(PRIVATE)];

impl Block {
    /// The first mark, which copies lease.
    #[inline]
    fn first(&self) -> &AtomicU8 {
        // SAFETY: it points to marks of the extent, which `pool` or `region` keeps in place and
        // which are only accessed as atomics, or to a static.
        unsafe { self.marks.cast::<AtomicU8>().as_ref() }
    }

    /// The marks in use after the first: one per page of a paged block, else one per 512 bytes; and
    /// whether each is the first mark of a block, which copies lease.
    #[inline]
    fn rest(&self) -> impl Iterator<Item = (&AtomicU8, bool)> {
        // SAFETY: as in `first`, for all of them.
        let marks = unsafe { self.marks.as_ref() };
        let step = if self.lent >= PAGE_LOG2 { 1 << (PAGE_LOG2 - UNIT_LOG2) } else { 1 };
        let others = (1usize << (self.lent - UNIT_LOG2)) - 1;
        let mut at = 0;
        std::iter::from_fn(move || {
            at += step;
            marks.get(at).map(|mark| (mark, at & others == 0))
        })
    }

    #[inline(never)]
    fn grant_rest(&self) {
        self.rest().for_each(|(mark, _)| lease::grant(mark, self.lent));
    }

    /// Finishes `take_back`: unless `done`, waits for the copy in the first block, then revokes the
    /// other marks.
    #[inline(never)]
    fn revoke_rest(&self, done: bool) {
        if !done {
            lease::finish_revoke(self.first());
        }
        for (mark, begins) in self.rest() {
            if begins {
                lease::revoke(mark);
            } else {
                // No copy leases this mark: a plain store is enough.
                mark.store(PRIVATE, Ordering::Release);
            }
        }
    }
}

impl DmaBuf {
    /// Whether it belongs to the pool `key`: memory of the pool, or of a region registered with it.
    #[inline]
    pub fn is_of(&self, key: PoolKey) -> bool {
        PoolKey(Arc::as_ptr(&self.0.pool).addr()) == key
    }

    /// The `len` bytes from `offset` on of `extent`, which `region`, or else `pool`, keeps alive.
    /// The rest of the last page (if not `paged`: of the last 512 bytes) belongs to this buffer
    /// too.
    pub(super) fn new(
        extent: &Extent,
        (offset, len): (u64, usize),
        paged: bool,
        pool: Arc<Pool>,
        region: Option<Arc<AnyRegion>>,
    ) -> DmaBuf {
        // A range of a region is not aligned to its size, so each page or 512 bytes is a block of
        // its own.
        let (unit, lent) = match (paged, &region) {
            (false, _) => (MIN_BLOCK, UNIT_LOG2),
            (true, Some(_)) => (PAGE, PAGE_LOG2),
            (true, None) => (PAGE, block_size(len).unwrap_or(CHUNK).min(CHUNK).ilog2() as u8),
        };
        DmaBuf(Box::new(Block {
            data: extent.at(offset),
            len,
            addr: extent.base + offset,
            marks: NonNull::from(extent.marks(offset, len as u64)),
            lent,
            one_mark: len as u64 <= unit,
            pool,
            region,
        }))
    }

    /// Bus address of the first byte.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.0.addr
    }

    /// Length in bytes. Also valid in a forked child.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Whether it is a range of a region. The last such buffer keeps the owner of the memory alive.
    pub fn is_registered(&self) -> bool {
        self.0.region.is_some()
    }

    /// Lends the buffer to the device. It cannot be accessed as bytes until [`Lent::take_back`].
    #[inline]
    pub fn lend(self) -> Lent {
        lease::grant(self.0.first(), self.0.lent);
        if !self.0.one_mark {
            self.0.grant_rest();
        }
        Lent(ManuallyDrop::new(self))
    }
}

/// Called for a buffer of the parent process: in this process its address is unmapped or holds
/// other data.
#[cold]
#[inline(never)]
fn panic_forked() -> ! {
    panic!(
        "a DMA buffer belongs to the process that opened its device, not to a child forked from it; open devices after the fork"
    )
}

/// # Panics
/// In a process forked after the device was opened.
impl Deref for DmaBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if !self.0.pool.fork_guard.same_process() {
            panic_forked();
        }
        // SAFETY: the block is memory that `pool` or `region` keeps, and initialised. It is
        // exclusive to this buffer while it is not lent: copies of the device have ended, and new
        // ones are refused. `Lent` has no `deref`.
        unsafe { std::slice::from_raw_parts(self.0.data.as_ptr(), self.0.len) }
    }
}

/// # Panics
/// As `deref`.
impl DerefMut for DmaBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        if !self.0.pool.fork_guard.same_process() {
            panic_forked();
        }
        // SAFETY: as in `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.0.data.as_ptr(), self.0.len) }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        let Block { addr, len, ref pool, ref region, .. } = *self.0;
        match region {
            _ if len == 0 || !pool.fork_guard.same_process() => {}
            Some(region) => region.release_range(addr),
            None => pool.free_block(addr - pool.own.base, len),
        }
    }
}

/// A buffer that the device may use. Dropping it leaks its memory and adds it to
/// [`DmaPool::leaked`], because the device may still write to it. If it is a range of a region, the
/// whole region is leaked: its owner can only free it as a whole.
///
/// It does not dereference to bytes, which the device may be writing:
///
/// ```compile_fail,E0608
/// let pool = hw::DmaPool::new(4096).unwrap();
/// let lent = pool.alloc(512).unwrap().lend();
/// let first = lent[0];
/// ```
#[derive(Debug)]
#[must_use = "dropping a lent buffer leaks its memory"]
pub struct Lent(ManuallyDrop<DmaBuf>);

impl Lent {
    /// Bus address of the first byte.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.0.addr()
    }

    /// Bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a lent buffer is never tested for emptiness
    pub fn len(&self) -> usize {
        self.0.0.len
    }

    /// The attachment of the region that the buffer is a range of.
    pub fn attachment(&self) -> Option<&Attachment> {
        self.0.0.region.as_ref()?.attachment.as_ref()
    }

    /// Its address in this process, for a kernel that copies by itself.
    #[inline]
    pub(crate) fn memory(&self) -> NonNull<u8> {
        self.0.0.data
    }

    /// The chunk that contains all of it, if one does.
    #[inline]
    pub fn chunk_id(&self) -> Option<ChunkId> {
        self.extent().chunk_of(self.addr(), self.len() as u64)
    }

    /// That chunk with its address and size.
    pub(crate) fn chunk(&self) -> Option<(ChunkId, NonNull<u8>, usize)> {
        let id = self.chunk_id()?;
        let (at, bytes) = self.extent().chunk(id.index);
        Some((id, at, bytes))
    }

    fn extent(&self) -> &Extent {
        self.0.0.region.as_ref().map_or(&self.0.0.pool.own, |region| &region.extent)
    }

    /// Takes the buffer back. The caller knows that the device has completed every command that
    /// names it, or has stopped (CSTS.RDY = 0). Waits for a copy by [`DmaPool::dma_read`] or
    /// [`DmaPool::dma_write`] that has begun; later copies fail. A kernel or bus device that copies
    /// by itself cannot be checked: taking the buffer back too early lets it write into a `[u8]`.
    #[inline]
    pub fn take_back(mut self) -> DmaBuf {
        // SAFETY: `self` is forgotten right away, so the buffer is taken out once.
        let buf = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        // At most one call on the slow path: two would cost the completion loop another register.
        let done = lease::begin_revoke(buf.0.first());
        if !(done & buf.0.one_mark) {
            buf.0.revoke_rest(done);
        }
        buf
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: nothing touches `self.0` afterwards, so the buffer is taken out once.
        let mut buf = unsafe { ManuallyDrop::take(&mut self.0) };
        let block = &mut *buf.0;
        let bytes = if block.region.is_some() {
            block.len as u64
        } else {
            block_size(block.len).unwrap_or(0)
        };
        block.pool.leaked.fetch_add(bytes, Ordering::Relaxed);
        // Leaked on purpose: the owner must never free the memory.
        std::mem::forget(block.region.take());
        // Drop only the description: a buffer of length 0 frees no block.
        block.len = 0;
    }
}
