//! Which command each write is: `write_mode`.

use super::offsets::below;
use crate::job::{Job, WriteAs};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The commands of a job's writes.
#[derive(Debug)]
pub(super) struct Writes {
    /// With each its per cent.
    shares: Vec<(WriteAs, u32)>,
    rng: Xoshiro256PlusPlus,
}

impl Writes {
    /// Those of `job`; `None`: all are Writes.
    pub fn new(job: &Job, seed: u64) -> Option<Writes> {
        let shares = job.writes_as.clone();
        (!shares.is_empty()).then(|| Writes { shares, rng: Xoshiro256PlusPlus::seed_from_u64(seed) })
    }

    /// The next one's.
    pub fn next(&mut self) -> WriteAs {
        let mut dice = below(&mut self.rng, 100) as u32;
        for (mode, share) in &self.shares {
            if dice < *share {
                return *mode;
            }
            dice -= share;
        }
        // Per cent that do not divide leave a few over.
        self.shares.last().map_or(WriteAs::Write, |(mode, _)| *mode)
    }
}
