//! The way of a job thread through one file or device.

use super::super::io::Region;
use super::cover::{Bitmap, Shuffle};
use crate::job::PerOp;
use rand::RngExt;
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
    pub fn block(&self, blocks: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
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
}

impl Walk {
    /// The next place in order; around the end of the region if nothing of `min` bytes is left before it.
    #[inline]
    pub fn sequential(&mut self, op: Op, wanted: u64, min: u64, skip: i64) -> (u64, u64) {
        let (len, offset) = (self.region.len, self.begin_in_order(op, min));
        let left = len - offset;
        let bytes = if wanted <= left { wanted } else { left - left % min };
        let end = offset + bytes;
        // Around the region's ends.
        let skipped = || (i128::from(end) + i128::from(skip)).rem_euclid(i128::from(len.max(1))) as u64;
        *self.next.get_mut(op) = if skip == 0 { end } else { skipped() };
        (offset, bytes)
    }

    /// Where that is.
    #[inline]
    pub fn begin_in_order(&self, op: Op, min: u64) -> u64 {
        let next = *self.next.get(op);
        if self.region.len.saturating_sub(next) < min { 0 } else { next }
    }

    /// Begins anew.
    pub fn start_pass(&mut self) {
        self.next = PerOp::both(0);
        match &mut self.choice {
            Choice::Shuffle(shuffle) => shuffle.start_pass(),
            Choice::Bitmap(map) => map.start_pass(),
            Choice::Any | Choice::Skewed(_) => {}
        }
    }
}
