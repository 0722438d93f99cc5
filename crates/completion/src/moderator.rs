//! What the device holds back: moderators of NVMe's Interrupt Coalescing.
//!
//! Feature 08h is one setting for the whole controller; feature 09h exempts single vectors from it. TIME counts in steps
//! of 100 µs, THR is 0's based, and both are recommendations to the controller (Base 5.1.25.2.2). A moderator sees the
//! rates of the queues that it is responsible for and proposes a setting; the executor carries it to the device and tells
//! what came of it. A device that refuses is left alone from then on, and its mode is `interrupt`.

mod dim;
mod fixed;
mod vic;

use units::Nanos;

use crate::{Coalesce, Moderation, Rates};
use dim::Dim;

/// At most one change in this time: a change is an admin command, and rates need time to follow it.
pub const PACE: Nanos = Nanos::from_millis(10);

/// Decides what one controller holds back.
#[derive(Clone, Debug)]
pub struct Moderator {
    rule: Rule,
    /// The setting that the device has confirmed.
    in_force: Coalesce,
    /// The last change, confirmed or not.
    changed_at: Option<Nanos>,
    refused: bool,
}

#[derive(Clone, Debug)]
enum Rule {
    Fixed,
    Dim(Dim),
    Vic,
    Asked,
}

impl Moderator {
    /// The moderator of a mode, for a controller that holds nothing back.
    pub fn new(moderation: Moderation) -> Moderator {
        let rule = match moderation {
            Moderation::Fixed => Rule::Fixed,
            Moderation::Dim => Rule::Dim(Dim::default()),
            Moderation::Vic => Rule::Vic,
            Moderation::Asked => Rule::Asked,
        };
        Moderator { rule, in_force: Coalesce::OFF, changed_at: None, refused: false }
    }

    /// What to set now, given what happened since the last tick. Tick once per [`PACE`]; a tick that comes sooner after a
    /// change proposes nothing. `None`: leave it.
    pub fn tick(&mut self, now: Nanos, rates: &Rates) -> Option<Coalesce> {
        if self.refused || self.changed_at.is_some_and(|at| now < at + PACE) {
            return None;
        }
        let wanted = match &mut self.rule {
            Rule::Fixed => fixed::SETTING,
            Rule::Dim(dim) => dim.next(rates),
            Rule::Vic => vic::setting(rates),
            Rule::Asked => Coalesce::new(rates.asked, 1),
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

#[cfg(test)]
mod tests;
