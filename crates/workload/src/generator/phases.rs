//! Phases of a job thread: start delay, ramp, passes, draining, the end. A *pass* is one run over
//! the job's files: an iteration of fio's `loops`, or of the repetition up to `io_size`. Also what
//! happens at fixed times (the end of the ramp and of the runtime, samples of bandwidth), and how
//! much the job has left to do ([`Goal`]).

use super::*;
use crate::job::{Amount, Direction, IologStep};
use std::ops::Range;

impl Clock {
    /// When the ramp ends; after the ramp, when the runtime ends ([`Nanos::MAX`]: no runtime).
    fn end(&self) -> Nanos {
        match (self.measured_since, self.runtime) {
            (None, _) => self.began + self.ramp,
            (Some(since), Some(runtime)) => since + runtime,
            (Some(_), None) => Nanos::MAX,
        }
    }
}

/// `bytes` as a signed number; a number that does not fit becomes `i64::MAX`, no limit.
fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Goal {
    /// How much `job` transfers.
    pub(super) fn new(job: &Job, stream: &Stream) -> Goal {
        let (loops, time_based) = (job.loops.max(1), job.time_based && job.runtime.is_some());
        let (verifies, direction) = (job.verify.is_some(), job.pattern.direction);
        let io_size = match job.io_size {
            Some(Amount::Bytes(bytes)) => bytes,
            _ => 0,
        };
        let limit = if io_size > 0 { io_size } else { stream.size };
        let all = limit.saturating_mul(loops);
        // Without a random map blocks may be written repeatedly, so a pass may have more bytes than
        // the files.
        let over = job.pattern.writes() && job.pattern.random && !job.random_map;
        let mut pass = if over { stream.size.max(io_size) } else { stream.size };
        // Reads of verify_backlog count as bytes of the pass.
        if verifies
            && job.pattern.writes()
            && job.verify.as_ref().is_some_and(|verify| verify.backlog > 0)
        {
            pass = pass.saturating_add(stream.size);
        }
        // Each block has a trim and a write.
        if direction == Direction::TrimWrite {
            pass = pass.saturating_add(all);
        }
        // fio limits the bytes of a pass only for asynchronous engines (by bytes issued). With a
        // synchronous engine a pass ends at the end of its files.
        let synchronous = job.engine.name.as_deref().is_none_or(|name| {
            ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"].contains(&name)
        });
        let unlimited = if time_based { !verifies } else { synchronous };
        if unlimited {
            pass = u64::MAX;
        }
        let ios = match &job.iolog {
            // Flushes have no bytes, so the list ends by the number of its I/Os.
            Some(list) => {
                Some(list.steps.iter().filter(|step| matches!(step, IologStep::Io { .. })).count()
                    as u64)
            }
            None => job.number_ios.filter(|n| *n > 0),
        };
        let left = if time_based { i64::MAX } else { bytes(all) };
        let max_block =
            [Op::Read, Op::Write, Op::Deallocate].map(|op| job.block.get(op).max).into_iter().max();
        Goal {
            pass: bytes(pass),
            left,
            trimwrite: direction == Direction::TrimWrite,
            ios: ios
                .filter(|_| !time_based || job.iolog.is_some())
                .map_or(u64::MAX, |n| n.saturating_mul(loops)),
            moved: 0,
            moved_before: 0,
            limit: if job.iolog.is_some() { 0 } else { limit },
            beyond_size: io_size > 0,
            max_block: max_block.unwrap_or(1),
            loops: if job.iolog.is_some() { 0 } else { loops - 1 },
            time_based,
            whole: left,
        }
    }

    /// Maximum number of passes of the job.
    pub(super) fn passes(&self) -> u64 {
        let each = u64::try_from(self.pass).unwrap_or(1).max(1);
        if self.time_based { u64::MAX } else { (self.loops + 1).max(self.limit.div_ceil(each)) }
    }

    /// Begins a pass. `ios`: how many I/Os of `number_ios` are left. Returns how many the pass may
    /// issue.
    pub(super) fn begin_pass(&mut self, ios: u64) -> u64 {
        self.moved_before = self.moved;
        if !self.trimwrite || self.ios == u64::MAX {
            return ios;
        }
        // fio doubles `number_ios` with each pass of a trimwrite job.
        let ios = ios.saturating_add(self.ios);
        self.ios = self.ios.saturating_mul(2);
        ios
    }

    /// Returns whether another pass follows, and subtracts it from `loops`. `ios_left`: how many
    /// I/Os of `number_ios` are left.
    pub(super) fn start_next_pass(&mut self, ios_left: u64, stream: &Stream) -> bool {
        // After a pass that transferred nothing the job ends: it would repeat forever.
        if self.moved == self.moved_before {
            return false;
        }
        if self.time_based || self.loops > 0 {
            self.loops = self.loops.saturating_sub(1);
            return true;
        }
        let left = self.limit.saturating_sub(self.moved);
        ios_left > 0
            && left > 0
            && left >= self.max_block
            && (self.beyond_size || !stream.all_done())
    }
}

impl Generator {
    /// The statistics of the measured time.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The failed I/O that ended the job.
    pub fn failure(&self) -> Option<&IoFailure> {
        self.failure.as_ref()
    }

    /// The job's errno: of the failed I/O; EILSEQ if verification failed; else 0.
    pub fn error(&self) -> i32 {
        match &self.failure {
            Some(failure) => failure.code.0,
            None if self.verify.count > 0 => ErrorCode::EILSEQ.0,
            None => 0,
        }
    }

    /// The first blocks that failed verification.
    pub fn bad_blocks(&self) -> &[BadBlock] {
        &self.verify.bad
    }

    /// How many blocks failed verification.
    pub fn bad_count(&self) -> u64 {
        self.verify.count
    }

    /// Maximum number of completions to reap at once, unless [`Next::Reap`] has a higher minimum.
    pub fn complete_max(&self) -> u32 {
        self.complete_max
    }

    /// I/Os in flight, including those for which the doorbell has not been rung.
    pub fn in_flight(&self) -> u32 {
        self.flight.in_flight
    }

    /// The part of each target that the job uses, in the order of the targets.
    pub fn regions(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.stream.regions()
    }

    /// When measuring began, after `startdelay` and `ramp_time`; `None` before that.
    #[inline]
    pub fn measured_since(&self) -> Option<Nanos> {
        self.clock.measured_since
    }

    /// The fraction of the job's bytes, I/Os or time that is done, 0 to 1, for a progress line.
    pub fn progress(&self, now: Nanos) -> f64 {
        let ratio =
            |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
        // startdelay and ramp_time are included, so that the progress line moves during them.
        let Clock { first_call_at, delay, ramp, runtime, .. } = self.clock;
        let by_time = match runtime {
            Some(runtime) if self.phase != Phase::New => {
                ratio((now - first_call_at).0, (delay - first_call_at + ramp + runtime).0)
            }
            _ => 0.0,
        };
        let by_bytes = if self.goal.whole == i64::MAX {
            0.0
        } else {
            ratio(self.goal.moved, self.goal.whole as u64)
        };
        let by_ios = ratio(self.goal.ios - self.ios_left.min(self.goal.ios), self.goal.ios);
        match self.phase {
            Phase::Done => 1.0,
            _ if self.goal.time_based => by_time.min(1.0),
            _ => by_time.max(by_bytes).max(by_ios).min(1.0),
        }
    }

    /// Handles what is due at `now`, or a request to stop.
    #[cold]
    pub(super) fn on_event(&mut self, now: Nanos) {
        // A stop skips the rest of the phase, but waits for the I/Os in flight.
        if self.stopping && !matches!(self.phase, Phase::Drain | Phase::Done) {
            self.drain();
        }
        if self.phase == Phase::New {
            // `startdelay` counts from the first call: until now `delay` was a span, from now on it
            // is the instant at which the delay ends.
            (self.clock.first_call_at, self.clock.delay) = (now, now + self.clock.delay);
            self.phase = Phase::Delay;
        }
        match self.phase {
            Phase::Delay if now >= self.clock.delay => {
                (self.clock.began, self.clock.sampled_at) = (now, now);
                self.begin_pass(now);
                if let Some(logs) = &mut self.logs {
                    logs.begin(now);
                }
                if let Some(pacing) = &mut self.pacing {
                    pacing.start = now;
                }
                if self.clock.ramp == Nanos::ZERO {
                    self.measure_from(now);
                }
            }
            Phase::Run | Phase::Verify => {
                // The ramp is over: its statistics are dropped, except errors, as in fio.
                if self.clock.measured_since.is_none() && now >= self.clock.end() {
                    let Stats { measure, errors, first_error, .. } = self.stats;
                    self.stats =
                        Stats { errors, first_error, ..Stats::new(measure, self.pacing.is_some()) };
                    self.measure_from(now);
                }
                if now >= self.clock.end() {
                    // `runtime` is over.
                    self.stopping = true;
                    self.drain();
                } else if now >= self.clock.sampled_at + SAMPLE_EVERY {
                    self.sample(now);
                }
            }
            _ => {}
        }
        self.next_event_at = self.next_event();
    }

    fn next_event(&self) -> Nanos {
        let clock = &self.clock;
        match self.phase {
            Phase::New => Nanos::ZERO,
            Phase::Delay => clock.delay,
            Phase::Run | Phase::Verify => clock.end().min(clock.sampled_at + SAMPLE_EVERY),
            Phase::Drain | Phase::Done => Nanos::MAX,
        }
    }

    fn measure_from(&mut self, now: Nanos) {
        (self.clock.measured_since, self.clock.phase_start) = (Some(now), now);
        // The statistics start at 0, and so do the values to compare samples with.
        (self.clock.sampled_at, self.clock.sampled) = (now, PerOp::default());
    }

    fn drain(&mut self) {
        self.phase = Phase::Drain;
        // A deferred I/O will not be issued any more.
        self.deferred = None;
        self.waiting = false;
        self.limit = self.depth;
    }

    /// To be called when nothing is left to issue in this phase: waits for the I/Os in flight, then
    /// starts the next phase. `None`: the phase has changed; the caller tries again.
    pub(super) fn end_phase(&mut self, now: Nanos) -> Option<Next> {
        match self.phase {
            Phase::Done => return Some(Next::Done),
            Phase::New => return None,
            Phase::Delay => return Some(Next::Wait { until: self.clock.delay }),
            _ => {}
        }
        if self.flight.queued > 0 {
            return Some(Next::Commit);
        }
        if self.flight.in_flight > 0 {
            return Some(Next::Reap { min: self.flight.in_flight });
        }
        // `end_fsync` flushes after the last write has completed, and counts in the phase's time.
        if self.failure.is_none()
            && matches!(self.phase, Phase::Run | Phase::Drain)
            && let Some(target) =
                self.syncs.as_mut().and_then(|syncs| syncs.next_at_end(self.stream.targets()))
        {
            return Some(self.issue_flush(target, false, now));
        }
        self.account(now);
        match self.phase {
            _ if self.stopping => self.finish(now),
            // A backlog is verified in the middle of a pass, which then continues.
            Phase::Verify if self.verify.in_backlog => {
                (self.verify.in_backlog, self.phase) = (false, Phase::Run)
            }
            Phase::Run => {
                // fio reopens the files to verify, which resets their positions.
                if self.verify.closes {
                    self.stream.close();
                    self.syncs.iter_mut().for_each(|syncs| syncs.last = false);
                }
                if self.verify.log.is_empty() {
                    self.after_pass(now);
                } else {
                    self.verify.read_back(u64::MAX);
                    self.phase = Phase::Verify;
                }
            }
            Phase::Verify => self.after_pass(now),
            _ => self.finish(now),
        }
        self.next_event_at = self.next_event();
        None
    }

    pub(super) fn finish(&mut self, now: Nanos) {
        self.phase = Phase::Done;
        if let Some(logs) = &mut self.logs {
            logs.end(now);
        }
        if self.clock.measured_since.is_none() && self.clock.began > Nanos::ZERO {
            // The job ended during the ramp: all its I/Os count, because fio drops statistics only
            // when the ramp ends (`ramp_time_over` in its libfio.c).
            (self.clock.measured_since, self.clock.phase_start) =
                (Some(self.clock.began), self.clock.began);
            self.account(now);
        }
    }

    /// Adds the time of the phase that ends to the runtime of each operation that had I/Os in it.
    fn account(&mut self, now: Nanos) {
        if self.clock.measured_since.is_none() {
            return;
        }
        let span = now - self.clock.phase_start;
        self.clock.phase_start = now;
        for stats in [&mut self.stats.read, &mut self.stats.write, &mut self.stats.trim] {
            // If no I/O of the operation completed in this phase, such as writes during
            // verification, its runtime does not grow.
            if stats.ios != stats.ios_at_last_update {
                stats.runtime += span;
                stats.ios_at_last_update = stats.ios;
            }
        }
    }

    fn sample(&mut self, now: Nanos) {
        let span = (now - self.clock.sampled_at).as_secs_f64();
        for op in [Op::Read, Op::Write, Op::Deallocate] {
            let (stats, last) = (self.stats.op_mut(op), self.clock.sampled.get_mut(op));
            let (bytes, ios) =
                (stats.bytes.saturating_sub(last.0), stats.ios.saturating_sub(last.1));
            // As in fio an interval without I/O is not a sample.
            if ios > 0 && span > 0.0 {
                stats.bw.add((bytes as f64 / 1024.0 / span) as u64, 1);
                stats.iops.add((ios as f64 / span) as u64, 1);
            }
            *last = (stats.bytes, stats.ios);
        }
        self.clock.sampled_at = now;
    }

    #[cold]
    pub(super) fn fail(&mut self, failure: IoFailure) {
        // Other errors end the job nevertheless: ENOSPC, for example, would repeat for each I/O.
        if *self.continue_on_error.get(failure.io.op)
            && matches!(failure.code, ErrorCode::EIO | ErrorCode::EILSEQ)
        {
            return self.stats.add_error(failure.code.0);
        }
        // The first error is the cause; later ones are often its consequence.
        self.failure.get_or_insert(failure);
        self.stop();
    }

    /// Until when the thread spins during [`Next::Wait`] instead of sleeping (`thinktime_spin`).
    pub fn spins_until(&self) -> Option<Nanos> {
        let Pauses { think, pause, .. } = self.pauses.as_deref()?;
        pause.map(|(from, _)| from + think.spin).filter(|_| think.spin > Nanos::ZERO)
    }

    /// Samples and I/Os for the job's log files; `None` if it writes none.
    pub fn logs(&self) -> Option<&LogBuffer> {
        self.logs.as_deref()
    }

    /// A Flush of `target`.
    pub(super) fn issue_flush(&mut self, target: u16, data_sync: bool, now: Nanos) -> Next {
        let flush = Io { slot: 0, op: Op::Flush, target, offset: 0, len: 0 };
        self.queue(flush, Extra { intended: Nanos::MAX, data_sync, ..Extra::default() }, now)
    }

    /// What to do until the deferred I/O may be issued.
    #[cold]
    pub(super) fn wait_for(&mut self, hold: WaitFor) -> Next {
        // Queued I/Os are committed first: the device does not know them yet.
        if self.flight.queued > 0 {
            return Next::Commit;
        }
        let in_flight = self.flight.in_flight;
        match hold {
            WaitFor::Until(until) => Next::Wait { until: until.min(self.next_event_at) },
            WaitFor::Reap => Next::Reap { min: 1 },
            WaitFor::Drain => Next::Reap { min: in_flight.max(1) },
        }
    }
}
