//! The book in which a software queue keeps its open requests.
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

use crate::error::IoError;
use crate::prp_table::PrpTable;
use crate::request::{Completion, How, Request, Token};

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

/// [`IoError`] without what only a request that was never submitted can have: it is kept in every slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Status(Status),
    TimedOut,
    DeviceLost,
}

impl From<Failure> for IoError {
    fn from(failure: Failure) -> IoError {
        match failure {
            Failure::Status(status) => IoError::Status(status),
            Failure::TimedOut => IoError::TimedOut,
            Failure::DeviceLost => IoError::DeviceLost,
        }
    }
}

/// How often a part is posted again: Read, Write and Flush are idempotent until their caller has been answered.
const RETRY: RetryPolicy = RetryPolicy { limit: 3 };

/// Most open requests of one software queue: what 24 bits of a token can name.
const MOST: usize = 1 << 24;

/// The end of a list of slots.
const NONE: u32 = u32::MAX;

/// Blocks of a request that have yet to be posted; none of a Flush, which is one part all the same.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    slot: u32,
    from: u32,
    blocks: u32,
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    Open,
    /// Every part has ended.
    Finished,
}

/// A request. Slots are filled and emptied in place, because moving one costs more than the rest of an I/O.
#[derive(Debug)]
struct Slot {
    stage: Stage,
    op: Op,
    fua: bool,
    urgent: bool,
    /// The buffer may still be written to: it is leaked.
    lost: bool,
    /// How often parts of it were posted again, all of them together.
    again: u32,
    nsid: Nsid,
    splitter: Splitter,
    /// Blocks in all; 0 for a Flush.
    blocks: u32,
    parts: Parts<Failure>,
    /// The first part that failed: what is not posted yet is not sent.
    failure: Option<Failure>,
    /// The next free slot.
    next: u32,
    lba: u64,
    tag: u64,
    claim: Claim,
    buf: Option<Lent>,
    submitted_at: Nanos,
    completed_at: Nanos,
}

/// The open requests of one software queue.
#[derive(Debug)]
pub(crate) struct Requests {
    soft: u8,
    slots: Vec<Slot>,
    /// The first free slot.
    free: u32,
    /// Finished slots that [`Claim::Batch`] claims, in the order of completion; those before `reaped` are gone.
    done: Vec<u32>,
    reaped: usize,
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
            free: NONE,
            done: Vec::with_capacity(256),
            reaped: 0,
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
    pub(crate) fn done(&self) -> u32 {
        (self.done.len() - self.reaped) as u32
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

    /// Enters a checked request, without its buffer from then on. `None`: the book is full. The caller posts it
    /// ([`Requests::post_new`]) or leaves it to wait ([`Requests::wait`]).
    #[inline]
    pub(crate) fn enter(&mut self, request: &mut Request, future: bool, now: Nanos) -> Option<u32> {
        if self.free == NONE && !self.grow() {
            return None;
        }
        let at = self.free;
        let slot = self.slots.get_mut(at as usize)?;
        let splitter = request.namespace.splitter();
        let blocks = request.bytes >> splitter.block_log2();
        self.free = slot.next;
        self.open += 1;
        self.urgent += u32::from(request.urgent);
        slot.stage = Stage::Open;
        slot.op = request.op;
        slot.fua = request.fua;
        slot.urgent = request.urgent;
        slot.lost = false;
        slot.again = 0;
        slot.nsid = request.namespace.nsid();
        slot.splitter = splitter;
        slot.blocks = blocks;
        slot.parts = Parts::new(splitter.split(request.lba, blocks).parts().max(1));
        slot.failure = None;
        slot.lba = request.lba;
        slot.tag = request.tag;
        slot.claim = if future { Claim::Future(None) } else { Claim::Batch };
        slot.buf = request.buf.take().map(DmaBuf::lend);
        (slot.submitted_at, slot.completed_at) = (now, now);
        Some(at)
    }

    #[cold]
    fn grow(&mut self) -> bool {
        if self.slots.len() >= MOST {
            return false;
        }
        self.free = self.slots.len() as u32;
        self.slots.push(Slot::free());
        true
    }

    /// Posts a request that was just entered, if nothing waits before it; what cannot be posted waits.
    #[inline]
    pub(crate) fn post_new(&mut self, at: u32, poster: &Poster<'_>, batch: &mut Batch, post: &mut impl FnMut(Sqe, Token) -> bool) {
        let Some(slot) = self.slots.get(at as usize) else { return };
        // The usual case is one part, and a tag for it.
        if slot.parts.left() == 1
            && self.waiting.is_empty()
            && self.posted < poster.most
            && post(slot.sqe(poster.prp, 0, slot.blocks), Token::new(self.soft, at, 0))
        {
            self.posted += 1;
            batch.commands += 1;
            batch.urgent += u32::from(slot.urgent);
            return;
        }
        self.post_parts(at, poster, batch, post);
    }

    fn post_parts(&mut self, at: u32, poster: &Poster<'_>, batch: &mut Batch, post: &mut impl FnMut(Sqe, Token) -> bool) {
        let blocks = self.slots.get(at as usize).map_or(0, |slot| slot.blocks);
        let mut range = Waiting { slot: at, from: 0, blocks };
        if self.is_waiting() || !self.post_range(&mut range, poster, batch, post) {
            self.waiting.push_back(range);
        }
    }

    /// Leaves a request that was just entered to wait.
    pub(crate) fn wait(&mut self, at: u32) {
        let blocks = self.slots.get(at as usize).map_or(0, |slot| slot.blocks);
        self.waiting.push_back(Waiting { slot: at, from: 0, blocks });
    }

    /// Posts what waits, in order, as long as `post` takes it.
    pub(crate) fn post_waiting(&mut self, poster: &Poster<'_>, batch: &mut Batch, post: &mut impl FnMut(Sqe, Token) -> bool) {
        while let Some(mut range) = self.waiting.pop_front() {
            if !self.post_range(&mut range, poster, batch, post) {
                self.waiting.push_front(range);
                return;
            }
        }
    }

    /// Posts parts of a range until all of it is posted (true), or one is not taken. `range` is what is left.
    fn post_range(
        &mut self,
        range: &mut Waiting,
        poster: &Poster<'_>,
        batch: &mut Batch,
        post: &mut impl FnMut(Sqe, Token) -> bool,
    ) -> bool {
        loop {
            let Some(slot) = self.slots.get(range.slot as usize) else { return true };
            if slot.failure.is_some() {
                self.skip(*range, Failure::DeviceLost);
                return true;
            }
            if self.posted >= poster.most {
                return false;
            }
            let blocks = slot.part(range.from, range.blocks);
            if !post(slot.sqe(poster.prp, range.from, blocks), Token::new(self.soft, range.slot, range.from)) {
                return false;
            }
            self.posted += 1;
            batch.commands += 1;
            batch.urgent += u32::from(slot.urgent);
            range.from += blocks;
            range.blocks -= blocks;
            if range.blocks == 0 {
                return true;
            }
        }
    }

    /// A range that is not sent, because another part failed or the device is lost. `failure` counts if it is the first.
    #[cold]
    fn skip(&mut self, range: Waiting, failure: Failure) {
        let Some(slot) = self.slots.get_mut(range.slot as usize) else { return };
        let parts = slot.splitter.split(slot.lba + u64::from(range.from), range.blocks).parts().max(1);
        slot.failure.get_or_insert(failure);
        for _ in 0..parts {
            if slot.parts.complete(Err(failure)).is_some() {
                let waker = self.finish(range.slot, self.slots[range.slot as usize].completed_at);
                self.ended.extend(waker);
                return;
            }
        }
    }

    /// The controller answered a part, as the queue's own thread found. Returns the waker of a future that is thereby
    /// finished; call it outside the lock.
    #[inline(always)]
    pub(crate) fn answered(&mut self, token: Token, status: Status, now: Nanos) -> Option<Waker> {
        let at = token.slot();
        let slot = self.slots.get_mut(at as usize)?;
        if !status.is_success() || slot.parts.left() != 1 {
            return self.end(token, How::Answered(status), now);
        }
        // The usual case: one part, or the last, and it succeeded.
        self.posted -= 1;
        slot.parts.complete(Ok(()));
        self.finish(at, now)
    }

    /// Takes note of how a part ended. Returns the waker of a future that is thereby finished; call it outside the lock.
    pub(crate) fn end(&mut self, token: Token, how: How, now: Nanos) -> Option<Waker> {
        let (at, from) = (token.slot(), token.from());
        let slot = self.slots.get_mut(at as usize)?;
        self.posted -= 1;
        let result = match how {
            How::Answered(status) if status.is_success() => Ok(()),
            How::Answered(status) if slot.failure.is_none() && RETRY.after_status(status, slot.retries(), true) == Fate::Again => {
                self.again(at, from);
                return None;
            }
            How::Answered(status) => Err(Failure::Status(status)),
            How::Requeue if slot.failure.is_none() && RETRY.after_reset(Buffers::Returned, slot.retries(), true) == Fate::Again => {
                self.again(at, from);
                return None;
            }
            How::Requeue => Err(Failure::TimedOut),
            How::Dead => Err(Failure::DeviceLost),
            How::Lost => {
                slot.lost = true;
                Err(Failure::DeviceLost)
            }
        };
        if let Err(failure) = result {
            slot.failure.get_or_insert(failure);
            self.skip_waiting(at, failure);
        }
        let slot = self.slots.get_mut(at as usize)?;
        let _last = slot.parts.complete(result)?;
        self.finish(at, now)
    }

    /// What waits of a request of which a part failed is not sent. The failed part itself still counts, so this ends no
    /// request. Here, by the owner: whoever serves the line would have nobody to tell.
    #[cold]
    fn skip_waiting(&mut self, at: u32, failure: Failure) {
        let mut place = 0;
        while let Some(range) = self.waiting.get(place).copied() {
            if range.slot == at {
                self.waiting.remove(place);
                self.skip(range, failure);
            } else {
                place += 1;
            }
        }
    }

    /// A part is posted again, before what came later.
    #[cold]
    fn again(&mut self, at: u32, from: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        slot.again = slot.again.saturating_add(1);
        let blocks = slot.part(from, slot.blocks - from.min(slot.blocks));
        self.waiting.push_front(Waiting { slot: at, from, blocks });
    }

    #[inline(always)]
    fn finish(&mut self, at: u32, now: Nanos) -> Option<Waker> {
        let slot = self.slots.get_mut(at as usize)?;
        slot.stage = Stage::Finished;
        slot.completed_at = now;
        self.open -= 1;
        self.urgent -= u32::from(slot.urgent);
        match &mut slot.claim {
            Claim::Batch => {
                self.done.push(at);
                None
            }
            Claim::Future(waker) => waker.take(),
            Claim::Nobody => {
                self.remove(at);
                None
            }
        }
    }

    /// The class of a request, for the policy.
    pub(crate) fn class(&self, at: u32) -> Option<Class> {
        self.slots.get(at as usize).map(Slot::class)
    }

    /// The policy's record of a part that is about to end.
    #[inline]
    pub(crate) fn record(&self, token: Token, posted_at: Nanos, now: Nanos, slept: bool) -> Option<Done> {
        let slot = self.slots.get(token.slot() as usize)?;
        let age = now - posted_at;
        let found = if slept { Found::AfterSleep { at_most: age } } else { Found::Looking };
        Some(Done { class: slot.class(), age, found })
    }

    /// The longest finished request that a batch claims.
    #[inline(always)]
    pub(crate) fn take_done(&mut self) -> Option<Completion> {
        let at = *self.done.get(self.reaped)?;
        self.reaped += 1;
        if self.reaped == self.done.len() || self.reaped == 4096 {
            self.forget_reaped();
        }
        self.remove(at)
    }

    fn forget_reaped(&mut self) {
        self.done.drain(..self.reaped);
        self.reaped = 0;
    }

    /// The result of a future's request, if it is finished; otherwise `waker` is kept.
    ///
    /// Wakers are the caller's code: the one that is replaced, or not needed, is handed back to be dropped outside the lock.
    pub(crate) fn poll(&mut self, at: u32, waker: Waker) -> Result<Completion, Option<Waker>> {
        let Some(slot) = self.slots.get_mut(at as usize) else { return Err(Some(waker)) };
        if slot.stage == Stage::Finished {
            return self.remove(at).ok_or(Some(waker));
        }
        match &mut slot.claim {
            Claim::Future(kept) => Err(kept.replace(waker)),
            claim => {
                *claim = Claim::Future(Some(waker));
                Err(None)
            }
        }
    }

    /// The future of this request was dropped. Its waker is handed back to be dropped outside the lock.
    pub(crate) fn disown(&mut self, at: u32) -> Option<Waker> {
        let slot = self.slots.get_mut(at as usize)?;
        match slot.stage {
            Stage::Free => {}
            Stage::Open => {
                if let Claim::Future(waker) = std::mem::replace(&mut slot.claim, Claim::Nobody) {
                    return waker;
                }
            }
            Stage::Finished => _ = self.remove(at),
        }
        None
    }

    /// Every request of a batch becomes nobody's, and those finished are dropped: the software queue is gone.
    pub(crate) fn disown_all(&mut self) {
        while self.take_done().is_some() {}
        for slot in self.slots.iter_mut().filter(|slot| slot.stage == Stage::Open) {
            if matches!(slot.claim, Claim::Batch) {
                slot.claim = Claim::Nobody;
            }
        }
    }

    /// Fails everything that waits for a tag, for a device that is lost.
    pub(crate) fn fail_waiting(&mut self) {
        while let Some(range) = self.waiting.pop_front() {
            self.skip(range, Failure::DeviceLost);
        }
    }

    /// Futures that finished otherwise than by [`Requests::end`]; wake them outside the lock.
    #[inline]
    pub(crate) fn take_ended(&mut self, wakers: &mut Vec<Waker>) {
        if !self.ended.is_empty() {
            wakers.append(&mut self.ended);
        }
    }

    #[inline(always)]
    fn remove(&mut self, at: u32) -> Option<Completion> {
        let slot = self.slots.get_mut(at as usize)?;
        slot.stage = Stage::Free;
        slot.next = std::mem::replace(&mut self.free, at);
        // A lost buffer is dropped as lent: that leaks its memory, and counts it.
        let buf = slot.buf.take().filter(|_| !slot.lost).map(Lent::take_back);
        Some(Completion {
            tag: slot.tag,
            result: slot.failure.map_or(Ok(()), |failure| Err(failure.into())),
            buf,
            submitted_at: slot.submitted_at,
            completed_at: slot.completed_at,
        })
    }
}

impl Slot {
    fn free() -> Slot {
        Slot {
            stage: Stage::Free,
            op: Op::Flush,
            fua: false,
            urgent: false,
            lost: false,
            again: 0,
            nsid: Nsid(0),
            splitter: Splitter::default(),
            blocks: 0,
            parts: Parts::new(0),
            failure: None,
            next: NONE,
            lba: 0,
            tag: 0,
            claim: Claim::Nobody,
            buf: None,
            submitted_at: Nanos::ZERO,
            completed_at: Nanos::ZERO,
        }
    }

    /// How often each part was posted again, on average: one reset takes every part of a large request back at once.
    #[cold]
    fn retries(&self) -> u8 {
        let parts = self.splitter.split(self.lba, self.blocks).parts().max(1);
        (self.again / parts).try_into().unwrap_or(u8::MAX)
    }

    /// What its device time is like.
    #[inline]
    fn class(&self) -> Class {
        Class::new(self.op, self.blocks.saturating_mul(self.splitter.block_size() as u32))
    }

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
