//! The state machine of one job thread. It decides which I/O to issue when, and counts completions.
//! The caller (`reap run`, the simulator) has the clock, the thread and the device; it calls
//! [`Generator::next`] in a loop, and executes the action that is returned:
//!
//! ```text
//! loop {
//!     match generator.next(now) {
//!         Issue(io)        => { fill(&io, buffer) if it writes; queue it }
//!         Commit           => { ring the doorbell; generator.committed(now) }
//!         Reap { min }     => { wait for min completions; for each of them:
//!                               generator.completed(slot, now, result, buffer) }
//!         Wait { until }   => { reap completions until then }
//!         Done             => break,
//!     }
//! }
//! ```
//!
//! To *queue* an I/O is to write its command to the submission queue; to *commit* is to ring the
//! doorbell for all queued I/Os. Phases: `New → Delay → Run → Verify → (next pass: Run) → Drain →
//! Done`. `now` may be the same for a whole batch. The caller may pass in completions at any time,
//! and more or fewer than `min`.

mod fio_random;
mod in_flight;
mod job_logs;
mod offsets;
mod phases;
mod throttle;
mod verify;
mod verify_state;

pub use job_logs::{IologEntry, LogBuffer, LogSample};
pub(crate) use offsets::{Extent, extents};
pub use offsets::{JobError, TargetSize};
pub use verify::BadBlock;

use crate::job::{Job, PerOp};
use crate::stats::Stats;
use in_flight::{BatchStats, Extra, InFlight, Slot};
use offsets::Stream;
use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use smart_default::SmartDefault;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use throttle::{Pacing, Pauses, Syncs, WaitFor, overlap};
use units::{Nanos, Op};
use verify_state::VerifyState;

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Index of the I/O's buffer, below the job's `iodepth`. I/Os in flight have different slots. 0
    /// until the I/O is issued.
    pub slot: u32,
    /// The operation. A Flush ([`Job::sync_every`](crate::job::Job::sync_every)) has no offset and
    /// no length.
    pub op: Op,
    /// Index into the thread's targets.
    pub target: u16,
    /// First byte on the target.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// The errno of a failed I/O, which fio prints as `err=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    /// Input/output error.
    pub const EIO: ErrorCode = ErrorCode(5);
    /// No space left on device.
    pub const ENOSPC: ErrorCode = ErrorCode(28);
    /// Invalid or incomplete multibyte or wide character: what fio reports for a failed
    /// verification.
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
pub struct IoFailure {
    /// The I/O's errno.
    pub code: ErrorCode,
    /// The I/O.
    pub io: Io,
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Io { op, offset, len, .. } = self.io;
        write!(f, "{} at offset {offset}, length {len}: {}", op.name().to_lowercase(), self.code)
    }
}

/// What the caller of [`Generator::next`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Write this I/O's command to the submission queue. The generator counts it as queued.
    Issue(Io),
    /// Ring the doorbell for the queued I/Os, then call [`Generator::committed`].
    Commit,
    /// Wait until at least `min` I/Os have completed, and call [`Generator::completed`] for each.
    /// If more have completed, [`Generator::complete_max`] limits how many the job reaps at once.
    Reap {
        /// Completions to wait for, at least 1.
        min: u32,
    },
    /// Nothing is to be issued before `until`. Reap completions until then.
    Wait {
        /// When to call [`Generator::next`] again.
        until: Nanos,
    },
    /// The job is over; nothing is in flight.
    Done,
}

/// Which thread of the run this is, for its random numbers and its offsets. The default is the
/// first thread of the first job, with entropy 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault)]
pub struct ThreadId {
    /// Number among all threads of the run, from 1. Threads are seeded with it.
    #[default(1)]
    pub number: u32,
    /// Number among the job's threads, from 0.
    pub subjob: u32,
    /// A seed that differs from run to run, for jobs with `randrepeat=0`.
    pub entropy: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// [`Generator::next`] has not been called.
    New,
    /// `startdelay` has not passed.
    Delay,
    /// Issuing.
    Run,
    /// Reading back what the pass wrote (`verify`).
    Verify,
    /// Issuing nothing until all I/Os in flight have completed.
    Drain,
    Done,
}

/// The state machine of one job thread.
#[derive(Debug)]
pub struct Generator {
    /// The next instant at which something other than I/O is due: see `on_event`.
    next_event_at: Nanos,
    /// I/Os that [`Generator::next`] may issue on its fast path before `decide` runs again.
    fast_ios: u32,
    /// Each I/O has an [`Extra`]: the job has a rate, verification, Flushes, logs or the like. Such
    /// jobs never use the fast path.
    tracked: bool,
    flight: InFlight,
    /// Completions since `stats.complete` was last updated.
    reaped: u32,
    /// Completions that are not added to `stats` yet.
    batch_stats: BatchStats,
    /// Bytes and I/Os that this pass may still issue. As in fio, the bytes may become negative.
    bytes_left: i64,
    ios_left: u64,
    stream: Stream,
    phase: Phase,
    /// I/Os are issued while fewer than this are in flight: `depth`, or less while `waiting`.
    limit: u32,
    /// The depth was reached, and no I/O is issued before `complete_min` completions have come.
    waiting: bool,
    /// `iodepth` and `iodepth_low`.
    depth: u32,
    low: u32,
    /// I/Os per doorbell; with `batch_grows`, I/Os of the next doorbell.
    batch: u32,
    /// With `batch_grows`: the maximum of `batch`.
    batch_max: Option<u32>,
    complete_min: u32,
    complete_max: u32,
    /// The next I/O, which may not be issued yet: see [`WaitFor`].
    deferred: Option<Io>,
    pacing: Option<Box<Pacing>>,
    syncs: Option<Box<Syncs>>,
    /// With `serialize_overlap` or `verify`, the I/Os in flight: see [`overlap`].
    overlaps: Option<Vec<Io>>,
    pauses: Option<Box<Pauses>>,
    /// Samples and I/Os for the job's log files.
    logs: Option<Box<LogBuffer>>,
    /// Operations whose errors do not end the job.
    continue_on_error: PerOp<bool>,
    stats: Stats,
    clock: Clock,
    verify: VerifyState,
    failure: Option<IoFailure>,
    stopping: bool,
    goal: Goal,
}

/// The job's instants and spans.
#[derive(Debug, Default)]
struct Clock {
    /// When [`Generator::next`] was first called.
    first_call_at: Nanos,
    /// `startdelay`: until the first call a span, then the instant at which it ends.
    delay: Nanos,
    ramp: Nanos,
    runtime: Option<Nanos>,
    /// When the job began to issue I/O.
    began: Nanos,
    /// When measuring began; `None` during `ramp_time`.
    measured_since: Option<Nanos>,
    /// When measuring of the current phase began.
    phase_start: Nanos,
    /// When bandwidth and IOPS were last sampled, and the bytes and I/Os at that time.
    sampled_at: Nanos,
    sampled: PerOp<(u64, u64)>,
}

/// How much the job transfers, as in fio (`do_io` and `keep_running` in its backend.c, with an
/// asynchronous engine): a pass issues `size` bytes, or fewer if its files are smaller. Passes
/// follow until `io_size` bytes have been transferred, or less than one I/O is missing.
#[derive(Debug)]
struct Goal {
    /// Maximum bytes of a pass, including verification between its writes.
    pass: i64,
    /// Bytes left for all passes; with `trimwrite` only writes count.
    left: i64,
    /// The job is a trimwrite job.
    trimwrite: bool,
    /// Maximum number of I/Os of the job, including verification.
    ios: u64,
    /// Bytes transferred so far, and at the start of the pass.
    moved: u64,
    moved_before: u64,
    /// Bytes to transfer (`io_size`).
    limit: u64,
    /// `io_size` is given.
    beyond_size: bool,
    /// The largest block size.
    max_block: u64,
    /// Passes that follow regardless of the bytes transferred (`loops`).
    loops: u64,
    time_based: bool,
    /// The initial value of `left`, for progress.
    whole: i64,
}

/// How often bandwidth and IOPS are sampled: the default of fio's `bwavgtime`.
const SAMPLE_EVERY: Nanos = Nanos::from_millis(500);
/// Maximum number of slots of a job thread, which limits its memory.
const MAX_DEPTH: u32 = 1 << 20;

impl Generator {
    /// The thread `id` of `job`. `targets`: one for each `filename` of the job; one if it has none.
    ///
    /// # Errors
    /// The job does not fit the targets.
    pub fn new(job: &Job, id: ThreadId, targets: &[TargetSize]) -> Result<Generator, JobError> {
        // With `randrepeat` a job has the same offsets in every run; its threads differ from each
        // other by their number.
        let base = job.base_seed().unwrap_or(id.entropy);
        let mut seeds = SplitMix64::seed_from_u64(base ^ u64::from(id.number).rotate_left(40));
        // Separate seeds: a rate must not change which offsets a job visits.
        let (stream_seed, pacing_seed) = (seeds.next_u64(), seeds.next_u64());
        let pacing = Pacing::new(job, pacing_seed).map(Box::new);
        let mix_pacing = pacing.as_ref().and_then(|pacing| pacing.for_mix(job));
        let stream = Stream::new(job, id, targets, stream_seed, mix_pacing)?;
        // With iodepth_batch_complete_min=0 fio waits for one completion after each I/O.
        let depth = if job.complete_min == 0 { 1 } else { job.iodepth.clamp(1, MAX_DEPTH) };
        let batch = if job.batch_submit == 0 { depth } else { job.batch_submit.min(depth) };
        let goal = Goal::new(job, &stream);
        let verify = VerifyState::new(job, id.number, &stream, goal.passes())?;
        let syncs = Syncs::new(job).map(Box::new);
        // Reads alone cannot conflict.
        let waits = job.pattern.modifies() && (job.serialize_overlap || job.verify.is_some());
        let overlaps = waits.then(|| Vec::with_capacity(depth.min(1_024) as usize));
        let pauses =
            job.think.map(|think| Box::new(Pauses { think, left: think.blocks, pause: None }));
        let logs = LogBuffer::new(job).map(Box::new);
        let stats = Stats::new(job.measure, pacing.is_some());
        let tracked = pacing.is_some()
            || job.verify.is_some()
            || syncs.is_some()
            || pauses.is_some()
            || logs.is_some();
        let tracked = tracked || job.iolog.is_some() || overlaps.is_some() || goal.trimwrite;
        let (shortest, longest) = (job.start_delay.0, job.start_delay.0.max(job.start_delay.1));
        let delay = shortest + Nanos(seeds.next_u64() % (longest - shortest).0.saturating_add(1));
        Ok(Generator {
            next_event_at: Nanos::ZERO,
            fast_ios: 0,
            tracked,
            flight: InFlight::new(depth, tracked),
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
            batch_max: job.batch_grows.then_some(batch),
            complete_min: job.complete_min.clamp(1, depth),
            complete_max: job.complete_max.max(job.complete_min).max(1),
            deferred: None,
            pacing,
            syncs,
            overlaps,
            pauses,
            logs,
            continue_on_error: job.continue_on_error,
            stats,
            clock: Clock { delay, ramp: job.ramp_time, runtime: job.runtime, ..Clock::default() },
            verify,
            failure: None,
            stopping: false,
            goal,
        })
    }

    /// What to do next, at `now`: see the module's documentation.
    #[inline(always)] // Usually takes a few comparisons, which cost less than a function call.
    pub fn next(&mut self, now: Nanos) -> Next {
        loop {
            // Fast path: only I/O is due, and `decide` has checked the limits on bytes, I/Os, batch
            // and depth for the next `fast_ios` I/Os.
            if now < self.next_event_at {
                if self.fast_ios > 0 {
                    if let Some(io) = self.stream.next()
                        && let Some(io) = self.flight.queue(io, now)
                    {
                        self.fast_ios -= 1;
                        self.count_issued(&io);
                        return Next::Issue(io);
                    }
                    // The files have no more in this pass.
                    (self.fast_ios, self.bytes_left) = (0, 0);
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

    /// The slow path of [`Generator::next`]: handles what is due, decides whether to commit or to
    /// wait, and sets `fast_ios`. `None`: the caller runs the fast path again.
    #[inline(never)]
    fn decide(&mut self, now: Nanos) -> Option<Next> {
        self.fast_ios = 0;
        // All completions since the last call came from one poll.
        if self.reaped > 0 {
            self.stats.complete.add_batch(std::mem::take(&mut self.reaped));
            self.batch_stats.flush(&mut self.stats);
        }
        loop {
            if now >= self.next_event_at {
                self.on_event(now);
            }
            let (in_flight, queued) = (self.flight.in_flight, self.flight.queued);
            // When the depth is reached, a smaller batch is committed as well: waiting for
            // completions of uncommitted I/Os would block forever.
            if queued > 0 && (queued >= self.batch || in_flight >= self.limit) {
                return Some(Next::Commit);
            }
            if in_flight >= self.limit {
                return Some(self.reap(!self.waiting));
            }
            if self.waiting {
                // `complete_min` I/Os have completed. With `iodepth_low` more completions may be
                // needed before the next I/O.
                if in_flight > self.low {
                    return Some(self.reap(true));
                }
                (self.waiting, self.limit) = (false, self.depth);
            }
            if queued == 0
                && let Some(max) = self.batch_max
            {
                // The I/Os in flight keep the device busy for about as long as it takes to prepare
                // the same number of I/Os, so a batch of that size does not leave the device idle.
                self.batch = in_flight.clamp(1, max);
            }
            let bytes = self.bytes_left.min(self.goal.left);
            let next = match self.phase {
                Phase::Run if bytes > 0 && self.ios_left > 0 => {
                    // Jobs that are not `tracked` return to the fast path, with a number of I/Os
                    // that cannot exceed any limit.
                    if !self.tracked {
                        let room = (self.batch - queued).min(self.limit - in_flight);
                        self.fast_ios =
                            self.stream.min_ios(bytes as u64, self.ios_left.min(room.into()))
                                as u32;
                        return None;
                    }
                    self.issue_tracked(now)
                }
                Phase::Verify => self.verify_next(now),
                _ => self.end_phase(now),
            };
            if next.is_some() {
                return next;
            }
        }
    }

    /// Waits for `complete_min` completions. With `anew` they are counted from now on; otherwise
    /// from the start of the current wait.
    #[inline]
    fn reap(&mut self, anew: bool) -> Next {
        let in_flight = self.flight.in_flight;
        if anew {
            (self.waiting, self.limit) = (true, in_flight + 1 - self.complete_min.min(in_flight));
        }
        Next::Reap { min: in_flight + 1 - self.limit }
    }

    /// Subtracts `io` from what is left to issue.
    #[inline]
    fn count_issued(&mut self, io: &Io) {
        let len = u64::from(io.len);
        self.ios_left -= 1;
        self.bytes_left -= len as i64;
        self.goal.moved += len;
        if !self.goal.trimwrite || io.op == Op::Write {
            self.goal.left -= len as i64;
        }
    }

    /// The next I/O of a `tracked` job; `None`: the phase has changed; the caller tries again.
    #[inline(never)] // Uses many registers, which would be spilled for other jobs as well.
    fn issue_tracked(&mut self, now: Nanos) -> Option<Next> {
        if self.verify.backlog_is_due() {
            return self.begin_backlog();
        }
        if let Some(hold) =
            self.pauses.as_mut().and_then(|pauses| pauses.before(now, self.flight.in_flight))
        {
            return Some(self.wait_for(hold));
        }
        // A deferred I/O was chosen before any Flush that is due now, so it is issued first.
        let io = match (self.deferred.take(), self.syncs.as_ref().and_then(|syncs| syncs.due())) {
            (None, Some(data_sync)) => match self.stream.flush() {
                Some(target) => return Some(self.issue_flush(target, data_sync, now)),
                None => None,
            },
            (held, _) => held.or_else(|| self.stream.next()),
        };
        let Some(io) = io else {
            // The files have no more I/Os in this pass, which ends before `size` is reached.
            self.bytes_left = 0;
            return None;
        };
        // The I/O is chosen before it is known whether it may be issued, which depends on the rate
        // of its operation and on overlaps of its blocks. If it has to wait, it is kept in
        // `deferred`.
        let listed = self.stream.iolog_due.map(|at| self.clock.began + at);
        let paced = self.pacing.as_ref().and_then(|pacing| pacing.due(io.op));
        let hold = match listed.into_iter().chain(paced).find(|due| *due > now) {
            Some(due) => Some(WaitFor::Until(due)),
            None => self
                .overlaps
                .iter()
                .flatten()
                .any(|other| overlap(&io, other))
                .then_some(WaitFor::Reap),
        };
        if let Some(hold) = hold {
            self.deferred = Some(io);
            return Some(self.wait_for(hold));
        }
        // From here on the I/O is issued.
        if let Some(pacing) = &mut self.pacing {
            pacing.issued(io.op, io.len);
        }
        self.count_issued(&io);
        let seed = self.stream.data_seed();
        let sequence = if io.op == Op::Read { 0 } else { self.verify.note_write(io, seed) };
        if let Some(pauses) = self.pauses.as_mut() {
            pauses.left = pauses.left.saturating_sub(1);
        }
        let check = self.verify.reads && io.op == Op::Read;
        Some(self.queue(
            io,
            Extra {
                intended: paced.unwrap_or(now),
                sequence,
                check,
                seed,
                written: now,
                data_sync: false,
            },
            now,
        ))
    }

    /// Queues an I/O of a `tracked` job.
    fn queue(&mut self, io: Io, extra: Extra, now: Nanos) -> Next {
        // `queue` succeeds: a slot is free, because fewer than `depth` I/Os are in flight.
        let Some(io) = self.flight.queue(io, now) else { return Next::Wait { until: now } };
        if let Some(syncs) = &mut self.syncs {
            syncs.issued(io.op);
        }
        if let Some(logs) = &mut self.logs {
            // fio's iolog shows a sync with the offset of the I/O before it.
            let offset = if io.op == Op::Flush { self.stream.sync_offset } else { io.offset };
            logs.issued(IologEntry {
                at: now,
                io: Io { offset, ..io },
                data_sync: extra.data_sync,
            });
        }
        self.overlaps.iter_mut().for_each(|in_flight| in_flight.push(io));
        if let Some(place) = self.flight.extras.get_mut(io.slot as usize) {
            *place = extra;
        }
        Next::Issue(io)
    }

    /// The doorbell was rung at `now` for all queued I/Os.
    #[inline]
    pub fn committed(&mut self, now: Nanos) {
        self.flight.commit(now, &mut self.stats);
    }

    /// The I/O in `slot` completed, and its completion was reaped at `now`. `buf` begins with the
    /// data; it is read only if the job [`Generator::verifies`]. [`Generator::stats`] has the I/O
    /// after the next call of [`Generator::next`].
    #[inline]
    pub fn completed(&mut self, slot: u32, now: Nanos, result: Result<(), ErrorCode>, buf: &[u8]) {
        // A completion of a free slot is an error of the caller, and is ignored.
        let Some(ended) = self.flight.get(slot) else { return };
        self.reaped += 1;
        if self.tracked || result.is_err() {
            let ended = *ended;
            self.completed_tracked(&ended, now, result, buf);
        } else {
            self.batch_stats.add(ended, now, &mut self.stats);
        }
        self.flight.release(slot, &mut self.stats);
    }

    #[inline(never)] // Keeps `completed` small for jobs that are not `tracked`.
    fn completed_tracked(
        &mut self,
        ended: &Slot,
        now: Nanos,
        result: Result<(), ErrorCode>,
        buf: &[u8],
    ) {
        let &Slot { ref io, start, committed } = ended;
        self.overlaps
            .iter_mut()
            .for_each(|in_flight| in_flight.retain(|other| other.slot != io.slot));
        // A failed I/O has no latency, as in fio.
        if let Err(code) = result {
            return self.fail(IoFailure { code, io: *io });
        }
        self.batch_stats.add(ended, now, &mut self.stats);
        let Some(extra) = self.flight.extras.get(io.slot as usize).copied() else { return };
        if let Some(logs) = &mut self.logs {
            logs.completed(io.op, io.len, [start, committed, now]);
        }
        let intended = &mut self.stats.op_mut(io.op).intended;
        if intended.histogram.is_some() && extra.intended != Nanos::MAX {
            intended.add(now - extra.intended, 1);
        }
        if extra.check {
            self.check(io, extra, now, buf.get(..io.len as usize).unwrap_or_default());
        }
    }

    /// The operation of the I/O in `slot`; `None` if it is not in flight.
    pub fn op(&self, slot: u32) -> Option<Op> {
        self.flight.get(slot).map(|slot| slot.io.op)
    }

    /// The I/Os that are queued and for which the doorbell has not been rung.
    #[inline]
    pub fn queued(&self) -> impl Iterator<Item = &Io> {
        self.flight.queued()
    }

    /// Whether the job has a rate.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.pacing.is_some()
    }

    /// The intended start of the next I/O of a job with a rate. It may be in the past, if the
    /// thread had to wait for completions. `None`: no rate, or nothing left to issue.
    pub fn next_due(&self) -> Option<Nanos> {
        let left = self.ios_left > 0 && self.bytes_left > 0 || self.deferred.is_some();
        let pacing =
            self.pacing.as_ref().filter(|_| left && self.phase == Phase::Run && !self.stopping)?;
        // The operation of the next I/O is known only once it has been deferred.
        let known = self.deferred.map(|io| io.op);
        let ops = [Op::Read, Op::Write, Op::Deallocate]
            .into_iter()
            .filter(|op| known.is_none_or(|known| known == *op));
        ops.filter_map(|op| pacing.due(op)).min()
    }

    /// Whether the job verifies data: [`Generator::fill`] writes headers, and
    /// [`Generator::completed`] checks what was read.
    #[inline]
    pub fn verifies(&self) -> bool {
        self.verify.layout.is_some()
    }

    /// Fills `buf` with the data of the write `io`. Without `verify`, `buf` stays as it is.
    #[inline]
    pub fn fill(&self, io: &Io, buf: &mut [u8]) {
        if let (Some(layout), Some(extra)) =
            (&self.verify.layout, self.flight.extras.get(io.slot as usize))
        {
            layout.fill(io, *extra, self.verify.thread, buf);
        }
    }

    /// Stops issuing, and ends once the I/Os in flight have completed: for Ctrl-C, `exitall` and
    /// errors of other threads.
    pub fn stop(&mut self) {
        // I/Os in flight still complete and are counted; nothing new is issued.
        self.stopping = true;
        // An event is due at once, so that `next` leaves the fast path.
        self.next_event_at = Nanos::ZERO;
    }
}

#[cfg(test)]
mod tests;
