//! The files of `write_bw_log`, `write_lat_log`, `write_iops_log` and `write_iolog`, as fio's
//! manual has them (sections *Log File Formats* and *Trace file format v3*).

use crate::generator::{Io, LogBuffer, LogSample};
use crate::job::Job;
use crate::plan::Thread;
use std::io::{self, Write};
use units::{Nanos, Op};

/// A log file of a job thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The file's name.
    pub name: String,
    /// The file's contents.
    pub kind: LogKind,
}

/// The contents of a log file: a value per I/O or per window of `log_avg_msec`, or the I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Bandwidth in KiB/s if averaged, else kB/s.
    Bandwidth,
    /// I/Os per second.
    Iops,
    /// Submission latency in nanoseconds.
    Slat,
    /// Completion latency in nanoseconds.
    Clat,
    /// Total latency in nanoseconds.
    Lat,
    /// The I/Os, for `read_iolog`.
    Iolog,
}

/// The log files of `thread` of `job`.
pub fn files(job: &Job, thread: &Thread) -> Vec<LogFile> {
    let logs = &job.logs;
    let mut files = Vec::new();
    for (kind, word, name) in [
        (LogKind::Bandwidth, "bw", &logs.bandwidth),
        (LogKind::Slat, "slat", &logs.latency),
        (LogKind::Clat, "clat", &logs.latency),
        (LogKind::Lat, "lat", &logs.latency),
        (LogKind::Iops, "iops", &logs.iops),
    ] {
        let Some(name) = name else { continue };
        files.push(LogFile { name: format!("{name}_{word}.{}.log", thread.number), kind });
    }
    if let Some(name) = &job.write_iolog {
        // Each thread has its own file. The first thread's has the name that fio gives it.
        let name =
            if thread.subjob == 0 { name.clone() } else { format!("{name}.{}", thread.subjob) };
        files.push(LogFile { name, kind: LogKind::Iolog });
    }
    files
}

/// Writes the file `kind` of a thread of `job`; `targets` are the names of its targets.
///
/// # Errors
/// Errors of `out`.
pub fn write(
    kind: LogKind,
    job: &Job,
    targets: &[String],
    logs: &LogBuffer,
    out: &mut dyn Write,
) -> io::Result<()> {
    if kind == LogKind::Iolog {
        return list(targets, logs, out);
    }
    let averaged = job.logs.average > Nanos::ZERO;
    for line in &logs.samples {
        // fio writes 0 as the block size of an average.
        let bytes = if averaged { 0 } else { line.bytes };
        // The last column is the I/O priority, which Reap does not have.
        writeln!(
            out,
            "{}, {}, {}, {bytes}, 0",
            line.at.0 / 1_000_000,
            value(kind, line, averaged),
            line.direction
        )?;
    }
    Ok(())
}

/// The value of a sample.
fn value(kind: LogKind, line: &LogSample, averaged: bool) -> u64 {
    let per_second = |n: u64, unit: u128| {
        (u128::from(n) * 1_000_000_000 / unit / u128::from(line.span.0.max(1))) as u64
    };
    match kind {
        LogKind::Bandwidth => per_second(line.bytes, if averaged { 1024 } else { 1000 }),
        LogKind::Iops if averaged => per_second(line.ios, 1),
        // Without averages each line is one I/O.
        LogKind::Iops | LogKind::Iolog => 1,
        LogKind::Slat => line.mean[0].0,
        LogKind::Clat => line.mean[1].0,
        LogKind::Lat => line.mean[2].0,
    }
}

/// Writes an iolog of version 3.
fn list(targets: &[String], logs: &LogBuffer, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "fio version 3 iolog")?;
    for action in ["add", "open"] {
        for name in targets {
            writeln!(out, "0 {name} {action}")?;
        }
    }
    for line in &logs.ios {
        let Io { op, target, offset, len, .. } = line.io;
        let micros = line.at.0 / 1000;
        let name = targets.get(usize::from(target)).map_or("device", String::as_str);
        let action = match op {
            Op::Flush if line.data_sync => "datasync",
            Op::Flush => "sync",
            Op::Read | Op::Compare | Op::Verify => "read",
            Op::Write | Op::WriteZeroes | Op::WriteUncorrectable => "write",
            Op::Deallocate => "trim",
        };
        writeln!(out, "{micros} {name} {action} {offset} {len}")?;
    }
    let end = logs.ios.last().map_or(0, |line| line.at.0 / 1000);
    targets.iter().try_for_each(|name| writeln!(out, "{end} {name} close"))
}

#[cfg(test)]
mod tests;
