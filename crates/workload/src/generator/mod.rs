//! What a job thread does next: a state machine without a clock, a thread or a device.
//!
//! Its runner (the command `reap run`, the simulator) asks [`Generator::next`] and does what it says:
//!
//! ```text
//! loop {
//!     match generator.next(now) {
//!         Issue(io)        => { fill(&io, buffer) if it writes; post; generator.issued(&io, now) }
//!         Commit           => { ring the doorbell; read the clock; generator.committed(now) }
//!         Reap { min, .. } => { wait for min completions; for each: generator.completed(io, now, result, buffer) }
//!         Wait { until }   => { take completions as they come, until then; then ask again }
//!         Done             => break,
//!     }
//! }
//! ```
//!
//! `now` may be the same for a whole batch: nothing here reads a clock. Completions may be handed in at any time, more
//! or fewer than asked for; after each batch of them, ask again.

mod checking;
mod fio_random;
mod flight;
mod io;
mod offsets;
mod phases;
mod throttle;
mod trail;
mod verify;

pub use io::{ErrorCode, Failure, Io, Region};
pub(crate) use offsets::extents;
pub use offsets::{Misfit, Target};
pub use trail::{ListLine, LogLine, Trail};
pub use verify::BadBlock;

use crate::job::{Job, PerOp};
use crate::stats::Stats;
use checking::Checks;
use fio_random::FioRandom;
use flight::{BatchStats, Extra, Flight, Times};
use io::Place;
use offsets::Stream;
use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use smart_default::SmartDefault;
use std::collections::{BTreeMap, VecDeque};
use throttle::{Hold, Overlaps, Pacing, Pauses, Syncs};
use units::{Nanos, Op};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Post this I/O, then call [`Generator::issued`].
    Issue(Io),
    /// Announce what was posted, then call [`Generator::committed`].
    Commit,
    /// Wait until at least `min` I/Os completed; hand them to [`Generator::completed`].
    Reap {
        /// Completions to wait for, at least 1.
        min: u32,
        /// Completions that the job wants to take at once, at least `min`. More may be handed in.
        max: u32,
    },
    /// Nothing to issue before `until`. What completes meanwhile is handed in as it comes.
    Wait {
        /// When to ask again.
        until: Nanos,
    },
    /// The job is over; nothing is in flight.
    Done,
}

/// Which thread of a job this is; by default the first one of the first job, without any entropy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault)]
pub struct Seat {
    /// Number among all threads of the run, from 1. Threads of the same job differ in their random numbers by it.
    #[default(1)]
    pub number: u32,
    /// Number among the job's threads, from 0.
    pub subjob: u32,
    /// From outside, different in each run: seeds jobs without `randrepeat`.
    pub entropy: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not asked yet.
    New,
    /// Waiting out `startdelay`.
    Delay,
    /// Issuing.
    Run,
    /// Reading back what the pass wrote.
    Verify,
    /// Waiting for what is in flight, then going on.
    Drain,
    Done,
}

/// The state machine of one job thread.
#[derive(Debug)]
pub struct Generator {
    /// I/Os that may be issued before anything but the time is looked at again.
    credit: u32,
    /// Before this instant nothing but I/O happens.
    event: Nanos,
    /// A rate, verification or Flushes make I/Os more than a place.
    special: bool,
    /// Single I/Os are timed at all.
    timed: bool,
    flight: Flight,
    /// Completions since they were last counted.
    reaped: u32,
    /// Of these, the ones whose latencies have yet to be counted.
    batch_stats: BatchStats,
    /// Bytes that the pass may still issue.
    bytes_left: i64,
    ios_left: u64,
    stream: Stream,
    phase: Phase,
    /// I/Os are issued while fewer than this are in flight: `depth`, or less while completions are waited for.
    limit: u32,
    /// Completions are waited for: the depth was reached.
    waiting: bool,
    depth: u32,
    low: u32,
    /// I/Os per doorbell; where batches grow, of the next one, and what they grow to.
    batch: u32,
    grows: Option<u32>,
    complete_min: u32,
    complete_max: u32,
    /// An I/O that waits for its time.
    held: Option<Place>,
    pacing: Option<Box<Pacing>>,
    syncs: Option<Box<Syncs>>,
    /// `None`: I/Os wait for none in flight.
    overlaps: Option<Box<Overlaps>>,
    pauses: Option<Box<Pauses>>,
    /// What is noted down of the I/Os.
    noted: Option<Box<Trail>>,
    /// Operations whose errors do not end the job.
    goes_on: PerOp<bool>,
    stats: Stats,
    clock: Clock,
    checks: Checks,
    failure: Option<Failure>,
    stopping: bool,
    goal: Goal,
    /// The pass has no more I/Os.
    exhausted: bool,
}

/// The job's instants.
#[derive(Debug, Default)]
struct Clock {
    /// When it was asked first.
    asked: Nanos,
    delay: Nanos,
    ramp: Nanos,
    runtime: Option<Nanos>,
    /// When it began to issue.
    began: Nanos,
    /// When the measured part began; `None`: in the ramp.
    epoch: Option<Nanos>,
    ramp_end: Nanos,
    /// When the current phase began to be measured.
    phase_start: Nanos,
    /// When bandwidth and IOPS were sampled last, and bytes and I/Os by then.
    sampled_at: Nanos,
    sampled: PerOp<(u64, u64)>,
}

/// How much to do. As fio does it (`do_io` and `keep_running` in its backend.c, with an asynchronous engine): a pass issues `size` bytes,
/// as far as its files have them; passes follow until `io_size` bytes have been moved, but for less than one I/O.
#[derive(Debug)]
struct Goal {
    /// Bytes that a pass issues at most, verification between its writes included.
    pass: i64,
    /// Bytes that are left of what all passes issue; of a job that trims and writes, write.
    left: i64,
    counts_writes: bool,
    /// I/Os of the whole, verification included.
    ios: u64,
    /// What moved in all, at the start of the pass, and is to move.
    moved: u64,
    moved_before: u64,
    limit: u64,
    /// `io_size` is given.
    beyond_size: bool,
    longest: u64,
    /// Passes that follow in any case.
    loops: u64,
    time_based: bool,
    /// What the pass began with.
    bytes_before: i64,
    whole: i64,
}

/// How often bandwidth and IOPS are sampled: fio's `bwavgtime`.
const SAMPLE_EVERY: Nanos = Nanos::from_millis(500);
/// Most slots of a job thread.
const MOST_DEPTH: u32 = 1 << 20;

impl Generator {
    /// A job thread on `targets`: one per filename of the job, or one.
    pub fn new(job: &Job, seat: Seat, targets: &[Target]) -> Result<Generator, Misfit> {
        let base = job.base_seed().unwrap_or(seat.entropy);
        let mut seeds = SplitMix64::seed_from_u64(base ^ u64::from(seat.number).rotate_left(40));
        let mut stream = Stream::new(job, seat.subjob, targets, seeds.next_u64())?;
        let pacing = Pacing::new(job, seeds.next_u64()).map(Box::new);
        stream.turns = pacing.as_ref().and_then(|pacing| pacing.turns(job));
        if stream.follows() {
            stream.follow(FioRandom::new(job, seat.number, seat.subjob, seat.entropy));
        }
        // fio then waits for one completion after each I/O, whatever the depth.
        let depth = if job.complete_min == 0 { 1 } else { job.iodepth.clamp(1, MOST_DEPTH) };
        let batch = if job.batch_submit == 0 { depth } else { job.batch_submit.min(depth) };
        let goal = Goal::new(job, &stream);
        let checks = Checks::new(job, seat.number, &stream, goal.passes())?;
        let syncs = Syncs::new(job).map(Box::new);
        let overlaps = Overlaps::new(job).map(Box::new);
        let pauses = job.think.map(|think| Box::new(Pauses::new(think)));
        let noted = Trail::new(job).map(Box::new);
        let stats = Stats::new(job.measure, pacing.is_some());
        let special =
            pacing.is_some() || job.verify.is_some() || syncs.is_some() || pauses.is_some() || noted.is_some() || job.iolog.is_some();
        let special = special || overlaps.is_some() || goal.counts_writes;
        // A Flush may come before the I/O that the pass does not have any more.
        stream.plain &= !special;
        let (shortest, longest) = (job.start_delay.0, job.start_delay.0.max(job.start_delay.1));
        let delay = shortest + Nanos(seeds.next_u64() % (longest - shortest).0.saturating_add(1));
        Ok(Generator {
            credit: 0,
            event: Nanos::ZERO,
            special,
            timed: job.measure.slat || job.measure.clat || job.measure.lat,
            flight: Flight::new(depth, special),
            reaped: 0,
            batch_stats: BatchStats::default(),
            bytes_left: 0,
            ios_left: goal.ios,
            stream,
            phase: Phase::New,
            limit: depth,
            waiting: false,
            depth,
            low: if job.iodepth_low == 0 { depth } else { job.iodepth_low.min(depth) },
            batch,
            grows: job.batch_grows.then_some(batch),
            complete_min: job.complete_min.clamp(1, depth),
            complete_max: job.complete_max.max(job.complete_min).max(1),
            held: None,
            pacing,
            syncs,
            overlaps,
            pauses,
            noted,
            goes_on: job.goes_on,
            stats,
            clock: Clock { delay, ramp: job.ramp_time, runtime: job.runtime, ..Clock::default() },
            checks,
            failure: None,
            stopping: false,
            goal,
            exhausted: false,
        })
    }

    /// What to do next, at `now`.
    #[inline]
    pub fn next(&mut self, now: Nanos) -> Next {
        if now < self.event {
            if self.credit > 0 {
                return self.issue_granted(now);
            }
            if self.reaped == 0
                && let Some(next) = self.halted()
            {
                return next;
            }
        }
        self.decide(now)
    }

    /// What [`Generator::next`] would say to issue, if nothing but the time has to be looked at to know: shorter, for a loop that
    /// posts a batch. `None`: ask [`Generator::next`].
    #[inline(always)]
    pub fn granted(&mut self, now: Nanos) -> Option<Io> {
        if self.credit == 0 || self.special || now >= self.event {
            return None;
        }
        self.credit -= 1;
        self.issue_plain()
    }

    /// The next I/O of a job that keeps nothing of it but its times; `None`: the pass has none.
    #[inline(always)]
    fn issue_plain(&mut self) -> Option<Io> {
        let Some(Place { op, target, offset, len }) = self.stream.next() else {
            self.exhausted();
            return None;
        };
        self.bytes_left -= i64::from(len);
        let slot = self.flight.occupy()?;
        Some(Io { slot, op, target, offset, len })
    }

    /// Looks at everything: what is due, whether to commit or to wait, how many I/Os may follow.
    fn decide(&mut self, now: Nanos) -> Next {
        if self.reaped > 0 {
            self.stats.complete.add_batch(self.reaped);
            self.reaped = 0;
            self.batch_stats.count(&mut self.stats);
        }
        self.ios_left += u64::from(self.credit);
        self.credit = 0;
        if let Some(most) = self.grows.filter(|_| self.flight.queued == 0) {
            // What is out keeps the device busy for about as long as it takes to make as many.
            self.batch = self.flight.in_flight.clamp(1, most);
        }
        loop {
            if now >= self.event {
                self.on_event(now);
            }
            if let Some(next) = self.halted() {
                return next;
            }
            if self.waiting {
                // Enough completed; go on issuing, unless the low-water mark asks for more.
                if self.flight.in_flight > self.low {
                    return self.reap();
                }
                self.waiting = false;
                self.limit = self.depth;
            }
            match self.phase {
                Phase::Run if self.bytes_left > 0 && self.ios_left > 0 && self.goal.left > 0 && !self.exhausted => {
                    if self.checks.backlog_is_due() {
                        if let Some(next) = self.begin_backlog() {
                            return next;
                        }
                        continue;
                    }
                    let room = (self.batch - self.flight.queued).min(self.limit - self.flight.in_flight);
                    let room = match self.pauses.as_mut().map(|pauses| pauses.before(now, self.flight.in_flight)) {
                        None => room,
                        Some(Hold::Go(most)) => most.min(room.into()) as u32,
                        Some(hold) => return self.held(hold),
                    };
                    let bytes = self.bytes_left.min(self.goal.left) as u64;
                    let ios = self.stream.least_ios(bytes, self.ios_left.min(room.into()));
                    self.ios_left -= ios;
                    self.credit = ios as u32 - 1;
                    return self.issue(now);
                }
                Phase::Verify if self.checks.interim && (self.bytes_left <= 0 || self.ios_left == 0) => self.end_backlog(),
                Phase::Verify if !self.checks.due.is_empty() => {
                    if let Some(next) = self.issue_check(now) {
                        return next;
                    }
                }
                _ => {
                    if let Some(next) = self.turn(now) {
                        return next;
                    }
                }
            }
        }
    }

    /// What has to be done before the next I/O may be issued: as much is posted as is announced at once, or as many are in flight as may
    /// be.
    #[inline(always)] // Two comparisons.
    fn halted(&mut self) -> Option<Next> {
        if self.flight.queued >= self.batch {
            Some(Next::Commit)
        } else if self.flight.in_flight >= self.limit {
            Some(self.full())
        } else {
            None
        }
    }

    /// No more may be in flight: commit what is posted, then wait.
    fn full(&mut self) -> Next {
        if self.flight.queued > 0 {
            return Next::Commit;
        }
        if !self.waiting {
            return self.reap();
        }
        let min = self.flight.in_flight + 1 - self.limit;
        Next::Reap { min, max: self.complete_max.max(min) }
    }

    /// Waits for the next `complete_min` of what is in flight.
    #[inline(always)]
    fn reap(&mut self) -> Next {
        let min = self.complete_min.min(self.flight.in_flight);
        self.waiting = true;
        self.limit = self.flight.in_flight + 1 - min;
        Next::Reap { min, max: self.complete_max.max(min) }
    }

    /// The next I/O, which was granted already.
    #[inline(never)] // What it needs of the stack, a question with another answer does without.
    fn issue_granted(&mut self, now: Nanos) -> Next {
        self.credit -= 1;
        self.issue(now)
    }

    /// The next I/O of the stream.
    #[inline(always)]
    fn issue(&mut self, now: Nanos) -> Next {
        if self.special {
            return self.issue_special(now);
        }
        match self.issue_plain() {
            Some(io) => Next::Issue(io),
            None => self.decide(now),
        }
    }

    /// The pass has no more I/Os: what was granted is not taken.
    #[cold]
    fn exhausted(&mut self) {
        self.ios_left += u64::from(self.credit) + 1;
        (self.credit, self.exhausted) = (0, true);
    }

    /// `place` is issued, or taken for issued.
    fn took(&mut self, place: Place) {
        self.bytes_left -= i64::from(place.len);
        self.goal.moved += u64::from(place.len);
        if !self.goal.counts_writes || place.op == Op::Write {
            self.goal.left -= i64::from(place.len);
        }
    }

    /// The same for a job with a rate, with verification or with Flushes.
    fn issue_special(&mut self, now: Nanos) -> Next {
        let place = match (self.held.take(), self.syncs.as_ref().and_then(|syncs| syncs.due())) {
            (Some(place), _) => Some(place),
            (None, None) => self.stream.next(),
            (None, Some(data_sync)) => match self.stream.flush() {
                Some(target) => {
                    // What was granted is still to come.
                    self.ios_left += 1;
                    return self.issue_flush(target, data_sync, now);
                }
                None => None,
            },
        };
        let Some(place) = place else {
            self.exhausted();
            return self.decide(now);
        };
        let listed = self.stream.listed_at().map(|at| self.clock.began + at);
        let paced = self.pacing.as_ref().and_then(|pacing| pacing.due(place.op));
        let hold = match listed.into_iter().chain(paced).find(|due| *due > now) {
            Some(due) => Some(Hold::Until(due)),
            None => self.overlaps.as_ref().filter(|overlaps| overlaps.touch(&place)).map(|_| Hold::Reap),
        };
        if let Some(hold) = hold {
            self.held = Some(place);
            self.credit += 1;
            return self.held(hold);
        }
        if let Some(pacing) = &mut self.pacing {
            pacing.issued(place.op, place.len);
        }
        self.took(place);
        let seed = self.stream.data_seed();
        let sequence = if place.op == Op::Read { 0 } else { self.checks.changes(place, seed) };
        if let Some(pauses) = self.pauses.as_mut() {
            pauses.left = pauses.left.saturating_sub(1);
        }
        let check = self.checks.reads && place.op == Op::Read;
        self.post(place, Extra { intended: paced.unwrap_or(now), sequence, check, seed, written: now, data_sync: false }, now)
    }

    /// An I/O of a job that keeps more than the times of each.
    fn post(&mut self, place: Place, extra: Extra, now: Nanos) -> Next {
        // One slot at least is free: for what was granted, or because nothing is in flight.
        let Some(slot) = self.flight.occupy() else { return Next::Wait { until: now } };
        if let Some(syncs) = &mut self.syncs {
            syncs.issued(place.op);
        }
        let Place { op, target, offset, len } = place;
        if let Some(trail) = &mut self.noted {
            let offset = if op == Op::Flush { self.stream.looked_at } else { offset };
            trail.issued(ListLine { at: now, op, target, offset, len, data_sync: extra.data_sync });
        }
        if let Some(overlaps) = &mut self.overlaps {
            overlaps.0.push((slot, place));
        }
        self.flight.set_extra(slot, extra);
        Next::Issue(Io { slot, op, target, offset, len })
    }

    /// `io` was posted at `now`; nothing was announced yet.
    #[inline]
    pub fn issued(&mut self, io: &Io, now: Nanos) {
        self.flight.posted(io.slot, io.op, now);
    }

    /// What was posted was announced at `now`.
    #[inline]
    pub fn committed(&mut self, now: Nanos) {
        self.flight.commit(now, self.timed, &mut self.stats);
    }

    /// `io` completed, and was found at `now`. `buf` is its data: looked at only if the job [`Generator::verifies`]. Latencies are
    /// among the statistics once [`Generator::next`] has been asked again.
    #[inline]
    pub fn completed(&mut self, io: Io, now: Nanos, result: Result<(), ErrorCode>, buf: &[u8]) {
        let Some(times) = self.flight.release(io.slot) else { return };
        self.reaped += 1;
        if let Some(overlaps) = &mut self.overlaps {
            overlaps.0.retain(|(slot, _)| *slot != io.slot);
        }
        if let Err(code) = result {
            if *self.goes_on.get(io.op) && matches!(code, ErrorCode::EIO | ErrorCode::EILSEQ) {
                return self.stats.add_error(code.0);
            }
            return self.fail(Failure { code, op: io.op, target: io.target, offset: io.offset, len: io.len });
        }
        let stats = self.stats.op_mut(io.op);
        stats.ios += 1;
        stats.bytes += u64::from(io.len);
        if self.timed {
            self.batch_stats.add(io.op, times, now, &mut self.stats);
        }
        if self.special {
            self.completed_special(io, times, now, buf);
        }
    }

    /// By value: of a job that needs none of this the I/O stays in registers.
    #[inline(never)]
    fn completed_special(&mut self, io: Io, times: Times, now: Nanos, buf: &[u8]) {
        if let Some(trail) = &mut self.noted {
            trail.completed(io.op, io.len, [times.start, times.committed, now]);
        }
        let extra = self.flight.extra(io.slot);
        if self.timed && self.pacing.is_some() && extra.intended != Nanos::MAX {
            self.stats.op_mut(io.op).intended.add(now - extra.intended, 1);
        }
        if extra.check {
            self.check(&io, extra, now, buf);
        }
    }

    /// Whether the job has a rate.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.pacing.is_some()
    }

    /// When the job's rate means its next I/O to start, or meant it to: a runner that waits for completions to make room for it may be
    /// late already. `None`: there is no rate, or nothing is left to issue.
    pub fn next_due(&self) -> Option<Nanos> {
        let left = self.ios_left > 0 && self.bytes_left > 0 || self.credit > 0 || self.held.is_some();
        let pacing = self.pacing.as_ref().filter(|_| left && self.phase == Phase::Run && !self.stopping)?;
        pacing.next_due(self.held.as_ref().map(|place| place.op))
    }

    /// Whether data are verified: [`Generator::fill`] does something, and [`Generator::completed`] looks at what was read.
    #[inline]
    pub fn verifies(&self) -> bool {
        self.checks.layout.is_some()
    }

    /// Puts into `buf` what the write `io` writes. Without `verify` any data will do, and `buf` stays as it is.
    #[inline]
    pub fn fill(&self, io: &Io, buf: &mut [u8]) {
        if let Some(layout) = &self.checks.layout {
            layout.fill(io, self.flight.extra(io.slot), self.checks.thread, buf);
        }
    }

    /// Stops as soon as what is in flight has completed: Ctrl-C, `exitall`, an error elsewhere.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.event = Nanos::ZERO;
    }
}

#[cfg(test)]
mod tests;
