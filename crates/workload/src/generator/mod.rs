//! What a job thread does next: a state machine without a clock, a thread or a device.
//!
//! Its runner (the command `reap run`, the simulator) asks [`Generator::next`] and does what it says:
//!
//! ```text
//! loop {
//!     match generator.next(now) {
//!         Issue(io)        => { fill(&io, buffer) if it writes; post }
//!         Commit           => { ring the doorbell; read the clock; generator.committed(now) }
//!         Reap { min }     => { wait for min completions; for each: generator.completed(slot, now, result, buffer) }
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
mod offsets;
mod phases;
mod throttle;
mod trail;
mod verify;

pub(crate) use offsets::{Extent, extents};
pub use offsets::{Misfit, Target};
pub use trail::{ListLine, LogLine, Trail};
pub use verify::BadBlock;

use crate::job::{Job, PerOp};
use crate::stats::Stats;
use checking::Checks;
use flight::{Alike, Extra, Flight, Slot};
use offsets::Stream;
use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use smart_default::SmartDefault;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use throttle::{Hold, Pacing, Pauses, Syncs, overlap};
use units::{Nanos, Op};

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Below the job's `iodepth`; no two I/Os in flight share one. The index of its buffer. 0 until it is issued.
    pub slot: u32,
    /// Read, write, or the Flush of [`Job::sync_every`](crate::job::Job::sync_every), which has neither place nor length.
    pub op: Op,
    /// Index of the target it goes to.
    pub target: u16,
    /// First byte on that target.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Why an I/O failed, as an errno: what fio prints as `err=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    /// Input/output error.
    pub const EIO: ErrorCode = ErrorCode(5);
    /// No space left on device.
    pub const ENOSPC: ErrorCode = ErrorCode(28);
    /// Invalid or incomplete multibyte or wide character: what fio reports for a failed verification.
    pub const EILSEQ: ErrorCode = ErrorCode(84);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

/// The first I/O of a job that failed; the job ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub code: ErrorCode,
    /// What it was.
    pub io: Io,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Io { op, offset, len, .. } = self.io;
        write!(f, "{} at offset {offset}, length {len}: {}", op.name().to_lowercase(), self.code)
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Post this I/O: it is counted as posted now.
    Issue(Io),
    /// Announce what was posted, then call [`Generator::committed`].
    Commit,
    /// Wait until at least `min` I/Os completed; hand them to [`Generator::completed`], and if there are more, up to
    /// [`Generator::complete_max`] of them. More may be handed in.
    Reap {
        /// Completions to wait for, at least 1.
        min: u32,
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
    /// Before this instant nothing but I/O happens.
    event: Nanos,
    /// I/Os that may be issued before anything but the time is looked at again.
    room: u32,
    /// A rate, verification or Flushes make I/Os more than a place.
    special: bool,
    flight: Flight,
    /// Completions since they were last counted.
    reaped: u32,
    /// Of these, the ones whose figures have yet to be counted.
    alike: Alike,
    /// Bytes and I/Os that the pass may still issue.
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
    held: Option<Io>,
    pacing: Option<Box<Pacing>>,
    syncs: Option<Box<Syncs>>,
    /// The I/Os in flight, if others wait for those that they [`overlap`].
    overlaps: Option<Vec<Io>>,
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
    /// What `left` began with.
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
        let (stream_seed, pacing_seed) = (seeds.next_u64(), seeds.next_u64());
        let pacing = Pacing::new(job, pacing_seed).map(Box::new);
        let turns = pacing.as_ref().and_then(|pacing| pacing.turns(job));
        let stream = Stream::new(job, seat, targets, stream_seed, turns)?;
        // fio then waits for one completion after each I/O, whatever the depth.
        let depth = if job.complete_min == 0 { 1 } else { job.iodepth.clamp(1, MOST_DEPTH) };
        let batch = if job.batch_submit == 0 { depth } else { job.batch_submit.min(depth) };
        let goal = Goal::new(job, &stream);
        let checks = Checks::new(job, seat.number, &stream, goal.passes())?;
        let syncs = Syncs::new(job).map(Box::new);
        let waits = job.pattern.changes() && (job.serialize_overlap || job.verify.is_some());
        let overlaps = waits.then(|| Vec::with_capacity(depth.min(1_024) as usize));
        let pauses = job.think.map(|think| Box::new(Pauses { think, left: think.blocks, pause: None }));
        let noted = Trail::new(job).map(Box::new);
        let stats = Stats::new(job.measure, pacing.is_some());
        let special = pacing.is_some() || job.verify.is_some() || syncs.is_some() || pauses.is_some() || noted.is_some();
        let special = special || job.iolog.is_some() || overlaps.is_some() || goal.counts_writes;
        let (shortest, longest) = (job.start_delay.0, job.start_delay.0.max(job.start_delay.1));
        let delay = shortest + Nanos(seeds.next_u64() % (longest - shortest).0.saturating_add(1));
        Ok(Generator {
            event: Nanos::ZERO,
            room: 0,
            special,
            flight: Flight::new(depth, special),
            reaped: 0,
            alike: Alike::default(),
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
        })
    }

    /// What to do next, at `now`.
    #[inline(always)] // Most answers take a few comparisons: a call would cost more.
    pub fn next(&mut self, now: Nanos) -> Next {
        loop {
            if now < self.event {
                if self.room > 0 {
                    if let Some(io) = self.stream.next()
                        && let Some(io) = self.flight.post(io, now)
                    {
                        self.room -= 1;
                        self.took(&io);
                        return Next::Issue(io);
                    }
                    (self.room, self.bytes_left) = (0, 0);
                }
                let queued = self.flight.queued;
                if queued >= self.batch {
                    return Next::Commit;
                }
                if queued == 0 && self.flight.in_flight >= self.limit && self.reaped == 0 {
                    return self.reap(!self.waiting);
                }
            }
            if let Some(next) = self.decide(now) {
                return next;
            }
        }
    }

    /// Looks at everything: what is due, whether to commit or to wait, how many I/Os may follow. `None`: ask again, there is room.
    #[inline(never)]
    fn decide(&mut self, now: Nanos) -> Option<Next> {
        self.room = 0;
        if self.reaped > 0 {
            self.stats.complete.add_batch(std::mem::take(&mut self.reaped));
            self.alike.count(&mut self.stats);
        }
        loop {
            if now >= self.event {
                self.on_event(now);
            }
            let (in_flight, queued) = (self.flight.in_flight, self.flight.queued);
            if queued > 0 && (queued >= self.batch || in_flight >= self.limit) {
                return Some(Next::Commit);
            }
            if in_flight >= self.limit {
                return Some(self.reap(!self.waiting));
            }
            if self.waiting {
                // Enough completed; go on issuing, unless the low-water mark asks for more.
                if in_flight > self.low {
                    return Some(self.reap(true));
                }
                (self.waiting, self.limit) = (false, self.depth);
            }
            if queued == 0
                && let Some(most) = self.grows
            {
                // What is out keeps the device busy for about as long as it takes to make as many.
                self.batch = in_flight.clamp(1, most);
            }
            let bytes = self.bytes_left.min(self.goal.left);
            let next = match self.phase {
                Phase::Run if bytes > 0 && self.ios_left > 0 => {
                    if !self.special {
                        let room = (self.batch - queued).min(self.limit - in_flight);
                        self.room = self.stream.least_ios(bytes as u64, self.ios_left.min(room.into())) as u32;
                        return None;
                    }
                    self.issue_special(now)
                }
                Phase::Verify => self.verify_next(now),
                _ => self.turn(now),
            };
            if next.is_some() {
                return next;
            }
        }
    }

    /// Waits for what is missing of the next `complete_min` of what is in flight; they are counted from now on if `anew`.
    #[inline]
    fn reap(&mut self, anew: bool) -> Next {
        let in_flight = self.flight.in_flight;
        if anew {
            (self.waiting, self.limit) = (true, in_flight + 1 - self.complete_min.min(in_flight));
        }
        Next::Reap { min: in_flight + 1 - self.limit }
    }

    /// `io` is issued, or taken for issued.
    #[inline]
    fn took(&mut self, io: &Io) {
        let len = u64::from(io.len);
        self.ios_left -= 1;
        self.bytes_left -= len as i64;
        self.goal.moved += len;
        if !self.goal.counts_writes || io.op == Op::Write {
            self.goal.left -= len as i64;
        }
    }

    /// The next I/O of a job with a rate, with verification, with Flushes or the like; `None`: ask again.
    #[inline(never)] // What it needs of registers, other jobs do without.
    fn issue_special(&mut self, now: Nanos) -> Option<Next> {
        if self.checks.backlog_is_due() {
            return self.begin_backlog();
        }
        if let Some(hold) = self.pauses.as_mut().and_then(|pauses| pauses.before(now, self.flight.in_flight)) {
            return Some(self.held(hold));
        }
        let io = match (self.held.take(), self.syncs.as_ref().and_then(|syncs| syncs.due())) {
            (None, Some(data_sync)) => match self.stream.flush() {
                Some(target) => return Some(self.issue_flush(target, data_sync, now)),
                None => None,
            },
            (held, _) => held.or_else(|| self.stream.next()),
        };
        let Some(io) = io else {
            self.bytes_left = 0;
            return None;
        };
        let listed = self.stream.listed_at.map(|at| self.clock.began + at);
        let paced = self.pacing.as_ref().and_then(|pacing| pacing.due(io.op));
        let hold = match listed.into_iter().chain(paced).find(|due| *due > now) {
            Some(due) => Some(Hold::Until(due)),
            None => self.overlaps.iter().flatten().any(|other| overlap(&io, other)).then_some(Hold::Reap),
        };
        if let Some(hold) = hold {
            self.held = Some(io);
            return Some(self.held(hold));
        }
        if let Some(pacing) = &mut self.pacing {
            pacing.issued(io.op, io.len);
        }
        self.took(&io);
        let seed = self.stream.data_seed();
        let sequence = if io.op == Op::Read { 0 } else { self.checks.changes(io, seed) };
        if let Some(pauses) = self.pauses.as_mut() {
            pauses.left = pauses.left.saturating_sub(1);
        }
        let check = self.checks.reads && io.op == Op::Read;
        Some(self.post(io, Extra { intended: paced.unwrap_or(now), sequence, check, seed, written: now, data_sync: false }, now))
    }

    /// An I/O of a job that keeps more than the times of each.
    fn post(&mut self, io: Io, extra: Extra, now: Nanos) -> Next {
        // One slot at least is free: fewer than `depth` are in flight.
        let Some(io) = self.flight.post(io, now) else { return Next::Wait { until: now } };
        if let Some(syncs) = &mut self.syncs {
            syncs.issued(io.op);
        }
        if let Some(trail) = &mut self.noted {
            let offset = if io.op == Op::Flush { self.stream.looked_at } else { io.offset };
            trail.issued(ListLine { at: now, io: Io { offset, ..io }, data_sync: extra.data_sync });
        }
        self.overlaps.iter_mut().for_each(|in_flight| in_flight.push(io));
        if let Some(place) = self.flight.extras.get_mut(io.slot as usize) {
            *place = extra;
        }
        Next::Issue(io)
    }

    /// What was posted was announced at `now`.
    #[inline]
    pub fn committed(&mut self, now: Nanos) {
        self.flight.commit(now, &mut self.stats);
    }

    /// The I/O in `slot` completed, and was found at `now`. `buf` begins with its data: looked at only if the job [`Generator::verifies`]. It is
    /// among the statistics once [`Generator::next`] has been asked again.
    #[inline]
    pub fn completed(&mut self, slot: u32, now: Nanos, result: Result<(), ErrorCode>, buf: &[u8]) {
        let Some(ended) = self.flight.get(slot) else { return };
        self.reaped += 1;
        if self.special || result.is_err() {
            let ended = *ended;
            self.completed_special(&ended, now, result, buf);
        } else {
            self.alike.add(ended, now, &mut self.stats);
        }
        self.flight.release(slot, &mut self.stats);
    }

    #[inline(never)]
    fn completed_special(&mut self, ended: &Slot, now: Nanos, result: Result<(), ErrorCode>, buf: &[u8]) {
        let &Slot { ref io, start, committed } = ended;
        self.overlaps.iter_mut().for_each(|in_flight| in_flight.retain(|other| other.slot != io.slot));
        if let Err(code) = result {
            return self.fail(Failure { code, io: *io });
        }
        self.alike.add(ended, now, &mut self.stats);
        let Some(extra) = self.flight.extras.get(io.slot as usize).copied() else { return };
        if let Some(trail) = &mut self.noted {
            trail.completed(io.op, io.len, [start, committed, now]);
        }
        let intended = &mut self.stats.op_mut(io.op).intended;
        if intended.histogram.is_some() && extra.intended != Nanos::MAX {
            intended.add(now - extra.intended, 1);
        }
        if extra.check {
            self.check(io, extra, now, buf.get(..io.len as usize).unwrap_or_default());
        }
    }

    /// What the I/O in `slot` does, while it is in flight.
    pub fn op(&self, slot: u32) -> Option<Op> {
        self.flight.get(slot).map(|slot| slot.io.op)
    }

    /// The I/Os that are posted and not yet announced.
    #[inline]
    pub fn queued(&self) -> impl Iterator<Item = &Io> {
        self.flight.queued()
    }

    /// Whether the job has a rate.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.pacing.is_some()
    }

    /// When the job's rate means its next I/O to start, or meant it to: a runner that waits for completions to make room for it may be
    /// late already. `None`: there is no rate, or nothing is left to issue.
    pub fn next_due(&self) -> Option<Nanos> {
        let left = self.ios_left > 0 && self.bytes_left > 0 || self.held.is_some();
        let pacing = self.pacing.as_ref().filter(|_| left && self.phase == Phase::Run && !self.stopping)?;
        // Of whichever may be next, unless that is known.
        let known = self.held.map(|io| io.op);
        let ops = [Op::Read, Op::Write, Op::Deallocate].into_iter().filter(|op| known.is_none_or(|known| known == *op));
        ops.filter_map(|op| pacing.due(op)).min()
    }

    /// Whether data are verified: [`Generator::fill`] does something, and [`Generator::completed`] looks at what was read.
    #[inline]
    pub fn verifies(&self) -> bool {
        self.checks.layout.is_some()
    }

    /// Puts into `buf` what the write `io` writes. Without `verify` any data will do, and `buf` stays as it is.
    #[inline]
    pub fn fill(&self, io: &Io, buf: &mut [u8]) {
        if let (Some(layout), Some(extra)) = (&self.checks.layout, self.flight.extras.get(io.slot as usize)) {
            layout.fill(io, *extra, self.checks.thread, buf);
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
