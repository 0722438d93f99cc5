//! Transports: how a host reaches an NVMe controller, a file or a block device.
//!
//! There are two: rings in shared memory (`Transport::Ring`: the embedded controller, a PCI drive,
//! a vfio-user server, a target over NVMe/TCP) and io_uring (`Transport::Kernel`: files, block
//! devices, NVMe character devices). The queue code above works with either through the trait
//! `QueueTransport` and never asks which one it has.
//!
//! | question | file |
//! | --- | --- |
//! | what does a queue's thread need of a transport? | `queue_transport.rs` |
//! | how is a controller reached whose rings are in shared memory? | `rings.rs` |
//! | how is a file or a block device reached? | `kernel.rs` |
//! | what is the controller in this process made of? | `embedded.rs` |
//! | how is a PCI controller opened? | `pci.rs` |
//! | how is a controller of another process reached? | `vfio_user.rs` |
//! | how is a controller over NVMe/TCP reached? | `tcp.rs` |
//! | how is a file locked, and what has its write-back lost? | `file_lock.rs`, `write_back.rs` |
//! | where are registers and doorbells? | `registers.rs` |

pub(crate) mod embedded;
mod file_lock;
pub(crate) mod kernel;
pub(crate) mod pci;
mod queue_transport;
mod registers;
mod rings;
pub(crate) mod tcp;
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

pub(crate) use self::tcp::SCHEME as TCP;
pub(crate) use self::vfio_user::{SCHEME as VFIO_USER, ServerEvent};
pub use embedded::{EmbeddedOptions, Measured};
#[cfg(feature = "testing")]
pub use embedded::{Faults, ManualStepper};
pub(crate) use kernel::{KernelFile, SCHEME as KERNEL, UringQueue};
pub(crate) use pci::SCHEME as PCIE;
pub(crate) use queue_transport::{
    Count, KEY_NOTIFICATION, KEY_WAKE, Polled, QueueTransport, SleepFor, TransportCounts,
};
pub(crate) use rings::{
    DmaContext, HeldPair, MAX_TRANSFER, Pair, RingController, RingPair, RingPosting, Rings,
};

/// The transport of one controller, file or block device.
#[derive(Clone)]
pub(crate) enum Transport {
    /// A controller, through rings in shared memory.
    Ring(Arc<RingController>),
    /// A file or a block device, through the kernel.
    Kernel(Arc<KernelFile>),
}

impl Transport {
    /// The transport's number, unique in the process. A request's namespace carries it, so that a
    /// request for another device is refused.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        match self {
            Transport::Ring(transport) => transport.number(),
            Transport::Kernel(transport) => transport.number(),
        }
    }

    /// The pool of DMA buffers that the device can access.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        match self {
            Transport::Ring(transport) => transport.pool(),
            Transport::Kernel(transport) => transport.pool(),
        }
    }

    /// What this transport's message counts mean.
    pub(crate) fn messages(&self) -> Messages {
        match self {
            Transport::Ring(transport) => transport.facts().messages,
            Transport::Kernel(_) => Messages::Wakeups,
        }
    }

    /// Whether data is described by SGL data block descriptors (Base §4.1.2) where a PRP list would
    /// be needed.
    pub(crate) fn takes_sgls(&self) -> bool {
        matches!(self, Transport::Ring(transport) if transport.sgls())
    }

    /// How `mode` differs on this transport from what its name says; `None`: it does not.
    pub(crate) fn mode_note(&self, mode: Mode) -> Option<ModeNote> {
        match self {
            Transport::Ring(transport) => transport.mode_note(mode),
            Transport::Kernel(transport) => transport.mode_note(mode),
        }
    }

    /// Why this transport does not support `mode`, one of the modes that io_uring implements.
    /// `None`: supported, as far as is known before a queue is made, or not such a mode.
    pub(crate) fn unsupported_reason(&self, mode: Mode) -> Option<UnsupportedMode> {
        match self {
            Transport::Ring(_) if mode.is_the_kernels() => {
                Some(UnsupportedMode::NotTheKernels(mode))
            }
            Transport::Ring(_) => None,
            Transport::Kernel(transport) => transport.unsupported_reason(mode),
        }
    }

    /// Notes for the user about what was found at open, one sentence each.
    pub(crate) fn notes(&self) -> &[String] {
        match self {
            Transport::Ring(transport) => transport.notes(),
            Transport::Kernel(transport) => transport.target().notes(),
        }
    }

    /// The embedded controller's handle; `None` for every other controller.
    pub(crate) fn end(&self) -> Option<&EmbeddedHandle> {
        match self {
            Transport::Ring(transport) => transport.end(),
            Transport::Kernel(_) => None,
        }
    }

    /// Registers memory of the caller's for DMA.
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

/// Properties of a ring transport that depend on where the controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransportFacts {
    /// Whether the transport's interrupt vectors can be masked.
    pub mask: Mask,
    /// What the transport's message counts mean.
    pub messages: Messages,
}

/// Whether interrupts can be masked while a thread polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    /// Each vector has a mask bit; while it is set, no message is sent.
    Bit,
    /// No mask. VFIO leaves the MSI-X mask bits to the kernel, so messages arrive (and cost) while
    /// the thread polls as well; "masked" only means that the thread does not read them. Each
    /// hardware queue has a second queue pair without interrupts (IEN = 0) for polling.
    Unread,
}

/// What a message count of a transport means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    /// The number of interrupt messages, from the counter of each vector's eventfd.
    Exact,
    /// The number of sleeps and polls that found completions. The kernel does not report how many
    /// interrupts there were.
    Wakeups,
    /// Nothing: this system does not report eventfd counters.
    Unknown,
}

/// The number of no transport.
pub(crate) const NO_TRANSPORT: u32 = u32::MAX;

/// The next unused transport number. Multipath devices take one too, because they have namespaces
/// of their own.
pub(crate) fn next_number() -> u32 {
    // Relaxed: only uniqueness matters.
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    NUMBERS.fetch_add(1, Relaxed)
}

/// The part of a request that one command carries, before the transport turns it into an SQE, a
/// capsule or an io_uring entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub op: Op,
    /// Force Unit Access: durable when it completes (Write, Write Zeroes).
    pub fua: bool,
    /// The zeroed blocks stay allocated (Write Zeroes without DEAC).
    pub keep: bool,
    pub nsid: Nsid,
    /// First logical block, and the number of blocks; 0 for a Flush.
    pub lba: u64,
    pub blocks: u32,
    /// Bus address and bytes of the data (Read, Write, Compare) or of the list of ranges
    /// (Deallocate).
    pub addr: u64,
    pub bytes: u32,
    /// The buffer that contains them.
    pub buf: &'a Option<Lent>,
}

/// An I/O command that the caller built (`Queue::io_command`).
#[derive(Debug)]
pub(crate) struct IoCommand {
    /// The command; the queue fills in identifier, flags and data pointer.
    pub sqe: Sqe,
    /// The number of bytes of the command's buffer.
    pub bytes: u32,
    /// Dword 0 of the command's completion.
    pub result: Arc<AtomicU32>,
}

/// The submission side of a queue while a batch is posted.
pub(crate) trait Post {
    /// Writes a Read or a Write into the submission queue; [`Post::commit`] rings the doorbell.
    /// False: no free tag, or the queue is closed.
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool;

    /// As [`Post::post`], for any other operation and for a Read with FUA. It is a separate method
    /// to keep its registers and branches out of the loop that posts Reads and Writes.
    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool;

    /// As [`Post::post`], for a command that the caller built, whose buffer is that of `part`.
    /// Transports without such commands refuse them earlier, so this is never called on them.
    fn post_command(
        &mut self,
        _command: &IoCommand,
        _part: &Part<'_>,
        _token: Token,
        _now: Nanos,
    ) -> bool {
        false
    }

    /// Makes what was posted visible to the device: one doorbell, or one `io_uring_enter`.
    fn commit(&mut self);
}
