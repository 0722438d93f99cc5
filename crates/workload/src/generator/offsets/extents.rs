//! Which part of each target a job thread uses: `size`, `offset`, `nrfiles` and percentages,
//! computed as fio does. Also the checks that the job fits its targets.

use super::random_map::{Bitmap, Shuffle};
use super::{FileCursor, RandomOffsets, Skew};
use crate::job::{Amount, Distribution, Iolog, IologStep, Job, PerOp, RandomGenerator};
use rand::Rng;
use rand_distr::{Normal, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Op;

/// A job that cannot run on its targets, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job '{job}': {why}")]
pub struct JobError {
    job: String,
    why: String,
}

impl JobError {
    pub(in crate::generator) fn of(job: &Job, why: String) -> JobError {
        JobError { job: job.name.clone(), why }
    }
}

/// A device or file that a job thread runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSize {
    /// The target's size in bytes.
    pub bytes: u64,
    /// Logical block size in bytes; every offset and length is a multiple of it.
    pub block: u32,
    /// For a file that is created for the run: its size in bytes when the thread is set up
    /// ([`crate::plan::Thread::sizes_at_setup`]). `None`: the target exists and keeps its size.
    pub size_at_setup: Option<u64>,
}

/// The part of one file that a thread uses, in bytes. A percentage is of the size that the file has
/// when a pass begins, so the first pass may start at another offset than later passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Start of the first pass.
    pub first: u64,
    /// Start of the later passes.
    pub start: u64,
    /// Bytes from the start of the pass in which an I/O may start.
    pub len: u64,
    /// Size of the file that this thread assumes; no I/O goes beyond it.
    pub end: u64,
}

/// The smallest block size of all operations, including operations that the job does not issue. fio
/// aligns offsets and sizes to it.
fn min_block(job: &Job) -> u64 {
    job.block.read.min.min(job.block.write.min).min(job.block.trim.min).max(1)
}

/// The extents that thread `subjob` of `job` uses of files with these `sizes` in bytes, and the
/// maximum bytes of one pass, as in fio (`setup_files` in its filesetup.c). `grows(i)`: file `i` is
/// created for the run, and grows to the size that the job needs.
pub(crate) fn extents(
    job: &Job,
    subjob: u32,
    sizes: &[u64],
    grows: impl Fn(usize) -> bool,
) -> Result<(Vec<Extent>, u64), JobError> {
    let least = min_block(job);
    let (size, percent) = match job.size {
        Some(Amount::Bytes(bytes)) => (bytes, 100),
        Some(Amount::Percent(percent @ 1..)) => (0, percent),
        _ => (0, 100),
    };
    let io_percent = match job.io_size {
        Some(Amount::Percent(percent @ 1..)) => percent,
        _ => 100,
    };
    // The parser has checked absolute sizes, but the simulator creates jobs without the parser.
    if size > 0 && size < least {
        return Err(JobError::of(
            job,
            format!("size {size} is less than the smallest block, {least}"),
        ));
    }
    if size == 0 && job.file_size.is_none() && sizes.iter().all(|bytes| *bytes == 0) {
        return Err(JobError::of(job, "the file does not exist; give `size=` to create it".into()));
    }
    let by_share = [job.offset, job.offset_increment]
        .iter()
        .any(|amount| matches!(amount, Amount::Percent(1..)));
    let start = |has: u64| {
        let offset = job
            .offset
            .on(has)
            .saturating_add(job.offset_increment.on(has).saturating_mul(u64::from(subjob)));
        // A percentage need not be a multiple of the block size: round up.
        if by_share { offset.checked_next_multiple_of(least).unwrap_or(offset) } else { offset }
    };
    let (mut files, mut total) = (Vec::with_capacity(sizes.len()), 0u64);
    let each = size / sizes.len().max(1) as u64;
    // As in fio, the first files get one more block each, from the remainder of size=.
    let mut longer = (size - each * sizes.len() as u64) / least;
    for (index, &has) in sizes.iter().enumerate() {
        let first = start(has);
        let reaches = |end: u64| {
            let beyond = || {
                JobError::of(
                    job,
                    format!(
                        "offset {first} is beyond the {end} bytes that the file has; give a valid offset="
                    ),
                )
            };
            end.checked_sub(first).ok_or_else(beyond)
        };
        let mut len = match job.file_size {
            // fio does not check a file that an earlier thread has laid out.
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
        // size=N% is a share of the whole file, rounded down to a multiple of the block.
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
        return Err(JobError::of(
            job,
            format!("size {size} is less than one block of {least} bytes"),
        ));
    }
    Ok((files, size))
}

/// A cursor for each file of thread `subjob`, and the bytes of a pass. A target is one file, or is
/// divided into `nrfiles` files.
pub(super) fn cursors(
    job: &Job,
    subjob: u32,
    targets: &[TargetSize],
    unit: u64,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<(Vec<FileCursor>, u64), JobError> {
    if targets.is_empty() {
        return Err(JobError::of(job, "there is no device to run on".into()));
    }
    // The I/Os of read_iolog have absolute offsets: size= and offset= do not apply.
    if let Some(list) = &job.iolog {
        let cursor = |(index, target): (usize, &TargetSize)| {
            listed(job, list, *target)?;
            cursor(
                job,
                0,
                Extent { first: 0, start: 0, len: target.bytes, end: target.bytes },
                index as u16,
                rng,
            )
        };
        return Ok((targets.iter().enumerate().map(cursor).collect::<Result<_, _>>()?, u64::MAX));
    }
    let sizes: Vec<u64> =
        targets.iter().map(|target| target.size_at_setup.unwrap_or(target.bytes)).collect();
    let (files, mut size) =
        extents(job, subjob, &sizes, |index| targets[index].size_at_setup.is_some())?;
    // With filename_format each file is a target.
    let parts = if job.file_format.is_some() { 1 } else { u64::from(job.files.max(1)) };
    let longest =
        job.pattern.direction.ops().iter().map(|op| job.block.get(*op).min).max().unwrap_or(unit);
    let mut cursors = Vec::with_capacity(targets.len());
    for ((index, target), extent) in targets.iter().enumerate().zip(files) {
        fits(job, *target)?;
        aligned(job, "offset", extent.first, *target)?;
        aligned(job, "offset", extent.start, *target)?;
        if job.pattern.step < 0 {
            aligned(job, "with a step backwards, size", extent.len.min(extent.end), *target)?;
        }
        let room = extent.end.saturating_sub(extent.first).min(extent.len);
        // A new file may be too small for one block. As in fio it then has no I/O, without an
        // error.
        if (target.size_at_setup.is_none() && room / parts < longest)
            || extent.end / u64::from(target.block) * u64::from(target.block) > target.bytes
        {
            return Err(no_room(job, extent.first, room / parts, *target, longest));
        }
        if parts == 1 {
            cursors.push(cursor(job, 0, extent, index as u16, rng)?);
            continue;
        }
        // The files of nrfiles= divide the device's extent evenly.
        let len = room / parts / unit * unit;
        size = size.min(len * parts * targets.len() as u64);
        for part in 0..parts {
            let piece = Extent { first: 0, start: 0, len, end: len };
            cursors.push(cursor(job, extent.first + part * len, piece, index as u16, rng)?);
        }
    }
    Ok((cursors, size))
}

/// The cursor of one file, which starts at byte `base` of its target.
fn cursor(
    job: &Job,
    base: u64,
    extent: Extent,
    target: u16,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<FileCursor, JobError> {
    let align = PerOp::of(|op| match *job.align.get(op) {
        0 => job.block.get(op).min.max(1),
        align => align,
    });
    let most = extent.len.min(extent.end);
    let blocks = PerOp::of(|op| {
        let (align, min) = (*align.get(op), job.block.get(op).min);
        most.saturating_sub(min.saturating_sub(align)) / align
    });
    let mut cursor = FileCursor {
        base,
        extent,
        target,
        align,
        blocks,
        random: random_offsets(job, &align, most, rng)?,
        left: 0,
        start: extent.first,
        done: false,
        next: PerOp::all(0),
        last: PerOp::all(None),
    };
    cursor.open();
    Ok(cursor)
}

/// The error for an extent smaller than one block.
fn no_room(job: &Job, offset: u64, room: u64, target: TargetSize, block: u64) -> JobError {
    let why = format!(
        "from offset {offset} it uses {room} bytes of a device of {} bytes, less than one block of {block} bytes",
        target.bytes
    );
    JobError::of(job, why)
}

/// Checks that `bytes` is a multiple of the logical block size.
fn aligned(job: &Job, what: &str, bytes: u64, target: TargetSize) -> Result<(), JobError> {
    if bytes.is_multiple_of(u64::from(target.block.max(1))) {
        return Ok(());
    }
    Err(JobError::of(
        job,
        format!("{what} {bytes} is not a multiple of the device's block of {} bytes", target.block),
    ))
}

/// Checks the length of an I/O.
fn check_length(job: &Job, what: &str, bytes: u64, target: TargetSize) -> Result<(), JobError> {
    if bytes == 0 || bytes > 1 << 31 {
        return Err(JobError::of(job, format!("{what} {bytes}: an I/O has from 1 byte to 2 GiB")));
    }
    aligned(job, what, bytes, target)
}

/// Checks the job's block sizes and steps against the target's blocks.
fn fits(job: &Job, target: TargetSize) -> Result<(), JobError> {
    for op in job.pattern.direction.ops() {
        let sizes = job.block.get(*op);
        aligned(job, "blockalign", *job.align.get(*op), target)?;
        for bytes in sizes.split.iter().map(|(bytes, _)| *bytes).chain([sizes.min, sizes.max]) {
            check_length(job, "block size", bytes, target)?;
        }
    }
    let step = if job.pattern.random { 0 } else { job.pattern.step.unsigned_abs() };
    aligned(job, "the step after the colon of rw", step, target)
}

/// How random offsets are chosen within `bytes` bytes.
fn random_offsets(
    job: &Job,
    align: &PerOp<u64>,
    bytes: u64,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<RandomOffsets, JobError> {
    if !job.pattern.random {
        return Ok(RandomOffsets::Any);
    }
    let (ops, block) = (job.pattern.direction.ops(), &job.block);
    let blocks = bytes / ops.iter().map(|op| block.get(*op).min).min().unwrap_or(1);
    match &job.distribution {
        Distribution::Uniform => {}
        Distribution::Zipf { theta } => {
            let zipf = Zipf::new(blocks as f64, *theta);
            return Ok(
                zipf.map_or(RandomOffsets::Any, |zipf| RandomOffsets::Skewed(Skew::Zipf(zipf)))
            );
        }
        Distribution::Pareto { h } => {
            return Ok(RandomOffsets::Skewed(Skew::Pareto(h.ln() / (1.0 - h).ln())));
        }
        Distribution::Normal { percent } => {
            let normal = Normal::new(blocks as f64 / 2.0, blocks as f64 * percent / 100.0);
            return Ok(normal
                .map_or(RandomOffsets::Any, |normal| RandomOffsets::Skewed(Skew::Normal(normal))));
        }
    }
    if !job.random_map && job.random_generator != RandomGenerator::Lfsr {
        return Ok(RandomOffsets::Any);
    }
    // With blockalign= I/Os overlap blocks of fio's random map, so that some are visited twice.
    if ops.iter().any(|op| *align.get(*op) != block.get(*op).min) {
        return Ok(RandomOffsets::Any);
    }
    let first = ops.first().map_or(0, |op| block.get(*op).min);
    let alike = ops.iter().all(|op| block.get(*op).is_fixed() && block.get(*op).min == first);
    // fio issues the next free block of its map, so fio's order needs the map.
    let by_map = job.verify.is_some() && job.random_generator != RandomGenerator::Lfsr;
    if alike && !by_map {
        return Ok(RandomOffsets::Shuffle(Shuffle::new(blocks, rng.next_u64())));
    }
    // Checked, as it limits the memory of the bitmap.
    if blocks > MAX_MAPPED {
        let why = format!(
            "a random map of {blocks} blocks is too large; give norandommap, or one block size only"
        );
        return Err(JobError::of(job, why));
    }
    Ok(RandomOffsets::Bitmap(Bitmap::new(if by_map { bytes / min_block(job) } else { blocks })))
}

/// Checks the I/Os of `read_iolog` against the target's size and blocks.
fn listed(job: &Job, list: &Iolog, target: TargetSize) -> Result<(), JobError> {
    for step in &list.steps {
        if let IologStep::Io { op, offset, len, .. } = *step
            && op != Op::Flush
        {
            check_length(job, "an I/O of read_iolog:", len, target)?;
            aligned(job, "an I/O of read_iolog:", offset, target)?;
            if offset.checked_add(len).is_none_or(|end| end > target.bytes) {
                return Err(no_room(job, offset, target.bytes.saturating_sub(offset), target, len));
            }
        }
    }
    Ok(())
}

/// Maximum number of blocks of a [`Bitmap`], which then takes 512 MiB.
const MAX_MAPPED: u64 = 1 << 32;
