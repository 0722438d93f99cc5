//! What of its devices a job thread uses, and why it may not be able to.

use super::cover::{Bitmap, Shuffle};
use super::place::Region;
use super::walk::{Choice, Skew, Walk};
use crate::job::{Amount, Distribution, Iolog, IologStep, Job, PerOp, RandomGenerator};
use rand::Rng;
use rand_distr::{Normal, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Op;

/// Why a job cannot run on the devices it is given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// No device at all.
    #[error("job '{job}' has no device to run on")]
    NoTarget {
        /// The job's name.
        job: String,
    },
    /// The region has no room for one block.
    #[error(
        "job '{job}': from offset {offset} on, {room} bytes of a device of {device} bytes may be used: not even one block of {block} bytes"
    )]
    NoRoom {
        /// The job's name.
        job: String,
        /// Where the region starts.
        offset: u64,
        /// Bytes of the region.
        room: u64,
        /// Bytes of the device.
        device: u64,
        /// Smallest I/O in bytes.
        block: u64,
    },
    /// A size or offset is no multiple of the device's block.
    #[error("job '{job}': {what} {bytes} is not a multiple of the device's block of {unit} bytes")]
    Unaligned {
        /// The job's name.
        job: String,
        /// The option.
        what: &'static str,
        /// Its value in bytes.
        bytes: u64,
        /// The device's block in bytes.
        unit: u32,
    },
    /// A single I/O is longer than 2 GiB.
    #[error("job '{job}': an I/O of {bytes} bytes is more than the 2 GiB that one may have")]
    TooLong {
        /// The job's name.
        job: String,
        /// The size in bytes.
        bytes: u64,
    },
    /// A random map for I/Os of several lengths needs a bit for each block.
    #[error("job '{job}': a random map of {blocks} blocks is too large; give norandommap, or one block size only")]
    MapTooLarge {
        /// The job's name.
        job: String,
        /// Blocks of the device.
        blocks: u64,
    },
    /// The header of a verified block does not fit.
    #[error("job '{job}': a verified block of {bytes} bytes has no room for its header of {header} bytes, verify_offset {at}, and data")]
    VerifyInterval {
        /// The job's name.
        job: String,
        /// Bytes per header.
        bytes: u64,
        /// Bytes of a header.
        header: usize,
        /// Where in the block it stands.
        at: u32,
    },
    /// Reads are checked block by block.
    #[error("job '{job}': verified blocks have {bytes} bytes, and a read of {read} bytes is no whole number of them; give verify_interval")]
    VerifyRead {
        /// The job's name.
        job: String,
        /// Bytes per header.
        bytes: u64,
        /// Bytes of the read.
        read: u64,
    },
    /// The header would stand upon itself.
    #[error("job '{job}': verify_offset {at} lies within the header of {header} bytes; it has to be at least as large")]
    VerifyOffset {
        /// The job's name.
        job: String,
        /// Bytes of a header.
        header: usize,
        /// `verify_offset`.
        at: u32,
    },
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
        return Err(Misfit::NoTarget { job: job.name.clone() });
    }
    Ok(walks)
}

/// The way through one region.
fn walk(job: &Job, region: Region, target: u16, unit: u64, rng: &mut Xoshiro256PlusPlus) -> Result<Walk, Misfit> {
    let align_of = |op: Op| match *job.align.get(op) {
        0 => job.block.get(op).min.max(1),
        align => align,
    };
    let align = PerOp { read: align_of(Op::Read), write: align_of(Op::Write), trim: align_of(Op::Deallocate) };
    let blocks_of = |op: Op| match region.len.checked_sub(job.block.get(op).min) {
        Some(last) => last / align.get(op) + 1,
        None => 1,
    };
    let blocks = PerOp { read: blocks_of(Op::Read), write: blocks_of(Op::Write), trim: blocks_of(Op::Deallocate) };
    let choice = choice(job, &align, region.len / unit, rng)?;
    Ok(Walk { region, target, align, blocks, choice, next: PerOp::both(0) })
}

fn no_room(job: &Job, offset: u64, room: u64, target: Target, block: u64) -> Misfit {
    Misfit::NoRoom { job: job.name.clone(), offset, room, device: target.bytes, block }
}

/// The region of one target, checked against the device.
fn region(job: &Job, subjob: u32, targets: u64, target: Target, unit: u64) -> Result<Region, Misfit> {
    let aligned = |what, bytes: u64| match bytes % u64::from(target.block.max(1)) {
        0 => Ok(()),
        _ => Err(Misfit::Unaligned { job: job.name.clone(), what, bytes, unit: target.block }),
    };
    for op in job.pattern.direction.ops().iter().filter(|_| job.iolog.is_none()) {
        let sizes = job.block.get(*op);
        if *job.align.get(*op) > 0 {
            aligned("blockalign", *job.align.get(*op))?;
        }
        for bytes in sizes.split.iter().map(|(bytes, _)| *bytes).chain([sizes.min, sizes.max]) {
            aligned("block size", bytes)?;
            if bytes == 0 {
                return Err(Misfit::Unaligned { job: job.name.clone(), what: "block size", bytes, unit: target.block });
            }
            if bytes > 1 << 31 {
                return Err(Misfit::TooLong { job: job.name.clone(), bytes });
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
        return Err(Misfit::MapTooLarge { job: job.name.clone(), blocks });
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
            return Err(Misfit::Unaligned { job: job.name.clone(), what: "an I/O of read_iolog:", bytes, unit: target.block });
        }
        if *len > 1 << 31 {
            return Err(Misfit::TooLong { job: job.name.clone(), bytes: *len });
        }
        if offset.checked_add(*len).is_none_or(|end| end > target.bytes) {
            return Err(no_room(job, *offset, target.bytes.saturating_sub(*offset), target, *len));
        }
    }
    Ok(Region { start: 0, len: room })
}

/// Most blocks of a [`Bitmap`]: 512 MiB of bits.
const MOST_MAPPED: u64 = 1 << 32;
