//! What delays an I/O: rates, `thinktime`, Flushes, overlapping I/Os in flight.
//!
//! The schedule of a rate does not depend on completions (open loop): a job that falls behind it
//! catches up, and the delay shows in the latency from the intended start.

use super::Io;
use crate::job::{Direction, Job, PerOp, Rate, RatePhase, RateProcess, Think};
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Op};

/// The schedule of one operation's rate.
#[derive(Clone, Debug)]
struct RateSchedule {
    rate: Rate,
    /// Bytes or I/Os issued so far.
    units: u64,
    /// The next intended start, from the start of the job, as if there were no phases with a lower
    /// rate; [`elapsed_at`] adds these.
    next: Nanos,
}

/// The schedules of a job thread. Each thread has the whole rate, as in fio.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    schedules: PerOp<Option<RateSchedule>>,
    process: RateProcess,
    phases: Vec<RatePhase>,
    /// When the job starts.
    pub start: Nanos,
    rng: Xoshiro256PlusPlus,
}

impl Pacing {
    /// The job's schedules, or `None` if it has no rate.
    pub fn new(job: &Job, seed: u64) -> Option<Pacing> {
        let ops = job.pattern.direction.ops();
        let rate = |op| job.rate.get(op).filter(|_| ops.contains(&op));
        let schedules =
            PerOp::of(|op| rate(op).map(|rate| RateSchedule { rate, units: 0, next: Nanos::ZERO }));
        ops.iter().any(|op| rate(*op).is_some()).then(|| Pacing {
            schedules,
            process: job.rate_process,
            phases: job.rate_phases.clone(),
            start: Nanos::ZERO,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        })
    }

    /// A copy for a mixed job in which reads and writes have a rate each. As in fio, the two rates
    /// decide the mix ([`Pacing::earlier_op`]). If `rwmixread` decided it, an operation that is
    /// ahead of its schedule would delay the other one.
    pub fn for_mix(&self, job: &Job) -> Option<Box<Pacing>> {
        // With rwmixread=0 or 100 the job issues one operation only, whatever the rates.
        let both = self.schedules.read.is_some()
            && self.schedules.write.is_some()
            && (1..100).contains(&job.read_percent);
        both.then(|| Box::new(self.clone()))
    }

    /// Read or Write, whichever has the earlier next start.
    pub fn earlier_op(&self) -> Op {
        let next =
            |op| self.schedules.get(op).as_ref().map_or(Nanos::MAX, |schedule| schedule.next);
        if next(Op::Read) <= next(Op::Write) { Op::Read } else { Op::Write }
    }

    /// The intended start of the next I/O of `op`; `None`: `op` has no rate.
    pub fn due(&self, op: Op) -> Option<Nanos> {
        self.schedules
            .get(op)
            .as_ref()
            .map(|schedule| self.start + elapsed_at(&self.phases, schedule.next))
    }

    /// Advances the schedule of `op` by an I/O of `bytes` bytes.
    pub fn issued(&mut self, op: Op, bytes: u32) {
        let Some(schedule) = self.schedules.get_mut(op) else { return };
        let (per_second, step) = match schedule.rate {
            Rate::Bytes(n) => (n, u64::from(bytes)),
            Rate::Iops(n) => (n, 1),
        };
        schedule.units += step;
        // Computed from the total, so that rounding errors do not add up.
        let nanos = |units: u64| u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1));
        schedule.next = match self.process {
            RateProcess::Linear => Nanos(nanos(schedule.units).min(u128::from(u64::MAX)) as u64),
            // A sum of random gaps cannot be computed from the total: advance from the last start.
            RateProcess::Poisson => {
                let gap: f64 = Exp1.sample(&mut self.rng);
                schedule.next + Nanos((gap * nanos(step) as f64) as u64)
            }
        };
    }
}

/// Converts `used`, a time from the start at the full rate, to the time from the start with phases:
/// each phase has its share of the rate, and the phases repeat. [`Nanos::MAX`]: never.
///
/// ```text
/// share 1.0 ┌─────┐          ┌─────┐         phases 10 ms × 1.0, 10 ms × 0.5, 10 ms × 0.0:
///       0.5 │     └────┐     │     └────┐    15 ms of used time take one cycle of 30 ms
///       0.0 │          └─────┘          └───
///           0     10   20    30 ms
/// ```
fn elapsed_at(phases: &[RatePhase], used: Nanos) -> Nanos {
    let within = |phase: &RatePhase| (phase.span.0 as f64 * phase.share) as u64;
    let sum = |of: &dyn Fn(&RatePhase) -> u64| phases.iter().map(of).fold(0, u64::saturating_add);
    let (cycle, span) = (sum(&within), sum(&|phase| phase.span.0));
    // Without phases, or if no phase has a rate, the full rate applies.
    if cycle == 0 {
        return used;
    }
    let (cycles, mut left) = (used.0 / cycle, used.0 % cycle);
    let mut at = span.saturating_mul(cycles);
    for phase in phases {
        let used = within(phase);
        if left < used {
            return Nanos(at.saturating_add((left as f64 / phase.share) as u64));
        }
        left -= used;
        at = at.saturating_add(phase.span.0);
    }
    Nanos(at)
}

/// What the next I/O waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// All I/Os in flight have to complete.
    Drain,
    /// One I/O has to complete.
    Reap,
    /// This time has to come.
    Until(Nanos),
}

/// `thinktime`.
#[derive(Debug)]
pub(super) struct Pauses {
    pub think: Think,
    /// I/Os until the next pause.
    pub left: u64,
    /// Start and end of the current pause.
    pub pause: Option<(Nanos, Nanos)>,
}

impl Pauses {
    /// What the next I/O waits for, with `in_flight` I/Os in flight; `None`: nothing.
    pub fn before(&mut self, now: Nanos, in_flight: u32) -> Option<WaitFor> {
        // A pause that is over starts the next count of `thinktime_blocks`.
        if let Some((_, until)) = self.pause {
            if now < until {
                return Some(WaitFor::Until(until));
            }
            (self.pause, self.left) = (None, self.think.blocks);
        }
        if self.left > 0 {
            return None;
        }
        // The pause starts when the I/Os before it have completed, as in fio.
        if in_flight > 0 {
            return Some(WaitFor::Drain);
        }
        let until = now + self.think.time;
        self.pause = Some((now, until));
        Some(WaitFor::Until(until))
    }
}

/// When the job flushes: `fsync` and `fdatasync` flush the file of the next I/O, as in fio
/// (`get_rw_ddir` in its io_u.c); `end_fsync` flushes all files. A Flush is issued like any other
/// I/O. It makes durable the writes that had completed when it was issued, and does not wait for
/// I/Os in flight.
#[derive(Debug)]
pub(super) struct Syncs {
    /// Writes between two Flushes, for each of the options; 0: no Flushes.
    fsync: u64,
    fdatasync: u64,
    /// `end_fsync`.
    at_end: bool,
    /// Writes issued so far.
    writes: u64,
    /// The last I/O of this pass was a Flush.
    pub last: bool,
    /// The files that `end_fsync` has yet to flush.
    ending: std::vec::IntoIter<u16>,
}

impl Syncs {
    /// `None` if `job` has no such option or does not write.
    pub fn new(job: &Job) -> Option<Syncs> {
        let (mut fsync, mut fdatasync, at_end) =
            (u64::from(job.sync_every), u64::from(job.data_sync_every), job.sync_at_end);
        if job.pattern.direction == Direction::TrimWrite {
            // fio never picks a sync in a trimwrite job.
            (fsync, fdatasync) = (0, 0);
        }
        // Flushes follow writes, so a job without writes has none.
        let asked = fsync > 0 || fdatasync > 0 || at_end;
        (asked && job.pattern.writes()).then(|| Syncs {
            fsync,
            fdatasync,
            at_end,
            writes: 0,
            last: false,
            ending: Vec::new().into_iter(),
        })
    }

    /// Counts an issued I/O.
    pub fn issued(&mut self, op: Op) {
        self.last = op == Op::Flush;
        self.writes += u64::from(op == Op::Write);
    }

    /// Whether a Flush is due before the next I/O: `Some(true)` for `fdatasync`, `Some(false)` for
    /// `fsync`.
    pub fn due(&self) -> Option<bool> {
        let now = |every: u64| every > 0 && self.writes > 0 && self.writes.is_multiple_of(every);
        // After a Flush `writes` is still a multiple of the option: the Flush must not repeat.
        match self.last {
            true => None,
            false => {
                now(self.fsync).then_some(false).or_else(|| now(self.fdatasync).then_some(true))
            }
        }
    }

    /// The next of `targets` to flush at the end of a pass; `None`: no target is left, or none has
    /// to be flushed.
    pub fn next_at_end(&mut self, targets: impl Iterator<Item = u16>) -> Option<u16> {
        if self.at_end && !self.last {
            self.ending = targets.collect::<Vec<_>>().into_iter();
        }
        self.ending.next()
    }
}

/// Whether two I/Os have a byte in common, and at least one of them is not a read.
///
/// Commands in flight have no order (NVM Command Set 1.1, 2.1.2; the block layer sorts and merges
/// them too): of two overlapping writes, either may take effect last, or each in part. A job that
/// verifies or has `serialize_overlap=1` therefore never has overlapping I/Os in flight, except
/// reads. As in fio (`in_flight_overlap` in its io_u.c) each thread checks only its own I/Os.
pub(super) fn overlap(a: &Io, b: &Io) -> bool {
    let end = |io: &Io| io.offset + u64::from(io.len);
    a.target == b.target
        && a.offset < end(b)
        && b.offset < end(a)
        && !(a.op == Op::Read && b.op == Op::Read)
}

#[cfg(test)]
mod tests;
