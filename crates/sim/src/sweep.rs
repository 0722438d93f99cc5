//! The sweep: every mode at every load, queue depth and profile, under both price lists; and how far the adaptive policy is
//! from each of the others.
//!
//! A [`Cell`] is a place to compare modes at: its load is a part of what `poll` does there in a closed loop, measured
//! beforehand. *Regret* at a cell against a mode m is max(p99 ÷ m's p99, CPU ÷ m's CPU), of the setting of the knob that is
//! best against m on one half of the seeds, judged on the other half.

use completion::LatencySlack;
use device::{Profile, Service};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

use crate::{Costs, Outcome, Scenario, SimError, closed_loop, file, open_loop};
use completion::Mode;

/// Loads, in per cent of what `poll` reaches.
pub const LOADS: [u32; 7] = [1, 5, 10, 25, 50, 75, 90];
/// I/Os in flight at most.
pub const DEPTHS: [u32; 4] = [1, 4, 32, 128];
/// Settings of the knob, in thousandths.
pub const SLACKS: [LatencySlack; 9] = [
    LatencySlack::NONE,
    LatencySlack::per_mille(20),
    LatencySlack::per_mille(50),
    LatencySlack::per_mille(100),
    LatencySlack::per_mille(200),
    LatencySlack::per_mille(500),
    LatencySlack::per_mille(1_000),
    LatencySlack::per_mille(5_000),
    LatencySlack::UNLIMITED,
];
/// Seeds of a cell, which share its I/Os; even, so that they can be halved.
pub const SEEDS: u64 = 4;
/// I/Os of the closed loop that measures what `poll` reaches.
const CAPACITY_IOS: u64 = 50_000;

/// A place at which modes are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Name of the price list.
    pub costs: &'static str,
    /// The device.
    pub profile: Profile,
    /// I/Os in flight at most.
    pub depth: u32,
    /// In per cent of the capacity.
    pub load: u32,
}

/// All cells, neighbours alike but for the load. The last of the profiles is drawn by `seed`.
pub fn cells(seed: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (costs, _) in file::COSTS {
        for profile in [Profile::optane(), Profile::tlc(), Profile::bimodal(), drawn(seed)] {
            for depth in DEPTHS {
                cells.extend(LOADS.map(|load| Cell { costs, profile: profile.clone(), depth, load }));
            }
        }
    }
    cells
}

/// A profile that nobody chose: 5 to 200 µs, some jitter, perhaps a tail, perhaps in runs.
pub fn drawn(seed: u64) -> Profile {
    let mut dice = SplitMix64::seed_from_u64(seed);
    let mut within = |low: u64, high: u64| low + dice.next_u64() % (high - low);
    // Evenly in the logarithm: as many short ones as long ones.
    let base = 5_000u64 << within(0, 5) | within(0, 5_000);
    let read = Service {
        base: Nanos(base),
        jitter: Nanos(base * within(0, 30) / 100),
        tail_ppm: within(0, 20_000) as u32,
        tail: Nanos(base * within(2, 20)),
        tail_run: if within(0, 2) == 0 { 0 } else { 64 },
    };
    let channels = 16u32 << within(0, 4);
    Profile { name: format!("drawn-{seed}"), read, write: read, channels, ..Profile::optane() }
}

impl Cell {
    /// What `poll` does here in a closed loop, in I/Os per second. The same for every load.
    ///
    /// # Errors
    /// A run that broke a law.
    pub fn capacity(&self, seed: u64) -> Result<f64, SimError> {
        let scenario = self.at(Scenario::new(Mode::POLL, self.profile.clone(), closed_loop(self.depth, CAPACITY_IOS)), seed);
        scenario.run().map(|outcome| outcome.iops())
    }

    /// `ios` I/Os that arrive as a Poisson process at the cell's part of `capacity`.
    pub fn scenario(&self, mode: Mode, slack: LatencySlack, capacity: f64, ios: u64, seed: u64) -> Scenario {
        let rate = (capacity * f64::from(self.load) / 100.0).max(1.0) as u64;
        let job = workload::Job { iodepth: self.depth, batch_submit: self.depth.min(16), ..open_loop(rate, ios) };
        Scenario { latency_slack: slack, ..self.at(Scenario::new(mode, self.profile.clone(), job), seed) }
    }

    fn at(&self, scenario: Scenario, seed: u64) -> Scenario {
        let costs = file::costs_of(self.costs).unwrap_or(Costs::BARE_METAL);
        // Data moved or not: no figure depends on it, and it takes half of the time.
        let mut scenario = Scenario { seed, ..scenario.with_costs(costs) };
        scenario.devices.iter_mut().for_each(|device| device.config.profile.moves_data = false);
        scenario
    }
}

/// What regret is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The 99th percentile from the intended start, in nanoseconds.
    pub p99: f64,
    /// CPU time per I/O, in nanoseconds.
    pub cpu: f64,
}

impl Point {
    /// Of some seeds together. `None` of nothing.
    pub fn of(outcomes: &[Outcome]) -> Option<Point> {
        let mut latency = outcomes.first()?.stats.read.intended.clone();
        outcomes[1..].iter().for_each(|outcome| latency.merge(&outcome.stats.read.intended));
        let p99 = *latency.histogram?.percentiles(&[99.0]).first()? as f64;
        let cpu = outcomes.iter().map(Outcome::cpu_ns_per_io).sum::<f64>() / outcomes.len() as f64;
        Some(Point { p99, cpu })
    }

    /// How much worse than `other`, in whichever of the two is worse.
    pub fn ratio(&self, other: &Point) -> f64 {
        (self.p99 / other.p99).max(self.cpu / other.cpu)
    }
}

/// The two halves of the seeds.
pub type Halves = [Point; 2];

/// The regret against a mode: the setting that is best against it on the first half of the seeds, judged on the second.
/// The setting's place in `settings` and the ratio; `None` without any setting.
pub fn regret(settings: &[Halves], other: &Halves) -> Option<(usize, f64)> {
    let best = (0..settings.len()).min_by(|&a, &b| settings[a][0].ratio(&other[0]).total_cmp(&settings[b][0].ratio(&other[0])))?;
    Some((best, settings[best][1].ratio(&other[1])))
}

#[cfg(test)]
mod tests;
