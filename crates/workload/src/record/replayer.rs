//! A thread of a recording, submitted again: asked like a [`Generator`](crate::Generator), it says what the trace says.
//!
//! A submission may go as soon as what it waited for is there. Completions come in another order than they did, so its
//! place among the others is not kept: within the next `depth` submissions, whichever is ready goes first. The
//! application waits for as many completions as it did, and rings the doorbell when its batch is full or nothing more is
//! ready.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::reader::Cursor;
use super::{Cause, Submission, Trace};
use crate::generator::{ErrorCode, Failure, Io, Next};
use crate::stats::{Histogram, Stats};
use units::Nanos;

/// The state machine of one recorded thread.
#[derive(Debug)]
pub struct Replayer {
    trace: Arc<Trace>,
    thread: usize,
    cursor: Cursor,
    depth: u32,
    /// I/Os per doorbell at most; `None`: as recorded.
    batch: Option<u32>,
    /// The next submissions, and whether each has been issued already. The first has not.
    window: VecDeque<(Submission, bool)>,
    /// Number of the window's first.
    base: u64,
    /// By slot.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Numbers of the submissions in flight.
    flying: HashSet<u64>,
    /// Slots that were posted and not announced.
    queued: Vec<u32>,
    /// The last one posted ended its batch.
    batch_ends: bool,
    /// Completions since the application began to wait, and whether they are as many as it waits for.
    completed: u32,
    open: bool,
    began: Option<Nanos>,
    stats: Stats,
    failure: Option<Failure>,
}

/// The I/O in a slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    submission: Submission,
    start: Nanos,
    committed: Nanos,
}

impl Replayer {
    /// Thread `thread` of `trace`, from its start.
    pub fn new(trace: Arc<Trace>, thread: usize) -> Option<Replayer> {
        let head = trace.header().threads.get(thread)?;
        let (depth, batch) = (head.depth.max(1), (head.batch > 0).then_some(head.batch));
        let mut replayer = Replayer {
            cursor: Cursor::default(),
            depth,
            batch,
            window: VecDeque::new(),
            base: 0,
            slots: Vec::new(),
            free: Vec::new(),
            flying: HashSet::new(),
            queued: Vec::new(),
            batch_ends: false,
            completed: 0,
            open: true,
            began: None,
            stats: Stats::default(),
            failure: None,
            trace,
            thread,
        };
        for stats in [&mut replayer.stats.read, &mut replayer.stats.write] {
            for latency in [&mut stats.clat, &mut stats.lat] {
                latency.histogram = Some(Histogram::default());
            }
        }
        Some(replayer)
    }

    /// What to do next, at `now`.
    pub fn next(&mut self, now: Nanos) -> Next {
        let began = *self.began.get_or_insert(now);
        self.load();
        if self.failure.is_some() {
            return self.wait_for(1, None);
        }
        if self.batch_ends || self.batch.is_some_and(|batch| self.queued.len() >= batch as usize) {
            return Next::Commit;
        }
        if self.in_flight() < self.depth
            && let Some(at) = self.ready(now, began)
        {
            return self.issue(at);
        }
        let Some((first, _)) = self.window.front() else { return self.wait_for(1, None) };
        let min = first.wait.saturating_sub(self.completed).max(1);
        let due = self.window.iter().filter(|(_, issued)| !issued).filter_map(|(s, _)| at(s.cause, began)).min();
        self.wait_for(min, due.filter(|_| self.in_flight() < self.depth))
    }

    /// Commits first; else waits for completions, or for the clock.
    fn wait_for(&mut self, min: u32, due: Option<Nanos>) -> Next {
        if !self.queued.is_empty() {
            return Next::Commit;
        }
        self.open = false;
        match (due, self.in_flight()) {
            (Some(until), _) => Next::Wait { until },
            (None, 0) => Next::Done,
            (None, in_flight) => Next::Reap { min: min.min(in_flight), max: u32::MAX },
        }
    }

    /// Fills the window.
    fn load(&mut self) {
        while self.window.front().is_some_and(|(_, issued)| *issued) {
            self.window.pop_front();
            self.base += 1;
        }
        while self.window.len() < self.depth as usize {
            let Some(next) = self.trace.next(self.thread, &mut self.cursor) else { break };
            self.window.push_back((next, false));
        }
    }

    /// Where in the window the first submission is that may go.
    fn ready(&mut self, now: Nanos, began: Nanos) -> Option<usize> {
        let first = self.window.front().map_or(0, |(s, _)| s.wait);
        if !self.open && (self.completed >= first || self.in_flight() == 0) {
            (self.open, self.completed) = (true, 0);
        }
        self.window.iter().position(|(s, issued)| {
            !issued
                && match s.cause {
                    Cause::Start => self.open,
                    Cause::After(before) => self.open && self.has_completed(before),
                    Cause::At(_) => at(s.cause, began).is_some_and(|due| due <= now),
                }
        })
    }

    fn has_completed(&self, number: u64) -> bool {
        let issued = match number.checked_sub(self.base) {
            None => true,
            Some(at) => self.window.get(at as usize).is_some_and(|(_, issued)| *issued),
        };
        issued && !self.flying.contains(&number)
    }

    fn issue(&mut self, at: usize) -> Next {
        let Some((submission, issued)) = self.window.get_mut(at) else { return Next::Done };
        *issued = true;
        let (submission, number) = (*submission, self.base + at as u64);
        let entry = Slot { number, submission, start: Nanos::ZERO, committed: Nanos::ZERO };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(entry);
                self.slots.len() as u32 - 1
            }
        };
        self.slots[slot as usize] = entry;
        self.flying.insert(number);
        let Submission { op, target, offset, len, .. } = submission;
        Next::Issue(Io { slot, op, target, offset, len })
    }

    /// What the trace says of the I/O in `slot`, which is in flight or was issued last there.
    pub fn submission(&self, slot: u32) -> Option<&Submission> {
        self.slots.get(slot as usize).map(|slot| &slot.submission)
    }

    /// `io` was posted at `now`; nothing was announced yet.
    pub fn issued(&mut self, io: &Io, now: Nanos) {
        let Some(slot) = self.slots.get_mut(io.slot as usize) else { return };
        (slot.start, slot.committed) = (now, now);
        self.batch_ends = self.batch.is_none() && slot.submission.ends_batch;
        self.queued.push(io.slot);
    }

    /// What was posted was announced at `now`.
    pub fn committed(&mut self, now: Nanos) {
        if !self.queued.is_empty() {
            let queued = self.queued.len() as u32;
            self.stats.submit.add_batch(queued);
            self.stats.depth.add_depth(self.in_flight(), queued);
        }
        self.batch_ends = false;
        for slot in self.queued.drain(..) {
            if let Some(slot) = self.slots.get_mut(slot as usize) {
                slot.committed = now;
                self.stats.op_mut(slot.submission.op).issued += 1;
            }
        }
    }

    /// `io` completed, and was found at `now`.
    pub fn completed(&mut self, io: Io, now: Nanos, result: Result<(), ErrorCode>) {
        let Some(slot) = self.slots.get(io.slot as usize) else { return };
        if !self.flying.remove(&slot.number) {
            return;
        }
        self.free.push(io.slot);
        self.completed = self.completed.saturating_add(1);
        if let Err(code) = result {
            let Io { op, target, offset, len, .. } = io;
            self.failure.get_or_insert(Failure { code, op, target, offset, len });
            return;
        }
        let (clat, lat) = (now - slot.committed, now - slot.start);
        let stats = self.stats.op_mut(io.op);
        stats.ios += 1;
        stats.bytes += u64::from(io.len);
        stats.clat.add(clat);
        stats.lat.add(lat);
    }

    /// I/Os in flight, posted ones included.
    pub fn in_flight(&self) -> u32 {
        self.flying.len() as u32
    }

    /// What was measured.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The I/O that ended the replay, if one did.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }
}

/// The instant that a submission waits for, if it does.
fn at(cause: Cause, began: Nanos) -> Option<Nanos> {
    match cause {
        Cause::At(at) => Some(began + at),
        Cause::Start | Cause::After(_) => None,
    }
}
