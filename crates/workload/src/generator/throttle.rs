//! What holds I/Os back: rates, pauses, Flushes, other I/Os in flight.
//!
//! The schedule of a rate depends on nothing that completes: a job that falls behind it catches up, and the delay shows in the latency
//! from the intended start.

use super::io::Place;
use crate::job::{Job, PerOp, Rate, RateProcess, Stretch, Think};
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

    /// The same of the next I/O, if its operation is known, and otherwise of whichever may be next.
    pub fn next_due(&self, op: Option<Op>) -> Option<Nanos> {
        match op {
            Some(op) => self.due(op),
            None => [Op::Read, Op::Write, Op::Deallocate].into_iter().filter_map(|op| self.due(op)).min(),
        }
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
    /// Nothing: this many I/Os may be issued.
    Go(u64),
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
    think: Think,
    /// I/Os until the next pause.
    pub left: u64,
    /// The pause under way: from and until.
    pause: Option<(Nanos, Nanos)>,
}

impl Pauses {
    pub fn new(think: Think) -> Pauses {
        Pauses { think, left: think.blocks, pause: None }
    }

    /// What has to happen before the next I/O, with `in_flight` of them out.
    pub fn before(&mut self, now: Nanos, in_flight: u32) -> Hold {
        if let Some((_, until)) = self.pause {
            if now < until {
                return Hold::Until(until);
            }
            (self.pause, self.left) = (None, self.think.blocks);
        }
        if self.left > 0 {
            return Hold::Go(self.left);
        }
        if in_flight > 0 {
            return Hold::Drain;
        }
        let until = now + self.think.time;
        self.pause = Some((now, until));
        Hold::Until(until)
    }

    /// Until when the thread computes, if it pauses.
    pub fn computes_until(&self) -> Option<Nanos> {
        self.pause.map(|(from, _)| from + self.think.spin).filter(|_| self.think.spin > Nanos::ZERO)
    }
}

/// Which targets are to be flushed, and when. A Flush is an I/O like others: it makes durable what had completed when it was
/// issued, and does not wait for what is in flight.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    /// Writes between two; 0: only at the end.
    every: u32,
    at_end: bool,
    /// Writes since the last one.
    writes: u32,
    /// Of each target, whether there was one since its last Flush.
    written: Box<[bool]>,
    /// Targets whose turn it is.
    owed: Vec<u16>,
    /// Those of the end were taken, and nothing was written since.
    closed: bool,
}

impl Syncs {
    /// `None` if `job` asks for none or writes nothing.
    pub fn new(job: &Job, targets: usize) -> Option<Syncs> {
        let asked = job.sync_every > 0 || job.sync_at_end;
        (asked && job.pattern.writes()).then(|| Syncs {
            every: job.sync_every,
            at_end: job.sync_at_end,
            written: vec![false; targets].into(),
            closed: true,
            ..Syncs::default()
        })
    }

    /// A write to `target` was issued.
    pub fn wrote(&mut self, target: u16) {
        self.writes = self.writes.saturating_add(1);
        self.closed = false;
        if let Some(written) = self.written.get_mut(usize::from(target)) {
            *written = true;
        }
    }

    /// The target to flush before the next I/O.
    pub fn due(&mut self) -> Option<u16> {
        if self.every > 0 && self.writes >= self.every {
            self.writes = 0;
            self.owed.extend(self.written.iter().zip(0..).filter(|(written, _)| **written).map(|(_, target)| target));
            self.written.fill(false);
        }
        self.owed.pop()
    }

    /// The target to flush now that all writes have completed: each of them, because an earlier Flush may have passed a write.
    pub fn last(&mut self) -> Option<u16> {
        if self.at_end && !self.closed {
            (self.closed, self.writes) = (true, 0);
            self.owed = (0..self.written.len() as u16).collect();
            self.written.fill(false);
        }
        if self.closed { self.owed.pop() } else { None }
    }
}

/// The ranges that are in flight, by slot: `serialize_overlap`, and what is verified.
///
/// Commands in flight have no order (NVM Command Set 1.1, 2.1.2; the block layer sorts and merges them too). Of two writes in flight
/// that have a byte in common either may come last, or each in part. A job that verifies, or has `serialize_overlap=1`, therefore
/// issues an I/O only when no other one in flight touches its blocks, unless both read. As in fio (`in_flight_overlap` in its io_u.c)
/// each job thread looks at its own I/Os.
#[derive(Debug)]
pub(super) struct Overlaps(pub Vec<(u32, Place)>);

impl Overlaps {
    /// Those of `job`; `None`: its I/Os wait for none.
    pub fn new(job: &Job) -> Option<Overlaps> {
        let changes = job.pattern.changes() && (job.serialize_overlap || job.verify.is_some());
        changes.then(|| Overlaps(Vec::with_capacity(job.iodepth.min(1_024) as usize)))
    }

    /// Whether an I/O in flight has a byte in common with `place`.
    pub fn touch(&self, place: &Place) -> bool {
        let end = |place: &Place| place.offset + u64::from(place.len);
        let meets = |other: &Place| other.target == place.target && other.offset < end(place) && place.offset < end(other);
        self.0.iter().any(|(_, other)| meets(other) && !(other.op == Op::Read && place.op == Op::Read))
    }
}

#[cfg(test)]
mod tests;
