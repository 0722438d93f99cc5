//! The sweep: every mode at every load, queue depth and profile, under both price lists; and how far the adaptive policy is
//! from each of the others.
//!
//! A [`Cell`] is a place to compare modes at: its load is a part of what `poll` does there in a closed loop, measured
//! beforehand. *Regret* at a cell against a mode m is max(p99 ÷ m's p99, CPU ÷ m's CPU), of the setting of the knob that is
//! [chosen](regret) against m on one half of the seeds, judged on the other half. That says something if the halves speak for each
//! other, and they do not everywhere: some modes collapse on one seed and not on the next. So what is good has to be so in
//! both halves of that half, and a cell whose [halves disagree](halves_agree) gets more seeds.

use completion::LatencySlack;
use device::{Profile, Service};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::{Costs, Scenario, SimError, closed_loop, file, open_loop};
use completion::Mode;
use workload::Histogram;

/// Loads, in per cent of what `poll` reaches.
pub const LOADS: [u32; 7] = [1, 5, 10, 25, 50, 75, 90];
/// I/Os in flight at most.
pub const DEPTHS: [u32; 4] = [1, 4, 32, 128];
/// Settings of the knob, in thousandths.
pub const SLACKS: [LatencySlack; 11] = [
    LatencySlack::NONE,
    LatencySlack::per_mille(20),
    LatencySlack::per_mille(50),
    LatencySlack::per_mille(100),
    LatencySlack::per_mille(200),
    LatencySlack::per_mille(500),
    LatencySlack::per_mille(1_000),
    LatencySlack::per_mille(2_500),
    LatencySlack::per_mille(5_000),
    LatencySlack::per_mille(10_000),
    LatencySlack::UNLIMITED,
];
/// Seeds that each cell has, which share its I/Os; even, so that they can be halved.
pub const SEEDS: u64 = 8;
/// Seeds that a cell may have whose halves disagree; each is as long as the first.
pub const MOST_SEEDS: u64 = 32;
/// How far `adaptive` may be from another mode.
pub const GOAL: f64 = 1.05;
/// The ratio up to which two halves agree: then neither is further from both together than the goal.
const AGREEMENT: f64 = 1.1;
/// The ratio up to which a setting is good enough: better by as much as the goal lets it be worse. What is as good on one half of the
/// seeds then meets the goal on another that agrees with it.
const GOOD: f64 = 1.0 / GOAL;
/// The ratio up to which it says nothing that one is better: p99 is known to a bucket of the histogram, which is up to 0.8 % wide.
const TIE: f64 = 1.005;
/// The ratio up to which two settings are the same.
const ALIKE: f64 = 1.01;
/// So many times the I/Os has a device that alternates between phases.
pub const PHASED: u64 = 2;
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

/// How often the knob is set finer.
pub const REFINEMENTS: usize = 3;

/// What is swept.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Names of price lists.
    pub costs: Vec<&'static str>,
    /// Devices.
    pub profiles: Vec<Profile>,
    /// I/Os in flight at most.
    pub depths: Vec<u32>,
    /// In per cent of what `poll` reaches.
    pub loads: Vec<u32>,
}

impl Grid {
    /// Everything; `seed` draws the last of the profiles.
    pub fn whole(seed: u64) -> Grid {
        let profiles = vec![Profile::optane(), Profile::tlc(), Profile::bimodal(), drawn(seed)];
        Grid { costs: file::COSTS.map(|(name, _)| name).to_vec(), profiles, depths: DEPTHS.to_vec(), loads: LOADS.to_vec() }
    }

    /// A quarter of it: two depths, and loads that are low, middling and high.
    pub fn quick(seed: u64) -> Grid {
        Grid { depths: vec![1, 32], loads: vec![10, 50, 90], ..Grid::whole(seed) }
    }

    /// All cells, neighbours alike but for the load.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &costs in &self.costs {
            for profile in &self.profiles {
                for &depth in &self.depths {
                    cells.extend(self.loads.iter().map(|&load| Cell { costs, profile: profile.clone(), depth, load }));
                }
            }
        }
        cells
    }
}

/// Whether a profile of this name ships.
pub fn ships(name: &str) -> bool {
    Profile::NAMES.contains(&name)
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

    /// I/Os of a run where others have `ios`. A device that alternates between phases is seen as often as these change and not as
    /// often as it is used: how a run fares is decided by the few phases in which a backlog stays.
    pub fn ios(&self, ios: u64) -> u64 {
        if self.profile.read.tail_run > 0 { ios * PHASED } else { ios }
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The 99th percentile from the intended start, in nanoseconds.
    pub p99: f64,
    /// CPU time per I/O, in nanoseconds.
    pub cpu: f64,
}

/// What a seed says: CPU time per I/O in nanoseconds, and the latencies from the intended start.
pub type Seed = (f64, Histogram);

impl Point {
    /// Of some seeds together. `None` of nothing.
    pub fn of(seeds: &[Seed]) -> Option<Point> {
        let mut latencies = Histogram::default();
        seeds.iter().for_each(|(_, seed)| latencies.merge(seed));
        let p99 = latencies.percentile_within(99.0)?;
        let cpu = seeds.iter().map(|(cpu, _)| cpu).sum::<f64>() / seeds.len() as f64;
        Some(Point { p99, cpu })
    }

    /// How much worse than `other`, in whichever of the two is worse.
    pub fn ratio(&self, other: &Point) -> f64 {
        (self.p99 / other.p99).max(self.cpu / other.cpu)
    }
}

/// The two halves of the seeds, each together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Halves {
    /// What a setting is chosen by.
    pub choosing: Point,
    /// That half's own halves.
    pub quarters: [Point; 2],
    /// What it is judged on.
    pub judging: Point,
}

impl Halves {
    /// Of all seeds. `None` of fewer than four, and of seeds without I/Os.
    pub fn of(seeds: &[Seed]) -> Option<Halves> {
        let (choosing, judging) = seeds.split_at(seeds.len() / 2);
        let (first, second) = choosing.split_at(choosing.len() / 2);
        Some(Halves { choosing: Point::of(choosing)?, quarters: [Point::of(first)?, Point::of(second)?], judging: Point::of(judging)? })
    }

    /// How much worse than `other` in the worse of the choosing half's own halves: what is far better than a mode that collapsed on a
    /// seed or two need not be any good, and what is not as good on the one seed on which it did not collapse may be.
    fn worst(&self, other: &Halves) -> f64 {
        self.quarters[0].ratio(&other.quarters[0]).max(self.quarters[1].ratio(&other.quarters[1]))
    }

    /// The same of the best that may lie between two settings, if from one to the other p99 only grows and CPU time only falls.
    fn between(&self, next: &Halves, other: &Halves) -> f64 {
        let least = |n: usize| {
            let (a, b) = (self.quarters[n], next.quarters[n]);
            Point { p99: a.p99.min(b.p99), cpu: a.cpu.min(b.cpu) }
        };
        Halves { quarters: [least(0), least(1)], ..*self }.worst(other)
    }

    /// Whether two settings are so much alike that those between them are, too.
    fn is_like(&self, next: &Halves) -> bool {
        self.choosing.ratio(&next.choosing).max(next.choosing.ratio(&self.choosing)) < ALIKE
    }

    /// What part of the way from this setting to the next p99 and CPU time are as far from the other's, if both change evenly
    /// in the logarithm.
    fn meets(&self, next: &Halves, other: &Halves) -> f64 {
        let other = other.choosing;
        let later = |own: Point| (own.p99 / other.p99 / (own.cpu / other.cpu)).ln();
        let (from, to) = (later(self.choosing), later(next.choosing));
        if from < 0.0 && to > 0.0 { (from / (from - to)).clamp(0.1, 0.9) } else { 0.5 }
    }
}

/// Whether in a cell either half of the seeds would do for the other. It is asked of each mode and each setting by itself, so that no
/// verdict depends on whether more seeds would suit it; but how far a setting is beyond all modes is nobody's business: it is
/// chosen against none.
pub fn halves_agree(modes: &[&Halves], settings: &[&Halves]) -> bool {
    let figures: [fn(&Point) -> f64; 2] = [|point| point.p99, |point| point.cpu];
    figures.iter().all(|figure| {
        let (less, more) = (
            |halves: &Halves| figure(&halves.choosing).min(figure(&halves.judging)),
            |halves: &Halves| figure(&halves.choosing).max(figure(&halves.judging)),
        );
        let agree = |halves: &Halves| more(halves) <= less(halves) * AGREEMENT;
        let worst = modes.iter().map(|halves| more(halves)).fold(0.0, f64::max);
        modes.iter().all(|halves| agree(halves)) && settings.iter().all(|halves| agree(halves) || less(halves) > worst * AGREEMENT)
    })
}

/// The regret against a mode: the tightest setting that is good enough against it on the first half of the seeds, or else that is as
/// good as the best there, judged on the second half. `settings` in the order of the knob. The setting's place among them and the ratio; `None`
/// without any setting.
///
/// Which of several good ones is the best is often decided by whether the mode collapsed on the seeds at hand, or by how far a caller
/// who is far behind fell behind on them. Whoever sets the knob has no reason to go on to such a setting: what he allows he gets.
/// And where a good one is too tight it costs too much CPU time, which differs less from seed to seed than the tail does. Nor does he
/// go on for a gain that he cannot tell from none, to the edge of a step in the curve.
pub fn regret(settings: &[Halves], other: &Halves) -> Option<(usize, f64)> {
    let least = settings[best(settings, other)?].worst(other);
    let enough = GOOD.max(least * TIE);
    let chosen = settings.iter().position(|setting| setting.worst(other) <= enough)?;
    Some((chosen, settings[chosen].judging.ratio(&other.judging)))
}

fn best(settings: &[Halves], other: &Halves) -> Option<usize> {
    (0..settings.len()).min_by(|&a, &b| settings[a].worst(other).total_cmp(&settings[b].worst(other)))
}

/// Settings of the knob, which has no steps, where one may be better than the best against a mode on the first half of the seeds:
/// half-way from it to its neighbours, unless they are alike; and between the two that leave most room for a better one, half-way and
/// where the curve should meet the mode's figures. (By the latter alone the search creeps towards a bend from one side.) None if it is
/// within 3 % of the mode already. `settings` in the order of the knob.
pub fn finer(settings: &[(LatencySlack, Halves)], other: &Halves) -> Vec<LatencySlack> {
    let halves: Vec<Halves> = settings.iter().map(|(_, halves)| *halves).collect();
    let Some(at) = best(&halves, other).filter(|&at| halves[at].worst(other) > 1.03) else { return Vec::new() };
    let between = |first: usize, part: f64| part_way(settings[first].0, settings[first + 1].0, part);
    let room = |first: usize| halves[first].between(&halves[first + 1], other);
    let roomiest = (0..settings.len() - 1).min_by(|&a, &b| room(a).total_cmp(&room(b)));
    let within = roomiest.filter(|&first| room(first) < halves[at].worst(other));
    let within = within.map(|first| [0.5, halves[first].meets(&halves[first + 1], other)].map(|part| between(first, part)));
    let around = [at.checked_sub(1), Some(at)].into_iter().flatten().filter(|first| first + 1 < settings.len());
    let around = around.filter(|&first| !halves[first].is_like(&halves[first + 1]));
    let mut more: Vec<LatencySlack> = around.map(|first| between(first, 0.5)).chain(within.into_iter().flatten()).collect();
    more.sort();
    more.dedup();
    more.retain(|slack| settings.iter().all(|(known, _)| known != slack));
    more
}

/// The most that tells anything, in thousandths: with ten thousand times what its device takes, at least 5 µs, a caller may be later
/// than a run is long, and any more is the same.
const MOST: u32 = 10_000_000;

/// In the logarithm, from a thousandth to [`MOST`].
fn part_way(a: LatencySlack, b: LatencySlack, part: f64) -> LatencySlack {
    let log = |slack: LatencySlack| f64::from(slack.thousandths().clamp(1, MOST)).ln();
    LatencySlack::per_mille((log(a) + (log(b) - log(a)) * part).exp().round() as u32)
}

#[cfg(test)]
mod tests;
