//! What of its devices a job thread uses, and why it may not be able to.

use super::super::io::Region;
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
}

/// The ways of thread `subjob` through its targets: each whole, or as many files as the job has there.
pub(super) fn walks(job: &Job, subjob: u32, targets: &[Target], unit: u64, rng: &mut Xoshiro256PlusPlus) -> Result<Vec<Walk>, Misfit> {
    // Files with names of their own are targets.
    let files = if job.file_format.is_some() { 1 } else { u64::from(job.files.max(1)) };
    let mut walks = Vec::with_capacity(targets.len());
    for (index, target) in targets.iter().enumerate() {
        let whole = region(job, subjob, targets.len() as u64, *target, unit)?;
        let len = if files == 1 { whole.len } else { whole.len / files / unit * unit };
        if len == 0 {
            return Err(no_room(job, whole.start, whole.len / files, *target, unit));
        }
        for file in 0..files {
            walks.push(walk(job, Region { start: whole.start + file * len, len }, index as u16, unit, rng)?);
        }
    }
    if walks.is_empty() {
        return Err(Misfit::of(job, "there is no device to run on".into()));
    }
    Ok(walks)
}

/// The way through one region.
fn walk(job: &Job, region: Region, target: u16, unit: u64, rng: &mut Xoshiro256PlusPlus) -> Result<Walk, Misfit> {
    let align_of = |op: Op| match *job.align.get(op) {
        0 => job.block.get(op).min.max(1),
        align => align,
    };
    let align = PerOp::of(align_of);
    let blocks = PerOp::of(|op| match region.len.checked_sub(job.block.get(op).min) {
        Some(last) => last / align.get(op) + 1,
        None => 1,
    });
    let choice = choice(job, &align, region.len / unit, rng)?;
    Ok(Walk { region, target, align, blocks, choice, next: PerOp::both(0) })
}

fn no_room(job: &Job, offset: u64, room: u64, target: Target, block: u64) -> Misfit {
    let device = target.bytes;
    let used = format!("from offset {offset} on, {room} bytes of a device of {device} bytes may be used");
    Misfit::of(job, format!("{used}: not even one block of {block} bytes"))
}

fn unaligned(job: &Job, what: &str, bytes: u64, target: Target) -> Misfit {
    Misfit::of(job, format!("{what} {bytes} is not a multiple of the device's block of {} bytes", target.block))
}

fn too_long(job: &Job, bytes: u64) -> Misfit {
    Misfit::of(job, format!("an I/O of {bytes} bytes is more than the 2 GiB that one may have"))
}

/// The region of one target, checked against the device.
fn region(job: &Job, subjob: u32, targets: u64, target: Target, unit: u64) -> Result<Region, Misfit> {
    let aligned = |what, bytes: u64| {
        if bytes.is_multiple_of(u64::from(target.block.max(1))) { Ok(()) } else { Err(unaligned(job, what, bytes, target)) }
    };
    for op in job.pattern.direction.ops().iter().filter(|_| job.iolog.is_none()) {
        let sizes = job.block.get(*op);
        if *job.align.get(*op) > 0 {
            aligned("blockalign", *job.align.get(*op))?;
        }
        for bytes in sizes.split.iter().map(|(bytes, _)| *bytes).chain([sizes.min, sizes.max]) {
            aligned("block size", bytes)?;
            if bytes == 0 {
                return Err(unaligned(job, "block size", bytes, target));
            }
            if bytes > 1 << 31 {
                return Err(too_long(job, bytes));
            }
        }
    }
    let step = job.offset_increment.on(target.bytes).saturating_mul(u64::from(subjob));
    let start = job.offset.on(target.bytes).saturating_add(step);
    // A percentage lands anywhere: fio rounds it down to a block, and so do we. Bytes are what the user wrote.
    let start = if matches!(job.offset, Amount::Percent(_)) { start / unit * unit } else { start };
    aligned("offset", start)?;
    let room = target.bytes.saturating_sub(start);
    let size = job.size.map_or(room, |size| match size {
        Amount::Bytes(all) => all / targets,
        Amount::Percent(_) => size.on(target.bytes),
    });
    if let Some(list) = &job.iolog {
        return listed(job, list, room, target);
    }
    let block = u64::from(target.block.max(1));
    let len = size.min(room) / block * block;
    let block = job.pattern.direction.ops().iter().map(|op| job.block.get(*op).min).max().unwrap_or(unit);
    if len < block {
        return Err(no_room(job, start, len, target, block));
    }
    if !job.pattern.random && job.pattern.step != 0 {
        aligned("the step after the colon of rw", job.pattern.step.unsigned_abs())?;
    }
    Ok(Region { start, len })
}

/// How random offsets are chosen among `blocks` blocks.
fn choice(job: &Job, align: &PerOp<u64>, blocks: u64, rng: &mut Xoshiro256PlusPlus) -> Result<Choice, Misfit> {
    if !job.pattern.random {
        return Ok(Choice::Any);
    }
    let (ops, block) = (job.pattern.direction.ops(), &job.block);
    match &job.distribution {
        Distribution::Uniform => {}
        Distribution::Zipf { theta } => {
            let zipf = Zipf::new(blocks as f64, *theta);
            return Ok(zipf.map_or(Choice::Any, |zipf| Choice::Skewed(Skew::Zipf(zipf, Shuffle::new(blocks, rng.next_u64())))));
        }
        Distribution::Pareto { h } => {
            let power = h.ln() / (1.0 - h).ln();
            return Ok(Choice::Skewed(Skew::Pareto(power, Shuffle::new(blocks, rng.next_u64()))));
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
    Ok(Choice::Bitmap(Bitmap::new(blocks)))
}

/// The region of a job whose I/Os a list says: all of the device, if they fit it.
fn listed(job: &Job, list: &Iolog, room: u64, target: Target) -> Result<Region, Misfit> {
    for step in &list.steps {
        let IologStep::Io { op, offset, len, .. } = step else { continue };
        if *op == Op::Flush {
            continue;
        }
        let block = u64::from(target.block.max(1));
        if *len == 0 || len % block != 0 || offset % block != 0 {
            let bytes = if *len == 0 || len % block != 0 { *len } else { *offset };
            return Err(unaligned(job, "an I/O of read_iolog:", bytes, target));
        }
        if *len > 1 << 31 {
            return Err(too_long(job, *len));
        }
        if offset.checked_add(*len).is_none_or(|end| end > target.bytes) {
            return Err(no_room(job, *offset, target.bytes.saturating_sub(*offset), target, *len));
        }
    }
    Ok(Region { start: 0, len: room })
}

/// Most blocks of a [`Bitmap`]: 512 MiB of bits.
const MOST_MAPPED: u64 = 1 << 32;
