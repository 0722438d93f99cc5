//! The stream of a job that verifies: fio's offsets and lengths, wherever they can be had.
//!
//! They are fio's in order, and at random with a map or with `norandommap`, for each seed, generator and mix; runs
//! (`randrw:8`) included. They are Reap's own with `random_distribution=zipf`, with `random_generator=lfsr`, with a step in
//! order (`write:4k`) that meets the end of the region, and in mixed jobs with two rates or whose reads and writes have different
//! smallest lengths. fio then still accepts what covers its whole region once.

use super::cover::Bitmap;
use super::*;

impl Stream {
    /// Draws as fio does from now on; `mirror` is the thread's.
    pub fn follow(&mut self, mirror: Mirror) {
        self.plain = false;
        self.mirror = Some(Box::new(mirror));
    }

    /// Draws the seed of the next I/O's data, where it takes one: reads of a mixed job are not checked, and trims have none.
    pub(super) fn draw_seed(&mut self, op: Op) {
        if let Some(mirror) = &mut self.mirror
            && (op == Op::Write || self.direction == Direction::Read)
        {
            mirror.draw_seed();
        }
    }

    /// The seed of the last I/O's data; 0 if the job does not verify.
    pub fn data_seed(&self) -> u64 {
        self.mirror.as_ref().map_or(0, |mirror| mirror.seed())
    }

    /// Whether another run of the same job, of fio or of Reap, issues the same I/Os in each of `passes` passes.
    pub fn is_reproducible(&self, passes: u64) -> bool {
        let lfsr = self.mirror.as_ref().is_some_and(|mirror| mirror.is_lfsr());
        let drawn = |walk: &Walk| matches!(walk.choice, Choice::Bitmap(_) | Choice::Any) && !lfsr;
        let placed = if self.random { self.walks.iter().all(drawn) } else { self.step == 0 };
        let alike = self.direction != Direction::Mixed || self.turns.is_none() && self.block.read.min == self.block.write.min;
        placed && alike && !self.own && self.mirror.as_ref().is_some_and(|mirror| mirror.repeats(passes))
    }

    /// Bytes of whole blocks in all regions: fio does not begin again for what is left of them.
    pub fn whole_blocks(&self) -> u64 {
        self.walks.iter().fold(0, |sum: u64, walk| sum.saturating_add(walk.region.len / self.unit * self.unit))
    }

    #[inline(never)] // It would only make other jobs' way longer.
    pub(super) fn next_mirrored(&mut self) -> Option<Place> {
        let index = self.next_file();
        let mirror = self.mirror.as_deref_mut()?;
        let op = match self.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Mixed => match &self.turns {
                Some(turns) => turns.turn(),
                None => mirror.mixed(),
            },
            Direction::Trim | Direction::TrimWrite => return None,
        };
        // Reads of a mixed job are not checked, and take no seed.
        if op == Op::Write || self.direction == Direction::Read {
            mirror.draw_seed();
        }
        let sizes = self.block.get(op);
        let walk = &mut self.walks[index];
        let (offset, len) = if !self.random || self.run_left > 0 {
            let room = walk.region.len - walk.begin_in_order(op, sizes.min);
            let wanted = mirror.size(op, sizes, room);
            walk.sequential(op, wanted, sizes.min, if self.random { 0 } else { self.step })
        } else {
            let (offset, len) = walk.mirrored(op, sizes, self.unit, mirror, &mut self.rng);
            *walk.next.get_mut(op) = offset + len;
            (offset, len)
        };
        if self.random {
            self.run_left = if self.run_left > 0 { self.run_left - 1 } else { self.step.max(1) as u64 - 1 };
        }
        if let Some(turns) = &mut self.turns {
            turns.issued(op, len as u32);
        }
        Some(Place { op, target: walk.target, offset: walk.region.start + offset, len: len as u32 })
    }
}

impl Walk {
    /// A random place, by fio's dice where the choice is one of fio's.
    fn mirrored(&mut self, op: Op, sizes: &BlockSizes, unit: u64, mirror: &mut Mirror, rng: &mut Xoshiro256PlusPlus) -> (u64, u64) {
        let (blocks, len) = (*self.blocks.get(op), self.region.len);
        match &mut self.choice {
            Choice::Bitmap(map) => {
                let block = free_block(map, mirror.block(blocks), blocks);
                let wanted = mirror.size(op, sizes, len - block * sizes.min);
                (block * sizes.min, map.visit(block, wanted / sizes.min) * sizes.min)
            }
            Choice::Any => {
                let offset = mirror.block(blocks) * sizes.min;
                (offset, mirror.size(op, sizes, len - offset))
            }
            Choice::Shuffle(_) | Choice::Skewed(_) => {
                let wanted = mirror.size(op, sizes, len);
                let (offset, bytes) = self.random(op, wanted, sizes.min, unit, rng);
                // Whole blocks, because each has a header.
                let offset = offset.min((blocks - 1) * sizes.min);
                (offset, (bytes - bytes % sizes.min).max(sizes.min))
            }
        }
    }
}

/// The next of `blocks` blocks that is free in `map`. fio counts reads and writes in one map, each in blocks of their own size.
fn free_block(map: &mut Bitmap, hint: u64, blocks: u64) -> u64 {
    let near = map.free_near(hint);
    if near < blocks {
        return near;
    }
    let first = map.free_near(0);
    if first < blocks {
        return first;
    }
    map.start_pass();
    map.free_near(hint)
}
