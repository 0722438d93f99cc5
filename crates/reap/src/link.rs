//! Links: how a host reaches a controller, or whatever stands in for one.
//!
//! | question | file |
//! | --- | --- |
//! | what is asked of a link? | `part.rs` |
//! | what can the link do, and what not? | `facts.rs` |
//! | which thread has a lane to itself? | `owner.rs` |
//! | how is a controller reached whose rings are in shared memory? | `ring.rs` |
//! | what is the controller in this process made of? | `embedded.rs` |

pub(crate) mod embedded;
mod facts;
pub(crate) mod kernel;
mod number;
mod owner;
mod part;
mod ring;

use hw::DmaPool;

use crate::error::OpenError;

pub use embedded::{ByHand, EmbeddedOptions, Faults, Measured, Stamp, Stamps};
pub(crate) use facts::Reaper;
pub(crate) use number::next_number;
pub(crate) use owner::Owner;
pub(crate) use part::{Part, Post};
pub(crate) use ring::{Held, MAX_TRANSFER, Pair, Posting, RingLane, RingLink, Rings};

/// Memory for buffers and rings.
///
/// # Errors
/// The system has no such range of addresses.
pub(crate) fn new_pool(bytes: u64) -> Result<DmaPool, OpenError> {
    DmaPool::new(bytes).map_err(|source| OpenError::System { what: "buffer pool", source })
}
