//! What came of a run.

use crate::WayCounts;
use completion::Decisions;
use driver::multipath::{Counters, PathStatus};
use emu::Injected;
use units::Nanos;
use workload::{Failure, Histogram, Latency, Stats};

/// What a thread, or a queue's drain, counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Reads and writes that succeeded.
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) bad_statuses: u64,
    pub(crate) no_tag: u64,
    /// Real ones: the thread was off the CPU.
    pub(crate) wakeups: u64,
    /// Those of them by a timer.
    pub(crate) timer_wakeups: u64,
    /// Blocking system calls that returned at once.
    pub(crate) returned_at_once: u64,
    pub(crate) syscalls: u64,
    /// Times that a thread which looks by itself went to sleep on a timer, masked, and armed.
    pub(crate) naps: u64,
    pub(crate) sleeps: u64,
    /// Time of choosing paths.
    pub(crate) choosing: Nanos,
    pub(crate) looks: u64,
    pub(crate) empty_looks: u64,
    /// The lock was held.
    pub(crate) busy: u64,
    pub(crate) found_by_check: u64,
    /// Time of the application's own work on what was handed to it.
    pub(crate) worked: Nanos,
    /// Time of its own away from the library.
    pub(crate) away: Nanos,
    /// Time spent spinning.
    pub(crate) spun: Nanos,
    pub(crate) drain_max: u32,
    drain: u32,
    /// Commands that succeeded, by target.
    pub(crate) targets: Vec<u64>,
}

impl Tally {
    /// A round begins, or a handler's run.
    pub(crate) fn begin_drain(&mut self) {
        self.drain = 0;
    }

    pub(crate) fn looked(&mut self, found: u32) {
        self.looks += 1;
        self.empty_looks += u64::from(found == 0);
        self.drain += found;
        self.drain_max = self.drain_max.max(self.drain);
    }

    /// A look after a commit has a budget of its own, and may come in the middle of a round.
    pub(crate) fn checked(&mut self, found: u32) {
        self.looks += 1;
        self.empty_looks += u64::from(found == 0);
        self.found_by_check += u64::from(found);
        self.drain_max = self.drain_max.max(found);
    }

    /// A command to this target succeeded.
    pub(crate) fn by_target(&mut self, target: usize) {
        if self.targets.len() <= target {
            self.targets.resize(target + 1, 0);
        }
        self.targets[target] += 1;
    }

    /// Adds another one's.
    pub(crate) fn merge(&mut self, other: &Tally) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.lost += other.lost;
        self.bad_statuses += other.bad_statuses;
        self.no_tag += other.no_tag;
        self.wakeups += other.wakeups;
        self.timer_wakeups += other.timer_wakeups;
        self.returned_at_once += other.returned_at_once;
        self.syscalls += other.syscalls;
        self.naps += other.naps;
        self.sleeps += other.sleeps;
        self.choosing += other.choosing;
        self.looks += other.looks;
        self.empty_looks += other.empty_looks;
        self.busy += other.busy;
        self.found_by_check += other.found_by_check;
        self.worked += other.worked;
        self.away += other.away;
        self.spun += other.spun;
        self.drain_max = self.drain_max.max(other.drain_max);
    }
}

/// The outcome of one run, from when the first of its threads is past its start delay and its ramp. Times are CPU time of all
/// CPUs together.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From there to the last completion.
    pub elapsed: Nanos,
    /// Reads and writes that succeeded.
    pub completed: u64,
    /// Requests that failed with a status of the controller's.
    pub failed: u64,
    /// Requests that a reset took back for good.
    pub lost: u64,
    /// What ended a job early, if anything did: of the first such job.
    pub failure: Option<Failure>,
    /// Statuses other than success, retried ones included.
    pub bad_statuses: u64,
    /// Messages that devices sent for I/O queues.
    pub messages: u64,
    /// Messages that masks held back.
    pub suppressed: u64,
    /// Completions of which no message tells: of commands that went to a lane that is only looked at ([`crate::DeviceSpec::masks`]).
    pub silent: u64,
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
    /// Times that a thread which does I/O was woken.
    pub wakeups: u64,
    /// Those of them by a timer: naps, and the jobs' own arrivals.
    pub timer_wakeups: u64,
    /// Times that a thread wanted to block and did not, because a signal was waiting.
    pub returned_at_once: u64,
    /// System calls. Kernel host only.
    pub syscalls: u64,
    /// What messages met on the way that they share; all zero where they share none.
    pub way: WayCounts,
    /// Looks under a completion queue's lock.
    pub looks: u64,
    /// Those of them that found nothing.
    pub empty_looks: u64,
    /// Looks given up because another CPU held the lock.
    pub busy_looks: u64,
    /// Entries found by looks after a commit.
    pub found_by_check: u64,
    /// Lockless empty polls: what spinning amounts to.
    pub spins: u64,
    /// Writes to submission doorbells.
    pub sq_doorbells: u64,
    /// Writes to completion doorbells.
    pub cq_doorbells: u64,
    /// Most entries taken in one round, in one handler's run, or in one look after a commit.
    pub entries_per_drain_max: u32,
    /// What `adaptive` decided, how often; `None` in modes that have one rule.
    pub decisions: Option<Decisions>,
    /// In hard interrupts.
    pub hard: Nanos,
    /// In softirqs.
    pub soft: Nanos,
    /// In threads that do I/O, interrupt threads and ksoftirqd included, the applications' own work and hogs aside.
    pub thread: Nanos,
    /// The applications' work: [`crate::JobSpec::work`] for each I/O. Time away from the library is not in it.
    pub application: Nanos,
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
    /// CPU time of choosing paths.
    pub choosing: Nanos,
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
    /// Interrupts of devices taken.
    pub interrupts: u64,
    /// Interrupts of timers, and of other CPUs.
    pub other_interrupts: u64,
    /// Runs of the poller's softirq.
    pub softirqs: u64,
    /// From one thread to another.
    pub context_switches: u64,
    /// Threads that were woken here.
    pub wakeups: u64,
    /// Of these, by a timer.
    pub timer_wakeups: u64,
}

/// What happened in a stretch of time. Counts are of that stretch alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Reads and writes that succeeded.
    pub completed: u64,
    /// CPU time, as in [`Outcome::cpu_ns_per_io`].
    pub cpu: Nanos,
    /// Looks under a completion queue's lock.
    pub looks: u64,
    /// Those of them that found nothing.
    pub empty_looks: u64,
    /// Lockless empty polls.
    pub spins: u64,
    /// Sleeps on a timer, masked. Only of threads that look by themselves.
    pub naps: u64,
    /// Sleeps with the notification armed.
    pub sleeps: u64,
    /// Naps to gather completions: `adaptive`'s.
    pub gathered: u64,
    /// Waits that were looked at all the way, to learn: `adaptive`'s.
    pub explored: u64,
    /// Median latency in nanoseconds: from the intended start where there is a rate, else from the decision to issue. 0: of
    /// nothing.
    pub p50: u64,
    /// 99 %.
    pub p99: u64,
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
    pub(crate) fn since(self, before: &Outcome) -> Outcome {
        let decisions = self.decisions.map(|decisions| decisions.since(&before.decisions.unwrap_or_default()));
        Outcome {
            elapsed: self.elapsed - before.elapsed,
            completed: self.completed - before.completed,
            failed: self.failed - before.failed,
            lost: self.lost - before.lost,
            bad_statuses: self.bad_statuses - before.bad_statuses,
            messages: self.messages - before.messages,
            suppressed: self.suppressed - before.suppressed,
            silent: self.silent - before.silent,
            interrupts: self.interrupts - before.interrupts,
            notifications: self.notifications - before.notifications,
            vectors_handled: self.vectors_handled - before.vectors_handled,
            softirqs: self.softirqs - before.softirqs,
            ksoftirqd_runs: self.ksoftirqd_runs - before.ksoftirqd_runs,
            context_switches: self.context_switches - before.context_switches,
            wakeups: self.wakeups - before.wakeups,
            timer_wakeups: self.timer_wakeups - before.timer_wakeups,
            returned_at_once: self.returned_at_once - before.returned_at_once,
            syscalls: self.syscalls - before.syscalls,
            way: self.way.since(&before.way),
            looks: self.looks - before.looks,
            empty_looks: self.empty_looks - before.empty_looks,
            busy_looks: self.busy_looks - before.busy_looks,
            found_by_check: self.found_by_check - before.found_by_check,
            spins: self.spins - before.spins,
            sq_doorbells: self.sq_doorbells - before.sq_doorbells,
            cq_doorbells: self.cq_doorbells - before.cq_doorbells,
            decisions,
            hard: self.hard - before.hard,
            soft: self.soft - before.soft,
            thread: self.thread - before.thread,
            application: self.application - before.application,
            poll_delays: self.poll_delays.since(&before.poll_delays),
            per_cycle: self.per_cycle.since(&before.per_cycle),
            choosing: self.choosing - before.choosing,
            cpus: self.cpus.iter().zip(&before.cpus).map(|(cpu, before)| cpu.since(before)).collect(),
            devices: self.devices.into_iter().zip(&before.devices).map(|(device, before)| device.since(before)).collect(),
            paths: self.paths.into_iter().zip(&before.paths).map(|(path, before)| path.since(before)).collect(),
            ..self
        }
    }

    /// I/Os per second.
    pub fn iops(&self) -> f64 {
        self.per_second(self.completed)
    }

    /// CPU time per I/O in nanoseconds, interrupts and softirqs included, the applications' work not.
    pub fn cpu_ns_per_io(&self) -> f64 {
        self.per_io((self.hard + self.soft + self.thread).0 as f64)
    }

    /// `n` of something in the run, per second.
    pub fn per_second(&self, n: u64) -> f64 {
        if self.elapsed == Nanos::ZERO { 0.0 } else { n as f64 / self.elapsed.as_secs_f64() }
    }

    /// I/Os per wake-up; none if the thread never slept.
    pub fn completions_per_wakeup(&self) -> Option<f64> {
        (self.wakeups > 0).then(|| self.completed as f64 / self.wakeups as f64)
    }

    /// Latency of reads from the doorbell to the completion.
    pub fn read_latency(&self) -> Percentiles {
        Percentiles::of(&self.stats.read.clat)
    }

    /// Latency of reads from the start that the rate intended; all zero without a rate.
    pub fn intended_read_latency(&self) -> Percentiles {
        Percentiles::of(&self.stats.read.intended)
    }

    fn per_io(&self, n: f64) -> f64 {
        n / self.completed.max(1) as f64
    }
}

impl CpuOutcome {
    fn since(&self, before: &CpuOutcome) -> CpuOutcome {
        CpuOutcome {
            hard: self.hard - before.hard,
            soft: self.soft - before.soft,
            thread: self.thread - before.thread,
            idle: self.idle - before.idle,
            longest_away: self.longest_away,
            interrupts: self.interrupts - before.interrupts,
            other_interrupts: self.other_interrupts - before.other_interrupts,
            softirqs: self.softirqs - before.softirqs,
            context_switches: self.context_switches - before.context_switches,
            wakeups: self.wakeups - before.wakeups,
            timer_wakeups: self.timer_wakeups - before.timer_wakeups,
        }
    }
}

impl DeviceOutcome {
    fn since(self, before: &DeviceOutcome) -> DeviceOutcome {
        DeviceOutcome {
            completed: self.completed - before.completed,
            messages: self.messages - before.messages,
            suppressed: self.suppressed - before.suppressed,
            ..self
        }
    }
}

impl PathOutcome {
    fn since(self, before: &PathOutcome) -> PathOutcome {
        PathOutcome { ios: self.ios - before.ios, failed: self.failed - before.failed, time: self.time - before.time, ..self }
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
