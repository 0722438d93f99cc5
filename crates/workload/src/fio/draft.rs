//! A section being read: options in any order become a [`Job`] once all are known.

use super::values::Bad;
use crate::job::{Amount, Backlog, BlockSizes, Distribution, Job, PerOp, RandomGenerator, Rate, Think, Verify, VerifyKind};
use units::Nanos;

/// The options of a section as far as they were read, on top of the `[global]` ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    /// What needs no second thought.
    pub job: Job,
    /// `bs`.
    pub bs: PerOp<Option<u64>>,
    /// `bsrange`: stands above `bs`, whichever came first.
    pub range: PerOp<Option<(u64, u64)>>,
    /// `bssplit`: stands above both.
    pub split: PerOp<Option<Vec<(u64, u32)>>>,
    /// `rate`, in bytes per second; 0 is none.
    pub rate: PerOp<u64>,
    /// `rate_iops`.
    pub rate_iops: PerOp<u64>,
    /// `verify`, and whether it was given: `verify_pattern` alone is a way to verify, too.
    pub verify: Option<VerifyKind>,
    pub verify_given: bool,
    /// The options beside `verify`.
    pub checks: Verify,
    /// `directory`: where names of files are looked for.
    pub directory: Option<String>,
    /// `filesize`: how far I/Os reach, where `size` is how much of it there is.
    pub filesize: Option<Amount>,
    /// `verify_backlog`, `verify_backlog_batch`.
    pub backlog_writes: u64,
    pub backlog_batch: u64,
    /// `thinktime` and its kin; without a time there is no pause.
    pub think: Think,
    /// `read_iolog`, `replay_no_stall`.
    pub iolog: Option<String>,
    pub no_stall: bool,
}

/// What is wrong, or odd, about the options taken together.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    pub errors: Vec<Bad>,
    pub warnings: Vec<String>,
}

impl Draft {
    /// The job of section `name`.
    pub fn finish(self, name: &str) -> (Job, Remarks) {
        let mut remarks = Remarks::default();
        let mut job = self.job;
        if job.name.is_empty() {
            job.name = name.to_owned();
        }
        job.block = PerOp {
            read: sizes(self.bs.read, self.range.read, self.split.read),
            write: sizes(self.bs.write, self.range.write, self.split.write),
            trim: sizes(self.bs.trim, self.range.trim, self.split.trim),
        };
        job.rate = PerOp {
            read: rate(self.rate.read, self.rate_iops.read),
            write: rate(self.rate.write, self.rate_iops.write),
            trim: rate(self.rate.trim, self.rate_iops.trim),
        };
        let any = |rates: &PerOp<u64>| (rates.read | rates.write | rates.trim) != 0;
        if any(&self.rate) && any(&self.rate_iops) {
            remarks.errors.push("rate and rate_iops exclude each other".into());
        }
        let kind = match self.verify {
            None if !self.verify_given && self.checks.pattern.is_some() => Some(VerifyKind::PatternHeader),
            kind => kind,
        };
        let (writes, batch) = (self.backlog_writes, self.backlog_batch);
        let backlog = (writes > 0).then_some(Backlog { writes, batch: if batch == 0 { writes } else { batch } });
        job.verify = kind.map(|kind| Verify { kind, backlog, ..self.checks.clone() });
        if job.verify.is_none() && self.checks.only && job.pattern.writes() {
            remarks.errors.push("verify_only needs verify=: without it nothing would be done".into());
        }
        name_files(&mut job, self.directory.as_deref());
        if let Some(extent) = self.filesize {
            let files = u64::from(job.files) * job.filenames.len().max(1) as u64;
            let extent = match extent {
                Amount::Bytes(each) => Amount::Bytes(each.saturating_mul(files)),
                Amount::Percent(_) => extent,
            };
            // fio's size is the I/O of a job, over all its files; alone it is their extent as well.
            if let Some(Amount::Bytes(all)) = job.size.replace(extent) {
                job.io_size = job.io_size.or(Some(Amount::Bytes(all)));
            }
        }
        let Think { time, spin, blocks } = self.think;
        job.think = (time > Nanos::ZERO).then_some(Think { time, spin: spin.min(time), blocks: blocks.max(1) });
        for (place, name) in
            [(&mut job.logs.bandwidth, "write_bw_log"), (&mut job.logs.latency, "write_lat_log"), (&mut job.logs.iops, "write_iops_log")]
        {
            // fio names the file after the job, if the option is a name alone.
            if place.as_deref() == Some("") {
                *place = Some(job.name.clone());
            }
            if place.as_ref().is_some_and(|place| place.contains('\0')) {
                remarks.errors.push(format!("{name}: that is no name of a file"));
            }
        }
        let foreign = job.engine.foreign_options();
        if !foreign.is_empty() {
            let engine = job.engine.name.as_deref().map_or("no ioengine".into(), |name| format!("ioengine={name}"));
            remarks.warnings.push(format!("{}: not an option of {engine} in fio; it is ignored", foreign.join(", ")));
        }
        consistent(&mut job, &mut remarks);
        (job, remarks)
    }
}

/// What fio checks when it has read a section.
fn consistent(job: &mut Job, remarks: &mut Remarks) {
    if job.time_based && job.runtime.is_none() {
        job.time_based = false;
        remarks.warnings.push("time_based needs a runtime; it is ignored".into());
    }
    let least = job.pattern.direction.ops().iter().map(|op| job.block.get(*op).min).min().unwrap_or(1);
    if let Some(Amount::Bytes(size)) = job.size
        && size < least
        && job.iolog.is_none()
    {
        remarks.errors.push(format!("size {size} is less than the smallest block, {least}"));
    }
    if let Some(verify) = &job.verify {
        verified(job, verify, remarks);
    }
}

/// What is wrong or odd about a job that verifies.
fn verified(job: &Job, verify: &Verify, remarks: &mut Remarks) {
    let pattern = matches!(verify.kind, VerifyKind::Pattern | VerifyKind::PatternHeader);
    if pattern && verify.pattern.is_none() {
        remarks.errors.push(format!("verify={} needs verify_pattern=", verify.kind.name()));
    }
    if !job.pattern.writes() {
        return;
    }
    if verify.only && !verify.after_write {
        remarks.errors.push("verify_only and do_verify=0 exclude each other".into());
    }
    let own_order = match job.distribution {
        Distribution::Zipf { .. } => Some("random_distribution=zipf"),
        Distribution::Pareto { .. } | Distribution::Normal { .. } => Some("this random_distribution"),
        Distribution::Uniform => Some("random_generator=lfsr").filter(|_| job.random_generator == RandomGenerator::Lfsr),
    };
    if let Some(option) = own_order.filter(|_| verify.only && job.pattern.random) {
        let message =
            format!("verify_only: with {option} fio visits blocks in another order; what fio wrote is checked if it is all there");
        remarks.warnings.push(message);
    }
    let checks = verify.after_write && !verify.only;
    if checks && job.time_based && !job.pattern.reads() && job.size.is_none() && job.io_size.is_none() {
        remarks.warnings.push("the writing may take all of the runtime, so that verification never starts".into());
    }
}

fn sizes(bs: Option<u64>, range: Option<(u64, u64)>, split: Option<Vec<(u64, u32)>>) -> BlockSizes {
    match (bs, range, split) {
        (_, _, Some(split)) if !split.is_empty() => {
            let (least, most) = split.iter().fold((u64::MAX, 0), |(a, b), (bytes, _)| (a.min(*bytes), b.max(*bytes)));
            BlockSizes { min: least, max: most, split }
        }
        (_, Some((min, max)), _) => BlockSizes { min, max, split: Vec::new() },
        (bs, ..) => BlockSizes::fixed(bs.unwrap_or(4096)),
    }
}

fn rate(bytes: u64, iops: u64) -> Option<Rate> {
    match (bytes, iops) {
        (0, 0) => None,
        (0, iops) => Some(Rate::Iops(iops)),
        (bytes, _) => Some(Rate::Bytes(bytes)),
    }
}

/// The names of a job's files: within `directory`, or made for each thread.
fn name_files(job: &mut Job, directory: Option<&str>) {
    // As fio does it: before an absolute path as well.
    let within = |name: &str| match directory {
        Some(place) => format!("{}/{name}", place.trim_end_matches('/')),
        None => name.to_owned(),
    };
    if !job.filenames.is_empty() {
        job.filenames.iter_mut().for_each(|name| *name = within(name));
        // fio then has these files, and no others.
        (job.files, job.file_format) = (1, None);
    } else if directory.is_some() || job.file_format.is_some() {
        job.file_format = Some(within(job.file_format.as_deref().unwrap_or("$jobname.$jobnum.$filenum")));
    }
}
