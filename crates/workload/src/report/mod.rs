//! Results in fio's formats: [`normal`] text, [`json()`], and log files. Numbers are rounded and
//! added up as in fio, so that scripts written for fio work.

mod json;
mod logs;
mod normal;

pub use json::json;
pub use logs::{LogFile, LogKind, files as log_files, write as write_log};
pub use normal::{normal, opening};

use std::collections::BTreeMap;

use crate::generator::Generator;
use crate::job::{Job, Unified};
use crate::plan::Thread;
use crate::stats::{OpStats, Stats};
use serde::{Deserialize, Serialize};
use units::Nanos;

/// All results of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Name and version, as `reap-0.1.0`.
    pub program: String,
    /// When the run ended, in milliseconds since 1970 (UTC).
    pub unix_ms: u64,
    /// The options of the `[global]` sections.
    pub global_options: Vec<(String, Option<String>)>,
    /// One result per job thread, or per group with `group_reporting`, in order.
    pub entries: Vec<JobResult>,
    /// Paths of multipath devices.
    pub paths: Vec<PathStats>,
}

/// Statistics of one path of a multipath device: an element of the list `paths` in [`json()`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathStats {
    /// The device's `filename` in the jobs; empty if they have none.
    pub device: String,
    /// The path's URI.
    pub path: String,
    /// State at the end: the path's ANA state, or the state of its connection.
    pub state: String,
    /// I/Os that completed on the path.
    pub ios: u64,
    /// Of these, I/Os that failed and were retried on another path.
    pub failed: u64,
    /// Mean number of I/Os in flight on the path.
    pub in_flight: f64,
    /// Mean latency in nanoseconds.
    pub lat_ns: u64,
}

/// The results of one job thread, or of several with `group_reporting`.
#[derive(Clone, Debug, Default)]
pub struct JobResult {
    /// The job; the first one of a group.
    pub job: Job,
    /// fio's groupid.
    pub group: u32,
    /// Number of threads added up.
    pub threads: u32,
    /// The first errno of any thread; 0: none.
    pub error: i32,
    /// Description of the error.
    pub error_text: String,
    /// Process or thread ID.
    pub pid: u32,
    /// Statistics of the measured time.
    pub stats: Stats,
    /// Resource usage of its threads.
    pub usage: ResourceUsage,
    /// Sum of the measured times of its threads.
    pub thread_time: Nanos,
    /// From the start of the run to the end of the last thread.
    pub elapsed: Nanos,
    /// Statistics of completions, which fio does not have.
    pub reap: CompletionStats,
    /// Further lines for [`normal`], with labels.
    pub lines: Vec<(String, String)>,
}

/// Resource usage of threads (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// CPU time in user mode.
    pub user: Nanos,
    /// CPU time in the kernel.
    pub system: Nanos,
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Other page faults.
    pub minor_faults: u64,
}

/// How completions were reaped, and what it cost. The object `reap` of each job in [`json()`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompletionStats {
    /// The completion mode.
    pub mode: String,
    /// CPU time per I/O of the threads that submit and reap, in nanoseconds. The CPU time of an
    /// embedded controller is not included.
    pub cpu_ns_per_io: f64,
    /// CPU time per I/O that the embedded controller spent on signalling completions, in
    /// nanoseconds; `None` for other devices, where it cannot be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_ns_per_io: Option<f64>,
    /// Interrupt messages that the device sent; `None` where they cannot be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Wake-ups of sleeping threads.
    pub wakeups: u64,
    /// Completed reads and writes per wake-up; 0 without wake-ups.
    pub completions_per_wakeup: f64,
    /// Polls of a completion queue that found no completion.
    pub empty_polls: u64,
    /// Doorbells rung for submissions.
    pub sq_doorbells: u64,
    /// Doorbells rung for completions.
    pub cq_doorbells: u64,
    /// System calls per I/O, for `kernel:` devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_calls_per_io: Option<f64>,
    /// How often the mode took each of its decisions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: BTreeMap<&'static str, u64>,
    /// There were more threads than CPUs, so results depend on the scheduler more than on the mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub oversubscribed: bool,
}

impl JobResult {
    /// An empty result for threads of `job`.
    pub fn new(job: &Job, thread: &Thread) -> JobResult {
        JobResult { job: job.clone(), group: thread.group, ..JobResult::default() }
    }

    /// Adds a thread that has ended.
    pub fn add(&mut self, generator: &Generator, usage: ResourceUsage) {
        let stats = generator.stats();
        // The first statistics replace the empty ones, because `Stats::merge` keeps the left side's
        // `measure`, which would be the default instead of the job's.
        if self.threads == 0 {
            self.stats = stats.clone();
        } else {
            self.stats.merge(stats);
        }
        self.threads += 1;
        self.thread_time += stats.read.runtime.max(stats.write.runtime).max(stats.trim.runtime);
        self.usage.user += usage.user;
        self.usage.system += usage.system;
        self.usage.context_switches += usage.context_switches;
        self.usage.major_faults += usage.major_faults;
        self.usage.minor_faults += usage.minor_faults;
        // As in fio the first error of a group is reported.
        if self.error == 0 && generator.error() != 0 {
            self.error = generator.error();
            self.error_text = match (generator.failure(), generator.bad_blocks().first()) {
                (Some(failure), _) => failure.to_string(),
                (None, Some(bad)) if generator.bad_count() > 1 => {
                    format!("{bad}, and {} more", generator.bad_count() - 1)
                }
                (None, Some(bad)) => bad.to_string(),
                (None, None) => String::new(),
            };
        }
    }

    /// CPU usage in user mode and in the kernel, in per cent of one CPU.
    fn cpu_percent(&self) -> (f64, f64) {
        let whole = self.thread_time.0;
        let percent =
            |part: Nanos| if whole == 0 { 0.0 } else { part.0 as f64 * 100.0 / whole as f64 };
        (percent(self.usage.user), percent(self.usage.system))
    }

    /// The operations that the results show, by fio's names: read, write and trim; with
    /// `unified_rw_reporting=mixed` only `mixed`, with `both` all four.
    fn operations(&self) -> Vec<(&'static str, OpStats)> {
        let Stats { read, write, trim, .. } = &self.stats;
        let mut all =
            vec![("read", read.clone()), ("write", write.clone()), ("trim", trim.clone())];
        if self.job.unified != Unified::No {
            let mut mixed = read.clone();
            mixed.merge(write);
            mixed.merge(trim);
            all.insert(0, ("mixed", mixed));
        }
        all.truncate(if self.job.unified == Unified::Mixed { 1 } else { all.len() });
        all
    }
}

/// fio's labels for the bands of queue depths and of batch sizes.
const DEPTHS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];
const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

/// fio's run status of a group, for one operation: the sum of bytes, and minimum and maximum of the
/// entries' bandwidths in bytes/s and runtimes in ms.
#[derive(Clone, Copy)]
struct GroupStatus {
    bytes: u64,
    min_bps: u64,
    max_bps: u64,
    min_ms: u64,
    max_ms: u64,
}

/// `n` per second, if `ms` milliseconds have passed; 0 if none have.
fn per_second(n: u64, ms: u64) -> u64 {
    (u128::from(n) * 1000).checked_div(u128::from(ms)).unwrap_or(0) as u64
}

/// The measured time in milliseconds, rounded up as in fio.
fn millis(stats: &OpStats) -> u64 {
    stats.runtime.0.div_ceil(1_000_000)
}

/// The status of all groups, by groupid and name of the operation.
fn groups(report: &Report) -> Vec<((u32, &'static str), GroupStatus)> {
    let mut groups: Vec<((u32, &'static str), GroupStatus)> = Vec::new();
    for entry in &report.entries {
        for (name, stats) in entry.operations() {
            let key = (entry.group, name);
            let at = groups.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
                groups.push((
                    key,
                    GroupStatus {
                        bytes: 0,
                        min_bps: u64::MAX,
                        max_bps: 0,
                        min_ms: u64::MAX,
                        max_ms: 0,
                    },
                ));
                groups.len() - 1
            });
            let (sum, ms) = (&mut groups[at].1, millis(&stats));
            // Entries without I/O of this operation are left out: they would make the minimum 0.
            if stats.bytes > 0 && ms > 0 {
                let bps = per_second(stats.bytes, ms);
                sum.bytes += stats.bytes;
                (sum.min_bps, sum.max_bps) = (sum.min_bps.min(bps), sum.max_bps.max(bps));
                (sum.min_ms, sum.max_ms) = (sum.min_ms.min(ms), sum.max_ms.max(ms));
            }
        }
    }
    groups
}

/// The share of an entry in its group's bandwidth of operation `name`, in per cent.
fn share(
    groups: &[((u32, &'static str), GroupStatus)],
    entry: &JobResult,
    name: &str,
    stats: &OpStats,
) -> f64 {
    let sum = groups.iter().find(|((group, other), _)| *group == entry.group && *other == name);
    // In KiB/s, as `bw`.
    match sum.map_or(0, |(_, sum)| per_second(sum.bytes, sum.max_ms) / 1024) {
        0 => 100.0,
        all => (stats.bw.mean() * 100.0 / all as f64).min(100.0),
    }
}

/// A date as C's `ctime` writes it, in UTC: `Mon Oct  2 15:22:39 2023`.
fn ctime(unix_seconds: u64) -> String {
    let time = i64::try_from(unix_seconds)
        .ok()
        .and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    time.unwrap_or_default().format("%a %b %e %H:%M:%S %Y").to_string()
}

#[cfg(test)]
mod tests;
