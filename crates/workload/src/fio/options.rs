//! The options that Reap knows: their names, what they take, what they set.

/// Assigns the result of a parser to a place.
macro_rules! set {
    ($($place:ident).+ = $parse:expr) => {
        |draft, text| {
            let parse: fn(&str) -> Result<_, Bad> = $parse;
            draft.$($place).+ = parse(text)?;
            Ok(())
        }
    };
}

use super::draft::Draft;
use super::fill;
use super::known;
use super::values::{self, Bad};
use crate::job::{Amount, CpuPolicy, Direction, Distribution, Engine, Measure, Pattern, PerOp, RandomGenerator, RateProcess, VerifyKind};
use units::Nanos;

/// The option of that name.
pub(super) fn find(name: &str) -> Option<&'static Opt> {
    OPTIONS.iter().find(|option| option.names.contains(&name))
}

/// Everything that fio itself knows, for the nearest name.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS
        .iter()
        .flat_map(|option| option.names)
        .copied()
        .chain(known::OPTIONS.iter().copied())
        .chain(known::REFUSED.iter().map(|(name, _)| *name))
}

/// What may follow the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// A value.
    Value,
    /// 0 or 1.
    Bool,
    /// Nothing, which means 1; or a number.
    Flag,
}

/// An option.
pub(super) struct Opt {
    /// Its name and its synonyms.
    pub names: &'static [&'static str],
    pub takes: Takes,
    /// Applies a value.
    pub set: fn(&mut Draft, &str) -> Result<(), Bad>,
}

const fn value(names: &'static [&'static str], set: fn(&mut Draft, &str) -> Result<(), Bad>) -> Opt {
    Opt { names, takes: Takes::Value, set }
}

const fn boolean(names: &'static [&'static str], set: fn(&mut Draft, &str) -> Result<(), Bad>) -> Opt {
    Opt { names, takes: Takes::Bool, set }
}

const fn flag(names: &'static [&'static str], set: fn(&mut Draft, &str) -> Result<(), Bad>) -> Opt {
    Opt { names, takes: Takes::Flag, set }
}

fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, Bad> {
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("'{text}' is none of {}", names.join(", "))
    })
}

/// What `reap run` says to what it leaves out of fio's job language.
pub(super) fn refused(what: &str) -> Bad {
    format!("`reap run` does not support `{what}`; see docs/fio-jobs.md")
}

/// More threads than fio starts.
pub(super) const MOST_JOBS: u64 = 4096;
/// More commands than an NVMe queue holds.
const MOST_DEPTH: u64 = 65_535;

static OPTIONS: &[Opt] = &[
    value(&["name"], set!(job.name = |v| Ok(v.to_owned()))),
    value(&["description"], set!(job.description = |v| Ok(Some(v.to_owned())))),
    value(&["ioengine"], set!(job.engine.name = ioengine)),
    flag(&["hipri"], set!(job.engine.hipri = values::flag)),
    flag(&["fixedbufs"], set!(job.engine.fixedbufs = values::flag)),
    flag(&["registerfiles"], set!(job.engine.registerfiles = values::flag)),
    flag(&["sqthread_poll"], set!(job.engine.sqthread_poll = values::flag)),
    // What I/O.
    value(&["rw", "readwrite"], set!(job.pattern = pattern)),
    value(&["rwmixread"], set!(job.read_percent = |v| Ok(values::within(v, 0, 100)? as u32))),
    value(&["rwmixwrite"], set!(job.read_percent = |v| Ok(100 - values::within(v, 0, 100)? as u32))),
    value(&["bs", "blocksize"], |d, v| {
        merge(&mut d.bs, values::per_op(v, separators(v)?, |v| values::within(v, 1, u64::MAX))?);
        Ok(())
    }),
    value(&["bsrange", "blocksize_range"], |d, v| {
        merge(&mut d.range, values::per_op(v, &[','], values::range)?);
        Ok(())
    }),
    value(&["bssplit"], |d, v| {
        merge(&mut d.split, values::per_op(v, &[','], values::split)?);
        Ok(())
    }),
    // Where.
    value(&["filename"], set!(job.filenames = values::filenames)),
    value(&["directory"], set!(directory = |v| directory(v).map(Some))),
    value(&["filename_format"], set!(job.file_format = |v| Ok(Some(v.to_owned())))),
    value(&["nrfiles", "nr_files"], set!(job.files = |v| Ok(values::within(v, 1, 1024)? as u32))),
    value(&["filesize"], set!(filesize = |v| filesize(v).map(Some))),
    value(&["size"], set!(job.size = |v| values::amount(v).map(Some))),
    value(&["offset", "fileoffset"], set!(job.offset = values::amount)),
    value(&["offset_increment"], set!(job.offset_increment = values::amount)),
    value(&["io_size", "io_limit"], set!(job.io_size = |v| values::amount(v).map(Some))),
    value(&["number_ios"], set!(job.number_ios = |v| values::number(v).map(|n| (n > 0).then_some(n)))),
    value(&["loops"], set!(job.loops = |v| Ok(values::number(v)?.max(1)))),
    boolean(&["direct"], set!(job.direct = values::flag)),
    boolean(&["buffered"], set!(job.direct = |v| values::flag(v).map(|buffered| !buffered))),
    // fio takes both.
    flag(&["thread", "threads"], set!(job.thread = values::flag)),
    // How many at once.
    value(&["iodepth"], set!(job.iodepth = |v| Ok(values::within(v, 1, MOST_DEPTH)? as u32))),
    value(&["iodepth_low"], set!(job.iodepth_low = depth)),
    value(&["iodepth_batch", "iodepth_batch_submit"], set!(job.batch_submit = depth)),
    value(&["iodepth_batch_complete_min", "iodepth_batch_complete"], set!(job.complete_min = depth)),
    value(&["iodepth_batch_complete_max"], set!(job.complete_max = depth)),
    boolean(&["serialize_overlap"], set!(job.serialize_overlap = values::flag)),
    // What is made durable.
    value(&["fsync", "fdatasync"], set!(job.sync_every = |v| Ok(values::within(v, 0, i32::MAX as u64)? as u32))),
    boolean(&["end_fsync", "fsync_on_close"], set!(job.sync_at_end = values::flag)),
    // How long.
    value(&["numjobs"], set!(job.numjobs = |v| Ok(values::within(v, 1, MOST_JOBS)? as u32))),
    value(&["runtime", "timeout"], set!(job.runtime = |v| Ok(Some(values::time(v)?).filter(|t| *t > Nanos::ZERO)))),
    flag(&["time_based"], set!(job.time_based = values::flag)),
    value(&["ramp_time"], set!(job.ramp_time = values::time)),
    value(&["startdelay"], set!(job.start_delay = start_delay)),
    // Random numbers.
    flag(&["norandommap"], set!(job.random_map = |v| values::flag(v).map(|off| !off))),
    value(&["random_generator"], set!(job.random_generator = random_generator)),
    value(&["random_distribution"], set!(job.distribution = distribution)),
    value(&["blockalign", "ba"], |d, v| {
        merge_plain(&mut d.job.align, values::per_op(v, &[','], |v| values::within(v, 1, 1 << 62))?);
        Ok(())
    }),
    boolean(&["randrepeat"], set!(job.repeatable = values::flag)),
    value(&["randseed"], set!(job.seed = |v| values::number(v).map(Some))),
    // Rates.
    value(&["rate"], |d, v| {
        merge_plain(&mut d.rate, values::per_op(v, separators(v)?, values::number)?);
        Ok(())
    }),
    value(&["rate_iops"], |d, v| {
        merge_plain(&mut d.rate_iops, values::per_op(v, separators(v)?, values::number)?);
        Ok(())
    }),
    value(&["rate_process"], set!(job.rate_process = |v| choose(v, &RATE_PROCESSES))),
    // Threads, groups, order.
    value(&["cpus_allowed"], set!(job.cpus_allowed = |v| values::cpus(v).map(Some))),
    value(&["cpus_allowed_policy"], set!(job.cpus_policy = |v| choose(v, &CPU_POLICIES))),
    flag(&["group_reporting"], set!(job.group_reporting = values::flag)),
    flag(&["new_group"], set!(job.new_group = values::flag)),
    flag(&["stonewall", "wait_for_previous"], set!(job.stonewall = values::flag)),
    flag(&["exitall"], set!(job.exitall = values::flag)),
    // How completions are found. Not fio's.
    flag(&["reap_urgent"], set!(job.urgent = values::flag)),
    // Verification.
    value(&["verify"], |d, v| {
        (d.verify, d.verify_given) = (verify(v)?, true);
        Ok(())
    }),
    value(&["verify_pattern"], set!(checks.pattern = |v| fill::pattern(v).map(Some))),
    value(&["verify_interval"], set!(checks.interval = |v| values::within(v, 1, 1 << 31).map(Some))),
    value(&["verify_offset"], set!(checks.offset = |v| Ok(values::within(v, 0, 1 << 31)? as u32))),
    boolean(&["verify_fatal"], set!(checks.fatal = values::flag)),
    value(&["verify_backlog"], set!(backlog_writes = values::number)),
    value(&["verify_backlog_batch"], set!(backlog_batch = values::number)),
    boolean(&["do_verify"], set!(checks.after_write = values::flag)),
    flag(&["verify_only"], set!(checks.only = values::flag)),
    boolean(&["verify_header_seed"], set!(checks.header_seed = |v| values::flag(v).map(Some))),
    // Measurement.
    boolean(&["gtod_reduce"], |d, v| {
        let reduce = values::flag(v)?;
        d.job.measure = Measure { slat: !reduce, clat: !reduce, lat: !reduce, ..d.job.measure };
        Ok(())
    }),
    boolean(&["disable_lat"], set!(job.measure.lat = |v| values::flag(v).map(|off| !off))),
    boolean(&["disable_clat"], set!(job.measure.clat = |v| values::flag(v).map(|off| !off))),
    boolean(&["disable_slat"], set!(job.measure.slat = |v| values::flag(v).map(|off| !off))),
    boolean(&["lat_percentiles"], set!(job.measure.lat_percentiles = values::flag)),
    boolean(&["clat_percentiles"], set!(job.measure.clat_percentiles = values::flag)),
    boolean(&["slat_percentiles"], set!(job.measure.slat_percentiles = values::flag)),
    value(&["percentile_list"], |d, v| {
        (d.job.percentiles, d.job.percentile_precision) = values::percentiles(v)?;
        Ok(())
    }),
    // Pauses.
    value(&["thinktime"], set!(think.time = values::micros)),
    value(&["thinktime_spin"], set!(think.spin = values::micros)),
    value(&["thinktime_blocks"], set!(think.blocks = values::number)),
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
        d.job.goes_on = PerOp { read: reads, write: writes, trim: writes };
        Ok(())
    }),
    value(&["sync"], |d, v| {
        d.job.sync_writes = choose(v, &[("0", false), ("none", false), ("1", true), ("sync", true), ("dsync", true)])?;
        Ok(())
    }),
    // Logs, and lists of I/Os.
    flag(&["write_bw_log"], set!(job.logs.bandwidth = |v| Ok(Some(log_name(v))))),
    flag(&["write_lat_log"], set!(job.logs.latency = |v| Ok(Some(log_name(v))))),
    flag(&["write_iops_log"], set!(job.logs.iops = |v| Ok(Some(log_name(v))))),
    value(&["log_avg_msec"], set!(job.logs.average = |v| values::within(v, 0, 1 << 40).map(Nanos::from_millis))),
    value(&["write_iolog"], set!(job.write_iolog = |v| Ok(Some(v.to_owned())))),
    value(&["read_iolog"], set!(iolog = |v| Ok(Some(v.to_owned())))),
    boolean(&["replay_no_stall"], set!(no_stall = values::flag)),
];

const RATE_PROCESSES: [(&str, RateProcess); 2] = [("linear", RateProcess::Linear), ("poisson", RateProcess::Poisson)];
const CPU_POLICIES: [(&str, CpuPolicy); 2] = [("shared", CpuPolicy::Shared), ("split", CpuPolicy::Split)];

/// fio separates the values of reads, writes and trims by commas; where there is none, by colons or dashes.
fn separators(text: &str) -> Result<&'static [char], Bad> {
    if text.contains(',') {
        return Ok(&[',']);
    }
    values::no_sign(text)?;
    Ok(&[':', '-'])
}

fn merge<T>(place: &mut PerOp<Option<T>>, given: PerOp<Option<T>>) {
    place.read = given.read.or(place.read.take());
    place.write = given.write.or(place.write.take());
    place.trim = given.trim.or(place.trim.take());
}

fn merge_plain<T: Copy>(place: &mut PerOp<T>, given: PerOp<Option<T>>) {
    place.read = given.read.unwrap_or(place.read);
    place.write = given.write.unwrap_or(place.write);
    place.trim = given.trim.unwrap_or(place.trim);
}

/// `directory`: one. fio deals several out to the threads of a job.
fn directory(text: &str) -> Result<String, Bad> {
    if text.contains(':') { Err(format!("'{text}': several directories; give each job its own filename")) } else { Ok(text.to_owned()) }
}

/// `filesize`: how large each file is. fio gives each a random size of a range.
fn filesize(text: &str) -> Result<Amount, Bad> {
    match text.contains(['-', ':']) {
        true => Err(format!("'{text}': a range is a random size for each file, and devices have the size that they have; give one size")),
        false => values::amount(text),
    }
}

fn depth(text: &str) -> Result<u32, Bad> {
    Ok(values::within(text, 0, MOST_DEPTH)? as u32)
}

fn ioengine(text: &str) -> Result<Option<String>, Bad> {
    let name = text.split([',', ':']).next().unwrap_or(text);
    if !Engine::does_block_io(name) {
        return Err(format!("ioengine={name} does no block I/O, and Reap does nothing else"));
    }
    if name == "external" || known::ENGINES.contains(&name) {
        return Ok(Some(text.to_owned()));
    }
    Err(match units::nearest(name, known::ENGINES.iter().copied()) {
        Some(near) => format!("'{text}' is no I/O engine of fio; did you mean '{near}'?"),
        None => format!("'{text}' is no I/O engine of fio"),
    })
}

/// `rw`: a name, and perhaps a number after a colon.
fn pattern(text: &str) -> Result<Pattern, Bad> {
    let (name, step) = match text.split_once(':') {
        Some((name, step)) => (name.trim(), Some(step.trim())),
        None => (text, None),
    };
    let (direction, random) = match name {
        "read" => (Direction::Read, false),
        "write" => (Direction::Write, false),
        "rw" | "readwrite" => (Direction::Mixed, false),
        "randread" => (Direction::Read, true),
        "randwrite" => (Direction::Write, true),
        "randrw" => (Direction::Mixed, true),
        "trim" => (Direction::Trim, false),
        "randtrim" => (Direction::Trim, true),
        "trimwrite" => (Direction::TrimWrite, false),
        "randtrimwrite" => (Direction::TrimWrite, true),
        _ => {
            let names =
                ["read", "write", "rw", "readwrite", "randread", "randwrite", "randrw", "trim", "randtrim", "trimwrite", "randtrimwrite"];
            return Err(match units::nearest(name, names) {
                Some(near) => format!("'{name}' is no pattern; did you mean '{near}'?"),
                None => format!("'{name}' is none of {}", names.join(", ")),
            });
        }
    };
    let step = match step {
        None => i64::from(random),
        Some(step) if random => values::within(step, 1, u64::from(u32::MAX))? as i64,
        Some(step) => match step.strip_prefix('-') {
            Some(back) => -(values::within(back, 0, 1 << 62)? as i64),
            None => values::within(step, 0, 1 << 62)? as i64,
        },
    };
    Ok(Pattern { direction, random, step })
}

/// `random_distribution`: a name, and what it needs after a colon.
fn distribution(text: &str) -> Result<Distribution, Bad> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name.trim(), Some(rest.trim())),
        None => (text, None),
    };
    let figure = |usual: &str, least: f64, most: f64| {
        let text = rest.unwrap_or(usual);
        match text.parse::<f64>() {
            Ok(value) if value > least && value <= most => Ok(value),
            _ => Err(format!("'{text}': {name} takes a number above {least}, at most {most}")),
        }
    };
    match name {
        "random" => Ok(Distribution::Uniform),
        // What fio takes if none is given.
        "zipf" => match figure("1.2", 0.0, 100.0)? {
            1.0 => Err("the exponent of zipf must not be 1".into()),
            theta => Ok(Distribution::Zipf { theta }),
        },
        "pareto" => figure("0.2", 0.0, 0.999).map(|h| Distribution::Pareto { h }),
        "normal" | "gauss" => figure("10", 0.0, 100.0).map(|percent| Distribution::Normal { percent }),
        "zoned" | "zoned_abs" | "sequence" => Err(refused(&format!("random_distribution={name}"))),
        _ => Err(format!("'{name}' is none of random, zipf, pareto, normal")),
    }
}

/// `startdelay`: a time, or a range of times.
fn start_delay(text: &str) -> Result<(Nanos, Nanos), Bad> {
    values::no_sign(text)?;
    match text.split_once([',', '-', ':']) {
        Some((a, b)) => {
            let (a, b) = (values::time(a.trim())?, values::time(b.trim())?);
            Ok((a.min(b), a.max(b)))
        }
        None => values::time(text).map(|t| (t, t)),
    }
}

fn random_generator(text: &str) -> Result<RandomGenerator, Bad> {
    choose(
        text,
        &[("tausworthe", RandomGenerator::Tausworthe), ("lfsr", RandomGenerator::Lfsr), ("tausworthe64", RandomGenerator::Tausworthe64)],
    )
}

/// `verify`: how to verify, if at all.
fn verify(text: &str) -> Result<Option<VerifyKind>, Bad> {
    if text == "0" {
        return Ok(None);
    }
    let names = || VerifyKind::ALL.map(VerifyKind::name).join(", ");
    match VerifyKind::from_name(text) {
        Some(kind) => Ok(Some(kind)),
        None if known::CHECKSUMS.contains(&text) => Err(refused(&format!("verify={text}"))),
        None => Err(format!("'{text}' is no way to verify; Reap has {}", names())),
    }
}

/// fio takes the option without a name as well: the file is then named after the job.
fn log_name(text: &str) -> String {
    if text == "1" { String::new() } else { text.to_owned() }
}
