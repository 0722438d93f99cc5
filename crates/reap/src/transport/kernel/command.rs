//! One request to the kernel, from its post until its last byte has moved. The kernel may do only a
//! part of it, or ask to try again: then the rest is submitted once more.

use hw::uring::{Entry, FileSlot, Span};
use nvme::Status;
use units::{Nanos, Op};

use super::zeroing::{ZeroMethod, ZeroMethods};
use crate::request::{ERRNO, TRUNCATED};
use crate::transport::Part;

/// EINTR and EAGAIN: submit the same request again.
const AGAIN: [i32; 2] = [4, 11];

/// EIO: the result of a transfer that ends early.
const EIO: i32 = 5;

/// EOPNOTSUPP: the file system or the device does not support the operation.
const UNSUPPORTED: i32 = 95;

/// What remains to be done of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Remaining {
    /// Data to be moved.
    Data(Span),
    /// Bytes to be zeroed or deallocated by `method`; by `fallback` if the target does not support
    /// that.
    Range { bytes: u64, method: ZeroMethod, fallback: Option<ZeroMethod> },
    /// Bytes to verify or to make unreadable. Only pass-through commands do that; the kernel has no
    /// such request.
    Check { bytes: u64 },
    /// An fdatasync: a Flush, or the end of a Write Zeroes with FUA.
    Sync,
    /// Nothing. A write to a truncated file is not sent, because it would make the file grow again.
    Refused,
}

impl Remaining {
    /// The data that remains to be moved.
    #[inline]
    pub(super) fn data(self) -> Option<Span> {
        if let Remaining::Data(span) = self { Some(span) } else { None }
    }
}

/// A request to the kernel, in a slot of its ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingCommand {
    pub token: u64,
    /// When it was posted, by the caller's clock.
    pub posted_at: Nanos,
    /// When its time-out began, as far as can be believed; set by the first search for late
    /// commands.
    pub since: Option<Nanos>,
    pub op: Op,
    pub fua: bool,
    /// Byte offset in the file of what remains.
    pub offset: u64,
    pub remaining: Remaining,
    /// The slot is in use.
    pub open: bool,
    /// Its cancellation was submitted.
    pub cancelled: bool,
}

/// What a CQE means for its request.
pub(super) enum Progress {
    /// Complete, with its status; of [`ERRNO`] the number is the errno.
    Done(Status, u32),
    /// Not complete: submit what remains.
    Resubmit,
}

impl RingCommand {
    /// A free slot.
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

    /// The request for a part that begins at byte `offset`.
    #[inline(always)] // Once for each request.
    pub(super) fn new(
        token: u64,
        posted_at: Nanos,
        part: &Part<'_>,
        offset: u64,
        remaining: Remaining,
    ) -> RingCommand {
        let (op, fua) = (part.op, part.fua);
        RingCommand {
            token,
            posted_at,
            since: None,
            op,
            fua,
            offset,
            remaining,
            open: true,
            cancelled: false,
        }
    }

    /// The SQE for what remains.
    #[inline]
    pub(super) fn entry(&self, file: FileSlot) -> Entry {
        match (self.op, self.remaining) {
            (Op::Read, Remaining::Data(span)) => Entry::read(file, self.offset, span),
            (_, Remaining::Data(span)) => Entry::write(file, self.offset, span, self.fua),
            (_, Remaining::Range { bytes, method, .. }) => method.entry(file, self.offset, bytes),
            // `Check` without pass-through is refused before; should one come, a sync does no harm,
            // and `update` fails it.
            (_, Remaining::Check { .. } | Remaining::Sync) => Entry::fsync(file, true),
            // A no-op, so that its failure completes like any other.
            (_, Remaining::Refused) => Entry::nop(),
        }
    }

    /// Whether its completion promises durability: a Flush, or a write with FUA.
    #[inline]
    pub(super) fn is_durable(&self) -> bool {
        self.fua || self.op == Op::Flush
    }

    /// Takes the result of a CQE. A zeroing method that the target does not support is noted in
    /// `methods`.
    #[inline]
    pub(super) fn update(&mut self, result: i32, methods: &ZeroMethods) -> Progress {
        match self.remaining {
            Remaining::Data(span) if result as u32 == span.len() && !self.fua => {
                Progress::Done(Status::SUCCESS, 0)
            }
            _ => self.update_slow(result, methods),
        }
    }

    /// Every result other than a complete transfer: fewer bytes, an error, or an operation without
    /// data.
    #[cold]
    fn update_slow(&mut self, result: i32, methods: &ZeroMethods) -> Progress {
        match (self.remaining, result) {
            (Remaining::Range { bytes, method, fallback }, errno) if errno == -UNSUPPORTED => {
                // For all later requests as well, so that each file pays for this only once.
                methods.refuse(method);
                let Some(method) = fallback else { return self.failed(errno) };
                self.remaining = Remaining::Range { bytes, method, fallback: None };
                Progress::Resubmit
            }
            (_, errno) if errno < 0 => self.failed(errno),
            (Remaining::Data(span), moved) if moved.cast_unsigned() == span.len() => {
                Progress::Done(Status::SUCCESS, 0)
            }
            // fallocate(2) has no flag for FUA: an fdatasync that follows makes the zeroes durable.
            (Remaining::Range { .. }, _) if self.fua && self.op == Op::WriteZeroes => {
                self.remaining = Remaining::Sync;
                Progress::Resubmit
            }
            // A short transfer (a signal, or a limit of the file system): go on behind it.
            (Remaining::Data(span), moved) if moved > 0 => match span.after(moved.unsigned_abs()) {
                Some(remaining) => {
                    self.offset += u64::from(moved.unsigned_abs());
                    self.remaining = Remaining::Data(remaining);
                    Progress::Resubmit
                }
                None => Progress::Done(Status::SUCCESS, 0),
            },
            (Remaining::Refused, _) => Progress::Done(TRUNCATED, 0),
            // Without pass-through there is no such operation; requests are refused before they get
            // here.
            (Remaining::Check { .. }, _) => Progress::Done(ERRNO, UNSUPPORTED.unsigned_abs()),
            // 0 bytes moved: the file is shorter than it was at open.
            (Remaining::Data(_), _) => Progress::Done(ERRNO, EIO.unsigned_abs()),
            (Remaining::Range { .. } | Remaining::Sync, _) => Progress::Done(Status::SUCCESS, 0),
        }
    }

    /// The meaning of a negative result.
    #[cold]
    pub(super) fn failed(&self, errno: i32) -> Progress {
        // A cancelled request ends with EINTR as well, and must not be submitted again.
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
        (
            RingCommand { op: Op::Write, offset: 4096, remaining, open: true, ..RingCommand::NONE },
            lent,
        )
    }

    fn methods() -> ZeroMethods {
        crate::transport::kernel::zeroing::tests::file("ext4")
    }

    #[test]
    fn short_transfers_resubmit_the_rest() {
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
    fn empty_transfers_fail() {
        let (mut command, _lent) = write();
        assert!(matches!(command.update(4_096, &methods()), Progress::Resubmit));
        assert!(matches!(command.update(0, &methods()), Progress::Done(ERRNO, 5)));
    }
}
