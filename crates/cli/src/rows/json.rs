//! The results for scripts: schema 1. What was not measured, or has too few samples behind it, is null; so is an
//! interval of fewer than six blocks or seeds.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};
use workload::report::PathFigures;

use super::{Estimate, Latencies, Pair, Results, Row, Scene, Timeline};

/// Whether figures decide anything: of all results, and, where it is not so, of a row.
pub const VALID: &str = "valid";
/// Why they do not: a list, of all results.
pub const REASONS: &str = "reasons";

/// The whole file.
#[derive(Debug, Serialize)]
pub struct JsonResults<'a> {
    schema: u32,
    device: &'a str,
    rows: Vec<JsonRow<'a>>,
    pairs: Vec<JsonPair<'a>>,
    #[serde(skip_serializing_if = "<[Timeline]>::is_empty")]
    timelines: &'a [Timeline],
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct JsonRow<'a> {
    mode: &'a str,
    #[serde(flatten)]
    scene: &'a Scene,
    iops: Option<f64>,
    cpu_ns_per_io: Option<f64>,
    stolen_ns_per_io: Option<f64>,
    notify_ns_per_io: Option<f64>,
    messages_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_calls_per_io: Option<f64>,
    wakeups_per_s: f64,
    completions_per_wakeup: f64,
    lat_ns: JsonLatencies,
    entries_per_drain_max: u32,
    ci: JsonIntervals,
    #[serde(skip_serializing_if = "<[(f64, f64)]>::is_empty")]
    lat_curve: &'a [(f64, f64)],
    #[serde(skip_serializing_if = "<[PathFigures]>::is_empty")]
    paths: &'a [PathFigures],
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct JsonLatencies {
    mean: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    p9999: Option<f64>,
    max: Option<u64>,
}

#[derive(Debug, Serialize)]
struct JsonIntervals {
    iops: Option<[f64; 2]>,
    cpu_ns_per_io: Option<[f64; 2]>,
    lat_p50: Option<[f64; 2]>,
    lat_p99: Option<[f64; 2]>,
    lat_p999: Option<[f64; 2]>,
}

#[derive(Debug, Serialize)]
struct JsonPair<'a> {
    a: &'a str,
    b: &'a str,
    figure: &'a str,
    ratio: f64,
    ci: Option<[f64; 2]>,
    #[serde(flatten)]
    scene: &'a Scene,
}

impl<'a> JsonResults<'a> {
    /// The figures of `results`.
    pub fn new(results: &'a Results) -> JsonResults<'a> {
        JsonResults {
            schema: 1,
            device: &results.device,
            rows: results.rows.iter().map(JsonRow::new).collect(),
            pairs: results.pairs.iter().map(JsonPair::new).collect(),
            timelines: &results.timelines,
            extra: &results.extra,
        }
    }
}

/// The file's text.
///
/// # Errors
/// None, as long as keys are text.
pub fn text(results: &Results) -> Result<String> {
    Ok(serde_json::to_string_pretty(&JsonResults::new(results))? + "\n")
}

impl<'a> JsonRow<'a> {
    fn new(row: &'a Row) -> JsonRow<'a> {
        JsonRow {
            mode: &row.mode,
            scene: &row.scene,
            iops: value(row.iops),
            cpu_ns_per_io: value(row.cpu),
            stolen_ns_per_io: row.stolen,
            notify_ns_per_io: (!row.untold).then_some(row.notify),
            messages_per_s: (!row.untold).then_some(row.messages),
            system_calls_per_io: row.system_calls,
            wakeups_per_s: row.wakeups,
            completions_per_wakeup: row.per_wakeup,
            lat_ns: JsonLatencies::new(&row.latency),
            entries_per_drain_max: row.drain_max,
            ci: JsonIntervals {
                iops: interval(row.iops),
                cpu_ns_per_io: interval(row.cpu),
                lat_p50: interval(row.latency.p50),
                lat_p99: interval(row.latency.p99),
                lat_p999: interval(row.latency.p999),
            },
            lat_curve: &row.latency.curve,
            paths: &row.paths,
            extra: &row.extra,
        }
    }
}

impl JsonLatencies {
    fn new(latency: &Latencies) -> JsonLatencies {
        JsonLatencies {
            mean: latency.mean,
            p50: value(latency.p50),
            p99: value(latency.p99),
            p999: value(latency.p999),
            p9999: value(latency.p9999),
            max: latency.max,
        }
    }
}

impl<'a> JsonPair<'a> {
    fn new(pair: &'a Pair) -> JsonPair<'a> {
        let Pair { scene, a, b, figure, ratio } = pair;
        JsonPair { a, b, figure, ratio: ratio.value, ci: ratio.interval, scene }
    }
}

fn value(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|e| e.value)
}

fn interval(estimate: Option<Estimate>) -> Option<[f64; 2]> {
    estimate.and_then(|e| e.interval)
}

#[cfg(test)]
mod tests;
