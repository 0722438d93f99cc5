//! One open request, and the commands for its parts.

use blkmq::Splitter;
use hw::Lent;
use nvme::io::Flags;
use nvme::prp::Dptr;
use nvme::{Lba, Nsid, Sqe, Status};
use units::{Class, Nanos, Op};

use crate::error::IoError;
use crate::prp_table::PrpTable;
use crate::request::{Completion, Request};

/// The end of a list of slots.
pub(super) const NONE: u32 = u32::MAX;

/// Who is told when a request is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The next [`crate::Queue::reap`].
    Batch,
    /// A future.
    Future,
    /// Nobody: the future was dropped.
    Nobody,
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No request.
    Free,
    /// So many parts have not ended.
    Open { claim: Claim, left: u32 },
    /// A future has yet to take its completion.
    Finished,
}

/// [`IoError`] without what only a request that was never submitted can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Status(Status),
    TimedOut,
    DeviceLost,
}

impl From<Failure> for IoError {
    #[inline]
    fn from(failure: Failure) -> IoError {
        match failure {
            Failure::Status(status) => IoError::Status(status),
            Failure::TimedOut => IoError::TimedOut,
            Failure::DeviceLost => IoError::DeviceLost,
        }
    }
}

/// What has gone wrong with a request so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// The first part that failed: what is not posted yet is not sent.
    pub failure: Option<Failure>,
    /// How often parts were posted again, all of them together.
    pub again: u32,
    /// The buffer may still be written to: it is leaked.
    pub lost: bool,
}

/// A request. Slots are filled and emptied in place, because moving one costs more than the rest of an I/O.
#[derive(Debug)]
pub(super) struct Slot {
    pub state: State,
    /// Of a free slot: the next free one.
    pub next: u32,
    op: Op,
    fua: bool,
    pub urgent: bool,
    nsid: Nsid,
    splitter: Splitter,
    /// Blocks in all; 0 for a Flush.
    pub blocks: u32,
    lba: u64,
    tag: u64,
    submitted_at: Nanos,
    buf: Option<Lent>,
    /// Most requests have none.
    trouble: Option<Box<Trouble>>,
}

impl Slot {
    pub fn free() -> Slot {
        Slot {
            state: State::Free,
            next: NONE,
            op: Op::Flush,
            fua: false,
            urgent: false,
            nsid: Nsid(0),
            splitter: Splitter::default(),
            blocks: 0,
            lba: 0,
            tag: 0,
            submitted_at: Nanos::ZERO,
            buf: None,
            trouble: None,
        }
    }

    /// Takes in a checked request. Returns the command for it if one is enough; otherwise parts have to be posted.
    #[inline(always)]
    pub fn fill(&mut self, request: Request, claim: Claim, now: Nanos, prp: &PrpTable) -> Option<Sqe> {
        let Request { op, namespace, lba, bytes, buf, fua, urgent, tag } = request;
        let (nsid, splitter) = (namespace.nsid(), namespace.splitter());
        // A pool, and so a buffer, has fewer than 2^32 blocks.
        let blocks = (bytes >> splitter.block_log2()) as u32;
        let buf = buf.map(hw::DmaBuf::lend);
        let addr = buf.as_ref().map_or(0, Lent::addr);
        (self.op, self.fua, self.urgent) = (op, fua, urgent);
        (self.nsid, self.splitter) = (nsid, splitter);
        (self.lba, self.blocks) = (lba, blocks);
        (self.tag, self.submitted_at) = (tag, now);
        // A free slot has no buffer: nothing to drop.
        std::mem::forget(std::mem::replace(&mut self.buf, buf));
        let one = splitter.fits_one(lba, blocks);
        let left = if one { 1 } else { splitter.split(lba, blocks).parts().max(1) };
        self.state = State::Open { claim, left };
        one.then(|| command(op, nsid, lba, blocks, fua, prp.pointers(addr, bytes as u32, self.buf.as_ref())))
    }

    /// What has gone wrong, to be added to.
    #[cold]
    pub fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// The first failure.
    #[inline]
    pub fn failure(&self) -> Option<Failure> {
        self.trouble.as_ref().and_then(|trouble| trouble.failure)
    }

    /// Whether anything has gone wrong with it, even if it is well again.
    #[inline]
    pub fn is_troubled(&self) -> bool {
        self.trouble.is_some()
    }

    /// Ends the request: what its caller is told, with its buffer.
    pub fn complete(&mut self, now: Nanos) -> Completion {
        let Trouble { failure, lost, .. } = self.trouble.take().map(|trouble| *trouble).unwrap_or_default();
        // A lost buffer is dropped as lent: that leaks its memory, and counts it.
        let buf = self.buf.take().filter(|_| !lost).map(Lent::take_back);
        let result = failure.map_or(Ok(()), |failure| Err(failure.into()));
        Completion { tag: self.tag, result, buf, submitted_at: self.submitted_at, completed_at: now }
    }

    /// The same for one that is not [`Slot::is_troubled`]; so little that it can be put together where it stays.
    #[inline(always)]
    pub fn complete_well(&mut self, now: Nanos) -> Completion {
        let buf = self.buf.take().map(Lent::take_back);
        Completion { tag: self.tag, result: Ok(()), buf, submitted_at: self.submitted_at, completed_at: now }
    }

    /// How often each part was posted again, on average: one reset takes every part of a large request back at once.
    #[cold]
    pub fn retries(&self) -> u8 {
        let again = self.trouble.as_ref().map_or(0, |trouble| trouble.again);
        (again / self.parts(0, self.blocks)).try_into().unwrap_or(u8::MAX)
    }

    /// What its device time is like.
    #[inline]
    pub fn class(&self) -> Class {
        Class::new(self.op, self.blocks.saturating_mul(self.splitter.block_size() as u32))
    }

    /// How many parts the `blocks` blocks from block `from` on are; 1 for a Flush.
    pub fn parts(&self, from: u32, blocks: u32) -> u32 {
        self.splitter.split(self.lba + u64::from(from), blocks).parts().max(1)
    }

    /// Blocks of the part that begins `from` blocks into the request, of which `left` are still to come; 0 for a Flush.
    #[inline]
    pub fn part(&self, from: u32, left: u32) -> u32 {
        self.splitter.split(self.lba + u64::from(from), left).next().map_or(0, |part| part.blocks)
    }

    /// The command for `blocks` blocks from block `from` of the request on.
    pub fn part_command(&self, prp: &PrpTable, from: u32, blocks: u32) -> Sqe {
        let log2 = self.splitter.block_log2();
        let addr = self.buf.as_ref().map_or(0, Lent::addr) + (u64::from(from) << log2);
        command(self.op, self.nsid, self.lba + u64::from(from), blocks, self.fua, prp.pointers(addr, blocks << log2, self.buf.as_ref()))
    }
}

#[inline(always)]
fn command(op: Op, nsid: Nsid, lba: u64, blocks: u32, fua: bool, (prp1, prp2): (u64, u64)) -> Sqe {
    let data = Dptr { prp1, prp2 };
    match op {
        Op::Read => nvme::io::read(nsid, Lba(lba), blocks, data, Flags::NONE),
        Op::Write => nvme::io::write(nsid, Lba(lba), blocks, data, if fua { Flags::FUA } else { Flags::NONE }),
        Op::Flush => nvme::io::flush(nsid),
    }
}
