//! `reap sim --sweep`: every mode in every cell, and how far `adaptive` is from the others.

mod journal;
mod ran;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use ::sim::SimError;
use ::sim::file;
use ::sim::sweep::{self, Cell, GOAL, Grid, Halves, MOST_SEEDS, PHASED, REFINEMENTS, SEEDS, SLACKS, Seed};
use anyhow::{Context, Result, bail, ensure};
use comfy_table::{Cell as Text, CellAlignment, Table, presets};
use completion::{LatencySlack, Mode};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::journal::Journal;
use self::ran::Ran;
use super::{files, pool, scenario};
use crate::args::{SimArgs, once};
use crate::jobs;
use crate::output;
use crate::report::{self, Report};
use crate::rows::json::JsonResults;
use crate::rows::{Results, Row, Scene};
use crate::sim::scenario::Figures;
use crate::stop;

/// I/Os of each mode in each cell with the seeds that all cells have, unless the user says otherwise (and of devices with phases more): the
/// whole sweep's, and that of `--quick`.
const IOS: u64 = 500_000;
const QUICK_IOS: u64 = 40_000;

/// What stands below a page's charts.
const LEGEND: &str = "Virtual time: the same seed gives the same figures on any machine. CPU: of all CPUs, interrupts included, the application's own \
    work not. Latencies: from the intended start until the completion was found. Regret: max(p99 ÷ its p99, CPU ÷ its CPU) of the tightest \
    setting of --latency-slack at which that is at most 1/1.05 on one half of the seeds (the worse of its own halves), or else the least to \
    within 0.5 %, judged on the other half.";

/// A mode in a cell; of `adaptive`, one setting of its knob.
struct Task {
    cell: usize,
    mode: Mode,
    slack: LatencySlack,
    capacity: f64,
    seeds: u64,
    /// What is known of the first of them.
    begun: Vec<Figures>,
}

/// What all tasks have in common.
struct Sweep {
    cells: Vec<Cell>,
    /// With each seed, of devices without phases.
    ios: u64,
    seed: u64,
    /// Seeds of a cell whose halves disagree.
    most_seeds: u64,
    stop: Arc<AtomicBool>,
    /// Where what is done is kept; only results that go to a file have one.
    journal: Option<Mutex<Journal>>,
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
    /// Seeds of the cell, and whether their halves agree about every mode there.
    seeds: u64,
    halves_agree: bool,
}

/// Runs the sweep, and prints the worst.
///
/// # Errors
/// Bad input, a run that broke a law.
pub fn run(args: &SimArgs) -> Result<ExitCode> {
    let modes = if args.modes.is_empty() { Mode::ALL.to_vec() } else { args.modes.clone() };
    once("--modes", &modes)?;
    let seed = args.seed.unwrap_or(1);
    let stop = stop::on_signal()?;
    let (json, html) = files::beside(args)?;
    let grid = grid(args, seed)?;
    let (ios, most_seeds) = ((ios(args) / SEEDS).max(1), most_seeds(args)?);
    let journal =
        args.json.as_deref().map(|path| journal(path, args.resume, describe(&grid, &modes, ios, seed, most_seeds)?)).transpose()?;
    let mut tasks = tasks(&grid, &modes, seed)?;
    let sweep = Sweep { cells: grid.cells(), ios, seed, most_seeds, stop, journal: journal.flatten().map(Mutex::new) };
    let mut ran = sweep.run_all(&mut tasks, "cells × modes")?;
    sweep.settle(&mut tasks, &mut ran)?;
    let mut more = finer(&sweep.cells, &tasks, &ran);
    for _ in 0..REFINEMENTS {
        if more.is_empty() || sweep.stopped() {
            break;
        }
        ran.extend(sweep.run_all(&mut more, "finer settings")?);
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
    let regrets = regrets(&sweep.cells, &tasks, &ran);
    let mut results =
        Results { title: format!("Sweep of {done} runs, {ios} I/Os with each seed"), device: "simulated".into(), ..Results::default() };
    // Settings that were tried later stand with their cell.
    let mut rows: Vec<(usize, Row)> = tasks.iter().zip(ran).filter_map(|(task, ran)| Some((task.cell, ran?.row))).collect();
    rows.sort_by_key(|(cell, _)| *cell);
    results.rows = rows.into_iter().map(|(_, row)| row).collect();
    results.extra.insert("seed".into(), seed.into());
    results.extra.insert("ios_per_cell".into(), (ios * SEEDS).into());
    results.extra.insert("ios_per_seed".into(), ios.into());
    results.extra.insert("most_seeds".into(), most_seeds.into());
    results.extra.insert("complete".into(), complete.into());
    results.extra.insert("regret".into(), serde_json::to_value(&regrets)?);
    results.notes.push(LEGEND.into());
    output::all([
        output::print(&show(&regrets, done, ios)),
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
            if wanted.ends_with(".toml") {
                let text = jobs::text(Path::new(wanted)).with_context(|| format!("profile {wanted}"))?;
                let profile = file::read_profile(wanted, &String::from_utf8_lossy(&text))?;
                let name = &profile.name;
                ensure!(
                    !sweep::ships(name),
                    "profile {wanted}: it would be called '{name}', as one that ships: give the file another name"
                );
                grid.profiles.push(profile);
                continue;
            }
            let found = all.iter().find(|profile| profile.name == *wanted || wanted == "drawn" && profile.name.starts_with("drawn"));
            let names = || known(all.iter().map(|profile| profile.name.as_str()).collect());
            grid.profiles.push(
                found
                    .with_context(|| {
                        format!(
                            "the sweep has no profile '{wanted}', but {} (or: drawn); one of your own is a file that ends in .toml",
                            names()
                        )
                    })?
                    .clone(),
            );
        }
    }
    // By the names that they have there: the drawn one has two.
    once("--profiles", &grid.profiles.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>())?;
    once("--qd", &args.qd)?;
    once("--loads", &args.loads)?;
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

/// Seeds that a cell may have.
///
/// # Errors
/// The user allows fewer than each cell has.
fn most_seeds(args: &SimArgs) -> Result<u64> {
    let most = args.seeds.map_or(if args.quick { SEEDS } else { MOST_SEEDS }, u64::from);
    ensure!(
        most >= SEEDS,
        "--seeds {most}: each cell of the sweep has {SEEDS}, and more where their halves disagree; ask for {SEEDS} or more"
    );
    Ok(most)
}

/// Everything that a run's figures depend on, and which runs there are.
///
/// # Errors
/// The program cannot read itself.
fn describe(grid: &Grid, modes: &[Mode], ios: u64, seed: u64, most_seeds: u64) -> Result<Map<String, Value>> {
    // A file may say something else the next time.
    let profiles: Vec<String> = grid.profiles.iter().map(|profile| format!("{profile:?}")).collect();
    let modes: Vec<String> = modes.iter().map(Mode::to_string).collect();
    let described = [
        ("seed", json!(seed)),
        ("ios_per_cell", json!(ios * SEEDS)),
        ("most_seeds", json!(most_seeds)),
        ("loads", json!(grid.loads)),
        ("qd", json!(grid.depths)),
        ("profiles", json!(profiles)),
        ("costs", json!(grid.costs)),
        ("modes", json!(modes)),
        ("program", json!(journal::program()?)),
    ];
    Ok(described.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
}

/// The journal beside the results; pipes and devices have none.
///
/// # Errors
/// As [`Journal::open`]'s; it is asked to resume where there can be none.
fn journal(json: &Path, resume: bool, sweep: Map<String, Value>) -> Result<Option<Journal>> {
    if json.is_file() {
        return Journal::open(json, &sweep, resume).map(Some);
    }
    ensure!(!resume, "{} is no file, and has no journal beside it: nothing to resume", json.display());
    Ok(None)
}

impl Sweep {
    /// Runs them on all cores, but for those that the journal knows; what was not begun before the stop is `None`.
    fn run_all(&self, tasks: &mut [Task], what: &str) -> Result<Vec<Option<Ran>>> {
        let mut all: Vec<Option<Ran>> =
            tasks.iter().map(|task| self.with_journal(|journal| journal.take(&self.name(task))).flatten()).collect();
        let left: Vec<usize> = (0..tasks.len()).filter(|&at| all[at].is_none()).collect();
        // A run that fails ends the sweep: the others' results wait in the journal.
        let run = |&at: &usize| self.run(&tasks[at]).inspect_err(|_| self.stop.store(true, Relaxed));
        for (&at, result) in left.iter().zip(pool::each(&left, what, &self.stop, run)) {
            let Some((ran, runs)) = result.transpose().context("the sweep")? else { continue };
            (all[at], tasks[at].begun) = (Some(ran), runs);
        }
        Ok(all)
    }

    fn run(&self, task: &Task) -> Result<(Ran, Vec<Figures>)> {
        let runs = runs(&self.cells[task.cell], task, self.cells[task.cell].ios(self.ios), self.seed)?;
        let ran = ran(&self.cells[task.cell], task, &runs)?;
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
            let results = self.run_all(&mut more, "more seeds")?;
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
        let cell = &self.cells[task.cell];
        format!("{} {} qd {} load {} {} × {} seeds", cell.costs, cell.profile.name, cell.depth, cell.load, task.label(), task.seeds)
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

impl Task {
    fn label(&self) -> String {
        if self.mode == Mode::ADAPTIVE { format!("{}@{}", self.mode, self.slack) } else { self.mode.to_string() }
    }

    /// The same once more, which takes over what is known of the first seeds.
    fn with_twice_the_seeds(&mut self) -> Task {
        Task { seeds: self.seeds * 2, begun: std::mem::take(&mut self.begun), ..*self }
    }
}

/// Puts what was run again in its place, if all of its cell was: a mode has to have as many seeds as the ones that it is compared with.
fn take_over(tasks: &mut [Task], ran: &mut [Option<Ran>], again: Vec<(usize, (Task, Option<Ran>))>) {
    let stopped_in: Vec<usize> = again.iter().filter(|(_, (_, ran))| ran.is_none()).map(|(_, (task, _))| task.cell).collect();
    for (at, (task, result)) in again.into_iter().filter(|(_, (task, _))| !stopped_in.contains(&task.cell)) {
        (tasks[at], ran[at]) = (task, result);
    }
}

/// Whether in a cell the halves agree, as far as it was run. Finer settings than [`SLACKS`] are not asked: which there are depends on
/// how close they come to some mode, and who gets more seeds must not.
fn halves_agree(cell: usize, tasks: &[Task], ran: &[Option<Ran>]) -> bool {
    let here = || tasks.iter().zip(ran).filter(|(task, _)| task.cell == cell).filter_map(|(task, ran)| Some((task, &ran.as_ref()?.halves)));
    let modes: Vec<&Halves> = here().filter(|(task, _)| task.mode != Mode::ADAPTIVE).map(|(_, halves)| halves).collect();
    let asked = |task: &Task| task.mode == Mode::ADAPTIVE && SLACKS.contains(&task.slack);
    let settings: Vec<&Halves> = here().filter(|(task, _)| asked(task)).map(|(_, halves)| halves).collect();
    sweep::halves_agree(&modes, &settings)
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
                    more.push(Task { mode: Mode::ADAPTIVE, slack, begun: Vec::new(), ..*task });
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

/// Every mode in every cell, the capacities measured: one for all loads of a neighbourhood. That takes seconds, and is not
/// stopped.
fn tasks(grid: &Grid, modes: &[Mode], seed: u64) -> Result<Vec<Task>> {
    let (cells, loads) = (grid.cells(), grid.loads.len());
    let places: Vec<&Cell> = cells.iter().step_by(loads).collect();
    let capacities = pool::each(&places, "capacities", &AtomicBool::new(false), |cell| cell.capacity(seed));
    let capacities: Vec<f64> = capacities.into_iter().flatten().collect::<Result<_, SimError>>()?;
    let mut tasks = Vec::new();
    for cell in 0..cells.len() {
        for &mode in modes {
            let slacks: &[LatencySlack] = if mode == Mode::ADAPTIVE { &SLACKS } else { &[LatencySlack::NONE] };
            let capacity = capacities[cell / loads];
            tasks.extend(slacks.iter().map(|&slack| Task { cell, mode, slack, capacity, seeds: SEEDS, begun: Vec::new() }));
        }
    }
    Ok(tasks)
}

/// All seeds of a task, those that are known already first.
fn runs(cell: &Cell, task: &Task, ios: u64, seed: u64) -> Result<Vec<Figures>, SimError> {
    let known = task.begun.iter().cloned().map(Ok);
    let more = (task.begun.len() as u64..task.seeds).map(|n| {
        let scenario = cell.scenario(task.mode, task.slack, task.capacity, ios, seed.wrapping_add(n));
        scenario.run().map(|outcome| Figures::of(&outcome))
    });
    known.chain(more).collect()
}

/// What they come to: a task's row, and each half's figures.
fn ran(cell: &Cell, task: &Task, runs: &[Figures]) -> Result<Ran, SimError> {
    let unfit = || SimError::Unfit("a cell without I/Os".into());
    let seeds: Vec<Seed> = runs.iter().map(|run| (run.cpu, run.histogram())).collect();
    let halves = Halves::of(&seeds).ok_or_else(unfit)?;
    let scene = Scene { load_pct: f64::from(cell.load), qd: cell.depth.into(), profile: cell.profile.name.clone(), ..Scene::default() };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut row = scenario::row(task.label(), &scene, runs, &mut rng).ok_or_else(unfit)?;
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
        let halves_agree = halves_agree(at, tasks, ran);
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
                seeds: task.seeds,
                halves_agree,
            }));
        }
    }
    regrets
}

/// By mode: the median, how many cells are beyond 5 %, and the worst with its place.
fn show(regrets: &[Regret], runs: usize, ios: u64) -> String {
    let mut text = format!("{runs} runs of {ios} I/Os with each seed (of devices with phases: {PHASED} times as many), in virtual time.\n");
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
        let beyond = of.iter().filter(|regret| regret.ratio > GOAL).count();
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
    text += &format!("{table}\n{}", show_seeds(regrets));
    text + "In each cell and against each mode: max(p99 ÷ its p99, CPU ÷ its CPU) of the tightest setting of --latency-slack at which that is at\n\
            most 1/1.05 on one half of the seeds, by the worse of its own halves, or else the least to within 0.5 %, judged on the other.\n\
            1.00: as good in both; the worst cell's place and setting stand beside it.\n"
}

/// How many cells had how many seeds, and in how many of them the halves disagreed to the end.
fn show_seeds(regrets: &[Regret]) -> String {
    let place = |regret: &Regret| (regret.costs, regret.profile.clone(), regret.qd, regret.load_pct);
    let mut cells: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    for of_cell in regrets.chunk_by(|a, b| place(a) == place(b)) {
        let (all, disagree) = cells.entry(of_cell[0].seeds).or_default();
        (*all, *disagree) = (*all + 1, *disagree + u32::from(!of_cell[0].halves_agree));
    }
    let of = |(seeds, (all, disagree)): (&u64, &(u32, u32))| match disagree {
        0 => format!("{seeds} in {all}"),
        n => format!("{seeds} in {all}, of which {n} have halves that disagree all the same"),
    };
    format!("Seeds of a cell: {}.\n", cells.iter().map(of).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests;
