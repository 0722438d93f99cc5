//! Links: how a host reaches a controller, or whatever stands in for one.
//!
//! | question | file |
//! | --- | --- |
//! | what is asked of a link? | `part.rs` |
//! | what can the link do, and what not? | `facts.rs` |
//! | which thread has a lane to itself? | `owner.rs` |
//! | where are parts posted, and completions found, whatever the link? | `lane.rs` |
//! | how is a controller reached whose rings are in shared memory? | `ring.rs` |
//! | how is a file or a block device reached? | `kernel.rs` |
//! | what is the controller in this process made of? | `embedded.rs` |
//! | how is a controller on the bus had? | `pcie.rs` |
//! | how is a controller of another process had? | `peer.rs` |
//! | who else writes to a file? what has it lost? | `hold.rs`, `write_back.rs` |
//! | where are registers and doorbells? | `bells.rs` |

mod bells;
pub(crate) mod embedded;
mod facts;
mod hold;
pub(crate) mod kernel;
mod lane;
mod number;
mod owner;
mod part;
pub(crate) mod pcie;
pub(crate) mod peer;
mod ring;
mod write_back;

use std::sync::Arc;

use completion::Mode;
use hw::{DmaPool, Memory, Region, RegisterError};

use crate::error::QueueError;
use embedded::End;

pub use embedded::{ByHand, EmbeddedOptions, Faults, Measured};
pub(crate) use facts::{Messages, Reaper};
pub(crate) use kernel::{KernelLink, SCHEME as KERNEL, UringLane};
pub(crate) use lane::{Lane, Posting};
pub(crate) use number::{NO_LINK, next_number};
pub(crate) use owner::Owner;
pub(crate) use part::{Part, Post};
pub(crate) use pcie::SCHEME as PCIE;
pub(crate) use peer::{News, SCHEME as VFIO_USER};
pub(crate) use ring::{HeldPair, MAX_TRANSFER, Pair, Reach, RingLane, RingLink, Rings};

/// What a device is reached by.
#[derive(Clone)]
pub(crate) enum Link {
    /// A controller, through rings in shared memory.
    Ring(Arc<RingLink>),
    /// A file or a block device, through the kernel.
    Kernel(Arc<KernelLink>),
}

impl Link {
    /// A number that no other link of the process has.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        match self {
            Link::Ring(link) => link.number(),
            Link::Kernel(link) => link.number(),
        }
    }

    /// Memory that it reaches.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        match self {
            Link::Ring(link) => link.pool(),
            Link::Kernel(link) => link.pool(),
        }
    }

    /// Whether each queue can be used by one thread alone, so that no other kind of queue can be had.
    pub(crate) fn belongs_to_one_thread(&self) -> bool {
        matches!(self, Link::Ring(link) if link.facts().reaper == Reaper::Owner)
    }

    /// What its counts of messages are.
    pub(crate) fn messages(&self) -> Messages {
        match self {
            Link::Ring(link) => link.facts().messages,
            Link::Kernel(_) => Messages::Wakeups,
        }
    }

    /// What a mode comes to on this link, where that is something else than its name says.
    pub(crate) fn mode_note(&self, mode: Mode) -> Option<String> {
        match self {
            Link::Ring(link) => link.mode_note(mode),
            Link::Kernel(link) => link.mode_note(mode),
        }
    }

    /// Why a mode of the kernel's own cannot be had on it, as far as is known. `None`: it can, or the mode is none of them.
    pub(crate) fn lacks(&self, mode: Mode) -> Option<String> {
        match self {
            Link::Ring(_) if mode.is_the_kernels() => Some(QueueError::NotTheKernels(mode).to_string()),
            Link::Ring(_) => None,
            Link::Kernel(link) => link.lacks(mode),
        }
    }

    /// What was found when it was opened.
    pub(crate) fn notes(&self) -> &[String] {
        match self {
            Link::Ring(link) => link.notes(),
            Link::Kernel(link) => link.target().notes(),
        }
    }

    /// The controller's end, where it is in this process.
    pub(crate) fn end(&self) -> Option<&End> {
        match self {
            Link::Ring(link) => link.end(),
            Link::Kernel(_) => None,
        }
    }

    /// Memory of the caller's that it reaches from now on.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub(crate) fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        match self {
            Link::Ring(link) => link.register(memory),
            Link::Kernel(link) => link.pool().register(memory),
        }
    }
}
