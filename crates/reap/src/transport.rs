//! Transports: how a host reaches a controller, a file or a block device.
//!
//! | question | file |
//! | --- | --- |
//! | what does a queue's thread need of a transport? | `queue_transport.rs` |
//! | how is a controller reached whose rings are in shared memory? | `rings.rs` |
//! | how is a file or a block device reached? | `kernel.rs` |
//! | what is the controller in this process made of? | `embedded.rs` |
//! | how is a PCI controller opened? | `pci.rs` |
//! | how is a controller of another process reached? | `vfio_user.rs` |
//! | who else writes to a file? what has it lost? | `file_lock.rs`, `write_back.rs` |
//! | where are registers and doorbells? | `registers.rs` |

pub(crate) mod embedded;
mod file_lock;
pub(crate) mod kernel;
pub(crate) mod pci;
mod queue_transport;
mod registers;
mod rings;
pub(crate) mod vfio_user;
mod write_back;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use completion::Mode;
use hw::{DmaPool, Lent, Memory, Region, RegisterError};
use nvme::{Nsid, Sqe};
use units::{Nanos, Op};

use crate::mode::{ModeNote, UnsupportedMode};
use crate::request::Token;
use embedded::EmbeddedHandle;

pub(crate) use self::vfio_user::{SCHEME as VFIO_USER, ServerEvent};
pub use embedded::{ByHand, EmbeddedOptions, Faults, Measured};
pub(crate) use kernel::{KernelFile, SCHEME as KERNEL, UringQueue};
pub(crate) use pci::SCHEME as PCIE;
pub(crate) use queue_transport::{KEY_NOTIFICATION, KEY_WAKE, Polled, QueueTransport, SleepFor, TransportCounts};
pub(crate) use rings::{DmaContext, HeldPair, MAX_TRANSFER, Pair, RingController, RingPair, RingPosting, Rings};

/// What a device is reached by.
#[derive(Clone)]
pub(crate) enum Transport {
    /// A controller, through rings in shared memory.
    Ring(Arc<RingController>),
    /// A file or a block device, through the kernel.
    Kernel(Arc<KernelFile>),
}

impl Transport {
    /// A number that no other transport of the process has.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        match self {
            Transport::Ring(transport) => transport.number(),
            Transport::Kernel(transport) => transport.number(),
        }
    }

    /// Memory that it reaches.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        match self {
            Transport::Ring(transport) => transport.pool(),
            Transport::Kernel(transport) => transport.pool(),
        }
    }

    /// What its counts of messages are.
    pub(crate) fn messages(&self) -> Messages {
        match self {
            Transport::Ring(transport) => transport.facts().messages,
            Transport::Kernel(_) => Messages::Wakeups,
        }
    }

    /// Whether its controller takes SGL data blocks.
    pub(crate) fn takes_sgls(&self) -> bool {
        matches!(self, Transport::Ring(transport) if transport.sgls())
    }

    /// What a mode comes to on this transport, where that is something else than its name says.
    pub(crate) fn mode_note(&self, mode: Mode) -> Option<ModeNote> {
        match self {
            Transport::Ring(transport) => transport.mode_note(mode),
            Transport::Kernel(transport) => transport.mode_note(mode),
        }
    }

    /// Why a mode of the kernel's own cannot be had on it, as far as is known. `None`: it can, or the mode is none of them.
    pub(crate) fn lacks(&self, mode: Mode) -> Option<UnsupportedMode> {
        match self {
            Transport::Ring(_) if mode.is_the_kernels() => Some(UnsupportedMode::NotTheKernels(mode)),
            Transport::Ring(_) => None,
            Transport::Kernel(transport) => transport.lacks(mode),
        }
    }

    /// What was found when it was opened.
    pub(crate) fn notes(&self) -> &[String] {
        match self {
            Transport::Ring(transport) => transport.notes(),
            Transport::Kernel(transport) => transport.target().notes(),
        }
    }

    /// The controller's end, where it is in this process.
    pub(crate) fn end(&self) -> Option<&EmbeddedHandle> {
        match self {
            Transport::Ring(transport) => transport.end(),
            Transport::Kernel(_) => None,
        }
    }

    /// Memory of the caller's that it reaches from now on.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub(crate) fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        match self {
            Transport::Ring(transport) => transport.register(memory),
            Transport::Kernel(transport) => transport.pool().register(memory),
        }
    }
}

/// What a transport can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransportFacts {
    /// How its notifications are held off.
    pub mask: Mask,
    /// What its counts of messages are.
    pub messages: Messages,
}

/// How a thread that is awake is spared notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    /// Each vector has a mask: while it is set no message is sent.
    Bit,
    /// Nothing holds messages back. "Masked" means that nobody reads them; they cost all the same, and are counted. Queues
    /// have a second queue pair then, whose completions send none.
    Unread,
}

/// What a count of messages is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    /// As many as the host has received, by the count that the system keeps in each vector's eventfd.
    Exact,
    /// Waits or looks that brought something. How many messages there were is the kernel's secret, or there are none.
    Wakeups,
    /// Nothing: the system does not show what eventfds have counted.
    Unknown,
}

/// The number of none: no device has as many.
pub(crate) const NO_LINK: u32 = u32::MAX;

/// A number that nothing else that has namespaces has.
pub(crate) fn next_number() -> u32 {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    NUMBERS.fetch_add(1, Relaxed)
}

/// What a transport is asked to carry out: one command's worth of a request, before it is an SQE, a capsule or an io_uring entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub op: Op,
    /// Of a Write or a Write Zeroes: durable when it completes.
    pub fua: bool,
    /// Of a Write Zeroes: the blocks keep the room that they have.
    pub keep: bool,
    pub nsid: Nsid,
    /// First logical block, and how many there are; 0 of a Flush.
    pub lba: u64,
    pub blocks: u32,
    /// Of a Read, a Write or a Compare, where the data is: bus address and bytes. Of a Deallocate, its ranges.
    pub addr: u64,
    pub bytes: u32,
    /// The buffer that it is in.
    pub buf: &'a Option<Lent>,
}

/// An I/O command of the caller's, which is sent as it is.
#[derive(Debug)]
pub(crate) struct IoCommand {
    /// Identifier, flags and pointers are filled in.
    pub sqe: Sqe,
    /// Bytes of its buffer.
    pub bytes: u32,
    /// Dword 0 of its completion.
    pub result: Arc<AtomicU32>,
}

/// The submission side of a queue, ready for posting.
pub(crate) trait Post {
    /// Stores a Read or a Write where the next [`Post::commit`] announces it. False: there is no room, or the queue is closed.
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool;

    /// The same for any other part, and for a Read with Force Unit Access. A method of its own keeps what it needs out of the loop that posts all others.
    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool;

    /// The same for a command of the caller's, whose buffer is that of `part`. Queues that have none refuse them before.
    fn post_command(&mut self, _command: &IoCommand, _part: &Part<'_>, _token: Token, _now: Nanos) -> bool {
        false
    }

    /// Announces what was posted.
    fn commit(&mut self);
}
