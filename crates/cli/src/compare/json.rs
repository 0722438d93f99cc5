//! The results for scripts: schema 1. What was not measured, or has too few samples behind it, is null.

use serde::Serialize;

use super::results::{Comparison, Latencies, Pair, Row};
use super::statistics::Estimate;

/// The whole file.
#[derive(Debug, Serialize)]
pub struct Results<'a> {
    schema: u32,
    device: &'a str,
    rows: Vec<JsonRow<'a>>,
    pairs: Vec<JsonPair<'a>>,
}

#[derive(Debug, Serialize)]
struct JsonRow<'a> {
    mode: &'a str,
    load_pct: f64,
    qd: u64,
    profile: &'a str,
    iops: f64,
    cpu_ns_per_io: f64,
    stolen_ns_per_io: Option<f64>,
    notify_ns_per_io: f64,
    messages_per_s: f64,
    wakeups_per_s: f64,
    completions_per_wakeup: f64,
    lat_ns: JsonLatencies,
    entries_per_drain_max: u32,
    ci: JsonIntervals,
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
    iops: [f64; 2],
    cpu_ns_per_io: [f64; 2],
}

#[derive(Debug, Serialize)]
struct JsonPair<'a> {
    a: &'a str,
    b: &'a str,
    figure: &'a str,
    ratio: f64,
    ci: [f64; 2],
}

impl<'a> Results<'a> {
    /// The figures of `comparison`.
    pub fn new(comparison: &'a Comparison) -> Results<'a> {
        Results {
            schema: 1,
            device: &comparison.facts.device,
            rows: comparison.rows.iter().map(|row| JsonRow::new(row, comparison)).collect(),
            pairs: comparison.pairs.iter().map(JsonPair::new).collect(),
        }
    }
}

impl<'a> JsonRow<'a> {
    fn new(row: &'a Row, all: &'a Comparison) -> JsonRow<'a> {
        JsonRow {
            mode: &row.mode,
            load_pct: all.load_pct,
            qd: all.facts.depth,
            profile: &all.facts.profile,
            iops: row.iops.value,
            cpu_ns_per_io: row.cpu.value,
            stolen_ns_per_io: row.stolen,
            notify_ns_per_io: row.notify,
            messages_per_s: row.messages,
            wakeups_per_s: row.wakeups,
            completions_per_wakeup: row.per_wakeup,
            lat_ns: JsonLatencies::new(&row.latency),
            entries_per_drain_max: row.drain_max,
            ci: JsonIntervals { iops: interval(&row.iops), cpu_ns_per_io: interval(&row.cpu) },
        }
    }
}

impl JsonLatencies {
    fn new(latency: &Latencies) -> JsonLatencies {
        let value = |estimate: Option<Estimate>| estimate.map(|e| e.value);
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
        JsonPair { a: &pair.a, b: &pair.b, figure: pair.figure, ratio: pair.ratio.value, ci: interval(&pair.ratio) }
    }
}

fn interval(estimate: &Estimate) -> [f64; 2] {
    [estimate.low, estimate.high]
}
