//! Verification: what is read back when, what is known of it, and the verdict.

use super::*;
use verify::{Expected, Layout};

/// Bad blocks that are kept for the report; the others are counted.
const BAD_KEPT: usize = 16;

/// A write that is to be read back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    io: Io,
    sequence: u64,
    seed: u64,
}

/// What verification needs of a job, and what it has found.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// What blocks look like; `None`: nothing is looked at.
    pub(super) layout: Option<Box<Layout>>,
    fatal: bool,
    /// A job that only reads: its reads are checked.
    pub(super) reads: bool,
    /// What a writing job wrote earlier is read, and nothing is written.
    only: bool,
    /// What is written is read back.
    reads_back: bool,
    /// fio goes from writing to reading, whether or not there is something to read.
    pub(super) closes: bool,
    /// Seeds of writes are compared.
    seeds: bool,
    /// The thread's number, as headers have it.
    pub(super) thread: u16,
    /// Writes so far.
    sequence: u64,
    /// Writes of which no byte was written again, by target and first byte. As fio does (`log_io_piece` in its iolog.c), an earlier
    /// one is forgotten as soon as a later one touches it: what is left of it proves nothing.
    pub(super) log: BTreeMap<(u16, u64), Written>,
    /// They are read back as they were written; else by their offsets. Also as in fio, which sorts what it has no map of.
    in_order: bool,
    /// What is read back now.
    pub(super) due: VecDeque<Written>,
    /// `verify_backlog` and its batch (0: none), and whether its reads are what is issued now: writes follow.
    pub(super) backlog: u64,
    batch: u64,
    /// Of a batch that found too few of them: how many are still to be read back as they are written.
    owed: u64,
    pub(super) interim: bool,
    /// When the pass began.
    began: Nanos,
    pub(super) bad: Vec<BadBlock>,
    pub(super) count: u64,
}

impl Checks {
    /// For thread `thread` of `job`, which does `passes` passes.
    pub(super) fn new(job: &Job, thread: u32, stream: &Stream, passes: u64) -> Result<Checks, Misfit> {
        let given = job.verify.clone().unwrap_or_default();
        let writes = job.verify.is_some() && job.pattern.writes();
        let only = given.only && writes;
        // A reader is not the writer, unless it says so.
        let known = if only { stream.is_reproducible(passes) } else { writes };
        let reads_back = writes && given.after_write && !only;
        Ok(Checks {
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
            ..Checks::default()
        })
    }

    /// `io` is no read; it has data of `seed` if it is a write. Its number.
    pub(super) fn changes(&mut self, io: Io, seed: u64) -> u64 {
        let sequence = self.sequence;
        self.sequence += u64::from(io.op == Op::Write);
        if !self.reads_back && !self.only {
            return sequence;
        }
        let (target, start, end) = (io.target, io.offset, io.offset + u64::from(io.len));
        // Those in the log have no byte in common, so only the last one before can reach in here.
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

    /// The first `most` writes of the log are read back now.
    pub(super) fn read_back(&mut self, most: u64) {
        let mut writes: Vec<Written> = self.log.values().copied().collect();
        if self.in_order {
            writes.sort_unstable_by_key(|write| write.sequence);
        }
        writes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        writes.iter().for_each(|write| _ = self.log.remove(&(write.io.target, write.io.offset)));
        self.due = writes.into();
    }

    /// So much was written since it was read back that it is to be read back now.
    pub(super) fn backlog_is_due(&self) -> bool {
        self.backlog > 0 && (self.log.len() as u64 >= self.backlog || self.owed > 0 && !self.log.is_empty())
    }
}

impl Generator {
    /// A pass begins.
    pub(super) fn begin_pass(&mut self, now: Nanos) {
        self.checks.began = now;
        self.checks.log.clear();
        self.phase = Phase::Run;
        (self.bytes_left, self.ios_left) = (self.goal.pass, self.goal.begin_pass(self.ios_left));
        if self.checks.only {
            // What was written earlier is gone through as if it were written, and read.
            while self.bytes_left > 0
                && self.goal.left > 0
                && self.ios_left > 0
                && let Some(io) = self.stream.next()
            {
                self.took(&io);
                if io.op != Op::Read {
                    self.checks.changes(io, self.stream.data_seed());
                }
            }
            self.checks.read_back(u64::MAX);
            self.phase = Phase::Verify;
        }
    }

    /// Reads back what was written first, once all that is in flight has completed.
    pub(super) fn begin_backlog(&mut self) -> Option<Next> {
        if self.flight.in_flight > 0 {
            return Some(self.held(Hold::Drain));
        }
        let wanted = if self.checks.owed > 0 { self.checks.owed } else { self.checks.batch };
        self.checks.read_back(wanted);
        self.checks.owed = wanted - self.checks.due.len() as u64;
        (self.checks.interim, self.phase) = (true, Phase::Verify);
        None
    }

    /// A pass is over, verification included: another one, or the end.
    pub(super) fn after_pass(&mut self, now: Nanos) {
        if self.checks.count > 0 || !self.goal.goes_on(self.ios_left, &self.stream) {
            return self.finish(now);
        }
        self.stream.start_pass();
        self.syncs.iter_mut().for_each(|syncs| syncs.last = false);
        self.begin_pass(now);
    }

    /// The next write that is to be read back, as a read; `None`: ask again.
    pub(super) fn verify_next(&mut self, now: Nanos) -> Option<Next> {
        if self.checks.interim && (self.bytes_left <= 0 || self.ios_left == 0) {
            // The pass is over before all of the batch is read.
            self.checks.owed += self.checks.due.len() as u64;
            let unread = self.checks.due.drain(..).map(|written| ((written.io.target, written.io.offset), written));
            self.checks.log.extend(unread);
            (self.checks.interim, self.phase) = (false, Phase::Run);
            return None;
        }
        let Some(Written { io, sequence, seed }) = self.checks.due.pop_front() else { return self.turn(now) };
        let extra = Extra { intended: Nanos::MAX, sequence, check: true, seed, ..Extra::default() };
        self.goal.moved += u64::from(io.len);
        self.ios_left = self.ios_left.saturating_sub(1);
        if self.checks.interim {
            self.bytes_left -= i64::from(io.len);
        }
        self.stream.looked_at = io.offset;
        Some(self.post(Io { op: Op::Read, ..io }, extra, now))
    }

    /// Checks the data of the read `io`, which completed at `now`.
    pub(super) fn check(&mut self, io: &Io, extra: Extra, now: Nanos, buf: &[u8]) {
        let checks = &mut self.checks;
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
        if checks.fatal && checks.count > 0 {
            self.stop();
        }
    }
}
