//! Results on one line of values, as `fio --output-format=terse` has them (fio(1), TERSE OUTPUT, version 3). Disks have no values there:
//! Reap does not read what the kernel counts of them, as fio with `disk_util=0`.

use std::fmt::Write as _;

use super::normal::Groups;
use super::{Entry, Rates, Report, distribution};
use crate::stats::{Latency, Moments, OpStats};

/// Places that the format has for percentiles.
const PERCENTILES: usize = 20;

/// One line for each entry, its fields separated by semicolons. Latencies are in microseconds, bandwidths in KiB/s.
pub fn terse(report: &Report) -> String {
    let groups = Groups::new(report);
    report.entries.iter().map(|entry| line(report, &groups, entry) + "\n").collect()
}

fn line(report: &Report, groups: &Groups, entry: &Entry) -> String {
    let stats = &entry.stats;
    let group = groups.bytes_per_second(entry.group);
    let mut line = format!("3;{};{};{};{}", report.program, entry.name, entry.group, entry.error);
    operation(&mut line, entry, &stats.read, group.read);
    operation(&mut line, entry, &stats.write, group.write);
    let ((user, system), usage) = (entry.cpu_percent(), &entry.usage);
    let mut put = |field: std::fmt::Arguments<'_>| _ = write!(line, ";{field}");
    put(format_args!("{user:.6}%;{system:.6}%;{};{};{}", usage.context_switches, usage.major_faults, usage.minor_faults));
    distribution::bands(&stats.depth, stats.issued()).iter().for_each(|share| put(format_args!("{share:.1}%")));
    // What took less than a microsecond counts with what took less than two.
    let mut latencies = distribution::latencies(stats);
    latencies.us[0] += latencies.ns.iter().sum::<f64>();
    latencies.us.iter().chain(&latencies.ms).for_each(|share| put(format_args!("{share:.2}%")));
    if stats.errors > 0 {
        put(format_args!("{};{}", stats.errors, stats.first_error));
    }
    if let Some(description) = &entry.description {
        put(format_args!("{description}"));
    }
    line
}

fn operation(line: &mut String, entry: &Entry, stats: &OpStats, group_bps: u64) {
    let (measure, rates) = (&entry.stats.measure, Rates::of(stats, group_bps));
    _ = write!(line, ";{};{};{};{}", stats.bytes >> 10, rates.bytes_per_second / 1024, rates.iops as u64, rates.ms);
    moments(line, &stats.slat, measure.slat);
    moments(line, &stats.clat, measure.clat);
    percentiles(line, entry, &stats.clat, measure.clat && measure.clat_percentiles);
    moments(line, &stats.lat, measure.lat);
    let bw = &stats.bw;
    _ = write!(line, ";{};{};{:.6}%;{:.6};{:.6}", bw.min(), bw.max(), rates.share, bw.mean(), bw.stdev());
}

/// Those of a latency that was switched off are 0.
fn moments(line: &mut String, latency: &Latency, wanted: bool) {
    let m = if wanted { &latency.moments } else { &Moments::NONE };
    _ = write!(line, ";{};{};{:.6};{:.6}", m.min() / 1000, m.max() / 1000, m.mean() / 1e3, m.stdev() / 1e3);
}

fn percentiles(line: &mut String, entry: &Entry, latency: &Latency, wanted: bool) {
    let percents: Vec<f64> = entry.percentiles.iter().copied().filter(|percent| *percent > 0.0).take(PERCENTILES).collect();
    let histogram = latency.histogram.as_ref().filter(|_| wanted && latency.moments.n > 0);
    let values = histogram.map_or_else(|| vec![0; percents.len()], |histogram| histogram.percentiles(&percents));
    for (percent, value) in percents.iter().zip(values) {
        _ = write!(line, ";{percent:.6}%={}", value / 1000);
    }
    line.push_str(&";0%=0".repeat(PERCENTILES - percents.len()));
}
