//! What of its devices a job thread uses, and why it may not be able to.

use super::cover::{Bitmap, Shuffle};
use super::{Choice, Skew, Walk};
use crate::job::{Amount, Distribution, Iolog, IologStep, Job, PerOp, RandomGenerator};
use rand::Rng;
use rand_distr::{Normal, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Op;

/// Why a job cannot run on the devices it is given, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job '{job}': {why}")]
pub struct Misfit {
    job: String,
    why: String,
}

impl Misfit {
    pub(in crate::generator) fn of(job: &Job, why: String) -> Misfit {
        Misfit { job: job.name.clone(), why }
    }
}

/// A device that a job runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its size in bytes.
    pub bytes: u64,
    /// Its logical block in bytes; every offset and length is a multiple.
    pub block: u32,
    /// Of a file that is laid out for the run: its bytes when it was the thread's turn to set it up
    /// ([`crate::plan::Thread::found`]). `None`: it has `bytes`, whatever the job says.
    pub found: Option<u64>,
}

/// The part of one file that a thread uses. Numbers that a percentage is part of are of what the file has at the time, so that the first
/// pass may begin elsewhere than those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where the first pass begins.
    pub first: u64,
    /// Where the passes after it begin.
    pub start: u64,
    /// Bytes from there on in which an I/O may begin.
    pub len: u64,
    /// No I/O goes beyond: the size of the file, as far as the thread knows.
    pub end: u64,
}

/// The shortest block of all operations, those that the job does not issue too: what fio aligns by.
fn least(job: &Job) -> u64 {
    job.block.read.min.min(job.block.write.min).min(job.block.trim.min).max(1)
}

/// What thread `subjob` of `job` uses of files that have these bytes when it is set up, and the bytes that one pass issues at most: fio's
/// `size` once it knows the files. `grows`: of each, whether it is laid out as far as the job goes. As fio does it (`setup_files` in its
/// filesetup.c).
pub(crate) fn extents(job: &Job, subjob: u32, found: &[u64], grows: impl Fn(usize) -> bool) -> Result<(Vec<Extent>, u64), Misfit> {
    let least = least(job);
    let (size, percent) = match job.size {
        Some(Amount::Bytes(bytes)) => (bytes, 100),
        Some(Amount::Percent(percent @ 1..)) => (0, percent),
        _ => (0, 100),
    };
    let io_percent = match job.io_size {
        Some(Amount::Percent(percent @ 1..)) => percent,
        _ => 100,
    };
    if size > 0 && size < least {
        return Err(Misfit::of(job, format!("size {size} is less than the smallest block, {least}")));
    }
    if size == 0 && job.file_size.is_none() && found.iter().all(|bytes| *bytes == 0) {
        return Err(Misfit::of(job, "there is no such file; `size=` lays one out".into()));
    }
    let by_share = [job.offset, job.offset_increment].iter().any(|amount| matches!(amount, Amount::Percent(1..)));
    let start = |has: u64| {
        let offset = job.offset.on(has).saturating_add(job.offset_increment.on(has).saturating_mul(u64::from(subjob)));
        // A percentage lands anywhere: up to the next block.
        if by_share { offset.checked_next_multiple_of(least).unwrap_or(offset) } else { offset }
    };
    let (mut files, mut total) = (Vec::with_capacity(found.len()), 0u64);
    let each = size / found.len().max(1) as u64;
    let mut longer = (size - each * found.len() as u64) / least;
    for (index, &has) in found.iter().enumerate() {
        let first = start(has);
        let reaches = |end: u64| {
            let beyond = || Misfit::of(job, format!("offset {first} is beyond the {end} bytes that the file has; give a valid offset="));
            end.checked_sub(first).ok_or_else(beyond)
        };
        let mut len = match job.file_size {
            // What an earlier thread laid out is not looked at again.
            Some(bytes) if bytes == has && first > has => {
                total = u64::MAX;
                files.push(Extent { first, start: start(has), len: 0, end: has });
                continue;
            }
            Some(bytes) => reaches(bytes)?,
            None if size > 0 && longer > 0 => {
                longer -= 1;
                each + least
            }
            None if each > 0 => each,
            None => reaches(has)?,
        };
        if percent != 100 {
            let whole = first.saturating_add(len);
            len = Amount::Percent(percent).on(whole).min(whole - first);
            len -= len % least;
        }
        total = total.saturating_add(Amount::Percent(io_percent).on(len));
        let end = if grows(index) { has.max(first.saturating_add(len)) } else { has };
        files.push(Extent { first, start: start(end), len, end });
    }
    let size = if size == 0 || (total > 0 && size > total) { total } else { size };
    if size < least {
        return Err(Misfit::of(job, format!("not even one block of {least} bytes is in what it may use, {size} bytes")));
    }
    Ok((files, size))
}

/// The ways of thread `subjob` through its targets: each whole, or as many files as the job has there; and the bytes of a pass.
pub(super) fn walks(
    job: &Job,
    subjob: u32,
    targets: &[Target],
    unit: u64,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<(Vec<Walk>, u64), Misfit> {
    if targets.is_empty() {
        return Err(Misfit::of(job, "there is no device to run on".into()));
    }
    if let Some(list) = &job.iolog {
        let walk = |(index, target): (usize, &Target)| {
            listed(job, list, *target)?;
            walk(job, 0, Extent { first: 0, start: 0, len: target.bytes, end: target.bytes }, index as u16, rng)
        };
        return Ok((targets.iter().enumerate().map(walk).collect::<Result<_, _>>()?, u64::MAX));
    }
    let found: Vec<u64> = targets.iter().map(|target| target.found.unwrap_or(target.bytes)).collect();
    let (files, mut size) = extents(job, subjob, &found, |index| targets[index].found.is_some())?;
    // Files with names of their own are targets.
    let parts = if job.file_format.is_some() { 1 } else { u64::from(job.files.max(1)) };
    let longest = job.pattern.direction.ops().iter().map(|op| job.block.get(*op).min).max().unwrap_or(unit);
    let mut walks = Vec::with_capacity(targets.len());
    for ((index, target), extent) in targets.iter().enumerate().zip(files) {
        fits(job, *target)?;
        aligned(job, "offset", extent.first, *target)?;
        aligned(job, "offset", extent.start, *target)?;
        if job.pattern.step < 0 {
            aligned(job, "with a step backwards, size", extent.len.min(extent.end), *target)?;
        }
        let room = extent.end.saturating_sub(extent.first).min(extent.len);
        // A file that is laid out for the job may well hold no block; nothing is done there then, as in fio.
        if (target.found.is_none() && room / parts < longest)
            || extent.end / u64::from(target.block) * u64::from(target.block) > target.bytes
        {
            return Err(no_room(job, extent.first, room / parts, *target, longest));
        }
        if parts == 1 {
            walks.push(walk(job, 0, extent, index as u16, rng)?);
            continue;
        }
        // Files that have no names share what the job uses of the device.
        let len = room / parts / unit * unit;
        size = size.min(len * parts * targets.len() as u64);
        for part in 0..parts {
            let piece = Extent { first: 0, start: 0, len, end: len };
            walks.push(walk(job, extent.first + part * len, piece, index as u16, rng)?);
        }
    }
    Ok((walks, size))
}

/// The way through one file, which begins at byte `base` of its target.
fn walk(job: &Job, base: u64, extent: Extent, target: u16, rng: &mut Xoshiro256PlusPlus) -> Result<Walk, Misfit> {
    let align = PerOp::of(|op| match *job.align.get(op) {
        0 => job.block.get(op).min.max(1),
        align => align,
    });
    let most = extent.len.min(extent.end);
    let blocks = PerOp::of(|op| {
        let (align, min) = (*align.get(op), job.block.get(op).min);
        most.saturating_sub(min.saturating_sub(align)) / align
    });
    let mut walk = Walk {
        base,
        extent,
        target,
        align,
        blocks,
        choice: choice(job, &align, most, rng)?,
        left: 0,
        start: extent.first,
        done: false,
        next: PerOp::both(0),
        last: PerOp::both(None),
    };
    walk.open();
    Ok(walk)
}

fn no_room(job: &Job, offset: u64, room: u64, target: Target, block: u64) -> Misfit {
    let device = target.bytes;
    let used = format!("from offset {offset} on, {room} bytes of a device of {device} bytes may be used");
    Misfit::of(job, format!("{used}: not even one block of {block} bytes"))
}

fn aligned(job: &Job, what: &str, bytes: u64, target: Target) -> Result<(), Misfit> {
    if bytes.is_multiple_of(u64::from(target.block.max(1))) {
        return Ok(());
    }
    Err(Misfit::of(job, format!("{what} {bytes} is not a multiple of the device's block of {} bytes", target.block)))
}

/// The same of the length of an I/O.
fn long(job: &Job, what: &str, bytes: u64, target: Target) -> Result<(), Misfit> {
    if bytes == 0 || bytes > 1 << 31 {
        return Err(Misfit::of(job, format!("{what} {bytes}: an I/O has from 1 byte to 2 GiB")));
    }
    aligned(job, what, bytes, target)
}

/// Whether the device has I/Os of the job's sizes.
fn fits(job: &Job, target: Target) -> Result<(), Misfit> {
    for op in job.pattern.direction.ops() {
        let sizes = job.block.get(*op);
        aligned(job, "blockalign", *job.align.get(*op), target)?;
        for bytes in sizes.split.iter().map(|(bytes, _)| *bytes).chain([sizes.min, sizes.max]) {
            long(job, "block size", bytes, target)?;
        }
    }
    let step = if job.pattern.random { 0 } else { job.pattern.step.unsigned_abs() };
    aligned(job, "the step after the colon of rw", step, target)
}

/// How random offsets are chosen among `bytes` bytes.
fn choice(job: &Job, align: &PerOp<u64>, bytes: u64, rng: &mut Xoshiro256PlusPlus) -> Result<Choice, Misfit> {
    if !job.pattern.random {
        return Ok(Choice::Any);
    }
    let (ops, block) = (job.pattern.direction.ops(), &job.block);
    let blocks = bytes / ops.iter().map(|op| block.get(*op).min).min().unwrap_or(1);
    match &job.distribution {
        Distribution::Uniform => {}
        Distribution::Zipf { theta } => {
            let zipf = Zipf::new(blocks as f64, *theta);
            return Ok(zipf.map_or(Choice::Any, |zipf| Choice::Skewed(Skew::Zipf(zipf))));
        }
        Distribution::Pareto { h } => {
            return Ok(Choice::Skewed(Skew::Pareto(h.ln() / (1.0 - h).ln())));
        }
        Distribution::Normal { percent } => {
            let bell = Normal::new(blocks as f64 / 2.0, blocks as f64 * percent / 100.0);
            return Ok(bell.map_or(Choice::Any, |bell| Choice::Skewed(Skew::Normal(bell))));
        }
    }
    if !job.random_map && job.random_generator != RandomGenerator::Lfsr {
        return Ok(Choice::Any);
    }
    // With another alignment fio's map does not keep blocks from being visited twice.
    if ops.iter().any(|op| *align.get(*op) != block.get(*op).min) {
        return Ok(Choice::Any);
    }
    let first = ops.first().map_or(0, |op| block.get(*op).min);
    let alike = ops.iter().all(|op| block.get(*op).is_fixed() && block.get(*op).min == first);
    // fio visits the next free block of a map; a shuffle has an order of its own.
    let by_map = job.verify.is_some() && job.random_generator != RandomGenerator::Lfsr;
    if alike && !by_map {
        return Ok(Choice::Shuffle(Shuffle::new(blocks, rng.next_u64())));
    }
    if blocks > MOST_MAPPED {
        let why = format!("a random map of {blocks} blocks is too large; give norandommap, or one block size only");
        return Err(Misfit::of(job, why));
    }
    Ok(Choice::Bitmap(Bitmap::new(if by_map { bytes / least(job) } else { blocks })))
}

/// Whether the I/Os of a list fit the device.
fn listed(job: &Job, list: &Iolog, target: Target) -> Result<(), Misfit> {
    for step in &list.steps {
        if let IologStep::Io { op, offset, len, .. } = *step
            && op != Op::Flush
        {
            long(job, "an I/O of read_iolog:", len, target)?;
            aligned(job, "an I/O of read_iolog:", offset, target)?;
            if offset.checked_add(len).is_none_or(|end| end > target.bytes) {
                return Err(no_room(job, offset, target.bytes.saturating_sub(offset), target, len));
            }
        }
    }
    Ok(())
}

/// Most blocks of a [`Bitmap`]: 512 MiB of bits.
const MOST_MAPPED: u64 = 1 << 32;
