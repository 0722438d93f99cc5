//! What a run comes to, as far as rows are made of it: an outcome has a hundred times the size.

use ::sim::{CpuOutcome, FailoverCounters, Outcome, PathOutcome};
use completion::Decisions;
use units::Nanos;
use workload::report::PathFigures;
use workload::{Histogram, Moments};

/// One run's figures. Counts are per second, parts of the CPUs' time in per cent.
#[derive(Clone, Debug)]
pub struct Figures {
    pub iops: f64,
    /// CPU time per I/O in nanoseconds.
    pub cpu: f64,
    pub messages: f64,
    pub wakeups: f64,
    /// Of runs that were woken.
    pub per_wakeup: Option<f64>,
    pub interrupts: f64,
    pub notifications: f64,
    pub softirqs: f64,
    pub sq_doorbells: f64,
    pub context_switches: f64,
    pub over_at_once: f64,
    pub hard: f64,
    pub soft: f64,
    pub thread: f64,
    pub idle: f64,
    pub longest_away: Nanos,
    pub drain_max: u32,
    pub decisions: Option<Decisions>,
    /// Where interrupts share their way: for each message how long it waited, how long the device's writes did, in nanoseconds, and how many of
    /// a hundred were not in the cache.
    pub way: Option<[f64; 3]>,
    /// Of devices that have several paths.
    pub failover: Option<FailoverCounters>,
    pub paths: Vec<PathFigures>,
    pub moments: Moments,
    /// A value of each bucket of the histogram that counted anything, and its count.
    latencies: Vec<(u64, u64)>,
}

impl Figures {
    pub fn of(outcome: &Outcome) -> Figures {
        let rate = |count: u64| outcome.per_second(count);
        let latency = &outcome.latency;
        Figures {
            iops: outcome.iops(),
            cpu: outcome.cpu_ns_per_io(),
            messages: rate(outcome.messages),
            wakeups: rate(outcome.wakeups),
            per_wakeup: outcome.completions_per_wakeup(),
            interrupts: rate(outcome.interrupts),
            notifications: rate(outcome.notifications),
            softirqs: rate(outcome.softirqs),
            sq_doorbells: rate(outcome.sq_doorbells),
            context_switches: rate(outcome.context_switches),
            over_at_once: rate(outcome.returned_at_once),
            hard: share(outcome, |cpu| cpu.hard),
            soft: share(outcome, |cpu| cpu.soft),
            thread: share(outcome, |cpu| cpu.thread),
            idle: share(outcome, |cpu| cpu.idle),
            longest_away: outcome.cpus.iter().map(|cpu| cpu.longest_away).max().unwrap_or_default(),
            drain_max: outcome.entries_per_drain_max,
            decisions: outcome.decisions,
            way: (outcome.way.messages > 0).then(|| {
                let each = |n: u64| n as f64 / outcome.way.messages as f64;
                [each(outcome.way.waited.0), each(outcome.way.held.0), each(outcome.way.misses) * 100.0]
            }),
            failover: (!outcome.paths.is_empty()).then_some(outcome.failover),
            paths: outcome.paths.iter().map(|path| figures_of(path, outcome.elapsed)).collect(),
            moments: latency.moments,
            latencies: latency.histogram.iter().flat_map(Histogram::buckets).collect(),
        }
    }

    /// As [`Outcome::latency`]. Empty if none was measured.
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        self.latencies.iter().for_each(|&(nanos, n)| histogram.add_n(nanos, n));
        histogram
    }
}

/// Per cent of all CPUs' time.
fn share(outcome: &Outcome, part: fn(&CpuOutcome) -> Nanos) -> f64 {
    let all: u64 = outcome.cpus.iter().map(|cpu| (cpu.hard + cpu.soft + cpu.thread + cpu.idle).0).sum();
    let part: u64 = outcome.cpus.iter().map(|cpu| part(cpu).0).sum();
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

fn figures_of(path: &PathOutcome, elapsed: Nanos) -> PathFigures {
    PathFigures {
        device: String::new(),
        path: path.device.clone(),
        state: path.status.to_string(),
        ios: path.ios,
        failed: path.failed,
        // Little's law.
        in_flight: path.time.0 as f64 / elapsed.0.max(1) as f64,
        lat_ns: path.time.0.checked_div(path.ios).unwrap_or(0),
    }
}
