//! `dim`: dynamic interrupt moderation, as Linux's `net_dim` and `rdma_dim` do it, for a block device.
//!
//! A ladder of settings; every tick compares the last stretch with the one before, takes another step the same way if it
//! was better, turns round if it was worse, and parks where neither direction helps. Completions per second come first;
//! if they are alike, more completions per message is better. A parked moderator starts again when the load has changed.

use crate::{Coalesce, Rates};

/// Entries per message, one step each; all wait for at most 100 µs, the shortest time there is.
const LADDER: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Two rates differ if they differ by more than one part in so many.
const ALIKE: u64 = 10;

/// Stretches of rest, after having found the top, before it looks around again: loads change slowly by themselves.
const TIRED_AFTER: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
    /// On top, for so many stretches.
    Parked(u32),
}

/// Where the moderator is on its way.
#[derive(Clone, Debug)]
pub(super) struct Dim {
    step: usize,
    way: Way,
    /// Turns since it last moved off a top; two in a row mean that this is one.
    turns: u32,
    last: Option<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: u64,
    /// Completions per 100 messages.
    per_message: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
}

impl Default for Dim {
    fn default() -> Dim {
        Dim { step: 0, way: Way::Up, turns: 0, last: None }
    }
}

impl Dim {
    /// The setting for the next stretch.
    pub(super) fn next(&mut self, rates: &Rates) -> Coalesce {
        if rates.completions == 0 {
            // Nothing to learn from, and nothing to hold back when the next command comes.
            *self = Dim::default();
            return Coalesce::OFF;
        }
        let now = Sample { iops: rates.iops(), per_message: rates.completions * 100 / rates.messages.max(1) };
        let verdict = self.last.map_or(Verdict::Better, |last| now.against(last));
        self.last = Some(now);
        self.walk(verdict);
        Coalesce::new(LADDER[self.step], 1)
    }

    fn walk(&mut self, verdict: Verdict) {
        if let Way::Parked(rested) = self.way {
            // The first stretch of rest is the one that later ones are compared with.
            if rested == 0 || verdict == Verdict::Same && rested < TIRED_AFTER {
                self.way = Way::Parked(rested + 1);
                return;
            }
            // Another load, or time to look around: back first, because holding back in vain costs latency.
            (self.way, self.turns) = (Way::Down, 0);
        } else if verdict == Verdict::Same && self.way == Way::Up {
            // No better for a step further: the lower of the two is as good.
            self.step = self.step.saturating_sub(1);
            self.way = Way::Parked(0);
            return;
        } else if verdict == Verdict::Worse {
            self.turns += 1;
            self.way = if self.way == Way::Up { Way::Down } else { Way::Up };
        }
        match self.way {
            Way::Up if self.step + 1 < LADDER.len() => self.step += 1,
            Way::Down if self.step > 0 => self.step -= 1,
            _ => self.way = Way::Parked(0),
        }
        if self.turns >= 2 {
            // Both ways are worse, and this step is the one between.
            self.way = Way::Parked(0);
        }
    }
}

impl Sample {
    fn against(self, last: Sample) -> Verdict {
        match compare(self.iops, last.iops) {
            Verdict::Same => compare(self.per_message, last.per_message),
            verdict => verdict,
        }
    }
}

fn compare(now: u64, last: u64) -> Verdict {
    if now.abs_diff(last) <= last / ALIKE {
        Verdict::Same
    } else if now > last {
        Verdict::Better
    } else {
        Verdict::Worse
    }
}
