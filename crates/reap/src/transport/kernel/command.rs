//! One request to the kernel, from when it is posted until its last byte has moved.

use hw::uring::{Entry, FileSlot, Span};
use nvme::Status;
use units::{Nanos, Op};

use super::zeroing::{Way, Ways};
use crate::request::{ERRNO, TRUNCATED};
use crate::transport::Part;

/// EINTR and EAGAIN: the same request again.
const AGAIN: [i32; 2] = [4, 11];

/// EIO, for what ends before its end.
const EIO: i32 = 5;

/// EOPNOTSUPP: the file system or the device does not have it.
const UNSUPPORTED: i32 = 95;

/// What is still to be done of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    /// A Read or a Write of so much.
    Data(Span),
    /// This many bytes to be zeroed, or given back; how, and how otherwise.
    Range { bytes: u64, way: Way, other: Option<Way> },
    /// This many bytes to be looked at, or made unreadable, by a command that passes through: the kernel has no request for it.
    Check { bytes: u64 },
    /// What is done is made durable: a Flush, or the end of a Write Zeroes with FUA.
    Sync,
    /// Nothing: a write to a file that was truncated is not sent, as it would make the file grow again.
    Refused,
}

impl Rest {
    /// The data that is still to be moved.
    #[inline]
    pub(super) fn data(self) -> Option<Span> {
        if let Rest::Data(span) = self { Some(span) } else { None }
    }
}

/// A request to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub token: u64,
    /// What the caller's clock said.
    pub posted_at: Nanos,
    /// Since when it counts, once it was found out while looking for late ones.
    pub since: Option<Nanos>,
    pub op: Op,
    pub fua: bool,
    /// First byte of the file.
    pub offset: u64,
    pub rest: Rest,
    /// It is out: the kernel has it, or will.
    pub open: bool,
    /// Cancelling it has been asked for.
    pub cancelled: bool,
}

/// What the kernel's answer means.
pub(super) enum Answer {
    /// The request is over: success, or [`ERRNO`] with the number.
    Over(Status, u32),
    /// It goes on: the entry is to be pushed again.
    Reconnect,
}

impl Command {
    /// None.
    pub(super) const NONE: Command = Command {
        token: 0,
        posted_at: Nanos::ZERO,
        since: None,
        op: Op::Flush,
        fua: false,
        offset: 0,
        rest: Rest::Sync,
        open: false,
        cancelled: false,
    };

    /// What a part at byte `offset` comes to, as it is posted.
    #[inline(always)] // Once for each request.
    pub(super) fn begun(token: u64, posted_at: Nanos, part: &Part<'_>, offset: u64, rest: Rest) -> Command {
        let (op, fua) = (part.op, part.fua);
        Command { token, posted_at, since: None, op, fua, offset, rest, open: true, cancelled: false }
    }

    /// What asks the kernel for what is left of it.
    #[inline]
    pub(super) fn entry(&self, file: FileSlot) -> Entry {
        match (self.op, self.rest) {
            (Op::Read, Rest::Data(span)) => Entry::read(file, self.offset, span),
            (_, Rest::Data(span)) => Entry::write(file, self.offset, span, self.fua),
            (_, Rest::Range { bytes, way, .. }) => way.entry(file, self.offset, bytes),
            (_, Rest::Check { .. } | Rest::Sync) => Entry::fsync(file, true),
            (_, Rest::Refused) => Entry::nop(),
        }
    }

    /// Whether it makes writes durable: a Flush, or a write with FUA.
    #[inline]
    pub(super) fn is_durable(&self) -> bool {
        self.fua || self.op == Op::Flush
    }

    /// Takes note of the kernel's answer, and of a way that the target of `ways` lacks.
    #[inline]
    pub(super) fn answered(&mut self, result: i32, ways: &Ways) -> Answer {
        match self.rest {
            Rest::Data(span) if result as u32 == span.len() && !self.fua => Answer::Over(Status::SUCCESS, 0),
            _ => self.odd(result, ways),
        }
    }

    /// Fewer bytes than asked for, an error, or no data at all.
    #[cold]
    fn odd(&mut self, result: i32, ways: &Ways) -> Answer {
        match (self.rest, result) {
            (Rest::Range { bytes, way, other }, errno) if errno == -UNSUPPORTED => {
                ways.refuse(way);
                let Some(way) = other else { return self.failed(errno) };
                self.rest = Rest::Range { bytes, way, other: None };
                Answer::Reconnect
            }
            (_, errno) if errno < 0 => self.failed(errno),
            (Rest::Data(span), moved) if moved.cast_unsigned() == span.len() => Answer::Over(Status::SUCCESS, 0),
            // fallocate(2) has no flag for it: an fdatasync that follows makes the zeroes durable.
            (Rest::Range { .. }, _) if self.fua && self.op == Op::WriteZeroes => {
                self.rest = Rest::Sync;
                Answer::Reconnect
            }
            (Rest::Data(span), moved) if moved > 0 => match span.after(moved.unsigned_abs()) {
                Some(rest) => {
                    self.offset += u64::from(moved.unsigned_abs());
                    self.rest = Rest::Data(rest);
                    Answer::Reconnect
                }
                None => Answer::Over(Status::SUCCESS, 0),
            },
            (Rest::Refused, _) => Answer::Over(TRUNCATED, 0),
            // No command passes through here, and requests are refused before they come.
            (Rest::Check { .. }, _) => Answer::Over(ERRNO, UNSUPPORTED.unsigned_abs()),
            // The file has become shorter than it was when it was opened.
            (Rest::Data(_), _) => Answer::Over(ERRNO, EIO.unsigned_abs()),
            (Rest::Range { .. } | Rest::Sync, _) => Answer::Over(Status::SUCCESS, 0),
        }
    }

    /// What a negative errno means.
    #[cold]
    pub(super) fn failed(&self, errno: i32) -> Answer {
        match AGAIN.contains(&-errno) && !self.cancelled {
            true => Answer::Reconnect,
            false => Answer::Over(ERRNO, errno.unsigned_abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hw::PoolOptions;

    use super::*;

    /// A Write of 12 KiB from byte 4096 on, and what its buffer is.
    fn write() -> (Command, hw::Lent) {
        let lent = PoolOptions::default().open(1 << 20).unwrap().alloc(12 << 10).unwrap().lend();
        let rest = Rest::Data(Span::of(&lent, 0..lent.len()));
        (Command { op: Op::Write, offset: 4096, rest, open: true, ..Command::NONE }, lent)
    }

    fn ways() -> Ways {
        crate::transport::kernel::zeroing::tests::file("ext4")
    }

    #[test]
    fn short_transfers_go_on_behind() {
        let (mut command, lent) = write();
        for (moved, left) in [(512, 11_776), (8_192 - 512, 4_096)] {
            assert!(matches!(command.answered(moved, &ways()), Answer::Reconnect));
            let rest = command.rest.data().unwrap();
            let done = lent.len() as u32 - left;
            assert_eq!((command.offset, rest.len()), (4096 + u64::from(done), left));
            // Of the buffer as well as of the file.
            let expected = Span::of(&lent, done as usize..lent.len());
            assert_eq!(format!("{rest:?}"), format!("{expected:?}"));
        }
        assert!(matches!(command.answered(4_096, &ways()), Answer::Over(Status::SUCCESS, 0)));
    }

    #[test]
    fn a_transfer_of_nothing_fails() {
        let (mut command, _lent) = write();
        assert!(matches!(command.answered(4_096, &ways()), Answer::Reconnect));
        assert!(matches!(command.answered(0, &ways()), Answer::Over(ERRNO, 5)));
    }
}
