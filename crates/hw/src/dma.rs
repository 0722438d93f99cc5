//! Memory that a device reaches: one pool of it, regions that callers own, buffers lent to the device, and rings.
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
//! **Contents**: the pool's memory is zero when it is first used. A recycled [`DmaBuf`] holds whatever it held before; a
//! [`RingMemory`] is zeroed each time, because a stale phase tag would be a completion.

mod buddy;
mod buffer;
mod extent;
mod mapping;
mod memory;
mod pins;
mod region;
mod ring;
mod space;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use buddy::{Buddy, CHUNK, block_size};
use extent::Extent;
use mapping::Mapping;
use pins::{Pinning, Pins};
use space::Space;

pub use buffer::{DmaBuf, Lent};
pub use mapping::Backing;
pub use memory::{Memory, Pages, RawMemory};
pub use pins::{Chunk, PinError, Pinner};
pub use region::{RangeError, Region, RegisterError};
pub use ring::{CqRing, SqRing};

/// The largest pool, and the largest region.
const MAX_POOL: u64 = 1 << 40;
const PAGE: u64 = 4096;

/// How a pool is made. Start from `PoolOptions::default()`.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// What stands behind its memory.
    pub backing: Backing,
    /// Bits of a bus address that the device has: 48, unless it says otherwise. There are some with 39.
    pub address_bits: u32,
    /// How memory is pinned for a device that reaches it by itself. Without, nothing is pinned, and nothing counts
    /// against RLIMIT_MEMLOCK.
    pub pinner: Option<Arc<dyn Pinner>>,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions { backing: Backing::default(), address_bits: space::USUAL_BITS, pinner: None }
    }
}

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// None is of this size.
    #[error("a DMA pool holds 1 byte to 1 TiB, not {0} bytes")]
    Size(u64),
    /// The device has too few bus addresses.
    #[error("a DMA pool of {bytes} bytes does not fit the {room} bytes that bus addresses of {bits} bits leave for it")]
    TooWide {
        /// Bytes of the pool.
        bytes: u64,
        /// Bytes that would fit.
        room: u64,
        /// [`PoolOptions::address_bits`].
        bits: u32,
    },
    /// The system has no memory for it.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<PoolError> for io::Error {
    fn from(error: PoolError) -> io::Error {
        match error {
            PoolError::System(error) => error,
            error => io::Error::new(io::ErrorKind::InvalidInput, error),
        }
    }
}

/// Why a pool gave no memory.
#[derive(Debug, thiserror::Error)]
pub enum AllocError {
    /// No block of this size is free.
    #[error("the DMA pool of {pool} bytes has no {wanted} bytes in one piece left; open it larger or keep fewer buffers")]
    Full {
        /// Bytes asked for.
        wanted: usize,
        /// Size of the pool.
        pool: u64,
    },
    /// It cannot be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
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

/// Where the device finds what was lent beside a region: see [`DmaPool::register_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Bus address of the region's first byte.
    pub base: u64,
    /// Bus address of what stands beside it.
    pub addr: u64,
}

/// Memory for buffers and rings, reachable by devices. Cheap to clone; the memory goes when the last clone, buffer, region
/// and ring are gone.
#[derive(Clone, Debug)]
pub struct DmaPool(Arc<Pool>);

/// Fields are dropped in this order: nothing is pinned any more when the memory goes.
#[derive(Debug)]
struct Pool {
    own: Extent,
    space: Space,
    pinning: Option<Arc<Pinning>>,
    blocks: Mutex<Buddy>,
    /// Live ring blocks by their offset.
    rings: Mutex<BTreeMap<u64, Weak<RingBlock>>>,
    leaked: AtomicU64,
    backing: Backing,
    mapping: Mapping,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one of these is held, except for want of memory; the contents are valid regardless.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl PoolOptions {
    /// A pool of `bytes`, rounded up to 4 MiB. Address space only, unless huge pages are reserved for it: memory is taken
    /// as it is first touched.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn open(&self, bytes: u64) -> Result<DmaPool, PoolError> {
        if bytes == 0 || bytes > MAX_POOL {
            return Err(PoolError::Size(bytes));
        }
        let bytes = bytes.next_multiple_of(CHUNK);
        let bits = self.address_bits;
        let space = Space::new(bytes, bits).map_err(|room| PoolError::TooWide { bytes, room, bits })?;
        let (mapping, backing) = Mapping::new(bytes as usize, self.backing)?;
        let pinning = self.pinner.clone().map(|pinner| Arc::new(Pinning::new(pinner)));
        let (memory, addr) = (mapping.memory(), space.pool());
        let pins = pinning.clone().map(|pinning| Pins::new(pinning, Chunk { memory, addr, bytes }));
        // SAFETY: the mapping is of this size, zeroed, and goes after the extent (`Pool`).
        let own = unsafe { Extent::new(memory, bytes, addr, pins) }?;
        let (blocks, rings) = (Mutex::new(Buddy::new(bytes)), Mutex::default());
        Ok(DmaPool(Arc::new(Pool { own, space, pinning, blocks, rings, leaked: AtomicU64::new(0), backing, mapping })))
    }
}

impl DmaPool {
    /// A pool of `bytes` as [`PoolOptions::open`] makes it by default.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1 TiB; what `mmap` says.
    pub fn new(bytes: u64) -> io::Result<DmaPool> {
        PoolOptions::default().open(bytes).map_err(io::Error::from)
    }

    /// Bytes in the pool.
    #[allow(clippy::len_without_is_empty)] // a pool is never empty
    pub fn len(&self) -> u64 {
        self.0.own.bytes()
    }

    /// Bus address of the pool's first byte: page-aligned, and never the value of a pointer.
    pub fn base(&self) -> u64 {
        self.0.own.base()
    }

    /// What stands behind its memory: huge pages only if there were enough.
    pub fn backing(&self) -> Backing {
        self.0.backing
    }

    /// The file behind [`Backing::Memfd`], for another process to map. The byte at bus address [`DmaPool::base`] + *n* is the
    /// file's byte *n*. It cannot be made shorter.
    ///
    /// # Safety
    /// Nobody changes a byte of the file but where memory is lent, or in a ring. Another process is trusted as a device
    /// without an IOMMU is.
    pub unsafe fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.0.mapping.file()
    }

    /// Bytes that are pinned, the regions' included.
    pub fn pinned(&self) -> u64 {
        self.0.pinning.as_ref().map_or(0, |pinning| pinning.bytes())
    }

    /// Bytes that buffers dropped while lent have taken out of use for good.
    pub fn leaked(&self) -> u64 {
        self.0.leaked.load(Ordering::Relaxed)
    }

    /// A buffer of `len` bytes, aligned to 4 KiB if it is at least that long, else to 512 bytes. What it holds is
    /// unspecified. Takes a lock: keep buffers, do not allocate per I/O.
    ///
    /// # Errors
    /// See [`AllocError`].
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
        DmaBuf::nothing(self.0.clone())
    }

    /// Registers memory that the caller owns: ranges of it become buffers that this pool's device reaches.
    ///
    /// # Errors
    /// See [`RegisterError`]; the memory comes back with it.
    pub fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        self.register_with(memory, |_, _| Ok(None))
    }

    /// The same with something beside it that describes the memory to the device. `describe` is told the region's first
    /// bus address and its bytes; what it lends stays lent while any of the region exists.
    ///
    /// # Errors
    /// As of [`DmaPool::register`], or from `describe`.
    pub fn register_with<M: Memory>(
        &self,
        memory: M,
        describe: impl FnOnce(u64, u64) -> Result<Option<Lent>, RegisterError>,
    ) -> Result<Region<M>, (RegisterError, M)> {
        Region::new(&self.0, memory, describe)
    }

    /// Whether this pool's device reaches `buf`: it is the pool's own, or of a region that is registered with it.
    #[inline]
    pub fn owns(&self, buf: &DmaBuf) -> bool {
        Arc::ptr_eq(&self.0, buf.pool())
    }

    /// Memory for submission or completion queues, zeroed and page-aligned, of `len` bytes rounded up to pages.
    /// [`DmaPool::sq`] and [`DmaPool::cq`] map it; nobody ever has it as bytes.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn alloc_ring(&self, len: usize) -> Result<RingMemory, AllocError> {
        let len = len.max(1).checked_next_multiple_of(PAGE as usize).ok_or(self.0.full(len))?;
        let offset = self.0.take(len)?;
        // SAFETY: the block is inside the mapping, and until it is registered below nobody else knows it.
        unsafe { self.0.own.at(offset).write_bytes(0, len) };
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
    #[inline]
    pub fn check(&self, addr: u64, len: u64) -> Result<(), OutOfPool> {
        self.0.own.check(addr, len).or_else(|refused| self.0.in_region(refused, |extent| extent.check(addr, len)))
    }

    /// The device copies lent memory at bus address `addr`.
    ///
    /// # Errors
    /// [`OutOfPool`] if not all of it is lent; nothing is copied.
    #[inline]
    pub fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), OutOfPool> {
        self.0.own.read(addr, into).or_else(|refused| self.0.in_region(refused, |extent| extent.read(addr, into)))
    }

    /// The device copies into lent memory at bus address `addr`.
    ///
    /// # Errors
    /// [`OutOfPool`] if not all of it is lent; nothing is copied.
    #[inline]
    pub fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), OutOfPool> {
        self.0.own.write(addr, from).or_else(|refused| self.0.in_region(refused, |extent| extent.write(addr, from)))
    }

    /// The ring block that holds `entries` entries of `size` bytes at `addr`, and where they begin.
    fn ring_block(&self, addr: u64, entries: u32, size: u64) -> Option<(Arc<RingBlock>, NonNull<u8>)> {
        let own = &self.0.own;
        let offset = addr.checked_sub(own.base()).filter(|o| *o < own.bytes() && o % 8 == 0)?;
        let (_, block) = lock(&self.0.rings).range(..=offset).next_back().map(|(&at, block)| (at, block.upgrade()))?;
        let block = block?;
        let end = offset + u64::from(entries) * size;
        if entries == 0 || end > block.offset + block.len {
            return None;
        }
        Some((block, own.at(offset)))
    }
}

impl Pool {
    fn full(&self, wanted: usize) -> AllocError {
        AllocError::Full { wanted, pool: self.own.bytes() }
    }

    fn take(&self, len: usize) -> Result<u64, AllocError> {
        let size = block_size(len).ok_or(self.full(len))?;
        let offset = lock(&self.blocks).alloc(size).ok_or(self.full(len))?;
        self.own.pin(offset, size).inspect_err(|_| self.give_back(offset, len))?;
        Ok(offset)
    }

    fn give_back(&self, offset: u64, len: usize) {
        if let Some(size) = block_size(len) {
            lock(&self.blocks).free(offset, size);
        }
    }

    /// What the pool's own memory refused may lie in a region. Its memory stays for as long as `reach` takes. Should the
    /// host let go of it meanwhile, against the rules, its owner is dropped here.
    #[inline(never)]
    fn in_region(&self, refused: OutOfPool, reach: impl FnOnce(&Extent) -> Result<(), OutOfPool>) -> Result<(), OutOfPool> {
        self.space.find(refused.addr).map_or(Err(refused), |region| reach(region.extent()))
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
        self.0.pool.own.base() + self.0.offset
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
