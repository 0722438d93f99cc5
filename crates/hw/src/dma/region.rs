//! Regions: memory that a caller owns, registered for a pool's device.
//!
//! A region owns its owner. Ranges of it are given out as buffers, and each keeps all of it alive. So it does not matter
//! in which order region, buffers, requests, queues and the device go: the owner goes with the last of them. A range that
//! is dropped while it is lent is never let go, and so nothing of the region ever is.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::buddy::MIN_BLOCK;
use super::buffer::{DmaBuf, Lent};
use super::extent::Extent;
use super::memory::Memory;
use super::pins::{Chunk, PinError, Pins};
use super::{Beside, MAX_POOL, PAGE, Pool, lock};

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
    /// What describes it to the device could not be given out.
    #[error("cannot set up what describes the memory to the device: {0}")]
    Lists(#[from] RangeError),
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
}

/// Memory that its owner gave to a device: ranges of it are buffers, as the pool's own are. It is given back by
/// [`Region::into_owner`], or dropped with the region or its last buffer.
pub struct Region<M>(Arc<Registered<M>>);

/// What region and buffers share. Fields are dropped in this order: nobody names the memory any more when it goes.
pub(super) struct Registered<M: ?Sized> {
    home: Home,
    /// Never locked: nobody reaches the owner before it is alone.
    owner: Mutex<M>,
}

/// Where a region is, and which of it is given out.
#[derive(Debug)]
struct Home {
    extent: Extent,
    /// Ranges that are given out: the first byte of each, and one past its last.
    out: Mutex<BTreeMap<u64, u64>>,
    beside: Option<Lent>,
    pool: Arc<Pool>,
}

impl Home {
    /// A place among the bus addresses of `pool` for the memory of `owner`.
    fn new<M: Memory>(pool: &Arc<Pool>, owner: &mut M) -> Result<Home, RegisterError> {
        let memory = owner.bytes();
        let (at, bytes) = (memory.cast::<u8>(), memory.len() as u64);
        let addr = at.addr().get();
        if bytes == 0 || bytes > MAX_POOL || !(bytes | addr as u64).is_multiple_of(PAGE) {
            return Err(RegisterError::Shape { at: addr, bytes: memory.len() });
        }
        let none = RegisterError::NoAddresses { bytes, limit: pool.space.limit() };
        let base = pool.space.reserve(bytes).ok_or(none)?;
        let pins = pool.pinning.clone().map(|pinning| Pins::new(pinning, Chunk { memory: at, addr: base, bytes }));
        // SAFETY: the owner says so (`Memory`), and goes after the extent (`Registered`).
        let extent = unsafe { Extent::new(at, bytes, base, pins) }.inspect_err(|_| pool.space.forget(base))?;
        Ok(Home { extent, out: Mutex::default(), beside: None, pool: pool.clone() })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Before somebody else can have its bus addresses.
        self.extent.unpin();
        self.pool.space.forget(self.extent.base());
        // Nothing of the region is lent, so no command needs what describes it.
        drop(self.beside.take().map(Lent::take_back));
    }
}

impl<M: ?Sized> Registered<M> {
    /// The device's view of it.
    #[inline]
    pub fn extent(&self) -> &Extent {
        &self.home.extent
    }

    /// The range that begins at bus address `addr` is nobody's any more.
    pub fn give_back(&self, addr: u64) {
        lock(&self.home.out).remove(&(addr - self.home.extent.base()));
    }

    pub fn beside(&self) -> Option<Beside> {
        self.home.beside.as_ref().map(|lent| Beside { base: self.home.extent.base(), addr: lent.addr() })
    }
}

impl<M: ?Sized> fmt::Debug for Registered<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.home).finish()
    }
}

impl<M: Memory> Region<M> {
    /// Registers `owner`'s memory. `describe`, told the first bus address and the bytes, may lend the device something
    /// that is to be there as long as any of the region may be lent.
    pub(super) fn new(
        pool: &Arc<Pool>,
        mut owner: M,
        describe: impl FnOnce(u64, u64) -> Result<Option<Lent>, RegisterError>,
    ) -> Result<Region<M>, (RegisterError, M)> {
        let described = Home::new(pool, &mut owner).and_then(|mut home| {
            home.beside = describe(home.extent.base(), home.extent.bytes())?;
            Ok(home)
        });
        let home = match described {
            Ok(home) => home,
            Err(why) => return Err((why, owner)),
        };
        let region = Arc::new(Registered { home, owner: Mutex::new(owner) });
        let known: Arc<Registered<dyn Send>> = region.clone();
        pool.space.know(region.extent().base(), Arc::downgrade(&known));
        Ok(Region(region))
    }

    /// The `range` of the region as a buffer, whose length it has: whole pieces of 512 bytes. What it holds is what the
    /// memory holds. Once the buffer is dropped the range can be given out again. Takes a lock: keep buffers, do not take
    /// one per I/O.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn buffer(&self, range: Range<usize>) -> Result<DmaBuf, RangeError> {
        let Registered { home, .. } = &*self.0;
        let (start, end) = (range.start as u64, range.end as u64);
        if start >= end || end > home.extent.bytes() || start % MIN_BLOCK != 0 || end % MIN_BLOCK != 0 {
            return Err(RangeError::Shape { start: range.start, end: range.end, bytes: self.len() });
        }
        let mut out = lock(&home.out);
        if let Some((&from, &to)) = out.range(..end).next_back().filter(|&(_, &to)| to > start) {
            return Err(RangeError::Taken { start: from as usize, end: to as usize });
        }
        out.insert(start, end);
        drop(out);
        home.extent.pin(start, end - start).inspect_err(|_| _ = lock(&home.out).remove(&start))?;
        let paged = start % PAGE == 0 && end % PAGE == 0;
        Ok(DmaBuf::new(&home.extent, (start, range.len()), paged, home.pool.clone(), Some(self.0.clone())))
    }

    /// Bytes of the region.
    #[allow(clippy::len_without_is_empty)] // a region is never empty
    pub fn len(&self) -> usize {
        self.0.extent().bytes() as usize
    }

    /// Bus address of its first byte.
    pub fn base(&self) -> u64 {
        self.0.extent().base()
    }

    /// The owner again, if no range is given out: from now on the device does not know its memory.
    ///
    /// # Errors
    /// The region, if a buffer of it is somewhere (held, lent, leaked), or if the device touches it at this instant, which
    /// it must not.
    pub fn into_owner(self) -> Result<M, Region<M>> {
        let Registered { home, owner } = Arc::try_unwrap(self.0).map_err(Region)?;
        drop(home);
        Ok(owner.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<M> fmt::Debug for Region<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = self.0.extent();
        f.debug_struct("Region").field("base", &extent.base()).field("bytes", &extent.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
