//! How long a comparison still takes, by the blocks that are done. Beside other work a block waits for its CPUs: what was planned is said
//! anew where it no longer holds.

use reap::Nanos;

use super::notes::span;
use super::scenes::Effort;

/// What was told holds within a quarter.
const HOLDS: f64 = 0.25;
/// Passes over all scenes that tell something of the next: the first also warms caches up.
const PASSES: usize = 3;
/// The part of all blocks that does.
const PART: f64 = 0.1;
/// Less than this is not worth a line.
const SHORT: Nanos = Nanos::from_secs(10);

/// When a comparison ends, by what was told last.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// When the first was told; devices are opened and filled then.
    since: Nanos,
    /// When the first block began.
    began: Option<Nanos>,
    /// From `since` to the last block.
    told: Nanos,
    /// A block as it was planned.
    each: Nanos,
}

/// How far a comparison is.
#[derive(Clone, Copy, Debug)]
pub struct Far {
    /// Passes over the scenes of the device that is at work.
    pub passes: usize,
    /// Blocks, of all devices.
    pub done: u64,
    /// Blocks that are still to come.
    pub left: u64,
}

impl Forecast {
    /// As it is planned at `now`.
    pub fn new(efforts: &[Effort], now: Nanos) -> Forecast {
        let time = efforts.iter().fold(Nanos::ZERO, |sum, effort| sum + effort.time);
        let blocks: u64 = efforts.iter().map(|effort| effort.blocks).sum();
        Forecast { since: now, began: None, told: time, each: Nanos(time.0 / blocks.max(1)) }
    }

    /// The first block begins. Later calls change nothing.
    pub fn begin(&mut self, now: Nanos) {
        self.began.get_or_insert(now);
    }

    /// What there is to say at `now`: how much is left, where that is off from what was told last by more than a quarter.
    pub fn news(&mut self, now: Nanos, far: Far) -> Option<String> {
        let (gone, blocks_take) = (now - self.since, now - self.began?);
        let blocks = far.done + far.left;
        if far.passes < PASSES || (far.done as f64) < PART * blocks as f64 {
            return None;
        }
        let each = Nanos(blocks_take.0 / far.done.max(1));
        let left = Nanos(each.0.saturating_mul(far.left));
        let (total, told) = ((gone + left).as_secs_f64(), self.told.as_secs_f64());
        let holds = (1.0 - HOLDS) * told..=(1.0 + HOLDS) * told;
        if left < SHORT || holds.contains(&total) {
            return None;
        }
        self.told = gone + left;
        let (took, planned) = (each.0 / 1_000_000, self.each.0 / 1_000_000);
        Some(format!(
            "After {}: about {} left. A block takes {took} ms, where {planned} were planned, and {} of them are left.",
            span(gone),
            span(left),
            far.left
        ))
    }
}

#[cfg(test)]
mod tests;
