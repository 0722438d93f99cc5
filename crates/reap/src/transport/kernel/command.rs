//! One request to the kernel, from when it is posted until its last byte has moved.

use hw::uring::{Entry, FileSlot, Span};
use nvme::Status;
use units::{Nanos, Op};

use super::zeroing::{ZeroMethod, ZeroMethods};
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
pub(super) enum Remaining {
    /// A Read or a Write of so much.
    Data(Span),
    /// This many bytes to be zeroed, or given back; how, and how otherwise.
    Range { bytes: u64, method: ZeroMethod, fallback: Option<ZeroMethod> },
    /// This many bytes to be looked at, or made unreadable, by a command that passes through: the kernel has no request for it.
    Check { bytes: u64 },
    /// What is done is made durable: a Flush, or the end of a Write Zeroes with FUA.
    Sync,
    /// Nothing: a write to a file that was truncated is not sent, as it would make the file grow again.
    Refused,
}

impl Remaining {
    /// The data that is still to be moved.
    #[inline]
    pub(super) fn data(self) -> Option<Span> {
        if let Remaining::Data(span) = self { Some(span) } else { None }
    }
}

/// A request to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingCommand {
    pub token: u64,
    /// What the caller's clock said.
    pub posted_at: Nanos,
    /// Since when it counts, once it was found out while looking for late ones.
    pub since: Option<Nanos>,
    pub op: Op,
    pub fua: bool,
    /// First byte of the file.
    pub offset: u64,
    pub remaining: Remaining,
    /// It is out: the kernel has it, or will.
    pub open: bool,
    /// Cancelling it has been asked for.
    pub cancelled: bool,
}

/// What the kernel's answer means.
pub(super) enum Progress {
    /// The request is over: success, or [`ERRNO`] with the number.
    Done(Status, u32),
    /// It goes on: the entry is to be pushed again.
    Resubmit,
}

impl RingCommand {
    /// None.
    pub(super) const NONE: RingCommand = RingCommand {
        token: 0,
        posted_at: Nanos::ZERO,
        since: None,
        op: Op::Flush,
        fua: false,
        offset: 0,
        remaining: Remaining::Sync,
        open: false,
        cancelled: false,
    };

    /// What a part at byte `offset` comes to, as it is posted.
    #[inline(always)] // Once for each request.
    pub(super) fn new(token: u64, posted_at: Nanos, part: &Part<'_>, offset: u64, remaining: Remaining) -> RingCommand {
        let (op, fua) = (part.op, part.fua);
        RingCommand { token, posted_at, since: None, op, fua, offset, remaining, open: true, cancelled: false }
    }

    /// What asks the kernel for what is left of it.
    #[inline]
    pub(super) fn entry(&self, file: FileSlot) -> Entry {
        match (self.op, self.remaining) {
            (Op::Read, Remaining::Data(span)) => Entry::read(file, self.offset, span),
            (_, Remaining::Data(span)) => Entry::write(file, self.offset, span, self.fua),
            (_, Remaining::Range { bytes, method, .. }) => method.entry(file, self.offset, bytes),
            (_, Remaining::Check { .. } | Remaining::Sync) => Entry::fsync(file, true),
            (_, Remaining::Refused) => Entry::nop(),
        }
    }

    /// Whether it makes writes durable: a Flush, or a write with FUA.
    #[inline]
    pub(super) fn is_durable(&self) -> bool {
        self.fua || self.op == Op::Flush
    }

    /// Takes note of the kernel's answer, and of a method that the target of `methods` lacks.
    #[inline]
    pub(super) fn update(&mut self, result: i32, methods: &ZeroMethods) -> Progress {
        match self.remaining {
            Remaining::Data(span) if result as u32 == span.len() && !self.fua => Progress::Done(Status::SUCCESS, 0),
            _ => self.update_slow(result, methods),
        }
    }

    /// Fewer bytes than asked for, an error, or no data at all.
    #[cold]
    fn update_slow(&mut self, result: i32, methods: &ZeroMethods) -> Progress {
        match (self.remaining, result) {
            (Remaining::Range { bytes, method, fallback }, errno) if errno == -UNSUPPORTED => {
                methods.refuse(method);
                let Some(method) = fallback else { return self.failed(errno) };
                self.remaining = Remaining::Range { bytes, method, fallback: None };
                Progress::Resubmit
            }
            (_, errno) if errno < 0 => self.failed(errno),
            (Remaining::Data(span), moved) if moved.cast_unsigned() == span.len() => Progress::Done(Status::SUCCESS, 0),
            // fallocate(2) has no flag for it: an fdatasync that follows makes the zeroes durable.
            (Remaining::Range { .. }, _) if self.fua && self.op == Op::WriteZeroes => {
                self.remaining = Remaining::Sync;
                Progress::Resubmit
            }
            (Remaining::Data(span), moved) if moved > 0 => match span.after(moved.unsigned_abs()) {
                Some(remaining) => {
                    self.offset += u64::from(moved.unsigned_abs());
                    self.remaining = Remaining::Data(remaining);
                    Progress::Resubmit
                }
                None => Progress::Done(Status::SUCCESS, 0),
            },
            (Remaining::Refused, _) => Progress::Done(TRUNCATED, 0),
            // No command passes through here, and requests are refused before they come.
            (Remaining::Check { .. }, _) => Progress::Done(ERRNO, UNSUPPORTED.unsigned_abs()),
            // The file has become shorter than it was when it was opened.
            (Remaining::Data(_), _) => Progress::Done(ERRNO, EIO.unsigned_abs()),
            (Remaining::Range { .. } | Remaining::Sync, _) => Progress::Done(Status::SUCCESS, 0),
        }
    }

    /// What a negative errno means.
    #[cold]
    pub(super) fn failed(&self, errno: i32) -> Progress {
        match AGAIN.contains(&-errno) && !self.cancelled {
            true => Progress::Resubmit,
            false => Progress::Done(ERRNO, errno.unsigned_abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hw::PoolOptions;

    use super::*;

    /// A Write of 12 KiB from byte 4096 on, and what its buffer is.
    fn write() -> (RingCommand, hw::Lent) {
        let lent = PoolOptions::default().open(1 << 20).unwrap().alloc(12 << 10).unwrap().lend();
        let remaining = Remaining::Data(Span::of(&lent, 0..lent.len()));
        (RingCommand { op: Op::Write, offset: 4096, remaining, open: true, ..RingCommand::NONE }, lent)
    }

    fn methods() -> ZeroMethods {
        crate::transport::kernel::zeroing::tests::file("ext4")
    }

    #[test]
    fn short_transfers_go_on_behind() {
        let (mut command, lent) = write();
        for (moved, left) in [(512, 11_776), (8_192 - 512, 4_096)] {
            assert!(matches!(command.update(moved, &methods()), Progress::Resubmit));
            let remaining = command.remaining.data().unwrap();
            let done = lent.len() as u32 - left;
            assert_eq!((command.offset, remaining.len()), (4096 + u64::from(done), left));
            // Of the buffer as well as of the file.
            let expected = Span::of(&lent, done as usize..lent.len());
            assert_eq!(format!("{remaining:?}"), format!("{expected:?}"));
        }
        assert!(matches!(command.update(4_096, &methods()), Progress::Done(Status::SUCCESS, 0)));
    }

    #[test]
    fn a_transfer_of_nothing_fails() {
        let (mut command, _lent) = write();
        assert!(matches!(command.update(4_096, &methods()), Progress::Resubmit));
        assert!(matches!(command.update(0, &methods()), Progress::Done(ERRNO, 5)));
    }
}
