//! Flushes: one for each controller that has completed writes since its last.

use nvme::Status;
use units::{Nanos, Op};

use super::failover::{Failover, member};
use super::flush::{Flush, Why};
use super::slots::State;
use super::{Action, Ended, Failure, PathId, PathSet, RequestId, Submitted, Verdict, verdict};

impl Failover {
    pub(super) fn submit_flush(&mut self, now: Nanos, token: u64) -> Submitted {
        if let Some(path) = self.marks.lost_writes().first() {
            self.counters.failed += 1;
            return Submitted::Refused(Failure::CacheLost { path });
        }
        let part = self.flushes.free.pop().unwrap_or_else(|| {
            self.flushes.list.push(Flush::default());
            self.flushes.list.len() as u32 - 1
        });
        let Some(flush) = self.flushes.list.get_mut(part as usize) else { return Submitted::Queued };
        let mut snapshot = std::mem::take(&mut flush.snapshot);
        let dirty = self.marks.uncovered(&mut snapshot).and(self.volatile);
        let need = PathSet(dirty.0 | self.marks.untouched().and(self.volatile).0);
        *flush = Flush { need, dirty, queued: true, parked: now, snapshot, ..Flush::default() };
        let request = self.slots.insert(token, Op::Flush, State::Flush(part));
        self.flushes.open.push(request);
        self.ready.push_back(request);
        Submitted::Queued
    }

    /// The next path that a Flush is to be sent on; it stays in line if there are more.
    pub(super) fn next_part(&mut self, request: RequestId, part: u32, choose: impl FnOnce(PathSet) -> PathId) -> Option<PathId> {
        let (best, usable) = (self.paths.best, self.paths.reachable);
        let avoid = self.slots.troubled(request).map_or(PathSet::NONE, |trouble| trouble.avoid);
        let flush = self.flushes.list.get_mut(part as usize)?;
        flush.queued = false;
        if flush.failed.is_some() {
            return None;
        }
        flush.need = flush.need.and(PathSet(flush.dirty.0 | usable.0));
        if flush.wants_any() {
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
            self.ready.push_front(request);
        }
        Some(path)
    }

    pub(super) fn flush_ended(&mut self, now: Nanos, request: RequestId, path: PathId, status: Status) -> Ended {
        let Some(part) = self.part_of(request) else { return Ended::Stale };
        let Some(flush) = self.flushes.list.get_mut(part as usize).filter(|flush| flush.out.contains(path)) else {
            self.counters.stale += 1;
            return Ended::Stale;
        };
        flush.out = flush.out.without(PathSet::of(path));
        let judged = verdict(status);
        if status.is_success() {
            self.marks.flushed(path, &flush.snapshot);
            flush.done = true;
        } else if judged == Verdict::Over || !self.may_try_again(now, request, path, status) {
            self.doom(part, Why::Status(status));
        } else {
            self.counters.retried += 1;
            self.needs_again(now, request, part, path);
        }
        if judged == Verdict::Elsewhere {
            self.learn(now, path, status);
        }
        self.conclude(now, request, part)
    }

    /// A part has to be sent again, as soon as its path is usable.
    fn needs_again(&mut self, now: Nanos, request: RequestId, part: u32, path: PathId) {
        let Some(flush) = self.flushes.list.get_mut(part as usize) else { return };
        flush.need = PathSet(flush.need.0 | PathSet::of(path).and(flush.dirty).0);
        flush.parked = now;
        self.slots.trouble(request, now);
        self.enqueue(request, part);
    }

    fn enqueue(&mut self, request: RequestId, part: u32) {
        if let Some(flush) = self.flushes.list.get_mut(part as usize)
            && !std::mem::replace(&mut flush.queued, true)
        {
            self.ready.push_back(request);
        }
    }

    fn doom(&mut self, part: u32, why: Why) {
        if let Some(flush) = self.flushes.list.get_mut(part as usize) {
            flush.failed.get_or_insert(why);
        }
    }

    fn part_of(&self, request: RequestId) -> Option<u32> {
        match self.slots.get(request)?.state {
            State::Flush(part) => Some(part),
            _ => None,
        }
    }

    /// Ends a Flush of which nothing is out any more and nothing, or nothing that matters, is left to send.
    fn conclude(&mut self, now: Nanos, request: RequestId, part: u32) -> Ended {
        let Some(flush) = self.flushes.list.get(part as usize) else { return Ended::Stale };
        if !flush.out.is_empty() || flush.failed.is_none() && !(flush.need.is_empty() && flush.done) {
            return Ended::GoesOn;
        }
        let Some(token) = self.slots.get(request).map(|slot| slot.token) else { return Ended::Stale };
        let failed = flush.failed;
        self.flushes.open.retain(|&open| open != request);
        self.flushes.free.push(part);
        match failed {
            Some(Why::Failure(failure)) => {
                self.fail(now, request, failure);
                Ended::GoesOn
            }
            Some(Why::Status(status)) => {
                self.close(now, request);
                Ended::Done { token, status }
            }
            None => {
                self.close(now, request);
                Ended::Done { token, status: Status::SUCCESS }
            }
        }
    }

    /// A path was lost or stopped: what is out on it will not be answered.
    pub(super) fn flush_lost(&mut self, now: Nanos, path: PathId) {
        for request in self.flushes.open.clone() {
            let Some(part) = self.part_of(request) else { continue };
            let Some(flush) = self.flushes.list.get_mut(part as usize).filter(|flush| flush.out.contains(path)) else { continue };
            flush.out = flush.out.without(PathSet::of(path));
            self.counters.failed_over += 1;
            self.needs_again(now, request, part, path);
            self.conclude_without_answer(now, request, part);
        }
    }

    /// As [`Failover::conclude`], where no caller waits for an answer: a status too becomes an action.
    fn conclude_without_answer(&mut self, now: Nanos, request: RequestId, part: u32) {
        if let Ended::Done { token, status } = self.conclude(now, request, part) {
            self.actions.push_back(Action::End { token, status });
        }
    }

    /// Paths have changed: parts that waited for one are sent. Where a cache was lost there is nothing left to flush.
    pub(super) fn release_flushes(&mut self, now: Nanos) {
        let lost = self.marks.lost_writes().first();
        for request in self.flushes.open.clone() {
            let Some(part) = self.part_of(request) else { continue };
            match lost {
                Some(path) => {
                    self.doom(part, Why::Failure(Failure::CacheLost { path }));
                    self.conclude_without_answer(now, request, part);
                }
                None => self.enqueue(request, part),
            }
        }
    }

    /// Which path a Flush waits for in vain, and since when.
    fn stuck(&self, request: RequestId) -> Option<(u32, Option<PathId>, Nanos)> {
        let part = self.part_of(request)?;
        let flush = self.flushes.list.get(part as usize)?;
        let unreachable = flush.need.and(flush.dirty).without(self.paths.reachable).first();
        let waits = unreachable.is_some() || flush.wants_any();
        (waits && flush.failed.is_none()).then_some((part, unreachable, flush.parked))
    }

    /// Flushes that have waited too long, or for what is gone.
    pub(super) fn give_up_flushes(&mut self, now: Nanos) {
        for request in self.flushes.open.clone() {
            let Some((part, path, parked)) = self.stuck(request) else { continue };
            let waited = now - parked;
            if waited < self.config.no_path_timeout {
                continue;
            }
            self.slots.trouble(request, parked);
            let failure = path.map_or(Failure::NoPath { waited }, |path| Failure::NotCovered { path, waited });
            self.doom(part, Why::Failure(failure));
            self.conclude_without_answer(now, request, part);
        }
    }

    pub(super) fn next_flush_deadline(&self) -> Nanos {
        let stuck = self.flushes.open.iter().filter_map(|&request| self.stuck(request));
        stuck.map(|(.., parked)| parked + self.config.no_path_timeout).fold(Nanos::MAX, Nanos::min)
    }
}
