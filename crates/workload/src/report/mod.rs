//! Results, laid out as fio lays them out: `normal` for people, `json` for scripts.

mod distribution;
mod json;
mod logs;
mod normal;
mod numbers;
mod paths;
mod time;

pub use json::{json, json_plus};
pub use logs::{LogFile, LogKind, files as log_files, write as write_log};
pub use normal::{normal, opening};
pub use time::ctime;

use std::collections::BTreeMap;

use crate::generator::Generator;
use crate::job::Job;
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
    pub global_options: Vec<(String, String)>,
    /// One for each job thread, or for each group with `group_reporting`; in order.
    pub entries: Vec<Entry>,
    /// The paths of devices that have several.
    pub paths: Vec<PathFigures>,
}

/// What one path of a device did while the jobs ran. In [`json`] the list `paths`.
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
    /// The job's name; of several jobs, the first one's.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
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
    /// The job's own options.
    pub options: Vec<(String, String)>,
    /// `iodepth`.
    pub iodepth: u32,
    /// The percentiles to show, ascending.
    pub percentiles: Vec<f64>,
    /// Digits after the point in them.
    pub percentile_precision: usize,
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

/// How completions were found, and what that cost: what fio cannot say. The object `reap` of each job in [`json`].
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
        Entry {
            name: job.name.clone(),
            description: job.description.clone(),
            group: thread.group,
            options: job.options.clone(),
            iodepth: job.iodepth,
            percentiles: job.percentiles.clone(),
            percentile_precision: job.percentile_precision,
            ..Entry::default()
        }
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
}

/// How much one kind of I/O did, as the layouts for scripts have it.
struct Rates {
    /// Milliseconds that it was measured for.
    ms: u64,
    bytes_per_second: u64,
    iops: f64,
    /// Its share of the group's bandwidth, in per cent.
    share: f64,
}

impl Rates {
    fn of(stats: &OpStats, group_bps: u64) -> Rates {
        let ms = stats.runtime.0.div_ceil(1_000_000);
        let bytes_per_second = (u128::from(stats.bytes) * 1000).checked_div(u128::from(ms)).unwrap_or(0) as u64;
        let iops = if ms == 0 { 0.0 } else { stats.ios as f64 * 1000.0 / ms as f64 };
        let share = match (stats.bw.n, group_bps / 1024) {
            (0, _) => 0.0,
            (_, 0) => 100.0,
            (_, all) => (stats.bw.mean() * 100.0 / all as f64).min(100.0),
        };
        Rates { ms, bytes_per_second, iops, share }
    }
}

#[cfg(test)]
mod tests;
