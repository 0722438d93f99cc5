//! The sweep: every mode in many cells, and where another mode, or another setting of its own knob, dominates `adaptive` at
//! its default.
//!
//! A [`Cell`] is a place to compare modes at: its load is a part of what `poll` does there in a closed loop, measured
//! beforehand. What is developed on seeds 1 to 8 is judged on others (`--first-seed 9`), and on cells on which no constant was
//! chosen (`--unseen`).

mod cells;
mod judge;
mod text;
mod unseen;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use completion::{LatencyPrice, Mode, Preset};
use serde_json::{Value, json};
use sim::SimError;
use workload::{Histogram, Latency};

use crate::output;
use cells::{Cell, Grid, Kind};
use judge::{Fare, Verdict};

/// The prices that a sweep tries, from the one that finds completions soonest to the one that costs least.
const PRICES: [LatencyPrice; 11] = [
    LatencyPrice::UNLIMITED,
    LatencyPrice::per_mille(10_000),
    LatencyPrice::per_mille(3_000),
    LatencyPrice::per_mille(1_000),
    LatencyPrice::per_mille(500),
    LatencyPrice::per_mille(300),
    LatencyPrice::per_mille(200),
    LatencyPrice::per_mille(100),
    LatencyPrice::per_mille(30),
    LatencyPrice::per_mille(10),
    LatencyPrice::NONE,
];

/// Seeds of each cell, which share its I/Os.
const SEEDS: u64 = 8;
/// Cells that are shown of those that are dominated, the worst ones.
const SHOWN: usize = 20;

/// `cargo xtask sweep`
#[derive(Args, Debug)]
pub struct SweepArgs {
    /// A third of the cells, no +submit-check, and 20,000 I/Os
    #[arg(long)]
    quick: bool,
    /// A grid that no constant was chosen on, drawn from --seed: three devices, a price list between the two, loads, depths
    #[arg(long)]
    unseen: bool,
    /// Draws the profiles
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The first seed of the eight runs of each mode in each cell
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
    /// Only cells that have all of these words; with commas between, one of several: 'vm closed qd=1,32'
    #[arg(long, value_name = "WORDS", default_value = "")]
    cells: String,
    /// I/Os of each mode in each cell; twice as many of devices that alternate between phases [default: 500000]
    #[arg(long, value_name = "N")]
    ios: Option<u64>,
    /// Also write what each mode came to in each cell
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run nothing, but write each cell into this directory as a scenario for `reap sim`
    #[arg(long, value_name = "DIR")]
    scenarios: Option<PathBuf>,
}

/// A mode in a cell, and what came of it.
struct Ran {
    cell: usize,
    mode: Mode,
    fare: Fare,
    p50: f64,
}

/// A cell's verdict on the default.
struct Judged<'a> {
    cell: &'a Cell,
    verdict: Verdict,
    /// What the default costs by its own measure, as a part of what the cheapest other mode does.
    cost: f64,
    monotone: bool,
    /// Who dominates, of several the cheapest, and its figures as parts of the default's.
    rival: Option<(&'a Ran, Fare)>,
    by_mode: bool,
}

/// Runs the sweep, and prints the verdicts.
///
/// # Errors
/// No such cell, a file that cannot be written, a run that broke an invariant.
pub fn run(args: &SweepArgs) -> Result<()> {
    let grid = match (args.unseen, args.quick) {
        (true, _) => Grid::unseen(args.seed)?,
        (_, true) => Grid::quick(args.seed),
        _ => Grid::whole(args.seed),
    };
    let words: Vec<Vec<String>> = args.cells.split_whitespace().map(|group| group.split(',').map(str::to_owned).collect()).collect();
    let mut cells = grid.cells();
    cells.retain(|cell| cell.is_named(&words));
    ensure!(!cells.is_empty(), "no cell has the words '{}'; one is called '{}'", args.cells, grid.cells()[0]);
    let ios = args.ios.unwrap_or(if args.quick { 20_000 } else { 500_000 });

    // What a load is a part of: the same for all loads of a place.
    let place = |cell: &Cell| Cell { kind: Kind::Closed, ..cell.clone() };
    let mut places: Vec<Cell> = cells.iter().filter(|cell| cell.kind.is_open()).map(place).collect();
    places.dedup();
    let capacities = output::each("capacities", &places, |cell| cell.capacity(args.seed)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let capacity =
        |cell: &Cell| places.iter().position(|known| cell.kind.is_open() && *known == place(cell)).map_or(0.0, |at| capacities[at]);

    if let Some(dir) = &args.scenarios {
        fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
        for cell in &cells {
            let path = dir.join(cell.to_string().replace(' ', ",") + ".toml");
            let text = cell.text(capacity(cell), ios, args.first_seed)?;
            File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| path.display().to_string())?;
        }
        return Ok(());
    }

    let modes: Vec<Mode> = Mode::known().into_iter().filter(|mode| !args.quick || !mode.submit_check()).collect();
    let of_mode = |mode: Mode| if mode == Mode::ADAPTIVE { PRICES.map(Mode::adaptive).to_vec() } else { vec![mode] };
    let modes: Vec<Mode> = modes.into_iter().flat_map(of_mode).collect();
    let tasks: Vec<(usize, Mode)> = (0..cells.len()).flat_map(|cell| modes.iter().map(move |&mode| (cell, mode))).collect();
    let ran = output::each("runs", &tasks, |&(cell, mode)| {
        let at = &cells[cell];
        let (fare, p50) = fare(at, mode, capacity(at), at.ios((ios / SEEDS).max(1)), args.first_seed)?;
        anyhow::Ok(Ran { cell, mode, fare, p50 })
    });
    let ran = ran.into_iter().collect::<Result<Vec<_>>>()?;
    if args.unseen {
        for (name, text) in grid.tables()? {
            println!("# {name}\n{text}");
        }
    }
    print!("{}", show(&cells, &ran));
    if let Some(path) = &args.json {
        let rows: Vec<Value> = ran.iter().map(|ran| row(&cells[ran.cell], ran)).collect();
        fs::write(path, serde_json::to_string_pretty(&rows)? + "\n").with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// What a mode comes to in a cell over all seeds together, and its median latency.
fn fare(cell: &Cell, mode: Mode, capacity: f64, ios: u64, first: u64) -> Result<(Fare, f64), SimError> {
    let (mut cpu, mut iops, mut latency) = (0.0, 0.0, Latency::default());
    for n in 0..SEEDS {
        let outcome = cell.scenario(mode, capacity, ios, first.wrapping_add(n))?.run()?;
        cpu += outcome.cpu_ns_per_io() / SEEDS as f64;
        iops += outcome.iops() / SEEDS as f64;
        latency.merge(&outcome.latency);
    }
    let at = |percent| percentile_within(latency.histogram.as_ref()?, percent);
    let (Some(p50), Some(p99)) = (at(50.0), at(99.0)) else { return Err(SimError::Unfit("a cell without I/Os".into())) };
    Ok((Fare { cpu, mean: latency.moments.mean(), p99, iops }, p50))
}

/// The value of a percentile, if those of a bucket lie evenly in it: finer than [`Histogram::percentiles`], which know it to 1/64, as fio
/// does. `None` if nothing was counted.
fn percentile_within(histogram: &Histogram, percent: f64) -> Option<f64> {
    let mut left = percent / 100.0 * histogram.total() as f64;
    for (middle, n) in histogram.buckets() {
        if left <= n as f64 {
            // A bucket has the seven highest bits of its values.
            let width = 1u64 << (57 - (middle | 64).leading_zeros());
            return Some((middle - width / 2) as f64 + width as f64 * left / n as f64);
        }
        left -= n as f64;
    }
    None
}

/// The verdict on a cell, of what was run in it.
fn judged<'a>(cell: &'a Cell, ran: &'a [Ran]) -> Option<Judged<'a>> {
    let price = LatencyPrice::default();
    let (knob, others): (Vec<&Ran>, Vec<&Ran>) = ran.iter().partition(|ran| matches!(ran.mode.preset(), Preset::Adaptive(_)));
    let own = knob.iter().find(|ran| ran.mode == Mode::ADAPTIVE)?.fare;
    let rest: Vec<&Ran> = knob.iter().filter(|ran| ran.mode != Mode::ADAPTIVE).copied().collect();
    let fares = |of: &[&Ran]| of.iter().map(|ran| ran.fare).collect::<Vec<Fare>>();
    let open = cell.kind.is_open();
    let verdict = judge::judge(&own, &fares(&others), &fares(&rest), open);
    let rival = if let Verdict::Dominated(at) = verdict { others.iter().chain(&rest).nth(at) } else { None };
    let cheapest = others.iter().map(|ran| ran.fare.cost(price.rate())).reduce(f64::min)?;
    Some(Judged {
        cell,
        verdict,
        cost: own.cost(price.rate()) / cheapest,
        monotone: judge::is_monotone(&fares(&knob)),
        rival: rival.map(|ran| (*ran, ran.fare.over(&own))),
        by_mode: others.iter().any(|ran| ran.fare.dominates(&own, open)),
    })
}

/// Counts, families, the worst cells.
fn show(cells: &[Cell], ran: &[Ran]) -> String {
    let mut all: Vec<Judged<'_>> = ran.chunk_by(|a, b| a.cell == b.cell).filter_map(|of| judged(&cells[of[0].cell], of)).collect();
    all.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let Some(dearest) = all.last() else { return String::new() };
    let count = |of: &dyn Fn(&Judged<'_>) -> bool| all.iter().filter(|cell| of(cell)).count();
    let cost = |percent: usize| all[(all.len() - 1) * percent / 100].cost;
    let mut text = format!(
        "adaptive at its default, {price}, in {} cells: dominated in {}, by another mode in {}; dominating in {}.\n\
         CPU time + {price} · mean latency, as a part of the cheapest mode's: median {:.2}, 90th percentile {:.2}, worst {:.2} ({}).\n\
         Its knob is monotone within 3 % in {} cells.\n\n",
        all.len(),
        count(&|cell| cell.rival.is_some()),
        count(&|cell| cell.by_mode),
        count(&|cell| cell.verdict == Verdict::Dominating),
        cost(50),
        cost(90),
        dearest.cost,
        dearest.cell,
        count(&|cell| cell.monotone),
        price = LatencyPrice::default(),
    );
    let mut families: BTreeMap<&str, Vec<&Judged<'_>>> = BTreeMap::new();
    all.iter().for_each(|cell| families.entry(cell.cell.kind.family()).or_default().push(cell));
    let rows = families.iter().map(|(family, of)| {
        let worst = of.iter().filter_map(|cell| Some(cell.rival?.1.cpu)).reduce(f64::min);
        let count = |which: &dyn Fn(&Judged<'_>) -> bool| of.iter().filter(|cell| which(cell)).count().to_string();
        vec![
            (*family).to_owned(),
            of.len().to_string(),
            count(&|cell| cell.rival.is_some()),
            count(&|cell| cell.by_mode),
            worst.map_or_else(String::new, |cpu| format!("{cpu:.2}")),
            count(&|cell| cell.verdict == Verdict::Dominating),
        ]
    });
    text += &output::table(&["family", "cells", "dominated", "by modes", "worst CPU", "dominating"], 1, rows);
    let mut dominated: Vec<(&Cell, &Ran, Fare)> =
        all.iter().filter_map(|cell| cell.rival.map(|(ran, parts)| (cell.cell, ran, parts))).collect();
    dominated.sort_by(|a, b| a.2.cpu.total_cmp(&b.2.cpu));
    let rows = dominated.iter().take(SHOWN).map(|(cell, ran, parts)| {
        let parts = [parts.cpu, parts.mean, parts.p99, parts.iops].map(|part| format!("{part:.2}"));
        [cell.to_string(), ran.mode.to_string()].into_iter().chain(parts).collect()
    });
    text + "\nThe worst, as parts of what the default takes:\n"
        + &output::table(&["dominated in", "by", "CPU", "mean", "p99", "IOPS"], 2, rows)
}

/// What a mode came to in a cell, for scripts.
fn row(cell: &Cell, ran: &Ran) -> Value {
    json!({
        "cell": cell.to_string(), "costs": cell.costs.name, "profile": cell.profile.name, "family": cell.kind.family(),
        "qd": cell.depth, "load_pct": cell.kind.load(), "mode": ran.mode.to_string(), "default": ran.mode == Mode::ADAPTIVE,
        "cpu_ns_per_io": ran.fare.cpu, "mean_ns": ran.fare.mean, "p50_ns": ran.p50, "p99_ns": ran.fare.p99, "iops": ran.fare.iops,
    })
}

#[cfg(test)]
mod tests;
