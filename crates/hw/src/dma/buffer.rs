//! Buffers, held and lent.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sync::lease;

use super::buddy::block_size;
use super::extent::{Extent, PAGE_LOG2, PIECE_LOG2, PRIVATE, Piece};
use super::pool::{AllocError, DmaPool, Pool};
use super::region::{AnyRegion, Attachment};
use super::{CHUNK, MIN_BLOCK, PAGE};

impl DmaPool {
    /// A buffer of `len` bytes, aligned to 4 KiB if it is at least that long, else to 512 bytes. What it holds is
    /// unspecified. Takes a lock: keep buffers, do not allocate per I/O.
    pub fn alloc(&self, len: usize) -> Result<DmaBuf, AllocError> {
        if len == 0 {
            // It would take a block, and nobody would give it back.
            return Ok(self.empty());
        }
        let offset = self.0.take(len)?;
        Ok(DmaBuf::new(&self.0.own, (offset, len), len >= PAGE as usize, self.0.clone(), None))
    }

    /// A buffer of no bytes, for when there is none to give back.
    pub fn empty(&self) -> DmaBuf {
        DmaBuf(Box::new(Block {
            data: NonNull::dangling(),
            len: 0,
            addr: self.0.own.base,
            marks: NonNull::from(&NOTHING[..]),
            lent: PIECE_LOG2,
            one_mark: true,
            pool: self.0.clone(),
            region: None,
        }))
    }

    /// Names it among the pools that there are: one word, for a loop over buffers. Good for as long as the pool is.
    #[inline]
    pub fn key(&self) -> PoolKey {
        PoolKey(Arc::as_ptr(&self.0).addr())
    }
}

/// See [`DmaPool::key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolKey(usize);

/// A buffer that the device can reach once it is lent. Until then it is the holder's alone, and is `[u8]`.
///
/// One word: it is moved several times per I/O, through requests and completions.
#[derive(Debug)]
pub struct DmaBuf(Box<Block>);

/// What a buffer is, made when it is given out.
#[derive(Debug)]
struct Block {
    data: NonNull<u8>,
    len: usize,
    addr: u64,
    /// The marks of its 512-byte pieces.
    marks: NonNull<[AtomicU8]>,
    /// What the first says while the block is lent.
    lent: u8,
    /// The others say nothing.
    one_mark: bool,
    /// Whose device reaches it.
    pool: Arc<Pool>,
    /// The region that it is a range of, if it is not the pool's own.
    region: Option<Arc<AnyRegion>>,
}

// SAFETY: the block is this buffer's alone, as a `Box<[u8]>`'s would be; the marks are atomics that the extent keeps.
unsafe impl Send for Block {}
// SAFETY: through `&DmaBuf` the block is only read.
unsafe impl Sync for Block {}

/// Of a block that holds nothing: lending it says nothing of anybody else's.
static NOTHING: [AtomicU8; 1] = [AtomicU8::new(PRIVATE)];

impl Block {
    /// What the first mark is, which copies claim.
    #[inline]
    fn first(&self) -> &AtomicU8 {
        // SAFETY: it points to the first of the extent's marks, which `pool` or `region` keeps and nobody moves or has as
        // anything but atomics, or to a static.
        unsafe { self.marks.cast::<AtomicU8>().as_ref() }
    }

    /// The marks after the first that count: of pages, if it is a block of pages, or each 512 bytes'. And whether a block that copies claim
    /// begins there.
    #[inline]
    fn rest(&self) -> impl Iterator<Item = (&AtomicU8, bool)> {
        // SAFETY: as in `first`, for all of them.
        let marks = unsafe { self.marks.as_ref() };
        let step = if self.lent >= PAGE_LOG2 { 1 << (PAGE_LOG2 - PIECE_LOG2) } else { 1 };
        let others = (1usize << (self.lent - PIECE_LOG2)) - 1;
        let mut at = 0;
        std::iter::from_fn(move || {
            at += step;
            marks.get(at).map(|mark| (mark, at & others == 0))
        })
    }

    #[inline(never)]
    fn lend_rest(&self) {
        self.rest().for_each(|(mark, _)| lease::grant(mark, self.lent));
    }

    /// Unless it is `done`, a copy is in the first block, and is waited for.
    #[inline(never)]
    fn end_rest(&self, done: bool) {
        if !done {
            lease::finish_revoke(self.first());
        }
        for (mark, begins) in self.rest() {
            if begins {
                lease::revoke(mark);
            } else {
                mark.store(PRIVATE, Ordering::Release);
            }
        }
    }
}

impl DmaBuf {
    /// Whether the device of the pool `key` reaches it: it is the pool's own, or of a region that is registered with it.
    #[inline]
    pub fn is_of(&self, key: PoolKey) -> bool {
        PoolKey(Arc::as_ptr(&self.0.pool).addr()) == key
    }

    /// The `len` bytes from `offset` on of `extent`, which `region` keeps, or else `pool`. What the last page (or, if
    /// it is not `paged`, the last 512 bytes) holds beyond them is nobody else's.
    pub(super) fn new(
        extent: &Extent,
        (offset, len): (u64, usize),
        paged: bool,
        pool: Arc<Pool>,
        region: Option<Arc<AnyRegion>>,
    ) -> DmaBuf {
        // A range of a region may begin anywhere: its pages and pieces are blocks of their own.
        let (unit, lent) = match (paged, &region) {
            (false, _) => (MIN_BLOCK, PIECE_LOG2),
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

    /// Bytes. Good in a forked child as well.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Whether it is a range of a region. The owner of the region's memory goes with the last of them.
    pub fn is_registered(&self) -> bool {
        self.0.region.is_some()
    }

    /// Lends the buffer to the device. Until it is taken back nobody can reach it as bytes.
    #[inline]
    pub fn lend(self) -> Lent {
        lease::grant(self.0.first(), self.0.lent);
        if !self.0.one_mark {
            self.0.lend_rest();
        }
        Lent(ManuallyDrop::new(self))
    }
}

/// A buffer of a pool that this process does not have: at its address lies something else, or nothing.
#[cold]
#[inline(never)]
fn forked() -> ! {
    panic!(
        "a DMA buffer is memory of the process that opened its device, and not of one that was forked from it; open devices after the fork"
    )
}

/// # Panics
/// In a process that was forked after the buffer's device was opened.
impl Deref for DmaBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if !self.0.pool.born.is_here() {
            forked();
        }
        // SAFETY: the block is memory that `pool` or `region` keeps, and initialised. It is this buffer's alone while it is
        // not lent: the device's copies have ended, and others are refused. A lent buffer has no `deref`.
        unsafe { std::slice::from_raw_parts(self.0.data.as_ptr(), self.0.len) }
    }
}

/// # Panics
/// As `deref`.
impl DerefMut for DmaBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        if !self.0.pool.born.is_here() {
            forked();
        }
        // SAFETY: as in `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.0.data.as_ptr(), self.0.len) }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        let Block { addr, len, ref pool, ref region, .. } = *self.0;
        match region {
            _ if len == 0 || !pool.born.is_here() => {}
            Some(region) => region.give_back(addr),
            None => pool.give_back(addr - pool.own.base, len),
        }
    }
}

/// A buffer while the device may use it. Dropping it leaks its memory, and counts it: the device may still write there. Of a
/// region all stays for ever, since its owner frees it as a whole.
///
/// It is no bytes, so that nobody reads what the device writes meanwhile:
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
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(&self) -> usize {
        self.0.0.len
    }

    /// What was lent beside the region that the buffer is a range of.
    pub fn attachment(&self) -> Option<&Attachment> {
        self.0.0.region.as_ref()?.attachment.as_ref()
    }

    /// Where its memory is in this process: for a kernel that copies by itself.
    #[inline]
    pub(crate) fn memory(&self) -> NonNull<u8> {
        self.0.0.data
    }

    /// The chunk of memory that all of it lies in, if it is one.
    #[inline]
    pub fn piece(&self) -> Option<Piece> {
        self.extent().piece(self.addr(), self.len() as u64)
    }

    /// Where that chunk is, and its bytes.
    pub(crate) fn chunk(&self) -> Option<(Piece, NonNull<u8>, usize)> {
        let piece = self.piece()?;
        let (at, bytes) = self.extent().chunk(piece.index);
        Some((piece, at, bytes))
    }

    fn extent(&self) -> &Extent {
        self.0.0.region.as_ref().map_or(&self.0.0.pool.own, |region| &region.extent)
    }

    /// Ends the loan: the device has completed every command that names the buffer, or has provably stopped. A copy by
    /// [`DmaPool::dma_read`] or [`DmaPool::dma_write`] that has begun is waited for, and later ones are refused. Of what copies by itself
    /// (a kernel, a device on a bus) nothing here knows: a buffer that is taken back from it too early is written to while it is bytes.
    #[inline]
    pub fn take_back(mut self) -> DmaBuf {
        // SAFETY: `self` is forgotten right away, so the buffer is taken out once.
        let buf = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        // One call, whatever there is left to do: the loop over completions has no register for two.
        let done = lease::begin_revoke(buf.0.first());
        if !(done & buf.0.one_mark) {
            buf.0.end_rest(done);
        }
        buf
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: nothing touches `self.0` afterwards, so the buffer is taken out once.
        let mut buf = unsafe { ManuallyDrop::take(&mut self.0) };
        let block = &mut *buf.0;
        let bytes = if block.region.is_some() { block.len as u64 } else { block_size(block.len).unwrap_or(0) };
        block.pool.leaked.fetch_add(bytes, Ordering::Relaxed);
        // Never let go: its owner is not to free it.
        std::mem::forget(block.region.take());
        // Only the description is let go: a buffer of no bytes gives no block back.
        block.len = 0;
    }
}
