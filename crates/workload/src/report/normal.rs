//! Results for people, as fio prints them.

use super::distribution::{self, BOUNDS};
use super::numbers::{scale, short};
use super::time::ctime;
use super::{Entry, Report};
use crate::generator::ErrorCode;
use crate::job::{BlockSizes, Job, PerOp};
use crate::plan::Plan;
use crate::stats::{Latency, Moments, OpStats, Stats};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Digits that numbers with a unit have.
const DIGITS: usize = 4;

/// What stands above the results when a run starts: one line per job, and how many threads there are. `engine` is what
/// does the I/O.
pub fn opening(jobs: &[Job], plan: &Plan, program: &str, engine: &str) -> String {
    let mut out = String::new();
    for (index, job) in jobs.iter().enumerate() {
        let group = plan.threads.iter().find(|t| t.job == index).map_or(0, |t| t.group);
        let sizes = |sizes: &BlockSizes| format!("{}-{}", short(sizes.min, DIGITS, true, "B"), short(sizes.max, DIGITS, true, "B"));
        out += &format!(
            "{}: (g={group}): rw={}, bs=(R) {}, (W) {}, (T) {}, ioengine={engine}, iodepth={}\n",
            job.name,
            job.pattern.name(),
            sizes(&job.block.read),
            sizes(&job.block.write),
            sizes(&job.block.trim),
            job.iodepth
        );
        if job.numjobs > 1 {
            out += "...\n";
        }
    }
    let threads = plan.threads.len();
    out + &format!("{program}\nStarting {threads} thread{}\n", if threads == 1 { "" } else { "s" })
}

/// The results of all jobs and groups.
pub fn normal(report: &Report) -> String {
    let groups = Groups::new(report);
    let mut out = String::new();
    // Writing into a String does not fail.
    let _ = write_all(&mut out, report, &groups);
    out
}

fn write_all(out: &mut String, report: &Report, groups: &Groups) -> fmt::Result {
    if !report.entries.is_empty() {
        out.write_char('\n')?;
    }
    for entry in &report.entries {
        write_entry(out, entry, report, groups)?;
    }
    for (group, sums) in &groups.0 {
        write!(out, "\nRun status group {group} (all jobs):\n")?;
        for (name, sum) in [("READ", &sums.read), ("WRITE", &sums.write), ("TRIM", &sums.trim)] {
            if sum.longest_ms > 0 {
                sum.write(out, name)?;
            }
        }
    }
    super::paths::write(out, &report.paths)
}

fn write_entry(out: &mut String, entry: &Entry, report: &Report, groups: &Groups) -> fmt::Result {
    let error = match entry.error {
        0 => String::new(),
        _ => format!(" ({})", entry.error_text),
    };
    writeln!(
        out,
        "{}: (groupid={}, jobs={}): err={:2}{error}: pid={}: {}",
        entry.name,
        entry.group,
        entry.threads,
        entry.error,
        entry.pid,
        ctime(report.unix_ms / 1000)
    )?;
    if let Some(description) = &entry.description {
        writeln!(out, "  Description  : [{description}]")?;
    }
    let group = groups.0.get(&entry.group);
    let stats = &entry.stats;
    for (name, stats, sum) in [
        ("read", &stats.read, group.map(|g| &g.read)),
        ("write", &stats.write, group.map(|g| &g.write)),
        ("trim", &stats.trim, group.map(|g| &g.trim)),
    ] {
        if stats.bytes > 0 && stats.runtime.0 > 0 {
            write_op(out, name, entry, stats, sum.map_or(0, |sum| sum.bytes_per_second()))?;
        }
    }
    write_latencies(out, entry)?;
    write_syncs(out, entry)?;
    write_rest(out, entry)
}

fn write_op(out: &mut String, name: &str, entry: &Entry, stats: &OpStats, group_bps: u64) -> fmt::Result {
    let ms = millis(stats);
    let bandwidth = (u128::from(stats.bytes) * 1000 / u128::from(ms)) as u64;
    let iops = (u128::from(stats.ios) * 1000 / u128::from(ms)) as u64;
    writeln!(
        out,
        "  {name}: IOPS={}, BW={} ({})({}/{ms}msec){}",
        short(iops, DIGITS, false, ""),
        short(bandwidth, DIGITS, true, "B/s"),
        short(bandwidth, DIGITS, false, "B/s"),
        short(stats.bytes, DIGITS, true, "B"),
        if name == "read" { "" } else { "; 0 zone resets" }
    )?;
    let measure = &entry.stats.measure;
    for (name, wanted, latency) in
        [("slat", measure.slat, &stats.slat), ("clat", measure.clat, &stats.clat), (" lat", measure.lat, &stats.lat)]
    {
        if wanted && latency.moments.n > 0 {
            write_moments(out, name, &latency.moments)?;
        }
    }
    if stats.intended.moments.n > 0 {
        write_moments(out, "lat from the intended start", &stats.intended.moments)?;
    }
    for (name, wanted, latency) in [
        ("slat", measure.slat_percentiles, &stats.slat),
        ("clat", measure.clat_percentiles, &stats.clat),
        ("lat", measure.lat_percentiles, &stats.lat),
        ("lat from the intended start", true, &stats.intended),
    ] {
        if wanted {
            write_percentiles(out, name, entry, latency)?;
        }
    }
    write_samples(out, stats, group_bps)
}

/// The runtime in whole milliseconds, rounded up as fio does; never 0.
fn millis(stats: &OpStats) -> u64 {
    stats.runtime.0.div_ceil(1_000_000).max(1)
}

fn write_moments(out: &mut String, name: &str, moments: &Moments) -> fmt::Result {
    let (unit, factor) = scale(moments.min(), moments.max(), Some(moments.stdev()));
    writeln!(
        out,
        "    {name} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        short(moments.min() / factor, 6, false, ""),
        short(moments.max() / factor, 6, false, ""),
        moments.mean() / factor as f64,
        moments.stdev() / factor as f64
    )
}

fn write_percentiles(out: &mut String, name: &str, entry: &Entry, latency: &Latency) -> fmt::Result {
    let percents: Vec<f64> = entry.percentiles.iter().copied().filter(|p| *p > 0.0).collect();
    let values = latency.histogram.as_ref().map(|h| h.percentiles(&percents)).unwrap_or_default();
    let (Some(least), Some(most)) = (values.iter().min(), values.iter().max()) else { return Ok(()) };
    let (unit, factor) = scale(*least, *most, None);
    let precision = entry.percentile_precision;
    let digits = (most / factor).to_string().len().max(5);
    // So that lines have no more than 80 characters.
    let per_line = (73 / (precision + 10 + digits)).max(1);
    writeln!(out, "    {name} percentiles ({unit}):")?;
    for (line, chunk) in percents.chunks(per_line).zip(values.chunks(per_line)).enumerate() {
        out.write_str("     |")?;
        for (i, (percent, value)) in chunk.0.iter().zip(chunk.1).enumerate() {
            let end = if line * per_line + i + 1 == values.len() { "" } else { "," };
            write!(out, " {percent:width$.precision$}th=[{:digits$}]{end}", value.div_ceil(factor), width = precision + 3)?;
        }
        out.write_char('\n')?;
    }
    Ok(())
}

fn write_samples(out: &mut String, stats: &OpStats, group_bps: u64) -> fmt::Result {
    let bw = &stats.bw;
    if bw.n > 0 {
        let (unit, factor) = if bw.mean() > 1024.0 * 1024.0 { ("MiB", 1024.0) } else { ("KiB", 1.0) };
        let percent = match group_bps / 1024 {
            0 => 100.0,
            all => (bw.mean() * 100.0 / all as f64).min(100.0),
        };
        writeln!(
            out,
            "   bw ({unit:>5}/s): min={:5.0}, max={:5.0}, per={percent:.2}%, avg={:5.2}, stdev={:5.2}, samples={}",
            (bw.min() as f64 / factor).trunc(),
            (bw.max() as f64 / factor).trunc(),
            bw.mean() / factor,
            bw.stdev() / factor,
            bw.n
        )?;
    }
    let iops = &stats.iops;
    if iops.n > 0 {
        writeln!(
            out,
            "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
            iops.min(),
            iops.max(),
            iops.mean(),
            iops.stdev(),
            iops.n
        )?;
    }
    Ok(())
}

/// How the latencies are distributed, five bands to a line.
fn write_latencies(out: &mut String, entry: &Entry) -> fmt::Result {
    let latencies = distribution::latencies(&entry.stats);
    let mut labels: Vec<String> = BOUNDS.iter().map(u64::to_string).collect();
    labels.extend(["2000".to_owned(), ">=2000".to_owned()]);
    for (unit, shares) in [("nsec", &latencies.ns[..]), ("usec", &latencies.us), ("msec", &latencies.ms)] {
        let shown: Vec<String> =
            labels.iter().zip(shares).filter(|(_, share)| **share > 0.0).map(|(label, share)| format!("{label}={share:.2}%")).collect();
        for line in shown.chunks(5) {
            writeln!(out, "  lat ({unit})   : {}", line.join(", "))?;
        }
    }
    Ok(())
}

/// Flushes, as fio prints its own.
fn write_syncs(out: &mut String, entry: &Entry) -> fmt::Result {
    let Stats { sync, measure, .. } = &entry.stats;
    if !measure.clat || sync.clat.moments.n == 0 {
        return Ok(());
    }
    writeln!(out, "  fsync/fdatasync/sync_file_range:")?;
    write_moments(out, "sync", &sync.clat.moments)?;
    write_percentiles(out, "sync", entry, &sync.clat)
}

fn write_rest(out: &mut String, entry: &Entry) -> fmt::Result {
    let stats = &entry.stats;
    let (user, system) = entry.cpu_percent();
    let usage = &entry.usage;
    writeln!(
        out,
        "  cpu          : usr={user:.2}%, sys={system:.2}%, ctx={}, majf={}, minf={}",
        usage.context_switches, usage.major_faults, usage.minor_faults
    )?;
    let depths = ["1", "2", "4", "8", "16", "32", ">=64"];
    let batches = ["0", "4", "8", "16", "32", "64", ">=64"];
    for (title, labels, bands, total) in [
        ("  IO depths    ", depths, &stats.depth, stats.issued()),
        ("     submit    ", batches, &stats.submit, stats.submit.total()),
        ("     complete  ", batches, &stats.complete, stats.complete.total()),
    ] {
        let shares = distribution::bands(bands, total);
        let shares: Vec<String> = labels.iter().zip(shares).map(|(label, share)| format!("{label}={share:.1}%")).collect();
        writeln!(out, "{title}: {}", shares.join(", "))?;
    }
    writeln!(
        out,
        "     issued rwts: total={},{},{},{} short=0,0,0,0 dropped=0,0,0,0",
        stats.read.issued, stats.write.issued, stats.trim.issued, stats.sync.issued
    )?;
    if stats.errors > 0 {
        writeln!(out, "     errors    : total={}, first_error={}/<{}>", stats.errors, stats.first_error, ErrorCode(stats.first_error))?;
    }
    writeln!(out, "     latency   : target=0, window=0, percentile=100.00%, depth={}", entry.iodepth)?;
    let reap = &entry.reap;
    if !reap.mode.is_empty() {
        write!(out, "  reap         : mode={}, cpu={:.0}ns/IO, ", reap.mode, reap.cpu_ns_per_io)?;
        if let (Some(notify), Some(messages)) = (reap.notify_ns_per_io, reap.messages) {
            write!(out, "notify={notify:.0}ns/IO, messages={messages}, ")?;
        }
        writeln!(out, "wakeups={}, IO/wakeup={:.1}", reap.wakeups, reap.completions_per_wakeup)?;
        writeln!(out, "     looks     : empty={}, doorbells: sq={}, cq={}", reap.empty_looks, reap.sq_doorbells, reap.cq_doorbells)?;
    }
    for (label, text) in &entry.lines {
        writeln!(out, "  {label:<13}: {text}")?;
    }
    Ok(())
}

/// What the jobs of a group did together.
struct GroupSums {
    read: Sum,
    write: Sum,
    trim: Sum,
}

/// One operation's sums over a group.
struct Sum {
    bytes: u64,
    least_bps: u64,
    most_bps: u64,
    shortest_ms: u64,
    longest_ms: u64,
}

/// The sums by groupid.
pub(super) struct Groups(BTreeMap<u32, GroupSums>);

impl Groups {
    pub(super) fn new(report: &Report) -> Groups {
        let mut groups = BTreeMap::new();
        for entry in &report.entries {
            let new = || GroupSums { read: Sum::new(), write: Sum::new(), trim: Sum::new() };
            let sums = groups.entry(entry.group).or_insert_with(new);
            sums.read.add(&entry.stats.read);
            sums.write.add(&entry.stats.write);
            sums.trim.add(&entry.stats.trim);
        }
        Groups(groups)
    }

    /// Bytes per second of an entry's group.
    pub(super) fn bytes_per_second(&self, group: u32) -> PerOp<u64> {
        let all = |sums: &GroupSums| PerOp {
            read: sums.read.bytes_per_second(),
            write: sums.write.bytes_per_second(),
            trim: sums.trim.bytes_per_second(),
        };
        self.0.get(&group).map_or_else(PerOp::default, all)
    }
}

impl Sum {
    fn new() -> Sum {
        Sum { bytes: 0, least_bps: u64::MAX, most_bps: 0, shortest_ms: u64::MAX, longest_ms: 0 }
    }

    fn add(&mut self, stats: &OpStats) {
        if stats.bytes == 0 || stats.runtime.0 == 0 {
            return;
        }
        let ms = millis(stats);
        let bps = (u128::from(stats.bytes) * 1000 / u128::from(ms)) as u64;
        self.bytes += stats.bytes;
        self.least_bps = self.least_bps.min(bps);
        self.most_bps = self.most_bps.max(bps);
        self.shortest_ms = self.shortest_ms.min(ms);
        self.longest_ms = self.longest_ms.max(ms);
    }

    fn bytes_per_second(&self) -> u64 {
        match self.longest_ms {
            0 => 0,
            ms => (u128::from(self.bytes) * 1000 / u128::from(ms)) as u64,
        }
    }

    fn write(&self, out: &mut String, name: &str) -> fmt::Result {
        let rate = |n, binary| short(n, DIGITS, binary, "B/s");
        let all = self.bytes_per_second();
        writeln!(
            out,
            "{name:>7}: bw={} ({}), {}-{} ({}-{}), io={} ({}), run={}-{}msec",
            rate(all, true),
            rate(all, false),
            rate(self.least_bps, true),
            rate(self.most_bps, true),
            rate(self.least_bps, false),
            rate(self.most_bps, false),
            short(self.bytes, DIGITS, true, "B"),
            short(self.bytes, DIGITS, false, "B"),
            self.shortest_ms,
            self.longest_ms
        )
    }
}
