//! Notes on completion modes that a device implements differently from their names, and errors for
//! modes that it does not support.

use completion::Mode;
use thiserror::Error;

/// How a mode differs on a device from what its name says
/// ([`Device::mode_note`](crate::Device::mode_note)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModeNote {
    /// The kernel does not let a program set interrupt coalescing: the mode is `interrupt`.
    #[error("interrupt coalescing belongs to the kernel, so `{0}` is `interrupt` here")]
    NotCoalesced(Mode),
    /// There are no posted interrupts through the kernel: the mode is `interrupt`.
    #[error("a file has no posted interrupts, so `{0}` is `interrupt` here")]
    NotPosted(Mode),
    /// A file's queue has no drain thread: the mode is `interrupt`.
    #[error("a file's queue is reaped by its own thread, so `{0}` is `interrupt` here")]
    NotDrained(Mode),
    /// Each interrupt signals, as in `interrupt`, except within a [`Group`](crate::Group).
    #[error(
        "interrupts of PCI drives and vfio-user servers cannot be posted: each one signals, in `{0}` as in `interrupt`; queues in one `Group` share an eventfd in it"
    )]
    Signals(Mode),
    /// NVMe/TCP has sockets, and no interrupts.
    #[error("NVMe/TCP has no interrupts to coalesce or to post: `{0}` is `interrupt` here")]
    NoInterrupts(Mode),
    /// Each nap is a system call of its own.
    #[error(
        "the kernel has no `min_wait`, which Linux 6.12 and newer have: each nap of `{0}` is a system call of its own"
    )]
    NapsCost(Mode),
    /// The thread polls, and the kernel takes the device's interrupts all the same.
    #[error(
        "the device has no poll queues: `{0}` polls the ring, and the kernel still takes interrupts"
    )]
    Interrupted(Mode),
}

/// Why a device does not support a mode
/// ([`Device::unsupported_reason`](crate::Device::unsupported_reason)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnsupportedMode {
    /// The kernel implements the mode, and the kernel does not drive this device.
    #[error("'{0}' is the kernel's own: only `kernel:` devices have it")]
    NotTheKernels(Mode),
    /// The kernel gives this user no SQPOLL thread.
    #[error("`{0}`: the kernel gives this user no submission thread (SQPOLL)")]
    NoSqPoll(Mode),
    /// The kernel is older than hybrid polling.
    #[error("`{0}`: the kernel has no hybrid polling, which Linux 6.13 and newer have")]
    NoHybridPolling(Mode),
    /// There is no hybrid polling for pass-through commands.
    #[error("`{0}`: not for pass-through commands; the namespace's block device supports it")]
    Passthrough(Mode),
    /// The kernel supports no IOPOLL rings.
    #[error("`{0}`: the kernel supports no IOPOLL rings")]
    NoIoPoll(Mode),
    /// I/O goes through the page cache.
    #[error("`{0}`: I/O goes through the page cache, which the kernel does not poll")]
    PageCache(Mode),
    /// The device has no poll queues.
    #[error(
        "`{0}`: the device has no poll queues (for NVMe: the module parameter nvme.poll_queues)"
    )]
    NoPollQueues(Mode),
}
