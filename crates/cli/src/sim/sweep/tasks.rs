//! What is run: a mode in a cell, with some seeds; and its result.

use std::sync::atomic::AtomicBool;

use ::sim::SimError;
use ::sim::sweep::judge::Fare;
use ::sim::sweep::{self, Cell, Halves, Kind, PRICES, SEEDS, Seed};
use anyhow::Result;
use completion::{LatencyPrice, Mode};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use workload::{Histogram, Moments};

use super::ran::Ran;
use crate::rows::Scene;
use crate::sim::scenario::Figures;
use crate::sim::{pool, scenario};

/// A mode in a cell; of `adaptive`, one setting of its knob.
pub struct Task {
    pub cell: usize,
    pub mode: Mode,
    pub price: LatencyPrice,
    pub capacity: f64,
    pub seeds: u64,
    /// What is known of the first of them.
    pub begun: Vec<Figures>,
}

impl Task {
    pub fn label(&self) -> String {
        if self.mode == Mode::ADAPTIVE { format!("{}@{}", self.mode, self.price) } else { self.mode.to_string() }
    }

    /// Seeds that it has beyond those that ran before.
    pub fn seeds_more(&self) -> u64 {
        if self.seeds > SEEDS { self.seeds / 2 } else { self.seeds }
    }

    /// The same once more, which takes over what is known of the first seeds.
    pub fn with_twice_the_seeds(&mut self) -> Task {
        Task { seeds: self.seeds * 2, begun: std::mem::take(&mut self.begun), ..*self }
    }
}

/// Puts what was run again in its place, if all of its cell was: a mode has to have as many seeds as the ones that it is compared with.
pub fn take_over(tasks: &mut [Task], ran: &mut [Option<Ran>], again: Vec<(usize, (Task, Option<Ran>))>) {
    let stopped_in: Vec<usize> = again.iter().filter(|(_, (_, ran))| ran.is_none()).map(|(_, (task, _))| task.cell).collect();
    for (at, (task, result)) in again.into_iter().filter(|(_, (task, _))| !stopped_in.contains(&task.cell)) {
        (tasks[at], ran[at]) = (task, result);
    }
}

/// Whether in a cell the halves agree, as far as it was run. Finer settings than [`PRICES`] are not asked: which there are depends on
/// how close they come to some mode, and who gets more seeds must not.
pub fn halves_agree(cell: usize, tasks: &[Task], ran: &[Option<Ran>]) -> bool {
    let here = || tasks.iter().zip(ran).filter(|(task, _)| task.cell == cell).filter_map(|(task, ran)| Some((task, &ran.as_ref()?.halves)));
    let modes: Vec<&Halves> = here().filter(|(task, _)| task.mode != Mode::ADAPTIVE).map(|(_, halves)| halves).collect();
    let asked = |task: &Task| task.mode == Mode::ADAPTIVE && PRICES.contains(&task.price);
    let settings: Vec<&Halves> = here().filter(|(task, _)| asked(task)).map(|(_, halves)| halves).collect();
    sweep::halves_agree(&modes, &settings)
}

/// Settings of the knob that are still to be tried, in open cells where none is close to some mode: regret is of those.
pub fn finer(cells: &[Cell], tasks: &[Task], ran: &[Option<Ran>]) -> Vec<Task> {
    let mut more: Vec<Task> = Vec::new();
    for at in (0..cells.len()).filter(|&at| cells[at].kind.is_open()) {
        let settings = settings(at, tasks, ran);
        for (task, ran) in tasks.iter().zip(ran).filter(|(task, _)| task.cell == at && task.mode != Mode::ADAPTIVE) {
            let Some(ran) = ran else { continue };
            for price in sweep::finer(&settings, &ran.halves) {
                if !more.iter().any(|known| known.cell == at && known.price == price) {
                    more.push(Task { mode: Mode::ADAPTIVE, price, begun: Vec::new(), ..*task });
                }
            }
        }
    }
    more
}

/// The settings of the knob that were run in a cell, in its order.
pub fn settings(at: usize, tasks: &[Task], ran: &[Option<Ran>]) -> Vec<(LatencyPrice, Halves)> {
    let here = tasks.iter().zip(ran).filter(|(task, _)| task.cell == at && task.mode == Mode::ADAPTIVE);
    let mut settings: Vec<_> = here.filter_map(|(task, ran)| Some((task.price, ran.as_ref()?.halves))).collect();
    settings.sort_by_key(|(price, _)| price.rank());
    settings
}

/// Every mode in every cell, `adaptive` at each of `settings`, with the capacities that the cells' loads are parts of. These take seconds
/// to measure, and that is not stopped.
pub fn tasks(cells: &[Cell], modes: &[Mode], settings: &[LatencyPrice], seed: u64) -> Result<Vec<Task>> {
    let alike = |a: &Cell, b: &Cell| a.costs == b.costs && a.profile == b.profile && a.depth == b.depth;
    let mut places: Vec<&Cell> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.kind.is_open()) {
        if !places.iter().any(|place| alike(place, cell)) {
            places.push(cell);
        }
    }
    let capacities = pool::each(&places, "capacities", &AtomicBool::new(false), |cell| cell.capacity(seed));
    let capacities: Vec<f64> = capacities.into_iter().flatten().collect::<Result<_, SimError>>()?;
    let mut tasks = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let place = places.iter().position(|place| cell.kind.is_open() && alike(place, cell));
        let capacity = place.map_or(0.0, |place| capacities[place]);
        for &mode in modes {
            let settings = if mode == Mode::ADAPTIVE { settings } else { &[LatencyPrice::UNLIMITED] };
            tasks.extend(settings.iter().map(|&price| Task { cell: at, mode, price, capacity, seeds: SEEDS, begun: Vec::new() }));
        }
    }
    Ok(tasks)
}

/// All seeds of a task, those that are known already first.
pub fn runs(cell: &Cell, task: &Task, ios: u64, seed: u64) -> Result<Vec<Figures>, SimError> {
    let known = task.begun.iter().cloned().map(Ok);
    let more = (task.begun.len() as u64..task.seeds).map(|n| {
        let scenario = cell.scenario(task.mode, task.price, task.capacity, ios, seed.wrapping_add(n))?;
        scenario.run().map(|outcome| Figures::of(&outcome))
    });
    known.chain(more).collect()
}

/// What they come to: a task's row, and each half's figures.
pub fn ran(cell: &Cell, task: &Task, runs: &[Figures]) -> Result<Ran, SimError> {
    let unfit = || SimError::Unfit("a cell without I/Os".into());
    let seeds: Vec<Seed> = runs.iter().map(|run| (run.cpu, run.histogram())).collect();
    let halves = Halves::of(&seeds).ok_or_else(unfit)?;
    let scene = Scene {
        load_pct: f64::from(cell.kind.load()),
        qd: cell.depth.into(),
        profile: cell.profile.name.clone(),
        arrivals: arrivals(cell),
        ..Scene::default()
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut row = scenario::row(task.label(), &scene, runs, &mut rng).ok_or_else(unfit)?;
    row.extra.insert("costs".into(), Value::from(&*cell.costs.name));
    row.extra.insert("capacity_iops".into(), json!(task.capacity));
    if let Kind::Think { think } = cell.kind {
        row.extra.insert("think_ns".into(), think.0.into());
    }
    let fare = fare(runs).ok_or_else(unfit)?;
    Ok(Ran { row, halves, fare })
}

/// What a page tells cells of one depth and load apart by, where nothing arrives as in an open loop or a plain closed one.
fn arrivals(cell: &Cell) -> Option<String> {
    let words: Vec<String> = cell.to_string().split(' ').skip(2).filter(|word| !word.starts_with("qd=")).map(str::to_owned).collect();
    (!matches!(cell.kind, Kind::Open { .. } | Kind::Closed)).then(|| words.join(" "))
}

/// Of all seeds together. `None` of nothing.
fn fare(runs: &[Figures]) -> Option<Fare> {
    let (mut moments, mut latencies) = (Moments::default(), Histogram::default());
    for run in runs {
        moments.merge(&run.moments);
        latencies.merge(&run.histogram());
    }
    let mean = |of: fn(&Figures) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    Some(Fare { cpu: mean(|run| run.cpu), mean: moments.mean(), p99: latencies.percentile_within(99.0)?, iops: mean(|run| run.iops) })
}
