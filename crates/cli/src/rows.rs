//! Results of `compare` and `sim`: a row per mode and scene, and ratios between modes. They are
//! printed by [`table`], written as JSON by [`Results::json`], and drawn by [`crate::report`].

pub mod table;
mod verdict;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};
use workload::report::PathStats;

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median, or a percentile.
    pub value: f64,
    /// The 2.5th and 97.5th percentile of the resamples; `None` with fewer than six blocks or
    /// seeds.
    pub interval: Option<[f64; 2]>,
}

/// The conditions of a measurement. Only rows of the same scene are compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Scene {
    /// Offered load in per cent of the IOPS of `poll` in a closed loop; 100: closed loop.
    pub load_pct: f64,
    /// Queue depth: maximum I/Os in flight, over all threads.
    pub qd: u64,
    /// Name of the device profile.
    pub profile: String,
    /// `steps` if the load changes in steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<String>,
    /// CPU that a background thread tries to use, in per cent of each CPU of the job threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_pct: Option<f64>,
}

/// Results of one mode in one scene.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Name of the mode with its parameters, as in `adaptive?delay-exponent=2`.
    pub mode: String,
    /// The conditions.
    pub scene: Scene,
    /// I/Os per second.
    pub iops: Option<Estimate>,
    /// CPU time per I/O in nanoseconds: that of the threads, plus that of wake-ups (interrupts and
    /// context switches) which no thread's CPU clock counts.
    pub cpu: Option<Estimate>,
    /// The threads' part of `cpu`; `None` if the parts are not known separately.
    pub thread_cpu: Option<Estimate>,
    /// CPU time that loops at SCHED_IDLE priority on the CPUs of the job threads lose per I/O, in
    /// nanoseconds.
    pub stolen: Option<f64>,
    /// Time that the device spends on sending interrupt messages, in nanoseconds per I/O.
    pub notify: f64,
    /// Interrupt messages per second.
    pub messages: f64,
    /// The device does not count messages: `messages` and `notify` are invalid.
    pub messages_unknown: bool,
    /// System calls per I/O, if the transport counts them.
    pub system_calls: Option<f64>,
    /// Wake-ups per second.
    pub wakeups: f64,
    /// Completions per wake-up; 0 without wake-ups.
    pub per_wakeup: f64,
    /// Maximum completion queue entries reaped by one poll.
    pub drain_max: u32,
    /// Latencies.
    pub latency: Latencies,
    /// Statistics per path, of multipath devices.
    pub paths: Vec<PathStats>,
    /// Further keys of the row in the JSON.
    pub extra: Map<String, Value>,
}

/// Latencies in nanoseconds. `None`: not measured, or too few samples.
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
    /// The distribution as (per cent, nanoseconds), ascending.
    pub curve: Vec<(f64, f64)>,
}

/// The ratio of one figure between two modes of a scene, paired by round or by seed.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The scene.
    pub scene: Scene,
    /// A label: the mode of a row, or the first mode with the suffix ` (A/A)`.
    pub a: String,
    /// The other label.
    pub b: String,
    /// [`IOPS`], [`CPU`], [`P50`] or [`SCORE`].
    pub figure: &'static str,
    /// b ÷ a.
    pub ratio: Estimate,
}

/// I/Os per second, as a key of pairs.
pub const IOPS: &str = "iops";
/// CPU time per I/O.
pub const CPU: &str = "cpu_ns_per_io";
/// Median latency.
pub const P50: &str = "lat_p50";
/// CPU time per I/O × (mean latency)³, the cost that `adaptive` minimises too. The mode with the
/// lowest value is recommended.
pub const SCORE: &str = "cpu_x_lat_mean_cubed";

/// [`SCORE`] of a mode; only ratios of it are used. If latencies are not measured, 1 / IOPS
/// replaces the mean: by Little's law they are proportional at a fixed queue depth.
pub fn score(cpu: Option<f64>, mean: Option<f64>, iops: f64) -> Option<f64> {
    let latency = mean.or((iops > 0.0).then(|| 1e9 / iops))?;
    Some(cpu? * latency.powi(3))
}

/// All results of a command.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// First words of the verdict, as `On this device and job`.
    pub subject: &'static str,
    /// Sentence about inconclusive scenes: why, and what to try. `None`: all are conclusive.
    pub inconclusive: Option<String>,
    /// Title: jobs, queue depth, device.
    pub title: String,
    /// URI of the device, or the name of the simulated one.
    pub device: String,
    /// The rows, grouped by scene. The first row of a scene is the baseline of ratios.
    pub rows: Vec<Row>,
    /// Ratios of all pairs of labels of each scene.
    pub pairs: Vec<Pair>,
    /// Behaviour over time of loads that change in steps, in ticks of equal length, as in the JSON.
    pub timelines: Vec<Value>,
    /// Lines below the table.
    pub notes: Vec<String>,
    /// Explanations of columns by name; only those of visible columns are printed.
    pub legend: Vec<(&'static str, String)>,
    /// Further top-level keys of the JSON.
    pub extra: Map<String, Value>,
}

impl Results {
    /// The scenes without duplicates, in order.
    pub fn scenes(&self) -> Vec<&Scene> {
        let mut scenes: Vec<&Scene> = Vec::new();
        for row in &self.rows {
            if !scenes.contains(&&row.scene) {
                scenes.push(&row.scene);
            }
        }
        scenes
    }

    /// The first mode of a scene: the baseline of ratios.
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
        // A pair is stored in one order only; the other order is its reciprocal.
        let reciprocal = |Estimate { value, interval }| Estimate {
            value: 1.0 / value,
            interval: interval.map(|[low, high]| [1.0 / high, 1.0 / low]),
        };
        of(a, b).or_else(|| of(b, a).map(reciprocal))
    }

    /// The ratio of `figure` of label `b` to the first mode of its scene.
    pub fn against_first(&self, scene: &Scene, b: &str, figure: &str) -> Option<Estimate> {
        self.ratio(scene, self.first(scene)?, b, figure)
    }

    /// The JSON of `--json`, schema 1. Figures that were not measured or have too few samples are
    /// null, as are intervals of fewer than six blocks or seeds.
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
                // 0 would be a measured value, so figures that are not counted are null.
                "notify_ns_per_io": (!row.messages_unknown).then_some(row.notify),
                "messages_per_s": (!row.messages_unknown).then_some(row.messages),
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
            // Optional keys are left out instead of null.
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

    /// [`Results::json`] as the text of a file.
    pub fn json_text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(&self.json())? + "\n")
    }
}

/// Merges JSON objects; of equal keys the last one is used.
pub fn merged<const N: usize>(parts: [Value; N]) -> Value {
    parts
        .iter()
        .filter_map(Value::as_object)
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// A size with its unit: 4096 is `4 KiB`, 512 is `512 B`, 1536 is `1.5 KiB`.
pub fn bytes(n: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")];
    // The largest unit of which there is at least one.
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
