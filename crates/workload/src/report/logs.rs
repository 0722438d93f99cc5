//! The files of `write_bw_log`, `write_lat_log`, `write_iops_log` and `write_iolog`, as fio's manual has them (sections *Log File
//! Formats* and *Trace file format v3*).

use crate::generator::{Io, LogLine, Trail};
use crate::job::Job;
use crate::plan::Thread;
use std::io::{self, Write};
use units::{Nanos, Op};

/// A file that a job thread leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: LogKind,
}

/// What a log holds of each I/O, or of each stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// kB per second.
    Bandwidth,
    /// I/Os per second.
    Iops,
    /// Nanoseconds from the decision to issue to the doorbell.
    Slat,
    /// From there to the completion.
    Clat,
    /// Both together.
    Lat,
    /// No samples but the I/Os themselves, to replay.
    Iolog,
}

/// The files that `thread` of `job` leaves.
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
        // One list is one thread's: those of the others have its number.
        let name = if thread.subjob == 0 { name.clone() } else { format!("{name}.{}", thread.subjob) };
        files.push(LogFile { name, kind: LogKind::Iolog });
    }
    files
}

/// Writes what a thread of `job` noted down; `targets` are the names of its devices.
///
/// # Errors
/// What `out` says.
pub fn write(kind: LogKind, job: &Job, targets: &[String], trail: &Trail, out: &mut dyn Write) -> io::Result<()> {
    if kind == LogKind::Iolog {
        return list(targets, trail, out);
    }
    let averaged = job.logs.average > Nanos::ZERO;
    for line in &trail.lines {
        let bytes = if averaged { 0 } else { line.bytes };
        // No I/O of Reap's has a priority: the last column.
        writeln!(out, "{}, {}, {}, {bytes}, 0", line.at.0 / 1_000_000, value(kind, line, averaged), line.direction)?;
    }
    Ok(())
}

/// The value of a line.
fn value(kind: LogKind, line: &LogLine, averaged: bool) -> u64 {
    let per_second = |n: u64, unit: u128| (u128::from(n) * 1_000_000_000 / unit / u128::from(line.span.0.max(1))) as u64;
    match kind {
        LogKind::Bandwidth => per_second(line.bytes, if averaged { 1024 } else { 1000 }),
        LogKind::Iops if averaged => per_second(line.ios, 1),
        LogKind::Iops | LogKind::Iolog => 1,
        LogKind::Slat => line.mean[0].0,
        LogKind::Clat => line.mean[1].0,
        LogKind::Lat => line.mean[2].0,
    }
}

/// A list of version 3.
fn list(targets: &[String], trail: &Trail, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "fio version 3 iolog")?;
    for action in ["add", "open"] {
        for name in targets {
            writeln!(out, "0 {name} {action}")?;
        }
    }
    for line in &trail.ios {
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
    let end = trail.ios.last().map_or(0, |line| line.at.0 / 1000);
    targets.iter().try_for_each(|name| writeln!(out, "{end} {name} close"))
}

#[cfg(test)]
mod tests;
