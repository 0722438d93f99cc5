//! `reap sim --sweep`: every mode in every cell, and how far `adaptive` is from the others.

mod forecast;
mod grid;
mod journal;
mod ran;
mod regrets;
mod tasks;
mod verdicts;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use ::sim::sweep::{Cell, MOST_SEEDS, PRICES, REFINEMENTS, SEEDS};
use anyhow::{Context, Result, bail, ensure};
use completion::{LatencyPrice, Mode};
use serde_json::{Map, Value, json};

use self::forecast::Forecast;
use self::journal::Journal;
use self::ran::Ran;
use self::tasks::{Task, finer, halves_agree, take_over};
use self::verdicts::Verdicts;
use super::files;
use super::pool::{self, Way};
use crate::args::{SimArgs, once};
use crate::output::{self, Later, STANDARD};
use crate::report::{self, Report};
use crate::rows::json::JsonResults;
use crate::rows::{Results, Row};
use crate::sim::scenario::Figures;
use crate::stop;

/// I/Os of each mode in each cell with the seeds that all cells have, unless the user says otherwise (and of devices with phases more): the
/// whole sweep's, and that of `--quick`.
const IOS: u64 = 500_000;
const QUICK_IOS: u64 = 20_000;

/// What stands below a page's charts.
const LEGEND: &str = "Virtual time: the same seed gives the same figures on any machine. CPU: of all CPUs, interrupts included, the application's own \
    work not. Latencies: from the intended start until the completion was found. Regret: max(p99 ÷ its p99, CPU ÷ its CPU) of the tightest \
    setting of --latency-price at which that is at most 1/1.05 on one half of the seeds (the worse of its own halves), or else the least to \
    within 0.5 %, judged on the other half.";

/// What all tasks have in common.
struct Sweep {
    cells: Vec<Cell>,
    /// With each seed, of devices without phases.
    ios: u64,
    /// The first of its seeds.
    first: u64,
    /// Seeds of a cell whose halves disagree.
    most_seeds: u64,
    /// Runs at a time.
    threads: Option<usize>,
    stop: Arc<AtomicBool>,
    /// What is still to come, for the progress.
    forecast: Mutex<Forecast>,
    /// Where what is done is kept; only results that go to a file have one.
    journal: Option<Mutex<Journal>>,
}

/// What is run, one after the other.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Every mode in every cell.
    All,
    /// Cells whose halves disagree, with more seeds.
    Seeds,
    /// The knob, set finer; which time that is, from 0.
    Finer { round: usize },
}

impl Phase {
    fn what(self) -> &'static str {
        match self {
            Phase::All => "cells × modes",
            Phase::Seeds => "more seeds",
            Phase::Finer { .. } => "finer settings",
        }
    }
}

/// Runs the sweep, and prints the worst.
///
/// # Errors
/// Bad input, a run that broke a law.
pub fn run(args: &SimArgs) -> Result<ExitCode> {
    let modes = modes(args);
    once("--modes", &modes)?;
    let seed = args.seed.unwrap_or(1);
    let stop = stop::on_signal()?;
    let (json, html) = files::beside(args)?;
    let grid = grid::grid(args, seed)?;
    let cells = grid::cells(&grid, args.cells.as_deref())?;
    if let Some(dir) = &args.scenarios {
        return grid::write(&cells, dir, ios(args), seed);
    }
    let ios = (ios(args) / SEEDS).max(1);
    let settings = settings(args.quick);
    let (first, most_seeds, threads) = (first_seed(args), most_seeds(args)?, args.jobs);
    // A hurried sweep sets nothing finer.
    let open = cells.iter().map(|cell| cell.kind.is_open() && !args.quick).collect();
    let forecast = Mutex::new(Forecast::new(open, most_seeds));
    let mut sweep = Sweep { cells, ios, first, most_seeds, threads, stop, forecast, journal: None };
    if let Some(path) = &args.json {
        sweep.journal = journal(path, args.resume, sweep.describe(&modes, &settings, seed)?)?.map(Mutex::new);
    }
    let mut tasks = tasks::tasks(&sweep.cells, &modes, &settings, seed)?;
    let mut ran = sweep.run_all(&mut tasks, Phase::All)?;
    sweep.settle(&mut tasks, &mut ran)?;
    let mut more = if args.quick { Vec::new() } else { finer(&sweep.cells, &tasks, &ran) };
    for round in 0..REFINEMENTS {
        if more.is_empty() || sweep.stopped() {
            break;
        }
        ran.extend(sweep.run_all(&mut more, Phase::Finer { round })?);
        tasks.append(&mut more);
        more = finer(&sweep.cells, &tasks, &ran);
    }
    let done = ran.iter().flatten().count();
    let complete = done == tasks.len() && !sweep.stopped();
    if done == 0 {
        bail!("stopped before anything was simulated");
    }
    if !complete {
        sweep.tell_of_the_stop(done, tasks.len());
    }
    let regrets = regrets::regrets(&sweep.cells, &tasks, &ran, settings.len());
    let verdicts = Verdicts::of(&sweep.cells, &tasks, &ran, &modes, &settings);
    let mut results =
        Results { title: format!("Sweep of {done} runs, {ios} I/Os with each seed"), device: "simulated".into(), ..Results::default() };
    // Settings that were tried later stand with their cell.
    let mut rows: Vec<(usize, Row)> = tasks.iter().zip(ran).filter_map(|(task, ran)| Some((task.cell, ran?.row))).collect();
    rows.sort_by_key(|(cell, _)| *cell);
    results.rows = rows.into_iter().map(|(_, row)| row).collect();
    results.extra.insert("seed".into(), seed.into());
    results.extra.insert("ios_per_cell".into(), (ios * SEEDS).into());
    results.extra.insert("ios_per_seed".into(), ios.into());
    results.extra.insert("most_seeds".into(), sweep.most_seeds.into());
    results.extra.insert("complete".into(), complete.into());
    results.extra.insert("regret".into(), serde_json::to_value(&regrets)?);
    results.extra.insert("first_seed".into(), sweep.first.into());
    results.extra.extend(verdicts.json());
    let told = if args.unseen { grid::told(&grid)? } else { String::new() };
    if args.unseen {
        results.extra.insert("grid".into(), grid::json(&grid, &sweep.cells)?);
    }
    results.notes.push(LEGEND.into());
    let banner = results.banner.iter().map(|line| format!("{line}\n\n")).collect::<String>();
    output::all([
        output::print(&(banner + &told + &verdicts.show() + &regrets::show(&regrets, done, ios))),
        html.write(|| report::page(&Report { results: &results, machine: "simulated; what things cost stands with each scene" })),
        json.write(|| {
            // A curve for each of thousands of rows is more than anybody reads.
            results.rows.iter_mut().for_each(|row| row.latency.curve.clear());
            Ok(serde_json::to_string(&JsonResults::new(&results))? + "\n")
        }),
    ])?;
    if let Some(journal) = sweep.journal.filter(|_| complete) {
        journal.into_inner().unwrap_or_else(PoisonError::into_inner).remove()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The modes that are compared. In a hurry no looks after commits: they differ from those without by a few per cent.
fn modes(args: &SimArgs) -> Vec<Mode> {
    match &args.modes[..] {
        [] => Mode::known().into_iter().filter(|mode| !args.quick || !mode.submit_check()).collect(),
        modes => modes.to_vec(),
    }
}

/// The settings of the knob that all cells have: all, or every second one and the default.
fn settings(quick: bool) -> Vec<LatencyPrice> {
    let kept = |(at, setting): (usize, &LatencyPrice)| (!quick || at % 2 == 0 || *setting == LatencyPrice::default()).then_some(*setting);
    PRICES.iter().enumerate().filter_map(kept).collect()
}

/// I/Os of each mode in each cell.
fn ios(args: &SimArgs) -> u64 {
    args.ios.unwrap_or(if args.quick { QUICK_IOS } else { IOS })
}

/// The first seed of the runs: that of the grid, unless `--seeds` names another.
fn first_seed(args: &SimArgs) -> u64 {
    args.seeds.and_then(|seeds| seeds.first).or(args.seed).unwrap_or(1)
}

/// Seeds that a cell may have.
///
/// # Errors
/// The user allows fewer than each cell has.
fn most_seeds(args: &SimArgs) -> Result<u64> {
    let most = args.seeds.map_or(if args.quick { SEEDS } else { MOST_SEEDS }, |seeds| seeds.count.into());
    ensure!(
        most >= SEEDS,
        "--seeds {most}: each cell of the sweep has {SEEDS}, and more where their halves disagree; ask for {SEEDS} or more"
    );
    Ok(most)
}

/// The journal beside the results; pipes and devices have none.
///
/// # Errors
/// As [`Journal::open`]'s; it is asked to resume where there can be none.
fn journal(json: &Path, resume: bool, sweep: Map<String, Value>) -> Result<Option<Journal>> {
    if json != Path::new(STANDARD) && json.is_file() {
        return Journal::open(json, &sweep, resume).map(Some);
    }
    ensure!(!resume, "{} is no file, and has no journal beside it: nothing to resume", json.display());
    Ok(None)
}

impl Sweep {
    /// Everything that a run's figures depend on, and which runs there are.
    ///
    /// # Errors
    /// The program cannot read itself.
    fn describe(&self, modes: &[Mode], settings: &[LatencyPrice], seed: u64) -> Result<Map<String, Value>> {
        let modes: Vec<String> = modes.iter().map(Mode::to_string).collect();
        let settings: Vec<String> = settings.iter().map(LatencyPrice::to_string).collect();
        // A file may say something else the next time.
        let cells: Vec<String> = self.cells.iter().map(|cell| format!("{cell} {:?} {:?}", cell.profile, cell.costs.costs)).collect();
        let described = [
            ("seed", json!(seed)),
            ("first_seed", json!(self.first)),
            ("ios_per_cell", json!(self.ios * SEEDS)),
            ("most_seeds", json!(self.most_seeds)),
            ("modes", json!(modes)),
            ("settings", json!(settings)),
            ("cells", json!(cells)),
            ("program", json!(journal::program()?)),
        ];
        Ok(described.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
    }

    /// Runs them on all cores, but for those that the journal knows; what was not begun before the stop is `None`.
    fn run_all(&self, tasks: &mut [Task], phase: Phase) -> Result<Vec<Option<Ran>>> {
        let mut all: Vec<Option<Ran>> =
            tasks.iter().map(|task| self.with_journal(|journal| journal.take(&self.name(task))).flatten()).collect();
        let mut left: Vec<usize> = (0..tasks.len()).filter(|&at| all[at].is_none()).collect();
        // Whatever stretch of them is done then speaks for the rest; and what a stop leaves are whole cells.
        left.sort_by_key(|&at| (scattered(tasks[at].cell), at));
        let way = Way { what: phase.what(), threads: self.threads, later: Later::default() };
        self.foresee(phase, tasks, &all, &way.later);
        // A run that fails ends the sweep: the others' results wait in the journal.
        let run = |&at: &usize| {
            let (ran, runs) = self.run(&tasks[at]).inspect_err(|_| self.stop.store(true, Relaxed))?;
            self.foretell(phase, &tasks[at], &ran, &way.later);
            anyhow::Ok((ran, runs))
        };
        for (&at, result) in left.iter().zip(pool::each_of(&way, &left, &self.stop, run)) {
            let Some((ran, runs)) = result.transpose().context("the sweep")? else { continue };
            (all[at], tasks[at].begun) = (Some(ran), runs);
        }
        Ok(all)
    }

    /// Says how much work follows a phase, of which the journal may know a part.
    fn foresee(&self, phase: Phase, tasks: &[Task], known: &[Option<Ran>], later: &Later) {
        if let Phase::Finer { round } = phase {
            return later.set(forecast::finer_after(round) * tasks.len() as f64);
        }
        let mut forecast = self.forecast.lock().unwrap_or_else(PoisonError::into_inner);
        forecast.begin(tasks);
        for (task, ran) in tasks.iter().zip(known) {
            ran.iter().for_each(|ran| _ = forecast.add(task, &ran.halves));
        }
        later.set(tasks.first().map_or(0.0, |task| forecast.later(task.seeds_more())));
    }

    /// The same once more, by what came of a task.
    fn foretell(&self, phase: Phase, task: &Task, ran: &Ran, later: &Later) {
        if let Phase::All | Phase::Seeds = phase {
            let mut forecast = self.forecast.lock().unwrap_or_else(PoisonError::into_inner);
            if forecast.add(task, &ran.halves) {
                later.set(forecast.later(task.seeds_more()));
            }
        }
    }

    fn run(&self, task: &Task) -> Result<(Ran, Vec<Figures>)> {
        let runs = tasks::runs(&self.cells[task.cell], task, self.cells[task.cell].ios(self.ios), self.first)?;
        let ran = tasks::ran(&self.cells[task.cell], task, &runs)?;
        self.with_journal(|journal| journal.add(&self.name(task), &ran)).transpose()?;
        Ok((ran, runs))
    }

    /// Has every cell whose halves disagree run again with twice the seeds, until they agree or there are as many as there may be.
    fn settle(&self, tasks: &mut [Task], ran: &mut [Option<Ran>]) -> Result<()> {
        while !self.stopped() {
            let cells: Vec<usize> = (0..self.cells.len()).filter(|&cell| self.needs_seeds(cell, tasks, ran)).collect();
            let again: Vec<usize> = (0..tasks.len()).filter(|&at| cells.contains(&tasks[at].cell)).collect();
            let mut more: Vec<Task> = again.iter().map(|&at| tasks[at].with_twice_the_seeds()).collect();
            // What nobody goes on with takes room.
            tasks.iter_mut().for_each(|task| task.begun = Vec::new());
            if more.is_empty() {
                break;
            }
            let results = self.run_all(&mut more, Phase::Seeds)?;
            take_over(tasks, ran, again.into_iter().zip(more.into_iter().zip(results)).collect());
        }
        Ok(())
    }

    /// Whether a cell is to have more seeds, and may.
    fn needs_seeds(&self, cell: usize, tasks: &[Task], ran: &[Option<Ran>]) -> bool {
        let may = |task: &Task| task.cell != cell || task.seeds * 2 <= self.most_seeds;
        tasks.iter().all(may) && !halves_agree(cell, tasks, ran)
    }

    /// By what name the journal knows a task.
    fn name(&self, task: &Task) -> String {
        format!("{} {} × {} seeds", self.cells[task.cell], task.label(), task.seeds)
    }

    fn with_journal<T>(&self, act: impl FnOnce(&mut Journal) -> T) -> Option<T> {
        self.journal.as_ref().map(|journal| act(&mut journal.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn tell_of_the_stop(&self, done: usize, known: usize) {
        let kept = self.with_journal(|journal| format!(", and {} keeps them: --resume goes on", journal.path().display()));
        // Which settings are to be tried finer shows only when the others are done.
        let kept = kept.unwrap_or_default();
        stop::tell(format_args!("{done} of at least {known} runs; what follows is of those{kept}"));
    }
}

/// The place of a cell in an order in which neighbours are far apart: so many steps of the golden section around all of them.
fn scattered(cell: usize) -> u64 {
    // As a part of 2^64, which is once around.
    (cell as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests;
