//! Options beside the I/O itself: pauses, turns, ends, what is written, logs and lists.

use super::opt::{Opt, boolean, choose, flag, value};
use crate::fio::draft::Draft;
use crate::fio::parts::{self, NON_FATAL};
use crate::fio::values::{self, Bad};
use crate::job::LogValue;
use units::Nanos;

pub(super) static OPTIONS: &[Opt] = &[
    // Pauses.
    value(&["thinktime"], set!(think.time = |_, v| values::micros(v))),
    value(&["thinktime_spin"], set!(think.spin = |_, v| values::micros(v))),
    value(&["thinktime_blocks"], set!(think.blocks = |d, v| values::number(v, d.job.kb_base))),
    // Errors that do not end a job.
    value(&["continue_on_error"], |d, v| {
        let (reads, writes) = match v {
            "none" | "0" => (false, false),
            "read" => (true, false),
            "write" => (false, true),
            "io" | "all" | "1" => (true, true),
            "verify" => return Ok(()),
            _ => return Err(format!("'{v}' is none of none, read, write, io, verify, all")),
        };
        let list = |goes_on: bool| if goes_on { NON_FATAL.to_vec() } else { Vec::new() };
        let ignored = &mut d.job.goes_on;
        (ignored.read, ignored.write, ignored.trim) = (list(reads), list(writes), list(writes));
        Ok(())
    }),
    value(&["ignore_error"], |d, v| {
        for (place, part) in v.split(',').enumerate().filter(|(_, part)| !part.trim().is_empty()) {
            let errnos = parts::errnos(part.trim())?;
            match place {
                0 => d.job.goes_on.read.extend(errnos),
                1 => {
                    d.job.goes_on.write.extend(&errnos);
                    d.job.goes_on.trim.extend(errnos);
                }
                // Data that are wrong are counted, and end no job, anyway.
                2 => {}
                _ => return Err("more than three lists, of reads, writes and verification".into()),
            }
        }
        Ok(())
    }),
    value(&["sync"], |d, v| {
        d.job.sync_writes = choose(v, &[("0", false), ("none", false), ("1", true), ("sync", true), ("dsync", true)])?;
        Ok(())
    }),
    // Logs, and lists of I/Os.
    flag(&["write_bw_log"], set!(job.logs.bandwidth = |_, v| Ok(Some(log_name(v))))),
    flag(&["write_lat_log"], set!(job.logs.latency = |_, v| Ok(Some(log_name(v))))),
    flag(&["write_iops_log"], set!(job.logs.iops = |_, v| Ok(Some(log_name(v))))),
    value(&["log_avg_msec"], set!(job.logs.average = |d, v| values::within(v, d.job.kb_base, 0, 1 << 40).map(Nanos::from_millis))),
    value(&["log_window_value", "log_max_value"], set!(job.logs.value = |_, v| log_value(v))),
    boolean(&["log_offset"], set!(job.logs.offset = |_, v| values::flag(v))),
    boolean(&["log_prio"], set!(job.logs.priority = |_, v| values::flag(v))),
    boolean(&["log_issue_time"], set!(job.logs.issue_time = |_, v| values::flag(v))),
    boolean(&["per_job_logs"], set!(job.logs.shared = |_, v| values::flag(v).map(|own| !own))),
    value(&["write_iolog"], set!(job.write_iolog = |_, v| Ok(Some(v.to_owned())))),
    value(&["read_iolog"], set!(iolog = |_, v| Ok(Some(v.to_owned())))),
    boolean(&["replay_no_stall"], set!(replay.no_stall = |_, v| values::flag(v))),
    value(&["replay_time_scale"], set!(replay.time_scale = |d, v| values::within(v, d.job.kb_base, 1, 1 << 32))),
    value(&["replay_scale"], set!(replay.scale = |d, v| values::within(v, d.job.kb_base, 1, 1 << 32))),
    value(&["replay_align"], set!(replay.align = |d, v| values::within(v, d.job.kb_base, 0, 1 << 40))),
];

/// fio takes the option without a name as well: the file is then named after the job.
fn log_name(text: &str) -> String {
    if text == "1" { String::new() } else { text.to_owned() }
}

fn log_value(text: &str) -> Result<LogValue, Bad> {
    choose(
        text,
        &[
            ("avg", LogValue::Mean),
            ("0", LogValue::Mean),
            ("max", LogValue::Max),
            ("1", LogValue::Max),
            ("both", LogValue::Both),
            ("2", LogValue::Both),
        ],
    )
}
