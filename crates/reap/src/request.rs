//! Requests: what a caller asks for and gets back, and what its parts are called on their way.

use std::ops::Range;

use hw::{DmaBuf, DmaPool};
use nvme::{Nsid, Sqe, Status};
use units::Op;

use crate::error::{IoError, Refused};
use crate::instant::Instant;
use crate::namespace::Namespace;

mod ranges;

/// Something to do, with its buffer.
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

/// How a request is to be carried out: one byte, because every request carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modifiers(u8);

impl Modifiers {
    const FUA: u8 = 1 << 0;
    const KEEP: u8 = 1 << 1;
    const LISTED: u8 = 1 << 2;

    /// Durable when it completes.
    #[inline]
    pub(crate) fn fua(self) -> bool {
        self.0 & Modifiers::FUA != 0
    }

    /// Zeroed blocks keep the room that they have.
    #[inline]
    pub(crate) fn keep(self) -> bool {
        self.0 & Modifiers::KEEP != 0
    }

    /// Of a Deallocate: the caller has listed its ranges, as many as it has blocks. It is one command.
    #[inline]
    pub(crate) fn listed(self) -> bool {
        self.0 & Modifiers::LISTED != 0
    }
}

impl Request {
    /// Reads blocks from `lba` on, as many as fill `buf` (NVM 3.2.4).
    #[inline]
    pub fn read(namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(Op::Read, namespace, lba, Some(buf))
    }

    /// Writes `buf` to the blocks from `lba` on (NVM 3.2.6).
    #[inline]
    pub fn write(namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(Op::Write, namespace, lba, Some(buf))
    }

    /// Makes every write that has completed durable (NVM 3.2.2, Base 7.2).
    pub fn flush(namespace: &Namespace) -> Request {
        Request::new(Op::Flush, &namespace.of(Op::Flush), 0, None)
    }

    /// Makes `blocks` blocks from `lba` on read as zeroes, without moving any (NVM 3.3.8), in parts that the controller takes. It may
    /// deallocate them ([`Request::keep_allocated`]).
    pub fn write_zeroes(namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        Request::dataless(Op::WriteZeroes, namespace, lba, blocks)
    }

    /// Tells that nobody needs what `blocks` blocks from `lba` on hold (NVM 3.3.3, CDW11.AD), in parts that the controller takes.
    ///
    /// Until they are written again, blocks of the embedded controller and of files read as zeroes; blocks of other devices read as
    /// they did, as zeroes or as ones. Zeroes are had for sure from [`Request::write_zeroes`]. The list that a controller reads takes
    /// 16 bytes for each part: of the buffer that the request carries, if it has room, or of the pool; the [`Completion`] has it.
    pub fn deallocate(namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        Request::dataless(Op::Deallocate, namespace, lba, blocks)
    }

    /// The same of several ranges of blocks in one command, as a Dataset Management has them (NVM 3.3.3). `buf` takes their list, and
    /// comes back with the [`Completion`]. Its length stays as it is: [`Request::bytes`] is not for such a request.
    ///
    /// There are at most [`Namespace::most_ranges`], and together they have at most as many blocks as one Deallocate
    /// ([`Namespace::supports_deallocate`]). One range alone is a [`Request::deallocate`], which is split where it has to be.
    pub fn deallocate_ranges(namespace: &Namespace, ranges: &[Range<u64>], mut buf: DmaBuf) -> Request {
        if let [only] = ranges {
            return Request::deallocate(namespace, only.start, only.end.saturating_sub(only.start)).carrying(buf);
        }
        ranges::list(ranges, &mut buf);
        let first = ranges.first().map_or(0, |range| range.start);
        let mut request = Request::dataless(Op::Deallocate, namespace, first, ranges.len() as u64).carrying(buf);
        request.modifiers.0 |= Modifiers::LISTED;
        request
    }

    /// Has the device compare `buf` with the blocks from `lba` on, as many as fill it, in parts that the controller takes (NVM 3.3.1).
    /// Nothing comes back but the result: [`IoError::is_miscompare`] if any block differs. Parts are compared one by one, so that blocks
    /// which are written meanwhile may be seen as they were and as they are.
    pub fn compare(namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::of(Op::Compare, namespace, lba, buf)
    }

    /// Has the device make sure that `blocks` blocks from `lba` on can be read, without moving any (NVM 3.3.5), in parts that the
    /// controller takes.
    pub fn verify(namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        Request::dataless(Op::Verify, namespace, lba, blocks)
    }

    /// Makes `blocks` blocks from `lba` on unreadable until they are written again (NVM 3.3.7), in parts that the controller takes: to
    /// try what an application does about blocks that a medium has lost. A Read, a Compare or a Verify of any of them fails with
    /// Unrecovered Read Error.
    pub fn write_uncorrectable(namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        Request::dataless(Op::WriteUncorrectable, namespace, lba, blocks)
    }

    fn dataless(op: Op, namespace: &Namespace, lba: u64, blocks: u64) -> Request {
        let bytes = blocks.saturating_mul(namespace.block_bytes().into());
        Request { bytes, ..Request::new(op, &namespace.of(op), lba, None) }
    }

    /// What an I/O command of the caller's is to the table: it has no blocks and is one part. `any`: some namespace of the device.
    pub(crate) fn command(command: &Sqe, any: Option<&Namespace>, buf: Option<DmaBuf>) -> Request {
        let (blocks, device) = any.map_or((0, u32::MAX), |any| (any.blocks(), any.device()));
        let splitter = any.map(Namespace::splitter).unwrap_or_default();
        let namespace = Namespace::new(Nsid(command.nsid), splitter, blocks, device);
        Request { buf, ..Request::flush(&namespace) }
    }

    /// A request of any kind, as generators of load draw them: what the constructors above make, with `buf` taken along and
    /// [`Request::bytes`] to follow.
    #[inline]
    pub fn of(op: Op, namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(op, &namespace.of(op), lba, Some(buf))
    }

    #[inline]
    fn new(op: Op, namespace: &Namespace, lba: u64, buf: Option<DmaBuf>) -> Request {
        let bytes = buf.as_ref().map_or(0, |b| b.len() as u64);
        Request { op, namespace: *namespace, lba, bytes, buf, modifiers: Modifiers::default(), urgent: false, tag: 0 }
    }

    /// Of what moves no data: takes a buffer along, for callers who keep one with each of their places. A Deallocate puts its list
    /// into it; the others do not use it.
    #[inline]
    pub fn carrying(mut self, buf: DmaBuf) -> Request {
        self.buf = Some(buf);
        self
    }

    /// Only the first `bytes` bytes of the buffer: whole blocks. A Flush has no length: one with any but 0 is refused.
    #[inline]
    pub fn bytes(mut self, bytes: u32) -> Request {
        self.bytes = bytes.into();
        self
    }

    /// Force Unit Access (CDW12.FUA): a Write or a Write Zeroes is durable when it completes (NVM 3.2.6), and a Read brings what is
    /// durable by then (NVM 3.2.4). A file and a block device of the kernel have no such reads: there it changes nothing of a Read.
    pub fn fua(mut self) -> Request {
        self.modifiers.0 |= Modifiers::FUA;
        if self.op == Op::Read {
            // The loop that posts most requests knows no such read: what it does not look at costs it nothing.
            self.namespace = self.namespace.one_by_one();
        }
        self
    }

    /// Of a Write Zeroes: the controller is not asked to deallocate (NVM 3.3.8, CDW12.DEAC), so that later writes need not fail for
    /// want of room. It may do so all the same.
    pub fn keep_allocated(mut self) -> Request {
        self.modifiers.0 |= Modifiers::KEEP;
        self
    }

    /// Somebody waits for it: no policy holds it back to gather it with others.
    pub fn urgent(mut self) -> Request {
        self.urgent = true;
        self
    }

    /// A number that the [`Completion`] carries, for the caller's own table-keeping.
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

    /// Whether the request can be carried out at all; a Deallocate is given its list, of memory of the device's `pool`.
    #[inline(always)]
    pub(crate) fn check(self, pool: &DmaPool) -> (Result<(), Refused>, Request) {
        if self.op.moves_data() {
            return (self.check_data(), self);
        }
        // Taken apart, so that any other request may stay in registers.
        let Request { op, namespace, lba, bytes, buf, modifiers, urgent, tag } = self;
        let (checked, buf) = ranges::Dataless { op, namespace, lba, bytes, listed: modifiers.listed() }.check(buf, pool);
        (checked, Request { op, namespace, lba, bytes, buf, modifiers, urgent, tag })
    }

    #[inline(always)]
    fn check_data(&self) -> Result<(), Refused> {
        let log2 = self.namespace.splitter().block_log2();
        let buffer = self.buf.as_ref().map_or(0, |b| b.len());
        let count = self.bytes >> log2;
        if count << log2 != self.bytes || count == 0 || self.bytes > buffer as u64 {
            return Err(wrong_length(self.bytes, log2, buffer));
        }
        let blocks = self.namespace.blocks();
        if count > blocks || self.lba > blocks - count {
            return Err(Refused::OutOfRange { lba: self.lba, end: self.lba.saturating_add(count), blocks });
        }
        Ok(())
    }
}

/// By value, so that the request may stay in registers.
#[cold]
fn wrong_length(bytes: u64, block_log2: u8, buffer: usize) -> Refused {
    Refused::Length { bytes: bytes.try_into().unwrap_or(u32::MAX), block: 1 << block_log2, buffer }
}

/// A request that is finished.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The request's [`Request::tag`].
    pub tag: u64,
    /// How it ended.
    pub result: Result<(), IoError>,
    /// The request's buffer, or of a Deallocate that carried none the memory of its list; `None` for a Flush, a Write Zeroes, a Verify
    /// or a Write Uncorrectable that carried none, and when [`IoError::DeviceLost`] leaked it.
    pub buf: Option<DmaBuf>,
    /// The clock read of the batch it was submitted in.
    pub submitted_at: Instant,
    /// The clock read of the look that found it.
    pub completed_at: Instant,
}

impl Completion {
    /// A request that was never submitted.
    pub(crate) fn refused(why: Refused, request: Request) -> Completion {
        let never = Instant::from_nanos(0);
        Completion { tag: request.tag, result: Err(why.into()), buf: request.buf, submitted_at: never, completed_at: never }
    }
}

/// A status of the host's own, in place of a controller's: one bit more than a completion queue entry has (Base 4.2.3), so that no controller
/// can answer with it.
const fn host_status(code: u8) -> Status {
    Status(1 << 15 | Status::new(5, code).with_dnr().0)
}

/// The system has answered with an errno, which is the result.
pub(crate) const ERRNO: Status = host_status(0);

/// An earlier Flush of the file, or a write with FUA, has failed.
pub(crate) const FLUSH_LOST: Status = host_status(1);

/// The file holds less than when it was opened.
pub(crate) const TRUNCATED: Status = host_status(2);

/// A reset took the command back. The controller has stopped, so that it can be posted again.
pub(crate) const REQUEUED: Status = host_status(3);

/// The same of a reset that the application asked for: no request is suspected of having caused it.
pub(crate) const REQUEUED_AS_ASKED: Status = host_status(4);

/// The controller has stopped, and does not come up again.
pub(crate) const STOPPED: Status = host_status(5);

/// The controller is lost. It may still write to the buffer.
pub(crate) const LOST: Status = host_status(6);

/// The path to the controller is lost, and there may be others. The controller may still write to the buffer of a Read; what it may carry out
/// of a Write is for those to consider who sent it.
pub(crate) const PATH_LOST: Status = host_status(7);

/// Names a part of a request: software queue (bits 63:56), place in its table (55:32), first block of the part within
/// the request (31:0; all ones: see [`Token::is_whole`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub u64);

impl Token {
    #[inline]
    pub(crate) fn new(soft: u8, slot: u32, from: u32) -> Token {
        Token(u64::from(soft) << 56 | u64::from(slot) << 32 | u64::from(from))
    }

    /// In place of the first block of a part.
    pub(crate) const WHOLE: u64 = 0xffff_ffff;

    /// Everything but the place in the table.
    pub(crate) const PART_OF_QUEUE: u64 = 0xff00_0000_ffff_ffff;

    /// This part is all of a request that a batch claims and that nobody waits for in particular: once it has ended
    /// well there is nothing to do about it but to hand it to its caller.
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
