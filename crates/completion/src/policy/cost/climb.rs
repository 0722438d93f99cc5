//! In a closed loop a completion that is found late delays somebody only if the device runs dry. How many to gather there is
//! found by trying: Little's law gives the latency of each choice, in flight over throughput.

use units::Nanos;

/// Completions of a trial, and how many times what is in flight.
const WINDOW: u32 = 256;
const TURNS: u32 = 6;
/// Trials that fail in a row are this far apart at most.
const REST: u32 = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Climb {
    /// What a completion costs with the choice in force; 0: not known.
    cost: f32,
    best: u32,
    arm: u32,
    down: bool,
    rest: u32,
    left: u32,
    found: u32,
    spent: f32,
    since: Nanos,
    pub(super) closed: u32,
}

impl Climb {
    pub(super) fn spend(&mut self, cpu: Nanos) {
        self.spent += cpu.0 as f32;
    }

    /// A wait begins with so many in flight.
    pub(super) fn tick(&mut self, now: Nanos, in_flight: u32, lambda: f32) {
        if self.found < WINDOW.max(TURNS * in_flight) {
            return;
        }
        let most = in_flight.max(1).ilog2() * 2;
        let cost = (self.spent + lambda * in_flight as f32 * (now - self.since).0 as f32) / self.found as f32;
        (self.found, self.spent, self.since) = (0, 0.0, now);
        if self.arm == self.best {
            self.cost = if self.cost == 0.0 { cost } else { self.cost + (cost - self.cost) / 4.0 };
        } else if cost < self.cost * 0.99 {
            (self.best, self.cost, self.rest) = (self.arm, cost, 0);
        } else {
            self.down = !self.down;
            self.rest = (self.rest * 2).clamp(1, REST);
            self.left = self.rest;
        }
        self.best = self.best.min(most);
        self.arm = self.best;
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        let trial = if self.down { self.best.saturating_sub(1) } else { (self.best + 1).min(most) };
        if trial == self.best {
            self.down = !self.down;
        }
        self.arm = trial;
    }

    pub(super) fn found(&mut self, found: u32) {
        self.found += found;
    }

    /// How many to gather; 0: none in particular.
    pub(super) fn wanted(&self) -> u32 {
        match self.arm {
            0 => 0,
            arm if arm % 2 == 1 => 1 << (arm / 2 + 1),
            arm => 3 << (arm / 2 - 1),
        }
    }
}
