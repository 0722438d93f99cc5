//! The table of supported options: their names, their parsers, and the fields of [`Job`] that they
//! set. [`JobBuilder`] collects the options of a section and checks their combinations.

/// An option's `set` function that assigns the result of a parser to a field.
macro_rules! set {
    ($($place:ident).+ = $parse:expr) => {
        |draft, text| {
            let parse: fn(&str) -> Result<_, ValueError> = $parse;
            draft.$($place).+ = parse(text)?;
            Ok(())
        }
    };
}

use super::values::{self, ValueError};
use super::{Argument, known};
use crate::job::{
    Amount, BlockSizes, Distribution, Job, Measure, Pattern, PerOp, RandomGenerator, Rate,
    RateProcess, Think, Unified, Verify, VerifyKind,
};
use units::{Nanos, Op};

/// The option of that name.
pub(super) fn find(name: &str) -> Option<&'static Opt> {
    OPTIONS.iter().find(|option| option.names.contains(&name))
}

/// The names of all options of fio, for suggestions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS
        .iter()
        .flat_map(|option| option.names)
        .copied()
        .chain(known::OPTIONS.iter().copied())
        .chain(known::REFUSED.iter().map(|(name, _)| *name))
}

/// A supported option.
pub(super) struct Opt {
    /// Name and synonyms.
    pub names: &'static [&'static str],
    pub argument: Argument,
    /// Applies a value; "1" if the option was given without a value.
    pub set: fn(&mut JobBuilder, &str) -> Result<(), ValueError>,
}

/// An option that needs a value.
const fn value(
    names: &'static [&'static str],
    set: fn(&mut JobBuilder, &str) -> Result<(), ValueError>,
) -> Opt {
    Opt { names, argument: Argument::Required, set }
}

/// An option whose value may be missing, which means 1.
const fn flag(
    names: &'static [&'static str],
    set: fn(&mut JobBuilder, &str) -> Result<(), ValueError>,
) -> Opt {
    Opt { names, argument: Argument::Optional, set }
}

/// The value that `choices` has for the word `text`.
fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, ValueError> {
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("'{text}' is not one of {}", names.join(", "))
    })
}

/// The error for an option or value of fio that is not supported.
pub(super) fn unsupported(what: &str) -> ValueError {
    format!("`reap run` does not support `{what}`; see docs/fio-jobs.md")
}

/// Default units of times, in nanoseconds.
const SECOND: u64 = 1_000_000_000;
const MICROSECOND: u64 = 1_000;
/// Maximum number of job threads, as in fio.
pub(super) const MAX_JOBS: u64 = 4096;
/// Maximum number of commands in an NVMe queue.
const MAX_DEPTH: u64 = 65_535;

static OPTIONS: &[Opt] = &[
    value(&["name"], set!(job.name = |v| Ok(v.to_owned()))),
    value(&["description"], set!(job.description = |v| Ok(Some(v.to_owned())))),
    value(&["ioengine"], set!(job.engine.name = ioengine)),
    flag(&["hipri"], set!(job.engine.hipri = values::flag)),
    // Files and buffers of a ring are always registered.
    flag(&["fixedbufs"], |_, v| values::flag(v).map(|_| ())),
    flag(&["registerfiles"], |_, v| values::flag(v).map(|_| ())),
    flag(&["sqthread_poll"], set!(job.engine.sqthread_poll = values::flag)),
    // Which I/Os.
    value(&["rw", "readwrite"], set!(job.pattern = pattern)),
    value(&["rwmixread"], set!(job.read_percent = |v| values::small(v, 0, 100))),
    value(
        &["rwmixwrite"],
        set!(job.read_percent = |v| values::small(v, 0, 100).map(|percent| 100 - percent)),
    ),
    value(&["bs", "blocksize"], |d, v| {
        sizes(
            d,
            0,
            values::per_op(v, separators(v)?, |v| {
                values::within(v, 1, u64::MAX).map(BlockSizes::fixed)
            })?,
        )
    }),
    value(&["bsrange", "blocksize_range"], |d, v| {
        sizes(d, 1, values::per_op(v, &[','], values::range)?)
    }),
    value(&["bssplit"], |d, v| sizes(d, 2, values::per_op(v, &[','], values::split)?)),
    // Where.
    value(&["filename"], set!(job.filenames = values::filenames)),
    value(&["directory"], set!(job.directory = |v| directory(v).map(Some))),
    value(&["filename_format"], set!(job.file_format = |v| Ok(Some(v.to_owned())))),
    value(&["nrfiles", "nr_files"], set!(job.files = |v| values::small(v, 1, 1024))),
    value(&["filesize"], set!(job.file_size = |v| filesize(v).map(Some))),
    value(&["size"], set!(job.size = |v| values::amount(v).map(Some))),
    value(&["offset", "fileoffset"], set!(job.offset = values::amount)),
    value(&["offset_increment"], set!(job.offset_increment = values::amount)),
    value(&["io_size", "io_limit"], set!(job.io_size = |v| values::amount(v).map(Some))),
    value(
        &["number_ios"],
        set!(job.number_ios = |v| values::number(v).map(|n| (n > 0).then_some(n))),
    ),
    value(&["loops"], set!(job.loops = |v| Ok(values::number(v)?.max(1)))),
    // No device goes through the page cache, and jobs are always threads.
    value(&["direct", "buffered"], |_, v| values::flag(v).map(|_| ())),
    flag(&["thread", "threads"], |_, v| values::flag(v).map(|_| ())),
    // How many at once.
    value(&["iodepth"], set!(job.iodepth = |v| values::small(v, 1, MAX_DEPTH))),
    value(&["iodepth_low"], set!(job.iodepth_low = |v| values::small(v, 0, MAX_DEPTH))),
    value(
        &["iodepth_batch", "iodepth_batch_submit"],
        set!(job.batch_submit = |v| values::small(v, 0, MAX_DEPTH)),
    ),
    value(
        &["iodepth_batch_complete_min", "iodepth_batch_complete"],
        set!(job.complete_min = |v| values::small(v, 0, MAX_DEPTH)),
    ),
    value(
        &["iodepth_batch_complete_max"],
        set!(job.complete_max = |v| values::small(v, 0, MAX_DEPTH)),
    ),
    value(&["serialize_overlap"], set!(job.serialize_overlap = values::flag)),
    // Flushes.
    value(&["fsync"], set!(job.sync_every = |v| values::small(v, 0, i32::MAX as u64))),
    value(&["fdatasync"], set!(job.data_sync_every = |v| values::small(v, 0, i32::MAX as u64))),
    value(&["end_fsync", "fsync_on_close"], set!(job.sync_at_end = values::flag)),
    // How long.
    value(&["numjobs"], set!(job.numjobs = |v| values::small(v, 1, MAX_JOBS))),
    value(
        &["runtime", "timeout"],
        set!(job.runtime = |v| Ok(Some(values::time(v, SECOND)?).filter(|t| *t > Nanos::ZERO))),
    ),
    flag(&["time_based"], set!(job.time_based = values::flag)),
    value(&["ramp_time"], set!(job.ramp_time = |v| values::time(v, SECOND))),
    value(&["startdelay"], set!(job.start_delay = start_delay)),
    // Random numbers.
    flag(&["norandommap"], set!(job.random_map = |v| values::flag(v).map(|off| !off))),
    value(
        &["random_generator"],
        set!(
            job.random_generator = |v| {
                use RandomGenerator::{Lfsr, Tausworthe, Tausworthe64};
                choose(
                    v,
                    &[("tausworthe", Tausworthe), ("lfsr", Lfsr), ("tausworthe64", Tausworthe64)],
                )
            }
        ),
    ),
    value(&["random_distribution"], set!(job.distribution = distribution)),
    value(&["blockalign", "ba"], |d, v| {
        merge(&mut d.job.align, values::per_op(v, &[','], |v| values::within(v, 1, 1 << 62))?)
    }),
    value(&["randrepeat"], set!(job.repeatable = values::flag)),
    value(&["randseed"], set!(job.seed = |v| values::number(v).map(Some))),
    // Rates.
    value(&["rate"], |d, v| merge(&mut d.rate, values::per_op(v, separators(v)?, values::number)?)),
    value(&["rate_iops"], |d, v| {
        merge(&mut d.rate_iops, values::per_op(v, separators(v)?, values::number)?)
    }),
    value(
        &["rate_process"],
        set!(
            job.rate_process = |v| choose(
                v,
                &[("linear", RateProcess::Linear), ("poisson", RateProcess::Poisson)]
            )
        ),
    ),
    // Threads, groups, order.
    value(&["cpus_allowed"], set!(job.cpus_allowed = |v| units::cpus(v).map(Some))),
    value(
        &["cpus_allowed_policy"],
        set!(job.cpus_split = |v| choose(v, &[("shared", false), ("split", true)])),
    ),
    flag(&["group_reporting"], set!(job.group_reporting = values::flag)),
    flag(&["new_group"], set!(job.new_group = values::flag)),
    flag(&["stonewall", "wait_for_previous"], set!(job.stonewall = values::flag)),
    flag(&["exitall"], set!(job.exitall = values::flag)),
    // Completion. fio has no such option.
    flag(&["reap_urgent"], set!(job.urgent = values::flag)),
    // Verification.
    value(&["verify"], set!(verify = |v| verify(v).map(Some))),
    value(&["verify_pattern"], set!(checks.pattern = |v| values::fill_pattern(v).map(Some))),
    value(
        &["verify_interval"],
        set!(checks.interval = |v| values::within(v, 1, 1 << 31).map(Some)),
    ),
    value(&["verify_offset"], set!(checks.offset = |v| values::small(v, 0, 1 << 31))),
    value(&["verify_fatal"], set!(checks.fatal = values::flag)),
    value(&["verify_backlog"], set!(checks.backlog = values::number)),
    value(&["verify_backlog_batch"], set!(checks.backlog_batch = values::number)),
    value(&["do_verify"], set!(checks.after_write = values::flag)),
    flag(&["verify_only"], set!(checks.only = values::flag)),
    value(&["verify_header_seed"], set!(checks.header_seed = |v| values::flag(v).map(Some))),
    // Measurement.
    value(&["gtod_reduce"], |d, v| {
        let reduce = values::flag(v)?;
        d.job.measure = Measure { slat: !reduce, clat: !reduce, lat: !reduce, ..d.job.measure };
        Ok(())
    }),
    value(&["disable_lat"], set!(job.measure.lat = |v| values::flag(v).map(|off| !off))),
    value(&["disable_clat"], set!(job.measure.clat = |v| values::flag(v).map(|off| !off))),
    value(&["disable_slat"], set!(job.measure.slat = |v| values::flag(v).map(|off| !off))),
    value(&["lat_percentiles"], set!(job.measure.lat_percentiles = values::flag)),
    value(&["clat_percentiles"], set!(job.measure.clat_percentiles = values::flag)),
    value(&["slat_percentiles"], set!(job.measure.slat_percentiles = values::flag)),
    value(
        &["unified_rw_reporting"],
        set!(
            job.unified = |v| {
                use Unified::{Both, Mixed, No};
                choose(
                    v,
                    &[
                        ("none", No),
                        ("0", No),
                        ("mixed", Mixed),
                        ("1", Mixed),
                        ("both", Both),
                        ("2", Both),
                    ],
                )
            }
        ),
    ),
    value(&["percentile_list"], |d, v| {
        (d.job.percentiles, d.job.percentile_precision) = values::percentiles(v)?;
        Ok(())
    }),
    // Pauses.
    value(&["thinktime"], set!(think.time = |v| values::time(v, MICROSECOND))),
    value(&["thinktime_spin"], set!(think.spin = |v| values::time(v, MICROSECOND))),
    value(&["thinktime_blocks"], set!(think.blocks = values::number)),
    // Errors that do not end a job.
    value(&["continue_on_error"], |d, v| {
        let (none, all) = ((false, false), (true, true));
        let (read, write) = choose(
            v,
            &[
                ("none", none),
                ("0", none),
                ("read", (true, false)),
                ("write", (false, true)),
                ("io", all),
                ("verify", none),
                ("all", all),
                ("1", all),
            ],
        )?;
        d.job.continue_on_error = PerOp { read, write, trim: write };
        Ok(())
    }),
    value(
        &["sync"],
        set!(
            job.sync_writes = |v| choose(
                v,
                &[("0", false), ("none", false), ("1", true), ("sync", true), ("dsync", true)]
            )
        ),
    ),
    // Logs, and lists of I/Os.
    flag(&["write_bw_log"], set!(job.logs.bandwidth = |v| Ok(Some(v.to_owned())))),
    flag(&["write_lat_log"], set!(job.logs.latency = |v| Ok(Some(v.to_owned())))),
    flag(&["write_iops_log"], set!(job.logs.iops = |v| Ok(Some(v.to_owned())))),
    value(
        &["log_avg_msec"],
        set!(job.logs.average = |v| values::within(v, 0, 1 << 40).map(Nanos::from_millis)),
    ),
    value(&["write_iolog"], set!(job.write_iolog = |v| Ok(Some(v.to_owned())))),
    value(&["read_iolog"], set!(iolog = |v| Ok(Some(v.to_owned())))),
    value(&["replay_no_stall"], set!(no_stall = values::flag)),
];

/// The separators between values for reads, writes and trims: commas if there are any, else colons
/// and dashes.
fn separators(text: &str) -> Result<&'static [char], ValueError> {
    if text.contains(',') {
        return Ok(&[',']);
    }
    values::no_sign(text)?;
    Ok(&[':', '-'])
}

/// Overwrites the values in `place` that were given; the other values stay.
fn merge<T: Copy>(place: &mut PerOp<T>, given: PerOp<Option<T>>) -> Result<(), ValueError> {
    *place = PerOp::of(|op| given.get(op).unwrap_or(*place.get(op)));
    Ok(())
}

/// Sets block sizes. As in fio `bssplit` (rank 2) overrides `bsrange` (rank 1), which overrides
/// `bs` (rank 0), in whichever order they are given.
fn sizes(
    draft: &mut JobBuilder,
    rank: u8,
    given: PerOp<Option<BlockSizes>>,
) -> Result<(), ValueError> {
    for (op, sizes) in
        [(Op::Read, given.read), (Op::Write, given.write), (Op::Deallocate, given.trim)]
    {
        if let Some(sizes) = sizes.filter(|_| rank >= *draft.block_rank.get(op)) {
            *draft.job.block.get_mut(op) = sizes;
            *draft.block_rank.get_mut(op) = rank;
        }
    }
    Ok(())
}

/// `directory`. fio distributes several directories over the threads of a job, which is not
/// supported.
fn directory(text: &str) -> Result<String, ValueError> {
    if text.contains(':') {
        Err(format!("'{text}' names several directories; give one, or each job its own filename"))
    } else {
        Ok(text.to_owned())
    }
}

/// `filesize`. In fio a range gives each file a random size, which is not supported.
fn filesize(text: &str) -> Result<u64, ValueError> {
    match text.contains(['-', ':']) {
        true => Err(format!(
            "'{text}': a range of sizes, one at random for each file, is not supported; give one size"
        )),
        false => values::within(text, 1, u64::MAX),
    }
}

/// `ioengine`: any block engine of fio, with its parameters.
fn ioengine(text: &str) -> Result<Option<String>, ValueError> {
    let name = text.split([',', ':']).next().unwrap_or(text);
    if known::OTHER_ENGINES.contains(&name) {
        return Err(format!("ioengine={name} does no block I/O"));
    }
    if known::ENGINES.contains(&name) {
        return Ok(Some(text.to_owned()));
    }
    let near = units::nearest_name(name, known::ENGINES.iter().copied())
        .map_or(String::new(), |near| format!("; did you mean '{near}'?"));
    Err(format!("'{text}' is not an fio I/O engine{near}"))
}

/// `rw`: a name, and an optional number after a colon.
fn pattern(text: &str) -> Result<Pattern, ValueError> {
    let (name, step) = match text.split_once(':') {
        Some((name, step)) => (name.trim(), Some(step.trim())),
        None => (text, None),
    };
    let known = Pattern::NAMES.iter().find(|(known, ..)| *known == name);
    let &(_, direction, random) = known.ok_or_else(|| {
        let names = Pattern::NAMES.map(|(name, ..)| name);
        let near = units::nearest_name(name, names)
            .map_or(String::new(), |near| format!("; did you mean '{near}'?"));
        format!("'{name}' is not one of {}{near}", names.join(", "))
    })?;
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

/// `random_distribution`: a name, and an optional parameter after a colon.
fn distribution(text: &str) -> Result<Distribution, ValueError> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name.trim(), Some(rest.trim())),
        None => (text, None),
    };
    let figure = |usual: &str, above: f64, max: f64| {
        let text = rest.unwrap_or(usual);
        match text.parse::<f64>() {
            Ok(value) if value > above && value <= max => Ok(value),
            _ => Err(format!("'{text}': {name} takes a number above {above} and at most {max}")),
        }
    };
    match name {
        "random" => Ok(Distribution::Uniform),
        // The defaults are fio's.
        "zipf" => match figure("1.2", 0.0, 100.0)? {
            1.0 => Err("the exponent of zipf must not be 1".into()),
            theta => Ok(Distribution::Zipf { theta }),
        },
        "pareto" => figure("0.2", 0.0, 0.999).map(|h| Distribution::Pareto { h }),
        "normal" | "gauss" => {
            figure("10", 0.0, 100.0).map(|percent| Distribution::Normal { percent })
        }
        _ => Err(unsupported(&format!("random_distribution={name}"))),
    }
}

/// `startdelay`: a time, or a range of times.
fn start_delay(text: &str) -> Result<(Nanos, Nanos), ValueError> {
    values::no_sign(text)?;
    let (a, b) = text.split_once([',', '-', ':']).unwrap_or((text, text));
    let (a, b) = (values::time(a.trim(), SECOND)?, values::time(b.trim(), SECOND)?);
    Ok((a.min(b), a.max(b)))
}

/// `verify`: the kind of verification; `None`: `verify=0`, no verification.
fn verify(text: &str) -> Result<Option<VerifyKind>, ValueError> {
    let known = VerifyKind::ALL.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
    if known.is_some() || text == "0" {
        Ok(known)
    } else {
        Err(unsupported(&format!("verify={text}")))
    }
}

/// The options of a section parsed so far, on top of those of `[global]`.
#[derive(Clone, Debug, Default)]
pub(super) struct JobBuilder {
    /// Options that need no further checks.
    pub job: Job,
    /// Rank of the option that set the block sizes: see [`sizes`].
    pub block_rank: PerOp<u8>,
    /// `rate` in bytes per second; 0: none.
    pub rate: PerOp<u64>,
    /// `rate_iops`; 0: none.
    pub rate_iops: PerOp<u64>,
    /// `verify`, if it was given. Without it `verify_pattern` alone turns verification on.
    pub verify: Option<Option<VerifyKind>>,
    /// The `verify_…` options and `do_verify`.
    pub checks: Verify,
    /// `thinktime`, `thinktime_spin`, `thinktime_blocks`.
    pub think: Think,
    /// `read_iolog`, `replay_no_stall`.
    pub iolog: Option<String>,
    pub no_stall: bool,
}

impl JobBuilder {
    /// The job of section `name`. Adds errors and warnings about combinations of options.
    pub fn finish(
        self,
        name: &str,
        errors: &mut Vec<ValueError>,
        warnings: &mut Vec<String>,
    ) -> Job {
        let mut job = self.job;
        if job.name.is_empty() {
            job.name = name.to_owned();
        }
        // In fio 0 means no rate. If both `rate` and `rate_iops` are given, an error follows below.
        job.rate = PerOp::of(|op| match (*self.rate.get(op), *self.rate_iops.get(op)) {
            (0, 0) => None,
            (0, iops) => Some(Rate::Iops(iops)),
            (bytes, _) => Some(Rate::Bytes(bytes)),
        });
        let any = |rates: &PerOp<u64>| (rates.read | rates.write | rates.trim) != 0;
        if any(&self.rate) && any(&self.rate_iops) {
            errors.push("rate and rate_iops exclude each other".into());
        }
        let kind = self
            .verify
            .unwrap_or_else(|| self.checks.pattern.as_ref().map(|_| VerifyKind::PatternHeader));
        job.verify = kind.map(|kind| Verify { kind, ..self.checks.clone() });
        if job.verify.is_none() && self.checks.only && job.pattern.writes() {
            errors.push("verify_only needs verify=".into());
        }
        name_files(&mut job);
        let shared = |format: &String| !format.to_ascii_lowercase().contains("$jobnum");
        if let Some(format) =
            job.file_format.as_ref().filter(|format| job.numjobs > 1 && shared(format))
        {
            // In fio only the first thread would do I/O, which is hardly intended.
            errors.push(unsupported(&format!(
                "numjobs={} with filename_format={format}, which lacks $jobnum,",
                job.numjobs
            )));
        }
        let Think { time, spin, blocks } = self.think;
        // thinktime_spin is at most the whole pause, and thinktime_blocks=0 means 1, as in fio.
        job.think = (time > Nanos::ZERO).then_some(Think {
            time,
            spin: spin.min(time),
            blocks: blocks.max(1),
        });
        for place in [&mut job.logs.bandwidth, &mut job.logs.latency, &mut job.logs.iops] {
            // The option was given without a value: fio then names the file after the job.
            if place.as_deref() == Some("1") {
                *place = Some(job.name.clone());
            }
        }
        let engine = job.engine.name.as_deref();
        let ring = matches!(engine, Some("io_uring" | "io_uring_cmd"));
        let given = [
            ("hipri", job.engine.hipri, ring || engine == Some("pvsync2")),
            ("sqthread_poll", job.engine.sqthread_poll, ring),
        ];
        for (name, ..) in given.iter().filter(|(_, set, has)| *set && !has) {
            warnings.push(format!("{name} is an option of ioengine=io_uring in fio"));
        }
        if job.time_based && job.runtime.is_none() {
            job.time_based = false;
            warnings.push("time_based needs a runtime; it is ignored".into());
        }
        let least = job.block.read.min.min(job.block.write.min).min(job.block.trim.min);
        // Percentages are checked when the size of the device is known.
        if let Some(Amount::Bytes(size)) = job.size
            && (1..least).contains(&size)
            && job.iolog.is_none()
        {
            errors.push(format!("size {size} is less than the smallest block, {least}"));
        }
        if let Some(verify) = &job.verify {
            verified(&job, verify, errors, warnings);
        }
        job
    }
}

/// Adds errors and warnings about a job that verifies.
fn verified(job: &Job, verify: &Verify, errors: &mut Vec<ValueError>, warnings: &mut Vec<String>) {
    let pattern = matches!(verify.kind, VerifyKind::Pattern | VerifyKind::PatternHeader);
    if pattern && verify.pattern.is_none() {
        errors.push(format!("verify={} needs verify_pattern=", verify.kind.name()));
    }
    // The following concerns jobs that write and read back.
    if !job.pattern.writes() {
        return;
    }
    if verify.only && !verify.after_write {
        errors.push("verify_only and do_verify=0 exclude each other".into());
    }
    // The option with which Reap draws offsets from its own generator, in another order than fio's.
    let own_order = match job.distribution {
        Distribution::Zipf { .. } => Some("random_distribution=zipf"),
        Distribution::Pareto { .. } | Distribution::Normal { .. } => {
            Some("this random_distribution")
        }
        Distribution::Uniform => {
            Some("random_generator=lfsr").filter(|_| job.random_generator == RandomGenerator::Lfsr)
        }
    };
    if let Some(option) = own_order.filter(|_| verify.only && job.pattern.random) {
        let message = format!(
            "verify_only: with {option} fio visits blocks in another order than Reap; blocks that fio wrote can only be checked if it has written all of them"
        );
        warnings.push(message);
    }
    let checks = verify.after_write && !verify.only;
    if checks
        && job.time_based
        && !job.pattern.reads()
        && job.size.is_none()
        && job.io_size.is_none()
    {
        warnings
            .push("writes may take the whole runtime, so that verification never starts".into());
    }
}

/// Puts `directory` before the job's file names, or sets the format for names of each thread.
fn name_files(job: &mut Job) {
    // As in fio, `directory` is put before absolute paths, too.
    let directory = job.directory.clone();
    let within = |name: &str| match &directory {
        Some(place) => format!("{}/{name}", place.trim_end_matches('/')),
        None => name.to_owned(),
    };
    if !job.filenames.is_empty() {
        job.filenames.iter_mut().for_each(|name| *name = within(name));
        // filename= overrides nrfiles= and filename_format=, as in fio.
        (job.files, job.file_format) = (1, None);
    } else if directory.is_some() || job.file_format.is_some() {
        job.file_format =
            Some(within(job.file_format.as_deref().unwrap_or("$jobname.$jobnum.$filenum")));
    }
}
