//! One thread's open requests over several paths.
//!
//! `driver::multipath::Failover` decides which paths a request may take and what happens when one
//! fails; the selector (`driver::paths`) chooses among them; this table carries that out. A
//! request's buffer is either here or with the path queue that it was sent to, never in both.
//!
//! ```text
//!   submit ─► staged (a path's batch) ─► in flight ─► complete ──ok──► done / future
//!       └──► waits for a path ──┘ ▲                      │ failed
//!                                 └──── pump: retry ◄────┘
//! ```

use std::sync::Arc;
use std::task::Waker;

use driver::multipath::{
    Action, CompletionOutcome, Failover, Failure, PathSnapshot, PathUpdate, RequestId, Submitted,
};
use driver::paths::{PathId, PathSet, Selector, Token};
use hw::DmaBuf;
use nvme::Status;
use units::{Class, Nanos, Op};

use super::shared::Multipath;
use crate::error::{IoError, Refused};
use crate::instant::Instant;
use crate::namespace::Namespace;
use crate::request::{Completion, Modifiers, Request};
use crate::shared::future_states::FutureStates;

/// Where the completion of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// To the next reap.
    Batch,
    /// To a future, by its ticket.
    Future(u32),
    /// Nowhere: it is one controller's part of a Flush.
    Part,
}

/// A request, or one controller's part of a Flush.
struct RequestSlot {
    op: Op,
    modifiers: Modifiers,
    urgent: bool,
    claim: Claim,
    bytes: u64,
    lba: u64,
    tag: u64,
    buf: Option<DmaBuf>,
    submitted_at: Nanos,
    /// While it is in flight: its identifiers in the failover and in the selector's counts.
    sent: Option<(RequestId, Token)>,
    /// The next free slot.
    next: u32,
}

/// The end of the list of free slots.
const END_OF_LIST: u32 = u32::MAX;

/// The request table of one thread.
pub(super) struct MultipathRequests {
    failover: Failover,
    selector: Selector,
    slots: Vec<RequestSlot>,
    free: u32,
    /// Requests that have not completed.
    pub open: u32,
    /// Of these, the ones that futures wait for.
    futures: u32,
    /// The state of these futures.
    pub tickets: Arc<FutureStates>,
    /// Completed requests, not reaped yet.
    pub done: Vec<Completion>,
    /// By path, the slots of requests to be sent with the next doorbell.
    batches: Vec<Vec<u32>>,
    /// Whether any batch is not empty.
    pub staged: bool,
    /// The state of each path that the failover knows of.
    last_standing: Vec<PathSnapshot>,
    /// The change count of the path states that the failover knows of.
    pub changes: u64,
    pub wakers: Vec<Waker>,
    /// Registered memory of requests whose futures were dropped. Dropping it runs application code,
    /// so it is dropped only when neither this table nor a path's queue is borrowed.
    pub unclaimed: Vec<DmaBuf>,
}

impl MultipathRequests {
    pub(super) fn new(
        shared: &Multipath,
        failover: Failover,
        selector: Selector,
    ) -> MultipathRequests {
        let paths = shared.controllers().len();
        MultipathRequests {
            failover,
            selector,
            slots: Vec::with_capacity(256),
            free: END_OF_LIST,
            open: 0,
            futures: 0,
            tickets: Arc::default(),
            done: Vec::with_capacity(256),
            batches: (0..paths).map(|_| Vec::with_capacity(64)).collect(),
            staged: false,
            last_standing: vec![PathSnapshot::NEVER_UP; paths],
            changes: u64::MAX,
            wakers: Vec::new(),
            unclaimed: Vec::new(),
        }
    }

    /// Sets the CPU that the thread runs on.
    pub(super) fn set_cpu(&mut self, shared: &Multipath, cpu: usize) {
        self.selector.set_node(shared.nodes.of(cpu));
    }

    /// Gives up all requests in flight, because the thread is gone. Calls `abandoned` with the path
    /// of each.
    pub(super) fn abandon_all(&mut self, mut abandoned: impl FnMut(PathId)) {
        // Otherwise the selector would count them in flight for good.
        for (_, token) in self.slots.iter_mut().filter_map(|slot| slot.sent.take()) {
            abandoned(token.path());
            self.selector.abandon(token);
        }
        debug_assert!(
            (0..self.batches.len()).all(|path| self.selector.in_flight(PathId(path as u8)) == 0),
            "something is still counted"
        );
    }

    /// When [`MultipathRequests::tick`] matters next.
    pub(super) fn next_deadline(&self) -> Nanos {
        self.failover.next_deadline()
    }

    /// Whether a future waits for any open request.
    pub(super) fn has_futures(&self) -> bool {
        self.futures > 0
    }

    /// Failover counters.
    pub(super) fn counters(&self) -> driver::multipath::MultipathCounters {
        self.failover.counters()
    }

    #[inline]
    fn free_slot(&mut self) -> u32 {
        if self.free == END_OF_LIST {
            self.grow();
        }
        self.free
    }

    #[cold]
    fn grow(&mut self) {
        self.free = self.slots.len() as u32;
        self.slots.push(RequestSlot::free());
    }

    /// Adds a checked request: it is staged for a path, or waits for one.
    #[inline]
    pub(super) fn submit(&mut self, request: Request, claim: Claim, now: Nanos) {
        let at = self.free_slot();
        let MultipathRequests { failover, slots, selector, .. } = self;
        let Some(slot) = slots.get_mut(at as usize) else { return };
        self.free = slot.next;
        self.open += 1;
        self.futures += u32::from(matches!(claim, Claim::Future(_)));
        let (op, class) = (request.op, class_of(&request));
        slot.fill(request, claim, now);
        // The failover calls back with the paths that are allowed; the selector's token is kept
        // here.
        let mut chosen = None;
        let choose = |among: PathSet| {
            chosen = selector.send_next(among, class, now);
            chosen.map_or(PathId(0), |token| token.path())
        };
        match failover.submit(now, at.into(), op, choose) {
            Submitted::Send { request, path } => {
                let token = chosen.filter(|token| token.path() == path);
                // The failover may restrict the choice after the selector has made it.
                let token = token.unwrap_or_else(|| self.recount(chosen, path, class, now));
                self.stage(at, request, token);
            }
            // It stays in its slot until a path is usable.
            Submitted::Queued => {}
            Submitted::Refused(failure) => self.finish_unsent(at, Err(failure.into()), now),
        }
    }

    /// Adds a request to the batch of its path.
    #[inline]
    fn stage(&mut self, at: u32, id: RequestId, token: Token) {
        let MultipathRequests { slots, batches, .. } = self;
        let (Some(slot), Some(batch)) =
            (slots.get_mut(at as usize), batches.get_mut(token.path().index()))
        else {
            return;
        };
        slot.sent = Some((id, token));
        batch.push(at);
        self.staged = true;
    }

    /// Moves the selector's count to the path that is taken in place of the chosen one.
    #[cold]
    fn recount(&mut self, chosen: Option<Token>, path: PathId, class: Class, now: Nanos) -> Token {
        if let Some(token) = chosen {
            self.selector.abandon(token);
        }
        self.selector.start(path, class, now)
    }

    /// Takes the batch of a path to send it; [`MultipathRequests::sent`] returns it.
    #[inline]
    pub(super) fn take_batch(&mut self, path: usize) -> Option<Vec<u32>> {
        self.batches.get_mut(path).filter(|batch| !batch.is_empty()).map(std::mem::take)
    }

    /// The requests of a batch, with their buffers, for the path's queue.
    #[inline]
    pub(super) fn requests<'a>(
        &'a mut self,
        batch: &'a mut std::slice::Iter<'_, u32>,
        namespace: &'a Namespace,
    ) -> impl Iterator<Item = Request> + 'a {
        batch.filter_map(|&at| Some(self.slots.get_mut(at as usize)?.request(namespace, at)))
    }

    /// Returns the memory of a batch that was sent.
    #[inline]
    pub(super) fn sent(&mut self, path: usize, mut batch: Vec<u32>) {
        batch.clear();
        if let Some(place) = self.batches.get_mut(path).filter(|place| place.is_empty()) {
            *place = batch;
        }
    }

    /// A path's queue has completed a request.
    #[inline(always)] // Inlined into the loop over a path's completions, so that they stay in registers.
    pub(super) fn complete(&mut self, shared: &Multipath, completion: Completion) {
        if let Err(why) = completion.result {
            return self.complete_failed(shared, completion, why);
        }
        let Completion { tag, buf, .. } = completion;
        let (submitted_at, completed_at) =
            (completion.submitted_at.nanos(), completion.completed_at.nanos());
        let at = tag as u32;
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        // A completion of a request that was given up already: nothing to do.
        let Some((id, token)) = slot.sent.take() else { return };
        self.selector.end(token, completed_at - submitted_at, completed_at);
        let part = slot.claim == Claim::Part;
        match self.failover.ended(completed_at, id, token.path(), Status::SUCCESS) {
            // Nearly always the request itself is done, and its buffer goes straight to the caller.
            CompletionOutcome::Done { token, status }
                if token as u32 == at && status.is_success() =>
            {
                self.finish(at, Ok(()), buf, completed_at);
            }
            CompletionOutcome::Done { token, status } => {
                self.ended(token as u32, status, completed_at)
            }
            // A Flush with other parts in flight, or a request that the failover has given up.
            CompletionOutcome::Continues | CompletionOutcome::Stale => self.keep(at, buf),
        }
        // A part's slot is not the request's: release it separately.
        if part {
            self.release_slot(at);
        }
    }

    /// Stores the buffer of a request that goes on.
    #[cold]
    fn keep(&mut self, at: u32, buf: Option<DmaBuf>) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.buf = buf;
        }
    }

    /// As [`MultipathRequests::complete`], for a request that failed on its path.
    #[cold]
    fn complete_failed(
        &mut self,
        shared: &Multipath,
        Completion { tag, buf, completed_at, .. }: Completion,
        why: IoError,
    ) {
        let now = completed_at.nanos();
        let at = tag as u32;
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        let Some((id, token)) = slot.sent.take() else { return };
        self.selector.abandon(token);
        slot.buf = buf;
        let part = slot.claim == Claim::Part;
        let ended = match why {
            IoError::Status(status) => self.failover.ended(now, id, token.path(), status),
            IoError::Refused(why) => {
                // The path's queue checks what was checked here already, so it can only be full.
                tracing::warn!(path = token.path().0, %why, "a path did not take a request");
                self.failover.ended(now, id, token.path(), Status::ABORT_REQUESTED)
            }
            // The path was reset, or is lost. Whether the request may be sent elsewhere depends on
            // what becomes of the path, which `read_path_states` finds out. A lost path may still
            // write to the buffer of a Read, so the Read gets a new one.
            _ => {
                if slot.buf.is_none() && slot.op == Op::Read {
                    slot.buf = shared.pool.alloc(slot.bytes as usize).ok();
                }
                CompletionOutcome::Continues
            }
        };
        if let CompletionOutcome::Done { token, status } = ended {
            self.ended(token as u32, status, now);
        }
        if part {
            self.release_slot(at);
        }
    }

    #[inline]
    fn ended(&mut self, at: u32, status: Status, now: Nanos) {
        let result = if status.is_success() { Ok(()) } else { Err(IoError::Status(status)) };
        self.finish_unsent(at, result, now);
    }

    /// Completes a request that is not in flight: its buffer is in its slot.
    #[inline(never)]
    fn finish_unsent(&mut self, at: u32, result: Result<(), IoError>, now: Nanos) {
        let buf = self.slots.get_mut(at as usize).and_then(|slot| slot.buf.take());
        self.finish(at, result, buf, now);
    }

    #[inline(always)] // The end of nearly every request.
    fn finish(&mut self, at: u32, result: Result<(), IoError>, buf: Option<DmaBuf>, now: Nanos) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        let completion = Completion {
            tag: slot.tag,
            result,
            buf,
            submitted_at: Instant::of(slot.submitted_at),
            completed_at: Instant::of(now),
        };
        let claim = slot.claim;
        self.open -= 1;
        self.release_slot(at);
        match claim {
            Claim::Batch => self.done.push(completion),
            Claim::Future(ticket) => {
                self.futures -= 1;
                match self.tickets.complete(ticket, completion) {
                    Ok(waker) => self.wakers.extend(waker),
                    // The future was dropped. Pool buffers may be dropped here; registered memory
                    // may not.
                    Err(left) => self.unclaimed.extend(left.buf.filter(DmaBuf::is_registered)),
                }
            }
            Claim::Part => {}
        }
    }

    #[inline]
    fn release_slot(&mut self, at: u32) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.next = std::mem::replace(&mut self.free, at);
        }
    }

    /// Passes changes of the path states to the failover. `drained`: a path has no request in
    /// flight.
    #[cold]
    pub(super) fn read_path_states(
        &mut self,
        shared: &Multipath,
        now: Nanos,
        drained: impl Fn(PathId) -> bool,
    ) {
        let changes = shared.path_states.changes();
        let mut all = true;
        for (n, seen) in self.last_standing.iter_mut().enumerate() {
            let path = PathId(n as u8);
            let snapshot = shared.path_states.snapshot(path);
            match self.failover.update_path(now, path, seen, snapshot, || drained(path)) {
                PathUpdate::Applied => {}
                // Latencies from before the loss say nothing about the path now.
                PathUpdate::CameUp => self.selector.forget(path),
                // Its requests were returned and wait in the inbox of the path's queue: ask again
                // when they are taken.
                PathUpdate::Deferred => all = false,
            }
        }
        if shared.path_states.fails_pending() {
            self.failover.fail_pending(now);
        }
        // Otherwise the change is read again at the next poll.
        if all {
            self.changes = changes;
        }
    }

    /// Fails requests that have waited too long for a path.
    pub(super) fn tick(&mut self, now: Nanos) {
        if now >= self.failover.next_deadline() {
            self.failover.tick(now);
        }
    }

    /// Carries out the failover's actions. Retries are staged.
    #[inline]
    pub(super) fn pump(&mut self, shared: &Multipath, now: Nanos) {
        loop {
            let MultipathRequests { failover, slots, selector, .. } = self;
            let mut chosen = None;
            let choose = |token: u64, among: PathSet| {
                let class =
                    slots.get(token as usize).map_or(Class::new(Op::Flush, 0), RequestSlot::class);
                // Each retry may be a batch of its own.
                selector.begin(now);
                chosen = selector.send_next(among, class, now);
                chosen.map_or(PathId(0), |token| token.path())
            };
            let Some(action) = failover.poll(now, choose) else { return };
            self.execute(shared, action, chosen, now);
        }
    }

    #[cold]
    fn execute(&mut self, shared: &Multipath, action: Action, chosen: Option<Token>, now: Nanos) {
        match action {
            Action::Send { request, token, path } => {
                let is_flush =
                    self.slots.get(token as usize).is_some_and(|slot| slot.op == Op::Flush);
                // A Flush goes to every controller that was written to: each part has a slot of its
                // own.
                let at = if is_flush { self.new_part(now) } else { token as u32 };
                let class = self
                    .slots
                    .get(at as usize)
                    .map_or(Class::new(Op::Flush, 0), RequestSlot::class);
                let token = chosen.filter(|token| token.path() == path);
                let token = token.unwrap_or_else(|| self.recount(chosen, path, class, now));
                self.stage(at, request, token);
            }
            Action::Complete { token, status } => self.ended(token as u32, status, now),
            Action::Fail { token, failure } => {
                self.finish_unsent(token as u32, Err(failure.into()), now)
            }
            Action::ReadAna(path) => shared.request_refresh(path),
            Action::Reset(path) => shared.request_reset(path),
        }
    }

    /// A slot for one controller's part of a Flush.
    fn new_part(&mut self, now: Nanos) -> u32 {
        let at = self.free_slot();
        if let Some(slot) = self.slots.get_mut(at as usize) {
            self.free = slot.next;
            *slot = RequestSlot {
                op: Op::Flush,
                claim: Claim::Part,
                submitted_at: now,
                ..RequestSlot::free()
            };
        }
        at
    }

    /// Begins a batch.
    #[inline]
    pub(super) fn begin(&mut self, now: Nanos) {
        self.selector.begin(now);
    }

    /// Counts what is staged as sent.
    #[inline]
    pub(super) fn count_staged(&mut self, now: Nanos) {
        self.selector.commit(now);
    }

    /// A path's queue rejected a request.
    pub(super) fn reject(
        &mut self,
        shared: &Multipath,
        why: Refused,
        request: Request,
        now: Nanos,
    ) {
        let why = IoError::from(why);
        let completion = Completion {
            tag: request.tag,
            result: Err(why),
            buf: request.buf,
            submitted_at: Instant::of(now),
            completed_at: Instant::of(now),
        };
        self.complete_failed(shared, completion, why);
    }
}

impl From<Failure> for IoError {
    fn from(failure: Failure) -> IoError {
        match failure {
            Failure::OutcomeUnknown { waited, .. } => IoError::OutcomeUnknown { waited },
            failure => IoError::Path(failure),
        }
    }
}

#[inline]
fn class(op: Op, bytes: u64) -> Class {
    Class::new(op, bytes.min(u32::MAX.into()) as u32)
}

#[inline]
fn class_of(request: &Request) -> Class {
    class(request.op, request.bytes)
}

impl RequestSlot {
    fn free() -> RequestSlot {
        RequestSlot {
            op: Op::Flush,
            modifiers: Modifiers::default(),
            urgent: false,
            claim: Claim::Part,
            bytes: 0,
            lba: 0,
            tag: 0,
            buf: None,
            submitted_at: Nanos::ZERO,
            sent: None,
            next: END_OF_LIST,
        }
    }

    #[inline]
    fn fill(&mut self, request: Request, claim: Claim, now: Nanos) {
        self.op = request.op;
        self.modifiers = request.modifiers;
        self.urgent = request.urgent;
        self.claim = claim;
        self.bytes = request.bytes;
        self.lba = request.lba;
        self.tag = request.tag;
        // A free slot has no buffer; `forget` saves the drop check.
        std::mem::forget(std::mem::replace(&mut self.buf, request.buf));
        self.submitted_at = now;
        self.sent = None;
    }

    #[inline]
    fn class(&self) -> Class {
        class(self.op, self.bytes)
    }

    /// The request for a path's queue; its buffer goes with it.
    #[inline]
    fn request(&mut self, namespace: &Namespace, at: u32) -> Request {
        Request {
            op: self.op,
            namespace: *namespace,
            lba: self.lba,
            bytes: self.bytes,
            buf: self.buf.take(),
            modifiers: self.modifiers,
            urgent: self.urgent,
            tag: at.into(),
        }
    }
}
