//! Regions: memory that the caller owns and registers for the device of a pool, such as the page
//! cache of a database.
//!
//! A region keeps its owner alive, and so does every buffer made of it. Region, buffers, requests,
//! queues and device can be dropped in any order: the owner is dropped with the last of them. If a
//! buffer is dropped while lent, the device may still write to it, so the owner is never dropped.
//!
//! ```text
//! Region --+
//!          +--> Registered { extent, addresses, attachment, owner }
//! DmaBuf --+        dropped in this order: unpin, free the bus addresses, take the attached
//!                   buffer back, then drop the owner, which frees the memory
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use super::buffer::{DmaBuf, Lent};
use super::extent::{Extent, PinError};
use super::memory::Memory;
use super::pool::{DmaPool, Pool};
use super::{MAX_POOL, MIN_BLOCK, PAGE, lock};
use crate::mapping::keeps_pages;

/// Why memory could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// It is not whole pages, or is empty or larger than 1 TiB.
    #[error(
        "{bytes} bytes at {at:#x} are not 1 page to 1 TiB of whole pages; align address and length to 4096"
    )]
    Shape {
        /// Address of the first byte in this process.
        at: usize,
        /// Bytes.
        bytes: usize,
    },
    /// The device is in another process, which needs a file to access memory.
    #[error(
        "the device is in another process, which needs a file to access memory, and this memory has none; \
         register `Pages::shared`, or memory whose owner has a file (`Memory::file`), or use buffers of `Device::buffer`"
    )]
    NoFile,
    /// The device is in another process, which could truncate the memory's file or otherwise free
    /// its pages. Touching a missing page ends this process (SIGBUS).
    #[error(
        "the device is in another process, which could truncate the file of this memory or free its pages; an access would then end this process (SIGBUS): {0}; \
         register `Pages::shared`, or trust the server with `trust=yes`"
    )]
    MayLosePages(String),
    /// The device does not have that many bus addresses.
    #[error(
        "no {bytes} contiguous bus addresses are free below {limit:#x}, the limit of the device"
    )]
    NoAddresses {
        /// Bytes wanted.
        bytes: u64,
        /// One past the device's last bus address.
        limit: u64,
    },
    /// The system refused memory for the bookkeeping, or to duplicate the file descriptor.
    #[error("cannot set up the memory for the device: {0}")]
    System(#[from] io::Error),
    /// The device belongs to the parent of this forked process.
    #[error(
        "the device belongs to the parent process, from which this process was forked; open devices after the fork"
    )]
    Forked,
}

/// Why a range of a region could not be made a buffer.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// It is not a multiple of 512 bytes at a multiple of 512, or not within the region.
    #[error("bytes {start}..{end} are not whole units of 512 bytes in a region of {bytes} bytes")]
    Shape {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// Bytes of the region.
        bytes: usize,
    },
    /// The device requires a stricter alignment.
    #[error(
        "a buffer cannot begin at byte {start} of the region: this device requires an alignment of {alignment} bytes"
    )]
    Misaligned {
        /// First byte.
        start: usize,
        /// Alignment that the device requires, in bytes.
        alignment: u64,
    },
    /// It overlaps an existing buffer.
    #[error("bytes {start}..{end} of the region are in use until their buffer is dropped")]
    Taken {
        /// First byte of that buffer.
        start: usize,
        /// One past its last byte.
        end: usize,
    },
    /// It cannot be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The region belongs to the parent of this forked process.
    #[error(
        "the region belongs to the parent process, from which this process was forked; register memory after the fork"
    )]
    Forked,
}

impl DmaPool {
    /// Registers memory that the caller owns. Ranges of it become buffers that the device of this
    /// pool can access.
    ///
    /// # Errors
    /// See [`RegisterError`]; the memory is returned with it.
    pub fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        self.register_with(memory, |_| Ok(None))
    }

    /// As [`DmaPool::register`], with a lent buffer attached, such as one for PRP lists. `describe`
    /// is called with the region's length in bytes and returns the buffer, or `None`. The buffer
    /// stays lent until the region and all buffers of it are dropped.
    pub fn register_with<M: Memory>(
        &self,
        memory: M,
        describe: impl FnOnce(u64) -> Result<Option<Lent>, RegisterError>,
    ) -> Result<Region<M>, (RegisterError, M)> {
        let (mut owner, pool) = (memory, &self.0);
        let reserved = reserve_extent(pool, &mut owner)
            .and_then(|(addresses, extent)| Ok((describe(extent.bytes)?, extent, addresses)));
        let (lent, extent, addresses) = match reserved {
            Ok(reserved) => reserved,
            Err(why) => return Err((why, owner)),
        };
        let base = extent.base;
        let attachment = lent.map(|lent| {
            let written =
                (0..lent.len().div_ceil(PAGE as usize)).map(|_| AtomicBool::new(false)).collect();
            Attachment { base, addr: lent.addr(), written, lent: Some(lent) }
        });
        let region = Arc::new(Registered {
            extent,
            in_use: Mutex::default(),
            addresses,
            attachment,
            owner: Mutex::new(owner),
        });
        let known: Arc<AnyRegion> = region.clone();
        pool.space.publish(base, Arc::downgrade(&known));
        Ok(Region(region))
    }
}

/// Registered memory, whose ranges are buffers like those of the pool. It is returned by
/// [`Region::into_owner`], or dropped with the region and its last buffer.
pub struct Region<M>(Arc<Registered<Mutex<M>>>);

/// The bus addresses of a region; freed on drop.
struct Addresses {
    pool: Arc<Pool>,
    base: u64,
}

impl Drop for Addresses {
    fn drop(&mut self) {
        if self.pool.fork_guard.same_process() {
            // A forked child must not take locks of the pool: another thread of the parent may have
            // held them.
            self.pool.space.free(self.base);
        }
    }
}

/// Checks the memory of `owner` and reserves bus addresses for it.
fn reserve_extent<M: Memory>(
    pool: &Arc<Pool>,
    owner: &mut M,
) -> Result<(Addresses, Extent), RegisterError> {
    if !pool.fork_guard.same_process() {
        return Err(RegisterError::Forked);
    }
    let memory = owner.bytes();
    let (at, bytes) = (memory.cast::<u8>(), memory.len() as u64);
    let addr = at.addr().get();
    if bytes == 0 || bytes > MAX_POOL || !(bytes | addr as u64).is_multiple_of(PAGE) {
        return Err(RegisterError::Shape { at: addr, bytes: memory.len() });
    }
    let file = owner
        .file()
        .map(|(file, at)| Ok((file.try_clone_to_owned()?, at)))
        .transpose()
        .map_err(RegisterError::System)?;
    if let Some(pinning) = pool.pinning.as_ref().filter(|pinning| pinning.pinner.needs_file()) {
        let Some((file, _)) = &file else { return Err(RegisterError::NoFile) };
        match keeps_pages(file) {
            Err(why) if !pinning.pinner.is_trusted() => {
                return Err(RegisterError::MayLosePages(why.to_string()));
            }
            _ => {}
        }
    }
    let no_addresses = RegisterError::NoAddresses { bytes, limit: pool.space.limit() };
    let base = pool.space.reserve(bytes).ok_or(no_addresses)?;
    let addresses = Addresses { pool: pool.clone(), base };
    // SAFETY: the trait `Memory` requires of the owner that these bytes are initialised, stay in
    // place until it is dropped, and are not accessed otherwise. The owner is dropped after the
    // extent (`Registered`, `into_owner`).
    let extent = unsafe { Extent::new((at, bytes), base, pool.pinning.clone(), file) }?;
    Ok((addresses, extent))
}

impl<M: Memory> Region<M> {
    /// Makes a buffer of a range of the region, in whole units of 512 bytes. The buffer is this
    /// part of the memory, with its contents. Until it is dropped, no other buffer can overlap it.
    /// Takes a lock: keep buffers instead of making one per I/O.
    pub fn buffer(&self, range: Range<usize>) -> Result<DmaBuf, RangeError> {
        let Registered { extent, addresses: Addresses { pool, .. }, .. } = &*self.0;
        let (start, end) = (range.start as u64, range.end as u64);
        let alignment = pool.alignment;
        if !pool.fork_guard.same_process() {
            return Err(RangeError::Forked);
        }
        if start >= end || end > extent.bytes || start % MIN_BLOCK != 0 || end % MIN_BLOCK != 0 {
            return Err(RangeError::Shape {
                start: range.start,
                end: range.end,
                bytes: self.len(),
            });
        }
        if start % alignment != 0 {
            return Err(RangeError::Misaligned { start: range.start, alignment });
        }
        let taken = |taken: Range<u64>| RangeError::Taken {
            start: taken.start as usize,
            end: taken.end as usize,
        };
        self.0.claim_range(start..end).map_err(taken)?;
        extent
            .pin(start, end - start)
            .inspect_err(|_| self.0.release_range(extent.base + start))?;
        let paged = start % PAGE == 0 && end % PAGE == 0;
        Ok(DmaBuf::new(extent, (start, range.len()), paged, pool.clone(), Some(self.0.clone())))
    }

    /// Bytes of the region.
    #[allow(clippy::len_without_is_empty)] // a region is never empty
    pub fn len(&self) -> usize {
        self.0.extent.bytes as usize
    }

    /// Bus address of its first byte.
    pub fn base(&self) -> u64 {
        self.0.extent.base
    }

    /// Returns the owner, if there are no buffers; the device can no longer access its memory.
    ///
    /// # Errors
    /// The region, if a buffer of it exists (held, lent or leaked), or if a faulty device is
    /// accessing it at this moment, although no buffer is lent to it.
    pub fn into_owner(self) -> Result<M, Region<M>> {
        let Registered { extent, addresses, attachment, owner, .. } =
            Arc::try_unwrap(self.0).map_err(Region)?;
        // In this order: unpin before the bus addresses can be reused.
        drop(extent);
        drop(addresses);
        drop(attachment);
        Ok(owner.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<M> fmt::Debug for Region<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = &self.0.extent;
        f.debug_struct("Region")
            .field("base", &extent.base)
            .field("bytes", &extent.bytes)
            .finish_non_exhaustive()
    }
}

/// The lent buffer that belongs to a region: see
/// [`DmaPool::register_with`](super::DmaPool::register_with).
#[derive(Debug)]
pub struct Attachment {
    /// Bus address of the region's first byte.
    pub base: u64,
    /// Bus address of the attached buffer.
    pub addr: u64,
    /// Which pages of the attached buffer are filled in, for users that fill it page by page.
    pub written: Box<[AtomicBool]>,
    /// The attached buffer.
    lent: Option<Lent>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // No buffer of the region is lent, so no command in flight uses the attached buffer.
        drop(self.lent.take().map(Lent::take_back));
    }
}

/// A registered region. Fields drop in this order, so that nothing refers to the memory when its
/// owner is dropped.
pub(super) struct Registered<O: ?Sized> {
    /// The memory as the device accesses it.
    pub extent: Extent,
    /// Ranges in use by buffers: first byte, and one past the last.
    in_use: Mutex<BTreeMap<u64, u64>>,
    addresses: Addresses,
    pub attachment: Option<Attachment>,
    /// A mutex for its `Sync` only: it is never locked, because the owner is not used before the
    /// region is taken apart.
    owner: O,
}

/// A region, whatever the type of its owner.
pub(super) type AnyRegion = Registered<dyn Send + Sync>;

impl<O: ?Sized> Registered<O> {
    /// Claims a range for a buffer. On overlap returns the existing range.
    pub fn claim_range(&self, range: Range<u64>) -> Result<(), Range<u64>> {
        let mut in_use = lock(&self.in_use);
        if let Some((&from, &to)) =
            in_use.range(..range.end).next_back().filter(|&(_, &to)| to > range.start)
        {
            return Err(from..to);
        }
        in_use.insert(range.start, range.end);
        Ok(())
    }

    /// Releases the range that begins at bus address `addr`.
    #[cold] // buffers are kept, not dropped per I/O: keep this out of the hot code
    pub fn release_range(&self, addr: u64) {
        lock(&self.in_use).remove(&(addr - self.extent.base));
    }
}

impl<O: ?Sized> fmt::Debug for Registered<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registered { extent, in_use, attachment, .. } = self;
        f.debug_struct("Registered")
            .field("extent", extent)
            .field("in_use", in_use)
            .field("attachment", attachment)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
