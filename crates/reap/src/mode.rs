//! What a completion mode comes to on a device, where that is something else than its name says, or nothing.

use completion::Mode;
use thiserror::Error;

/// What a mode comes to on a device ([`Device::mode_note`](crate::Device::mode_note)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModeNote {
    /// The kernel coalesces no interrupts for a program: the mode is `interrupt`.
    #[error("the kernel keeps its interrupts as they are, so that `{0}` is `interrupt`")]
    NotCoalesced(Mode),
    /// The kernel posts no interrupts: the mode is `interrupt`.
    #[error("the kernel posts no interrupts of a file, so that `{0}` is `interrupt`")]
    NotPosted(Mode),
    /// A file's queue has no drain thread: the mode is `interrupt`.
    #[error("a queue of a file belongs to one thread, which reaps, so that `{0}` is `interrupt`")]
    NotDrained(Mode),
    /// Each message signals, as in `interrupt`, except within a [`Group`](crate::Group).
    #[error(
        "of a drive on the bus or in another process each message signals, in `{0}` as in `interrupt`; queues in one `Group` have one eventfd in it"
    )]
    Signals(Mode),
    /// Each nap is a system call of its own.
    #[error("the kernel has no `min_wait`, which Linux 6.12 and newer have: each nap of `{0}` is a system call of its own")]
    NapsCost(Mode),
    /// It spins where interrupts are taken all the same.
    #[error("the device has no poll queues: `{0}` spins on the ring, and interrupts are still taken")]
    Interrupted(Mode),
}

/// Why a mode cannot be had on a device ([`Device::lacks`](crate::Device::lacks)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnsupportedMode {
    /// It is the kernel's own, and the kernel does not drive the device.
    #[error("'{0}' is the kernel's own: only `kernel:` devices have it")]
    NotTheKernels(Mode),
    /// The kernel gives this user no SQPOLL thread.
    #[error("`{0}`: the kernel gives this user no thread that submits (SQPOLL)")]
    NoSqPoll(Mode),
    /// The kernel is older than hybrid polling.
    #[error("`{0}`: the kernel has no hybrid polling, which Linux 6.13 and newer have")]
    NoHybridPolling(Mode),
    /// Commands pass through, for which no ring polls so.
    #[error("`{0}`: no ring for commands that pass through can be made so; the block device has it")]
    Passthrough(Mode),
    /// The kernel makes no IOPOLL rings.
    #[error("`{0}`: the kernel makes no rings that poll (IOPOLL)")]
    NoIoPoll(Mode),
    /// I/O goes through the page cache.
    #[error("`{0}`: the file goes through the page cache, which the kernel does not poll")]
    PageCache(Mode),
    /// The device has no poll queues.
    #[error("`{0}`: the device has no poll queues (for NVMe: the module parameter nvme.poll_queues)")]
    NoPollQueues(Mode),
}
