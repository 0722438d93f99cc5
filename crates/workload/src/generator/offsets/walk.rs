//! The way of a job thread through one file or device.

use super::cover::{Bitmap, Shuffle};
use super::place::Region;
use crate::job::{AccessZone, PerOp, Strided, ZoneRoom};
use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, Normal, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Op;

/// How random offsets are chosen within a target.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// Each block once per pass; all I/Os are one block.
    Shuffle(Shuffle),
    /// Each block once per pass; I/Os of several blocks.
    Bitmap(Bitmap),
    /// Any block at any time.
    Any,
    /// Popular blocks and others.
    Skewed(Skew),
    /// Stretches with a share each.
    Zoned(PerOp<Zones>),
    /// These blocks, over and over.
    Sequence { blocks: Vec<u64>, at: usize, moves: bool, base: u64 },
}

/// Which blocks are popular.
#[derive(Clone, Debug)]
pub(super) enum Skew {
    /// By rank; the shuffle says which block has it.
    Zipf(Zipf<f64>, Shuffle),
    /// Self-similar: a number from 0 to 1 to this power is the rank, from 0 to 1.
    Pareto(f64, Shuffle),
    /// Around the middle.
    Normal(Normal<f64>),
}

impl Skew {
    /// A block below `blocks`.
    fn block(&self, blocks: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            Skew::Zipf(zipf, scatter) => scatter.at((zipf.sample(rng) as u64).clamp(1, scatter.len()) - 1),
            Skew::Pareto(power, scatter) => {
                let rank = rng.random::<f64>().powf(*power) * scatter.len() as f64;
                scatter.at((rank as u64).min(scatter.len() - 1))
            }
            // The ends of the bell come in again at the other end.
            Skew::Normal(normal) => (normal.sample(rng) as i64).rem_euclid(blocks.clamp(1, i64::MAX as u64) as i64) as u64,
        }
    }
}

/// Stretches of a region of so many blocks: each ends at a share of the I/Os and at a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Zones(Vec<(f64, u64, u64)>);

impl Zones {
    /// The stretches of `zones` on a region of `len` bytes in blocks of `align`.
    pub fn new(zones: &[AccessZone], len: u64, align: u64) -> Zones {
        let (mut share, mut percent, mut start, mut made) = (0.0, 0.0, 0, Vec::new());
        for zone in zones {
            let end = match zone.room {
                ZoneRoom::Percent(more) => {
                    percent += more;
                    (len as f64 * percent / 100.0) as u64
                }
                ZoneRoom::Bytes(bytes) => u64::saturating_add(start, bytes),
            };
            let (first, end) = (start / align, end.min(len) / align);
            share += zone.access;
            start = end * align;
            // A stretch without a block has none of the I/Os: those go to the one before it.
            if end > first && zone.access > 0.0 {
                made.push((share, first, end - first));
            }
        }
        Zones(made)
    }

    fn block(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        let most = self.0.last().map_or(0.0, |(share, ..)| *share);
        let dice = rng.random::<f64>() * most;
        let zone = self.0.iter().find(|(share, ..)| dice < *share).or(self.0.last());
        zone.map_or(0, |(_, first, blocks)| first + below(rng, *blocks))
    }
}

/// Where in a strided region the current zone is.
#[derive(Clone, Debug)]
pub(super) struct Stride {
    zones: Strided,
    /// Start of the zone, from that of the region.
    at: u64,
    /// Bytes that it has had.
    had: u64,
}

impl Stride {
    pub fn new(zones: Strided) -> Stride {
        Stride { zones, at: 0, had: 0 }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub region: Region,
    /// Index of the target it is on.
    pub target: u16,
    /// What random offsets are multiples of, and how many there are of them.
    pub align: PerOp<u64>,
    pub blocks: PerOp<u64>,
    pub choice: Choice,
    /// Sequential: where each operation goes next, relative to the region.
    pub next: PerOp<u64>,
    /// The offset that each operation had last.
    pub last: PerOp<u64>,
    /// Bytes until the file is done, where files are done one after the other.
    pub left: u64,
    pub stride: Option<Stride>,
}

impl Walk {
    /// The next place in order; around the end of the region if nothing of `min` bytes is left before it.
    #[inline]
    pub fn sequential(&mut self, op: Op, wanted: u64, min: u64, skip: i64) -> (u64, u64) {
        let (len, offset) = (self.region.len, self.begin_in_order(op, min));
        let left = len - offset;
        let bytes = if wanted <= left { wanted } else { left - left % min };
        let end = offset + bytes;
        *self.next.get_mut(op) = if skip == 0 { end } else { skipped(end, skip, len) };
        (offset, bytes)
    }

    /// Where that is.
    #[inline]
    pub fn begin_in_order(&self, op: Op, min: u64) -> u64 {
        let next = *self.next.get(op);
        if self.region.len.saturating_sub(next) < min { 0 } else { next }
    }

    /// A random place; shorter than wanted where the region ends, or the next blocks have been visited in this pass.
    #[inline]
    pub fn random(&mut self, op: Op, wanted: u64, min: u64, unit: u64, rng: &mut Xoshiro256PlusPlus) -> (u64, u64) {
        let (offset, most) = match &mut self.choice {
            Choice::Shuffle(shuffle) => return (shuffle.next() * unit, unit),
            Choice::Any => (below(rng, *self.blocks.get(op)) * self.align.get(op), wanted),
            Choice::Skewed(skew) => {
                let offset = skew.block(self.region.len / unit, rng) * unit;
                (offset - offset % min, wanted)
            }
            Choice::Zoned(zones) => (zones.get(op).block(rng) * self.align.get(op), wanted),
            Choice::Sequence { blocks, at, moves, base } => {
                let block = base.wrapping_add(blocks.get(*at).copied().unwrap_or(0));
                *at += 1;
                if *at >= blocks.len() {
                    *at = 0;
                    *base = if *moves { base.wrapping_add(blocks.len() as u64) } else { 0 };
                }
                (block % *self.blocks.get(op) * self.align.get(op), wanted)
            }
            Choice::Bitmap(map) => {
                let (block, blocks) = map.take(below(rng, map.len()), wanted / unit);
                (block * unit, blocks * unit)
            }
        };
        (offset, wanted.min(self.region.len - offset).min(most))
    }

    /// A place in the current zone, in order or at random; the next zone begins when this one has had its bytes.
    pub fn strided(&mut self, op: Op, wanted: u64, min: u64, random: bool, rng: &mut Xoshiro256PlusPlus) -> (u64, u64) {
        let Some(Stride { zones, at, had }) = &mut self.stride else { return (0, min) };
        let room = |at: u64| zones.range.min(self.region.len.saturating_sub(at));
        if *had >= zones.size || room(*at) < min {
            if *had > 0 {
                *at += zones.range + zones.skip;
            }
            *had = 0;
            if room(*at) < min {
                *at = 0;
            }
            *self.next.get_mut(op) = 0;
            if let Choice::Shuffle(shuffle) = &mut self.choice {
                shuffle.start_pass();
            }
        }
        let room = room(*at).max(min);
        let inside = if random {
            let blocks = (room / min).max(1);
            let block = match &mut self.choice {
                // The last zone may be cut short.
                Choice::Shuffle(shuffle) if shuffle.len() == blocks => shuffle.next(),
                _ => below(rng, blocks),
            };
            block * min
        } else {
            let next = *self.next.get(op);
            if room.saturating_sub(next) < min { 0 } else { next }
        };
        let bytes = wanted.min(room - inside).min(self.region.len - *at - inside);
        *self.next.get_mut(op) = inside + bytes;
        *had += bytes;
        (*at + inside, bytes)
    }

    /// Begins anew.
    pub fn start_pass(&mut self) {
        self.next = PerOp::both(0);
        self.last = PerOp::both(0);
        if let Some(stride) = &mut self.stride {
            (stride.at, stride.had) = (0, 0);
        }
        match &mut self.choice {
            Choice::Shuffle(shuffle) => shuffle.start_pass(),
            Choice::Bitmap(map) => map.start_pass(),
            Choice::Sequence { at, base, .. } => (*at, *base) = (0, 0),
            Choice::Any | Choice::Skewed(_) | Choice::Zoned(_) => {}
        }
    }
}

/// `end + skip`, around the region's ends.
fn skipped(end: u64, skip: i64, len: u64) -> u64 {
    (i128::from(end) + i128::from(skip)).rem_euclid(i128::from(len.max(1))) as u64
}

/// A number below `n`, each as likely up to 2^-64.
#[inline]
pub(in crate::generator) fn below(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}
