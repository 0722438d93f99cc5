//! What `compare` and `sim` have measured: a row for each mode in each scene, and ratios between
//! modes. [`table`] shows it on a terminal, [`crate::report`] draws it.

pub mod table;
mod verdict;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};
use workload::report::PathFigures;

/// A figure and, with enough samples, its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median, or the percentile.
    pub value: f64,
    /// Its ends: 2.5 % of the resamples are below, and 2.5 % above.
    pub interval: Option<[f64; 2]>,
}

/// The conditions of some rows; rows of one scene are compared with each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Scene {
    /// Offered load in per cent of what polling reaches; 100: closed loop.
    pub load_pct: f64,
    /// I/Os in flight at most.
    pub qd: u64,
    /// The device's profile.
    pub profile: String,
    /// How the load arrives, where that differs from other rows: `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<String>,
    /// Per cent of the host's CPU that another thread wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_pct: Option<f64>,
}

/// One mode's figures in one scene.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its name; with its parameters, as `adaptive?delay-exponent=2`.
    pub mode: String,
    /// The conditions.
    pub scene: Scene,
    /// I/Os per second.
    pub iops: Option<Estimate>,
    /// CPU time per I/O that other work cannot have, in nanoseconds: of threads, and what their
    /// wake-ups take.
    pub cpu: Option<Estimate>,
    /// Of it that of threads; `None` where the other part is not apart.
    pub thread_cpu: Option<Estimate>,
    /// What an idle-priority loop on the host's CPUs loses per I/O, in nanoseconds.
    pub stolen: Option<f64>,
    /// The device's time spent on messages per I/O, in nanoseconds.
    pub notify: f64,
    /// Messages per second.
    pub messages: f64,
    /// The device counts no messages: `messages` and `notify` mean nothing.
    pub untold: bool,
    /// System calls per I/O, where the device takes any.
    pub system_calls: Option<f64>,
    /// Wake-ups per second.
    pub wakeups: f64,
    /// Completions per wake-up; 0 without wake-ups.
    pub per_wakeup: f64,
    /// Most entries that one poll took.
    pub drain_max: u32,
    /// Latencies.
    pub latency: Latencies,
    /// What each path did, of a device that has several.
    pub paths: Vec<PathFigures>,
    /// More figures, as further keys of the row in JSON.
    pub extra: Map<String, Value>,
}

/// Latencies in nanoseconds; what has too few samples is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<Estimate>,
    /// 99 %.
    pub p99: Option<Estimate>,
    /// 99.9 %.
    pub p999: Option<Estimate>,
    /// 99.99 %.
    pub p9999: Option<Estimate>,
    /// The longest.
    pub max: Option<u64>,
    /// Per cent and nanoseconds, ascending: the distribution.
    pub curve: Vec<(f64, f64)>,
}

/// The ratio of a figure of two modes in one scene, paired by round or by seed.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Where.
    pub scene: Scene,
    /// A row's mode, or that with ` (A/A)`: the first mode once more.
    pub a: String,
    /// As `a`.
    pub b: String,
    /// Which figure.
    pub figure: &'static str,
    /// b ÷ a.
    pub ratio: Estimate,
}

/// IOPS, as pairs name it.
pub const IOPS: &str = "iops";
/// CPU time per I/O.
pub const CPU: &str = "cpu_ns_per_io";
/// Median latency.
pub const P50: &str = "lat_p50";
/// CPU time per I/O × the cube of the mean latency, which `adaptive` minimises too: the mode with
/// the least is recommended.
pub const SCORE: &str = "cpu_x_lat_mean_cubed";

/// [`SCORE`] of a mode that has this CPU time per I/O and mean latency. Where latencies are not
/// measured, their mean goes as 1 / IOPS.
pub fn score(cpu: Option<f64>, mean: Option<f64>, iops: f64) -> Option<f64> {
    let latency = mean.or((iops > 0.0).then(|| 1e9 / iops))?;
    Some(cpu? * latency.powi(3))
}

/// All results of a command.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// What is compared, as the verdict begins: `On this device and job`.
    pub subject: &'static str,
    /// That scenes are inconclusive, why, and what to try.
    pub inconclusive: Option<String>,
    /// One line: what was done, on what.
    pub title: String,
    /// URI, or the name of what was simulated.
    pub device: String,
    /// Scene after scene; the first row of a scene is what its others are compared with.
    pub rows: Vec<Row>,
    /// Each label with each later one of its scene.
    pub pairs: Vec<Pair>,
    /// What modes did over time, across a change in load, as JSON has it: ticks of equal length.
    pub timelines: Vec<Value>,
    /// Sentences below the table.
    pub notes: Vec<String>,
    /// What columns mean, by their names: printed for those that are shown.
    pub legend: Vec<(&'static str, String)>,
    /// More keys at the top of the JSON.
    pub extra: Map<String, Value>,
}

impl Results {
    /// The scenes, in order, each once.
    pub fn scenes(&self) -> Vec<&Scene> {
        let mut scenes: Vec<&Scene> = Vec::new();
        for row in &self.rows {
            if !scenes.contains(&&row.scene) {
                scenes.push(&row.scene);
            }
        }
        scenes
    }

    /// The first mode of a scene.
    pub fn first(&self, scene: &Scene) -> Option<&str> {
        self.rows.iter().find(|row| row.scene == *scene).map(|row| row.mode.as_str())
    }

    /// The ratio of `figure` of label `b` to label `a` of the same scene.
    pub fn ratio(&self, scene: &Scene, a: &str, b: &str, figure: &str) -> Option<Estimate> {
        let of = |a: &str, b: &str| {
            let is = |pair: &&Pair| {
                pair.figure == figure && pair.a == a && pair.b == b && pair.scene == *scene
            };
            self.pairs.iter().find(is).map(|pair| pair.ratio)
        };
        // Of two labels only one order is kept.
        let turned = |Estimate { value, interval }| Estimate {
            value: 1.0 / value,
            interval: interval.map(|[low, high]| [1.0 / high, 1.0 / low]),
        };
        of(a, b).or_else(|| of(b, a).map(turned))
    }

    /// The ratio of `figure` of label `b` to the first mode of its scene.
    pub fn against_first(&self, scene: &Scene, b: &str, figure: &str) -> Option<Estimate> {
        self.ratio(scene, self.first(scene)?, b, figure)
    }

    /// The results for scripts: schema 1. What was not measured, or has too few samples, is null;
    /// so is an interval of fewer than six blocks or seeds.
    pub fn json(&self) -> Value {
        let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value);
        let interval = |estimate: Option<Estimate>| estimate.and_then(|estimate| estimate.interval);
        let row = |row: &Row| {
            let latency = &row.latency;
            let mut figures = json!({
                "iops": value(row.iops),
                "cpu_ns_per_io": value(row.cpu),
                "thread_cpu_ns_per_io": value(row.thread_cpu),
                "stolen_ns_per_io": row.stolen,
                "notify_ns_per_io": (!row.untold).then_some(row.notify),
                "messages_per_s": (!row.untold).then_some(row.messages),
                "wakeups_per_s": row.wakeups,
                "completions_per_wakeup": row.per_wakeup,
                "lat_ns": {
                    "mean": latency.mean,
                    "p50": value(latency.p50),
                    "p99": value(latency.p99),
                    "p999": value(latency.p999),
                    "p9999": value(latency.p9999),
                    "max": latency.max,
                },
                "entries_per_drain_max": row.drain_max,
                "ci": {
                    "iops": interval(row.iops),
                    "cpu_ns_per_io": interval(row.cpu),
                    "thread_cpu_ns_per_io": interval(row.thread_cpu),
                    "lat_p50": interval(latency.p50),
                    "lat_p99": interval(latency.p99),
                    "lat_p999": interval(latency.p999),
                },
            });
            // What not all devices have.
            if let Some(calls) = row.system_calls {
                figures["system_calls_per_io"] = calls.into();
            }
            if self.best(&row.scene).is_some_and(|best| best.mode == row.mode) {
                figures["recommended"] = true.into();
            }
            if !latency.curve.is_empty() {
                figures["lat_curve"] = json!(latency.curve);
            }
            if !row.paths.is_empty() {
                figures["paths"] = json!(row.paths);
            }
            merged([json!({ "mode": row.mode }), json!(row.scene), figures, json!(row.extra)])
        };
        let pair = |pair: &Pair| {
            let ratio = json!({ "a": pair.a, "b": pair.b, "figure": pair.figure, "ratio": pair.ratio.value, "ci": pair.ratio.interval });
            merged([ratio, json!(pair.scene)])
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        let pairs: Vec<Value> = self.pairs.iter().map(pair).collect();
        let mut all = json!({ "schema": 1, "device": self.device, "rows": rows, "pairs": pairs });
        if !self.timelines.is_empty() {
            all["timelines"] = self.timelines.clone().into();
        }
        merged([all, json!(self.extra)])
    }

    /// The same as the text of a file.
    pub fn json_text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(&self.json())? + "\n")
    }
}

/// The keys of all `parts`, in order.
pub fn merged<const N: usize>(parts: [Value; N]) -> Value {
    parts
        .iter()
        .filter_map(Value::as_object)
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// 4096 is `4 KiB`, 512 is `512 B`; a number that is not whole in its unit has a digit after the
/// point.
pub fn bytes(n: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")];
    let (shift, unit) = units.into_iter().find(|(shift, _)| n >> shift > 0).unwrap_or((0, "B"));
    let whole = n.is_multiple_of(1 << shift);
    if whole {
        format!("{} {unit}", n >> shift)
    } else {
        format!("{:.1} {unit}", n as f64 / (1u64 << shift) as f64)
    }
}

#[cfg(test)]
pub mod tests;
