//! What can go wrong, by what a caller can do about it.

use std::io;
use std::path::PathBuf;

use nvme::Status;
use thiserror::Error;

use crate::mode::UnsupportedMode;
use crate::uri::UriError;

/// Why a device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URI does not parse.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The file behind `file:` cannot be used.
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
    /// The file or block device behind `kernel:` cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The drive behind `pcie:` cannot be had.
    #[error("pcie:{bdf}: {fault}")]
    Pcie {
        /// Where it is.
        bdf: hw::pci::Bdf,
        /// What is wrong and what to do.
        #[source]
        fault: hw::vfio::VfioError,
    },
    /// The controller behind `vfio-user:` cannot be had.
    #[error("vfio-user:{}: {fault}", socket.display())]
    VfioUser {
        /// The server's socket.
        socket: PathBuf,
        /// What is wrong and what to do.
        #[source]
        fault: PeerFault,
    },
    /// Memory that the device reaches cannot be pinned.
    #[error(transparent)]
    Pin(#[from] hw::PinError),
    /// `profile=` names neither a built-in profile nor a file that describes one.
    #[error("profile `{name}`: {what}")]
    Profile {
        /// As given.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Memory, an eventfd or a thread could not be had.
    #[error("cannot set up the {what}: {source}")]
    System {
        /// What was being set up.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Devices have been opened by the process that this one was forked from.
    #[error(
        "the process that this one was forked from has opened devices, and the threads that look after them are there; exec a program of its own to open any here"
    )]
    Forked,
    /// The controller did not come up.
    #[error("the controller did not come up: {0}")]
    Bringup(#[from] driver::BringupError),
    /// The options, or parameters of the URI, do not go together.
    #[error("the device cannot be opened so: {0}")]
    Options(#[from] OptionsError),
    /// The buffer pool is too small for the queues.
    #[error("the buffer pool of {bytes} bytes is too small for {queues} queue pairs; raise `pool_bytes` or open fewer queues")]
    PoolTooSmall {
        /// Bytes of the pool.
        bytes: u64,
        /// Queue pairs wanted.
        queues: usize,
    },
}

impl OpenError {
    /// The pool of `bytes` bytes gives no memory for `queues` queue pairs.
    pub(crate) fn no_memory(error: hw::AllocError, bytes: u64, queues: usize) -> OpenError {
        match error {
            hw::AllocError::Full { .. } => OpenError::PoolTooSmall { bytes, queues },
            hw::AllocError::Pin(error) => OpenError::Pin(error),
            hw::AllocError::Forked => OpenError::Forked,
        }
    }
}

/// Why options, or parameters of a URI, cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The device has no such mode.
    #[error(transparent)]
    Mode(#[from] UnsupportedMode),
    /// A time-out of 0.
    #[error("with a time-out of 0 every command would be late at once; give `timeout` some seconds")]
    NoTimeout,
    /// No queues, or more than there can be.
    #[error(transparent)]
    Queues(#[from] driver::MapError),
    /// More software queues than can share a hardware queue.
    #[error("{queues} software queues on one hardware queue are too many: {most} at most")]
    Shared {
        /// How many there would be.
        queues: usize,
        /// The most.
        most: usize,
    },
    /// A parameter of what is served to another process.
    #[error("`{0}` says how another process reaches the controller that `reap serve` gives it; leave it out")]
    OfServers(&'static str),
    /// A parameter of what this process itself uses.
    #[error("`{0}` says how a host in this process reaches the controller, and has no meaning for another one; leave it out")]
    OfThisProcess(&'static str),
    /// A path that does not lead to the namespace that others lead to; or the controllers cannot be of one subsystem.
    #[error("{0}")]
    Paths(String),
    /// The file's blocks are larger than a request may be.
    #[error(transparent)]
    Blocks(#[from] driver::SplitError),
}

/// Why `kernel:PATH` could not be opened.
#[derive(Debug, Error)]
#[error("kernel:{}: {fault}", path.display())]
pub struct TargetError {
    /// As given.
    pub path: PathBuf,
    /// What is wrong and what to do.
    pub fault: TargetFault,
}

/// What is wrong with a file or a block device: a variant for each thing that a caller can do about it. The text says what it is, where, and
/// what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TargetFault {
    /// The running kernel lacks what the transport needs, or keeps it from this process.
    #[error("it cannot be driven through this kernel: {0}")]
    Kernel(String),
    /// Nothing has this name, no device is behind it, or it holds no bytes: `size=` lays a file out, and a device is to be attached.
    #[error("{0}")]
    NotFound(String),
    /// It cannot be used by any user or with any option: a directory, a controller or a format that the driver does not use.
    #[error("{0}")]
    Unusable(String),
    /// The system does not allow it to this user.
    #[error("{what}")]
    Permission {
        /// What is not allowed, and what allows it.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The device or the file system takes no writes: it can be opened for reading.
    #[error("{0} is read-only; open it with `readonly=yes`")]
    ReadOnly(&'static str),
    /// It is mounted, used as swap, locked or held: until its holders, named as far as the system tells, let it go.
    #[error("{0}")]
    InUse(String),
    /// A parameter of the URI does not fit it: `size=`, `lba=`, `buffered=` or `readonly=`.
    #[error("{0}")]
    Parameter(String),
    /// There is no room for the file that `size=` asks for, or it is larger than a limit allows.
    #[error("{0}")]
    NoSpace(String),
    /// The path named something else a moment later: it can be opened again.
    #[error("it was replaced by something else while it was being opened; open it again")]
    Replaced,
    /// Something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Why the controller behind `vfio-user:` cannot be had: a variant for each thing that a caller can do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// No server listens there, or not any more: it may come.
    #[error("{0}")]
    NotFound(&'static str),
    /// What is there is something else: no socket, no vfio-user server of a version that Reap speaks, or no NVMe controller.
    #[error("{0}")]
    Unusable(String),
    /// This user may not connect.
    #[error("this user may not connect to it; write permission on the socket lets it, or run as the server's user")]
    Permission,
    /// The server has closed the connection before it has said anything.
    #[error(
        "the server closes the connection at once: it has another client, or is no vfio-user server; end the other client, or see what the server says"
    )]
    Busy,
    /// The device lacks something that Reap needs.
    #[error("it cannot be driven: {0}")]
    Lacks(String),
    /// The server refuses, breaks the protocol, says nothing, or is gone.
    #[error("cannot {what}: {source}; see what the server says, and start it anew if it hangs")]
    Server {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        #[source]
        source: vfio_user::CallError,
    },
    /// The system refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Why a software queue could not be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// Every software queue is in use.
    #[error(
        "all {queues} queues of the device are in use, as many as it grants or was opened for; give one back, or have threads share: open it with more (`OpenOptions::software_queues`)"
    )]
    AllTaken {
        /// How many there are.
        queues: usize,
    },
    /// The kernel refuses an io_uring.
    #[error("cannot make a queue: {0}")]
    Ring(String),
    /// The device has no such mode.
    #[error(transparent)]
    Mode(#[from] UnsupportedMode),
    /// An eventfd or epoll instance could not be had.
    #[error("cannot set up the queue's {what}: {source}")]
    System {
        /// What was being set up.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Why an admin command has no answer, or a bad one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AdminError {
    /// It would take from the library what it uses, or the bytes given are not what it transfers. Nothing was sent.
    #[error("admin command {opcode:02x}h is not passed on: {why}")]
    Refused {
        /// Its opcode.
        opcode: u8,
        /// What is wrong, and what to do instead.
        why: String,
    },
    /// The controller has refused it.
    #[error("the controller answered: {0}")]
    Status(Status),
    /// A reset took it back.
    #[error("the controller was reset before it answered, and may have carried the command out; ask again")]
    Reset,
    /// The controller has been given up, or is being closed.
    #[error("the controller answers no more: it failed, or its device is being closed; open the device again")]
    Gone,
    /// Neither an answer nor the end of the controller has come.
    #[error("the controller has not answered within {0:?}")]
    NoAnswer(std::time::Duration),
    /// What the kernel shows as a file or a block device takes no NVMe command.
    #[error("{0} takes no NVMe commands; a namespace's character device does, such as `kernel:/dev/ng0n1`")]
    NoController(String),
    /// The kernel does not pass it on.
    #[error("the kernel does not pass the admin command on: {0}")]
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
    /// The range does not lie in the namespace.
    #[error("blocks {lba}..{end} do not lie in the namespace of {blocks} blocks")]
    OutOfRange {
        /// First block.
        lba: u64,
        /// One past the last block.
        end: u64,
        /// Blocks of the namespace.
        blocks: u64,
    },
    /// The length is not a positive multiple of the block size, or exceeds the buffer.
    #[error("{bytes} bytes are not whole blocks of {block} bytes within the buffer of {buffer} bytes")]
    Length {
        /// As asked for.
        bytes: u32,
        /// Bytes of a block.
        block: u32,
        /// Bytes of the buffer.
        buffer: usize,
    },
    /// A Flush has no range (NVM 3.2.2): it is for every write to the namespace.
    #[error("a Flush of {bytes} bytes; it has no length, and covers every write to the namespace: leave `Request::bytes` out")]
    FlushOfBytes {
        /// As asked for.
        bytes: u32,
    },
    /// The controller, the block device or the file system does not have the command. Of a file that may show at the first request.
    #[error(
        "namespace {nsid}: its controller, block device or file system does not support {what}; ask the namespace before (`supports_…`){instead}",
        what = op.name(), instead = instead(*.op)
    )]
    Unsupported {
        /// What was to be done.
        op: units::Op,
        /// The namespace.
        nsid: u32,
    },
    /// A command of the caller's own that cannot be sent so ([`Queue::io_command`](crate::Queue::io_command)).
    #[error("I/O command {opcode:02x}h is not passed on: {why}")]
    Command {
        /// Its opcode.
        opcode: u8,
        /// What is wrong, and what to do instead.
        why: &'static str,
    },
    /// No blocks at all.
    #[error("a request for 0 blocks; the least is one")]
    NoBlocks,
    /// More blocks than one request can name.
    #[error("{blocks} blocks are more than a request can name, {most}; make it several")]
    TooLong {
        /// As asked for.
        blocks: u64,
        /// The most.
        most: u32,
    },
    /// More ranges than one Deallocate has, or than its buffer has room for.
    #[error("a Deallocate of {ranges} ranges: at most {most} go into one here (`Namespace::most_ranges`, and 16 bytes of the buffer each)")]
    TooManyRanges {
        /// As asked for.
        ranges: u64,
        /// The most.
        most: u32,
    },
    /// The pool has no memory for the list of a Deallocate.
    #[error(
        "the buffer pool has no room for a list of {bytes} bytes; open the device with a larger one (`pool_bytes`), give buffers back, or name fewer blocks at a time"
    )]
    NoRoom {
        /// Bytes of the list.
        bytes: usize,
    },
    /// The buffer is neither from this device's pool nor of memory that is registered with it.
    #[error("this device does not reach the buffer; get one by `Device::buffer`, or from memory given to its `Device::register`")]
    ForeignBuffer,
    /// The namespace is not what it was: its handle counts blocks of another size, or of another namespace.
    #[error(
        "namespace {0} was formatted otherwise, replaced or detached since the device was opened; open the device again to use what is there now"
    )]
    Changed(u32),
    /// The namespace is not one of this device's.
    #[error("namespace {0} is not active on this device")]
    NoNamespace(u32),
    /// An iterator that is being submitted has submitted to the same queue.
    #[error("the queue is taking a batch from this very iterator; submit to it afterwards")]
    InsideSubmit,
    /// The queue was made before a fork, by the parent process.
    #[error(
        "the device was opened before a fork and belongs to the parent process; use it there, or exec a program of its own that opens it"
    )]
    Forked,
    /// The queue has as many open requests as it can name.
    #[error("the queue has 16,777,216 open requests; reap some first")]
    TooMany,
}

/// What does the same with commands that every device has, if anything does.
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
    /// The controller said so.
    #[error("the controller answered: {0}")]
    Status(Status),
    /// It was not answered in time, and the controller was reset; the request may or may not have been carried out.
    #[error("no answer in time; the controller was reset, and the request may or may not have been carried out")]
    TimedOut,
    /// The controller failed and did not come back. Buffers it may still write to are leaked, on purpose.
    #[error("the controller failed and could not be brought back")]
    DeviceLost,
    /// The system said so: an errno (errno(3)).
    #[error("the system answered: {}", std::io::Error::from_raw_os_error(*.0))]
    System(i32),
    /// A Flush, or a write with FUA, of a file or block device of which an earlier one failed: what was written since the last good Flush
    /// may be gone, and no later Flush can tell. It stays so until the device is opened again.
    #[error("an earlier Flush failed: what was written since the last good one may be lost; open the device again and write it anew")]
    FlushLost,
    /// The file was truncated while it was open: a write would have made it grow again, or a read lies controller its end.
    #[error("the file was truncated while it was open; check what it holds, and open it again")]
    Truncated,
    /// Several paths, and none that could be taken, or one that was lost at a bad moment.
    #[error("multipath: {0}")]
    Path(driver::multipath::Failure),
    /// It was never submitted.
    #[error("not submitted: {0}")]
    Refused(#[from] Refused),
}

impl IoError {
    /// Whether a Compare has found blocks that do not hold what its buffer has (NVM 3.3.1, Compare Failure). It was carried out; any other
    /// error says nothing of the blocks.
    pub fn is_miscompare(&self) -> bool {
        matches!(self, IoError::Status(status) if status.kind() == Status::COMPARE_FAILURE)
    }

    /// The number that stands for this error in fio's results: an errno.
    pub fn errno(&self) -> i32 {
        match self {
            IoError::Status(status) if status.kind() == Status::CAPACITY_EXCEEDED => 28,
            IoError::Status(_) | IoError::DeviceLost | IoError::Path(_) | IoError::FlushLost | IoError::Truncated => 5,
            IoError::System(errno) => *errno,
            IoError::TimedOut => 110,
            IoError::Refused(Refused::Unsupported { .. }) => 95,
            IoError::Refused(Refused::NoRoom { .. }) => 12,
            IoError::Refused(_) => 22,
        }
    }
}

/// A call that would block was made where blocking is a deadlock: inside a future that a `block_on` of this thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this call blocks, and the thread is already inside `block_on`; await the request instead")]
pub struct WouldDeadlock;
