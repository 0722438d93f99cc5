//! The sweep: every mode at every load, queue depth and profile, under both price lists; and how far the adaptive policy is
//! from each of the others.
//!
//! A [`Cell`] is a place to compare modes at: its load is a part of what `poll` does there in a closed loop, measured
//! beforehand. *Regret* at a cell against a mode m is max(p99 ÷ m's p99, CPU ÷ m's CPU), of the setting of the knob that is
//! [chosen](regret) against m on one half of the seeds, judged on the other half. That says something if the halves speak for each
//! other, and they do not everywhere: some modes collapse on one seed and not on the next. So what is good has to be so in
//! both halves of that half, and a cell whose [halves disagree](halves_agree) gets more seeds.

pub mod cells;
pub mod judge;
mod text;
mod unseen;

pub use cells::{Cell, DEPTHS, Grid, JOBS, Kind, LOADS, PHASED, Prices, ShippedJob, drawn, ships};

use completion::LatencyPrice;
use serde::{Deserialize, Serialize};
use workload::Histogram;

/// Settings of the knob.
pub const PRICES: &[LatencyPrice] = &LatencyPrice::SETTINGS;
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
/// How often the knob is set finer.
pub const REFINEMENTS: usize = 3;

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
/// who is far behind fell behind on them. A user has no reason to go on to such a setting: the allowed lateness is had already.
/// And where a good one is too tight it costs too much CPU time, which differs less from seed to seed than the tail does. Nor does a user
/// go on for a gain that cannot be told from none, to the edge of a step in the curve.
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
pub fn finer(settings: &[(LatencyPrice, Halves)], other: &Halves) -> Vec<LatencyPrice> {
    let halves: Vec<Halves> = settings.iter().map(|(_, halves)| *halves).collect();
    let Some(at) = best(&halves, other).filter(|&at| halves[at].worst(other) > 1.03) else { return Vec::new() };
    let between = |first: usize, part: f64| settings[first].0.between(settings[first + 1].0, part);
    let room = |first: usize| halves[first].between(&halves[first + 1], other);
    let roomiest = (0..settings.len() - 1).min_by(|&a, &b| room(a).total_cmp(&room(b)));
    let within = roomiest.filter(|&first| room(first) < halves[at].worst(other));
    let within = within.map(|first| [0.5, halves[first].meets(&halves[first + 1], other)].map(|part| between(first, part)));
    let around = [at.checked_sub(1), Some(at)].into_iter().flatten().filter(|first| first + 1 < settings.len());
    let around = around.filter(|&first| !halves[first].is_like(&halves[first + 1]));
    let mut more: Vec<LatencyPrice> = around.map(|first| between(first, 0.5)).chain(within.into_iter().flatten()).collect();
    more.sort();
    more.dedup();
    more.retain(|price| settings.iter().all(|(known, _)| known != price));
    more
}

#[cfg(test)]
mod tests;
