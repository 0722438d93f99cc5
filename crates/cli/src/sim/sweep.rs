//! `reap sim --sweep`: every mode in every cell, and how far `adaptive` is from the others.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ::sim::sweep::{self, Cell, Grid, Halves, Point, REFINEMENTS, SEEDS, SLACKS};
use ::sim::{Outcome, SimError};
use anyhow::{Context, Result, bail};
use comfy_table::{Cell as Text, CellAlignment, Table, presets};
use completion::{LatencySlack, Mode};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use serde_json::{Value, json};

use super::{pool, scenario};
use crate::args::SimArgs;
use crate::output::Output;
use crate::report::{self, Report};
use crate::rows::json::JsonResults;
use crate::rows::table::digits;
use crate::rows::{Results, Row, Scene};
use crate::stop;

/// I/Os of each mode in each cell, unless the user says otherwise: the whole sweep's, and that of `--quick`.
const IOS: u64 = 1_000_000;
const QUICK_IOS: u64 = 40_000;

/// What stands below a page's charts.
const LEGEND: &str = "Virtual time: the same seed gives the same figures on any machine. CPU: of all CPUs, interrupts included, the application's own \
    work not. Latencies: from the intended start until the completion was found. Regret: the setting of --latency-slack with the least max(p99 ÷ \
    its p99, CPU ÷ its CPU) on one half of the seeds, judged on the other.";

/// A mode in a cell; of `adaptive`, one setting of its knob.
struct Task {
    cell: usize,
    mode: Mode,
    slack: LatencySlack,
    capacity: f64,
}

/// What came of a task.
struct Ran {
    row: Row,
    halves: Halves,
}

/// How far `adaptive` is from a mode in a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Regret {
    mode: String,
    load_pct: u32,
    qd: u32,
    profile: String,
    costs: &'static str,
    ratio: f64,
    /// The setting that was judged.
    latency_slack: String,
}

/// Runs the sweep, and prints the worst.
///
/// # Errors
/// Bad input, a run that broke a law.
pub fn run(args: &SimArgs) -> Result<ExitCode> {
    let modes = if args.modes.is_empty() { Mode::ALL.to_vec() } else { args.modes.clone() };
    let seed = args.seed.unwrap_or(1);
    let stop = stop::on_signal()?;
    let mut file = args.json.as_deref().map(|path| Output::open(Some(path))).transpose()?;
    let mut page = report::open(args.html.as_deref())?;
    let grid = grid(args, seed)?;
    let cells = grid.cells();
    let ios = (ios(args) / SEEDS).max(1);
    let mut tasks = tasks(&cells, grid.loads.len(), &modes, seed, &stop)?;
    let mut ran = run_all(&cells, &tasks, "cells × modes", ios, seed, &stop)?;
    for _ in 0..REFINEMENTS {
        let more = finer(&cells, &tasks, &ran);
        if more.is_empty() || stop.load(Relaxed) {
            break;
        }
        ran.extend(run_all(&cells, &more, "finer settings", ios, seed, &stop)?);
        tasks.extend(more);
    }
    let done = ran.iter().flatten().count();
    if done == 0 {
        bail!("stopped before anything was simulated");
    }
    if done < tasks.len() {
        eprintln!("note: stopped by a signal after {done} of {} runs; what follows is of those", tasks.len());
    }
    let regrets = regrets(&cells, &tasks, &ran);
    let mut results =
        Results { title: format!("Sweep of {done} runs, {} I/Os each", ios * SEEDS), device: "simulated".into(), ..Results::default() };
    // Settings that were tried later stand with their cell.
    let mut rows: Vec<(usize, Row)> = tasks.iter().zip(ran).filter_map(|(task, ran)| Some((task.cell, ran?.row))).collect();
    rows.sort_by_key(|(cell, _)| *cell);
    results.rows = rows.into_iter().map(|(_, row)| row).collect();
    results.extra.insert("seed".into(), seed.into());
    results.extra.insert("ios_per_cell".into(), (ios * SEEDS).into());
    results.extra.insert("regret".into(), serde_json::to_value(&regrets)?);
    if let Some(page) = page.take() {
        results.notes.push(LEGEND.into());
        report::write(&Report { results: &results, machine: "simulated; what things cost stands with each scene" }, page)?;
    }
    if let Some(mut file) = file.take() {
        // A curve for each of thousands of rows is more than anybody reads.
        results.rows.iter_mut().for_each(|row| row.latency.curve.clear());
        file.write(&(serde_json::to_string(&JsonResults::new(&results))? + "\n"))?;
        file.finish()?;
    }
    let mut output = Output::open(None)?;
    output.write(&show(&regrets, done, ios * SEEDS))?;
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// What the arguments leave of the whole.
///
/// # Errors
/// An unknown profile or price list.
fn grid(args: &SimArgs, seed: u64) -> Result<Grid> {
    let mut grid = if args.quick { Grid::quick(seed) } else { Grid::whole(seed) };
    let known = |names: Vec<&str>| names.join(", ");
    if let Some(costs) = &args.costs {
        let all = grid.costs.clone();
        grid.costs.retain(|name| name == costs);
        if grid.costs.is_empty() {
            bail!("--sweep knows no price list '{costs}': it has {}", known(all));
        }
    }
    if !args.profiles.is_empty() {
        // The last one is the drawn one, under whatever name.
        let all = std::mem::take(&mut grid.profiles);
        for wanted in &args.profiles {
            let found = all.iter().find(|profile| profile.name == *wanted || wanted == "drawn" && profile.name.starts_with("drawn"));
            let names = || known(all.iter().map(|profile| profile.name.as_str()).collect());
            grid.profiles.push(found.with_context(|| format!("the sweep has no profile '{wanted}', but {} (or: drawn)", names()))?.clone());
        }
    }
    if !args.qd.is_empty() {
        grid.depths.clone_from(&args.qd);
    }
    if !args.loads.is_empty() {
        grid.loads.clone_from(&args.loads);
    }
    Ok(grid)
}

/// I/Os of each mode in each cell.
fn ios(args: &SimArgs) -> u64 {
    args.ios.unwrap_or(if args.quick { QUICK_IOS } else { IOS })
}

/// Runs them on all cores; those that were not begun before `stop` was set are `None`.
fn run_all(cells: &[Cell], tasks: &[Task], what: &str, ios: u64, seed: u64, stop: &AtomicBool) -> Result<Vec<Option<Ran>>> {
    let results = pool::each(tasks, what, stop, |task| ran(&cells[task.cell], task, ios, seed));
    results.into_iter().map(Option::transpose).collect::<Result<_, SimError>>().context("the sweep")
}

/// Settings of the knob that are still to be tried, in cells where none is close to some mode.
fn finer(cells: &[Cell], tasks: &[Task], ran: &[Option<Ran>]) -> Vec<Task> {
    let mut more: Vec<Task> = Vec::new();
    for at in 0..cells.len() {
        let settings = settings(at, tasks, ran);
        for (task, ran) in tasks.iter().zip(ran).filter(|(task, _)| task.cell == at && task.mode != Mode::ADAPTIVE) {
            let Some(ran) = ran else { continue };
            for slack in sweep::finer(&settings, &ran.halves) {
                if !more.iter().any(|known| known.cell == at && known.slack == slack) {
                    more.push(Task { cell: at, mode: Mode::ADAPTIVE, slack, capacity: task.capacity });
                }
            }
        }
    }
    more
}

/// The settings of the knob that were run in a cell, in its order.
fn settings(at: usize, tasks: &[Task], ran: &[Option<Ran>]) -> Vec<(LatencySlack, Halves)> {
    let here = tasks.iter().zip(ran).filter(|(task, _)| task.cell == at && task.mode == Mode::ADAPTIVE);
    let mut settings: Vec<_> = here.filter_map(|(task, ran)| Some((task.slack, ran.as_ref()?.halves))).collect();
    settings.sort_by_key(|(slack, _)| *slack);
    settings
}

/// Every mode in every cell, the capacities measured: one for all loads of a neighbourhood, of which there are `loads`.
fn tasks(cells: &[Cell], loads: usize, modes: &[Mode], seed: u64, stop: &AtomicBool) -> Result<Vec<Task>> {
    let places: Vec<&Cell> = cells.iter().step_by(loads).collect();
    let capacities = pool::each(&places, "capacities", stop, |cell| cell.capacity(seed));
    let capacities: Vec<Option<f64>> = capacities.into_iter().map(Option::transpose).collect::<Result<_, SimError>>()?;
    let mut tasks = Vec::new();
    for (cell, capacity) in (0..cells.len()).filter_map(|at| Some((at, (*capacities.get(at / loads)?)?))) {
        for &mode in modes {
            let slacks: &[LatencySlack] = if mode == Mode::ADAPTIVE { &SLACKS } else { &[LatencySlack::NONE] };
            tasks.extend(slacks.iter().map(|&slack| Task { cell, mode, slack, capacity }));
        }
    }
    Ok(tasks)
}

/// All seeds of a task: its row, and each half's figures.
fn ran(cell: &Cell, task: &Task, ios: u64, seed: u64) -> Result<Ran, SimError> {
    let outcomes: Vec<Outcome> = (0..SEEDS)
        .map(|n| cell.scenario(task.mode, task.slack, task.capacity, ios, seed.wrapping_add(n)).run())
        .collect::<Result<_, SimError>>()?;
    let (first, second) = outcomes.split_at(outcomes.len() / 2);
    let unfit = || SimError::Unfit("a cell without I/Os".into());
    let halves = [Point::of(first).ok_or_else(unfit)?, Point::of(second).ok_or_else(unfit)?];
    let scene = Scene { load_pct: f64::from(cell.load), qd: cell.depth.into(), profile: cell.profile.name.clone(), ..Scene::default() };
    let name = if task.mode == Mode::ADAPTIVE { format!("{}@{}", task.mode, task.slack) } else { task.mode.to_string() };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut row = scenario::row(name, &scene, &outcomes.iter().collect::<Vec<_>>(), &mut rng).ok_or_else(unfit)?;
    row.extra.insert("costs".into(), Value::from(cell.costs));
    row.extra.insert("capacity_iops".into(), json!(task.capacity));
    Ok(Ran { row, halves })
}

/// Against every other mode in every cell whose settings were all run.
fn regrets(cells: &[Cell], tasks: &[Task], ran: &[Option<Ran>]) -> Vec<Regret> {
    let mut regrets = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let settings = settings(at, tasks, ran);
        if settings.len() < SLACKS.len() {
            continue;
        }
        let halves: Vec<Halves> = settings.iter().map(|(_, halves)| *halves).collect();
        for (task, ran) in tasks.iter().zip(ran).filter(|(task, _)| task.cell == at && task.mode != Mode::ADAPTIVE) {
            let judged = ran.as_ref().and_then(|ran| sweep::regret(&halves, &ran.halves));
            regrets.extend(judged.map(|(best, ratio)| Regret {
                mode: task.mode.to_string(),
                load_pct: cell.load,
                qd: cell.depth,
                profile: cell.profile.name.clone(),
                costs: cell.costs,
                ratio,
                latency_slack: settings[best].0.to_string(),
            }));
        }
    }
    regrets
}

/// By mode: the median, how many cells are beyond 5 %, and the worst with its place.
fn show(regrets: &[Regret], runs: usize, ios: u64) -> String {
    let mut text = format!("{runs} runs of {} I/Os each, in virtual time.\n", digits(ios as f64));
    if regrets.is_empty() {
        return text + "No cell has `adaptive` with all settings of its knob and another mode to compare it with.\n";
    }
    let mut modes: Vec<&str> = Vec::new();
    for regret in regrets {
        if !modes.contains(&regret.mode.as_str()) {
            modes.push(&regret.mode);
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let right = |text: String| Text::new(text).set_alignment(CellAlignment::Right);
    let headers = ["cells", "median", "> 1.05", "worst", "at load\n%", "queue\ndepth"];
    let header = std::iter::once(Text::new("adaptive against")).chain(headers.map(|h| right(h.into())));
    table.set_header(header.chain(["profile", "costs", "slack"].map(Text::new)));
    for mode in modes {
        let mut of: Vec<&Regret> = regrets.iter().filter(|regret| regret.mode == mode).collect();
        of.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let (Some(middle), Some(worst)) = (of.get(of.len() / 2), of.last()) else { continue };
        let beyond = of.iter().filter(|regret| regret.ratio > 1.05).count();
        let ratio = |ratio: f64| format!("{ratio:.3}");
        let figures = [
            of.len().to_string(),
            ratio(middle.ratio),
            beyond.to_string(),
            ratio(worst.ratio),
            worst.load_pct.to_string(),
            worst.qd.to_string(),
        ];
        let place = [worst.profile.clone(), worst.costs.to_owned(), worst.latency_slack.clone()].map(Text::new);
        table.add_row(std::iter::once(Text::new(mode)).chain(figures.map(right)).chain(place));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    text += &format!("{table}\n");
    text + "In each cell and against each mode: the setting of --latency-slack with the least max(p99 ÷ its p99, CPU ÷ its CPU) on one half\n\
            of the seeds, judged on the other half. 1.00: as good in both; the worst cell's place and setting stand beside it.\n"
}

#[cfg(test)]
mod tests;
