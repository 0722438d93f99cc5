//! Error types. There is a variant for each different thing that a caller can do about an error.
//! The texts say what is wrong and what to do.

use std::io;
use std::path::PathBuf;

use driver::BringupCause;
use nvme::Status;
use thiserror::Error;

use crate::mode::UnsupportedMode;
use crate::uri::UriError;

/// Why opening a device failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URI does not parse.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The file of `file:`, which holds an embedded controller's data, cannot be used.
    #[error("media file {}: {what}", path.display())]
    Media {
        /// The file.
        path: PathBuf,
        /// What is wrong and what would be right.
        what: String,
        /// The system's error, if it was one.
        #[source]
        source: Option<io::Error>,
    },
    /// The file or block device of `kernel:` cannot be used.
    #[error("kernel:{}: {fault}", path.display())]
    Kernel {
        /// As given.
        path: PathBuf,
        /// What is wrong and what to do.
        fault: TargetFault,
    },
    /// The drive of `pcie:` cannot be used.
    #[error("pcie:{bdf}: {fault}")]
    Pcie {
        /// Its address.
        bdf: hw::pci::Bdf,
        /// What is wrong and what to do.
        #[source]
        fault: hw::vfio::VfioError,
    },
    /// The controller of `vfio-user:` cannot be used.
    #[error("vfio-user:{}: {fault}", socket.display())]
    VfioUser {
        /// The server's socket.
        socket: PathBuf,
        /// What is wrong and what to do.
        #[source]
        fault: VfioUserError,
    },
    /// The controller of `tcp:` cannot be used.
    #[error("tcp://{address}: {fault}")]
    Tcp {
        /// Host and port of the target.
        address: String,
        /// What is wrong and what to do.
        #[source]
        fault: TcpError,
    },
    /// Memory cannot be pinned for DMA.
    #[error(transparent)]
    Pin(#[from] hw::PinError),
    /// `profile=` is neither a built-in profile nor a file with one.
    #[error("profile `{name}`: {what}")]
    Profile {
        /// As given.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The system refused memory, an eventfd or a thread.
    #[error("cannot set up the {what}: {source}")]
    System {
        /// What was being set up.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// This process was forked from a process that has opened devices.
    #[error(
        "the process that this one was forked from has opened devices, whose threads exist only there; exec another program to open devices here"
    )]
    Forked,
    /// The controller could not be brought up.
    #[error("the controller did not come up: {0}")]
    Bringup(#[from] driver::BringupError),
    /// The options, or the parameters of the URI, cannot be used.
    #[error("the device cannot be opened with these options: {0}")]
    Options(#[from] OptionsError),
    /// The buffer pool is too small for the queues.
    #[error(
        "the buffer pool of {bytes} bytes is too small for {queues} queue pairs; raise `pool_bytes` or open fewer queues"
    )]
    PoolTooSmall {
        /// Bytes of the pool.
        bytes: u64,
        /// Queue pairs wanted.
        queues: usize,
    },
}

impl OpenError {
    /// The error for an allocation that failed in a pool of `bytes` bytes, for `queues` queue
    /// pairs.
    pub(crate) fn from_alloc(error: hw::AllocError, bytes: u64, queues: usize) -> OpenError {
        match error {
            // Of these errors, only this one can be avoided by other options.
            hw::AllocError::Full { .. } => OpenError::PoolTooSmall { bytes, queues },
            hw::AllocError::Pin(error) => OpenError::Pin(error),
            hw::AllocError::Forked => OpenError::Forked,
        }
    }
}

/// Why options, or parameters of a URI, cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The device does not support the mode.
    #[error(transparent)]
    Mode(#[from] UnsupportedMode),
    /// The time-out is 0.
    #[error(
        "with a time-out of 0 every command would time out at once; set `timeout` to some seconds"
    )]
    NoTimeout,
    /// The number of queues is 0 or too large.
    #[error(transparent)]
    Queues(#[from] driver::MapError),
    /// More software queues than can share a hardware queue.
    #[error("{queues} software queues on one hardware queue are too many: {most} at most")]
    Shared {
        /// The number on one hardware queue.
        queues: usize,
        /// The maximum.
        most: usize,
    },
    /// A parameter that has an effect with `reap serve` only.
    #[error("`{0}` has an effect only with `reap serve`; leave it out")]
    ServerOnly(&'static str),
    /// A parameter that has no effect with `reap serve`.
    #[error("`{0}` has no effect with `reap serve`; leave it out")]
    HostOnly(&'static str),
    /// The parameter concerns controllers on PCIe, and the device is served over NVMe/TCP.
    #[error("`{0}` has no effect over NVMe/TCP, only on PCIe; leave it out")]
    BusOnly(&'static str),
    /// The paths do not lead to the same namespace, or their controllers cannot be of one
    /// subsystem.
    #[error("{0}")]
    Paths(String),
    /// The file's blocks are larger than a request may be.
    #[error(transparent)]
    Blocks(#[from] driver::SplitError),
}

/// What is wrong with a file or a block device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TargetFault {
    /// The running kernel lacks what the transport needs, or denies it to this process.
    #[error("it cannot be driven through this kernel: {0}")]
    Kernel(String),
    /// There is no such file, there is no device behind the device node, or the size is 0. `size=`
    /// creates a file; a device must be attached.
    #[error("{0}")]
    NotFound(String),
    /// It cannot be used by any user or with any option: it is a directory, or a controller or
    /// format that the driver does not support.
    #[error("{0}")]
    Unusable(String),
    /// This user lacks a permission.
    #[error("{what}")]
    Permission {
        /// What is not permitted, and what would permit it.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The device or the file system is read-only.
    #[error("{0} is read-only; open it with `readonly=yes`")]
    ReadOnly(&'static str),
    /// It is mounted, used as swap, locked, or open in another process. The text names the users
    /// that the system shows.
    #[error("{0}")]
    InUse(String),
    /// A parameter of the URI is not possible for this file or device: `size=`, `lba=`, `buffered=`
    /// or `readonly=`.
    #[error("{0}")]
    Parameter(String),
    /// There is no space for a file of `size=` bytes, or that size exceeds a limit.
    #[error("{0}")]
    NoSpace(String),
    /// The path was replaced while it was being opened; opening it again may work.
    #[error("another file replaced it while it was being opened; open it again")]
    Replaced,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a controller of `vfio-user:` cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VfioUserError {
    /// No server listens on the socket now.
    #[error("{0}")]
    NotFound(&'static str),
    /// It is not a socket, not a vfio-user server of a version that Reap supports, or not an NVMe
    /// controller.
    #[error("{0}")]
    Unusable(String),
    /// This user may not connect.
    #[error(
        "this user may not connect to the socket; get write permission on it, or run as the server's user"
    )]
    Permission,
    /// The server closed the connection before it sent anything.
    #[error(
        "the server closes the connection at once: it has another client, or is not a vfio-user server; close the other client, or read the server's log"
    )]
    Busy,
    /// The device lacks something that Reap needs.
    #[error("it cannot be driven: {0}")]
    Unsupported(String),
    /// The server refuses a request, violates the protocol, does not respond, or is gone.
    #[error("cannot {what}: {source}; read the server's log, and restart the server if it hangs")]
    Server {
        /// What was attempted.
        what: &'static str,
        /// How it failed.
        #[source]
        source: vfio_user::CallError,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Why a controller of `tcp:` cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TcpError {
    /// The name has no address.
    #[error("the name cannot be resolved: {0}")]
    Resolve(#[source] io::Error),
    /// A connection cannot be made or used.
    #[error("cannot connect: {0}; is a target listening there?")]
    Connect(#[source] io::Error),
    /// The target closed the connection.
    #[error("the target closes the connection; read its log")]
    Closed,
    /// The target does not respond.
    #[error("no answer from the target; is it an NVMe/TCP target?")]
    NoAnswer,
    /// The target does not agree to the digests that the URI requests.
    #[error(
        "the target does not support the digests that the URI requests; leave `hdr_digest` or `data_digest` out"
    )]
    Digests,
    /// The target has refused the Connect command.
    #[error("Connect was refused: {0}")]
    Refused(String),
    /// The target wants the host to authenticate.
    #[error("the target requires authentication (AUTHREQ), which Reap does not support")]
    Authentication,
    /// The target violates the protocol.
    #[error("{0}")]
    Protocol(String),
}

impl OpenError {
    /// Whether there is no target, or it does not respond, so that a later attempt may succeed.
    pub(crate) fn is_unreachable(&self) -> bool {
        use TcpError::{Closed, Connect, NoAnswer, Resolve};
        match self {
            OpenError::Tcp { fault, .. } => {
                matches!(fault, Resolve(_) | Connect(_) | Closed | NoAnswer)
            }
            OpenError::Bringup(error) => {
                matches!(error.cause, BringupCause::Gone | BringupCause::NoReply { .. })
            }
            _ => false,
        }
    }
}

/// Why making a queue failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// Every software queue is in use.
    #[error(
        "all {queues} queues of the device are in use; drop one, or open the device with more (`OpenOptions::software_queues`)"
    )]
    AllTaken {
        /// The number of software queues.
        queues: usize,
    },
    /// The kernel refuses to create an io_uring.
    #[error("cannot make a queue: {0}")]
    Ring(String),
    /// The device does not support the mode.
    #[error(transparent)]
    Mode(#[from] UnsupportedMode),
    /// The system refused an eventfd or epoll instance.
    #[error("cannot set up the queue's {what}: {source}")]
    System {
        /// What was being set up.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Why an admin command failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The command was not sent: it would change what the library relies on, or its data has the
    /// wrong length.
    #[error("admin command {opcode:02x}h is not sent: {why}")]
    Refused {
        /// Its opcode.
        opcode: u8,
        /// What is wrong, and what to do instead.
        why: String,
    },
    /// The controller completed the command with an error status.
    #[error("the controller returned: {0}")]
    Status(Status),
    /// The controller was reset before it completed the command.
    #[error(
        "the controller was reset before it completed the command, and may have executed it; send it again"
    )]
    Reset,
    /// The controller has failed, or is being closed.
    #[error(
        "the controller does not respond any more: it failed, or its device is being closed; open the device again"
    )]
    Gone,
    /// The command has not completed within this time, although the controller did not fail.
    #[error("the controller has not completed the command within {0:?}")]
    NoAnswer(std::time::Duration),
    /// A file or block device takes no NVMe commands.
    #[error(
        "{0} takes no NVMe commands; a namespace's character device does, such as `kernel:/dev/ng0n1`"
    )]
    NoController(String),
    /// The kernel does not pass the command to the controller.
    #[error("the kernel does not pass the admin command to the controller: {0}")]
    System(#[from] io::Error),
}

impl From<hw::passthrough::CommandError> for AdminError {
    fn from(error: hw::passthrough::CommandError) -> AdminError {
        match error {
            hw::passthrough::CommandError::Status(status) => AdminError::Status(status),
            hw::passthrough::CommandError::System(error) => AdminError::System(error),
        }
    }
}

/// Why a request was not accepted. Nothing was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The range is not within the namespace.
    #[error("blocks {lba}..{end} are not within the namespace of {blocks} blocks")]
    OutOfRange {
        /// First block.
        lba: u64,
        /// One past the last block.
        end: u64,
        /// Blocks of the namespace.
        blocks: u64,
    },
    /// The length is not a positive multiple of the block size, or exceeds the buffer.
    #[error(
        "{bytes} bytes are not whole blocks of {block} bytes within the buffer of {buffer} bytes"
    )]
    Length {
        /// Length as requested.
        bytes: u32,
        /// Bytes of a block.
        block: u32,
        /// Bytes of the buffer.
        buffer: usize,
    },
    /// The request is a Flush with a length. A Flush has no range: it concerns every write to the
    /// namespace (Base §7.2).
    #[error(
        "a Flush of {bytes} bytes: a Flush has no length, and covers every write to the namespace; leave `Request::bytes` out"
    )]
    FlushOfBytes {
        /// As requested.
        bytes: u32,
    },
    /// The controller, block device or file system does not support the operation. For a file, this
    /// may be known only at the first request.
    #[error(
        "namespace {nsid}: its controller, block device or file system does not support {what}; ask the namespace before (`supports_…`){instead}",
        what = op.name(), instead = instead(*.op)
    )]
    Unsupported {
        /// The operation.
        op: units::Op,
        /// The namespace.
        nsid: u32,
    },
    /// A command that the caller built ([`Queue::io_command`](crate::Queue::io_command)) cannot be
    /// sent.
    #[error("I/O command {opcode:02x}h is not sent: {why}")]
    Command {
        /// Its opcode.
        opcode: u8,
        /// What is wrong, and what to do instead.
        why: &'static str,
    },
    /// The request has no blocks.
    #[error("a request for 0 blocks; it needs at least one")]
    NoBlocks,
    /// The request has too many blocks.
    #[error("{blocks} blocks are more than one request can have ({most}); use several requests")]
    TooLong {
        /// Number of blocks requested.
        blocks: u64,
        /// The maximum.
        most: u32,
    },
    /// More ranges than one Deallocate may have, or than fit into its buffer.
    #[error(
        "a Deallocate of {ranges} ranges: at most {most} are possible here (`Namespace::max_ranges`, and 16 bytes of the buffer for each); use several requests, or a larger buffer"
    )]
    TooManyRanges {
        /// Number of ranges requested.
        ranges: u64,
        /// The maximum.
        most: u32,
    },
    /// The pool has no memory for the list of a Deallocate.
    #[error(
        "the buffer pool has no room for a list of {bytes} bytes; open the device with a larger pool (`pool_bytes`), drop buffers, or deallocate fewer blocks at a time"
    )]
    NoRoom {
        /// Bytes of the list.
        bytes: usize,
    },
    /// The buffer is neither from this device's pool nor from memory registered with it.
    #[error(
        "this device cannot access the buffer; allocate one with `Device::buffer`, or use memory registered with `Device::register`"
    )]
    ForeignBuffer,
    /// The namespace was formatted, replaced or detached since the device was opened, so its handle
    /// is no longer valid.
    #[error(
        "namespace {0} was formatted, replaced or detached since the device was opened; open the device again to use what is there now"
    )]
    Changed(u32),
    /// The device does not have the namespace.
    #[error("namespace {0} is not active on this device")]
    NoNamespace(u32),
    /// The iterator passed to `submit` submitted to the same queue.
    #[error("the queue is taking requests from this very iterator; submit afterwards")]
    InsideSubmit,
    /// The queue was made before a fork, by the parent process.
    #[error(
        "the device was opened before a fork and belongs to the parent process; use it there, or exec another program that opens it"
    )]
    Forked,
    /// The queue's request table is full.
    #[error("the queue has 16,777,216 open requests; reap some first")]
    TooMany,
}

/// The end of an error text: what to do instead, with commands that every device supports.
fn instead(op: units::Op) -> &'static str {
    match op {
        units::Op::Compare => ", and read the blocks and compare them here instead",
        units::Op::Verify => ", and read the blocks instead",
        units::Op::WriteUncorrectable => "",
        _ => ", and write zeroes instead",
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IoError {
    /// The controller completed the request with an error status.
    #[error("the controller returned: {0}")]
    Status(Status),
    /// The request timed out, and the controller was reset. The request may or may not have been
    /// executed.
    #[error(
        "no completion in time; the controller was reset, and the request may or may not have been executed"
    )]
    TimedOut,
    /// The controller failed and did not recover. Buffers to which it may still write are leaked,
    /// on purpose.
    #[error("the controller failed and did not recover")]
    DeviceLost,
    /// The system returned this errno (errno(3)).
    #[error("the system returned: {}", std::io::Error::from_raw_os_error(*.0))]
    System(i32),
    /// An earlier Flush, or write with FUA, of the file or block device failed: writes since the
    /// last successful Flush may be lost, and no later Flush can detect that. Every Flush fails
    /// until the device is opened again.
    #[error(
        "an earlier Flush failed: writes since the last successful one may be lost; open the device again and repeat them"
    )]
    FlushLost,
    /// The file was truncated while it was open: a write would make it grow again, or a read is
    /// past its end.
    #[error("the file was truncated while it was open; check its contents, and open it again")]
    Truncated,
    /// The connection to the controller was lost after the write had been sent, and it could not be
    /// retried within the time-out (`fast_io_fail_tmo`, `ctrl_loss_tmo`). The lost controller may
    /// have executed the write, or may still execute it. Later writes of this device to the same
    /// blocks are safe: they are not sent before that controller has stopped.
    #[error(
        "outcome unknown: the connection was lost after the request had been sent, and for {waited} it could not be sent again; it may have been executed, or may still be"
    )]
    OutcomeUnknown {
        /// The time since the loss.
        waited: units::Nanos,
    },
    /// No path could be used, or the path was lost and a retry on another path would not be safe.
    #[error("multipath: {0}")]
    Path(driver::multipath::Failure),
    /// The request was never submitted.
    #[error("not submitted: {0}")]
    Refused(#[from] Refused),
}

impl IoError {
    /// Whether a Compare found blocks that differ from its buffer (NVM §3.3.1, Compare Failure).
    /// After another error it is unknown whether they differ.
    pub fn is_miscompare(&self) -> bool {
        matches!(self, IoError::Status(status) if status.kind() == Status::COMPARE_FAILURE)
    }

    /// The errno that fio's results show for this error.
    pub fn errno(&self) -> i32 {
        match self {
            // ENOSPC, EIO, ETIMEDOUT, EOPNOTSUPP, ENOMEM and EINVAL of Linux (errno(3)).
            IoError::Status(status) if status.kind() == Status::CAPACITY_EXCEEDED => 28,
            IoError::Status(_)
            | IoError::DeviceLost
            | IoError::OutcomeUnknown { .. }
            | IoError::Path(_)
            | IoError::FlushLost
            | IoError::Truncated => 5,
            IoError::System(errno) => *errno,
            IoError::TimedOut => 110,
            IoError::Refused(Refused::Unsupported { .. }) => 95,
            IoError::Refused(Refused::NoRoom { .. }) => 12,
            IoError::Refused(_) => 22,
        }
    }
}

/// A blocking call was made inside `block_on` on the same thread, where it would deadlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this call blocks, and the thread is already inside `block_on`; await the request instead")]
pub struct WouldDeadlock;
