//! Memory that a device reaches: one pool of it, regions that callers own, buffers lent to the device, and rings.
//!
//! The device knows memory by *bus addresses*, which are never pointers: mixing them up is refused, not a crash. A
//! device's copy ([`DmaPool::dma_read`], [`DmaPool::dma_write`]) is refused unless all of its range is lent at that
//! moment, as an IOMMU would refuse it: neither a wrong PRP nor a stale command reaches a buffer that the application
//! holds, free memory, or a ring.
//!
//! A copy claims what it copies, block by block ([`sync::lease`]): a host that takes a buffer back meanwhile waits for it, and no two
//! copies are in one block. So a device that copies after it has completed the command harms nobody's memory, only its data.
//!
//! **Contents**: the pool's memory is zero when it is first used. A recycled [`DmaBuf`] holds whatever it held before; a
//! [`RingMemory`] is zeroed each time, because a stale phase tag would be a completion.

mod buddy;
mod buffer;
mod extent;
mod memory;
mod pool;
mod region;
mod ring;
mod space;

pub use buffer::{DmaBuf, Lent, PoolKey};
pub use extent::{Chunk, Piece, PinError, Pinner};
pub use memory::{Backing, Memory, Pages, RawMemory};
pub use pool::{AllocError, DmaPool, PoolOptions};
pub use region::{Attachment, RangeError, Region, RegisterError};
pub use ring::{CqRing, DoorbellPages, DoorbellWords, RingMemory, Slots, SqRing};

use std::sync::{Mutex, MutexGuard};

/// What the device's bus addresses and the kernel's mappings are counted in.
const PAGE: u64 = 4096;
/// The smallest block: one logical block of the smallest LBA format.
const MIN_BLOCK: u64 = 512;
/// The largest block that is split; larger ones are runs of these. Memory is pinned by as much.
const CHUNK: u64 = 4 << 20;
/// The largest pool, and the largest region.
const MAX_POOL: u64 = 1 << 40;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one of these is held, except for want of memory; the contents are valid regardless.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests;
