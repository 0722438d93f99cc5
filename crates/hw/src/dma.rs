//! Memory that a device reaches: one pool of it, buffers lent to the device, and rings.
//!
//! The device knows memory by *bus addresses*, which are never pointers: mixing them up is refused, not a crash. A
//! device's copy ([`DmaPool::dma_read`], [`DmaPool::dma_write`]) is refused unless all of its range is lent at that
//! moment, as an IOMMU would refuse it: neither a wrong PRP nor a stale command reaches a buffer that the application
//! holds, free memory, or a ring.
//!
//! What is not checked is what no IOMMU checks either: a device must not copy into a buffer after it has completed the
//! command that named it, nor twice at once. The embedded device is one thread that copies, then completes; a host
//! takes a buffer back when it has seen the completion, or RDY=0.
//!
//! **Contents**: memory is zero when it is first used. A recycled [`DmaBuf`] holds whatever it held before; a
//! [`RingMemory`] is zeroed each time, because a stale phase tag would be a completion.

mod buddy;
mod ring;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use buddy::{Buddy, CHUNK, MIN_BLOCK, block_size};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zerocopy::FromZeros;

pub use ring::{CqRing, SqRing};

/// The largest pool; also the distance between the bus addresses of two pools.
const MAX_POOL: u64 = 1 << 40;
const PAGE: u64 = 4096;

/// What the device may do with 512 bytes. A lent block of whole pages is marked once per page, on its first 512 bytes.
const PRIVATE: u8 = 0;
const LENT: u8 = 1;
const LENT_PAGE: u8 = 2;

/// No block of this size is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the DMA pool of {pool} bytes has no {wanted} bytes in one piece left; open it larger or keep fewer buffers")]
pub struct PoolFull {
    /// Bytes asked for.
    pub wanted: usize,
    /// Size of the pool.
    pub pool: u64,
}

/// A bus address range that is not, as a whole, lent to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bus address {addr:#x}..+{len:#x} is not memory that is lent to the device")]
pub struct OutOfPool {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// Memory for buffers and rings, reachable by devices. Cheap to clone; the memory goes when the last clone, buffer and
/// ring are gone.
#[derive(Clone, Debug)]
pub struct DmaPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    memory: NonNull<u8>,
    bytes: u64,
    base: u64,
    /// One mark per 512 bytes: `PRIVATE`, `LENT`, `LENT_PAGE`.
    marks: Box<[AtomicU8]>,
    blocks: Mutex<Buddy>,
    /// Live ring blocks by their offset.
    rings: Mutex<BTreeMap<u64, Weak<RingBlock>>>,
    leaked: AtomicU64,
}

// SAFETY: `memory` is a mapping that the pool owns until it is dropped, and pointers into it may be used from any
// thread: blocks are disjoint (the allocator gives each out once), a block is `[u8]` only for its one `DmaBuf`, and
// everything shared goes through atomics or through copies that the marks admit.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `DmaPool::new` with this size, and nothing points into it any more: buffers
        // and rings hold the pool by `Arc`.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast::<c_void>(), self.bytes as usize) };
        debug_assert!(unmapped.is_ok());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one of these is held, except for want of memory; the contents are valid regardless.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl DmaPool {
    /// A pool of `bytes`, rounded up to 4 MiB. Address space only: pages are allocated when they are first touched, and
    /// nothing is reserved.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1 TiB; what `mmap` says.
    pub fn new(bytes: u64) -> io::Result<DmaPool> {
        if bytes == 0 || bytes > MAX_POOL {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a DMA pool holds 1 byte to 1 TiB, not {bytes} bytes")));
        }
        let bytes = bytes.next_multiple_of(CHUNK);
        let marks = <[AtomicU8]>::new_box_zeroed_with_elems((bytes / MIN_BLOCK) as usize)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
        let memory = unsafe { mmap_anonymous(ptr::null_mut(), bytes as usize, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        // Best effort: without huge pages the pool works as well.
        // SAFETY: the range is the mapping just made, and the advice does not change what it holds.
        _ = unsafe { madvise(memory, bytes as usize, Advice::LinuxHugepage) };
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(DmaPool(Arc::new(Pool {
            memory,
            bytes,
            base: next_base(),
            marks,
            blocks: Mutex::new(Buddy::new(bytes)),
            rings: Mutex::default(),
            leaked: AtomicU64::new(0),
        })))
    }

    /// Bytes in the pool.
    #[allow(clippy::len_without_is_empty)] // a pool is never empty
    pub fn len(&self) -> u64 {
        self.0.bytes
    }

    /// Bus address of the pool's first byte: page-aligned, and never the value of a pointer.
    pub fn base(&self) -> u64 {
        self.0.base
    }

    /// Bytes that buffers dropped while lent have taken out of use for good.
    pub fn leaked(&self) -> u64 {
        self.0.leaked.load(Ordering::Relaxed)
    }

    /// A buffer of `len` bytes, aligned to 4 KiB if it is at least that long, else to 512 bytes. What it holds is
    /// unspecified. Takes a lock: keep buffers, do not allocate per I/O.
    ///
    /// # Errors
    /// [`PoolFull`] if no piece of that size is free.
    pub fn alloc(&self, len: usize) -> Result<DmaBuf, PoolFull> {
        if len == 0 {
            // It would take a block, and nobody would give it back.
            return Ok(self.empty());
        }
        let offset = self.0.take(len)?;
        // SAFETY: `offset` is inside the mapping.
        let data = unsafe { self.0.memory.add(offset as usize) };
        Ok(self.0.buffer(data, len, offset))
    }

    /// A buffer of no bytes, for when there is none to give back.
    pub fn empty(&self) -> DmaBuf {
        self.0.buffer(NonNull::dangling(), 0, 0)
    }

    /// Whether `buf` is from this pool.
    #[inline]
    pub fn owns(&self, buf: &DmaBuf) -> bool {
        Arc::ptr_eq(&self.0, &buf.0.pool)
    }

    /// Memory for submission or completion queues, zeroed and page-aligned, of `len` bytes rounded up to pages.
    /// [`DmaPool::sq`] and [`DmaPool::cq`] map it; nobody ever has it as bytes.
    ///
    /// # Errors
    /// [`PoolFull`] if no piece of that size is free.
    pub fn alloc_ring(&self, len: usize) -> Result<RingMemory, PoolFull> {
        let len = len.max(1).checked_next_multiple_of(PAGE as usize).ok_or(self.0.full(len))?;
        let offset = self.0.take(len)?;
        // SAFETY: the block is inside the mapping, and until it is registered below nobody else knows it.
        unsafe { self.0.memory.add(offset as usize).write_bytes(0, len) };
        let block = Arc::new(RingBlock { offset, len: len as u64, pool: self.0.clone() });
        lock(&self.0.rings).insert(offset, Arc::downgrade(&block));
        Ok(RingMemory(block))
    }

    /// Maps a submission queue of `entries` entries at bus address `addr`. `None` unless all of it lies in one
    /// [`RingMemory`], 8-byte aligned.
    pub fn sq(&self, addr: u64, entries: u32) -> Option<SqRing> {
        self.ring_block(addr, entries, 64).map(|(block, at)| SqRing::new(block, at, entries))
    }

    /// Maps a completion queue, as [`DmaPool::sq`] does.
    pub fn cq(&self, addr: u64, entries: u32) -> Option<CqRing> {
        self.ring_block(addr, entries, 16).map(|(block, at)| CqRing::new(block, at, entries))
    }

    /// Whether the device may copy from and to this range now: all of it is lent.
    ///
    /// # Errors
    /// [`OutOfPool`] if not.
    pub fn check(&self, addr: u64, len: u64) -> Result<(), OutOfPool> {
        self.0.lent_range(addr, len).map(drop)
    }

    /// The device copies lent memory at bus address `addr`.
    ///
    /// # Errors
    /// [`OutOfPool`] if not all of it is lent; nothing is copied.
    pub fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), OutOfPool> {
        let from = self.0.lent_range(addr, into.len() as u64)?;
        // SAFETY: the range is inside the mapping and lent, so no reference to it exists; `into`, being a `&mut`,
        // does not overlap it.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast_const(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// The device copies into lent memory at bus address `addr`.
    ///
    /// # Errors
    /// [`OutOfPool`] if not all of it is lent; nothing is copied.
    pub fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), OutOfPool> {
        let to = self.0.lent_range(addr, from.len() as u64)?;
        // SAFETY: the range is inside the mapping and lent, so no reference to it exists, and `from` is none.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        Ok(())
    }

    /// The ring block that holds `entries` entries of `size` bytes at `addr`, and where they begin.
    fn ring_block(&self, addr: u64, entries: u32, size: u64) -> Option<(Arc<RingBlock>, NonNull<u8>)> {
        let offset = addr.checked_sub(self.0.base).filter(|o| *o < self.0.bytes && o % 8 == 0)?;
        let (_, block) = lock(&self.0.rings).range(..=offset).next_back().map(|(&at, block)| (at, block.upgrade()))?;
        let block = block?;
        let end = offset + u64::from(entries) * size;
        if entries == 0 || end > block.offset + block.len {
            return None;
        }
        // SAFETY: `offset` is inside the block and so inside the mapping.
        let at = unsafe { self.0.memory.add(offset as usize) };
        Some((block, at))
    }
}

/// Pools take turns in 64 ranges of bus addresses, all page-aligned and none where Linux puts a process's memory. Two
/// pools rarely share one, so that an address of the wrong pool is noticed as well.
fn next_base() -> u64 {
    static POOLS: AtomicU64 = AtomicU64::new(0);
    (1 + POOLS.fetch_add(1, Ordering::Relaxed) % 64) * MAX_POOL
}

impl Pool {
    fn full(&self, wanted: usize) -> PoolFull {
        PoolFull { wanted, pool: self.bytes }
    }

    fn take(&self, len: usize) -> Result<u64, PoolFull> {
        block_size(len).and_then(|size| lock(&self.blocks).alloc(size)).ok_or(self.full(len))
    }

    fn give_back(&self, offset: u64, len: usize) {
        if let Some(size) = block_size(len) {
            lock(&self.blocks).free(offset, size);
        }
    }

    fn buffer(self: &Arc<Pool>, data: NonNull<u8>, len: usize, offset: u64) -> DmaBuf {
        let (unit, lent) = if len >= PAGE as usize { (PAGE, LENT_PAGE) } else { (MIN_BLOCK, LENT) };
        // What holds nothing has no unit, and lending it says nothing of anybody else's.
        static NONE: AtomicU8 = AtomicU8::new(PRIVATE);
        let mark = NonNull::from(if len == 0 { &NONE } else { &self.marks[(offset / MIN_BLOCK) as usize] });
        DmaBuf(Box::new(Block { data, len, addr: self.base + offset, mark, lent, one_mark: len as u64 <= unit, pool: self.clone() }))
    }

    /// Marks what follows the first unit of a block: pages of a block of pages, 512 bytes each of a smaller one.
    #[inline(never)]
    fn mark_rest(&self, offset: u64, len: usize, lent: bool) {
        let (unit, mark) = if len >= PAGE as usize { (PAGE, LENT_PAGE) } else { (MIN_BLOCK, LENT) };
        let mark = if lent { mark } else { PRIVATE };
        let mut at = offset + unit;
        while at < offset + len as u64 {
            self.marks[(at / MIN_BLOCK) as usize].store(mark, Ordering::Release);
            at += unit;
        }
    }

    /// Where the range `addr..addr + len` is, if all of it is lent.
    #[inline]
    fn lent_range(&self, addr: u64, len: u64) -> Result<NonNull<u8>, OutOfPool> {
        let refused = OutOfPool { addr, len };
        let offset = addr.checked_sub(self.base).ok_or(refused)?;
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes).ok_or(refused)?;
        let mut at = offset;
        while at < end {
            let page = at / PAGE * PAGE;
            if self.mark_at(page) == LENT_PAGE {
                at = page + PAGE;
            } else if self.mark_at(at) == LENT {
                at = at / MIN_BLOCK * MIN_BLOCK + MIN_BLOCK;
            } else {
                return Err(refused);
            }
        }
        // SAFETY: `offset` is at most the size of the mapping.
        Ok(unsafe { self.memory.add(offset as usize) })
    }

    #[inline]
    fn mark_at(&self, offset: u64) -> u8 {
        self.marks.get((offset / MIN_BLOCK) as usize).map_or(PRIVATE, |m| m.load(Ordering::Acquire))
    }
}

/// A buffer that the device can reach once it is lent. Until then it is the holder's alone, and is `[u8]`.
///
/// One word: it is moved several times per I/O, through requests and completions.
#[derive(Debug)]
pub struct DmaBuf(Box<Block>);

/// What a buffer is, made when it is allocated.
#[derive(Debug)]
struct Block {
    data: NonNull<u8>,
    len: usize,
    addr: u64,
    /// The pool's mark of the block's first unit.
    mark: NonNull<AtomicU8>,
    /// What it says while the block is lent.
    lent: u8,
    /// The block has no other unit.
    one_mark: bool,
    pool: Arc<Pool>,
}

// SAFETY: the block is this buffer's alone, as a `Box<[u8]>`'s would be; the mark is an atomic that the pool keeps.
unsafe impl Send for Block {}
// SAFETY: through `&DmaBuf` the block is only read.
unsafe impl Sync for Block {}

impl Block {
    #[inline]
    fn offset(&self) -> u64 {
        self.addr - self.pool.base
    }

    /// Marks the block as lent or as private again.
    #[inline]
    fn mark(&self, lent: bool) {
        // SAFETY: it points into the pool's marks, which `pool` keeps and nobody moves or has as anything but atomics, or to a
        // static.
        let first = unsafe { self.mark.as_ref() };
        // Release: what the holder wrote is there before the device may read it.
        first.store(if lent { self.lent } else { PRIVATE }, Ordering::Release);
        if !self.one_mark {
            self.pool.mark_rest(self.offset(), self.len, lent);
        }
    }
}

impl DmaBuf {
    /// Bus address of the first byte.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.0.addr
    }

    /// Lends the buffer to the device. Until it is taken back nobody can reach it as bytes.
    #[inline]
    pub fn lend(self) -> Lent {
        self.0.mark(true);
        Lent(ManuallyDrop::new(self))
    }
}

impl Deref for DmaBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is inside the mapping, which the `Arc` keeps, and initialised (zero at first). It is this
        // buffer's alone while it is not lent: the device's copies are refused. A lent buffer has no `deref`.
        unsafe { std::slice::from_raw_parts(self.0.data.as_ptr(), self.0.len) }
    }
}

impl DerefMut for DmaBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.0.data.as_ptr(), self.0.len) }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        if self.0.len > 0 {
            self.0.pool.give_back(self.0.offset(), self.0.len);
        }
    }
}

/// A buffer while the device may use it. Dropping it leaks its memory, and counts it: the device may still write there.
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

    /// Ends the loan: the device has completed every command that names the buffer, or has provably stopped. Copies
    /// that it begins later are refused.
    #[inline]
    pub fn take_back(mut self) -> DmaBuf {
        // SAFETY: `self` is forgotten right away, so the buffer is taken out once.
        let buf = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        buf.0.mark(false);
        buf
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: nothing touches `self.0` afterwards, so the buffer is taken out once.
        let mut buf = unsafe { ManuallyDrop::take(&mut self.0) };
        let block = block_size(buf.0.len).unwrap_or(0);
        buf.0.pool.leaked.fetch_add(block, Ordering::Relaxed);
        // Only the description is let go: a buffer of no bytes gives no block back.
        buf.0.len = 0;
    }
}

/// Memory of submission and completion queues. The host keeps it for as long as the controller may use the queues; rings
/// mapped over it keep it alive themselves, so neither side can be left with memory that is somebody else's by now.
#[derive(Clone, Debug)]
pub struct RingMemory(Arc<RingBlock>);

#[derive(Debug)]
struct RingBlock {
    offset: u64,
    len: u64,
    pool: Arc<Pool>,
}

impl RingMemory {
    /// Bus address of the first byte, page-aligned.
    pub fn addr(&self) -> u64 {
        self.0.pool.base + self.0.offset
    }

    /// Bytes, whole pages.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        self.0.len
    }
}

impl Drop for RingBlock {
    fn drop(&mut self) {
        lock(&self.pool.rings).remove(&self.offset);
        self.pool.give_back(self.offset, self.len as usize);
    }
}

#[cfg(test)]
mod tests;
