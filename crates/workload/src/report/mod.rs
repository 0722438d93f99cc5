//! Results, laid out as fio lays them out: `normal` for people, `json` for scripts.

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
    /// Name and version, `reap-0.1.0`: where fio's results say `fio-3.33`.
    pub program: String,
    /// When the run ended, in milliseconds since 1970 (UTC).
    pub unix_ms: u64,
    /// The options of the `[global]` sections.
    pub global_options: Vec<(String, Option<String>)>,
    /// One for each job thread, or for each group with `group_reporting`; in order.
    pub entries: Vec<Entry>,
    /// The paths of devices that have several.
    pub paths: Vec<PathFigures>,
}

/// What one path of a device did while the jobs ran. In [`json()`] the list `paths`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathFigures {
    /// The device's name in the jobs; empty if they name none.
    pub device: String,
    /// The path's URI.
    pub path: String,
    /// Its state at the end: ANA state, or that of the link.
    pub state: String,
    /// I/Os that were sent by it and have ended.
    pub ios: u64,
    /// Of these, the ones that had to be sent by another path.
    pub failed: u64,
    /// I/Os in flight on it, on average.
    pub in_flight: f64,
    /// Mean latency in nanoseconds.
    pub lat_ns: u64,
}

/// The results of one job thread, or of several with `group_reporting`.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The job; of several jobs, the first one.
    pub job: Job,
    /// fio's groupid.
    pub group: u32,
    /// Threads added up here.
    pub threads: u32,
    /// The first errno of any of them; 0: none.
    pub error: i32,
    /// What went wrong, in words.
    pub error_text: String,
    /// The process or thread that it was.
    pub pid: u32,
    /// What was measured.
    pub stats: Stats,
    /// CPU and faults of its threads.
    pub usage: Usage,
    /// The measured time of all its threads, added up.
    pub thread_time: Nanos,
    /// From the start of the run to the end of the last of them.
    pub elapsed: Nanos,
    /// What fio does not have.
    pub reap: Figures,
    /// Further lines for [`normal`]: label and text.
    pub lines: Vec<(String, String)>,
}

/// What threads cost the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Nanos,
    /// CPU time in the kernel.
    pub system: Nanos,
    /// Context switches, voluntary or not.
    pub context_switches: u64,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// Other page faults.
    pub minor_faults: u64,
}

/// How completions were found, and what that cost: what fio cannot say. The object `reap` of each job in [`json()`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The completion mode.
    pub mode: String,
    /// CPU time of the host's threads per I/O, in nanoseconds.
    pub cpu_ns_per_io: f64,
    /// CPU time that the device's side spent on raising notifications, per I/O, in nanoseconds; `None`: nobody can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_ns_per_io: Option<f64>,
    /// Messages that the device sent; `None`: nobody can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Times that a sleeping thread woke.
    pub wakeups: u64,
    /// Reads and writes per wake-up; 0 without any.
    pub completions_per_wakeup: f64,
    /// Looks at a completion queue that found nothing.
    pub empty_looks: u64,
    /// Doorbells rung for submissions.
    pub sq_doorbells: u64,
    /// Doorbells rung for completions.
    pub cq_doorbells: u64,
    /// System calls per I/O, where the device takes any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_calls_per_io: Option<f64>,
    /// What the mode decided, and how often, where it keeps count.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: BTreeMap<&'static str, u64>,
    /// More threads than CPUs: they waited for each other, and the figures say little about the mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub oversubscribed: bool,
}

impl Entry {
    /// An entry for the threads of `job`, without results yet.
    pub fn new(job: &Job, thread: &Thread) -> Entry {
        Entry { job: job.clone(), group: thread.group, ..Entry::default() }
    }

    /// Adds a thread that is done.
    pub fn add(&mut self, generator: &Generator, usage: Usage) {
        let stats = generator.stats();
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
        if self.error == 0 && generator.error() != 0 {
            self.error = generator.error();
            self.error_text = match (generator.failure(), generator.bad_blocks().first()) {
                (Some(failure), _) => failure.to_string(),
                (None, Some(bad)) if generator.bad_count() > 1 => format!("{bad}, and {} more", generator.bad_count() - 1),
                (None, Some(bad)) => bad.to_string(),
                (None, None) => String::new(),
            };
        }
    }

    /// Per cent of one CPU in user mode and in the kernel.
    fn cpu_percent(&self) -> (f64, f64) {
        let whole = self.thread_time.0;
        let percent = |part: Nanos| if whole == 0 { 0.0 } else { part.0 as f64 * 100.0 / whole as f64 };
        (percent(self.usage.user), percent(self.usage.system))
    }

    /// The operations that the results show, by fio's names: reads, writes and trims, or all of them as `mixed`.
    fn operations(&self) -> Vec<(&'static str, OpStats)> {
        let Stats { read, write, trim, .. } = &self.stats;
        let mut all = vec![("read", read.clone()), ("write", write.clone()), ("trim", trim.clone())];
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

/// The bands of depths and of batches, as the results name them: up to this many, or from so many on.
const DEPTHS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];
const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

/// What the jobs of a group did together, of one operation.
#[derive(Clone, Copy)]
struct Sum {
    bytes: u64,
    least_bps: u64,
    most_bps: u64,
    shortest_ms: u64,
    longest_ms: u64,
}

/// `n` in this many milliseconds, per second; 0 without any time.
fn per_second(n: u64, ms: u64) -> u64 {
    (u128::from(n) * 1000).checked_div(u128::from(ms)).unwrap_or(0) as u64
}

/// The time that `stats` were measured for in whole milliseconds, rounded up as fio does.
fn millis(stats: &OpStats) -> u64 {
    stats.runtime.0.div_ceil(1_000_000)
}

/// What the groups did, by groupid and the operation's name, in order.
fn groups(report: &Report) -> Vec<((u32, &'static str), Sum)> {
    let mut groups: Vec<((u32, &'static str), Sum)> = Vec::new();
    for entry in &report.entries {
        for (name, stats) in entry.operations() {
            let key = (entry.group, name);
            let at = groups.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
                groups.push((key, Sum { bytes: 0, least_bps: u64::MAX, most_bps: 0, shortest_ms: u64::MAX, longest_ms: 0 }));
                groups.len() - 1
            });
            let (sum, ms) = (&mut groups[at].1, millis(&stats));
            if stats.bytes > 0 && ms > 0 {
                let bps = per_second(stats.bytes, ms);
                sum.bytes += stats.bytes;
                (sum.least_bps, sum.most_bps) = (sum.least_bps.min(bps), sum.most_bps.max(bps));
                (sum.shortest_ms, sum.longest_ms) = (sum.shortest_ms.min(ms), sum.longest_ms.max(ms));
            }
        }
    }
    groups
}

/// Of its group's bandwidth, the share of an entry's operation `name`, in per cent.
fn share(groups: &[((u32, &'static str), Sum)], entry: &Entry, name: &str, stats: &OpStats) -> f64 {
    let sum = groups.iter().find(|((group, other), _)| *group == entry.group && *other == name);
    match sum.map_or(0, |(_, sum)| per_second(sum.bytes, sum.longest_ms) / 1024) {
        0 => 100.0,
        all => (stats.bw.mean() * 100.0 / all as f64).min(100.0),
    }
}

/// A date as C's `ctime` writes it, in UTC: `Mon Oct  2 15:22:39 2023`.
fn ctime(unix_seconds: u64) -> String {
    let time = i64::try_from(unix_seconds).ok().and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    time.unwrap_or_default().format("%a %b %e %H:%M:%S %Y").to_string()
}

#[cfg(test)]
mod tests;
