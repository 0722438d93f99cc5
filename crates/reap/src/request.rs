//! Requests: what a caller asks for and gets back, and the book in which a software queue keeps those that are open.
//!
//! A request owns its buffer until it is finished. Whoever drops or forgets the future, the entry in the book, the
//! buffer and the CID stay until the controller has answered.

use std::collections::VecDeque;
use std::task::Waker;

use blkmq::{Parts, Splitter};
use completion::{Batch, Done, Found};
use driver::{Buffers, Fate, RetryPolicy};
use hw::{DmaBuf, Lent};
use nvme::io::Flags;
use nvme::prp::Dptr;
use nvme::{Lba, Nsid, Sqe, Status};
use units::{Class, Nanos, Op};

use crate::error::{IoError, Refused};
use crate::namespace::Namespace;
use crate::prp_table::PrpTable;

/// Something to do: a Read, a Write or a Flush, with its buffer.
#[derive(Debug)]
pub struct Request {
    pub(crate) op: Op,
    pub(crate) namespace: Namespace,
    pub(crate) lba: u64,
    pub(crate) bytes: u32,
    pub(crate) buf: Option<DmaBuf>,
    pub(crate) fua: bool,
    pub(crate) urgent: bool,
    pub(crate) tag: u64,
}

impl Request {
    /// Reads blocks from `lba` on, as many as fill `buf` (NVM 3.2.4).
    pub fn read(namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(Op::Read, namespace, lba, Some(buf))
    }

    /// Writes `buf` to the blocks from `lba` on (NVM 3.2.6).
    pub fn write(namespace: &Namespace, lba: u64, buf: DmaBuf) -> Request {
        Request::new(Op::Write, namespace, lba, Some(buf))
    }

    /// Makes every write that has completed durable (NVM 3.2.2, Base 7.2).
    pub fn flush(namespace: &Namespace) -> Request {
        Request::new(Op::Flush, namespace, 0, None)
    }

    fn new(op: Op, namespace: &Namespace, lba: u64, buf: Option<DmaBuf>) -> Request {
        let bytes = buf.as_ref().map_or(0, |b| b.len().try_into().unwrap_or(u32::MAX));
        Request { op, namespace: *namespace, lba, bytes, buf, fua: false, urgent: false, tag: 0 }
    }

    /// Only the first `bytes` bytes of the buffer: whole blocks.
    pub fn bytes(mut self, bytes: u32) -> Request {
        self.bytes = bytes;
        self
    }

    /// Force Unit Access: a write is durable when it completes (NVM 3.2.6, CDW12.FUA).
    pub fn fua(mut self) -> Request {
        self.fua = true;
        self
    }

    /// Somebody waits for it: no policy holds it back to gather it with others.
    pub fn urgent(mut self) -> Request {
        self.urgent = true;
        self
    }

    /// A number that the [`Completion`] carries, for the caller's own book-keeping.
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

    /// Whether the request can be carried out at all.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        if self.op == Op::Flush {
            return Ok(());
        }
        let (block, blocks) = (self.namespace.block_bytes(), self.namespace.blocks());
        let buffer = self.buf.as_ref().map_or(0, |b| b.len());
        if self.bytes == 0 || !self.bytes.is_multiple_of(block) || self.bytes as usize > buffer {
            return Err(Refused::Length { bytes: self.bytes, block, buffer });
        }
        let end = self.lba.saturating_add(u64::from(self.bytes / block));
        if end > blocks {
            return Err(Refused::OutOfRange { lba: self.lba, end, blocks });
        }
        Ok(())
    }
}

/// A request that is finished.
#[derive(Debug)]
pub struct Completion {
    /// The request's [`Request::tag`].
    pub tag: u64,
    /// How it ended.
    pub result: Result<(), IoError>,
    /// The request's buffer; `None` for a Flush, and when [`IoError::DeviceLost`] leaked it.
    pub buf: Option<DmaBuf>,
    /// The clock read of the batch it was submitted in.
    pub submitted_at: Nanos,
    /// The clock read of the look that found it.
    pub completed_at: Nanos,
}

impl Completion {
    /// A request that was never submitted.
    pub(crate) fn refused(why: Refused, request: Request) -> Completion {
        let never = Nanos::ZERO;
        Completion { tag: request.tag, result: Err(why.into()), buf: request.buf, submitted_at: never, completed_at: never }
    }
}

/// Who is told when a request is finished.
#[derive(Debug)]
pub(crate) enum Claim {
    /// The next [`crate::Queue::reap`].
    Batch,
    /// A future; with a waker once it has been polled.
    Future(Option<Waker>),
    /// Nobody: the future was dropped.
    Nobody,
}

/// What a look, or a reset, has to say of a part of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub token: Token,
    pub posted_at: Nanos,
    pub how: How,
}

/// How a part of a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// The controller answered.
    Answered(Status),
    /// A reset took the answer; the controller is known to have stopped, so the part can be posted again.
    Requeue,
    /// The controller stopped, and did not come up again.
    Dead,
    /// The controller is lost: it may still write to the buffer.
    Lost,
}

/// Names a part of a request: software queue (bits 63:56), place in its book (55:32), first block of the part within
/// the request (31:0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub u64);

impl Token {
    #[inline]
    fn new(soft: u8, slot: u32, from: u32) -> Token {
        Token(u64::from(soft) << 56 | u64::from(slot) << 32 | u64::from(from))
    }

    #[inline]
    pub(crate) fn soft(self) -> u8 {
        (self.0 >> 56) as u8
    }

    #[inline]
    fn slot(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff_ffff
    }

    #[inline]
    fn from(self) -> u32 {
        self.0 as u32
    }
}

/// How often a part is posted again: Read, Write and Flush are idempotent until their caller has been answered.
const RETRY: RetryPolicy = RetryPolicy { limit: 3 };

/// Most open requests of one software queue: what 24 bits of a token can name.
const MOST: usize = 1 << 24;

/// Blocks of a request that have yet to be posted.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    slot: u32,
    from: u32,
    blocks: u32,
}

#[derive(Debug)]
struct Slot {
    op: Op,
    nsid: Nsid,
    lba: u64,
    splitter: Splitter,
    fua: bool,
    urgent: bool,
    /// Blocks in all; 0 for a Flush.
    blocks: u32,
    parts: Parts<IoError>,
    /// How it ended, once all parts have.
    result: Option<Result<(), IoError>>,
    class: Class,
    tag: u64,
    claim: Claim,
    buf: Option<Lent>,
    returned: Option<DmaBuf>,
    /// A part has failed: what is not posted yet is not sent.
    failed: bool,
    /// How often parts of it were posted again.
    retries: u8,
    /// The buffer may still be written to: it is leaked.
    lost: bool,
    submitted_at: Nanos,
    completed_at: Nanos,
}

/// The open requests of one software queue.
#[derive(Debug)]
pub(crate) struct Requests {
    soft: u8,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Finished requests that [`Claim::Batch`] claims, in the order of completion.
    done: VecDeque<u32>,
    /// First come, first served.
    waiting: VecDeque<Waiting>,
    open: u32,
    urgent: u32,
    /// Parts posted and not yet ended.
    posted: u32,
    /// See [`Requests::take_ended`].
    ended: Vec<Waker>,
}

/// What posting needs to know of the device.
pub(crate) struct Poster<'a> {
    pub prp: &'a PrpTable,
    /// Most parts in flight: what the queue's inbox holds.
    pub most: u32,
}

impl Requests {
    pub(crate) fn new(soft: u8) -> Requests {
        Requests {
            soft,
            slots: Vec::with_capacity(256),
            free: Vec::with_capacity(256),
            done: VecDeque::with_capacity(256),
            waiting: VecDeque::with_capacity(64),
            open: 0,
            urgent: 0,
            posted: 0,
            ended: Vec::new(),
        }
    }

    /// Requests that are not finished.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    /// Of these, the ones that somebody waits for.
    #[inline]
    pub(crate) fn urgent(&self) -> u32 {
        self.urgent
    }

    /// Finished requests for [`Requests::take_done`].
    #[inline]
    pub(crate) fn done(&self) -> usize {
        self.done.len()
    }

    /// Whether anything waits to be posted.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether it waits for a tag, and not for this queue's own thread to empty its inbox, which holds `most`.
    #[inline]
    pub(crate) fn waits_for_a_tag(&self, most: u32) -> bool {
        self.is_waiting() && self.posted < most
    }

    /// Enters a checked request; it is posted by the next [`Requests::post`]. `Err`: the book is full.
    #[inline]
    pub(crate) fn enter(&mut self, request: Request, claim: Claim, now: Nanos) -> Result<u32, Request> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.slots.len() < MOST => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
            None => return Err(request),
        };
        let splitter = request.namespace.splitter();
        let blocks = request.bytes / request.namespace.block_bytes();
        self.open += 1;
        self.urgent += u32::from(request.urgent);
        self.slots[at as usize] = Some(Slot {
            op: request.op,
            nsid: request.namespace.nsid(),
            lba: request.lba,
            splitter,
            fua: request.fua,
            urgent: request.urgent,
            blocks,
            parts: Parts::new(splitter.split(request.lba, blocks).parts().max(1)),
            result: None,
            class: Class::new(request.op, request.bytes),
            tag: request.tag,
            claim,
            buf: request.buf.map(DmaBuf::lend),
            returned: None,
            failed: false,
            retries: 0,
            lost: false,
            submitted_at: now,
            completed_at: now,
        });
        self.waiting.push_back(Waiting { slot: at, from: 0, blocks });
        Ok(at)
    }

    /// Posts what waits, in order, as long as `post` takes it. Returns what the batch was, for the policy.
    #[inline]
    pub(crate) fn post(&mut self, poster: &Poster<'_>, mut post: impl FnMut(Sqe, Token) -> bool) -> Batch {
        let mut batch = Batch::default();
        while let Some(range) = self.waiting.front_mut() {
            let Some(slot) = self.slots.get_mut(range.slot as usize).and_then(Option::as_mut) else {
                debug_assert!(false, "a waiting range names no request");
                self.waiting.pop_front();
                continue;
            };
            if slot.failed {
                let range = *range;
                self.waiting.pop_front();
                self.skip(range, IoError::DeviceLost);
                continue;
            }
            if self.posted >= poster.most {
                break;
            }
            let blocks = slot.part(range.from, range.blocks);
            let token = Token::new(self.soft, range.slot, range.from);
            if !post(slot.sqe(poster.prp, range.from, blocks), token) {
                break;
            }
            self.posted += 1;
            batch.commands += 1;
            batch.urgent += u32::from(slot.urgent);
            batch.class.get_or_insert(slot.class);
            range.from += blocks;
            range.blocks -= blocks;
            if range.blocks == 0 {
                self.waiting.pop_front();
            }
        }
        batch.in_flight = self.open;
        batch
    }

    /// A range that is not sent, because another part failed or the device is lost. `error` counts if it is the first.
    fn skip(&mut self, range: Waiting, error: IoError) {
        let Some(slot) = self.slots.get_mut(range.slot as usize).and_then(Option::as_mut) else { return };
        let parts = slot.splitter.split(slot.lba + u64::from(range.from), range.blocks).parts().max(1);
        for _ in 0..parts {
            if let Some(result) = slot.parts.complete(Err(error)) {
                slot.result = Some(result);
            }
        }
        if slot.result.is_some() {
            let completed_at = slot.completed_at;
            let waker = self.finish(range.slot, completed_at);
            self.ended.extend(waker);
        }
    }

    /// Takes note of how a part ended. Returns the waker of a future that is thereby finished; call it outside the lock.
    #[inline]
    pub(crate) fn end(&mut self, outcome: &Outcome, now: Nanos) -> Option<Waker> {
        let (at, from) = (outcome.token.slot(), outcome.token.from());
        let slot = self.slots.get_mut(at as usize).and_then(Option::as_mut)?;
        self.posted -= 1;
        let result = match outcome.how {
            How::Answered(status) if status.is_success() => Ok(()),
            How::Answered(status) if RETRY.after_status(status, slot.retries, true) == Fate::Again => {
                self.again(at, from);
                return None;
            }
            How::Answered(status) => Err(IoError::Status(status)),
            How::Requeue if RETRY.after_reset(Buffers::Returned, slot.retries, true) == Fate::Again => {
                self.again(at, from);
                return None;
            }
            How::Requeue => Err(IoError::TimedOut),
            How::Dead => Err(IoError::DeviceLost),
            How::Lost => {
                slot.lost = true;
                Err(IoError::DeviceLost)
            }
        };
        slot.failed |= result.is_err();
        slot.result = slot.parts.complete(result);
        if slot.result.is_some() { self.finish(at, now) } else { None }
    }

    /// A part is posted again, before what came later.
    #[cold]
    fn again(&mut self, at: u32, from: u32) {
        let Some(slot) = self.slots.get_mut(at as usize).and_then(Option::as_mut) else { return };
        slot.retries = slot.retries.saturating_add(1);
        let blocks = slot.part(from, slot.blocks - from.min(slot.blocks));
        self.waiting.push_front(Waiting { slot: at, from, blocks });
    }

    #[inline]
    fn finish(&mut self, at: u32, now: Nanos) -> Option<Waker> {
        let slot = self.slots.get_mut(at as usize).and_then(Option::as_mut)?;
        slot.completed_at = now;
        self.open -= 1;
        self.urgent -= u32::from(slot.urgent);
        // A lost buffer is dropped as lent: that leaks its memory, and counts it.
        slot.returned = slot.buf.take().filter(|_| !slot.lost).map(Lent::take_back);
        match &mut slot.claim {
            Claim::Batch => {
                self.done.push_back(at);
                None
            }
            Claim::Future(waker) => waker.take(),
            Claim::Nobody => {
                self.remove(at);
                None
            }
        }
    }

    /// The policy's record of a part that ended.
    #[inline]
    pub(crate) fn record(&self, outcome: &Outcome, now: Nanos, slept: bool) -> Option<Done> {
        let slot = self.slots.get(outcome.token.slot() as usize)?.as_ref()?;
        let age = now - outcome.posted_at;
        let found = if slept { Found::AfterSleep { at_most: age } } else { Found::Looking };
        Some(Done { class: slot.class, age, found })
    }

    /// The longest finished request that a batch claims.
    #[inline]
    pub(crate) fn take_done(&mut self) -> Option<Completion> {
        let at = self.done.pop_front()?;
        self.remove(at)
    }

    /// The result of a future's request, if it is finished; otherwise `waker` is kept.
    pub(crate) fn poll(&mut self, at: u32, waker: &Waker) -> Option<Completion> {
        let slot = self.slots.get_mut(at as usize)?.as_mut()?;
        if slot.result.is_some() {
            return self.remove(at);
        }
        match &mut slot.claim {
            Claim::Future(Some(kept)) => kept.clone_from(waker),
            claim => *claim = Claim::Future(Some(waker.clone())),
        }
        None
    }

    /// The future of this request was dropped.
    pub(crate) fn disown(&mut self, at: u32) {
        let Some(slot) = self.slots.get_mut(at as usize).and_then(Option::as_mut) else { return };
        if slot.result.is_some() {
            self.remove(at);
        } else {
            slot.claim = Claim::Nobody;
        }
    }

    /// Every request still open becomes nobody's, and those finished are dropped: the software queue is gone.
    pub(crate) fn disown_all(&mut self) {
        for at in 0..self.slots.len() as u32 {
            let Some(slot) = self.slots.get_mut(at as usize).and_then(Option::as_mut) else { continue };
            if matches!(slot.claim, Claim::Batch) {
                self.disown(at);
            }
        }
        self.done.clear();
    }

    /// Fails everything that waits for a tag, for a device that is lost.
    pub(crate) fn fail_waiting(&mut self) {
        while let Some(range) = self.waiting.pop_front() {
            self.skip(range, IoError::DeviceLost);
        }
    }

    /// Futures that finished otherwise than by [`Requests::end`]; wake them outside the lock.
    pub(crate) fn take_ended(&mut self, wakers: &mut Vec<Waker>) {
        wakers.append(&mut self.ended);
    }

    #[inline]
    fn remove(&mut self, at: u32) -> Option<Completion> {
        let slot = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(Completion {
            tag: slot.tag,
            result: slot.result.unwrap_or(Ok(())),
            buf: slot.returned,
            submitted_at: slot.submitted_at,
            completed_at: slot.completed_at,
        })
    }
}

impl Slot {
    /// Blocks of the part that begins `from` blocks into the request, of which `left` are still to come; 0 for a Flush.
    #[inline]
    fn part(&self, from: u32, left: u32) -> u32 {
        self.splitter.split(self.lba + u64::from(from), left).next().map_or(0, |part| part.blocks)
    }

    /// The command for `blocks` blocks from block `from` of the request on.
    #[inline]
    fn sqe(&self, prp: &PrpTable, from: u32, blocks: u32) -> Sqe {
        let lba = Lba(self.lba + u64::from(from));
        let block_bytes = self.splitter.block_size();
        let addr = self.buf.as_ref().map_or(0, Lent::addr) + u64::from(from) * block_bytes;
        let (prp1, prp2) = prp.pointers(addr, blocks * block_bytes as u32);
        let data = Dptr { prp1, prp2 };
        match self.op {
            Op::Read => nvme::io::read(self.nsid, lba, blocks, data, Flags::NONE),
            Op::Write => nvme::io::write(self.nsid, lba, blocks, data, if self.fua { Flags::FUA } else { Flags::NONE }),
            Op::Flush => nvme::io::flush(self.nsid),
        }
    }
}

#[cfg(test)]
mod tests;
