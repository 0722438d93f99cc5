//! Where the next I/O goes and how long it is: the stream of a job thread. It never looks at the clock or at what
//! completes, so a clone of it replays the same I/Os, which is how written blocks are found again for verification.

mod cover;
mod mirror;
mod mirrored;

use super::pacing::Pacing;
use crate::job::{Amount, BlockSizes, Direction, Distribution, Job, PerOp, RandomGenerator};
use cover::{Bitmap, Shuffle};
pub(super) use mirror::Mirror;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Op;

/// The part of one target that a job thread uses, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// Length.
    pub len: u64,
}

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

/// Where and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub op: Op,
    pub target: u16,
    pub offset: u64,
    pub len: u32,
}

/// How random offsets are chosen within a target.
#[derive(Clone, Debug)]
enum Choice {
    /// Each block once per pass; all I/Os are one block.
    Shuffle(Shuffle),
    /// Each block once per pass; I/Os of several blocks.
    Bitmap(Bitmap),
    /// Any block at any time.
    Any,
    /// Popular blocks and others; the shuffle says which.
    Zipf(Zipf<f64>, Shuffle),
}

#[derive(Clone, Debug)]
struct Walk {
    region: Region,
    /// Whole blocks of each operation's smallest size.
    blocks: PerOp<u64>,
    choice: Choice,
    /// Sequential: where each operation goes next, relative to the region.
    next: PerOp<u64>,
}

/// The stream of one job thread's I/Os.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    rng: Xoshiro256PlusPlus,
    walks: Vec<Walk>,
    turn: usize,
    direction: Direction,
    /// Says whether a mixed job reads or writes next, if two rates do.
    pub turns: Option<Box<Pacing>>,
    /// Else a random number below this means a read.
    read_below: u32,
    random: bool,
    step: i64,
    /// One target, one operation of one size, at random places that do not depend on each other: nothing to choose but
    /// the block.
    plain: bool,
    /// Random with a step: I/Os until the next new offset.
    run_left: u64,
    block: PerOp<BlockSizes>,
    /// Smallest I/O in bytes.
    unit: u64,
    /// Longest one.
    longest: u64,
    /// The job verifies: fio's dice are thrown instead of `rng`.
    mirror: Option<Box<Mirror>>,
}

impl Stream {
    /// The stream of thread `subjob` (0 is the first) of `job`.
    pub fn new(job: &Job, subjob: u32, targets: &[Target], seed: u64) -> Result<Stream, Misfit> {
        let block = job.block.clone();
        let unit = match job.pattern.direction {
            Direction::Read => block.read.min,
            Direction::Write => block.write.min,
            Direction::Mixed => block.read.min.min(block.write.min),
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut walks = Vec::with_capacity(targets.len());
        for target in targets {
            let region = region(job, subjob, targets.len() as u64, *target, unit)?;
            let choice = choice(job, &block, region.len / unit, &mut rng)?;
            let blocks_of = |sizes: &BlockSizes| (region.len / sizes.min.max(1)).max(1);
            let blocks = PerOp { read: blocks_of(&block.read), write: blocks_of(&block.write) };
            walks.push(Walk { region, blocks, choice, next: PerOp::both(0) });
        }
        if walks.is_empty() {
            return Err(Misfit::NoTarget { job: job.name.clone() });
        }
        // A per cent of 2^32, so that 0 never reads and 100 always does.
        let read_below = (u64::from(job.read_percent.min(100)) * ((1 << 32) - 1) / 100) as u32;
        let fixed = match job.pattern.direction {
            Direction::Read => block.read.is_fixed(),
            Direction::Write => block.write.is_fixed(),
            Direction::Mixed => false,
        };
        let free = |walk: &Walk| matches!(walk.choice, Choice::Shuffle(_) | Choice::Any);
        let plain = fixed && walks.len() == 1 && walks.iter().all(free) && job.pattern.random && job.pattern.step <= 1;
        Ok(Stream {
            plain,
            rng,
            walks,
            turn: 0,
            direction: job.pattern.direction,
            turns: None,
            read_below,
            random: job.pattern.random,
            step: job.pattern.step,
            run_left: 0,
            longest: match job.pattern.direction {
                Direction::Read => block.read.max,
                Direction::Write => block.write.max,
                Direction::Mixed => block.read.max.max(block.write.max),
            },
            block,
            unit,
            mirror: None,
        })
    }

    /// The part of each target that is used, in the order of the targets.
    pub fn regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.walks.iter().map(|w| w.region)
    }

    /// Bytes of all regions.
    pub fn extent(&self) -> u64 {
        self.walks.iter().fold(0, |sum: u64, walk| sum.saturating_add(walk.region.len))
    }

    /// Whether `ios` I/Os of `bytes` bytes in all, from the start of a pass, touch no block twice.
    pub fn touches_once(&self, ios: u64, bytes: u64) -> bool {
        // fio's map of a mixed job is in blocks of two sizes.
        let odd = self.mirror.is_some() && self.direction == Direction::Mixed && self.block.read.min != self.block.write.min;
        let once = |walk: &Walk| matches!(walk.choice, Choice::Shuffle(_) | Choice::Bitmap(_)) && !odd;
        let ordered = if self.random { self.step <= 1 && self.walks.iter().all(once) } else { self.step == 0 };
        let room = |walk: &Walk| walk.region.len / self.unit * self.unit;
        ordered
            && match self.walks.as_slice() {
                [only] => bytes <= room(only),
                several => several.iter().all(|walk| ios.div_ceil(several.len() as u64).saturating_mul(self.longest) <= room(walk)),
            }
    }

    /// Starts a new pass: in order from the start, or over all blocks in another order.
    pub fn start_pass(&mut self) {
        self.run_left = 0;
        if let Some(mirror) = &mut self.mirror {
            mirror.start_pass();
            self.turn = 0;
        }
        for walk in &mut self.walks {
            walk.next = PerOp::both(0);
            match &mut walk.choice {
                Choice::Shuffle(shuffle) => shuffle.start_pass(),
                Choice::Bitmap(map) => map.start_pass(),
                Choice::Any | Choice::Zipf(..) => {}
            }
        }
    }

    /// How many I/Os at least it takes to issue `bytes` bytes.
    #[inline]
    pub fn least_ios(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.longest)
    }

    /// The next I/O.
    #[inline(always)] // It is what most jobs do all the time, and short.
    pub fn next(&mut self) -> Place {
        if self.plain
            && let [walk] = self.walks.as_mut_slice()
        {
            let op = if self.direction == Direction::Read { Op::Read } else { Op::Write };
            let block = match &mut walk.choice {
                Choice::Shuffle(shuffle) => shuffle.next(),
                _ => below(&mut self.rng, *walk.blocks.get(op)),
            };
            return Place { op, target: 0, offset: walk.region.start + block * self.unit, len: self.unit as u32 };
        }
        self.next_of_many()
    }

    #[inline(never)]
    fn next_of_many(&mut self) -> Place {
        if self.mirror.is_some()
            && let Some(place) = self.next_mirrored()
        {
            return place;
        }
        let op = match self.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Mixed if let Some(turns) = &self.turns => turns.turn(),
            Direction::Mixed if (self.rng.next_u64() >> 32) as u32 <= self.read_below && self.read_below > 0 => Op::Read,
            Direction::Mixed => Op::Write,
        };
        let sizes = self.block.get(op);
        let wanted = if sizes.min == sizes.max { sizes.min } else { varied(sizes, &mut self.rng) };
        let index = self.turn;
        self.turn = if index + 1 >= self.walks.len() { 0 } else { index + 1 };
        let walk = &mut self.walks[index];
        let (offset, len) = if !self.random {
            walk.sequential(op, wanted, sizes.min, self.step)
        } else if self.step > 1 && self.run_left > 0 {
            self.run_left -= 1;
            walk.sequential(op, wanted, sizes.min, 0)
        } else {
            self.run_left = self.step.max(1) as u64 - 1;
            let (offset, len) = walk.random(op, wanted, sizes.min, self.unit, &mut self.rng);
            *walk.next.get_mut(op) = offset + len;
            (offset, len)
        };
        if let Some(turns) = &mut self.turns {
            turns.issued(op, len as u32);
        }
        Place { op, target: index as u16, offset: walk.region.start + offset, len: len as u32 }
    }
}

impl Walk {
    /// The next place in order; around the end of the region if nothing of `min` bytes is left before it.
    #[inline]
    fn sequential(&mut self, op: Op, wanted: u64, min: u64, skip: i64) -> (u64, u64) {
        let (len, offset) = (self.region.len, self.begin_in_order(op, min));
        let left = len - offset;
        let bytes = if wanted <= left { wanted } else { left - left % min };
        let end = offset + bytes;
        *self.next.get_mut(op) = if skip == 0 { end } else { skipped(end, skip, len) };
        (offset, bytes)
    }

    /// Where that is.
    #[inline]
    fn begin_in_order(&self, op: Op, min: u64) -> u64 {
        let next = *self.next.get(op);
        if self.region.len.saturating_sub(next) < min { 0 } else { next }
    }

    /// A random place; shorter than wanted where the region ends, or the next blocks have been visited in this pass.
    #[inline]
    fn random(&mut self, op: Op, wanted: u64, min: u64, unit: u64, rng: &mut Xoshiro256PlusPlus) -> (u64, u64) {
        let (offset, most) = match &mut self.choice {
            Choice::Shuffle(shuffle) => return (shuffle.next() * unit, unit),
            Choice::Any => (below(rng, *self.blocks.get(op)) * min, wanted),
            Choice::Zipf(zipf, scatter) => {
                let rank = (zipf.sample(rng) as u64).clamp(1, scatter.len()) - 1;
                let offset = scatter.at(rank) * unit;
                (offset - offset % min, wanted)
            }
            Choice::Bitmap(map) => {
                let (block, blocks) = map.take(below(rng, map.len()), wanted / unit);
                (block * unit, blocks * unit)
            }
        };
        (offset, wanted.min(self.region.len - offset).min(most))
    }
}

/// A number below `n`, each as likely up to 2^-64.
#[inline]
fn below(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

/// `end + skip`, around the region's ends.
fn skipped(end: u64, skip: i64, len: u64) -> u64 {
    (i128::from(end) + i128::from(skip)).rem_euclid(i128::from(len.max(1))) as u64
}

/// A size of a job whose sizes vary.
fn varied(sizes: &BlockSizes, rng: &mut Xoshiro256PlusPlus) -> u64 {
    if sizes.split.is_empty() {
        return sizes.min * (1 + below(rng, sizes.max / sizes.min));
    }
    let mut percent = rng.random_range(0..100);
    for (bytes, share) in &sizes.split {
        if percent < *share {
            return *bytes;
        }
        percent -= share;
    }
    sizes.max
}

/// The region of one target, checked against the device.
fn region(job: &Job, subjob: u32, targets: u64, target: Target, unit: u64) -> Result<Region, Misfit> {
    let aligned = |what, bytes: u64| match bytes % u64::from(target.block.max(1)) {
        0 => Ok(()),
        _ => Err(Misfit::Unaligned { job: job.name.clone(), what, bytes, unit: target.block }),
    };
    for op in [Op::Read, Op::Write] {
        let used = if op == Op::Read { job.pattern.reads() } else { job.pattern.writes() };
        let sizes = job.block.get(op);
        for bytes in sizes.split.iter().map(|(bytes, _)| *bytes).chain([sizes.min, sizes.max]).filter(|_| used) {
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
    let block = u64::from(target.block.max(1));
    let len = size.min(room) / block * block;
    let block = match job.pattern.direction {
        Direction::Mixed => job.block.read.min.max(job.block.write.min),
        Direction::Read | Direction::Write => unit,
    };
    if len < block {
        return Err(Misfit::NoRoom { job: job.name.clone(), offset: start, room: len, device: target.bytes, block });
    }
    if !job.pattern.random && job.pattern.step != 0 {
        aligned("the step after the colon of rw", job.pattern.step.unsigned_abs())?;
    }
    Ok(Region { start, len })
}

/// Most blocks of a [`Bitmap`]: 512 MiB of bits.
const MOST_MAPPED: u64 = 1 << 32;

/// How random offsets are chosen among `blocks` blocks.
fn choice(job: &Job, block: &PerOp<BlockSizes>, blocks: u64, rng: &mut Xoshiro256PlusPlus) -> Result<Choice, Misfit> {
    if !job.pattern.random {
        return Ok(Choice::Any);
    }
    if let Distribution::Zipf { theta } = job.distribution {
        return Ok(match Zipf::new(blocks as f64, theta) {
            Ok(zipf) => Choice::Zipf(zipf, Shuffle::new(blocks, rng.next_u64())),
            Err(_) => Choice::Any,
        });
    }
    if !job.random_map && job.random_generator != RandomGenerator::Lfsr {
        return Ok(Choice::Any);
    }
    let fixed = match job.pattern.direction {
        Direction::Read => block.read.is_fixed(),
        Direction::Write => block.write.is_fixed(),
        Direction::Mixed => block.read.is_fixed() && block.write.is_fixed() && block.read.min == block.write.min,
    };
    // fio visits the next free block of a map; a shuffle has an order of its own.
    let by_map = job.verify.is_some() && job.random_generator != RandomGenerator::Lfsr;
    if fixed && !by_map {
        return Ok(Choice::Shuffle(Shuffle::new(blocks, rng.next_u64())));
    }
    if blocks > MOST_MAPPED {
        return Err(Misfit::MapTooLarge { job: job.name.clone(), blocks });
    }
    Ok(Choice::Bitmap(Bitmap::new(blocks)))
}
