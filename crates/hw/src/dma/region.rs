//! Regions: memory that a caller owns, registered for a pool's device.
//!
//! A region owns its owner. Ranges of it are given out as buffers, and each keeps all of it alive. So it does not matter
//! in which order region, buffers, requests, queues and the device go: the owner goes with the last of them. A range that
//! is dropped while it is lent is never let go, and so nothing of the region ever is.

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
    /// It does not consist of whole pages.
    #[error("{bytes} bytes at {at:#x} are not 1 page to 1 TiB of whole pages; align address and length to 4096")]
    Shape {
        /// Address of the first byte in this process.
        at: usize,
        /// Bytes.
        bytes: usize,
    },
    /// The device is in another process, which cannot reach it.
    #[error(
        "the device is another process's, which reaches memory by its file, and this memory has none; \
         register `Pages::shared`, or memory whose owner says its file (`Memory::file`), or take buffers from `Device::buffer`"
    )]
    NoFile,
    /// The device is in another process, which could take pages of the memory away. Touching them would end this process by a signal (SIGBUS).
    #[error(
        "the device is another process's, which could take pages of this memory away, and that would end this process: of its file, {0}; \
         register `Pages::shared`, or say by `trust=yes` that the server takes none away"
    )]
    MayLosePages(String),
    /// The device cannot name so much memory.
    #[error("{bytes} bytes in one piece are more than is left of the bus addresses below {limit:#x} that the device reaches")]
    NoAddresses {
        /// Bytes wanted.
        bytes: u64,
        /// One past the device's last bus address.
        limit: u64,
    },
    /// Memory to describe it could not be had.
    #[error("cannot set up what describes the memory to the device: {0}")]
    System(#[from] io::Error),
    /// The device is of the process that this one was forked from.
    #[error("this process was forked from the one that opened the device, whose device it does not have; open devices after the fork")]
    Forked,
}

/// Why a range of a region could not be given out.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// It is not some whole pieces of 512 bytes, or does not lie in the region.
    #[error("bytes {start}..{end} are not whole pieces of 512 bytes in a region of {bytes} bytes")]
    Shape {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// Bytes of the region.
        bytes: usize,
    },
    /// The device does not take buffers that begin there.
    #[error("a buffer cannot begin at byte {start} of the region: this device takes addresses that are multiples of {alignment} bytes")]
    Misaligned {
        /// First byte.
        start: usize,
        /// What it has to be a multiple of.
        alignment: u64,
    },
    /// Some of it is given out already.
    #[error("bytes {start}..{end} of the region are given out until their buffer is dropped")]
    Taken {
        /// First byte of the one that is in the way.
        start: usize,
        /// One past its last byte.
        end: usize,
    },
    /// It cannot be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The region is of the process that this one was forked from.
    #[error("this process was forked from the one that registered the region, whose device it does not have; register after the fork")]
    Forked,
}

impl DmaPool {
    /// Registers memory that the caller owns: ranges of it become buffers that this pool's device reaches.
    ///
    /// # Errors
    /// See [`RegisterError`]; the memory comes back with it.
    pub fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        self.register_with(memory, |_| Ok(None))
    }

    /// The same, with a description of the memory for the device. `describe` gets the region's length in bytes; what it lends stays lent
    /// while any of the region exists.
    pub fn register_with<M: Memory>(
        &self,
        memory: M,
        describe: impl FnOnce(u64) -> Result<Option<Lent>, RegisterError>,
    ) -> Result<Region<M>, (RegisterError, M)> {
        let (mut owner, pool) = (memory, &self.0);
        let placed = place(pool, &mut owner).and_then(|(addresses, extent)| Ok((describe(extent.bytes)?, extent, addresses)));
        let (lent, extent, addresses) = match placed {
            Ok(placed) => placed,
            Err(why) => return Err((why, owner)),
        };
        let base = extent.base;
        let attachment = lent.map(|lent| {
            let written = (0..lent.len().div_ceil(PAGE as usize)).map(|_| AtomicBool::new(false)).collect();
            Attachment { base, addr: lent.addr(), written, lent: Some(lent) }
        });
        let region = Arc::new(Registered { extent, out: Mutex::default(), addresses, attachment, owner: Mutex::new(owner) });
        let known: Arc<AnyRegion> = region.clone();
        pool.space.know(base, Arc::downgrade(&known));
        Ok(Region(region))
    }
}

/// Memory that its owner gave to a device: ranges of it are buffers, as the pool's own are. It is given back by
/// [`Region::into_owner`], or dropped with the region or its last buffer.
pub struct Region<M>(Arc<Registered<Mutex<M>>>);

/// Bus addresses of a pool's device that are a region's.
struct Addresses {
    pool: Arc<Pool>,
    base: u64,
}

impl Drop for Addresses {
    fn drop(&mut self) {
        if self.pool.born.is_here() {
            self.pool.space.forget(self.base);
        }
    }
}

/// A place among the bus addresses of `pool` for the memory of `owner`.
fn place<M: Memory>(pool: &Arc<Pool>, owner: &mut M) -> Result<(Addresses, Extent), RegisterError> {
    if !pool.born.is_here() {
        return Err(RegisterError::Forked);
    }
    let memory = owner.bytes();
    let (at, bytes) = (memory.cast::<u8>(), memory.len() as u64);
    let addr = at.addr().get();
    if bytes == 0 || bytes > MAX_POOL || !(bytes | addr as u64).is_multiple_of(PAGE) {
        return Err(RegisterError::Shape { at: addr, bytes: memory.len() });
    }
    let file = owner.file().map(|(file, at)| Ok((file.try_clone_to_owned()?, at))).transpose().map_err(RegisterError::System)?;
    if let Some(pinning) = pool.pinning.as_ref().filter(|pinning| pinning.pinner.wants_file()) {
        let Some((file, _)) = &file else { return Err(RegisterError::NoFile) };
        match keeps_pages(file) {
            Err(why) if !pinning.pinner.trusts() => return Err(RegisterError::MayLosePages(why.to_string())),
            _ => {}
        }
    }
    let none = RegisterError::NoAddresses { bytes, limit: pool.space.limit() };
    let base = pool.space.reserve(bytes).ok_or(none)?;
    let addresses = Addresses { pool: pool.clone(), base };
    // SAFETY: the owner says so (`Memory`), and goes after the extent (`Registered`, `into_owner`).
    let extent = unsafe { Extent::new((at, bytes), base, pool.pinning.clone(), file) }?;
    Ok((addresses, extent))
}

impl<M: Memory> Region<M> {
    /// The `range` of the region as a buffer, whose length it has: whole pieces of 512 bytes. What it holds is what the
    /// memory holds. Once the buffer is dropped the range can be given out again. Takes a lock: keep buffers, do not take
    /// one per I/O.
    pub fn buffer(&self, range: Range<usize>) -> Result<DmaBuf, RangeError> {
        let Registered { extent, addresses: Addresses { pool, .. }, .. } = &*self.0;
        let (start, end) = (range.start as u64, range.end as u64);
        let alignment = pool.alignment;
        if !pool.born.is_here() {
            return Err(RangeError::Forked);
        }
        if start >= end || end > extent.bytes || start % MIN_BLOCK != 0 || end % MIN_BLOCK != 0 {
            return Err(RangeError::Shape { start: range.start, end: range.end, bytes: self.len() });
        }
        if start % alignment != 0 {
            return Err(RangeError::Misaligned { start: range.start, alignment });
        }
        let taken = |taken: Range<u64>| RangeError::Taken { start: taken.start as usize, end: taken.end as usize };
        self.0.give_out(start..end).map_err(taken)?;
        extent.pin(start, end - start).inspect_err(|_| self.0.give_back(extent.base + start))?;
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

    /// The owner again, if no range is given out: from now on the device does not know its memory.
    ///
    /// # Errors
    /// The region, if a buffer of it is somewhere (held, lent, leaked), or if the device touches it at this instant, which
    /// it must not.
    pub fn into_owner(self) -> Result<M, Region<M>> {
        let Registered { extent, addresses, attachment, owner, .. } = Arc::try_unwrap(self.0).map_err(Region)?;
        // Nothing is pinned any more before somebody else can have the bus addresses.
        drop(extent);
        drop(addresses);
        drop(attachment);
        Ok(owner.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<M> fmt::Debug for Region<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = &self.0.extent;
        f.debug_struct("Region").field("base", &extent.base).field("bytes", &extent.bytes).finish_non_exhaustive()
    }
}

/// Where the device finds what was lent beside a region: see [`DmaPool::register_with`](super::DmaPool::register_with).
#[derive(Debug)]
pub struct Attachment {
    /// Bus address of the region's first byte.
    pub base: u64,
    /// Bus address of what stands beside it.
    pub addr: u64,
    /// Which pages of it are written, for those who write it page by page.
    pub written: Box<[AtomicBool]>,
    /// What stands there.
    lent: Option<Lent>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Nothing of the region is lent, so no command needs what describes it.
        drop(self.lent.take().map(Lent::take_back));
    }
}

/// A region that is registered. Fields are dropped in this order: nobody names the memory any more when its owner goes.
pub(super) struct Registered<O: ?Sized> {
    /// The device's view of it.
    pub extent: Extent,
    /// Ranges that are given out: the first byte of each, and one past its last.
    out: Mutex<BTreeMap<u64, u64>>,
    addresses: Addresses,
    pub attachment: Option<Attachment>,
    /// A mutex that is never locked, which is `Sync`: nobody reaches the owner before it is alone.
    owner: O,
}

/// Any of them, no matter who owns its memory.
pub(super) type AnyRegion = Registered<dyn Send + Sync>;

impl<O: ?Sized> Registered<O> {
    /// Gives out a range, unless one that is given out already is in the way: that one.
    pub fn give_out(&self, range: Range<u64>) -> Result<(), Range<u64>> {
        let mut out = lock(&self.out);
        if let Some((&from, &to)) = out.range(..range.end).next_back().filter(|&(_, &to)| to > range.start) {
            return Err(from..to);
        }
        out.insert(range.start, range.end);
        Ok(())
    }

    /// The range that begins at bus address `addr` is nobody's any more.
    #[cold] // buffers are kept: no I/O's code has room for it
    pub fn give_back(&self, addr: u64) {
        lock(&self.out).remove(&(addr - self.extent.base));
    }
}

impl<O: ?Sized> fmt::Debug for Registered<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registered { extent, out, attachment, .. } = self;
        f.debug_struct("Registered").field("extent", extent).field("out", out).field("attachment", attachment).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
