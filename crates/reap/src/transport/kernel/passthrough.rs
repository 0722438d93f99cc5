//! NVMe commands that pass through the kernel (IORING_OP_URING_CMD): builds the SQE of a request
//! and reads its status.
//!
//! `nvme::io` builds the commands, as for the ring transports. The kernel fills in identifiers and
//! data pointers.

use hw::uring::{self, FileSlot};
use nvme::io::Flags;
use nvme::prp::Dptr;
use nvme::{Lba, Sqe, Status, io};
use units::Op;

use super::command::{Progress, Remaining, RingCommand};
use super::namespace::Passthrough;
use super::zeroing::ZeroMethod;

impl Passthrough {
    /// The pass-through entry of `command`. `None`: a write to a read-only device, which goes as an
    /// ordinary request, so that the kernel refuses it like any write to such a descriptor.
    #[inline]
    pub(super) fn entry(
        &self,
        command: &RingCommand,
        file: FileSlot,
    ) -> Option<uring::PassthroughCommand> {
        if self.read_only && !matches!(command.op, Op::Read | Op::Compare | Op::Verify) {
            return self.reads_nothing(command, file);
        }
        Some(uring::PassthroughCommand::new(file, &self.sqe(command), command.remaining.data()))
    }

    /// On a read-only device only a Flush passes, because it changes nothing.
    #[cold]
    fn reads_nothing(
        &self,
        command: &RingCommand,
        file: FileSlot,
    ) -> Option<uring::PassthroughCommand> {
        let flush = io::flush(self.nsid);
        (command.op == Op::Flush).then(|| uring::PassthroughCommand::new(file, &flush, None))
    }

    #[inline]
    fn sqe(&self, command: &RingCommand) -> Sqe {
        let (lba, fua) = (
            Lba(command.offset >> self.block_log2),
            if command.fua { Flags::FUA } else { Flags::NONE },
        );
        let blocks = |bytes: u64| (bytes >> self.block_log2) as u32;
        match (command.op, command.remaining) {
            (Op::Read, Remaining::Data(span)) => {
                io::read(self.nsid, lba, blocks(span.len().into()), Dptr::NONE, fua)
            }
            (Op::Write, Remaining::Data(span)) => {
                io::write(self.nsid, lba, blocks(span.len().into()), Dptr::NONE, fua)
            }
            // The data of a Deallocate is its list of ranges.
            (Op::Deallocate, Remaining::Data(span)) => {
                io::deallocate(self.nsid, span.len() / io::Range::LEN as u32, Dptr::NONE)
            }
            (Op::Compare, Remaining::Data(span)) => {
                io::compare(self.nsid, lba, blocks(span.len().into()), Dptr::NONE)
            }
            (Op::Verify, Remaining::Check { bytes }) => io::verify(self.nsid, lba, blocks(bytes)),
            (Op::WriteUncorrectable, Remaining::Check { bytes }) => {
                io::write_uncorrectable(self.nsid, lba, blocks(bytes))
            }
            (_, Remaining::Range { bytes, method, .. }) => {
                let deac = if method == ZeroMethod::Zero { Flags::NONE } else { Flags::DEALLOCATE };
                io::write_zeroes(self.nsid, lba, blocks(bytes), fua | deac)
            }
            _ => io::flush(self.nsid),
        }
    }
}

/// The meaning of the result of a pass-through command: 0, an NVMe status (positive), or a negative
/// errno. A command transfers everything or fails, so nothing remains.
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
