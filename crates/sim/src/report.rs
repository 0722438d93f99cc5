//! The results of a run. Counters start with the run; [`Outcome::since`] subtracts what was counted
//! in start delay and ramp.
//!
//! ```text
//!   start        start delay and ramp        |   measured time       last completion
//!     |------------- before -----------------|------- Outcome -----------|
//! ```

use crate::PathCounts;
use completion::{AdaptiveState, Decisions};
use driver::multipath::{MultipathCounters, PathStatus};
use emu::Injected;
use units::Nanos;
use workload::{Histogram, IoFailure, Latency, Stats};

/// Counters of the threads that do I/O, and of the drains of their queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads and writes that succeeded.
    pub completed: u64,
    /// Requests that completed with an error status, after retries.
    pub failed: u64,
    /// Requests cancelled by a reset and not retried.
    pub lost: u64,
    /// Statuses other than success, retried ones included.
    pub bad_statuses: u64,
    /// Wake-ups of threads.
    pub wakeups: u64,
    /// How many of `wakeups` were by a timer: at the end of a nap, or for the job's next I/O.
    pub timer_wakeups: u64,
    /// Blocking calls that returned at once, because the eventfd was already signalled.
    pub returned_at_once: u64,
    /// Sleeps on a timer with the notification masked. Counted only for threads that poll their own
    /// queues.
    pub naps: u64,
    /// Sleeps with the notification armed.
    pub sleeps: u64,
    /// Polls under a completion queue's lock.
    pub polls: u64,
    /// How many of `polls` found no entry.
    pub empty_polls: u64,
    /// Polls skipped because another CPU held the lock.
    pub busy_looks: u64,
    /// CPU time spent on choosing paths.
    pub choosing: Nanos,
    /// CPU time of the applications: [`crate::JobSpec::work`] for each I/O.
    pub application: Nanos,
    /// Time that the applications spent outside the library.
    pub away: Nanos,
    /// CPU time spent spinning.
    pub spun: Nanos,
    /// Maximum number of entries reaped in one round over a thread's queues, in one run of an
    /// interrupt handler, or in one poll after a submission.
    pub entries_per_drain_max: u32,
    /// Entries reaped so far in the current round or run.
    pub(crate) drain: u32,
}

impl Counts {
    /// Counts a poll of a round or run.
    pub(crate) fn looked(&mut self, found: u32) {
        self.polls += 1;
        self.empty_polls += u64::from(found == 0);
        self.drain += found;
        self.entries_per_drain_max = self.entries_per_drain_max.max(self.drain);
    }

    /// Counts a poll after a submission. Such a poll has its own budget, and may happen within a
    /// round, so its entries are not added to those of the round.
    pub(crate) fn checked(&mut self, found: u32) {
        self.polls += 1;
        self.empty_polls += u64::from(found == 0);
        self.entries_per_drain_max = self.entries_per_drain_max.max(found);
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        self.combine(other, u64::saturating_add);
        self.entries_per_drain_max = self.entries_per_drain_max.max(other.entries_per_drain_max);
    }

    fn combine(&mut self, other: &Counts, with: fn(u64, u64) -> u64) {
        let all = [
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.lost, other.lost),
            (&mut self.bad_statuses, other.bad_statuses),
            (&mut self.wakeups, other.wakeups),
            (&mut self.timer_wakeups, other.timer_wakeups),
            (&mut self.returned_at_once, other.returned_at_once),
            (&mut self.naps, other.naps),
            (&mut self.sleeps, other.sleeps),
            (&mut self.polls, other.polls),
            (&mut self.empty_polls, other.empty_polls),
            (&mut self.busy_looks, other.busy_looks),
            (&mut self.choosing.0, other.choosing.0),
            (&mut self.application.0, other.application.0),
            (&mut self.away.0, other.away.0),
            (&mut self.spun.0, other.spun.0),
        ];
        all.into_iter().for_each(|(mine, other)| *mine = with(*mine, other));
    }
}

/// The results of a run. The measured time begins when the first thread is past its start delay and
/// its ramp. CPU times are sums over all CPUs.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the start of the measured time to the last completion.
    pub elapsed: Nanos,
    /// Counters of all threads and drains.
    pub counts: Counts,
    /// The first error that ended a job early.
    pub failure: Option<IoFailure>,
    /// Messages that devices sent for I/O queues.
    pub messages: u64,
    /// Messages suppressed by masks.
    pub suppressed: u64,
    /// Completions of poll queues, which send no message ([`crate::DeviceSpec::masks`]).
    pub silent: u64,
    /// Counters of the shared interrupt path; all zero if there is none.
    pub way: PathCounts,
    /// Checks of the phase bit while spinning that found nothing.
    pub spins: u64,
    /// Writes to submission doorbells.
    pub sq_doorbells: u64,
    /// Writes to completion doorbells.
    pub cq_doorbells: u64,
    /// Counts of the decisions of `adaptive`; `None` in other modes.
    pub decisions: Option<Decisions>,
    /// The action of `adaptive` in force at the end and its reason, on the first queue.
    pub state: Option<AdaptiveState>,
    /// CPU time of threads, including interrupt threads and ksoftirqd, without hogs and without the
    /// applications' own work.
    pub thread: Nanos,
    /// Resets of controllers. This and the next three counters cover the whole run.
    pub resets: u32,
    /// Aborts sent.
    pub aborts: u32,
    /// Entries that a time-out handler found posted without an interrupt.
    pub missed_notifications: u64,
    /// Injected faults, in order, device by device.
    pub injected: Vec<Injected>,
    /// The measurements of all jobs: latencies by operation, depths, batches.
    pub stats: Stats,
    /// Latency of reads and writes: from the intended start where there is a rate, else from the
    /// decision to issue.
    pub latency: Latency,
    /// Delay from an interrupt to the first poll of its queue, in nanoseconds, for queues that are
    /// reaped by a handler, softirq or interrupt thread.
    pub poll_delays: Histogram,
    /// Entries reaped after such an interrupt, until the queue was armed again.
    pub per_cycle: Histogram,
    /// Totals of all CPUs together.
    pub all_cpus: CpuOutcome,
    /// Totals of each CPU.
    pub cpus: Vec<CpuOutcome>,
    /// Totals of each interval of the length [`crate::Scenario::ticks`], from the start of the run
    /// on. An incomplete last interval is left out.
    pub ticks: Vec<Tick>,
    /// Results of each entry of the report: a job's thread, or a group with `group_reporting`.
    pub jobs: Vec<JobOutcome>,
    /// Totals of each device.
    pub devices: Vec<DeviceOutcome>,
    /// Totals of each device that is a path.
    pub paths: Vec<PathOutcome>,
    /// Path failures that were handled and the longest stall, in the whole run.
    pub failover: MultipathCounters,
}

/// Totals of one CPU. `hard + soft + thread + idle` is exactly [`Outcome::elapsed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOutcome {
    /// Time in hard interrupts.
    pub hard: Nanos,
    /// Time in softirqs.
    pub soft: Nanos,
    /// Time in threads, hogs and applications included.
    pub thread: Nanos,
    /// Idle time.
    pub idle: Nanos,
    /// Longest time in which interrupts and softirqs kept threads from running.
    pub longest_away: Nanos,
    /// Device interrupts taken, including notifications of posted vectors. Fewer than messages if
    /// messages were merged into a pending interrupt.
    pub interrupts: u64,
    /// How many of `interrupts` were notifications of posted vectors.
    pub notifications: u64,
    /// Vectors handled. Posted interrupts handle several for each notification.
    pub vectors_handled: u64,
    /// Runs of irq_poll's softirq.
    pub softirqs: u64,
    /// How many of `softirqs` ran in ksoftirqd.
    pub ksoftirqd_runs: u64,
    /// Switches to a thread.
    pub context_switches: u64,
}

impl CpuOutcome {
    pub(crate) fn add(&mut self, other: &CpuOutcome) {
        self.combine(other, u64::saturating_add);
        self.longest_away = self.longest_away.max(other.longest_away);
    }

    fn combine(&mut self, other: &CpuOutcome, with: fn(u64, u64) -> u64) {
        let all = [
            (&mut self.hard.0, other.hard.0),
            (&mut self.soft.0, other.soft.0),
            (&mut self.thread.0, other.thread.0),
            (&mut self.idle.0, other.idle.0),
            (&mut self.interrupts, other.interrupts),
            (&mut self.notifications, other.notifications),
            (&mut self.vectors_handled, other.vectors_handled),
            (&mut self.softirqs, other.softirqs),
            (&mut self.ksoftirqd_runs, other.ksoftirqd_runs),
            (&mut self.context_switches, other.context_switches),
        ];
        all.into_iter().for_each(|(mine, other)| *mine = with(*mine, other));
    }
}

/// Totals of one interval of the length [`crate::Scenario::ticks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Counters of all threads and drains. Maxima are 0.
    pub counts: Counts,
    /// Counts of the decisions of `adaptive`.
    pub decisions: Decisions,
    /// CPU time, as in [`Outcome::cpu_ns_per_io`].
    pub cpu: Nanos,
    /// Checks of the phase bit while spinning that found nothing.
    pub spins: u64,
    /// Median latency in nanoseconds: from the intended start where there is a rate, else from the
    /// decision to issue. 0: nothing completed.
    pub p50: u64,
    /// 99th percentile of the same latency.
    pub p99: u64,
}

impl Tick {
    /// The totals since `before`.
    pub(crate) fn since(mut self, before: &Tick) -> Tick {
        self.counts.combine(&before.counts, u64::saturating_sub);
        self.counts.entries_per_drain_max = 0;
        self.decisions = self.decisions.since(&before.decisions);
        (self.cpu, self.spins) = (self.cpu - before.cpu, self.spins.saturating_sub(before.spins));
        self
    }
}

/// Results of one entry of the report.
#[derive(Clone, Debug)]
pub struct JobOutcome {
    /// The job's name.
    pub name: String,
    /// Number of I/Os that succeeded, for each thread of the entry.
    pub ios: Vec<u64>,
    /// The measurements of these I/Os.
    pub stats: Stats,
}

/// Totals of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOutcome {
    /// Its name.
    pub name: String,
    /// Requests that succeeded.
    pub completed: u64,
    /// Messages that the device sent for I/O queues.
    pub messages: u64,
    /// Messages suppressed by masks.
    pub suppressed: u64,
}

/// Totals of one path, of all threads that use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOutcome {
    /// The device at its end.
    pub device: String,
    /// Its state at the end of the run.
    pub status: PathStatus,
    /// Requests that ended on the path, including those that failed over to another path.
    pub ios: u64,
    /// How many of `ios` failed on the path.
    pub failed: u64,
    /// Sum of the times that the requests of `ios` spent on the path.
    pub time: Nanos,
}

/// A latency at fio's usual percentiles, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Mean.
    pub mean: f64,
    /// 50th percentile.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// 99.99th percentile.
    pub p9999: u64,
    /// Maximum.
    pub max: u64,
}

impl Outcome {
    /// The totals since `before`, which has the same CPUs, devices and paths. Not subtracted are
    /// job measurements, which start with the measured time, counters of resets, and maxima.
    pub(crate) fn since(mut self, before: &Outcome) -> Outcome {
        self.elapsed = self.elapsed - before.elapsed;
        self.thread = self.thread - before.thread;
        self.counts.combine(&before.counts, u64::saturating_sub);
        self.messages -= before.messages;
        self.suppressed -= before.suppressed;
        self.silent -= before.silent;
        self.way.messages -= before.way.messages;
        self.way.waited = self.way.waited - before.way.waited;
        self.way.held = self.way.held - before.way.held;
        self.spins -= before.spins;
        self.sq_doorbells -= before.sq_doorbells;
        self.cq_doorbells -= before.cq_doorbells;
        self.decisions =
            self.decisions.map(|decisions| decisions.since(&before.decisions.unwrap_or_default()));
        self.poll_delays = self.poll_delays.since(&before.poll_delays);
        self.per_cycle = self.per_cycle.since(&before.per_cycle);
        self.all_cpus.combine(&before.all_cpus, u64::saturating_sub);
        for (cpu, before) in self.cpus.iter_mut().zip(&before.cpus) {
            cpu.combine(before, u64::saturating_sub);
        }
        for (device, before) in self.devices.iter_mut().zip(&before.devices) {
            device.completed -= before.completed;
            device.messages -= before.messages;
            device.suppressed -= before.suppressed;
        }
        for (path, before) in self.paths.iter_mut().zip(&before.paths) {
            (path.ios, path.failed, path.time) =
                (path.ios - before.ios, path.failed - before.failed, path.time - before.time);
        }
        self
    }

    /// I/Os per second.
    pub fn iops(&self) -> f64 {
        self.per_second(self.counts.completed)
    }

    /// CPU time per I/O in nanoseconds, including interrupts and softirqs, excluding the
    /// applications' work.
    pub fn cpu_ns_per_io(&self) -> f64 {
        (self.all_cpus.hard + self.all_cpus.soft + self.thread).0 as f64
            / self.counts.completed.max(1) as f64
    }

    /// `n` divided by the measured time in seconds.
    pub fn per_second(&self, n: u64) -> f64 {
        if self.elapsed == Nanos::ZERO { 0.0 } else { n as f64 / self.elapsed.as_secs_f64() }
    }

    /// I/Os per wake-up; `None` if no thread slept.
    pub fn completions_per_wakeup(&self) -> Option<f64> {
        let Counts { completed, wakeups, .. } = self.counts;
        (wakeups > 0).then(|| completed as f64 / wakeups as f64)
    }

    /// Latency of reads from the doorbell to the completion.
    pub fn read_latency(&self) -> Percentiles {
        Percentiles::of(&self.stats.read.clat)
    }

    /// Latency of reads from the start that the rate intended; all zero without a rate.
    pub fn intended_read_latency(&self) -> Percentiles {
        Percentiles::of(&self.stats.read.intended)
    }
}

impl Percentiles {
    /// The percentiles of a job's latency.
    pub fn of(latency: &Latency) -> Percentiles {
        // A job without completions has no histogram.
        let at = latency
            .histogram
            .as_ref()
            .map(|h| h.percentiles(&[50.0, 99.0, 99.9, 99.99]))
            .unwrap_or_default();
        match at[..] {
            [p50, p99, p999, p9999] => Percentiles {
                mean: latency.moments.mean(),
                p50,
                p99,
                p999,
                p9999,
                max: latency.moments.max(),
            },
            _ => Percentiles::default(),
        }
    }
}
