//! The results for scripts: schema 1. What was not measured, or has too few samples, is null; so is an interval of fewer than six blocks
//! or seeds.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Estimate, Pair, Results, Row};

/// Whether figures are conclusive: a key of the results, and, where it is false, of a row.
pub const VALID: &str = "valid";

/// The file's text.
pub fn text(results: &Results) -> Result<String> {
    Ok(serde_json::to_string_pretty(&value(results))? + "\n")
}

/// The results as JSON.
pub fn value(results: &Results) -> Value {
    let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value);
    let interval = |estimate: Option<Estimate>| estimate.and_then(|estimate| estimate.interval);
    let row = |row: &Row| {
        let latency = &row.latency;
        let mut figures = json!({
            "iops": value(row.iops),
            "cpu_ns_per_io": value(row.cpu),
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
                "lat_p50": interval(latency.p50),
                "lat_p99": interval(latency.p99),
                "lat_p999": interval(latency.p999),
            },
        });
        // What not all devices have.
        if let Some(calls) = row.system_calls {
            figures["system_calls_per_io"] = calls.into();
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
    let rows: Vec<Value> = results.rows.iter().map(row).collect();
    let pairs: Vec<Value> = results.pairs.iter().map(pair).collect();
    let mut all = json!({ "schema": 1, "device": results.device, "rows": rows, "pairs": pairs });
    if !results.timelines.is_empty() {
        all["timelines"] = results.timelines.clone().into();
    }
    merged([all, json!(results.extra)])
}

/// The keys of all `parts`, in order.
pub fn merged<const N: usize>(parts: [Value; N]) -> Value {
    parts.iter().filter_map(Value::as_object).flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests;
