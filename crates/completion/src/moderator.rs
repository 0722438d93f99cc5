//! What the device holds back: moderators of NVMe's Interrupt Coalescing.
//!
//! Feature 08h is one setting for the whole controller; feature 09h exempts single vectors from it.
//! TIME counts in steps of 100 µs, THR is 0's based, and both are recommendations to the controller
//! (Base 5.1.25.2.2). A moderator sees the rates of the queues that it is responsible for and
//! proposes a setting; the executor carries it to the device and tells what came of it. A device
//! that refuses is left alone from then on, and its mode is `interrupt`.

use std::cmp::Ordering;

use units::Nanos;

use crate::Moderation;

/// A setting of Interrupt Coalescing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    entries: u16,
    steps: u8,
}

impl Coalesce {
    /// A message for each entry.
    pub const OFF: Coalesce = Coalesce { entries: 1, steps: 0 };

    /// A message for `entries` entries (1 to 256), or once the first has waited for this many steps
    /// of 100 µs. One entry, or no time, is [`Coalesce::OFF`].
    pub const fn new(entries: u16, steps: u8) -> Coalesce {
        match (entries, steps) {
            (0 | 1, _) | (_, 0) => Coalesce::OFF,
            (257.., _) => Coalesce { entries: 256, steps },
            _ => Coalesce { entries, steps },
        }
    }

    /// THR: entries before a message, 0's based.
    pub const fn thr(self) -> u8 {
        (self.entries - 1) as u8
    }

    /// TIME: in steps of 100 µs.
    pub const fn time(self) -> u8 {
        self.steps
    }

    /// Entries before a message: 1 to 256.
    pub const fn entries(self) -> u16 {
        self.entries
    }
}

/// What happened on the moderated queues since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// The time since then.
    pub elapsed: Nanos,
    /// Completions.
    pub completions: u64,
    /// Messages that announced them.
    pub messages: u64,
    /// Commands in flight now.
    pub in_flight: u32,
    /// For how many entries the policies of all these queues would have messages held back (`hold`
    /// of [`crate::Plan::Sleep`]); 0: some for none.
    pub asked: u16,
}

impl Rates {
    /// Completions per second.
    pub(crate) fn iops(&self) -> u64 {
        (u128::from(self.completions) * 1_000_000_000 / u128::from(self.elapsed.0.max(1))) as u64
    }
}

/// At most one change in this time: a change is an admin command, and rates need time to follow it.
pub const PACE: Nanos = Nanos::from_millis(10);

/// Decides what one controller holds back.
#[derive(Clone, Debug)]
pub struct Moderator {
    moderation: Moderation,
    dim: Dim,
    /// The setting that the device has confirmed.
    in_force: Coalesce,
    /// The last change, confirmed or not.
    changed_at: Option<Nanos>,
    refused: bool,
}

impl Moderator {
    /// The moderator of a mode, for a controller that holds nothing back.
    pub fn new(moderation: Moderation) -> Moderator {
        Moderator {
            moderation,
            dim: Dim::default(),
            in_force: Coalesce::OFF,
            changed_at: None,
            refused: false,
        }
    }

    /// What to set now, given what happened since the last tick. Tick once per [`PACE`]; a tick
    /// that comes sooner after a change proposes nothing. `None`: leave it.
    pub fn tick(&mut self, now: Nanos, rates: &Rates) -> Option<Coalesce> {
        if self.refused || self.changed_at.is_some_and(|at| now < at + PACE) {
            return None;
        }
        let wanted = match self.moderation {
            Moderation::Fixed => FIXED,
            Moderation::Dim => self.dim.next(rates),
            Moderation::Vic => vic(rates),
            Moderation::Asked => Coalesce::new(rates.asked, 1),
        };
        if wanted == self.in_force {
            return None;
        }
        self.changed_at = Some(now);
        Some(wanted)
    }

    /// The device has taken the setting.
    pub fn confirmed(&mut self, setting: Coalesce) {
        self.in_force = setting;
    }

    /// The device has refused one: from now on nothing is proposed.
    pub fn refused(&mut self) {
        (self.refused, self.in_force) = (true, Coalesce::OFF);
    }

    /// The controller was reset, and holds nothing back again.
    pub fn reset(&mut self) {
        self.in_force = Coalesce::OFF;
    }

    /// The setting in force.
    pub fn in_force(&self) -> Coalesce {
        self.in_force
    }
}

/// `coalesce`: a message for eight entries, or 100 µs after the first: the shortest time that the
/// feature can say, and as many entries as leave a message per eight commands at a queue depth that
/// fills them within it.
const FIXED: Coalesce = Coalesce::new(8, 1);

/// Commands in flight below which nothing is held back.
const ENOUGH_IN_FLIGHT: u32 = 4;

/// Completions per second below which nothing is.
const ENOUGH_IOPS: u64 = 2_000;

/// One message for this many times [`ENOUGH_IN_FLIGHT`] in flight.
const DEPTH_PER_ENTRY: u32 = 2 * ENOUGH_IN_FLIGHT;

/// `vic`: hold back by how many commands are in flight.
///
/// After Ahmad, Gulati and Mashtizadeh, "vIC: Interrupt Coalescing for Virtual Machine Storage
/// Device IO" (USENIX ATC 2011): as long as enough commands are in flight, another completion is
/// sure to come soon, so that holding one back starves nobody. With few in flight, or few
/// completions per second, every completion is announced. The ratio of messages to completions then
/// falls with the number in flight. Theirs has fractions (four messages for five completions);
/// NVMe's threshold is a whole number of entries, so between one and two there is nothing.
fn vic(rates: &Rates) -> Coalesce {
    if rates.in_flight < ENOUGH_IN_FLIGHT || rates.iops() < ENOUGH_IOPS {
        return Coalesce::OFF;
    }
    let entries = (rates.in_flight / DEPTH_PER_ENTRY).min(256) as u16;
    Coalesce::new(entries, 1)
}

/// Entries per message, one step each; all wait for at most 100 µs, the shortest time there is.
const LADDER: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Two rates differ if they differ by more than one part in this many.
const ALIKE: u64 = 10;

/// Stretches of rest, after having found the top, before it looks around again: loads change slowly
/// by themselves.
const TIRED_AFTER: u32 = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Up,
    Down,
    /// On top, for this many stretches.
    Parked(u32),
}

/// `dim`: dynamic interrupt moderation, as Linux's `net_dim` and `rdma_dim` do it, for a block
/// device.
///
/// A ladder of settings; every tick compares the last stretch with the one before, takes another
/// step the same way if it was better, turns round if it was worse, and parks where neither
/// direction helps. Completions per second come first; if they are alike, more completions per
/// message is better. A parked moderator starts again when the load has changed.
#[derive(Clone, Debug, Default)]
struct Dim {
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

impl Dim {
    /// The setting for the next stretch.
    fn next(&mut self, rates: &Rates) -> Coalesce {
        if rates.completions == 0 {
            // Nothing to learn from, and nothing to hold back when the next command comes.
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
        let verdict = self.last.map_or(Ordering::Greater, against);
        self.last = Some(now);
        self.walk(verdict);
        Coalesce::new(LADDER[self.step], 1)
    }

    /// `verdict`: how the last stretch compares with the one before.
    fn walk(&mut self, verdict: Ordering) {
        if let Way::Parked(rested) = self.way {
            // The first stretch of rest is the one that later ones are compared with.
            if rested == 0 || verdict == Ordering::Equal && rested < TIRED_AFTER {
                self.way = Way::Parked(rested + 1);
                return;
            }
            // Another load, or time to look around: back first, because holding back in vain costs
            // latency.
            (self.way, self.turns) = (Way::Down, 0);
        } else if verdict == Ordering::Equal && self.way == Way::Up {
            // No better for a step further: the lower of the two is as good.
            self.step = self.step.saturating_sub(1);
            self.way = Way::Parked(0);
            return;
        } else if verdict == Ordering::Less {
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

/// Two rates differ if they differ by more than one part in [`ALIKE`].
fn compare(now: u64, last: u64) -> Ordering {
    if now.abs_diff(last) <= last / ALIKE { Ordering::Equal } else { now.cmp(&last) }
}

#[cfg(test)]
mod tests;
