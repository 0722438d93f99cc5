//! In a closed loop a completion that is found late delays somebody only if the device runs dry. How many to gather there is
//! found by trying: Little's law gives the latency of each choice, in flight over throughput.

use units::Nanos;

/// Completions of a trial, and how many times what is in flight.
const WINDOW: u32 = 1_024;
const TURNS: u32 = 8;
/// Trials that fail in a row are this far apart at most.
const REST: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// CPU time and latency of a completion.
    cpu: f32,
    latency: f32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Gather {
    /// Of the choice in force; all 0: not known.
    known: Window,
    /// How far the latencies of its windows are apart.
    spread: f32,
    best: u32,
    arm: u32,
    turn: u32,
    begun: bool,
    rest: u32,
    left: u32,
    found: u32,
    spent: f32,
    since: Nanos,
}

impl Gather {
    pub(super) fn spend(&mut self, cpu: Nanos) {
        self.spent += cpu.0 as f32;
    }

    /// A wait begins with so many in flight.
    pub(super) fn tick(&mut self, now: Nanos, in_flight: u32, lambda: f32) {
        // What is tried is tried for a quarter as long: most of it fails.
        let trial = 2 * u32::from(self.arm != self.best);
        if self.found < WINDOW.max(TURNS * in_flight) >> trial {
            return;
        }
        let most = in_flight.max(2).ilog2() - 1;
        let found = self.found as f32;
        let window = Window { cpu: self.spent / found, latency: in_flight as f32 * (now - self.since).0 as f32 / found };
        (self.found, self.spent, self.since) = (0, 0.0, now);
        let first = std::mem::replace(&mut self.begun, true);
        if !first {
            return;
        }
        self.judge(window, lambda);
        self.best = self.best.min(most);
        self.arm = self.best;
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        // All by turns: between two good ones there may be a bad one.
        self.turn = (self.turn + 1) % (most + 1);
        self.arm = self.turn;
    }

    fn judge(&mut self, window: Window, lambda: f32) {
        let known = &mut self.known;
        if self.arm == self.best {
            if known.latency == 0.0 {
                *known = window;
            }
            self.spread += ((window.latency - known.latency).abs() - self.spread) / 4.0;
            known.cpu += (window.cpu - known.cpu) / 4.0;
            known.latency += (window.latency - known.latency) / 4.0;
            return;
        }
        // What is sooner by no more than such windows differ anyway is not sooner.
        let later = window.latency - known.latency;
        let later = if later > 0.0 { later } else { (later + self.spread).min(0.0) };
        if (window.cpu - known.cpu) + lambda * later < -0.02 * known.cpu {
            (self.best, *known, self.rest) = (self.arm, window, 0);
        } else {
            self.rest = (self.rest * 2).clamp(REST / 4, REST);
            self.left = self.rest;
        }
    }

    pub(super) fn found(&mut self, found: u32) {
        self.found += found;
    }

    /// How many to gather; 0: none in particular.
    pub(super) fn wanted(&self) -> u32 {
        if self.arm == 0 { 0 } else { 1 << self.arm }
    }
}
