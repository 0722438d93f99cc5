//! Moderators of NVMe Interrupt Coalescing: how many completions a controller aggregates into one
//! message.
//!
//! Feature 08h is one setting for the whole controller; feature 09h disables it for single vectors.
//! TIME is in units of 100 µs, THR is 0's based, and both are recommendations to the controller
//! (Base 5.1.25.2.2). A moderator reads the rates of its queues and proposes a setting; the
//! executor sets the feature and reports the result. If the controller rejects it, no further
//! setting is proposed, and the mode behaves as `interrupt`.
//!
//! ```text
//!   executor -- tick(rates) ------> Moderator -- Some(setting) --> executor
//!   executor -- Set Features 08h -> controller -- status --------> executor
//!   executor -- confirmed(setting) or refused() -----------------> Moderator
//! ```

use std::cmp::Ordering;

use crate::{Moderation, Nanos};

/// A setting of Interrupt Coalescing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    entries: u16,
    steps: u8,
}

impl Coalesce {
    /// No coalescing: a message for each entry.
    pub const OFF: Coalesce = Coalesce { entries: 1, steps: 0 };

    /// A message for `entries` entries (1 to 256), or when `steps` units of 100 µs have passed
    /// since the first of them. One entry, or no time, is [`Coalesce::OFF`].
    pub const fn new(entries: u16, steps: u8) -> Coalesce {
        match (entries, steps) {
            (0 | 1, _) | (_, 0) => Coalesce::OFF,
            (257.., _) => Coalesce { entries: 256, steps },
            _ => Coalesce { entries, steps },
        }
    }

    /// THR: aggregation threshold, 0's based.
    pub const fn thr(self) -> u8 {
        (self.entries - 1) as u8
    }

    /// TIME: aggregation time in units of 100 µs.
    pub const fn time(self) -> u8 {
        self.steps
    }

    /// Entries per message: 1 to 256.
    pub const fn entries(self) -> u16 {
        self.entries
    }
}

/// The load of the moderated queues since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Time since the last tick, in nanoseconds.
    pub elapsed: Nanos,
    /// Completions.
    pub completions: u64,
    /// Messages that the device sent for them.
    pub messages: u64,
    /// Commands in flight now.
    pub in_flight: u32,
}

impl Rates {
    /// Completions per second.
    pub(crate) fn iops(&self) -> u64 {
        (u128::from(self.completions) * 1_000_000_000 / u128::from(self.elapsed.0.max(1))) as u64
    }
}

/// Shortest time between two changes: each is an admin command, and rates need time to respond.
pub const PACE: Nanos = Nanos::from_millis(10);

/// Chooses the coalescing of one controller.
#[derive(Clone, Debug)]
pub struct Moderator {
    moderation: Moderation,
    dim: Dim,
    /// The setting that the controller has confirmed.
    in_force: Coalesce,
    /// Instant of the last proposal, confirmed or not.
    changed_at: Option<Nanos>,
    refused: bool,
}

impl Moderator {
    /// The moderator of a mode, for a controller with coalescing off.
    pub fn new(moderation: Moderation) -> Moderator {
        Moderator {
            moderation,
            dim: Dim::default(),
            in_force: Coalesce::OFF,
            changed_at: None,
            refused: false,
        }
    }

    /// The setting to request, given the load since the last tick. Call once per [`PACE`]; a tick
    /// sooner after a change returns `None`, as one that changes nothing.
    pub fn tick(&mut self, now: Nanos, rates: &Rates) -> Option<Coalesce> {
        if self.refused || self.changed_at.is_some_and(|at| now < at + PACE) {
            return None;
        }
        let wanted = match self.moderation {
            Moderation::Fixed => FIXED,
            Moderation::Dim => self.dim.next(rates),
            Moderation::Vic => vic(rates),
        };
        // A change is an admin command, so the same setting is not sent again.
        if wanted == self.in_force {
            return None;
        }
        self.changed_at = Some(now);
        Some(wanted)
    }

    /// The controller has accepted the setting.
    pub fn confirmed(&mut self, setting: Coalesce) {
        self.in_force = setting;
    }

    /// The controller has rejected a setting: nothing is proposed from now on.
    pub fn refused(&mut self) {
        (self.refused, self.in_force) = (true, Coalesce::OFF);
    }

    /// The controller was reset, which turns coalescing off.
    pub fn reset(&mut self) {
        self.in_force = Coalesce::OFF;
    }

    /// The setting in force.
    pub fn in_force(&self) -> Coalesce {
        self.in_force
    }
}

/// `coalesce`: a message per eight entries, or 100 µs after the first: the shortest time that the
/// feature can express. At a queue depth that posts eight entries in that time, there is one
/// message per eight commands.
const FIXED: Coalesce = Coalesce::new(8, 1);

/// `vic`: commands in flight below which coalescing is off.
const ENOUGH_IN_FLIGHT: u32 = 4;

/// `vic`: completions per second below which coalescing is off.
const ENOUGH_IOPS: u64 = 2_000;

/// `vic`: one more entry per message for each of this many commands in flight.
const DEPTH_PER_ENTRY: u32 = 2 * ENOUGH_IN_FLIGHT;

/// `vic`: coalescing by the number of commands in flight.
///
/// After Ahmad, Gulati and Mashtizadeh, "vIC: Interrupt Coalescing for Virtual Machine Storage
/// Device IO" (USENIX ATC 2011): while enough commands are in flight another completion follows
/// soon, so delaying one adds little latency. With few in flight, or few completions per second,
/// each completion sends a message. The ratio of messages to completions falls with the number in
/// flight. The paper uses fractional ratios (four messages for five completions); NVMe's threshold
/// is a whole number of entries.
fn vic(rates: &Rates) -> Coalesce {
    if rates.in_flight < ENOUGH_IN_FLIGHT || rates.iops() < ENOUGH_IOPS {
        return Coalesce::OFF;
    }
    let entries = (rates.in_flight / DEPTH_PER_ENTRY).min(256) as u16;
    Coalesce::new(entries, 1)
}

/// Entries per message, by step; each with 100 µs, the shortest time there is.
const LADDER: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Rates that differ by at most one part in this many count as equal.
const ALIKE: u64 = 10;

/// Ticks after which a parked moderator searches again, as slow changes of load are not detected.
const TIRED_AFTER: u32 = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Adjustment {
    #[default]
    Up,
    Down,
    /// At the best step, for this many ticks.
    Parked(u32),
}

/// `dim`: dynamic interrupt moderation, as Linux's `net_dim` and `rdma_dim`, for a block device.
///
/// It climbs a ladder of settings. Each tick compares the last interval with the one before:
/// another step in the same direction if it was better, a turn if it was worse, and parked where
/// neither direction helps. Completions per second are compared first; if they are equal, more
/// completions per message are better. A parked moderator starts again when the load has changed.
#[derive(Clone, Debug, Default)]
struct Dim {
    step: usize,
    way: Adjustment,
    /// Turns since it last left a best step; two in a row mean that the step between them is the
    /// best.
    turns: u32,
    last: Option<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: u64,
    /// Completions per 100 messages.
    per_message: u64,
}

impl Dim {
    /// The setting for the next interval.
    fn next(&mut self, rates: &Rates) -> Coalesce {
        if rates.completions == 0 {
            // Idle: nothing to compare, and the next command must not be delayed.
            *self = Dim::default();
            return Coalesce::OFF;
        }
        let now = Sample {
            iops: rates.iops(),
            per_message: rates.completions * 100 / rates.messages.max(1),
        };
        // Completions per second come first.
        let against = |last: Sample| {
            compare(now.iops, last.iops).then_with(|| compare(now.per_message, last.per_message))
        };
        // The first interval has no predecessor: it counts as better, so the search starts upwards.
        let verdict = self.last.map_or(Ordering::Greater, against);
        self.last = Some(now);
        self.walk(verdict);
        Coalesce::new(LADDER[self.step], 1)
    }

    /// Moves on the ladder. `verdict`: how the last interval compares with the one before.
    fn walk(&mut self, verdict: Ordering) {
        if let Adjustment::Parked(rested) = self.way {
            // The first parked interval is the reference for later ones.
            if rested == 0 || verdict == Ordering::Equal && rested < TIRED_AFTER {
                self.way = Adjustment::Parked(rested + 1);
                return;
            }
            // The load has changed, or it is time to search again: first step down, because
            // coalescing without gain costs latency.
            (self.way, self.turns) = (Adjustment::Down, 0);
        } else if verdict == Ordering::Equal && self.way == Adjustment::Up {
            // The higher step is no better: return to the lower one, which adds less latency.
            self.step = self.step.saturating_sub(1);
            self.way = Adjustment::Parked(0);
            return;
        } else if verdict == Ordering::Less {
            self.turns += 1;
            self.way = if self.way == Adjustment::Up { Adjustment::Down } else { Adjustment::Up };
        }
        match self.way {
            Adjustment::Up if self.step + 1 < LADDER.len() => self.step += 1,
            Adjustment::Down if self.step > 0 => self.step -= 1,
            _ => self.way = Adjustment::Parked(0),
        }
        if self.turns >= 2 {
            // Both directions were worse, so the step between is the best.
            self.way = Adjustment::Parked(0);
        }
    }
}

/// Compares two rates; those within one part in [`ALIKE`] are equal.
fn compare(now: u64, last: u64) -> Ordering {
    if now.abs_diff(last) <= last / ALIKE { Ordering::Equal } else { now.cmp(&last) }
}

#[cfg(test)]
mod tests;
