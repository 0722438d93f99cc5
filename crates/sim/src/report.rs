//! What came of a run.

use crate::PathCounts;
use completion::Decisions;
use driver::multipath::{Counters, PathStatus};
use emu::Injected;
use units::Nanos;
use workload::{Failure, Histogram, Latency, Stats};

/// What threads that do I/O, and the drains of their queues, count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads and writes that succeeded.
    pub completed: u64,
    /// Requests that failed with a status of the controller's.
    pub failed: u64,
    /// Requests that a reset took back for good.
    pub lost: u64,
    /// Statuses other than success, retried ones included.
    pub bad_statuses: u64,
    /// Times that a thread was woken.
    pub wakeups: u64,
    /// Those of them by a timer: naps, and the jobs' own arrivals.
    pub timer_wakeups: u64,
    /// Times that a thread wanted to block and did not, because a signal was waiting.
    pub returned_at_once: u64,
    /// Sleeps on a timer, masked. Only of threads that look by themselves.
    pub naps: u64,
    /// Sleeps with the notification armed.
    pub sleeps: u64,
    /// Looks under a completion queue's lock.
    pub looks: u64,
    /// Those of them that found nothing.
    pub empty_looks: u64,
    /// Looks given up because another CPU held the lock.
    pub busy_looks: u64,
    /// CPU time of choosing paths.
    pub choosing: Nanos,
    /// CPU time of the applications' work: [`crate::JobSpec::work`] for each I/O.
    pub application: Nanos,
    /// Time of the applications away from the library.
    pub away: Nanos,
    /// CPU time spent spinning.
    pub spun: Nanos,
    /// Most entries taken in one round, in one handler's run, or in one look after a commit.
    pub entries_per_drain_max: u32,
    /// Entries of the round or run under way.
    pub(crate) drain: u32,
}

impl Counts {
    pub(crate) fn looked(&mut self, found: u32) {
        self.looks += 1;
        self.empty_looks += u64::from(found == 0);
        self.drain += found;
        self.entries_per_drain_max = self.entries_per_drain_max.max(self.drain);
    }

    /// A look after a commit has a budget of its own, and may come in the middle of a round.
    pub(crate) fn checked(&mut self, found: u32) {
        self.looks += 1;
        self.empty_looks += u64::from(found == 0);
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
            (&mut self.looks, other.looks),
            (&mut self.empty_looks, other.empty_looks),
            (&mut self.busy_looks, other.busy_looks),
            (&mut self.choosing.0, other.choosing.0),
            (&mut self.application.0, other.application.0),
            (&mut self.away.0, other.away.0),
            (&mut self.spun.0, other.spun.0),
        ];
        all.into_iter().for_each(|(mine, other)| *mine = with(*mine, other));
    }
}

/// The outcome of one run, from when the first of its threads is past its start delay and its ramp. Times are CPU time of all
/// CPUs together.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From there to the last completion.
    pub elapsed: Nanos,
    /// Of all threads and drains.
    pub counts: Counts,
    /// What ended a job early, if anything did: of the first such job.
    pub failure: Option<Failure>,
    /// Messages that devices sent for I/O queues.
    pub messages: u64,
    /// Messages that masks held back.
    pub suppressed: u64,
    /// Completions of which no message tells: of commands that went to a lane that is only looked at ([`crate::DeviceSpec::masks`]).
    pub silent: u64,
    /// What messages met on the path that they share; all zero where they share none.
    pub way: PathCounts,
    /// Lockless empty polls: what spinning amounts to.
    pub spins: u64,
    /// Writes to submission doorbells.
    pub sq_doorbells: u64,
    /// Writes to completion doorbells.
    pub cq_doorbells: u64,
    /// What `adaptive` decided, how often; `None` in modes that have one rule.
    pub decisions: Option<Decisions>,
    /// In threads that do I/O, interrupt threads and ksoftirqd included, the applications' own work and hogs aside.
    pub thread: Nanos,
    /// Resets of controllers, in the whole run; so are the next three.
    pub resets: u32,
    /// Aborts sent.
    pub aborts: u32,
    /// Entries that were there at a time-out and of which nobody had been told.
    pub missed_notifications: u64,
    /// The faults that were injected, in order, device by device.
    pub injected: Vec<Injected>,
    /// What the jobs themselves measured, together: latencies by operation, depths, batches.
    pub stats: Stats,
    /// Of reads and writes: of threads with a rate from the intended start, of others from the decision to issue.
    pub latency: Latency,
    /// From the notifications of queues that are drained for others to the first looks, in nanoseconds.
    pub poll_delays: Histogram,
    /// Entries that each of those brought until its queue was armed again.
    pub per_cycle: Histogram,
    /// All CPUs together.
    pub all_cpus: CpuOutcome,
    /// By CPU.
    pub cpus: Vec<CpuOutcome>,
    /// What happened in each [`crate::Scenario::ticks`] from the start on, as far as they are whole; none if that is `None`.
    pub ticks: Vec<Tick>,
    /// By entry of the results: one per job thread, or per group where `group_reporting` asks for it.
    pub jobs: Vec<JobOutcome>,
    /// By device.
    pub devices: Vec<DeviceOutcome>,
    /// The devices that are paths.
    pub paths: Vec<PathOutcome>,
    /// What went wrong on paths and was made good, with the longest stall, in the whole run.
    pub failover: Counters,
}

/// What one CPU did. `hard + soft + thread + idle` is [`Outcome::elapsed`], exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOutcome {
    /// In hard interrupts.
    pub hard: Nanos,
    /// In softirqs.
    pub soft: Nanos,
    /// In threads: everything that runs as one, hogs and applications included.
    pub thread: Nanos,
    /// Idle.
    pub idle: Nanos,
    /// The longest time in one piece that interrupts and softirqs kept threads away.
    pub longest_away: Nanos,
    /// Interrupts of devices taken, notifications of posted ones included: fewer than messages where one came while
    /// another waited.
    pub interrupts: u64,
    /// Of those, notifications: interrupts that stand for whatever vectors have posted.
    pub notifications: u64,
    /// Vectors handled: with posted interrupts several for each notification, else one for each interrupt.
    pub vectors_handled: u64,
    /// Runs of the poller's softirq.
    pub softirqs: u64,
    /// Of those, the ones that ksoftirqd did.
    pub ksoftirqd_runs: u64,
    /// From one thread to another.
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

/// What happened in a stretch of time. Counts are of that stretch alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Of all threads and drains; without what is greatest.
    pub counts: Counts,
    /// What `adaptive` decided.
    pub decisions: Decisions,
    /// CPU time, as in [`Outcome::cpu_ns_per_io`].
    pub cpu: Nanos,
    /// Lockless empty polls.
    pub spins: u64,
    /// Median latency in nanoseconds: from the intended start where there is a rate, else from the decision to issue. 0: of
    /// nothing.
    pub p50: u64,
    /// 99 %.
    pub p99: u64,
}

impl Tick {
    /// Of everything until `self` what came after `before`.
    pub(crate) fn since(mut self, before: &Tick) -> Tick {
        self.counts.combine(&before.counts, u64::saturating_sub);
        self.counts.entries_per_drain_max = 0;
        self.decisions = self.decisions.since(&before.decisions);
        (self.cpu, self.spins) = (self.cpu - before.cpu, self.spins.saturating_sub(before.spins));
        self
    }
}

/// What one entry of the results did.
#[derive(Clone, Debug)]
pub struct JobOutcome {
    /// The job's name.
    pub name: String,
    /// I/Os that succeeded of each thread that is summed up in it.
    pub ios: Vec<u64>,
    /// What they measured.
    pub stats: Stats,
}

/// What one device did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOutcome {
    /// Its name.
    pub name: String,
    /// Requests that succeeded.
    pub completed: u64,
    /// Messages that it sent for I/O queues.
    pub messages: u64,
    /// Messages that masks held back.
    pub suppressed: u64,
}

/// What one path did, for all threads that send by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOutcome {
    /// The device at its end.
    pub device: String,
    /// How it stands at the end.
    pub status: PathStatus,
    /// Requests that were sent by it and have ended, those that went another way included.
    pub ios: u64,
    /// Of these, the ones that did not end well there.
    pub failed: u64,
    /// The time that all that ended took together.
    pub time: Nanos,
}

/// A latency at fio's usual percentiles, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// 99.99 %.
    pub p9999: u64,
    /// The longest.
    pub max: u64,
}

impl Outcome {
    /// What has come of the run since it had come to `before`, which had the same CPUs, devices and paths. Jobs measure by
    /// themselves from when on; what befell controllers, and what is greatest, stay as they are.
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
        self.decisions = self.decisions.map(|decisions| decisions.since(&before.decisions.unwrap_or_default()));
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
            (path.ios, path.failed, path.time) = (path.ios - before.ios, path.failed - before.failed, path.time - before.time);
        }
        self
    }

    /// I/Os per second.
    pub fn iops(&self) -> f64 {
        self.per_second(self.counts.completed)
    }

    /// CPU time per I/O in nanoseconds, interrupts and softirqs included, the applications' work not.
    pub fn cpu_ns_per_io(&self) -> f64 {
        (self.all_cpus.hard + self.all_cpus.soft + self.thread).0 as f64 / self.counts.completed.max(1) as f64
    }

    /// `n` of something in the run, per second.
    pub fn per_second(&self, n: u64) -> f64 {
        if self.elapsed == Nanos::ZERO { 0.0 } else { n as f64 / self.elapsed.as_secs_f64() }
    }

    /// I/Os per wake-up; none if the thread never slept.
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
    /// Of what a job measured.
    pub fn of(latency: &Latency) -> Percentiles {
        let at = latency.histogram.as_ref().map(|h| h.percentiles(&[50.0, 99.0, 99.9, 99.99])).unwrap_or_default();
        match at[..] {
            [p50, p99, p999, p9999] => Percentiles { mean: latency.moments.mean(), p50, p99, p999, p9999, max: latency.moments.max() },
            _ => Percentiles::default(),
        }
    }
}
