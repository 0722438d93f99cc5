//! What holds I/Os back: rates, pauses, Flushes, other I/Os in flight.
//!
//! The schedule of a rate depends on nothing that completes: a job that falls behind it catches up, and the delay shows in the latency
//! from the intended start.

use super::Io;
use crate::job::{Direction, Job, PerOp, Rate, RateProcess, Stretch, Think};
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Op};

/// The schedule of one operation.
#[derive(Clone, Debug)]
struct Line {
    rate: Rate,
    /// Bytes or I/Os issued so far.
    units: u64,
    /// From the start of the job to the next intended start, of time in which the rate is fully used.
    next: Nanos,
}

/// The schedules of a job thread. The rate is the thread's own, as in fio.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    lines: PerOp<Option<Line>>,
    process: RateProcess,
    stretches: Vec<Stretch>,
    /// When the job starts.
    pub start: Nanos,
    rng: Xoshiro256PlusPlus,
}

impl Pacing {
    /// The job's schedules, or `None` if it has no rate.
    pub fn new(job: &Job, seed: u64) -> Option<Pacing> {
        let ops = job.pattern.direction.ops();
        let rate = |op| job.rate.get(op).filter(|_| ops.contains(&op));
        let lines = PerOp::of(|op| rate(op).map(|rate| Line { rate, units: 0, next: Nanos::ZERO }));
        ops.iter().any(|op| rate(*op).is_some()).then(|| Pacing {
            lines,
            process: job.rate_process,
            stretches: job.rate_stretches.clone(),
            start: Nanos::ZERO,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        })
    }

    /// A copy of it that says whose turn it is, where reads and writes have a rate each: the mix follows from the two, as in fio,
    /// because an operation that had to wait for one of the other's would be late by however far dice had taken them apart.
    pub fn turns(&self, job: &Job) -> Option<Box<Pacing>> {
        let both = self.lines.read.is_some() && self.lines.write.is_some() && (1..100).contains(&job.read_percent);
        both.then(|| Box::new(self.clone()))
    }

    /// The operation whose next start is the earlier one.
    pub fn turn(&self) -> Op {
        let next = |op| self.lines.get(op).as_ref().map_or(Nanos::MAX, |line| line.next);
        if next(Op::Read) <= next(Op::Write) { Op::Read } else { Op::Write }
    }

    /// When the next I/O of `op` is meant to start; `None`: whenever it can.
    pub fn due(&self, op: Op) -> Option<Nanos> {
        self.lines.get(op).as_ref().map(|line| self.start + stretched(&self.stretches, line.next))
    }

    /// An I/O of `op` and `bytes` was issued: moves its schedule on.
    pub fn issued(&mut self, op: Op, bytes: u32) {
        let Some(line) = self.lines.get_mut(op) else { return };
        let (per_second, step) = match line.rate {
            Rate::Bytes(n) => (n, u64::from(bytes)),
            Rate::Iops(n) => (n, 1),
        };
        line.units += step;
        // From the total, not from the last start: rounding does not add up.
        let nanos = |units: u64| u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1));
        line.next = match self.process {
            RateProcess::Linear => Nanos(nanos(line.units).min(u128::from(u64::MAX)) as u64),
            RateProcess::Poisson => {
                let gap: f64 = Exp1.sample(&mut self.rng);
                line.next + Nanos((gap * nanos(step) as f64) as u64)
            }
        };
    }
}

/// When `used` of fully used time have passed, where the rate is used in `stretches`. [`Nanos::MAX`]: never.
fn stretched(stretches: &[Stretch], used: Nanos) -> Nanos {
    let within = |stretch: &Stretch| (stretch.span.0 as f64 * stretch.share) as u64;
    let sum = |of: &dyn Fn(&Stretch) -> u64| stretches.iter().map(of).fold(0, u64::saturating_add);
    let (cycle, span) = (sum(&within), sum(&|stretch| stretch.span.0));
    if cycle == 0 {
        return used;
    }
    let (cycles, mut left) = (used.0 / cycle, used.0 % cycle);
    let mut at = span.saturating_mul(cycles);
    for stretch in stretches {
        let used = within(stretch);
        if left < used {
            return Nanos(at.saturating_add((left as f64 / stretch.share) as u64));
        }
        left -= used;
        at = at.saturating_add(stretch.span.0);
    }
    Nanos(at)
}

/// What has to happen before the next I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// All that is in flight has to complete.
    Drain,
    /// One I/O has to complete.
    Reap,
    /// This instant has to come.
    Until(Nanos),
}

/// `thinktime`.
#[derive(Debug)]
pub(super) struct Pauses {
    pub think: Think,
    /// I/Os until the next pause.
    pub left: u64,
    /// The pause under way: from and until.
    pub pause: Option<(Nanos, Nanos)>,
}

impl Pauses {
    /// What has to happen before the next I/O, if anything has, with `in_flight` of them out.
    pub fn before(&mut self, now: Nanos, in_flight: u32) -> Option<Hold> {
        if let Some((_, until)) = self.pause {
            if now < until {
                return Some(Hold::Until(until));
            }
            (self.pause, self.left) = (None, self.think.blocks);
        }
        if self.left > 0 {
            return None;
        }
        if in_flight > 0 {
            return Some(Hold::Drain);
        }
        let until = now + self.think.time;
        self.pause = Some((now, until));
        Some(Hold::Until(until))
    }
}

/// When the job flushes: `fsync` and `fdatasync`, of the file whose turn it is, as in fio (`get_rw_ddir` in its io_u.c); `end_fsync`, of
/// all files. A Flush is an I/O like others: it makes durable what had completed when it was issued, and waits for nothing.
#[derive(Debug)]
pub(super) struct Syncs {
    /// Writes between two; 0: none.
    fsync: u64,
    fdatasync: u64,
    at_end: bool,
    writes: u64,
    /// The last I/O of this pass was one.
    pub last: bool,
    /// The files that are still to be flushed at the end of a pass.
    ending: std::vec::IntoIter<u16>,
}

impl Syncs {
    /// `None` if `job` asks for none or writes nothing.
    pub fn new(job: &Job) -> Option<Syncs> {
        let (mut fsync, mut fdatasync, at_end) = (u64::from(job.sync_every), u64::from(job.data_sync_every), job.sync_at_end);
        if job.pattern.direction == Direction::TrimWrite {
            // fio has a trim or a write there in any case.
            (fsync, fdatasync) = (0, 0);
        }
        let asked = fsync > 0 || fdatasync > 0 || at_end;
        (asked && job.pattern.writes()).then(|| Syncs { fsync, fdatasync, at_end, writes: 0, last: false, ending: Vec::new().into_iter() })
    }

    /// An I/O is issued. Verification's reads are none of the job's own.
    pub fn issued(&mut self, op: Op) {
        self.last = op == Op::Flush;
        self.writes += u64::from(op == Op::Write);
    }

    /// Whether a Flush comes before the next I/O, and if so, whether it is one of `fdatasync`.
    pub fn due(&self) -> Option<bool> {
        let now = |every: u64| every > 0 && self.writes > 0 && self.writes.is_multiple_of(every);
        match self.last {
            true => None,
            false => now(self.fsync).then_some(false).or_else(|| now(self.fdatasync).then_some(true)),
        }
    }

    /// The target to flush now that all of a pass's I/Os have completed, of these.
    pub fn last(&mut self, targets: impl Iterator<Item = u16>) -> Option<u16> {
        if self.at_end && !self.last {
            self.ending = targets.collect::<Vec<_>>().into_iter();
        }
        self.ending.next()
    }
}

/// Whether two I/Os in flight have a byte in common, and do not both read.
///
/// Commands in flight have no order (NVM Command Set 1.1, 2.1.2; the block layer sorts and merges them too). Of two writes in flight
/// that have a byte in common either may come last, or each in part. A job that verifies, or has `serialize_overlap=1`, therefore
/// issues an I/O only when no other one in flight touches its blocks, unless both read. As in fio (`in_flight_overlap` in its io_u.c)
/// each job thread looks at its own I/Os.
pub(super) fn overlap(a: &Io, b: &Io) -> bool {
    let end = |io: &Io| io.offset + u64::from(io.len);
    a.target == b.target && a.offset < end(b) && b.offset < end(a) && !(a.op == Op::Read && b.op == Op::Read)
}

#[cfg(test)]
mod tests;
