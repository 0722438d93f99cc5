//! Requests and completions: what a caller submits and gets back, statuses that only the host
//! makes, and the tokens that name a request's parts while they are in flight.

use std::ops::Range;

use hw::{DmaBuf, DmaPool};
use nvme::{Nsid, Sqe, Status};
use units::Op;

use crate::error::{IoError, Refused};
use crate::instant::Instant;
use crate::namespace::Namespace;

mod ranges;

/// An I/O request with its buffer.
#[derive(Debug)]
pub struct Request {
    pub(crate) op: Op,
    pub(crate) namespace: Namespace,
    pub(crate) lba: u64,
    pub(crate) bytes: u64,
    pub(crate) buf: Option<DmaBuf>,
    pub(crate) modifiers: Modifiers,
    pub(crate) urgent: bool,
    pub(crate) tag: u64,
}

/// Flags of a request, packed into one byte because every request carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modifiers(u8);

impl Modifiers {
    const FUA: u8 = 1 << 0;
    const KEEP: u8 = 1 << 1;
    const LISTED: u8 = 1 << 2;

    /// Force Unit Access: the data is durable when the request completes.
    #[inline]
    pub(crate) fn fua(self) -> bool {
        self.0 & Modifiers::FUA != 0
    }

    /// Write Zeroes: the blocks are to stay allocated.
    #[inline]
    pub(crate) fn keep(self) -> bool {
        self.0 & Modifiers::KEEP != 0
    }

    /// Deallocate: the buffer holds a list of ranges that the caller has made, and that is sent as
    /// one command. `bytes` is then the number of ranges times the block size.
    #[inline]
    pub(crate) fn listed(self) -> bool {
        self.0 & Modifiers::LISTED != 0
    }
}

impl Request {
    /// Reads `buf.len()` bytes from block `lba` on (NVM §3.3.4).
    #[inline]
    pub fn read(namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(Op::Read, namespace, lba, Some(buf))
    }

    /// Writes `buf` to the blocks from `lba` on (NVM §3.3.6).
    #[inline]
    pub fn write(namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(Op::Write, namespace, lba, Some(buf))
    }

    /// Makes every completed write to the namespace durable (Base §7.2).
    pub fn flush(namespace: &Namespace) -> Request {
        Request::new(Op::Flush, namespace, 0, None)
    }

    /// Zeroes `blocks` blocks from `lba` on without transferring data (NVM §3.3.8), split as the
    /// controller requires. The controller may deallocate them ([`Request::keep_allocated`]).
    pub fn write_zeroes(namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        Request::dataless(Op::WriteZeroes, namespace, lba, blocks)
    }

    /// Hints that the contents of `blocks` blocks from `lba` on are no longer needed (TRIM; Dataset
    /// Management with the Deallocate attribute, NVM §3.3.3), split as the controller requires.
    ///
    /// Until they are written again, deallocated blocks of embedded controllers and of files read
    /// as zeroes; those of other devices may read as before, as zeroes or as ones.
    /// [`Request::write_zeroes`] guarantees zeroes. The list of ranges takes 16 bytes for each
    /// part. It is written to the buffer that the request carries, if the list fits, or to a buffer
    /// from the pool; the [`Completion`] returns that buffer.
    pub fn deallocate(namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        Request::dataless(Op::Deallocate, namespace, lba, blocks)
    }

    /// Deallocates several ranges in one command (NVM §3.3.3). `buf` holds the list of ranges and
    /// comes back with the [`Completion`]. [`Request::bytes`] must not be used on such a request.
    ///
    /// There may be at most [`Namespace::max_ranges`] ranges, which together have at most as many
    /// blocks as one Deallocate may have ([`Namespace::supports_deallocate`]). With a single range
    /// this is [`Request::deallocate`], which is split if necessary.
    pub fn deallocate_ranges(
        namespace: &Namespace,
        ranges: &[Range<u64>],
        mut buf: DmaBuf,
    ) -> Request {
        if let [only] = ranges {
            return Request::deallocate(namespace, only.start, only.end.saturating_sub(only.start))
                .carrying(buf);
        }
        ranges::list(ranges, &mut buf);
        let first = ranges.first().map_or(0, |range| range.start);
        let mut request =
            Request::dataless(Op::Deallocate, namespace, first, ranges.len() as u64).carrying(buf);
        request.modifiers.0 |= Modifiers::LISTED;
        request
    }

    /// Compares `buf` with the blocks from `lba` on (NVM §3.3.1), split as the controller requires.
    /// If any block differs, the error is a [miscompare](IoError::is_miscompare). Parts are
    /// compared one by one, so a concurrent write may be visible to some of them only.
    pub fn compare(namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(Op::Compare, namespace, lba, Some(buf))
    }

    /// Checks that `blocks` blocks from `lba` on can be read, without transferring data (NVM
    /// §3.3.5), split as the controller requires.
    pub fn verify(namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        Request::dataless(Op::Verify, namespace, lba, blocks)
    }

    /// Makes `blocks` blocks from `lba` on unreadable until they are written again (NVM §3.3.7),
    /// split as the controller requires. This tests how an application handles media errors: a
    /// Read, Compare or Verify of any of these blocks fails with Unrecovered Read Error.
    pub fn write_uncorrectable(namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        Request::dataless(Op::WriteUncorrectable, namespace, lba, blocks)
    }

    fn dataless(op: Op, namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        // Saturates instead of wrapping, so that the range check refuses a number that is too
        // large.
        let bytes = blocks.saturating_mul(namespace.block_bytes().into());
        Request { bytes, ..Request::new(op, namespace, lba, None) }
    }

    /// The request for a command that the caller built, with no blocks and one part. `any`: any
    /// namespace of the device.
    pub(crate) fn command(command: &Sqe, any: Option<&Namespace>, buf: Option<DmaBuf>) -> Request {
        let (blocks, device) = any.map_or((0, u32::MAX), |any| (any.blocks(), any.device()));
        let splitter = any.map(Namespace::splitter).unwrap_or_default();
        // With the command's own NSID, which may be FFFFFFFFh or that of a namespace that the
        // library does not use.
        let namespace = Namespace::new(Nsid(command.nsid), splitter, blocks, device);
        Request { buf, ..Request::flush(&namespace) }
    }

    /// A request of any operation, with `buf`, for load generators. Set the length by
    /// [`Request::bytes`] afterwards.
    #[inline]
    pub fn of(op: Op, namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(op, namespace, lba, Some(buf))
    }

    #[inline]
    fn new(op: Op, namespace: &Namespace, lba: u64, buf: Option<DmaBuf>) -> Request {
        let bytes = buf.as_ref().map_or(0, |b| b.len() as u64);
        Request {
            op,
            namespace: *namespace,
            lba,
            bytes,
            buf,
            modifiers: Modifiers::default(),
            urgent: false,
            tag: 0,
        }
    }

    /// Attaches a buffer to a request that transfers no data, for callers that keep one buffer per
    /// slot. A Deallocate writes its list of ranges to the buffer; other operations do not use it.
    #[inline]
    pub fn carrying(mut self, buf: DmaBuf) -> Request {
        self.buf = Some(buf);
        self
    }

    /// Transfers only the first `bytes` bytes of the buffer, a multiple of the block size. For a
    /// Flush, which has no length, any value but 0 is refused.
    #[inline]
    pub fn bytes(mut self, bytes: u32) -> Request {
        self.bytes = bytes.into();
        self
    }

    /// Force Unit Access (CDW12.FUA): a Write or a Write Zeroes is durable when it completes (NVM
    /// §3.3.6), and a Read returns data that is durable by then (NVM §3.3.4). For a Read of a
    /// `kernel:` file or block device it has no effect, because the kernel has no such read.
    pub fn fua(mut self) -> Request {
        self.modifiers.0 |= Modifiers::FUA;
        if self.op == Op::Read {
            // Such Reads are sent one by one through the slow path, so that the loop that posts
            // ordinary Reads need not check for this flag.
            self.namespace = self.namespace.without_fast_path();
        }
        self
    }

    /// Write Zeroes: does not request deallocation (NVM §3.3.8, CDW12.DEAC), so that later writes
    /// need not fail for lack of space. The controller may deallocate all the same.
    pub fn keep_allocated(mut self) -> Request {
        self.modifiers.0 |= Modifiers::KEEP;
        self
    }

    /// Marks the request as urgent: the caller waits for it alone, so policies must not delay its
    /// completion for the sake of others.
    pub fn urgent(mut self) -> Request {
        self.urgent = true;
        self
    }

    /// A number that the [`Completion`] returns, for the caller's own bookkeeping.
    #[inline]
    pub fn tag(mut self, tag: u64) -> Request {
        self.tag = tag;
        self
    }

    /// The number that [`Request::tag`] set.
    pub fn number(&self) -> u64 {
        self.tag
    }

    /// The buffer of a request that was not accepted.
    pub fn into_buffer(self) -> Option<DmaBuf> {
        self.buf
    }

    /// Checks the request. Makes the list of ranges of a Deallocate, in memory of the device's
    /// `pool` if necessary.
    #[inline(always)]
    pub(crate) fn check(self, pool: &DmaPool) -> (Result<(), Refused>, Request) {
        if self.op.transfers_blocks() {
            return (self.check_data(), self);
        }
        // The fields are passed, because a reference to the request would force every request into
        // memory.
        let Request { op, namespace, lba, bytes, buf, modifiers, urgent, tag } = self;
        // Each operation without data transfer has limits of its own for splitting.
        let namespace = namespace.of(op);
        let (checked, buf) =
            ranges::Dataless { op, namespace, lba, bytes, listed: modifiers.listed() }
                .check(buf, pool);
        (checked, Request { op, namespace, lba, bytes, buf, modifiers, urgent, tag })
    }

    #[inline(always)]
    fn check_data(&self) -> Result<(), Refused> {
        // Shifts instead of divisions: this runs for every Read and Write.
        let log2 = self.namespace.splitter().block_log2();
        let buffer = self.buf.as_ref().map_or(0, |b| b.len());
        let count = self.bytes >> log2;
        if count << log2 != self.bytes || count == 0 || self.bytes > buffer as u64 {
            return Err(wrong_length(self.bytes, log2, buffer));
        }
        let blocks = self.namespace.blocks();
        // Written so that `lba + count` cannot overflow.
        if count > blocks || self.lba > blocks - count {
            return Err(Refused::OutOfRange {
                lba: self.lba,
                end: self.lba.saturating_add(count),
                blocks,
            });
        }
        Ok(())
    }
}

/// Takes values instead of the request, so that the request can stay in registers.
#[cold]
fn wrong_length(bytes: u64, block_log2: u8, buffer: usize) -> Refused {
    Refused::Length { bytes: bytes.try_into().unwrap_or(u32::MAX), block: 1 << block_log2, buffer }
}

/// A completed request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The request's [`Request::tag`].
    pub tag: u64,
    /// Its result.
    pub result: Result<(), IoError>,
    /// The request's buffer, or, for a Deallocate without one, the buffer of its list. `None`: the
    /// request had no buffer, or the buffer was leaked ([`IoError::DeviceLost`]).
    pub buf: Option<DmaBuf>,
    /// When the batch with the request was submitted.
    pub submitted_at: Instant,
    /// When the poll that reaped the completion began.
    pub completed_at: Instant,
}

impl Completion {
    /// The completion of a request that was refused.
    pub(crate) fn refused(why: Refused, request: Request) -> Completion {
        // No clock read: nothing was submitted.
        let never = Instant::from_nanos(0);
        Completion {
            tag: request.tag,
            result: Err(why.into()),
            buf: request.buf,
            submitted_at: never,
            completed_at: never,
        }
    }
}

/// A status that only the host makes. It has bit 15 set, which a CQE's status field (Base §4.2.3)
/// does not have, so no controller can report it.
const fn host_status(code: u8) -> Status {
    Status(1 << 15 | Status::new(5, code).with_dnr().0)
}

/// The system returned an errno, which is in the completion's `result`.
pub(crate) const ERRNO: Status = host_status(0);

/// An earlier Flush of the file, or a write with FUA, failed.
pub(crate) const FLUSH_LOST: Status = host_status(1);

/// The file was truncated while it was open.
pub(crate) const TRUNCATED: Status = host_status(2);

/// A reset has taken the command back. The controller has stopped, so the command may be posted
/// again.
pub(crate) const REQUEUED: Status = host_status(3);

/// As [`REQUEUED`], but by a reset that the application requested, which no request can have
/// caused.
pub(crate) const REQUEUED_AS_ASKED: Status = host_status(4);

/// The controller has stopped and does not come up again.
pub(crate) const STOPPED: Status = host_status(5);

/// The controller is lost and may still write to the buffer.
pub(crate) const LOST: Status = host_status(6);

/// The path to the controller is lost; there may be other paths. The controller may still write to
/// the buffer of a Read, and may still execute a Write, which must not be retried before that is
/// ruled out.
pub(crate) const PATH_LOST: Status = host_status(7);

/// Identifies a part of a request. [`Token::is_whole`] marks a request of one part.
///
/// ```text
///   63      56 55            32 31                 0
///   │ software │ slot in the   │ first block of the │
///   │ queue    │ request table │ part (all ones:    │
///   │          │               │ the whole request) │
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub u64);

impl Token {
    #[inline]
    pub(crate) fn new(soft: u8, slot: u32, from: u32) -> Token {
        Token(u64::from(soft) << 56 | u64::from(slot) << 32 | u64::from(from))
    }

    /// In place of a first block: the part is a whole request of a batch, without a future.
    pub(crate) const WHOLE: u64 = 0xffff_ffff;

    /// Mask of all bits but those of the slot.
    pub(crate) const ALL_BUT_SLOT: u64 = 0xff00_0000_ffff_ffff;

    /// Whether the part is a whole request of a batch, without a future. If such a command
    /// succeeds, its completion goes straight to the caller.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        self.0 as u32 == u32::MAX
    }

    #[inline]
    pub(crate) fn soft(self) -> u8 {
        (self.0 >> 56) as u8
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff_ffff
    }

    #[inline]
    pub(crate) fn from(self) -> u32 {
        if self.is_whole() { 0 } else { self.0 as u32 }
    }
}

#[cfg(test)]
mod tests;
