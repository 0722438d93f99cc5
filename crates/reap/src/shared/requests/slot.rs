//! The slot of one request: its fields, and how it is split into parts.

use driver::Splitter;
use hw::Lent;
use nvme::io::Range;
use nvme::{Nsid, Status};
use units::{Class, Nanos, Op};

use crate::error::{IoError, Refused};
use crate::instant::Instant;
use crate::request::{self, Completion, Modifiers, Request};
use crate::transport::{IoCommand, Part};

/// Operation not supported (errno(3)).
const EOPNOTSUPP: i32 = 95;

/// In place of a slot's number: the end of a list of slots.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// The receiver of a finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The next [`crate::Queue::reap`].
    Batch,
    /// A future, by its ticket.
    Future(u32),
    /// No receiver: the queue is gone, and the completion is dropped.
    Dropped,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The slot has no request.
    Free,
    /// The slot has a request, of which `left` parts have not ended.
    Open { claim: Claim, left: u32 },
}

/// The errors of [`IoError`] that a submitted request can end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Status(Status),
    System(i32),
    TimedOut,
    DeviceLost,
}

impl From<Failure> for IoError {
    #[inline]
    fn from(failure: Failure) -> IoError {
        match failure {
            Failure::Status(request::FLUSH_LOST) => IoError::FlushLost,
            Failure::Status(request::TRUNCATED) => IoError::Truncated,
            Failure::Status(status) => IoError::Status(status),
            Failure::System(errno) => IoError::System(errno),
            Failure::TimedOut => IoError::TimedOut,
            Failure::DeviceLost => IoError::DeviceLost,
        }
    }
}

/// Rarely needed state of a request, kept out of the slot.
#[derive(Debug, Default)]
pub(super) struct SlotExtra {
    /// The first failure of a part. After it, parts that are not posted yet are not sent.
    pub failure: Option<Failure>,
    /// Number of retries of all parts together, without retries after a reset that the application
    /// requested.
    pub retries: u32,
    /// The device may still access the buffer, which is therefore leaked.
    pub lost: bool,
    /// A command that the caller built, which is sent instead of [`Slot::part`].
    pub command: Option<Box<IoCommand>>,
}

/// The slot of a request. It is filled and read in place: moving one costs more than the rest of an
/// I/O.
#[derive(Debug)]
pub(super) struct Slot {
    pub state: SlotState,
    /// The next slot of the free list; while a batch is entered, the next request of the batch.
    pub next: u32,
    op: Op,
    modifiers: Modifiers,
    pub urgent: bool,
    nsid: Nsid,
    splitter: Splitter,
    /// Blocks of the request; 0 for a Flush.
    pub blocks: u32,
    /// Bytes of the request.
    bytes: u32,
    lba: u64,
    /// Bus address of the buffer.
    addr: u64,
    tag: u64,
    submitted_at: Nanos,
    buf: Option<Lent>,
    extra: Option<Box<SlotExtra>>,
}

impl Slot {
    /// A free slot, linked to `next`.
    pub(super) fn free(next: u32) -> Slot {
        Slot {
            state: SlotState::Free,
            next,
            op: Op::Flush,
            modifiers: Modifiers::default(),
            urgent: false,
            nsid: Nsid(0),
            splitter: Splitter::default(),
            blocks: 0,
            bytes: 0,
            lba: 0,
            addr: 0,
            tag: 0,
            submitted_at: Nanos::ZERO,
            buf: None,
            extra: None,
        }
    }

    /// Stores a checked request, as one part. `Requests::queue_rest` corrects that if it is split.
    #[inline(always)]
    pub(super) fn fill(&mut self, request: Request, claim: Claim, now: Nanos) {
        let Request { op, namespace, lba, bytes, buf, modifiers, urgent, tag } = request;
        let (nsid, splitter) = (namespace.nsid(), namespace.splitter());
        (self.op, self.modifiers, self.urgent) = (op, modifiers, urgent);
        (self.nsid, self.splitter) = (nsid, splitter);
        let buf = buf.map(hw::DmaBuf::lend);
        self.addr = buf.as_ref().map_or(0, Lent::addr);
        // The casts lose nothing. A request has fewer than 2^32 blocks: its buffer is limited by
        // the pool, and a request without data by its check. `bytes` is used only for a request of
        // one part, which has fewer than 2^32 bytes.
        (self.lba, self.blocks, self.bytes) =
            (lba, (bytes >> splitter.block_log2()) as u32, bytes as u32);
        (self.tag, self.submitted_at) = (tag, now);
        // A free slot has no buffer. `forget` keeps the compiler from adding code that drops one.
        std::mem::forget(std::mem::replace(&mut self.buf, buf));
        self.state = SlotState::Open { claim, left: 1 };
    }

    /// The whole request as one part; `None` if it is split or moves no data.
    #[inline(always)]
    pub(super) fn only_part(&self) -> Option<Part<'_>> {
        let Slot { op, modifiers, nsid, lba, blocks, addr, bytes, .. } = *self;
        let (buf, fua, keep) = (&self.buf, modifiers.fua(), modifiers.keep());
        self.splitter.fits_one(lba, blocks).then_some(Part {
            op,
            fua,
            keep,
            nsid,
            lba,
            blocks,
            addr,
            bytes,
            buf,
        })
    }

    /// The extra state, made if there is none.
    #[cold]
    pub(super) fn extra(&mut self) -> &mut SlotExtra {
        self.extra.get_or_insert_default()
    }

    /// The first failure of a part.
    #[inline]
    pub(super) fn failure(&self) -> Option<Failure> {
        self.extra.as_ref().and_then(|extra| extra.failure)
    }

    /// The command, if the request is an I/O command that the caller has built.
    pub(super) fn command(&self) -> Option<&IoCommand> {
        self.extra.as_ref()?.command.as_deref()
    }

    /// Whether parts may be retried. False after another part has failed, and for a command that
    /// the caller has built, because only the caller knows whether it may be executed twice.
    pub(super) fn may_retry(&self) -> bool {
        self.failure().is_none() && self.command().is_none()
    }

    /// Whether the request has extra state: a failure, retries, or a command that the caller built.
    #[inline]
    pub(super) fn has_extra(&self) -> bool {
        self.extra.is_some()
    }

    /// Whether the device writes to its buffer.
    pub(super) fn is_read(&self) -> bool {
        self.op == Op::Read
    }

    /// The completion, with the buffer. The slot is empty afterwards.
    pub(super) fn complete(&mut self, now: Nanos) -> Completion {
        let SlotExtra { failure, lost, .. } =
            self.extra.take().map(|extra| *extra).unwrap_or_default();
        // Dropping a `Lent` leaks its memory, and counts it as leaked.
        let buf = self.buf.take().filter(|_| !lost).map(Lent::take_back);
        let result = failure.map_or(Ok(()), |failure| Err(self.io_error(failure)));
        Completion {
            tag: self.tag,
            result,
            buf,
            submitted_at: Instant::of(self.submitted_at),
            completed_at: Instant::of(now),
        }
    }

    /// The error that the caller gets for a failure.
    #[cold]
    fn io_error(&self, failure: Failure) -> IoError {
        let optional = !matches!(self.op, Op::Read | Op::Write | Op::Flush);
        match failure {
            // A file system may reject an optional operation only when it is tried.
            Failure::System(EOPNOTSUPP) if optional => {
                Refused::Unsupported { op: self.op, nsid: self.nsid.0 }.into()
            }
            _ => failure.into(),
        }
    }

    /// [`Slot::complete`] for a request without extra state. The function is small enough for its
    /// result to be built in its destination.
    #[inline(always)]
    pub(super) fn complete_ok(&mut self, now: Nanos) -> Completion {
        let buf = self.buf.take().map(Lent::take_back);
        Completion {
            tag: self.tag,
            result: Ok(()),
            buf,
            submitted_at: Instant::of(self.submitted_at),
            completed_at: Instant::of(now),
        }
    }

    /// The average number of retries of a part. An average, because one reset returns all parts of
    /// a large request at once, and each counts as a retry.
    #[cold]
    pub(super) fn retries(&self) -> u8 {
        let retries = self.extra.as_ref().map_or(0, |extra| extra.retries);
        (retries / self.parts(0, self.blocks)).try_into().unwrap_or(u8::MAX)
    }

    /// The request's operation and size, for policies.
    #[inline]
    pub(super) fn class(&self) -> Class {
        Class::new(self.op, self.blocks.saturating_mul(self.splitter.block_size() as u32))
    }

    /// The number of parts of the `blocks` blocks from block `from` of the request on; 1 for a
    /// Flush.
    pub(super) fn parts(&self, from: u32, blocks: u32) -> u32 {
        // A Deallocate whose ranges the caller has listed is one command. `blocks` is then the
        // number of ranges.
        if self.modifiers.listed() {
            return 1;
        }
        if let Some(max) = self.max_range_blocks() {
            return blocks.div_ceil(max).max(1);
        }
        self.splitter.split(self.lba + u64::from(from), blocks).parts().max(1)
    }

    /// For a Deallocate: maximum number of blocks of a part, which is one range of the list.
    fn max_range_blocks(&self) -> Option<u32> {
        if self.op == Op::Deallocate { self.splitter.max_optional_blocks(self.op) } else { None }
    }

    /// The part that begins at block `from` of the request, with `left` blocks to the end of the
    /// range.
    pub(super) fn part(&self, from: u32, left: u32) -> Part<'_> {
        let (first, log2) = (self.lba + u64::from(from), self.splitter.block_log2());
        let Slot { op, modifiers, nsid, .. } = *self;
        let (buf, fua, keep) = (&self.buf, modifiers.fua(), modifiers.keep());
        if modifiers.listed() {
            // Here `left` and `blocks` are numbers of ranges, as `blocks` of the request is.
            return Part {
                op,
                fua,
                keep,
                nsid,
                lba: first,
                blocks: left,
                addr: self.addr,
                bytes: left * Range::LEN as u32,
                buf,
            };
        }
        if let Some(max) = self.max_range_blocks() {
            let addr = self.addr + u64::from(from / max) * Range::LEN as u64;
            return Part {
                op,
                fua,
                keep,
                nsid,
                lba: first,
                blocks: left.min(max),
                addr,
                bytes: Range::LEN as u32,
                buf,
            };
        }
        let blocks = self.splitter.split(first, left).next().map_or(0, |part| part.blocks);
        let addr = self.addr + (u64::from(from) << log2);
        Part { op, fua, keep, nsid, lba: first, blocks, addr, bytes: blocks << log2, buf }
    }
}
