//! Memory for DMA: a pool per device, regions of memory that callers own, buffers that are lent to
//! the device, and queue rings.
//!
//! ```text
//!         host owns it                         device may access it
//! DmaBuf  [u8]         ----- lend() ----->     Lent    a bus address, no bytes
//!         <--- take_back(): waits for a copy in progress, later copies fail ---
//!                                              drop(Lent): memory is leaked, never reused
//! ```
//!
//! The device addresses memory by *bus addresses*, which are never equal to pointers: confusing the
//! two fails cleanly. A device's copy ([`DmaPool::dma_read`], [`DmaPool::dma_write`]) fails unless
//! all of its range is lent at that moment, as with an IOMMU: a wrong PRP or a stale command cannot
//! access a buffer that the application holds, free memory, or a ring.
//!
//! Each copy holds a lease on the block that it copies ([`sync::lease`]): `take_back` waits for it,
//! and no two copies are in one block. So a device that copies after it has completed the command
//! can corrupt only its own data.
//!
//! **Contents**: the pool's memory is zero when it is first used. A reused [`DmaBuf`] keeps its old
//! contents; a [`RingMemory`] is zeroed each time, because a stale phase tag would be a completion.

mod buddy;
mod buffer;
mod extent;
mod memory;
mod pool;
mod region;
mod ring;
mod space;

pub use buffer::{DmaBuf, Lent, PoolKey};
pub use extent::{Chunk, ChunkId, PinError, Pinner};
pub use memory::{Backing, Memory, Pages, RawMemory};
pub use pool::{AllocError, DmaPool, PoolOptions};
pub use region::{Attachment, RangeError, Region, RegisterError};
pub use ring::{CqRing, DoorbellPages, DoorbellWords, RingMemory, Slots, SqRing};

use std::sync::{Mutex, MutexGuard};

/// Page size of bus addresses and mappings.
const PAGE: u64 = 4096;
/// The smallest block: one logical block of the smallest LBA format.
const MIN_BLOCK: u64 = 512;
/// The largest block of the buddy allocator; larger allocations are runs of these. Also the unit of
/// pinning.
const CHUNK: u64 = 4 << 20;
/// The largest pool, and the largest region.
const MAX_POOL: u64 = 1 << 40;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning is ignored: while such a lock is held, nothing panics but for lack of memory, and
    // the contents are valid then, too.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests;
