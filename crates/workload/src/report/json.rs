//! Results for scripts: fio's schema, field by field, and in each job one more object, `reap`.

use super::distribution::{self, BOUNDS};
use super::normal::Groups;
use super::time::ctime;
use super::{Entry, Rates, Report};
use crate::stats::{Latency, Moments, OpStats};
use serde_json::{Map, Value, json};

/// The results of all jobs, as `fio --output-format=json` has them. Times are in nanoseconds where the field says so,
/// else in milliseconds; `bw` in KiB/s.
pub fn json(report: &Report) -> Value {
    with(report, false)
}

/// The same as `fio --output-format=json+` has it: each latency that has percentiles has `bins` as well, the middle of each bucket of
/// its histogram in nanoseconds, and how many I/Os fell into it.
pub fn json_plus(report: &Report) -> Value {
    with(report, true)
}

fn with(report: &Report, bins: bool) -> Value {
    let groups = Groups::new(report);
    let mut root = Map::new();
    root.insert("fio version".into(), report.program.clone().into());
    root.insert("timestamp".into(), (report.unix_ms / 1000).into());
    root.insert("timestamp_ms".into(), report.unix_ms.into());
    root.insert("time".into(), ctime(report.unix_ms / 1000).into());
    if !report.global_options.is_empty() {
        root.insert("global options".into(), options(&report.global_options));
    }
    root.insert("jobs".into(), report.entries.iter().map(|entry| job(entry, &groups, bins)).collect());
    if !report.paths.is_empty() {
        root.insert("paths".into(), serde_json::to_value(&report.paths).unwrap_or_default());
    }
    Value::Object(root)
}

fn job(entry: &Entry, groups: &Groups, bins: bool) -> Value {
    let stats = &entry.stats;
    let group = groups.bytes_per_second(entry.group);
    let (user, system) = entry.cpu_percent();
    let latencies = distribution::latencies(stats);
    let mut reap = serde_json::to_value(&entry.reap).unwrap_or_default();
    if let Value::Object(reap) = &mut reap {
        for (name, op) in [("read", &stats.read), ("write", &stats.write), ("trim", &stats.trim)] {
            if op.intended.moments.n > 0 {
                reap.insert(format!("{name}_lat_from_intended_start_ns"), latency(entry, &op.intended, true, bins));
            }
        }
    }
    let mut value = json!({
        "jobname": entry.name,
        "groupid": entry.group,
        "error": entry.error,
        "eta": 0,
        "elapsed": entry.elapsed.0.div_ceil(1_000_000_000),
        "job options": options(&entry.options),
        "read": operation(entry, &stats.read, group.read, bins),
        "write": operation(entry, &stats.write, group.write, bins),
        "trim": operation(entry, &stats.trim, group.trim, bins),
        "sync": { "total_ios": stats.sync.ios, "lat_ns": latency(entry, measured(&stats.sync.clat, stats.measure.clat), true, bins) },
        "job_runtime": entry.thread_time.0 / 1_000_000,
        "usr_cpu": rounded(user),
        "sys_cpu": rounded(system),
        "ctx": entry.usage.context_switches,
        "majf": entry.usage.major_faults,
        "minf": entry.usage.minor_faults,
        "iodepth_level": shares(&["1", "2", "4", "8", "16", "32", ">=64"], &distribution::bands(&stats.depth, stats.issued())),
        "iodepth_submit": shares(&BATCHES, &distribution::bands(&stats.submit, stats.submit.total())),
        "iodepth_complete": shares(&BATCHES, &distribution::bands(&stats.complete, stats.complete.total())),
        "latency_ns": latency_shares(&latencies.ns),
        "latency_us": latency_shares(&latencies.us),
        "latency_ms": latency_shares(&latencies.ms),
        "latency_depth": entry.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
        "reap": reap,
    });
    if let (Value::Object(object), true) = (&mut value, stats.errors > 0) {
        object.insert("total_err".into(), stats.errors.into());
        object.insert("first_error".into(), stats.first_error.into());
    }
    value
}

const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

fn operation(entry: &Entry, stats: &OpStats, group_bps: u64, bins: bool) -> Value {
    let rates = Rates::of(stats, group_bps);
    let measure = &entry.stats.measure;
    json!({
        "io_bytes": stats.bytes,
        "io_kbytes": stats.bytes >> 10,
        "bw_bytes": rates.bytes_per_second,
        "bw": rates.bytes_per_second / 1024,
        "iops": rounded(rates.iops),
        "runtime": rates.ms,
        "total_ios": stats.ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latency(entry, measured(&stats.slat, measure.slat), measure.slat_percentiles, bins),
        "clat_ns": latency(entry, measured(&stats.clat, measure.clat), measure.clat_percentiles, bins),
        "lat_ns": latency(entry, measured(&stats.lat, measure.lat), measure.lat_percentiles, bins),
        "bw_min": stats.bw.min(),
        "bw_max": stats.bw.max(),
        "bw_agg": rounded(rates.share),
        "bw_mean": rounded(stats.bw.mean()),
        "bw_dev": rounded(stats.bw.stdev()),
        "bw_samples": stats.bw.n,
        "iops_min": stats.iops.min(),
        "iops_max": stats.iops.max(),
        "iops_mean": rounded(stats.iops.mean()),
        "iops_stddev": rounded(stats.iops.stdev()),
        "iops_samples": stats.iops.n,
    })
}

/// A latency that was switched off shows as none.
fn measured(latency: &Latency, wanted: bool) -> &Latency {
    static NONE: Latency = Latency { moments: Moments::NONE, histogram: None };
    if wanted { latency } else { &NONE }
}

fn latency(entry: &Entry, latency: &Latency, percentiles: bool, bins: bool) -> Value {
    let moments = &latency.moments;
    let mut object = Map::new();
    object.insert("min".into(), moments.min().into());
    object.insert("max".into(), moments.max().into());
    object.insert("mean".into(), rounded(moments.mean()).into());
    object.insert("stddev".into(), rounded(moments.stdev()).into());
    object.insert("N".into(), moments.n.into());
    if let (true, Some(histogram)) = (percentiles && moments.n > 0, &latency.histogram) {
        let percents: Vec<f64> = entry.percentiles.iter().copied().filter(|p| *p > 0.0).collect();
        let values = histogram.percentiles(&percents);
        let table = percents.iter().zip(values).map(|(percent, value)| (format!("{percent:.6}"), value.into())).collect();
        object.insert("percentile".into(), Value::Object(table));
        if bins {
            let bins = histogram.buckets().map(|(nanos, n)| (nanos.to_string(), n.into())).collect();
            object.insert("bins".into(), Value::Object(bins));
        }
    }
    Value::Object(object)
}

fn latency_shares(values: &[f64]) -> Value {
    let mut labels: Vec<String> = BOUNDS.iter().map(u64::to_string).collect();
    labels.extend(["2000".to_owned(), ">=2000".to_owned()]);
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    shares(&labels, values)
}

fn shares(labels: &[&str], values: &[f64]) -> Value {
    Value::Object(labels.iter().zip(values).map(|(label, share)| ((*label).to_owned(), rounded(*share).into())).collect())
}

fn options(options: &[(String, String)]) -> Value {
    Value::Object(options.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect())
}

/// Six digits after the point, as fio has.
fn rounded(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}
