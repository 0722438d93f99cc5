//! Results as text, in the format of `fio --output-format=normal`, with a line `reap` of further
//! statistics.

use super::{BATCHES, DEPTHS, JobResult, Report, ctime, groups, millis, per_second, share};
use crate::generator::ErrorCode;
use crate::job::{BlockSizes, Job};
use crate::plan::Plan;
use crate::stats::{Latency, Moments, OpStats};
use std::fmt::{self, Write};
use units::Nanos;

/// Significant digits of numbers with a unit.
const DIGITS: usize = 4;

/// The lines that fio prints when a run starts: one per job, and the number of threads. `engine` is
/// shown as `ioengine`.
pub fn opening(jobs: &[Job], plan: &Plan, program: &str, engine: &str) -> String {
    let mut out = String::new();
    for (index, job) in jobs.iter().enumerate() {
        let group = plan.threads.iter().find(|t| t.job == index).map_or(0, |t| t.group);
        let range = |sizes: &BlockSizes| {
            format!(
                "{}-{}",
                short(sizes.min, DIGITS, true, "B"),
                short(sizes.max, DIGITS, true, "B")
            )
        };
        out += &format!(
            "{}: (g={group}): rw={}, bs=(R) {}, (W) {}, (T) {}, ioengine={engine}, iodepth={}\n",
            job.name,
            job.pattern.name(),
            range(&job.block.read),
            range(&job.block.write),
            range(&job.block.trim),
            job.iodepth
        );
        // fio prints one line and an ellipsis for identical threads.
        if job.numjobs > 1 {
            out += "...\n";
        }
    }
    let threads = plan.threads.len();
    out + &format!("{program}\nStarting {threads} thread{}\n", if threads == 1 { "" } else { "s" })
}

/// The results of all jobs and groups.
pub fn normal(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, report);
    out
}

/// Writes all entries, then the sums of each group, then the paths of multipath devices.
fn write_all(out: &mut String, report: &Report) -> fmt::Result {
    if !report.entries.is_empty() {
        out.write_char('\n')?;
    }
    let groups = groups(report);
    for entry in &report.entries {
        let JobResult { job: Job { name, description, .. }, group, threads, error, pid, .. } =
            entry;
        let text = if *error == 0 { String::new() } else { format!(" ({})", entry.error_text) };
        let time = ctime(report.unix_ms / 1000);
        writeln!(
            out,
            "{name}: (groupid={group}, jobs={threads}): err={error:2}{text}: pid={pid}: {time}"
        )?;
        if let Some(description) = description {
            writeln!(out, "  Description  : [{description}]")?;
        }
        for (name, stats) in
            entry.operations().iter().filter(|(_, stats)| stats.bytes > 0 && stats.runtime.0 > 0)
        {
            write_op(out, name, entry, stats, share(&groups, entry, name, stats))?;
        }
        let sync = &entry.stats.sync.clat;
        if entry.stats.measure.clat && sync.moments.n > 0 {
            writeln!(out, "  fsync/fdatasync/sync_file_range:")?;
            write_moments(out, "sync", &sync.moments)?;
            write_percentiles(out, "sync", entry, sync)?;
        }
        write_rest(out, entry)?;
    }
    let mut last = None;
    for ((group, name), sum) in &groups {
        if last.replace(group) != Some(group) {
            write!(out, "\nRun status group {group} (all jobs):\n")?;
        }
        // Like fio, leaves out operations without I/O.
        if sum.max_ms == 0 {
            continue;
        }
        let rate = |n, binary| short(n, DIGITS, binary, "B/s");
        let (name, all) = (name.to_uppercase(), per_second(sum.bytes, sum.max_ms));
        let range = |binary| format!("{}-{}", rate(sum.min_bps, binary), rate(sum.max_bps, binary));
        let (io, io_decimal) =
            (short(sum.bytes, DIGITS, true, "B"), short(sum.bytes, DIGITS, false, "B"));
        write!(
            out,
            "{name:>7}: bw={} ({}), {} ({}), ",
            rate(all, true),
            rate(all, false),
            range(true),
            range(false)
        )?;
        writeln!(out, "io={io} ({io_decimal}), run={}-{}msec", sum.min_ms, sum.max_ms)?;
    }
    if !report.paths.is_empty() {
        writeln!(out, "\nPaths:")?;
        writeln!(
            out,
            "{:>12} {:>8} {:>10} {:>12}  {:<16} path",
            "I/Os", "failed", "in flight", "latency", "state"
        )?;
    }
    for path in &report.paths {
        let latency = Nanos(path.lat_ns).to_string();
        let of =
            if path.device.is_empty() { String::new() } else { format!(" of {}", path.device) };
        let super::PathStats { ios, failed, in_flight, state, path, .. } = path;
        writeln!(
            out,
            "{ios:>12} {failed:>8} {in_flight:>10.1} {latency:>12}  {state:<16} {path}{of}"
        )?;
    }
    Ok(())
}

/// Writes the lines of one operation; `share`: per cent of the bandwidth of its group.
fn write_op(
    out: &mut String,
    name: &str,
    entry: &JobResult,
    stats: &OpStats,
    share: f64,
) -> fmt::Result {
    let ms = millis(stats);
    let (bandwidth, iops) = (per_second(stats.bytes, ms), per_second(stats.ios, ms));
    writeln!(
        out,
        "  {name}: IOPS={}, BW={} ({})({}/{ms}msec)",
        short(iops, DIGITS, false, ""),
        short(bandwidth, DIGITS, true, "B/s"),
        short(bandwidth, DIGITS, false, "B/s"),
        short(stats.bytes, DIGITS, true, "B"),
    )?;
    let measure = &entry.stats.measure;
    let latencies = [
        ("slat", measure.slat, measure.slat_percentiles, &stats.slat),
        ("clat", measure.clat, measure.clat_percentiles, &stats.clat),
        ("lat", measure.lat, measure.lat_percentiles, &stats.lat),
        // fio has no such line. Only jobs with a rate have it, so other output is fio's.
        ("lat from the intended start", true, true, &stats.intended),
    ];
    for (name, _, _, latency) in
        latencies.iter().filter(|(_, wanted, _, latency)| *wanted && latency.moments.n > 0)
    {
        write_moments(out, &format!("{name:>4}"), &latency.moments)?;
    }
    for (name, _, _, latency) in latencies.iter().filter(|(_, _, percentiles, _)| *percentiles) {
        write_percentiles(out, name, entry, latency)?;
    }
    let OpStats { bw, iops, .. } = stats;
    if bw.n > 0 {
        // fio's threshold: above 1 GiB/s values are in MiB/s.
        let (unit, factor) = if bw.mean() > 1024.0 * 1024.0 { ("MiB", 1024) } else { ("KiB", 1) };
        let (min, max, n) = (bw.min() / factor, bw.max() / factor, bw.n);
        let (mean, deviation) = (bw.mean() / factor as f64, bw.stdev() / factor as f64);
        write!(out, "   bw ({unit:>5}/s): min={min:5}, max={max:5}, per={share:.2}%, ")?;
        writeln!(out, "avg={mean:5.2}, stdev={deviation:5.2}, samples={n}")?;
        let (min, max, mean, deviation, n) =
            (iops.min(), iops.max(), iops.mean(), iops.stdev(), iops.n);
        writeln!(
            out,
            "   iops        : min={min:5}, max={max:5}, avg={mean:5.2}, stdev={deviation:5.2}, samples={n}"
        )?;
    }
    Ok(())
}

/// Writes one line of minimum, maximum, mean and standard deviation.
fn write_moments(out: &mut String, name: &str, moments: &Moments) -> fmt::Result {
    let (unit, factor) = scale(moments.min(), moments.max(), moments.stdev());
    let [min, max] = [moments.min(), moments.max()].map(|n| short(n / factor, 6, false, ""));
    let [mean, deviation] = [moments.mean(), moments.stdev()].map(|n| n / factor as f64);
    writeln!(
        out,
        "    {name} ({unit}): min={min}, max={max}, avg={mean:5.2}, stdev={deviation:5.2}"
    )
}

/// Writes the percentiles of a latency, if there is a histogram.
fn write_percentiles(
    out: &mut String,
    name: &str,
    entry: &JobResult,
    latency: &Latency,
) -> fmt::Result {
    let Job { percentiles: percents, percentile_precision: precision, .. } = &entry.job;
    let values = latency.histogram.as_ref().map(|h| h.percentiles(percents)).unwrap_or_default();
    let (Some(least), Some(most)) = (values.iter().min(), values.iter().max()) else {
        return Ok(());
    };
    // Percentiles have no deviation: infinity, so that it does not prevent a larger unit.
    let (unit, factor) = scale(*least, *most, f64::INFINITY);
    let digits = (most / factor).to_string().len().max(5);
    // Lines have at most 80 characters.
    let per_line = (73 / (precision + 10 + digits)).max(1);
    let width = precision + 3;
    let cell = |(percent, value): (&f64, &u64)| {
        format!(" {percent:width$.precision$}th=[{:digits$}]", value.div_ceil(factor))
    };
    let cells: Vec<String> = percents.iter().zip(&values).map(cell).collect();
    let lines: Vec<String> =
        cells.chunks(per_line).map(|line| format!("     |{}", line.join(","))).collect();
    writeln!(out, "    {name} percentiles ({unit}):\n{}", lines.join(",\n"))
}

/// Writes the lines that are not per operation: CPU, depths, batches, errors, and
/// [`super::CompletionStats`].
fn write_rest(out: &mut String, entry: &JobResult) -> fmt::Result {
    let (stats, usage) = (&entry.stats, &entry.usage);
    let (user, system) = entry.cpu_percent();
    write!(
        out,
        "  cpu          : usr={user:.2}%, sys={system:.2}%, ctx={}, ",
        usage.context_switches
    )?;
    writeln!(out, "majf={}, minf={}", usage.major_faults, usage.minor_faults)?;
    for (title, labels, bands, total) in [
        ("  IO depths    ", DEPTHS, &stats.depth, stats.issued()),
        ("     submit    ", BATCHES, &stats.submit, stats.submit.total()),
        ("     complete  ", BATCHES, &stats.complete, stats.complete.total()),
    ] {
        let shares: Vec<String> = labels
            .iter()
            .zip(bands.shares(total))
            .map(|(label, share)| format!("{label}={share:.1}%"))
            .collect();
        writeln!(out, "{title}: {}", shares.join(", "))?;
    }
    let [reads, writes, trims, syncs] =
        [&stats.read, &stats.write, &stats.trim, &stats.sync].map(|op| op.issued);
    writeln!(
        out,
        "     issued rwts: total={reads},{writes},{trims},{syncs} short=0,0,0,0 dropped=0,0,0,0"
    )?;
    if stats.errors > 0 {
        writeln!(
            out,
            "     errors    : total={}, first_error={}/<{}>",
            stats.errors,
            stats.first_error,
            ErrorCode(stats.first_error)
        )?;
    }
    let reap = &entry.reap;
    if !reap.mode.is_empty() {
        write!(out, "  reap         : mode={}, cpu={:.0}ns/IO, ", reap.mode, reap.cpu_ns_per_io)?;
        if let (Some(notify), Some(messages)) = (reap.notify_ns_per_io, reap.messages) {
            write!(out, "notify={notify:.0}ns/IO, messages={messages}, ")?;
        }
        writeln!(out, "wakeups={}, IO/wakeup={:.1}", reap.wakeups, reap.completions_per_wakeup)?;
        writeln!(
            out,
            "     polls     : empty={}, doorbells: sq={}, cq={}",
            reap.empty_polls, reap.sq_doorbells, reap.cq_doorbells
        )?;
    }
    for (label, text) in &entry.lines {
        writeln!(out, "  {label:<13}: {text}")?;
    }
    Ok(())
}

/// `n` with at most `digits` digits, a decimal (k, M, …) or binary (Ki, Mi, …) prefix, and a unit:
/// `num2str` of fio.
pub(super) fn short(n: u64, digits: usize, binary: bool, unit: &str) -> String {
    let (step, prefixes) = if binary {
        (1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
    } else {
        (1000, ["", "k", "M", "G", "T", "P", "E"])
    };
    let (mut whole, mut rest, mut prefix) = (n, None, 0);
    while whole.to_string().len() > digits && prefix + 1 < prefixes.len() {
        rest = Some(whole % step);
        whole /= step;
        prefix += 1;
    }
    let room = digits.saturating_sub(whole.to_string().len());
    let number = match rest {
        None => whole.to_string(),
        // No room for a decimal point and a digit: round to the nearest integer.
        Some(rest) if room <= 1 => (whole + u64::from(rest >= step / 2)).to_string(),
        Some(rest) => format!("{:.*}", room - 1, whole as f64 + rest as f64 / step as f64),
    };
    format!("{number}{}{unit}", prefixes[prefix])
}

/// The unit for latencies, and its length in nanoseconds. As in fio a larger unit is used only if
/// minimum, maximum and deviation are all large.
pub(super) fn scale(min: u64, max: u64, deviation: f64) -> (&'static str, u64) {
    if min > 2_000_000 && max > 99_999_999 && deviation > 1e6 {
        ("msec", 1_000_000)
    } else if min > 2_000 && max > 99_999 && deviation > 1e3 {
        ("usec", 1_000)
    } else {
        ("nsec", 1)
    }
}
