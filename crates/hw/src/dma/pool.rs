//! The pool: memory made for one device, given out by blocks, and the way in which the device copies.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::buddy::{Buddy, block_size};
use super::extent::{Extent, PinError, Pinner, Pinning};
use super::memory::{Backing, Pages};
use super::ring::RingMemory;
use super::space::{Space, USUAL_BITS};
use super::{CHUNK, MAX_POOL, MIN_BLOCK, lock};
use nvme::BusError;

use crate::Birth;

/// How a pool is made. Start from `PoolOptions::default()`.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// What stands behind its memory.
    pub backing: Backing,
    /// Bits of a bus address that the device has: 48, unless it says otherwise. There are some with 39.
    pub address_bits: u32,
    /// Bus addresses that the way to the device lets through, as an IOMMU says; empty: all that the device has.
    pub windows: Vec<Range<u64>>,
    /// What the device wants the address of a buffer to be a multiple of, in bytes: a power of two, 512 or more. Buffers of the pool
    /// are, and a region gives out no others.
    pub alignment: u32,
    /// How memory is pinned for a device that reaches it by itself. Without, nothing is pinned, and nothing counts
    /// against RLIMIT_MEMLOCK.
    pub pinner: Option<Arc<dyn Pinner>>,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            backing: Backing::default(),
            address_bits: USUAL_BITS,
            windows: Vec::new(),
            alignment: MIN_BLOCK as u32,
            pinner: None,
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
    /// The pool is of the process that this one was forked from, which alone has its memory.
    #[error("this process was forked from the one that opened the device, and does not have its memory; open devices after the fork")]
    Forked,
}

/// Memory for buffers and rings, reachable by devices. Cheap to clone; the memory goes when the last clone, buffer, region
/// and ring are gone.
#[derive(Clone, Debug)]
pub struct DmaPool(pub(super) Arc<Pool>);

/// Fields are dropped in this order: nothing is pinned any more when the memory goes.
#[derive(Debug)]
pub(super) struct Pool {
    pub own: Extent,
    pub space: Space,
    pub pinning: Option<Arc<Pinning>>,
    blocks: Mutex<Buddy>,
    /// Live ring blocks by their offset.
    pub rings: Mutex<BTreeMap<u64, Weak<RingMemory>>>,
    pub leaked: AtomicU64,
    /// What addresses of buffers are multiples of.
    pub alignment: u64,
    backing: Backing,
    _pages: Pages,
    /// The process that has the memory.
    pub born: Birth,
}

impl PoolOptions {
    /// A pool of `bytes`, rounded up to 4 MiB. Address space only, unless huge pages are reserved for it: memory is taken
    /// as it is first touched.
    ///
    /// # Errors
    /// `InvalidInput`: no pool is of this size, or the device has too few bus addresses. What `mmap` says.
    pub fn open(&self, bytes: u64) -> io::Result<DmaPool> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        if bytes == 0 || bytes > MAX_POOL {
            return Err(wrong(format!("a DMA pool holds 1 byte to 1 TiB, not {bytes} bytes")));
        }
        let bytes = bytes.next_multiple_of(CHUNK);
        let bits = self.address_bits;
        let space = Space::new(bytes, bits, &self.windows).map_err(|room| {
            wrong(format!(
                "a DMA pool of {bytes} bytes does not fit the {room} bytes in one piece that bus addresses of {bits} bits, less what an IOMMU \
                 keeps back, leave for it"
            ))
        })?;
        let (mut pages, backing) = Pages::backed(bytes as usize, self.backing)?;
        pages.mapping.keep_from_children()?;
        let pinning = self.pinner.clone().map(|pinner| Arc::new(Pinning::new(pinner)));
        let file = pages.file.take().map(|file| (file, 0));
        // SAFETY: the mapping is of this size, zeroed, and goes after the extent (`Pool`).
        let own = unsafe { Extent::new((pages.mapping.at, bytes), space.pool(), pinning.clone(), file) }?;
        let alignment = u64::from(self.alignment).next_power_of_two().clamp(MIN_BLOCK, CHUNK);
        let (blocks, rings) = (Mutex::new(Buddy::new(bytes)), Mutex::default());
        Ok(DmaPool(Arc::new(Pool {
            own,
            space,
            pinning,
            blocks,
            rings,
            leaked: AtomicU64::new(0),
            alignment,
            backing,
            _pages: pages,
            born: Birth::here(),
        })))
    }
}

impl DmaPool {
    /// A pool of `bytes` as [`PoolOptions::open`] makes it by default.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1 TiB; what `mmap` says.
    pub fn new(bytes: u64) -> io::Result<DmaPool> {
        PoolOptions::default().open(bytes)
    }

    /// Bytes in the pool.
    #[allow(clippy::len_without_is_empty)] // a pool is never empty
    pub fn len(&self) -> u64 {
        self.0.own.bytes
    }

    /// Bus address of the pool's first byte: page-aligned, and never the value of a pointer.
    pub fn base(&self) -> u64 {
        self.0.own.base
    }

    /// What stands behind its memory: huge pages only if there were enough.
    pub fn backing(&self) -> Backing {
        self.0.backing
    }

    /// Pages that the pool's device reaches once they are registered, wherever it is.
    pub fn pages(&self, bytes: usize) -> io::Result<Pages> {
        match &self.0.pinning {
            Some(pinning) if pinning.pinner.wants_file() => Pages::shared(bytes),
            _ => Pages::new(bytes),
        }
    }

    /// Bytes that are pinned, the regions' included.
    pub fn pinned(&self) -> u64 {
        self.0.pinning.as_ref().map_or(0, |pinning| pinning.bytes.load(Ordering::Relaxed))
    }

    /// Bytes that buffers dropped while lent have taken out of use for good.
    pub fn leaked(&self) -> u64 {
        self.0.leaked.load(Ordering::Relaxed)
    }

    /// Whether the device may copy from and to this range now: all of it is lent.
    #[inline]
    pub fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.0.own.check(addr, len).or_else(|refused| self.0.in_region(refused, |extent| extent.check(addr, len)))
    }

    /// The device copies lent memory at bus address `addr`.
    ///
    /// # Errors
    /// [`BusError`] if not all of it is lent; nothing is copied.
    #[inline]
    pub fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.0.own.read(addr, into).or_else(|refused| self.0.in_region(refused, |extent| extent.read(addr, into)))
    }

    /// The device copies into lent memory at bus address `addr`.
    ///
    /// # Errors
    /// [`BusError`] if not all of it is lent; nothing is copied.
    #[inline]
    pub fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.0.own.write(addr, from).or_else(|refused| self.0.in_region(refused, |extent| extent.write(addr, from)))
    }
}

impl Pool {
    pub fn full(&self, wanted: usize) -> AllocError {
        AllocError::Full { wanted, pool: self.own.bytes }
    }

    /// Bytes of a block for `len` bytes. It begins at a multiple of its size, and so at one of the alignment.
    fn block_for(&self, len: usize) -> Option<u64> {
        block_size(len.max(self.alignment as usize))
    }

    /// A block for `len` bytes: its offset.
    pub fn take(&self, len: usize) -> Result<u64, AllocError> {
        if !self.born.is_here() {
            return Err(AllocError::Forked);
        }
        let size = self.block_for(len).ok_or(self.full(len))?;
        let offset = lock(&self.blocks).alloc(size).ok_or(self.full(len))?;
        self.own.pin(offset, size).inspect_err(|_| self.give_back(offset, len))?;
        Ok(offset)
    }

    /// The reverse. In a forked child another thread of the parent's may have the lock for ever.
    pub fn give_back(&self, offset: u64, len: usize) {
        if self.born.is_here()
            && let Some(size) = self.block_for(len)
        {
            lock(&self.blocks).free(offset, size);
        }
    }

    /// What the pool's own memory refused may lie in a region. Its memory stays for as long as `reach` takes. Should the
    /// host let go of it meanwhile, against the rules, its owner is dropped here.
    #[inline(never)]
    fn in_region(&self, refused: BusError, reach: impl FnOnce(&Extent) -> Result<(), BusError>) -> Result<(), BusError> {
        self.space.find(refused.addr).map_or(Err(refused), |region| reach(&region.extent))
    }
}
