//! Results as JSON with the fields of `fio --output-format=json`. Each job has one more object,
//! `reap`.

use super::{
    BATCHES, DEPTHS, GroupStatus, JobResult, Report, ctime, groups, millis, per_second, share,
};
use crate::job::PerOp;
use crate::stats::{Latency, OpStats, Stats};
use serde_json::{Map, Value, json};

/// The results of all jobs. Times are in nanoseconds in fields named `…_ns`, else in milliseconds;
/// `bw` is in KiB/s. With `bins`, as in `--output-format=json+`, each latency with percentiles also
/// has `bins`: the middle of each bucket in nanoseconds, and its count.
pub fn json(report: &Report, bins: bool) -> Value {
    let groups = groups(report);
    let mut root = json!({
        "fio version": report.program,
        "timestamp": report.unix_ms / 1000,
        "timestamp_ms": report.unix_ms,
        "time": ctime(report.unix_ms / 1000),
    });
    // fio omits the key without a [global] section.
    if !report.global_options.is_empty() {
        root["global options"] = options(&report.global_options);
    }
    root["jobs"] = report.entries.iter().map(|entry| job(entry, &groups, bins)).collect();
    if !report.paths.is_empty() {
        root["paths"] = serde_json::to_value(&report.paths).unwrap_or_default();
    }
    root
}

/// The object of one entry of `jobs`.
fn job(entry: &JobResult, groups: &[((u32, &'static str), GroupStatus)], bins: bool) -> Value {
    let stats = &entry.stats;
    let (user, system) = entry.cpu_percent();
    let mut reap = serde_json::to_value(&entry.reap).unwrap_or_default();
    let mut object = Map::new();
    let mut add = |fields: Value| object.extend(fields.as_object().cloned().unwrap_or_default());
    add(json!({ "jobname": entry.job.name, "groupid": entry.group, "error": entry.error }));
    let elapsed = entry.elapsed.0.div_ceil(1_000_000_000);
    add(json!({ "eta": 0, "elapsed": elapsed, "job options": options(&entry.job.options) }));
    for (name, op) in entry.operations() {
        add(json!({ name: operation(entry, &op, share(groups, entry, name, &op), bins) }));
        // Only jobs with a rate have this latency. fio has no such key, so it is in `reap`.
        if op.intended.moments.n > 0 {
            reap[format!("{name}_lat_from_intended_start_ns")] =
                latency(entry, &op.intended, true, bins);
        }
    }
    // If clat is switched off, the object is present nevertheless, with N = 0.
    let sync = if stats.measure.clat { stats.sync.clat.clone() } else { Latency::default() };
    let bands = latency_bands(stats);
    add(json!({
        "sync": { "total_ios": stats.sync.ios, "lat_ns": latency(entry, &sync, true, bins) },
        "job_runtime": entry.thread_time.0 / 1_000_000,
        "usr_cpu": rounded(user),
        "sys_cpu": rounded(system),
        "ctx": entry.usage.context_switches,
        "majf": entry.usage.major_faults,
        "minf": entry.usage.minor_faults,
        "iodepth_level": shares(&DEPTHS, &stats.depth.shares(stats.issued())),
        "iodepth_submit": shares(&BATCHES, &stats.submit.shares(stats.submit.total())),
        "iodepth_complete": shares(&BATCHES, &stats.complete.shares(stats.complete.total())),
        "latency_ns": shares(&BOUNDS, &bands[..10]),
        "latency_us": shares(&BOUNDS, &bands[10..20]),
        "latency_ms": shares(&BOUNDS, &bands[20..]),
    }));
    // As in fio, these keys are present even if there were no errors.
    if entry.job.continue_on_error != PerOp::default() {
        add(json!({ "total_err": stats.errors, "first_error": stats.first_error }));
    }
    add(json!({
        "latency_depth": entry.job.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
        "reap": reap,
    }));
    Value::Object(object)
}

/// Exclusive upper bounds of fio's bands of latency. Only milliseconds have the last two bands.
const BOUNDS: [&str; 12] =
    ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", ">=2000"];

/// The distribution of the completion latencies of reads and writes over those bands, in per cent:
/// 10 of nanoseconds, 10 of microseconds, 12 of milliseconds. As in fio a band with a count has at
/// least 0.01 %.
fn latency_bands(stats: &Stats) -> [f64; 32] {
    let mut counts = [0u64; 32];
    let histograms =
        [&stats.read, &stats.write].into_iter().filter_map(|op| op.clat.histogram.as_ref());
    for (nanos, n) in histograms.flat_map(|histogram| histogram.buckets()) {
        // Each unit has its own ten bands; milliseconds have two more.
        let (units, first) = match nanos {
            0..1_000 => (nanos, 0),
            1_000..1_000_000 => (nanos / 1_000, 10),
            _ => (nanos / 1_000_000, 20),
        };
        let bounds = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];
        counts[first + bounds.iter().filter(|bound| units >= **bound).count()] += n;
    }
    let total = stats.read.ios + stats.write.ios;
    counts.map(
        |n| if n == 0 || total == 0 { 0.0 } else { (n as f64 * 100.0 / total as f64).max(0.01) },
    )
}

/// The object of one operation: read, write, trim or mixed.
fn operation(entry: &JobResult, stats: &OpStats, share: f64, bins: bool) -> Value {
    let ms = millis(stats);
    let bytes_per_second = per_second(stats.bytes, ms);
    // A latency that was not measured is present nevertheless, with N = 0.
    let none = Latency::default();
    let latency = |measured: bool, percentiles, latency| {
        self::latency(entry, if measured { latency } else { &none }, percentiles, bins)
    };
    let measure = &entry.stats.measure;
    json!({
        "io_bytes": stats.bytes,
        "io_kbytes": stats.bytes >> 10,
        "bw_bytes": bytes_per_second,
        "bw": bytes_per_second / 1024,
        "iops": rounded(if ms == 0 { 0.0 } else { stats.ios as f64 * 1000.0 / ms as f64 }),
        "runtime": ms,
        "total_ios": stats.ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latency(measure.slat, measure.slat_percentiles, &stats.slat),
        "clat_ns": latency(measure.clat, measure.clat_percentiles, &stats.clat),
        "lat_ns": latency(measure.lat, measure.lat_percentiles, &stats.lat),
        "bw_min": stats.bw.min(),
        "bw_max": stats.bw.max(),
        "bw_agg": rounded(if stats.bw.n == 0 { 0.0 } else { share }),
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

/// The object of one latency, in nanoseconds.
fn latency(entry: &JobResult, latency: &Latency, percentiles: bool, bins: bool) -> Value {
    let moments = &latency.moments;
    let (mean, deviation) = (rounded(moments.mean()), rounded(moments.stdev()));
    let mut value = json!({ "min": moments.min(), "max": moments.max(), "mean": mean, "stddev": deviation, "N": moments.n });
    if let (true, Some(histogram)) = (percentiles && moments.n > 0, &latency.histogram) {
        let percents = &entry.job.percentiles;
        let values = histogram.percentiles(percents);
        value["percentile"] = percents
            .iter()
            .zip(values)
            .map(|(percent, value)| (format!("{percent:.6}"), value))
            .collect();
        if bins {
            value["bins"] = histogram.buckets().map(|(nanos, n)| (nanos.to_string(), n)).collect();
        }
    }
    value
}

/// An object of labels and per cents.
fn shares(labels: &[&str], values: &[f64]) -> Value {
    labels.iter().zip(values).map(|(label, share)| (*label, rounded(*share))).collect()
}

/// Options as an object. fio omits those without a value.
fn options(options: &[(String, Option<String>)]) -> Value {
    options.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?))).collect()
}

/// Rounds to six digits after the point, as fio does.
fn rounded(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}
