//! The table in which a software queue keeps its open requests.
//!
//! A request owns its buffer until it is finished. If a future is dropped or forgotten, the slot, the buffer and the CID stay until the
//! controller has answered.

mod slot;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use completion::Done;
use driver::{Buffers, Completed, Fate, RetryPolicy};
use hw::DmaBuf;
use units::{Class, Nanos};

use super::future_states::FutureStates;
use crate::request::{Completion, ERRNO, LOST, PATH_LOST, REQUEUED, REQUEUED_AS_ASKED, Request, STOPPED, Token};
use crate::transport::{IoCommand, Part, Post};
pub(crate) use slot::{Claim, Failure};
use slot::{NONE, Slot, State};

/// How often a part is posted again: every operation is idempotent until its caller has been answered.
const RETRY: RetryPolicy = RetryPolicy { limit: 3 };

/// Most requests of one software queue that are open or not reaped: what 24 bits of a token can name.
const MOST: usize = 1 << 24;

/// Slots that a table begins with.
const FIRST_SLOTS: usize = 64;

/// Blocks of a request that have yet to be posted; none of a Flush, which is one part all the same.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    slot: u32,
    from: u32,
    blocks: u32,
}

/// A request that can be reaped: its slot is emptied only then, on the way into the caller's hands.
#[derive(Clone, Copy, Debug)]
struct Finished {
    at: u32,
    completed_at: Nanos,
}

/// The open requests of one software queue.
#[derive(Debug)]
pub(crate) struct Requests {
    soft: u8,
    /// The tokens of the request in slot 0: of its first part, and as a whole.
    first: u64,
    whole: u64,
    slots: Vec<Slot>,
    /// The first free slot.
    free: u32,
    /// Requests of the batch under way are entered into the first of the free slots, from this one on. They are still linked as
    /// free ones were, so that those up to `free` are what has yet to be posted.
    entered: u32,
    /// The last request of the last batch.
    last: u32,
    /// Finished requests that [`Claim::Batch`] claims, in the order of completion; those before `reaped` are gone.
    done: Vec<Finished>,
    reaped: usize,
    /// Of these, the ones with which something has gone wrong.
    troubled: u32,
    /// Open requests of [`Claim::Nobody`].
    disowned: u32,
    /// What futures wait on.
    tickets: Arc<FutureStates>,
    /// First come, first served.
    waiting: VecDeque<Waiting>,
    open: u32,
    urgent: u32,
    /// Parts posted and not yet ended.
    posted: u32,
    retry: RetryPolicy,
    /// See [`Requests::take_ended`].
    ended: Vec<Waker>,
    /// See [`Requests::keep_registered`].
    kept: Option<Vec<DmaBuf>>,
}

impl Requests {
    pub(crate) fn new(soft: u8) -> Requests {
        Requests {
            soft,
            first: Token::new(soft, 0, 0).0,
            whole: Token::new(soft, 0, 0).0 | Token::WHOLE,
            slots: Vec::new(),
            free: NONE,
            entered: NONE,
            last: NONE,
            done: Vec::with_capacity(256),
            reaped: 0,
            troubled: 0,
            disowned: 0,
            tickets: Arc::default(),
            waiting: VecDeque::with_capacity(64),
            open: 0,
            urgent: 0,
            posted: 0,
            retry: RETRY,
            ended: Vec::new(),
            kept: None,
        }
    }

    /// What futures wait on.
    pub(crate) fn tickets(&self) -> &Arc<FutureStates> {
        &self.tickets
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

    /// Before a batch: nothing of it is entered.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.entered = self.free;
    }

    /// Twice as many slots, the new ones linked after those of the batch under way.
    #[cold]
    fn grow(&mut self) -> bool {
        let first = self.slots.len();
        let end = (2 * first).clamp(FIRST_SLOTS, MOST);
        if first == end {
            return false;
        }
        let next = |at: usize| if at + 1 < end { at as u32 + 1 } else { NONE };
        self.slots.extend((first..end).map(|at| Slot::free(next(at))));
        self.free = first as u32;
        if self.entered == NONE {
            self.entered = self.free;
            return true;
        }
        let mut last = self.entered;
        while self.slots[last as usize].next != NONE {
            last = self.slots[last as usize].next;
        }
        self.slots[last as usize].next = self.free;
        true
    }

    /// Enters a checked request. [`Requests::post_entered`] follows.
    ///
    /// # Errors
    /// There is no slot for it: [`Requests::enter_growing`] makes one.
    #[inline(always)]
    pub(crate) fn enter(&mut self, request: Request, claim: Claim, now: Nanos) -> Result<(), Request> {
        let Some(slot) = self.slots.get_mut(self.free as usize) else { return Err(request) };
        debug_assert_eq!(slot.state, State::Free);
        self.free = slot.next;
        self.urgent += u32::from(request.urgent);
        slot.fill(request, claim, now);
        Ok(())
    }

    /// The request of this batch that was entered first is this command of the caller's.
    pub(crate) fn set_command(&mut self, command: Box<IoCommand>) {
        if let Some(slot) = self.slots.get_mut(self.entered as usize) {
            slot.trouble().command = Some(command);
        }
    }

    /// The same where the table has to grow first. The request, if it cannot.
    #[cold]
    pub(crate) fn enter_growing(&mut self, request: Request, claim: Claim, now: Nanos) -> Option<Request> {
        if self.free != NONE || self.grow() { self.enter(request, claim, now).err() } else { Some(request) }
    }

    /// Posts the batch that was entered, as far as nothing waits before it, each request moves data and is one part, and `post`
    /// takes it, but no more than `room` parts. The rest goes the way of what waits. How many commands were posted.
    ///
    /// The requests are `plain` if a batch claims them, and nobody waits for any in particular.
    #[inline(always)]
    pub(crate) fn post_entered(&mut self, post: &mut impl Post, plain: bool, now: Nanos, room: u32) -> u32 {
        let (tokens, end) = (if plain { self.whole } else { self.first }, self.free);
        let mut at = self.entered;
        let most = if self.waiting.is_empty() && at != end { room } else { 0 };
        let mut left = most;
        // Which is the last is known where none is left to wait, and noted only there: the loop has no register for it.
        while left > 0 {
            let Some(slot) = self.slots.get(at as usize) else { break };
            let Some(part) = slot.only_part() else { break };
            if !post.post(&part, Token(tokens | u64::from(at) << 32), now) {
                break;
            }
            left -= 1;
            if slot.next == end {
                (self.last, at) = (at, end);
                break;
            }
            at = slot.next;
        }
        let mut done = most - left;
        self.open += done;
        self.posted += done;
        self.entered = at;
        if at != self.free {
            self.let_wait();
            let posted = self.posted;
            self.post_waiting(post, now, room - done);
            done += self.posted - posted;
        }
        done
    }

    /// The controller answered parts, all of them this queue's. Wakers of futures that are thereby finished are appended to
    /// `wakers`; call them when nothing is borrowed.
    #[inline]
    pub(crate) fn answered(&mut self, taken: &[Completed], now: Nanos, wakers: &mut Vec<Waker>) {
        // Alone it is not worth a batch.
        if let [only] = taken
            && self.disowned == 0
            && oddity(only, self.whole) == 0
        {
            self.done.push(finished(only, now));
            self.posted -= 1;
            self.open -= 1;
        } else {
            self.answered_several(taken, now, wakers);
        }
    }

    /// The same for any number of them.
    #[inline(never)]
    fn answered_several(&mut self, mut taken: &[Completed], now: Nanos, wakers: &mut Vec<Waker>) {
        if self.finish_all(taken, now) {
            return;
        }
        loop {
            let well = if self.disowned == 0 { taken.iter().take_while(|c| oddity(c, self.whole) == 0).count() } else { 0 };
            let (well, rest) = taken.split_at(well);
            self.done.extend(well.iter().map(|completed| finished(completed, now)));
            self.posted -= well.len() as u32;
            self.open -= well.len() as u32;
            let Some((odd, rest)) = rest.split_first() else { return };
            wakers.extend(self.end(odd, now));
            taken = rest;
        }
    }

    /// Finishes all of them in one pass, in which it shows whether any is odd; if so, none. Whether it did.
    #[inline(always)]
    fn finish_all(&mut self, taken: &[Completed], now: Nanos) -> bool {
        let (before, whole, mut any) = (self.done.len(), self.whole, u64::from(self.disowned));
        self.done.extend(taken.iter().map(|completed| {
            any |= oddity(completed, whole);
            finished(completed, now)
        }));
        if any != 0 {
            self.done.truncate(before);
            return false;
        }
        self.posted -= taken.len() as u32;
        self.open -= taken.len() as u32;
        true
    }

    /// Parts posted and not yet ended.
    #[inline]
    pub(crate) fn posted(&self) -> u32 {
        self.posted
    }

    /// Fails everything that is open, because nothing of it will come any more: its buffers are leaked. Wakers are appended to `wakers`.
    #[cold]
    pub(crate) fn lose_all(&mut self, now: Nanos, wakers: &mut Vec<Waker>) {
        self.fail_waiting(Failure::DeviceLost, now);
        // The slots of finished requests look open until these are reaped.
        let finished: Vec<u32> = self.done[self.reaped..].iter().map(|finished| finished.at).collect();
        for at in (0..self.slots.len() as u32).filter(|at| !finished.contains(at)) {
            while matches!(self.slots[at as usize].state, State::Open { left: 1.., .. }) {
                let lost = Completed { token: Token::new(self.soft, at, 0).0, status: LOST, ..Completed::default() };
                wakers.extend(self.end(&lost, now));
            }
        }
        self.take_ended(wakers);
    }

    /// The class of the last request of the last batch that was not empty.
    pub(crate) fn last_class(&self) -> Option<Class> {
        self.slots.get(self.last as usize).map(Slot::class)
    }

    /// What of the batch could not be posted as a whole waits.
    #[cold]
    #[inline(never)]
    fn let_wait(&mut self) {
        while self.entered != self.free {
            let last = self.entered;
            let Some(slot) = self.slots.get_mut(last as usize) else { break };
            let parts = slot.parts(0, slot.blocks);
            if let State::Open { left, .. } = &mut slot.state {
                *left = parts;
            }
            self.waiting.push_back(Waiting { slot: last, from: 0, blocks: slot.blocks });
            self.open += 1;
            (self.last, self.entered) = (last, slot.next);
        }
    }

    /// Posts what waits, in order, as long as `post` takes it, but no more than `room` parts.
    pub(crate) fn post_waiting(&mut self, post: &mut impl Post, now: Nanos, room: u32) {
        let most = self.posted.saturating_add(room);
        while let Some(mut range) = self.waiting.pop_front() {
            if !self.post_range(&mut range, post, now, most) {
                self.waiting.push_front(range);
                return;
            }
        }
    }

    /// Posts parts of a range until all of it is posted (true), or one is not taken. `range` is what is left.
    fn post_range(&mut self, range: &mut Waiting, post: &mut impl Post, now: Nanos, most: u32) -> bool {
        loop {
            let Some(slot) = self.slots.get(range.slot as usize) else { return true };
            if slot.failure().is_some() {
                self.skip(*range, Failure::DeviceLost, now);
                return true;
            }
            if self.posted >= most {
                return false;
            }
            let part: Part<'_> = slot.part(range.from, range.blocks);
            let token = Token::new(self.soft, range.slot, range.from);
            let taken = if part.op.moves_data() && !part.fua {
                post.post(&part, token, now)
            } else if let Some(command) = slot.command() {
                post.post_command(command, &part, token, now)
            } else {
                post.post_other(&part, token, now)
            };
            if !taken {
                return false;
            }
            self.posted += 1;
            range.from += part.blocks;
            range.blocks -= part.blocks;
            if range.blocks == 0 {
                return true;
            }
        }
    }

    /// A range that is not sent, because another part failed or the device is lost. `failure` counts if it is the first.
    #[cold]
    fn skip(&mut self, range: Waiting, failure: Failure, now: Nanos) {
        let Some(slot) = self.slots.get_mut(range.slot as usize) else { return };
        let parts = slot.parts(range.from, range.blocks);
        slot.trouble().failure.get_or_insert(failure);
        let State::Open { claim, left } = slot.state else { return };
        slot.state = State::Open { claim, left: left.saturating_sub(parts) };
        if left <= parts {
            let waker = self.finish(range.slot, now);
            self.ended.extend(waker);
        }
    }

    /// Takes note of how a part ended. Returns the waker of a future that is thereby finished; call it when nothing is borrowed.
    #[inline(never)]
    fn end(&mut self, completed: &Completed, now: Nanos) -> Option<Waker> {
        let (token, retry) = (Token(completed.token), self.retry);
        let (at, from) = (token.slot(), token.from());
        let slot = self.slots.get_mut(at as usize)?;
        self.posted -= 1;
        let again = |slot: &Slot, fate: Fate| fate == Fate::Again && slot.may_go_again();
        let result = match completed.status {
            status if status.is_success() => Ok(()),
            ERRNO => Err(Failure::System(completed.result as i32)),
            // Resets that the application asks for do not count: a slow thread may meet many of them with one request.
            REQUEUED_AS_ASKED if again(slot, retry.after_reset(Buffers::Returned, 0, true)) => {
                self.again(at, from, false);
                return None;
            }
            REQUEUED if again(slot, retry.after_reset(Buffers::Returned, slot.retries(), true)) => {
                self.again(at, from, true);
                return None;
            }
            REQUEUED | REQUEUED_AS_ASKED => Err(Failure::TimedOut),
            STOPPED => Err(Failure::DeviceLost),
            LOST => {
                slot.trouble().lost = true;
                Err(Failure::DeviceLost)
            }
            PATH_LOST => {
                slot.trouble().lost |= slot.is_read();
                Err(Failure::DeviceLost)
            }
            status if again(slot, retry.after_status(status, slot.retries(), true)) => {
                self.again(at, from, true);
                return None;
            }
            status => Err(Failure::Status(status)),
        };
        if let Err(failure) = result {
            slot.trouble().failure.get_or_insert(failure);
            self.skip_waiting(at, failure, now);
        }
        let slot = self.slots.get_mut(at as usize)?;
        if let Some(command) = slot.command() {
            command.result.store(completed.result, Relaxed);
        }
        let State::Open { claim, left } = slot.state else { return None };
        slot.state = State::Open { claim, left: left.saturating_sub(1) };
        if left > 1 { None } else { self.finish(at, now) }
    }

    /// What waits of a request of which a part failed is not sent. The failed part itself still counts, so this ends no
    /// request. Here, by the owner: a thread that serves the line would have nobody to tell.
    #[cold]
    fn skip_waiting(&mut self, at: u32, failure: Failure, now: Nanos) {
        let mut place = 0;
        while let Some(range) = self.waiting.get(place).copied() {
            if range.slot == at {
                self.waiting.remove(place);
                self.skip(range, failure, now);
            } else {
                place += 1;
            }
        }
    }

    /// A part is posted again, before what came later. Whether that counts towards the limit.
    #[cold]
    fn again(&mut self, at: u32, from: u32, counts: bool) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        if counts {
            let trouble = slot.trouble();
            trouble.again = trouble.again.saturating_add(1);
        }
        let blocks = slot.part(from, slot.blocks - from.min(slot.blocks)).blocks;
        self.waiting.push_front(Waiting { slot: at, from, blocks });
    }

    /// Every part of the request has ended. Returns the waker of its future.
    fn finish(&mut self, at: u32, now: Nanos) -> Option<Waker> {
        let slot = self.slots.get_mut(at as usize)?;
        let State::Open { claim, .. } = slot.state else { return None };
        self.open -= 1;
        self.urgent -= u32::from(slot.urgent);
        match claim {
            Claim::Batch => {
                self.troubled += u32::from(slot.is_troubled());
                self.done.push(Finished { at, completed_at: now });
                None
            }
            Claim::Future(ticket) => {
                let completion = slot.complete(now);
                vacate(&mut self.slots, &mut self.free, at);
                self.tickets.complete(ticket, completion).unwrap_or_else(|left| {
                    self.let_go(left);
                    None
                })
            }
            Claim::Nobody => {
                self.disowned -= 1;
                let completion = slot.complete(now);
                vacate(&mut self.slots, &mut self.free, at);
                self.let_go(completion);
                None
            }
        }
    }

    /// Nobody claims this.
    #[cold]
    fn let_go(&mut self, Completion { buf, .. }: Completion) {
        match &mut self.kept {
            Some(kept) => kept.extend(buf.filter(DmaBuf::is_registered)),
            None => drop(buf),
        }
    }

    /// The policy's record of a part that is about to end.
    #[inline]
    pub(crate) fn record(&self, token: Token, posted_at: Nanos, now: Nanos, slept: bool) -> Option<Done> {
        let slot = self.slots.get(token.slot() as usize)?;
        Some(Done { class: slot.class(), age: now - posted_at, slept })
    }

    /// Moves at most `most` finished requests that a batch claims to `out`, the longest finished first. How many.
    #[inline(never)] // Once in the program, so that what it extends with becomes one loop with it.
    pub(crate) fn take_done(&mut self, most: usize, out: &mut Vec<Completion>) -> usize {
        let Requests { slots, done, reaped, free, troubled, .. } = self;
        let due = &done[*reaped..];
        let due = &due[..most.min(due.len())];
        if *troubled == 0 {
            // An iterator of known length, over what stays in registers: nothing is moved.
            let (slots, mut first) = (slots.as_mut_slice(), *free);
            out.extend(due.iter().map(|finished| vacate(slots, &mut first, finished.at).complete_well(finished.completed_at)));
            *free = first;
        } else {
            for finished in due {
                let slot = vacate(slots, free, finished.at);
                *troubled -= u32::from(slot.is_troubled());
                out.push(slot.complete(finished.completed_at));
            }
        }
        let moved = due.len();
        *reaped += moved;
        if *reaped == done.len() {
            done.clear();
            *reaped = 0;
        } else if *reaped >= 4096 {
            done.drain(..*reaped);
            *reaped = 0;
        }
        moved
    }

    /// Gives all of them to `take` instead, one by one.
    #[inline(always)]
    pub(crate) fn take_each_done(&mut self, mut take: impl FnMut(Completion)) {
        let Requests { slots, done, reaped, free, troubled, .. } = self;
        while let Some(&Finished { at, completed_at }) = done.get(*reaped) {
            *reaped += 1;
            let slot = vacate(slots, free, at);
            if *troubled == 0 {
                take(slot.complete_well(completed_at));
            } else {
                *troubled -= u32::from(slot.is_troubled());
                take(slot.complete(completed_at));
            }
        }
        done.clear();
        *reaped = 0;
    }

    /// Every request of a batch becomes nobody's, and those finished are dropped: the software queue is gone.
    pub(crate) fn disown_all(&mut self) {
        self.take_done(usize::MAX, &mut Vec::new());
        for slot in &mut self.slots {
            if let State::Open { claim: claim @ Claim::Batch, .. } = &mut slot.state {
                *claim = Claim::Nobody;
                self.disowned += 1;
            }
        }
    }

    /// From now on registered memory of requests that nobody claims is kept, because its end is the application's code: for a thread that
    /// must not run any. [`Requests::take_kept`] follows.
    pub(crate) fn keep_registered(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// What was kept, to be dropped where the application's code may run. Nothing is kept any more.
    pub(crate) fn take_kept(&mut self) -> Vec<DmaBuf> {
        self.kept.take().unwrap_or_default()
    }

    /// From now on nothing is posted again.
    pub(crate) fn fail_retries(&mut self) {
        self.retry = RetryPolicy { limit: 0 };
    }

    /// Fails everything that waits for a tag.
    pub(crate) fn fail_waiting(&mut self, why: Failure, now: Nanos) {
        while let Some(range) = self.waiting.pop_front() {
            self.skip(range, why, now);
        }
    }

    /// Futures that finished otherwise than by [`Requests::end`]; wake them outside the lock.
    #[inline]
    pub(crate) fn take_ended(&mut self, wakers: &mut Vec<Waker>) {
        if !self.ended.is_empty() {
            wakers.append(&mut self.ended);
        }
    }
}

/// 0 in the usual case, which needs nothing of its slot now: all of a request of the table whose whole requests have the token `whole`,
/// and it went well.
#[inline(always)]
fn oddity(completed: &Completed, whole: u64) -> u64 {
    (completed.token & Token::PART_OF_QUEUE ^ whole) | u64::from(completed.status.kind().0)
}

/// That in the usual case.
#[inline(always)]
fn finished(completed: &Completed, now: Nanos) -> Finished {
    Finished { at: Token(completed.token).slot(), completed_at: now }
}

/// Makes a slot the first free one. What is in it may still be taken out. `at` is a place that the table gave out.
#[inline(always)]
fn vacate<'a>(slots: &'a mut [Slot], free: &mut u32, at: u32) -> &'a mut Slot {
    let slot = &mut slots[at as usize];
    (slot.state, slot.next) = (State::Free, *free);
    *free = at;
    slot
}

#[cfg(test)]
mod tests;
