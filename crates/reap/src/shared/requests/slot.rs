//! One open request, and its parts.

use driver::Splitter;
use hw::Lent;
use nvme::io::Range;
use nvme::{Nsid, Status};
use units::{Class, Nanos, Op};

use crate::error::{IoError, Refused};
use crate::instant::Instant;
use crate::request::{self, Completion, Modifiers, Request};
use crate::transport::{IoCommand, Part};

/// errno(3).
const EOPNOTSUPP: i32 = 95;

/// The end of a list of slots.
pub(super) const NONE: u32 = u32::MAX;

/// Who is told when a request is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The next [`crate::Queue::reap`].
    Batch,
    /// A future, by its ticket.
    Future(u32),
    /// Nobody: the future was dropped.
    Nobody,
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No request.
    Free,
    /// This many parts have not ended.
    Open { claim: Claim, left: u32 },
}

/// [`IoError`] without what only a request that was never submitted can have.
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

/// What only few requests have: what has gone wrong so far, and a command of the caller's.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// The first part that failed: what is not posted yet is not sent.
    pub failure: Option<Failure>,
    /// How often parts were posted again, all of them together; after resets that the application asked for they do not count.
    pub again: u32,
    /// The buffer may still be written to: it is leaked.
    pub lost: bool,
    /// It is sent as it is, in place of what [`Slot::part`] says.
    pub command: Option<Box<IoCommand>>,
}

/// A request. Slots are filled and emptied in place, because moving one costs more than the rest of an I/O.
#[derive(Debug)]
pub(super) struct Slot {
    pub state: State,
    /// Of a free slot: the next free one.
    pub next: u32,
    op: Op,
    modifiers: Modifiers,
    pub urgent: bool,
    nsid: Nsid,
    splitter: Splitter,
    /// Blocks in all; 0 for a Flush.
    pub blocks: u32,
    /// Bytes in all.
    bytes: u32,
    lba: u64,
    /// Bus address of the buffer.
    addr: u64,
    tag: u64,
    submitted_at: Nanos,
    buf: Option<Lent>,
    /// Most requests have none.
    trouble: Option<Box<Trouble>>,
}

impl Slot {
    /// A free one, and which is the next.
    pub(super) fn free(next: u32) -> Slot {
        Slot {
            state: State::Free,
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
            trouble: None,
        }
    }

    /// Takes in a checked request, as one part until it turns out to be several.
    #[inline(always)]
    pub(super) fn fill(&mut self, request: Request, claim: Claim, now: Nanos) {
        let Request { op, namespace, lba, bytes, buf, modifiers, urgent, tag } = request;
        let (nsid, splitter) = (namespace.nsid(), namespace.splitter());
        (self.op, self.modifiers, self.urgent) = (op, modifiers, urgent);
        (self.nsid, self.splitter) = (nsid, splitter);
        let buf = buf.map(hw::DmaBuf::lend);
        self.addr = buf.as_ref().map_or(0, Lent::addr);
        // A pool, and so a buffer, has fewer than 2^32 blocks, as many as a request without data may name; a request that is one
        // part has fewer bytes.
        (self.lba, self.blocks, self.bytes) = (lba, (bytes >> splitter.block_log2()) as u32, bytes as u32);
        (self.tag, self.submitted_at) = (tag, now);
        // A free slot has no buffer: nothing to drop.
        std::mem::forget(std::mem::replace(&mut self.buf, buf));
        self.state = State::Open { claim, left: 1 };
    }

    /// All of it, if that is one part that moves data.
    #[inline(always)]
    pub(super) fn only_part(&self) -> Option<Part<'_>> {
        let Slot { op, modifiers, nsid, lba, blocks, addr, bytes, .. } = *self;
        let (buf, fua, keep) = (&self.buf, modifiers.fua(), modifiers.keep());
        self.splitter.fits_one(lba, blocks).then_some(Part { op, fua, keep, nsid, lba, blocks, addr, bytes, buf })
    }

    /// What has gone wrong, to be added to.
    #[cold]
    pub(super) fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// The first failure.
    #[inline]
    pub(super) fn failure(&self) -> Option<Failure> {
        self.trouble.as_ref().and_then(|trouble| trouble.failure)
    }

    /// A command of the caller's.
    pub(super) fn command(&self) -> Option<&IoCommand> {
        self.trouble.as_ref()?.command.as_deref()
    }

    /// Whether a part may be posted again: not once another has failed, and no command whose effect only the caller knows.
    pub(super) fn may_go_again(&self) -> bool {
        self.failure().is_none() && self.command().is_none()
    }

    /// Whether anything has gone wrong with it, even if it is well again; or it is a command of the caller's.
    #[inline]
    pub(super) fn is_troubled(&self) -> bool {
        self.trouble.is_some()
    }

    /// Whether the controller writes to its buffer.
    pub(super) fn is_read(&self) -> bool {
        self.op == Op::Read
    }

    /// Ends the request: what its caller is told, with its buffer.
    pub(super) fn complete(&mut self, now: Nanos) -> Completion {
        let Trouble { failure, lost, .. } = self.trouble.take().map(|trouble| *trouble).unwrap_or_default();
        // A lost buffer is dropped as lent: that leaks its memory, and counts it.
        let buf = self.buf.take().filter(|_| !lost).map(Lent::take_back);
        let result = failure.map_or(Ok(()), |failure| Err(self.told(failure)));
        Completion { tag: self.tag, result, buf, submitted_at: Instant::of(self.submitted_at), completed_at: Instant::of(now) }
    }

    /// What its caller is told of a failure. That a file system or a device lacks an operation may show only when it is asked for.
    #[cold]
    fn told(&self, failure: Failure) -> IoError {
        let optional = !matches!(self.op, Op::Read | Op::Write | Op::Flush);
        match failure {
            Failure::System(EOPNOTSUPP) if optional => Refused::Unsupported { op: self.op, nsid: self.nsid.0 }.into(),
            _ => failure.into(),
        }
    }

    /// The same for one that is not [`Slot::is_troubled`]; so little that it can be put together where it stays.
    #[inline(always)]
    pub(super) fn complete_well(&mut self, now: Nanos) -> Completion {
        let buf = self.buf.take().map(Lent::take_back);
        Completion { tag: self.tag, result: Ok(()), buf, submitted_at: Instant::of(self.submitted_at), completed_at: Instant::of(now) }
    }

    /// How often each part was posted again, on average: one reset takes every part of a large request back at once.
    #[cold]
    pub(super) fn retries(&self) -> u8 {
        let again = self.trouble.as_ref().map_or(0, |trouble| trouble.again);
        (again / self.parts(0, self.blocks)).try_into().unwrap_or(u8::MAX)
    }

    /// What its device time is like.
    #[inline]
    pub(super) fn class(&self) -> Class {
        Class::new(self.op, self.blocks.saturating_mul(self.splitter.block_size() as u32))
    }

    /// How many parts the `blocks` blocks from block `from` on are; 1 for a Flush.
    pub(super) fn parts(&self, from: u32, blocks: u32) -> u32 {
        if self.modifiers.listed() {
            return 1;
        }
        if let Some(most) = self.most_of_range() {
            return blocks.div_ceil(most).max(1);
        }
        self.splitter.split(self.lba + u64::from(from), blocks).parts().max(1)
    }

    /// Of a Deallocate: the most blocks of a part, which has one range of its list.
    fn most_of_range(&self) -> Option<u32> {
        if self.op == Op::Deallocate { self.splitter.most_blocks(self.op) } else { None }
    }

    /// The part that begins `from` blocks into the request, of which `left` are still to come; of no blocks for a Flush.
    pub(super) fn part(&self, from: u32, left: u32) -> Part<'_> {
        let (first, log2) = (self.lba + u64::from(from), self.splitter.block_log2());
        let Slot { op, modifiers, nsid, .. } = *self;
        let (buf, fua, keep) = (&self.buf, modifiers.fua(), modifiers.keep());
        if modifiers.listed() {
            // All of it, and a block for each range.
            return Part { op, fua, keep, nsid, lba: first, blocks: left, addr: self.addr, bytes: left * Range::LEN as u32, buf };
        }
        if let Some(most) = self.most_of_range() {
            let addr = self.addr + u64::from(from / most) * Range::LEN as u64;
            return Part { op, fua, keep, nsid, lba: first, blocks: left.min(most), addr, bytes: Range::LEN as u32, buf };
        }
        let blocks = self.splitter.split(first, left).next().map_or(0, |part| part.blocks);
        let addr = self.addr + (u64::from(from) << log2);
        Part { op, fua, keep, nsid, lba: first, blocks, addr, bytes: blocks << log2, buf }
    }
}
