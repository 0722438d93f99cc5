//! NVMe commands that pass through the kernel: a request as the command that it is, and what its status means.
//!
//! The commands are the embedded transport's, built by `nvme::io`, and so are the statuses. Identifiers and data pointers are the kernel's to
//! fill in.

use hw::uring::{self, FileSlot};
use nvme::io::Flags;
use nvme::prp::Dptr;
use nvme::{Lba, Sqe, Status, io};
use units::Op;

use super::command::{Progress, Remaining, RingCommand};
use super::namespace::Passthrough;
use super::zeroing::ZeroMethod;

impl Passthrough {
    /// What asks for `command`. `None`: it is for an ordinary request to refuse, as every write to a descriptor that is open for reading.
    #[inline]
    pub(super) fn entry(&self, command: &RingCommand, file: FileSlot) -> Option<uring::Command> {
        if self.read_only && !matches!(command.op, Op::Read | Op::Compare | Op::Verify) {
            return self.reads_nothing(command, file);
        }
        Some(uring::Command::new(file, &self.sqe(command), command.remaining.data()))
    }

    /// A Flush changes nothing.
    #[cold]
    fn reads_nothing(&self, command: &RingCommand, file: FileSlot) -> Option<uring::Command> {
        let flush = io::flush(self.nsid);
        (command.op == Op::Flush).then(|| uring::Command::new(file, &flush, None))
    }

    #[inline]
    fn sqe(&self, command: &RingCommand) -> Sqe {
        let (lba, fua) = (Lba(command.offset >> self.block_log2), if command.fua { Flags::FUA } else { Flags::NONE });
        let blocks = |bytes: u64| (bytes >> self.block_log2) as u32;
        match (command.op, command.remaining) {
            (Op::Read, Remaining::Data(span)) => io::read(self.nsid, lba, blocks(span.len().into()), Dptr::NONE, fua),
            (Op::Write, Remaining::Data(span)) => io::write(self.nsid, lba, blocks(span.len().into()), Dptr::NONE, fua),
            // Its data is the list of its ranges.
            (Op::Deallocate, Remaining::Data(span)) => io::deallocate(self.nsid, span.len() / io::Range::LEN as u32, Dptr::NONE),
            (Op::Compare, Remaining::Data(span)) => io::compare(self.nsid, lba, blocks(span.len().into()), Dptr::NONE),
            (Op::Verify, Remaining::Check { bytes }) => io::verify(self.nsid, lba, blocks(bytes)),
            (Op::WriteUncorrectable, Remaining::Check { bytes }) => io::write_uncorrectable(self.nsid, lba, blocks(bytes)),
            (_, Remaining::Range { bytes, method, .. }) => {
                let keep = if method == ZeroMethod::Zero { Flags::NONE } else { Flags::DEALLOCATE };
                io::write_zeroes(self.nsid, lba, blocks(bytes), fua | keep)
            }
            _ => io::flush(self.nsid),
        }
    }
}

/// Takes note of the kernel's answer to a command that was passed through: the controller's status, or an errno. A command transfers all or
/// fails.
#[inline]
pub(super) fn update(command: &RingCommand, result: i32) -> Progress {
    match result {
        0 => Progress::Done(Status::SUCCESS, 0),
        status @ 1.. => Progress::Done(Status(status as u16), 0),
        errno => command.failed(errno),
    }
}

#[cfg(test)]
mod tests;
