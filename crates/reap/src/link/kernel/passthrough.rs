//! NVMe commands that pass through the kernel: a request as the command that it is, and what its status means.
//!
//! The commands are the embedded link's, built by `nvme::io`, and so are the statuses. Identifiers and data pointers are the kernel's to
//! fill in.

use hw::uring::{self, File, NvmeCommand};
use nvme::io::Flags;
use nvme::prp::Dptr;
use nvme::{Lba, Nsid, Sqe, Status, io};
use units::Op;

use super::command::{Answer, Command};

/// A namespace that commands pass through to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passthrough {
    /// Its identifier at the controller.
    pub(crate) nsid: Nsid,
    /// Bytes of its logical blocks, as a power of two. Those of the device may be larger (`lba=`).
    pub(crate) block_log2: u8,
    /// Most bytes of a command: whole blocks.
    pub(crate) most_bytes: u32,
    /// Commands that cross a multiple of so many of its blocks are slower (NOIOB); 0: there is no such boundary.
    pub(crate) boundary: u32,
    /// It is read only, as was asked for. The kernel would let root write all the same.
    pub(crate) read_only: bool,
}

impl Passthrough {
    /// The boundary in blocks of 2^`log2` bytes; 0: none, or none that such blocks keep to.
    pub(super) fn boundary_in(&self, log2: u8) -> u32 {
        let per = 1 << (log2 - self.block_log2);
        if self.boundary.is_multiple_of(per) { self.boundary / per } else { 0 }
    }

    /// What asks for `command`. `None`: it is for an ordinary request to refuse, as every write to a descriptor that is open for reading.
    #[inline]
    pub(super) fn entry(&self, command: &Command, file: File) -> Option<uring::Command> {
        if self.read_only && command.op != Op::Read {
            return self.reads_nothing(command, file);
        }
        Some(uring::Command::new(file, &NvmeCommand::from(self.sqe(command)), command.rest))
    }

    /// A Flush changes nothing.
    #[cold]
    fn reads_nothing(&self, command: &Command, file: File) -> Option<uring::Command> {
        let flush = NvmeCommand::from(io::flush(self.nsid));
        (command.op == Op::Flush).then(|| uring::Command::new(file, &flush, None))
    }

    #[inline]
    fn sqe(&self, command: &Command) -> Sqe {
        let Some(span) = command.rest else { return io::flush(self.nsid) };
        let (lba, blocks) = (Lba(command.offset >> self.block_log2), span.len() >> self.block_log2);
        match command.op {
            Op::Write => io::write(self.nsid, lba, blocks, Dptr::NONE, if command.fua { Flags::FUA } else { Flags::NONE }),
            _ => io::read(self.nsid, lba, blocks, Dptr::NONE, Flags::NONE),
        }
    }
}

/// Takes note of the kernel's answer to a command that was passed through: the controller's status, or an errno. A command transfers all or
/// fails.
#[inline]
pub(super) fn answered(command: &Command, result: i32) -> Answer {
    match result {
        0 => Answer::Over(Status::SUCCESS, 0),
        status @ 1.. => Answer::Over(Status(status as u16), 0),
        errno => command.failed(errno),
    }
}

#[cfg(test)]
mod tests;
