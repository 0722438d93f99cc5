//! The pool: memory for one device, allocated in blocks, and the functions with which an embedded
//! controller copies to and from it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::buddy::{Buddy, block_size};
use super::extent::{Extent, PinError, Pinner, Pinning};
use super::memory::{Backing, Pages};
use super::ring::RingMemory;
use super::space::{AddressSpace, USUAL_BITS};
use super::{CHUNK, MAX_POOL, MIN_BLOCK, lock};
use nvme::BusError;

use crate::ForkGuard;

/// Options of a pool. Start from `PoolOptions::default()`.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// What kind of memory it uses.
    pub backing: Backing,
    /// Width of a bus address in bits: 48 unless the device says otherwise. Some devices have 39.
    pub address_bits: u32,
    /// Bus addresses that the IOMMU can map; empty: all addresses of the device.
    pub windows: Vec<Range<u64>>,
    /// Alignment in bytes that the device requires of buffers: a power of two, at least 512.
    /// Applies to buffers of the pool and of its regions.
    pub alignment: u32,
    /// How to pin memory for a device that accesses it by itself. `None`: nothing is pinned or
    /// counted against RLIMIT_MEMLOCK.
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

/// Why an allocation failed.
#[derive(Debug, thiserror::Error)]
pub enum AllocError {
    /// No block of this size is free.
    #[error(
        "the DMA pool of {pool} bytes has no {wanted} contiguous bytes left; make it larger or keep fewer buffers"
    )]
    Full {
        /// Bytes asked for.
        wanted: usize,
        /// Size of the pool.
        pool: u64,
    },
    /// It cannot be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The pool belongs to the parent of this forked process.
    #[error(
        "the memory belongs to the parent process, from which this process was forked; open devices after the fork"
    )]
    Forked,
}

/// Memory for buffers and rings of one device. Cheap to clone; the memory is freed when the last
/// clone, buffer, region and ring are gone.
#[derive(Clone, Debug)]
pub struct DmaPool(pub(super) Arc<Pool>);

/// Fields drop in this order: unpinned before the memory is freed.
#[derive(Debug)]
pub(super) struct Pool {
    pub own: Extent,
    pub space: AddressSpace,
    pub pinning: Option<Arc<Pinning>>,
    blocks: Mutex<Buddy>,
    /// Live ring blocks by their offset.
    pub rings: Mutex<BTreeMap<u64, Weak<RingMemory>>>,
    pub leaked: AtomicU64,
    /// Alignment of buffers in bytes.
    pub alignment: u64,
    backing: Backing,
    _pages: Pages,
    /// The process that owns the memory.
    pub fork_guard: ForkGuard,
}

impl PoolOptions {
    /// Opens a pool of `bytes`, rounded up to 4 MiB. Reserves address space only, except for
    /// reserved huge pages: memory is allocated when it is first touched.
    ///
    /// # Errors
    /// `InvalidInput`: the size is 0 or above 1 TiB, or the device has too few bus addresses.
    /// Otherwise the error of mmap(2).
    pub fn open(&self, bytes: u64) -> io::Result<DmaPool> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        if bytes == 0 || bytes > MAX_POOL {
            return Err(wrong(format!("a DMA pool holds 1 byte to 1 TiB, not {bytes} bytes")));
        }
        let bytes = bytes.next_multiple_of(CHUNK);
        let bits = self.address_bits;
        let space = AddressSpace::new(bytes, bits, &self.windows).map_err(|room| {
            wrong(format!(
                "a DMA pool of {bytes} bytes does not fit: bus addresses have {bits} bits, and the largest range that the IOMMU does not \
                 reserve has {room} bytes"
            ))
        })?;
        let (mut pages, backing) = Pages::backed(bytes as usize, self.backing)?;
        pages.mapping.dont_fork()?;
        let pinning = self.pinner.clone().map(|pinner| Arc::new(Pinning::new(pinner)));
        let file = pages.file.take().map(|file| (file, 0));
        // SAFETY: the mapping has this size, is zeroed, and is dropped after the extent (`Pool`).
        let own = unsafe {
            Extent::new((pages.mapping.at, bytes), space.pool_base(), pinning.clone(), file)
        }?;
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
            fork_guard: ForkGuard::current(),
        })))
    }
}

impl DmaPool {
    /// Opens a pool of `bytes` with default options.
    ///
    /// # Errors
    /// As [`PoolOptions::open`].
    pub fn new(bytes: u64) -> io::Result<DmaPool> {
        PoolOptions::default().open(bytes)
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty)] // a pool is never empty
    pub fn len(&self) -> u64 {
        self.0.own.bytes
    }

    /// Bus address of the pool's first byte: page-aligned, and never the value of a pointer.
    pub fn base(&self) -> u64 {
        self.0.own.base
    }

    /// The kind of memory in use: huge pages only if there were enough.
    pub fn backing(&self) -> Backing {
        self.0.backing
    }

    /// Allocates pages that can be registered with this pool, also if its device is in another
    /// process.
    pub fn pages(&self, bytes: usize) -> io::Result<Pages> {
        match &self.0.pinning {
            Some(pinning) if pinning.pinner.needs_file() => Pages::shared(bytes),
            _ => Pages::new(bytes),
        }
    }

    /// Pinned bytes, including those of regions.
    pub fn pinned(&self) -> u64 {
        self.0.pinning.as_ref().map_or(0, |pinning| pinning.bytes.load(Ordering::Relaxed))
    }

    /// Bytes lost for good to buffers that were dropped while lent.
    pub fn leaked(&self) -> u64 {
        self.0.leaked.load(Ordering::Relaxed)
    }

    /// Checks that the device may access this range now: all of it is lent.
    #[inline]
    pub fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.0
            .own
            .check(addr, len)
            .or_else(|refused| self.0.in_region(refused, |extent| extent.check(addr, len)))
    }

    /// Copies from lent memory at bus address `addr`, for the device.
    ///
    /// # Errors
    /// [`BusError`] if not all of it is lent; nothing is copied.
    #[inline]
    pub fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.0
            .own
            .read(addr, into)
            .or_else(|refused| self.0.in_region(refused, |extent| extent.read(addr, into)))
    }

    /// Copies to lent memory at bus address `addr`, for the device.
    ///
    /// # Errors
    /// [`BusError`] if not all of it is lent; nothing is copied.
    #[inline]
    pub fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.0
            .own
            .write(addr, from)
            .or_else(|refused| self.0.in_region(refused, |extent| extent.write(addr, from)))
    }
}

impl Pool {
    pub fn full(&self, wanted: usize) -> AllocError {
        AllocError::Full { wanted, pool: self.own.bytes }
    }

    /// Size of the block for `len` bytes. Blocks are aligned to their size, and so to the alignment
    /// of the device.
    fn block_for(&self, len: usize) -> Option<u64> {
        block_size(len.max(self.alignment as usize))
    }

    /// Allocates and pins a block for `len` bytes; returns its offset.
    pub fn alloc_block(&self, len: usize) -> Result<u64, AllocError> {
        if !self.fork_guard.same_process() {
            return Err(AllocError::Forked);
        }
        let size = self.block_for(len).ok_or(self.full(len))?;
        let offset = lock(&self.blocks).alloc(size).ok_or(self.full(len))?;
        self.own.pin(offset, size).inspect_err(|_| self.free_block(offset, len))?;
        Ok(offset)
    }

    /// Frees a block. Does nothing in a forked child, where the lock may be held forever by a
    /// thread that only the parent has.
    pub fn free_block(&self, offset: u64, len: usize) {
        if self.fork_guard.same_process()
            && let Some(size) = self.block_for(len)
        {
            lock(&self.blocks).free(offset, size);
        }
    }

    /// Retries in a region what the memory of the pool refused. The region stays alive during
    /// `reach`. If the host drops the last reference in the meantime, which breaks the rules, the
    /// owner is dropped here.
    #[inline(never)]
    fn in_region(
        &self,
        refused: BusError,
        reach: impl FnOnce(&Extent) -> Result<(), BusError>,
    ) -> Result<(), BusError> {
        self.space.find(refused.addr).map_or(Err(refused), |region| reach(&region.extent))
    }
}
