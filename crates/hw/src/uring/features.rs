//! What the running kernel has.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use io_uring::{IoUring, Probe, opcode};

use super::cq::Cqe;
use super::entry::Entry;
use super::error::{SetupError, Unavailable};
use super::file::FileSlot;
use super::ring::{Enter, Ring};
use super::setup::{Options, Poll};

/// Where an administrator switches io_uring off: 0 for nobody, 1 for those without CAP_SYS_ADMIN or the group, 2 for all.
const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// What an entry or command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads into unregistered memory.
    Read,
    /// Writes from unregistered memory.
    Write,
    /// Reads into registered memory.
    ReadFixed,
    /// Writes from registered memory.
    WriteFixed,
    /// fsync and fdatasync.
    Fsync,
    /// fallocate.
    Allocate,
    /// Polls of a file.
    Poll,
    /// Completions in another ring.
    Message,
    /// Cancelling.
    Cancel,
    /// Commands that are passed through.
    Command,
}

impl Operation {
    /// All of them, in the order of their declaration.
    pub const ALL: [Operation; 10] = [
        Operation::Read,
        Operation::Write,
        Operation::ReadFixed,
        Operation::WriteFixed,
        Operation::Fsync,
        Operation::Allocate,
        Operation::Poll,
        Operation::Message,
        Operation::Cancel,
        Operation::Command,
    ];

    fn code(self) -> u8 {
        match self {
            Operation::Read => opcode::Read::CODE,
            Operation::Write => opcode::Write::CODE,
            Operation::ReadFixed => opcode::ReadFixed::CODE,
            Operation::WriteFixed => opcode::WriteFixed::CODE,
            Operation::Fsync => opcode::Fsync::CODE,
            Operation::Allocate => opcode::Fallocate::CODE,
            Operation::Poll => opcode::PollAdd::CODE,
            Operation::Message => opcode::MsgRingData::CODE,
            Operation::Cancel => opcode::AsyncCancel::CODE,
            Operation::Command => opcode::UringCmd80::CODE,
        }
    }
}

/// What the running kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Time-outs of a wait (IORING_FEAT_EXT_ARG, 5.11).
    pub timeouts: bool,
    /// Completions that do not fit are kept (IORING_FEAT_NODROP, 5.5).
    pub keeps_overflow: bool,
    /// [`Enter::min_wait`](super::Enter::min_wait) (IORING_FEAT_MIN_TIMEOUT, 6.12).
    pub min_wait: bool,
    /// [`Options::owner`] (6.1).
    pub owner: bool,
    /// Shared rings as they are made here (IORING_SETUP_COOP_TASKRUN and TASKRUN_FLAG, 5.19).
    pub shared: bool,
    /// [`Options::big`] (5.19).
    pub big: bool,
    /// [`Poll::Io`].
    pub io_poll: bool,
    /// [`Poll::HybridIo`] (6.13).
    pub hybrid_io_poll: bool,
    /// [`Poll::Sq`], for this user.
    pub sq_poll: bool,
    operations: u16,
}

impl Features {
    /// Asks the kernel, by making some small rings.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub fn probe() -> Result<Features, Unavailable> {
        let plain = IoUring::new(2).map_err(why)?;
        let (params, mut probe) = (plain.params(), Probe::new());
        plain.submitter().register_probe(&mut probe)?;
        let operations = (0..).zip(Operation::ALL).filter(|(_, operation)| probe.is_supported(operation.code()));
        let makes = |owner, poll, big| match Ring::new(&Options { entries: 2, owner, poll, big, ..Options::default() }) {
            Err(SetupError::Refused { source, .. }) => {
                source.raw_os_error() != Some(libc::EINVAL) && source.raw_os_error() != Some(libc::EPERM)
            }
            made => made.is_ok(),
        };
        Ok(Features {
            timeouts: params.is_feature_ext_arg(),
            keeps_overflow: params.is_feature_nodrop(),
            min_wait: params.is_feature_min_timeout(),
            owner: makes(true, Poll::No, false),
            shared: makes(false, Poll::No, false),
            big: makes(false, Poll::No, true),
            io_poll: makes(false, Poll::Io, false),
            hybrid_io_poll: makes(false, Poll::HybridIo, false),
            sq_poll: makes(false, Poll::Sq { idle_ms: 1 }, false),
            operations: operations.fold(0, |bits, (bit, _)| bits | 1 << bit),
        })
    }

    /// Whether the kernel knows the operation. Whether a file does is seen when it is asked for.
    pub fn has(&self, operation: Operation) -> bool {
        self.operations & 1 << operation as u16 != 0
    }

    /// Whether this block device takes [`Entry::discard`], by a trial that discards nothing: of no bytes it is wrong, where it is known.
    pub fn discards(&self, device: impl AsFd) -> bool {
        let options = Options { entries: 2, files: 1, ..Options::default() };
        let Some((ring, mut sq, mut cq)) = Ring::new(&options).ok().filter(|_| self.has(Operation::Command)) else { return false };
        if ring.register_file(FileSlot(0), device).is_err() || sq.push(Entry::discard(FileSlot(0), 0, 0)).is_err() {
            return false;
        }
        let (submit, mut cqes) = (sq.publish(), [Cqe::default(); 1]);
        let asked = ring.enter(Enter { submit, wait_for: 1, ..Enter::default() });
        // The device is to be free as soon as it is closed, and rings close late.
        _ = ring.unregister_file(FileSlot(0));
        asked.is_ok() && cq.take(&mut cqes) == 1 && cqes[0].result != -libc::EOPNOTSUPP
    }
}

fn why(error: io::Error) -> Unavailable {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => Unavailable::NoSuchCall,
        Some(libc::EPERM) => {
            match fs::read_to_string(SWITCH).ok().and_then(|switch| switch.trim().parse().ok()).filter(|switch| *switch != 0) {
                Some(switch) => Unavailable::SwitchedOff(switch),
                None => Unavailable::Forbidden,
            }
        }
        Some(libc::ENOMEM) => Unavailable::Memory(error),
        _ => Unavailable::System(error),
    }
}
