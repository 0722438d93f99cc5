//! Which writes of a job thread are read back when (`verify`, `verify_backlog`, `verify_only`), and
//! which blocks failed. The module `verify` fills and checks a block.

use super::*;
use verify::{Expected, Layout};

/// Maximum number of bad blocks that are kept for the report; further ones are only counted.
const BAD_KEPT: usize = 16;

/// A write that is to be read back: the I/O, its number, and the seed of its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    io: Io,
    sequence: u64,
    seed: u64,
}

/// The verification state of a job thread.
#[derive(Debug, Default)]
pub(super) struct VerifyState {
    /// Layout of the verified blocks; `None`: nothing is checked.
    pub(super) layout: Option<Box<Layout>>,
    /// `verify_fatal`.
    fatal: bool,
    /// The job does not write, and its own reads are checked.
    pub(super) reads: bool,
    /// `verify_only`: nothing is written; the blocks that an earlier run wrote are read.
    only: bool,
    /// The job writes, and reads its writes back.
    reads_back: bool,
    /// fio enters its verify phase, in which it reopens the files, even if nothing was written.
    pub(super) closes: bool,
    /// The seed in each header is checked.
    seeds: bool,
    /// The thread's number, as headers have it.
    pub(super) thread: u16,
    /// Writes so far.
    sequence: u64,
    /// Writes to read back, by target and first byte. They do not overlap: as in fio
    /// (`log_io_piece` in its iolog.c) a write is removed when a later write overlaps it.
    pub(super) log: BTreeMap<(u16, u64), Written>,
    /// Writes are read back in the order in which they were written, as in fio with a random map;
    /// else by offset.
    in_order: bool,
    /// Writes that are being read back.
    pub(super) due: VecDeque<Written>,
    /// `verify_backlog` (0: none) and `verify_backlog_batch`.
    pub(super) backlog: u64,
    batch: u64,
    /// Reads that are missing from the last batch, because too few writes were in `log`.
    backlog_left: u64,
    /// The reads of `verify_backlog` are being issued, in the middle of a pass.
    pub(super) in_backlog: bool,
    /// When the pass began.
    began: Nanos,
    /// The first bad blocks, and the number of all.
    pub(super) bad: Vec<BadBlock>,
    pub(super) count: u64,
}

impl VerifyState {
    /// The state of thread number `thread` of `job`, which has at most `passes` passes.
    pub(super) fn new(
        job: &Job,
        thread: u32,
        stream: &Stream,
        passes: u64,
    ) -> Result<VerifyState, JobError> {
        let given = job.verify.clone().unwrap_or_default();
        let writes = job.verify.is_some() && job.pattern.writes();
        let only = given.only && writes;
        // A job that only reads cannot know the writer's seeds.
        let known = if only { stream.is_reproducible(passes) } else { writes };
        let reads_back = writes && given.after_write && !only;
        Ok(VerifyState {
            layout: Layout::new(job)?.map(Box::new),
            fatal: given.fatal,
            reads: job.verify.is_some() && !writes,
            only,
            reads_back,
            closes: job.verify.is_some() && given.after_write,
            seeds: given.header_seed.unwrap_or(known),
            thread: thread as u16,
            in_order: stream.has_map(),
            backlog: if reads_back { given.backlog } else { 0 },
            batch: if given.backlog_batch == 0 { given.backlog } else { given.backlog_batch },
            ..VerifyState::default()
        })
    }

    /// Adds a write to the log, or removes the writes that a trim overlaps. Returns the write's
    /// number.
    pub(super) fn note_write(&mut self, io: Io, seed: u64) -> u64 {
        let sequence = self.sequence;
        self.sequence += u64::from(io.op == Op::Write);
        // The log is only needed to read back.
        if !self.reads_back && !self.only {
            return sequence;
        }
        let (target, start, end) = (io.target, io.offset, io.offset + u64::from(io.len));
        // Entries of the log do not overlap each other, so it is enough to test the last entry that
        // starts before `end`, until it does not overlap.
        while let Some((&key, other)) = self.log.range((target, 0)..(target, end)).next_back()
            && other.io.offset + u64::from(other.io.len) > start
        {
            self.log.remove(&key);
        }
        if io.op == Op::Write {
            self.log.insert((target, start), Written { io, sequence, seed });
        }
        sequence
    }

    /// Starts to read back the first `max` writes of the log.
    pub(super) fn read_back(&mut self, max: u64) {
        let mut writes: Vec<Written> = self.log.values().copied().collect();
        if self.in_order {
            // `log` is sorted by offset.
            writes.sort_unstable_by_key(|write| write.sequence);
        }
        writes.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        writes.iter().for_each(|write| _ = self.log.remove(&(write.io.target, write.io.offset)));
        self.due = writes.into();
    }

    /// Whether `verify_backlog` writes have been made since the last were read back.
    pub(super) fn backlog_is_due(&self) -> bool {
        self.backlog > 0
            && (self.log.len() as u64 >= self.backlog
                || self.backlog_left > 0 && !self.log.is_empty())
    }
}

impl Generator {
    /// Begins a pass.
    pub(super) fn begin_pass(&mut self, now: Nanos) {
        self.verify.began = now;
        // This pass will overwrite the blocks that an earlier pass wrote.
        self.verify.log.clear();
        self.phase = Phase::Run;
        (self.bytes_left, self.ios_left) = (self.goal.pass, self.goal.begin_pass(self.ios_left));
        if self.verify.only {
            // Generates the same I/Os as the run that wrote: only adds them to the log, then reads.
            while self.bytes_left > 0
                && self.goal.left > 0
                && self.ios_left > 0
                && let Some(io) = self.stream.next()
            {
                self.count_issued(&io);
                if io.op != Op::Read {
                    self.verify.note_write(io, self.stream.data_seed());
                }
            }
            self.verify.read_back(u64::MAX);
            self.phase = Phase::Verify;
        }
    }

    /// Starts a batch of `verify_backlog`, once all I/Os in flight have completed.
    pub(super) fn begin_backlog(&mut self) -> Option<Next> {
        if self.flight.in_flight > 0 {
            return Some(self.wait_for(WaitFor::Drain));
        }
        let wanted =
            if self.verify.backlog_left > 0 { self.verify.backlog_left } else { self.verify.batch };
        self.verify.read_back(wanted);
        self.verify.backlog_left = wanted - self.verify.due.len() as u64;
        (self.verify.in_backlog, self.phase) = (true, Phase::Verify);
        None
    }

    /// Called when a pass and its verification are over: starts the next pass, or ends the job.
    pub(super) fn after_pass(&mut self, now: Nanos) {
        // After wrong data the job ends: further passes would overwrite them.
        if self.verify.count > 0 || !self.goal.start_next_pass(self.ios_left, &self.stream) {
            return self.finish(now);
        }
        self.stream.start_pass();
        self.syncs.iter_mut().for_each(|syncs| syncs.last = false);
        self.begin_pass(now);
    }

    /// The next write to read back, as a read; `None`: the phase has changed; the caller tries
    /// again.
    pub(super) fn verify_next(&mut self, now: Nanos) -> Option<Next> {
        if self.verify.in_backlog && (self.bytes_left <= 0 || self.ios_left == 0) {
            // The pass ends before the batch does: the rest is read back after the pass.
            self.verify.backlog_left += self.verify.due.len() as u64;
            let unread = self
                .verify
                .due
                .drain(..)
                .map(|written| ((written.io.target, written.io.offset), written));
            self.verify.log.extend(unread);
            (self.verify.in_backlog, self.phase) = (false, Phase::Run);
            return None;
        }
        let Some(Written { io, sequence, seed }) = self.verify.due.pop_front() else {
            return self.end_phase(now);
        };
        // The read is not one of the job's I/Os: no rate applies, so it has no intended start.
        let extra = Extra { intended: Nanos::MAX, sequence, check: true, seed, ..Extra::default() };
        self.goal.moved += u64::from(io.len);
        self.ios_left = self.ios_left.saturating_sub(1);
        if self.verify.in_backlog {
            self.bytes_left -= i64::from(io.len);
        }
        self.stream.sync_offset = io.offset;
        Some(self.queue(Io { op: Op::Read, ..io }, extra, now))
    }

    /// Checks the data of the read `io`, which completed at `now`.
    pub(super) fn check(&mut self, io: &Io, extra: Extra, now: Nanos, buf: &[u8]) {
        let checks = &mut self.verify;
        let Some(layout) = &checks.layout else { return };
        let expected = Expected {
            seed: checks.seeds.then_some(extra.seed),
            written: checks.reads_back.then_some((checks.began, now)),
            thread: checks.reads_back.then_some(checks.thread),
            number: checks.reads_back.then_some(extra.sequence),
        };
        layout.check(io, expected, buf, |bad| {
            checks.count += 1;
            if checks.bad.len() < BAD_KEPT {
                checks.bad.push(bad);
            }
        });
        // The job stops; I/Os in flight still complete, and are checked as well.
        if checks.fatal && checks.count > 0 {
            self.stop();
        }
    }
}
