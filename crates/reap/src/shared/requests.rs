//! The table of a software queue's open requests. A request has a slot of the table, and one *part*
//! for each command that it is split into. A command carries a token, which names its part and
//! comes back with the completion:
//!
//! ```text
//!  token:  soft (8 bits: user of the hardware queue) · slot (24 bits) · first block of the part, or WHOLE
//!
//!  free ─ enter ─► open, left = parts ─ complete, once per part ─► left = 0 ─┬─ Batch:   done ─ take_done ─► free
//!                    │          ▲                                            ├─ Future:  its ticket ───────► free
//!                    └─ waiting ┘ no tag, or retried                         └─ Dropped: nothing ──────────► free
//! ```
//!
//! The slot owns the buffer until every part has completed, so that a device never writes to memory
//! that was given back to the application. If a future is dropped or forgotten, its slot, buffer
//! and CIDs stay in use until then.
//!
//! Most requests have one part, which succeeds: `post_entered` and `complete` have fast loops for
//! these, which touch no slot twice. All other requests take the cold functions.

mod slot;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use completion::Done;
use driver::{Buffers, Completed, RetryDecision, RetryPolicy};
use hw::DmaBuf;
use units::{Class, Nanos};

use super::future_states::FutureStates;
use crate::request::{
    Completion, ERRNO, LOST, PATH_LOST, REQUEUED, REQUEUED_AS_ASKED, Request, STOPPED, Token,
};
use crate::transport::{IoCommand, Part, Post};
pub(crate) use slot::{Claim, Failure};
use slot::{NO_SLOT, Slot, SlotState};

/// How often a part is retried. Safe for every operation: while the caller has no result, executing
/// a command twice has the same effect as executing it once.
const RETRY: RetryPolicy = RetryPolicy { limit: 3 };

/// Maximum number of requests of one software queue that are open or not reaped: a token has 24
/// bits for the slot.
const MAX_REQUESTS: usize = 1 << 24;

/// Initial size of a table. It doubles when needed, and never shrinks.
const MIN_SLOTS: usize = 64;

/// A range of blocks of a request that waits to be posted. A Flush is a range without blocks, which
/// is one part all the same.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    slot: u32,
    from: u32,
    blocks: u32,
}

/// A request that can be reaped. Its slot is freed only when it is reaped: so the completion is
/// built in the caller's vector, and not moved.
#[derive(Clone, Copy, Debug)]
struct Finished {
    at: u32,
    completed_at: Nanos,
}

/// The open requests of one software queue.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The index of the software queue among the users of its hardware queue.
    soft: u8,
    /// The token of the first part of the request in slot 0.
    first: u64,
    /// The token of the request in slot 0, if it is one part and of [`Claim::Batch`]
    /// ([`Token::WHOLE`]).
    whole: u64,
    slots: Vec<Slot>,
    /// The first free slot: head of the list that `Slot::next` links.
    free: u32,
    /// The first slot of the batch that is being entered. Entered slots keep their links, so the
    /// list from this slot to `free` is the batch.
    entered: u32,
    /// The last request of the last batch.
    last: u32,
    /// Finished requests of [`Claim::Batch`], in the order of completion. The first `reaped`
    /// entries have been reaped.
    done: Vec<Finished>,
    reaped: usize,
    /// How many finished requests that are not reaped have a `SlotExtra`.
    with_extra: u32,
    /// Number of open requests of [`Claim::Dropped`].
    unclaimed: u32,
    /// The states of futures.
    tickets: Arc<FutureStates>,
    /// Ranges that wait to be posted, in order.
    waiting: VecDeque<Waiting>,
    open: u32,
    urgent: u32,
    /// Number of parts in flight.
    posted: u32,
    retry: RetryPolicy,
    /// See [`Requests::take_ended`].
    ended: Vec<Waker>,
    /// See [`Requests::defer_drops`].
    deferred_drops: Option<Vec<DmaBuf>>,
}

impl Requests {
    pub(crate) fn new(soft: u8) -> Requests {
        Requests {
            soft,
            first: Token::new(soft, 0, 0).0,
            whole: Token::new(soft, 0, 0).0 | Token::WHOLE,
            slots: Vec::new(),
            free: NO_SLOT,
            entered: NO_SLOT,
            last: NO_SLOT,
            done: Vec::with_capacity(256),
            reaped: 0,
            with_extra: 0,
            unclaimed: 0,
            tickets: Arc::default(),
            waiting: VecDeque::with_capacity(64),
            open: 0,
            urgent: 0,
            posted: 0,
            retry: RETRY,
            ended: Vec::new(),
            deferred_drops: None,
        }
    }

    /// The states of futures.
    pub(crate) fn tickets(&self) -> &Arc<FutureStates> {
        &self.tickets
    }

    /// Number of requests that are not finished.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    /// Number of open requests that are marked urgent.
    #[inline]
    pub(crate) fn urgent(&self) -> u32 {
        self.urgent
    }

    /// Number of finished requests that [`Requests::take_done`] can take.
    #[inline]
    pub(crate) fn done(&self) -> u32 {
        (self.done.len() - self.reaped) as u32
    }

    /// Whether any part waits to be posted.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Begins a batch.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.entered = self.free;
    }

    /// Doubles the number of slots. Returns false if the table is at its limit. The free list must
    /// be empty.
    #[cold]
    fn grow(&mut self) -> bool {
        let first = self.slots.len();
        let end = (2 * first).clamp(MIN_SLOTS, MAX_REQUESTS);
        if first == end {
            return false;
        }
        let next = |at: usize| if at + 1 < end { at as u32 + 1 } else { NO_SLOT };
        self.slots.extend((first..end).map(|at| Slot::free(next(at))));
        self.free = first as u32;
        if self.entered == NO_SLOT {
            self.entered = self.free;
            return true;
        }
        // The list of the batch must continue with the new slots.
        let mut last = self.entered;
        while self.slots[last as usize].next != NO_SLOT {
            last = self.slots[last as usize].next;
        }
        self.slots[last as usize].next = self.free;
        true
    }

    /// Enters a checked request into the batch. Must be followed by [`Requests::post_entered`].
    ///
    /// # Errors
    /// No slot is free: see [`Requests::enter_growing`].
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        request: Request,
        claim: Claim,
        now: Nanos,
    ) -> Result<(), Request> {
        let Some(slot) = self.slots.get_mut(self.free as usize) else { return Err(request) };
        debug_assert_eq!(slot.state, SlotState::Free);
        self.free = slot.next;
        self.urgent += u32::from(request.urgent);
        slot.fill(request, claim, now);
        Ok(())
    }

    /// Makes the first request of the batch an I/O command that the caller has built.
    pub(crate) fn set_command(&mut self, command: Box<IoCommand>) {
        if let Some(slot) = self.slots.get_mut(self.entered as usize) {
            slot.extra().command = Some(command);
        }
    }

    /// [`Requests::enter`], after growing the table if necessary. Returns the request back if the
    /// table is at its limit.
    #[cold]
    pub(crate) fn enter_growing(
        &mut self,
        request: Request,
        claim: Claim,
        now: Nanos,
    ) -> Option<Request> {
        if self.free != NO_SLOT || self.grow() {
            self.enter(request, claim, now).err()
        } else {
            Some(request)
        }
    }

    /// Posts the batch, up to `room` parts; the rest waits. Returns the number of commands posted.
    ///
    /// `plain`: all requests are of [`Claim::Batch`], and none is urgent. The tokens then have
    /// [`Token::WHOLE`], so that their completions need not read the slots.
    #[inline(always)]
    pub(crate) fn post_entered(
        &mut self,
        post: &mut impl Post,
        plain: bool,
        now: Nanos,
        room: u32,
    ) -> u32 {
        let (tokens, end) = (if plain { self.whole } else { self.first }, self.free);
        let mut at = self.entered;
        // If requests wait, this batch must be posted after them, so the fast loop posts nothing.
        let max = if self.waiting.is_empty() && at != end { room } else { 0 };
        let mut left = max;
        // `last` is stored only when the whole batch is posted, because the loop has no register
        // for it.
        while left > 0 {
            let Some(slot) = self.slots.get(at as usize) else { break };
            // Stops at the first request that is split or moves no data.
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
        let mut done = max - left;
        self.open += done;
        self.posted += done;
        self.entered = at;
        if at != self.free {
            // The rest is posted by the general function, after the requests that wait already.
            self.queue_rest();
            let posted = self.posted;
            self.post_waiting(post, now, room - done);
            done += self.posted - posted;
        }
        done
    }

    /// Processes completions of parts of this queue. Appends the wakers of finished futures to
    /// `wakers`; the caller calls them when nothing is borrowed.
    #[inline]
    pub(crate) fn complete(&mut self, taken: &[Completed], now: Nanos, wakers: &mut Vec<Waker>) {
        // At queue depth 1 this avoids the set-up of the loop.
        if let [only] = taken
            && self.unclaimed == 0
            && special_bits(only, self.whole) == 0
        {
            self.done.push(finished(only, now));
            self.posted -= 1;
            self.open -= 1;
        } else {
            self.complete_several(taken, now, wakers);
        }
    }

    /// [`Requests::complete`] for any number of completions.
    #[inline(never)]
    fn complete_several(&mut self, mut taken: &[Completed], now: Nanos, wakers: &mut Vec<Waker>) {
        if self.try_finish_all(taken, now) {
            return;
        }
        // Some completion is special. In order, finish runs of usual completions, and each special
        // one by itself.
        loop {
            let usual = if self.unclaimed == 0 {
                taken.iter().take_while(|c| special_bits(c, self.whole) == 0).count()
            } else {
                0
            };
            let (usual, rest) = taken.split_at(usual);
            self.done.extend(usual.iter().map(|completed| finished(completed, now)));
            self.posted -= usual.len() as u32;
            self.open -= usual.len() as u32;
            let Some((special, rest)) = rest.split_first() else { return };
            wakers.extend(self.end_part(special, now));
            taken = rest;
        }
    }

    /// If no completion is special, finishes all requests and returns true. Otherwise changes
    /// nothing and returns false.
    #[inline(always)]
    fn try_finish_all(&mut self, taken: &[Completed], now: Nanos) -> bool {
        // One pass without a branch: appends all completions to `done`, and collects their special
        // bits. If there are any, `done` is truncated again.
        let (before, whole, mut any) = (self.done.len(), self.whole, u64::from(self.unclaimed));
        self.done.extend(taken.iter().map(|completed| {
            any |= special_bits(completed, whole);
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

    /// Number of parts in flight.
    #[inline]
    pub(crate) fn posted(&self) -> u32 {
        self.posted
    }

    /// Fails all open requests, and leaks their buffers: the device may still write to them, and no
    /// completion will be reaped. Appends wakers to `wakers`.
    #[cold]
    pub(crate) fn lose_all(&mut self, now: Nanos, wakers: &mut Vec<Waker>) {
        self.fail_waiting(Failure::DeviceLost, now);
        // The slots of finished requests stay `Open` until the requests are reaped.
        let finished: Vec<u32> =
            self.done[self.reaped..].iter().map(|finished| finished.at).collect();
        for at in (0..self.slots.len() as u32).filter(|at| !finished.contains(at)) {
            while matches!(self.slots[at as usize].state, SlotState::Open { left: 1.., .. }) {
                let lost = Completed {
                    token: Token::new(self.soft, at, 0).0,
                    status: LOST,
                    ..Completed::default()
                };
                wakers.extend(self.end_part(&lost, now));
            }
        }
        self.take_ended(wakers);
    }

    /// The class of the last request of the last non-empty batch.
    pub(crate) fn last_class(&self) -> Option<Class> {
        self.slots.get(self.last as usize).map(Slot::class)
    }

    /// Moves the rest of the batch to `waiting`.
    #[cold]
    #[inline(never)]
    fn queue_rest(&mut self) {
        while self.entered != self.free {
            let last = self.entered;
            let Some(slot) = self.slots.get_mut(last as usize) else { break };
            let parts = slot.parts(0, slot.blocks);
            if let SlotState::Open { left, .. } = &mut slot.state {
                *left = parts;
            }
            self.waiting.push_back(Waiting { slot: last, from: 0, blocks: slot.blocks });
            self.open += 1;
            (self.last, self.entered) = (last, slot.next);
        }
    }

    /// Posts waiting parts in order, up to `room` parts, until `post` accepts no more.
    pub(crate) fn post_waiting(&mut self, post: &mut impl Post, now: Nanos, room: u32) {
        let max = self.posted.saturating_add(room);
        while let Some(mut range) = self.waiting.pop_front() {
            if !self.post_range(&mut range, post, now, max) {
                self.waiting.push_front(range);
                return;
            }
        }
    }

    /// Posts parts of a range, until `max` parts are in flight or `post` accepts no more. Returns
    /// true if the whole range is posted; otherwise `range` is then the rest.
    fn post_range(
        &mut self,
        range: &mut Waiting,
        post: &mut impl Post,
        now: Nanos,
        max: u32,
    ) -> bool {
        loop {
            let Some(slot) = self.slots.get(range.slot as usize) else { return true };
            // Another part has failed, so the request fails anyway, with that first failure.
            if slot.failure().is_some() {
                self.fail_range(*range, Failure::DeviceLost, now);
                return true;
            }
            if self.posted >= max {
                return false;
            }
            let part: Part<'_> = slot.part(range.from, range.blocks);
            let token = Token::new(self.soft, range.slot, range.from);
            let accepted = if part.op.transfers_blocks() && !part.fua {
                post.post(&part, token, now)
            } else if let Some(command) = slot.command() {
                post.post_command(command, &part, token, now)
            } else {
                post.post_other(&part, token, now)
            };
            if !accepted {
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

    /// Ends the parts of a range without posting them. The request fails with `failure`, unless it
    /// has failed already.
    #[cold]
    fn fail_range(&mut self, range: Waiting, failure: Failure, now: Nanos) {
        let Some(slot) = self.slots.get_mut(range.slot as usize) else { return };
        let parts = slot.parts(range.from, range.blocks);
        slot.extra().failure.get_or_insert(failure);
        let SlotState::Open { claim, left } = slot.state else { return };
        slot.state = SlotState::Open { claim, left: left.saturating_sub(parts) };
        if left <= parts {
            let waker = self.finish(range.slot, now);
            self.ended.extend(waker);
        }
    }

    /// Processes the completion of one part, of any kind. If that finishes a future, returns the
    /// future's waker, to be called when nothing is borrowed.
    #[inline(never)]
    fn end_part(&mut self, completed: &Completed, now: Nanos) -> Option<Waker> {
        let (token, retry) = (Token(completed.token), self.retry);
        let (at, from) = (token.slot(), token.from());
        let slot = self.slots.get_mut(at as usize)?;
        self.posted -= 1;
        let again =
            |slot: &Slot, fate: RetryDecision| fate == RetryDecision::Retry && slot.may_retry();
        let result = match completed.status {
            status if status.is_success() => Ok(()),
            ERRNO => Err(Failure::System(completed.result as i32)),
            // A retry after a reset that the application has requested does not count: there may be
            // many such resets during one request of a slow thread.
            REQUEUED_AS_ASKED if again(slot, retry.after_reset(Buffers::Returned, 0, true)) => {
                self.requeue(at, from, false);
                return None;
            }
            REQUEUED if again(slot, retry.after_reset(Buffers::Returned, slot.retries(), true)) => {
                self.requeue(at, from, true);
                return None;
            }
            // The retries are used up.
            REQUEUED | REQUEUED_AS_ASKED => Err(Failure::TimedOut),
            // The controller has stopped, and does not access the buffer any more.
            STOPPED => Err(Failure::DeviceLost),
            LOST => {
                // The controller may not have stopped, and may still access the buffer.
                slot.extra().lost = true;
                Err(Failure::DeviceLost)
            }
            PATH_LOST => {
                // Another path may take the request. The lost controller may still write, but only
                // to the buffer of a Read.
                slot.extra().lost |= slot.is_read();
                Err(Failure::DeviceLost)
            }
            status if again(slot, retry.after_status(status, slot.retries(), true)) => {
                self.requeue(at, from, true);
                return None;
            }
            status => Err(Failure::Status(status)),
        };
        if let Err(failure) = result {
            slot.extra().failure.get_or_insert(failure);
            self.fail_waiting_parts(at, failure, now);
        }
        let slot = self.slots.get_mut(at as usize)?;
        // Dword 0, which only commands that the caller built return. Stored before the future's
        // ticket is completed.
        if let Some(command) = slot.command() {
            command.result.store(completed.result, Relaxed);
        }
        let SlotState::Open { claim, left } = slot.state else { return None };
        slot.state = SlotState::Open { claim, left: left.saturating_sub(1) };
        if left > 1 { None } else { self.finish(at, now) }
    }

    /// After a part of a request has failed: ends the request's parts that wait. The failed part is
    /// still counted in `left`, so this does not finish the request.
    #[cold]
    fn fail_waiting_parts(&mut self, at: u32, failure: Failure, now: Nanos) {
        let mut index = 0;
        while let Some(range) = self.waiting.get(index).copied() {
            if range.slot == at {
                self.waiting.remove(index);
                self.fail_range(range, failure, now);
            } else {
                index += 1;
            }
        }
    }

    /// Queues a part for a retry, before all waiting parts. `counts`: the retry counts towards the
    /// limit.
    #[cold]
    fn requeue(&mut self, at: u32, from: u32, counts: bool) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        if counts {
            let extra = slot.extra();
            extra.retries = extra.retries.saturating_add(1);
        }
        // The token has only the part's first block. Splitting again gives the part's length.
        let blocks = slot.part(from, slot.blocks - from.min(slot.blocks)).blocks;
        self.waiting.push_front(Waiting { slot: at, from, blocks });
    }

    /// Finishes a request whose parts have all ended. Returns the waker of its future, if any.
    fn finish(&mut self, at: u32, now: Nanos) -> Option<Waker> {
        let slot = self.slots.get_mut(at as usize)?;
        let SlotState::Open { claim, .. } = slot.state else { return None };
        self.open -= 1;
        self.urgent -= u32::from(slot.urgent);
        match claim {
            Claim::Batch => {
                self.with_extra += u32::from(slot.has_extra());
                self.done.push(Finished { at, completed_at: now });
                None
            }
            Claim::Future(ticket) => {
                let completion = slot.complete(now);
                free_slot(&mut self.slots, &mut self.free, at);
                self.tickets.complete(ticket, completion).unwrap_or_else(|left| {
                    // The future was dropped.
                    self.discard(left);
                    None
                })
            }
            Claim::Dropped => {
                self.unclaimed -= 1;
                let completion = slot.complete(now);
                free_slot(&mut self.slots, &mut self.free, at);
                self.discard(completion);
                None
            }
        }
    }

    /// Drops a completion that has no receiver.
    #[cold]
    fn discard(&mut self, Completion { buf, .. }: Completion) {
        match &mut self.deferred_drops {
            Some(kept) => kept.extend(buf.filter(DmaBuf::is_registered)),
            None => drop(buf),
        }
    }

    /// The record, for policies, of a part that has completed. Call this before
    /// [`Requests::complete`].
    #[inline]
    pub(crate) fn record(
        &self,
        token: Token,
        posted_at: Nanos,
        now: Nanos,
        slept: bool,
    ) -> Option<Done> {
        let slot = self.slots.get(token.slot() as usize)?;
        Some(Done { class: slot.class(), age: now - posted_at, slept })
    }

    /// Moves at most `max` finished requests to `out`, in the order of completion. Returns their
    /// number.
    #[inline(never)] // Instantiated once, so that `extend` and its iterator become one loop.
    pub(crate) fn take_done(&mut self, max: usize, out: &mut Vec<Completion>) -> usize {
        let Requests { slots, done, reaped, free, with_extra, .. } = self;
        let due = &done[*reaped..];
        let due = &due[..max.min(due.len())];
        if *with_extra == 0 {
            // `extend` with an iterator of known length reserves once, and builds each completion
            // in place.
            let (slots, mut first) = (slots.as_mut_slice(), *free);
            out.extend(due.iter().map(|finished| {
                free_slot(slots, &mut first, finished.at).complete_ok(finished.completed_at)
            }));
            *free = first;
        } else {
            for finished in due {
                let slot = free_slot(slots, free, finished.at);
                *with_extra -= u32::from(slot.has_extra());
                out.push(slot.complete(finished.completed_at));
            }
        }
        let moved = due.len();
        *reaped += moved;
        if *reaped == done.len() {
            done.clear();
            *reaped = 0;
        } else if *reaped >= 4096 {
            // If a caller never reaps all, the vector would grow without limit. This moves entries
            // only rarely.
            done.drain(..*reaped);
            *reaped = 0;
        }
        moved
    }

    /// As [`Requests::take_done`] for all finished requests, but passes each to `take`.
    #[inline(always)]
    pub(crate) fn take_each_done(&mut self, mut take: impl FnMut(Completion)) {
        let Requests { slots, done, reaped, free, with_extra, .. } = self;
        // If `take` panics, the requests that it has taken are not given out again.
        while let Some(&Finished { at, completed_at }) = done.get(*reaped) {
            *reaped += 1;
            let slot = free_slot(slots, free, at);
            if *with_extra == 0 {
                take(slot.complete_ok(completed_at));
            } else {
                *with_extra -= u32::from(slot.has_extra());
                take(slot.complete(completed_at));
            }
        }
        done.clear();
        *reaped = 0;
    }

    /// The software queue is gone: drops finished requests, and marks open requests of batches so
    /// that they are dropped when they finish. Requests of futures are not affected.
    pub(crate) fn unclaim_all(&mut self) {
        self.take_done(usize::MAX, &mut Vec::new());
        for slot in &mut self.slots {
            if let SlotState::Open { claim: claim @ Claim::Batch, .. } = &mut slot.state {
                *claim = Claim::Dropped;
                self.unclaimed += 1;
            }
        }
    }

    /// For the housekeeping thread: from now on the registered memory of requests without a
    /// receiver is kept, because dropping it runs the application's code. Must be followed by
    /// [`Requests::take_deferred_drops`].
    pub(crate) fn defer_drops(&mut self) {
        self.deferred_drops.get_or_insert_default();
    }

    /// Ends [`Requests::defer_drops`]. Returns the memory that was kept, to be dropped on another
    /// thread.
    pub(crate) fn take_deferred_drops(&mut self) -> Vec<DmaBuf> {
        self.deferred_drops.take().unwrap_or_default()
    }

    /// From now on no part is retried.
    pub(crate) fn fail_retries(&mut self) {
        self.retry = RetryPolicy { limit: 0 };
    }

    /// Fails all parts that wait to be posted.
    pub(crate) fn fail_waiting(&mut self, why: Failure, now: Nanos) {
        while let Some(range) = self.waiting.pop_front() {
            self.fail_range(range, why, now);
        }
    }

    /// Moves the wakers of futures that finished without a completion of the device to `wakers`.
    /// The caller calls them when nothing is borrowed.
    #[inline]
    pub(crate) fn take_ended(&mut self, wakers: &mut Vec<Waker>) {
        if !self.ended.is_empty() {
            wakers.append(&mut self.ended);
        }
    }
}

/// 0 for a usual completion: the token has [`Token::WHOLE`], and the command has succeeded (Status
/// Code Type and Status Code 0). Its slot need not be read. `whole`: the token bits of such
/// requests of this table.
#[inline(always)]
fn special_bits(completed: &Completed, whole: u64) -> u64 {
    (completed.token & Token::ALL_BUT_SLOT ^ whole) | u64::from(completed.status.kind().0)
}

/// The finished request of a usual completion.
#[inline(always)]
fn finished(completed: &Completed, now: Nanos) -> Finished {
    Finished { at: Token(completed.token).slot(), completed_at: now }
}

/// Makes slot `at`, which must be a slot of this table, the first free one. Returns the slot, so
/// that the caller can take the buffer out.
#[inline(always)]
fn free_slot<'a>(slots: &'a mut [Slot], free: &mut u32, at: u32) -> &'a mut Slot {
    let slot = &mut slots[at as usize];
    (slot.state, slot.next) = (SlotState::Free, *free);
    *free = at;
    slot
}

#[cfg(test)]
mod tests;
