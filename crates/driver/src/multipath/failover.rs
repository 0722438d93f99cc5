//! Failover of one software queue: events in, actions out.
//!
//! The difficult case is a write on a path that was lost: its controller may still execute it. If
//! it were sent again at once, the first copy could be executed last and destroy newer data. So
//! such writes are held until their controller provably executes nothing more:
//!
//! ```text
//!   Ready    a path is usable ------------------> Sent
//!            no path is usable -----------------> Waiting
//!   Waiting  a path is usable ------------------> Ready
//!            no_path_timeout -------------------> failed
//!   Sent     success, or a final error ---------> done
//!            other errors; path lost: a read ---> Ready
//!            path lost: a write ----------------> Held
//!   Held     path stopped, or quiesce time over > Ready
//!            late completion -------------------> done, or Ready
//!            held_timeout, no quiesce time -----> failed
//!            the only path: no_path_timeout ----> failed
//! ```
//!
//! A Flush is sent to every controller with unflushed writes; see [`WriteMarks`].

use std::collections::VecDeque;

use nvme::{AnaState, Status};
use units::{Nanos, Op};

use super::flush::{Flush, FlushError, Flushes};
use super::path::{Path, Paths};
use super::requests::{RequestState, Slots};
use super::{
    Action, CompletionOutcome, Disposition, FailoverConfig, Failure, Link, MultipathCounters,
    PathId, PathSet, PathSnapshot, PathStatus, PathTraits, PathUpdate, RequestId, Submitted,
    TooManyPaths, WriteMarks, disposition,
};

/// The state machine. After each event, and when [`Failover::next_deadline`] has passed
/// ([`Failover::tick`]), call [`Failover::poll`] until it returns `None`.
#[derive(Debug)]
pub struct Failover {
    pub(super) config: FailoverConfig,
    pub(super) paths: Paths,
    pub(super) slots: Slots,
    pub(super) flushes: Flushes,
    pub(super) marks: WriteMarks,
    /// This queue's number in `marks`.
    pub(super) queue: usize,
    /// Paths with a volatile write cache.
    pub(super) volatile: PathSet,
    /// Requests to send, Flushes included.
    pub(super) ready: VecDeque<RequestId>,
    /// Requests without a path, in the order in which they time out.
    waiting: VecDeque<RequestId>,
    /// Writes of unknown outcome.
    held: Vec<RequestId>,
    /// How long a write of unknown outcome is held at most. If there are other paths, the write is
    /// not given up before its controller has stopped: later writes on another path could be
    /// overwritten by it. If there is only one path, that path is not used before its controller
    /// has stopped, so giving up earlier is safe.
    longest_hold: Nanos,
    pub(super) actions: VecDeque<Action>,
    pub(super) counters: MultipathCounters,
}

impl Failover {
    /// Creates the failover for paths that are not up yet, with capacity for `requests` (more
    /// allocate). `queue` numbers the software queues that share `marks`, from 0.
    pub fn new(
        config: FailoverConfig,
        traits: &[PathTraits],
        marks: &WriteMarks,
        queue: usize,
        requests: usize,
    ) -> Result<Failover, TooManyPaths> {
        if traits.is_empty() || traits.len() > PathSet::MAX {
            return Err(TooManyPaths(traits.len()));
        }
        let paths = Paths::new(traits);
        let volatile = paths
            .iter()
            .filter(|(_, p)| p.traits.volatile_cache)
            .fold(PathSet::NONE, |set, (id, _)| set.with(id));
        Ok(Failover {
            longest_hold: if traits.len() > 1 { Nanos::MAX } else { config.no_path_timeout },
            config,
            slots: Slots::with_capacity(requests),
            flushes: Flushes::default(),
            marks: marks.clone(),
            queue,
            volatile,
            ready: VecDeque::with_capacity(requests),
            waiting: VecDeque::with_capacity(requests),
            held: Vec::with_capacity(requests),
            actions: VecDeque::new(),
            counters: MultipathCounters::default(),
            paths,
        })
    }

    /// The paths that a request may be sent on now: Optimized ones, or Non-Optimized ones if there
    /// are none.
    #[inline]
    pub fn candidates(&self) -> PathSet {
        self.paths.best
    }

    /// Status of a path.
    pub fn status(&self, path: PathId) -> Option<PathStatus> {
        self.paths.get(path).map(|p| PathStatus { link: p.link, ana: p.ana, fits: p.fits })
    }

    /// Counters since creation.
    pub fn counters(&self) -> MultipathCounters {
        self.counters
    }

    /// Whether there is no request.
    pub fn is_idle(&self) -> bool {
        self.slots.iter().next().is_none()
    }

    /// Submits a request. `choose` selects one of the given paths.
    #[inline]
    pub fn submit(
        &mut self,
        now: Nanos,
        token: u64,
        op: Op,
        choose: impl FnOnce(PathSet) -> PathId,
    ) -> Submitted {
        let best = self.paths.best;
        // The usual request takes one branch.
        if best.is_empty() || op == Op::Flush {
            return self.submit_slow(now, token, op);
        }
        let path = member(best, choose(best));
        Submitted::Send { request: self.slots.insert(token, op, RequestState::Sent(path)), path }
    }

    #[cold]
    fn submit_slow(&mut self, now: Nanos, token: u64, op: Op) -> Submitted {
        if op == Op::Flush {
            return self.submit_flush(now, token);
        }
        // The limit bounds memory while no path is up.
        if self.waiting.len() >= self.config.no_path_limit {
            self.counters.failed += 1;
            return Submitted::Refused(Failure::TooManyWaiting { waiting: self.waiting.len() });
        }
        let request = self.slots.insert(token, op, RequestState::Ready);
        self.wait_for_path(now, request);
        Submitted::Queued
    }

    /// A request that was sent on `path` has completed.
    #[inline]
    pub fn ended(
        &mut self,
        now: Nanos,
        request: RequestId,
        path: PathId,
        status: Status,
    ) -> CompletionOutcome {
        if status.is_success()
            // One lookup for the usual completion: sent on this path, and never retried.
            && let Some((token, op)) = self.slots.take_sent(request, path)
        {
            if op.changes_blocks() && self.volatile.contains(path) {
                self.note_write(path);
            }
            return CompletionOutcome::Done { token, status };
        }
        self.handle_error(now, request, path, status)
    }

    #[cold]
    fn handle_error(
        &mut self,
        now: Nanos,
        request: RequestId,
        path: PathId,
        status: Status,
    ) -> CompletionOutcome {
        let state = self.slots.get(request).map(|slot| slot.state);
        match state {
            Some(RequestState::Flush(_)) => return self.flush_ended(now, request, path, status),
            // The completion of a held write was already on its way: the outcome is known after
            // all.
            Some(RequestState::Sent(p) | RequestState::Held(p)) if p == path => {}
            _ => {
                self.counters.stale += 1;
                return CompletionOutcome::Stale;
            }
        }
        if matches!(state, Some(RequestState::Held(_))) {
            self.held.retain(|&held| held != request);
        }
        let disposition = disposition(status);
        // A path-related status also says something about the path.
        if disposition == Disposition::Failover {
            self.apply_ana_status(now, path, status);
        }
        // Such a status does not say whether the controller still has the command.
        if is_host_generated(status) && self.hold_write(now, request, path) {
            return CompletionOutcome::Continues;
        }
        if disposition == Disposition::Complete || !self.may_retry(now, request, path, status) {
            return self.finish(now, request, path, status);
        }
        if let Some(slot) = self.slots.get_mut(request) {
            slot.state = RequestState::Ready;
        }
        self.counters.retried += 1;
        self.ready.push_back(request);
        CompletionOutcome::Continues
    }

    /// Whether to send a request again that failed on `path`. ANA statuses are limited by time: the
    /// path is not used until its state has changed, so there is no retry loop. Other statuses are
    /// limited by number.
    pub(super) fn may_retry(
        &mut self,
        now: Nanos,
        request: RequestId,
        path: PathId,
        status: Status,
    ) -> bool {
        let FailoverConfig { retries, no_path_timeout, .. } = self.config;
        let Some((_, retry)) = self.slots.ensure_retry(request, now) else { return false };
        retry.avoid = retry.avoid.with(path);
        if AnaState::of_status(status).is_some() {
            return now - retry.since < no_path_timeout;
        }
        let may = retry.tries < retries;
        retry.tries = retry.tries.saturating_add(1);
        may
    }

    /// Holds a write that the host gave up, until its path has been reset: no controller has
    /// confirmed that it will not be executed. Returns whether it is held.
    fn hold_write(&mut self, now: Nanos, request: RequestId, path: PathId) -> bool {
        let held = !self.config.unsafe_fast_failover;
        let Some((slot, retry)) = self
            .slots
            .ensure_retry(request, now)
            .filter(|(slot, _)| slot.op.changes_blocks() && held)
        else {
            return false;
        };
        (slot.state, retry.waiting_since) = (RequestState::Held(path), now);
        retry.lost_on = Some(path);
        self.held.push(request);
        self.counters.held += 1;
        // The path itself may be healthy; only a reset makes certain that the controller does not
        // execute the write any more.
        self.push_action(Action::Reset(path));
        true
    }

    /// Queues an action, once.
    fn push_action(&mut self, action: Action) {
        if !self.actions.contains(&action) {
            self.actions.push_back(action);
        }
    }

    /// Ends a request with a controller's status.
    fn finish(
        &mut self,
        now: Nanos,
        request: RequestId,
        path: PathId,
        status: Status,
    ) -> CompletionOutcome {
        let Some(slot) = self.slots.get(request) else { return CompletionOutcome::Stale };
        let (token, op) = (slot.token, slot.op);
        if op.changes_blocks() && status.is_success() && self.volatile.contains(path) {
            self.note_write(path);
        }
        self.close(now, request);
        CompletionOutcome::Done { token, status }
    }

    /// Records a write that completed in the volatile cache of a path.
    fn note_write(&self, path: PathId) {
        self.marks.note_write(self.queue, path, self.paths.get(path).map_or(0, |p| p.losses));
    }

    /// Removes a request, and updates `longest_stall`.
    pub(super) fn close(&mut self, now: Nanos, request: RequestId) {
        if let Some(retry) = self.slots.retry_of(request) {
            self.counters.longest_stall = self.counters.longest_stall.max(now - retry.since);
        }
        self.slots.remove(request);
    }

    /// Fails a request without a controller's status.
    pub(super) fn fail(&mut self, now: Nanos, request: RequestId, failure: Failure) {
        let Some(slot) = self.slots.get(request) else { return };
        // Even if the write waited for a path in the end, it may have been executed before.
        let lost =
            self.slots.retry_of(request).and_then(|retry| Some((retry.lost_on?, retry.since)));
        let failure = lost
            .map_or(failure, |(path, since)| Failure::OutcomeUnknown { path, waited: now - since });
        self.actions.push_back(Action::Fail { token: slot.token, failure });
        self.counters.failed += 1;
        self.close(now, request);
    }

    /// Applies the ANA state that a status implies, until the log page has been read.
    pub(super) fn apply_ana_status(&mut self, now: Nanos, path: PathId, status: Status) {
        if let Some(state) = AnaState::of_status(status) {
            self.set_ana(now, path, state);
            self.push_action(Action::ReadAna(path));
        }
    }

    fn set_ana(&mut self, now: Nanos, path: PathId, state: AnaState) {
        self.paths.change(path, |p: &mut Path| {
            let was = std::mem::replace(&mut p.ana, state);
            // A repeated Change must not extend the deadline for ever.
            let since = if was == AnaState::CHANGE {
                p.ana_deadline
            } else {
                now + p.traits.ana_transition
            };
            p.ana_deadline = if state == AnaState::CHANGE { since } else { Nanos::MAX };
        });
    }

    /// Records that the ANA log page of a path reports this state for the namespace's group.
    pub fn ana_changed(&mut self, now: Nanos, path: PathId, state: AnaState) {
        self.set_ana(now, path, state);
        self.resume_waiting(now);
    }

    /// Records whether the path's controller reports the expected size of the namespace. If not,
    /// the path is used only for Flushes of writes that its controller has cached.
    pub fn size_fits(&mut self, now: Nanos, path: PathId, fits: bool) {
        self.paths.change(path, |p| p.fits = fits);
        self.resume_waiting(now);
    }

    /// Records that the path has been brought up, with this ANA state. Its controller has none of
    /// this host's commands any more.
    pub fn path_up(&mut self, now: Nanos, path: PathId, state: AnaState) {
        self.resolve_outstanding(now, path);
        // Check for lost writes first: a new write to the path would hide that earlier ones are
        // gone.
        self.marks.lost_writes();
        let losses = self.marks.losses(path);
        self.paths.change(path, |p| {
            (p.link, p.ana, p.ana_deadline, p.losses) =
                (Link::Live, AnaState::OPTIMIZED, Nanos::MAX, losses);
        });
        self.set_ana(now, path, state);
        self.resume_waiting(now);
    }

    /// Records that the path is being reset. Its commands may still complete; those that do not are
    /// sent again when the controller has stopped ([`Failover::quiesced`]).
    pub fn path_resetting(&mut self, now: Nanos, path: PathId) {
        self.paths.change(path, |p| {
            if p.link != Link::Lost {
                p.down_since = now;
            }
            // The controller answers, so its Keep Alive Timer may have restarted: only the end of
            // the reset counts from here.
            (p.link, p.quiesced_at) = (Link::Resetting, Nanos::MAX);
        });
    }

    /// Records that the path's controller does not answer any more. Reads are sent again at once.
    /// Writes are held, because the controller may still execute them.
    ///
    /// Sending a read again gives its buffer to a second controller. So the lost controller must be
    /// unable to write to it, for example because its connection is down.
    pub fn path_lost(&mut self, now: Nanos, path: PathId) {
        let lost = self.paths.change(path, |p| {
            if p.link == Link::Lost {
                return false;
            }
            if p.link != Link::Resetting {
                p.down_since = now;
            }
            (p.link, p.ana_deadline) = (Link::Lost, Nanos::MAX);
            p.quiesced_at = p.traits.quiesce_after.map_or(Nanos::MAX, |after| now + after);
            true
        });
        // A repeated report must not restart the quiesce time.
        if lost != Some(true) {
            return;
        }
        // Collected first: the loop changes the slots.
        let out: Vec<_> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.state == RequestState::Sent(path))
            .map(|(id, _)| id)
            .collect();
        for request in out {
            let Some((slot, retry)) = self.slots.ensure_retry(request, now) else { continue };
            retry.lost_on = slot.op.changes_blocks().then_some(path);
            if slot.op.changes_blocks() && !self.config.unsafe_fast_failover {
                (slot.state, retry.waiting_since) = (RequestState::Held(path), now);
                self.held.push(request);
                self.counters.held += 1;
                continue;
            }
            // The request is a read, or a write with `unsafe_fast_failover`.
            self.counters.unsafe_resends += u64::from(slot.op.changes_blocks());
            self.counters.failed_over += 1;
            slot.state = RequestState::Ready;
            self.ready.push_back(request);
        }
        self.flush_lost(now, path);
        self.resume_waiting(now);
    }

    /// Records that the controller of this path has provably stopped (CSTS.RDY = 0): it executes no
    /// command any more.
    pub fn quiesced(&mut self, now: Nanos, path: PathId) {
        self.resolve_outstanding(now, path);
        self.paths.change(path, |p| p.link = Link::Connecting);
        self.resume_waiting(now);
    }

    /// A path's controller executes no command any more: sends its requests again.
    fn resolve_outstanding(&mut self, now: Nanos, path: PathId) {
        let down_since = self.paths.change(path, |p| {
            p.quiesced_at = Nanos::MAX;
            if p.link == Link::Live { now } else { p.down_since }
        });
        let down = now - down_since.unwrap_or(now);
        let inside =
            |state| matches!(state, RequestState::Sent(p) | RequestState::Held(p) if p == path);
        let out: Vec<_> =
            self.slots.iter().filter(|(_, slot)| inside(slot.state)).map(|(id, _)| id).collect();
        for request in out {
            let Some((slot, retry)) = self.slots.ensure_retry(request, now) else { continue };
            if slot.op.changes_blocks() {
                retry.lost_on = Some(path);
                let held = if slot.state == RequestState::Held(path) {
                    now - retry.waiting_since
                } else {
                    down
                };
                self.counters.held += u64::from(slot.state != RequestState::Held(path));
                self.counters.longest_hold = self.counters.longest_hold.max(held);
            }
            slot.state = RequestState::Ready;
            self.counters.failed_over += 1;
            self.ready.push_back(request);
        }
        self.held.retain(|&request| {
            self.slots.get(request).is_some_and(|slot| matches!(slot.state, RequestState::Held(_)))
        });
        self.flush_lost(now, path);
    }

    /// Sends the requests that waited for a path, after paths have changed.
    fn resume_waiting(&mut self, now: Nanos) {
        if !self.paths.best.is_empty() {
            while let Some(request) = self.waiting.pop_front() {
                if let Some(slot) =
                    self.slots.get_mut(request).filter(|slot| slot.state == RequestState::Waiting)
                {
                    slot.state = RequestState::Ready;
                    self.ready.push_back(request);
                }
            }
        }
        self.release_flushes(now);
    }

    /// Puts a request in the queue for a path.
    fn wait_for_path(&mut self, now: Nanos, request: RequestId) {
        let Some((slot, retry)) = self.slots.ensure_retry(request, now) else { return };
        (slot.state, retry.waiting_since) = (RequestState::Waiting, now);
        self.counters.waited += 1;
        self.waiting.push_back(request);
    }

    /// Handles the deadlines that have passed.
    pub fn tick(&mut self, now: Nanos) {
        for path in (0..PathSet::MAX as u8).map(PathId) {
            let Some(p) = self.paths.get(path) else { break };
            let (change_is_over, quiet) = (p.ana_deadline <= now, p.quiesced_at <= now);
            if change_is_over {
                // ANATT is over, and the state is still Change (Base 8.1.1): only a reset helps.
                self.paths.change(path, |p| p.ana_deadline = Nanos::MAX);
                self.push_action(Action::Reset(path));
            }
            if quiet {
                self.resolve_outstanding(now, path);
            }
        }
        let timeout = self.config.no_path_timeout;
        while let Some(&request) = self.waiting.front() {
            // `waiting` is in order of time, so the first request that is not due ends the loop.
            let waiting_since =
                self.slots.retry_of(request).map_or(Nanos::ZERO, |retry| retry.waiting_since);
            if waiting_since + timeout > now {
                break;
            }
            self.waiting.pop_front();
            self.fail(now, request, Failure::NoPath { waited: now - waiting_since });
        }
        self.give_up_held(now);
        self.give_up_flushes(now);
    }

    /// From now on no request waits or is retried. Requests without a path fail, and so do held
    /// writes whose controller has no known quiesce time.
    pub fn fail_pending(&mut self, now: Nanos) {
        (self.config.no_path_timeout, self.config.held_timeout, self.config.retries) =
            (Nanos::ZERO, Nanos::ZERO, 0);
        self.tick(now);
    }

    /// Fails held writes whose time is over.
    fn give_up_held(&mut self, now: Nanos) {
        let mut n = 0;
        while let Some(&request) = self.held.get(n) {
            match self.held_until(request) {
                Some((.., until)) if until > now => n += 1,
                over => {
                    self.held.swap_remove(n);
                    if let Some((path, waiting_since, _)) = over {
                        self.fail(
                            now,
                            request,
                            Failure::OutcomeUnknown { path, waited: now - waiting_since },
                        );
                    }
                }
            }
        }
    }

    /// The path of a held write, since when it is held, and until when.
    fn held_until(&self, request: RequestId) -> Option<(PathId, Nanos, Nanos)> {
        let RequestState::Held(path) = self.slots.get(request)?.state else { return None };
        let waiting_since = self.slots.retry_of(request)?.waiting_since;
        // With a known quiesce time the write will be sent again.
        let known = self.paths.get(path).is_some_and(|p| p.quiesced_at < Nanos::MAX);
        let timeout = if known { Nanos::MAX } else { self.config.held_timeout };
        Some((path, waiting_since, waiting_since + timeout.min(self.longest_hold)))
    }

    /// When [`Failover::tick`] is due.
    pub fn next_deadline(&self) -> Nanos {
        // The queue is in order of time, so its head is due first.
        let waiting_since = |request: &RequestId| {
            self.slots
                .retry_of(*request)
                .map(|retry| retry.waiting_since + self.config.no_path_timeout)
        };
        let waiting = self.waiting.front().and_then(waiting_since).unwrap_or(Nanos::MAX);
        let held = self
            .held
            .iter()
            .filter_map(|&request| self.held_until(request))
            .map(|(.., until)| until);
        held.fold(self.paths.deadline.min(waiting).min(self.next_flush_deadline()), Nanos::min)
    }

    /// Returns the next action, until there is none. `choose` selects one of the given paths for
    /// the request with this token.
    #[inline]
    pub fn poll(
        &mut self,
        now: Nanos,
        choose: impl FnMut(u64, PathSet) -> PathId,
    ) -> Option<Action> {
        // The usual call returns nothing, and must cost nothing.
        if self.ready.is_empty() && self.actions.is_empty() {
            return None;
        }
        self.poll_slow(now, choose)
    }

    fn poll_slow(
        &mut self,
        now: Nanos,
        mut choose: impl FnMut(u64, PathSet) -> PathId,
    ) -> Option<Action> {
        while self.actions.is_empty() {
            let request = self.ready.pop_front()?;
            // The request may have ended since it was queued.
            let Some(slot) = self.slots.get(request) else { continue };
            let token = slot.token;
            let path = match slot.state {
                RequestState::Flush(part) => {
                    match self.next_part(request, part, |among| choose(token, among)) {
                        Some(path) => path,
                        None => continue,
                    }
                }
                RequestState::Ready => {
                    let Some(among) = self.alternatives(request) else {
                        self.wait_or_fail(now, request);
                        continue;
                    };
                    let path = member(among, choose(token, among));
                    if let Some(slot) = self.slots.get_mut(request) {
                        slot.state = RequestState::Sent(path);
                    }
                    path
                }
                _ => continue,
            };
            return Some(Action::Send { request, token, path });
        }
        self.actions.pop_front()
    }

    /// The paths for a retry: those that have not failed the request yet, if possible.
    fn alternatives(&mut self, request: RequestId) -> Option<PathSet> {
        let (best, usable) = (self.paths.best, self.paths.usable);
        let avoid = self.slots.retry_of(request).map_or(PathSet::NONE, |retry| retry.avoid);
        // A Non-Optimized path that has not failed is better than an Optimized one that has.
        [best.without(avoid), usable.without(avoid), best].into_iter().find(|set| !set.is_empty())
    }

    fn wait_or_fail(&mut self, now: Nanos, request: RequestId) {
        if self.waiting.len() >= self.config.no_path_limit {
            return self.fail(
                now,
                request,
                Failure::TooManyWaiting { waiting: self.waiting.len() },
            );
        }
        self.wait_for_path(now, request);
    }
}

impl Failover {
    /// Updates a path's state. `seen` is the state applied last, `snapshot` the current one.
    /// `drained`: every completion of the path has been reaped, so none can arrive late.
    pub fn update_path(
        &mut self,
        now: Nanos,
        path: PathId,
        seen: &mut PathSnapshot,
        snapshot: PathSnapshot,
        drained: impl FnOnce() -> bool,
    ) -> PathUpdate {
        if snapshot == *seen {
            return PathUpdate::Applied;
        }
        // The size is independent of the connection's state.
        if snapshot.fits != seen.fits {
            self.size_fits(now, path, snapshot.fits);
            seen.fits = snapshot.fits;
        }
        // The connection is the same: only the ANA state can differ.
        if snapshot.life == seen.life {
            self.ana_changed(now, path, snapshot.ana);
            *seen = snapshot;
            return PathUpdate::Applied;
        }
        if seen.link == Link::Live || snapshot.link == Link::Resetting {
            // Whatever the state of the path is by now, nothing is sent on it until its completions
            // have been reaped.
            self.path_resetting(now, path);
            seen.link = Link::Resetting;
        }
        // A completion reaped after the path was declared stopped would belong to a request that
        // has been sent again.
        if snapshot.link != Link::Resetting && !drained() {
            return PathUpdate::Deferred;
        }
        *seen = snapshot;
        match snapshot.link {
            Link::Live => {
                self.path_up(now, path, snapshot.ana);
                return PathUpdate::CameUp;
            }
            Link::Resetting => {}
            Link::Lost => self.path_lost(now, path),
            Link::Connecting => self.quiesced(now, path),
        }
        PathUpdate::Applied
    }
}

/// Flush requests: one command for each controller with writes since its last Flush.
impl Failover {
    pub(super) fn submit_flush(&mut self, now: Nanos, token: u64) -> Submitted {
        // A Flush must not report success for writes that are gone.
        if let Some(path) = self.marks.lost_writes().first() {
            self.counters.failed += 1;
            return Submitted::Refused(Failure::CacheLost { path });
        }
        let part = self.flushes.free.pop().unwrap_or_else(|| {
            self.flushes.list.push(Flush::default());
            self.flushes.list.len() as u32 - 1
        });
        let Some(flush) = self.flushes.list.get_mut(part as usize) else {
            return Submitted::Queued;
        };
        let mut snapshot = std::mem::take(&mut flush.snapshot);
        // A controller without a volatile cache has nothing to flush.
        let dirty = self.marks.uncovered(&mut snapshot).and(self.volatile);
        let need = PathSet(dirty.0 | self.marks.never_flushed().and(self.volatile).0);
        *flush =
            Flush { need, dirty, queued: true, waiting_since: now, snapshot, ..Flush::default() };
        let request = self.slots.insert(token, Op::Flush, RequestState::Flush(part));
        self.flushes.open.push(request);
        self.ready.push_back(request);
        Submitted::Queued
    }

    /// The next path for a Flush. It stays in the ready queue if there are more.
    pub(super) fn next_part(
        &mut self,
        request: RequestId,
        part: u32,
        choose: impl FnOnce(PathSet) -> PathId,
    ) -> Option<PathId> {
        let (best, usable) = (self.paths.best, self.paths.reachable);
        let avoid = self.slots.retry_of(request).map_or(PathSet::NONE, |retry| retry.avoid);
        let flush = self.flushes.list.get_mut(part as usize)?;
        flush.queued = false;
        if flush.failed.is_some() {
            return None;
        }
        // Paths that are flushed only as a precaution are left out while they are unreachable.
        flush.need = flush.need.and(PathSet(flush.dirty.0 | usable.0));
        if flush.any_path_suffices() {
            let among = if best.without(avoid).is_empty() { best } else { best.without(avoid) };
            if among.is_empty() {
                return None;
            }
            let path = member(among, choose(among));
            flush.out = flush.out.with(path);
            return Some(path);
        }
        let path = flush.need.and(usable).first()?;
        (flush.need, flush.out) = (flush.need.without(PathSet::of(path)), flush.out.with(path));
        if !flush.need.and(usable).is_empty() {
            flush.queued = true;
            // The Flush stays first in the queue, so that all its commands are sent together.
            self.ready.push_front(request);
        }
        Some(path)
    }

    pub(super) fn flush_ended(
        &mut self,
        now: Nanos,
        request: RequestId,
        path: PathId,
        status: Status,
    ) -> CompletionOutcome {
        let Some(part) = self.part_of(request) else { return CompletionOutcome::Stale };
        let Some(flush) =
            self.flushes.list.get_mut(part as usize).filter(|flush| flush.out.contains(path))
        else {
            self.counters.stale += 1;
            return CompletionOutcome::Stale;
        };
        flush.out = flush.out.without(PathSet::of(path));
        let disposition = disposition(status);
        if status.is_success() {
            // The Flush covers only writes that had completed when it was submitted.
            self.marks.flushed(path, &flush.snapshot);
            // One success is enough for the paths that were a precaution.
            flush.done = true;
        // No other path can flush this controller's cache.
        } else if disposition == Disposition::Complete
            || !self.may_retry(now, request, path, status)
        {
            self.set_failed(part, FlushError::Status(status));
        } else {
            self.counters.retried += 1;
            self.resend_part(now, request, part, path);
        }
        if disposition == Disposition::Failover {
            self.apply_ana_status(now, path, status);
        }
        self.finish_flush(now, request, part)
    }

    /// Marks a path to be flushed again as soon as it is usable.
    fn resend_part(&mut self, now: Nanos, request: RequestId, part: u32, path: PathId) {
        let Some(flush) = self.flushes.list.get_mut(part as usize) else { return };
        flush.need = PathSet(flush.need.0 | PathSet::of(path).and(flush.dirty).0);
        flush.waiting_since = now;
        self.slots.ensure_retry(request, now);
        self.enqueue(request, part);
    }

    fn enqueue(&mut self, request: RequestId, part: u32) {
        if let Some(flush) = self.flushes.list.get_mut(part as usize)
            && !std::mem::replace(&mut flush.queued, true)
        {
            self.ready.push_back(request);
        }
    }

    fn set_failed(&mut self, part: u32, why: FlushError) {
        if let Some(flush) = self.flushes.list.get_mut(part as usize) {
            // The first reason is the one reported.
            flush.failed.get_or_insert(why);
        }
    }

    fn part_of(&self, request: RequestId) -> Option<u32> {
        match self.slots.get(request)?.state {
            RequestState::Flush(part) => Some(part),
            _ => None,
        }
    }

    /// Ends a Flush if no command is in flight, and none that matters is left to send.
    fn finish_flush(&mut self, now: Nanos, request: RequestId, part: u32) -> CompletionOutcome {
        let Some(flush) = self.flushes.list.get(part as usize) else {
            return CompletionOutcome::Stale;
        };
        if !flush.out.is_empty() || flush.failed.is_none() && !(flush.need.is_empty() && flush.done)
        {
            return CompletionOutcome::Continues;
        }
        let Some(token) = self.slots.get(request).map(|slot| slot.token) else {
            return CompletionOutcome::Stale;
        };
        let failed = flush.failed;
        self.flushes.open.retain(|&open| open != request);
        // The entry is reused, with the allocation of its snapshot.
        self.flushes.free.push(part);
        match failed {
            Some(FlushError::Failure(failure)) => {
                self.fail(now, request, failure);
                CompletionOutcome::Continues
            }
            Some(FlushError::Status(status)) => {
                self.close(now, request);
                CompletionOutcome::Done { token, status }
            }
            None => {
                self.close(now, request);
                CompletionOutcome::Done { token, status: Status::SUCCESS }
            }
        }
    }

    /// Handles the loss or stop of a path: its Flush commands will not complete.
    pub(super) fn flush_lost(&mut self, now: Nanos, path: PathId) {
        for request in self.flushes.open.clone() {
            let Some(part) = self.part_of(request) else { continue };
            let Some(flush) =
                self.flushes.list.get_mut(part as usize).filter(|flush| flush.out.contains(path))
            else {
                continue;
            };
            flush.out = flush.out.without(PathSet::of(path));
            self.counters.failed_over += 1;
            self.resend_part(now, request, part, path);
            self.finish_flush_by_action(now, request, part);
        }
    }

    /// As [`Failover::finish_flush`], but outside a completion: a status becomes an action.
    fn finish_flush_by_action(&mut self, now: Nanos, request: RequestId, part: u32) {
        if let CompletionOutcome::Done { token, status } = self.finish_flush(now, request, part) {
            self.actions.push_back(Action::Complete { token, status });
        }
    }

    /// Sends Flush commands that waited for a path, after paths have changed. If a cache was lost
    /// there is nothing left to flush.
    pub(super) fn release_flushes(&mut self, now: Nanos) {
        let lost = self.marks.lost_writes().first();
        for request in self.flushes.open.clone() {
            let Some(part) = self.part_of(request) else { continue };
            match lost {
                Some(path) => {
                    self.set_failed(part, FlushError::Failure(Failure::CacheLost { path }));
                    self.finish_flush_by_action(now, request, part);
                }
                // `next_part` sorts out what can be sent now.
                None => self.enqueue(request, part),
            }
        }
    }

    /// The path that a Flush is waiting for, and since when.
    fn blocked_on(&self, request: RequestId) -> Option<(u32, Option<PathId>, Nanos)> {
        let part = self.part_of(request)?;
        let flush = self.flushes.list.get(part as usize)?;
        let unreachable = flush.need.and(flush.dirty).without(self.paths.reachable).first();
        // With a command in flight, or a reachable path left, the Flush makes progress by itself.
        let waits = unreachable.is_some() || flush.any_path_suffices();
        (waits && flush.failed.is_none()).then_some((part, unreachable, flush.waiting_since))
    }

    /// Fails Flushes that have waited too long.
    pub(super) fn give_up_flushes(&mut self, now: Nanos) {
        for request in self.flushes.open.clone() {
            let Some((part, path, waiting_since)) = self.blocked_on(request) else { continue };
            let waited = now - waiting_since;
            if waited < self.config.no_path_timeout {
                continue;
            }
            self.slots.ensure_retry(request, waiting_since);
            // The failure names the path whose writes are at risk.
            let failure = path
                .map_or(Failure::NoPath { waited }, |path| Failure::FlushBlocked { path, waited });
            self.set_failed(part, FlushError::Failure(failure));
            self.finish_flush_by_action(now, request, part);
        }
    }

    pub(super) fn next_flush_deadline(&self) -> Nanos {
        let stuck = self.flushes.open.iter().filter_map(|&request| self.blocked_on(request));
        stuck
            .map(|(.., waiting_since)| waiting_since + self.config.no_path_timeout)
            .fold(Nanos::MAX, Nanos::min)
    }
}

/// The path that a selector chose, or the first of the set if it chose none of them.
#[inline]
pub(super) fn member(among: PathSet, chosen: PathId) -> PathId {
    if among.contains(chosen) { chosen } else { among.first().unwrap_or(chosen) }
}

/// Statuses that the host itself generates: whether the command was executed is unknown (Base
/// 4.2.3.4).
fn is_host_generated(status: Status) -> bool {
    matches!(status.kind(), Status::HOST_PATHING_ERROR | Status::ABORTED_BY_HOST)
}
