//! Memory that a device reaches: one pool of it, regions that callers own, buffers lent to the device, and rings.
//!
//! | question | file |
//! | --- | --- |
//! | what is a pool, and what can the device do with it? | `pool.rs`; where a block lies: `buddy.rs`; which sizes there are: `sizes.rs` |
//! | what stands behind it? | `mapping.rs` |
//! | what is a buffer, held or lent? | `buffer.rs` |
//! | what is ring memory, and a ring in it? | `ring.rs` |
//! | where are doorbells that are kept in memory? | `doorbells.rs` |
//! | which bytes may the device reach now? | `extent.rs` |
//! | which bus addresses are whose? | `space.rs` |
//! | what is memory that a caller owns? | `memory.rs` (what it has to keep to), `region.rs` (registered), `registered.rs` (as the device and the buffers know it) |
//! | what is pinned? | `pins.rs` |
//!
//! The device knows memory by *bus addresses*, which are never pointers: mixing them up is refused, not a crash. A
//! device's copy ([`DmaPool::dma_read`], [`DmaPool::dma_write`]) is refused unless all of its range is lent at that
//! moment, as an IOMMU would refuse it: neither a wrong PRP nor a stale command reaches a buffer that the application
//! holds, free memory, or a ring.
//!
//! A copy claims what it copies, block by block ([`sync::lease`]): a host that takes a buffer back meanwhile waits for it, and no two
//! copies are in one block. So a device that copies after it has completed the command harms nobody's memory, only its data.
//!
//! What is not checked is what copies by itself: a kernel with a request of io_uring, or a device on a bus. A host takes a buffer back when
//! it has seen the completion, or RDY=0; [`Lent::take_back`] relies on it.
//!
//! **Contents**: the pool's memory is zero when it is first used. A recycled [`DmaBuf`] holds whatever it held before; a
//! [`RingMemory`] is zeroed each time, because a stale phase tag would be a completion.

mod buddy;
mod buffer;
mod doorbells;
mod extent;
mod lock;
mod mapping;
mod memory;
mod pins;
mod pool;
mod region;
mod registered;
mod ring;
mod sizes;
mod space;

pub(crate) use buffer::Owner;
pub use buffer::{DmaBuf, Lent, PoolKey};
pub use doorbells::{DoorbellPages, DoorbellWords};
pub use extent::{OutOfPool, Piece};
pub(crate) use lock::lock;
pub use mapping::Backing;
pub use memory::{Memory, Pages, RawMemory};
pub use pins::{Chunk, PinError, Pinner};
pub use pool::{AllocError, DmaPool, PoolError, PoolOptions};
pub use region::{RangeError, Region, RegisterError};
pub use registered::Beside;
pub use ring::{CqRing, RingMemory, SqRing};

#[cfg(test)]
mod tests;
