//! The results for scripts: schema 1. What was not measured, or has too few samples, is null; so is an interval of fewer than six blocks
//! or seeds.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Estimate, Results, Row};

/// Whether figures are conclusive: a key of the results, and, where it is false, of a row.
pub const VALID: &str = "valid";

/// The file's text.
///
/// # Errors
/// None, as long as keys are text.
pub fn text(results: &Results) -> Result<String> {
    Ok(serde_json::to_string_pretty(&value(results))? + "\n")
}

/// The results as JSON.
pub fn value(results: &Results) -> Value {
    let pair = |pair: &super::Pair| {
        let ratio = json!({ "a": pair.a, "b": pair.b, "figure": pair.figure, "ratio": pair.ratio.value, "ci": pair.ratio.interval });
        merged([ratio, json!(pair.scene)])
    };
    let rows: Vec<Value> = results.rows.iter().map(row).collect();
    let pairs: Vec<Value> = results.pairs.iter().map(pair).collect();
    merged([
        json!({ "schema": 1, "device": results.device, "rows": rows, "pairs": pairs }),
        optional("timelines", (!results.timelines.is_empty()).then_some(&results.timelines)),
        json!(results.extra),
    ])
}

fn row(row: &Row) -> Value {
    let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value);
    let interval = |estimate: Option<Estimate>| estimate.and_then(|estimate| estimate.interval);
    let latency = &row.latency;
    merged([
        json!({ "mode": row.mode }),
        json!(row.scene),
        json!({
            "iops": value(row.iops),
            "cpu_ns_per_io": value(row.cpu),
            "stolen_ns_per_io": row.stolen,
            "notify_ns_per_io": (!row.untold).then_some(row.notify),
            "messages_per_s": (!row.untold).then_some(row.messages),
        }),
        optional("system_calls_per_io", row.system_calls),
        json!({
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
        }),
        optional("lat_curve", (!latency.curve.is_empty()).then_some(&latency.curve)),
        optional("paths", (!row.paths.is_empty()).then_some(&row.paths)),
        json!(row.extra),
    ])
}

/// An object with this key, or an empty one.
fn optional(key: &str, value: Option<impl Serialize>) -> Value {
    value.map_or_else(|| json!({}), |value| json!({ key: value }))
}

/// The keys of all `parts`, in order.
fn merged<const N: usize>(parts: [Value; N]) -> Value {
    let parts = parts.into_iter().filter_map(|part| if let Value::Object(map) = part { Some(map) } else { None });
    Value::Object(parts.flatten().collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests;
