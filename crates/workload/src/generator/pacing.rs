//! When the next I/O of a rate-limited job is meant to start. The schedule depends on nothing that completes: a job that
//! falls behind it catches up, and the delay shows in the latency from the intended start.

use crate::job::{Job, PerOp, Rate, RateProcess, Stretch};
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
    start: Nanos,
    rng: Xoshiro256PlusPlus,
}

impl Pacing {
    /// The job's schedules, or `None` if it has no rate.
    pub fn new(job: &Job, seed: u64) -> Option<Pacing> {
        let line = |rate| Line { rate, units: 0, next: Nanos::ZERO };
        let used = |rate: Option<Rate>, used: bool| rate.filter(|_| used).map(line);
        let lines = PerOp {
            read: used(job.rate.read, job.pattern.reads()),
            write: used(job.rate.write, job.pattern.writes()),
            trim: used(job.rate.trim, job.pattern.trims()),
        };
        (lines.read.is_some() || lines.write.is_some() || lines.trim.is_some()).then(|| Pacing {
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

    /// The job starts at `now`.
    pub fn start(&mut self, now: Nanos) {
        self.start = now;
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

#[cfg(test)]
mod tests;
