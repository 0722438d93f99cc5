//! Compares `adaptive` with the fixed modes in about 200 cells of the simulator.
//!
//! A [`Cell`] is a device, a machine and a load. A *fixed* mode is any mode but `adaptive`. The
//! measure is the regret R:
//!
//! ```text
//! R = C · Lⁿ of `adaptive` ÷ the minimum of C · Lⁿ over the fixed modes  1: as good as the best
//! C   CPU time per I/O, including interrupts and context switches
//! L   mean latency: from the intended start with a rate, else depth ÷ IOPS
//! n   DelayExponent::DEFAULT
//! ```
//!
//! The constants of `adaptive` were chosen on one set of cells. `--unseen SEED` draws another set,
//! on which no constant was chosen.

mod adaptation;
mod cells;
mod text;
mod unseen;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use completion::{DelayExponent, Mode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sim::SimError;
use units::Nanos;

use crate::output;
use cells::{Cell, Grid, Kind};

/// The fixed modes. Other modes differ in the polling thread or in interrupt delivery, not in when
/// to poll or sleep.
const FIXED: [Mode; 9] = [
    Mode::INTERRUPT,
    Mode::IRQ_POLL,
    Mode::HYBRID_MEAN,
    Mode::HYBRID_MIN,
    Mode::SUSPEND,
    Mode::COALESCE,
    Mode::DIM,
    Mode::VIC,
    Mode::POLL,
];

/// Default of `--ios`, and the warm-up for it; with fewer I/Os the warm-up is shorter in
/// proportion.
const IOS: u64 = 200_000;
const WARM_UP: Nanos = Nanos::from_millis(300);

/// A number of I/Os that no run reaches: runs are limited by time.
const ENDLESS: u64 = 10_000_000_000;

/// A fixed mode is as fast as `adaptive` if it has at least this fraction of the IOPS, and at most
/// this multiple of the latency, of `adaptive`.
const MIN_IOPS: f64 = 0.99;
const MAX_LATENCY: f64 = 1.05;

/// Number of worst cells that are listed.
const SHOWN: usize = 25;

/// `cargo xtask judge`
#[derive(Args, Debug)]
pub struct JudgeArgs {
    /// Use the cells (devices, price lists, loads, depths) that are drawn with this seed, on which
    /// no constant was chosen
    #[arg(long, value_name = "SEED")]
    unseen: Option<u64>,
    /// Measure instead how long `adaptive` takes to adapt after its start and after steps in load
    #[arg(long, conflicts_with_all = ["unseen", "fixed", "json", "scenarios"])]
    adaptation: bool,
    /// Results of the fixed modes: read from this file if it exists, else written to it
    #[arg(long, value_name = "FILE")]
    fixed: Option<PathBuf>,
    /// Only cells whose names have all of these words. Commas separate alternatives: 'vm closed
    /// qd=1,qd=32'
    #[arg(long, value_name = "WORDS", default_value = "")]
    cells: String,
    /// I/Os of each mode in each cell
    #[arg(long, value_name = "N", default_value_t = IOS, value_parser = clap::value_parser!(u64).range(1..))]
    ios: u64,
    /// Also write the results of each mode in each cell to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write each cell into this directory as a scenario for `reap sim`, and run nothing else
    #[arg(long, value_name = "DIR")]
    scenarios: Option<PathBuf>,
}

/// Results of a mode in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// CPU time per I/O in nanoseconds: C.
    pub cpu: f64,
    /// L: mean latency in nanoseconds.
    pub latency: f64,
    /// Median latency in nanoseconds.
    pub p50: f64,
    /// 99th percentile of latency in nanoseconds.
    pub p99: f64,
    /// I/Os per second.
    pub iops: f64,
    /// State of `adaptive` at the end; empty for fixed modes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
}

impl Figures {
    /// Logarithm of C · Lⁿ. [`DelayExponent::cost`] is this divided by 1 + n.
    fn log_cost(&self) -> f64 {
        DelayExponent::DEFAULT.cost(self.cpu as f32, self.latency as f32) as f64
            * (1.0 + f64::from(DelayExponent::DEFAULT.get()))
    }
}

/// Comparison of `adaptive` with the fixed modes in a cell.
struct Verdict<'a> {
    cell: &'a Cell,
    /// Results of `adaptive`.
    own: &'a Figures,
    /// The fixed mode with the minimum of C · Lⁿ.
    best: Mode,
    /// R of `adaptive`.
    regret: f64,
    /// R of each fixed mode, if it took the place of `adaptive`.
    fixed: Vec<f64>,
    /// IOPS ÷ maximum IOPS of the fixed modes.
    rate: f64,
    /// CPU time ÷ minimum CPU time of the fixed modes that are as fast as `adaptive`; `None`: no
    /// fixed mode is.
    cpu: Option<f64>,
    /// p99 ÷ the lower p99 of `poll` and `interrupt`.
    p99: f64,
}

/// The file of `--fixed`: results of the fixed modes by cell, and the I/Os per run.
#[derive(Serialize, Deserialize)]
struct Cache {
    ios: u64,
    fixed: BTreeMap<String, Vec<Figures>>,
}

/// Runs `cargo xtask judge`, and prints the tables.
///
/// # Errors
/// No cell matches, a file cannot be read or written, or a run breaks an invariant of the
/// simulator.
pub fn run(args: &JudgeArgs) -> Result<()> {
    if args.adaptation {
        print!("{}", adaptation::table()?);
        return Ok(());
    }
    let grid = args.unseen.map_or_else(|| Ok(Grid::known()), Grid::unseen)?;
    let words: Vec<Vec<String>> = args
        .cells
        .split_whitespace()
        .map(|group| group.split(',').map(str::to_owned).collect())
        .collect();
    let mut cells = grid.cells();
    cells.retain(|cell| cell.is_named(&words));
    ensure!(
        !cells.is_empty(),
        "no cell has the words '{}'; one is called '{}'",
        args.cells,
        grid.cells()[0]
    );

    // Loads are a share of the IOPS of `poll`, which are measured first.
    let capacities = output::each("capacities", &cells, Cell::capacity)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(dir) = &args.scenarios {
        fs::create_dir_all(dir)
            .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        for (cell, &capacity) in cells.iter().zip(&capacities) {
            let path = dir.join(cell.to_string().replace(' ', ",") + ".toml");
            let text = cell.text(capacity, args.ios, 1)?;
            // Existing files are not overwritten: a user may have edited them.
            File::create_new(&path)
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .with_context(|| path.display().to_string())?;
        }
        return Ok(());
    }

    let runs = |modes: &[Mode], what: &str| -> Result<Vec<Vec<Figures>>> {
        let tasks: Vec<(usize, Mode)> =
            (0..cells.len()).flat_map(|cell| modes.iter().map(move |&mode| (cell, mode))).collect();
        let ran = output::each(what, &tasks, |&(at, mode)| {
            figures(&cells[at], mode, capacities[at], args.ios)
        });
        let ran = ran.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(ran.chunks(modes.len()).map(<[Figures]>::to_vec).collect())
    };
    // Fixed modes take nine tenths of the time, and change only with the simulator: their results
    // can be reused.
    let known = args.fixed.as_ref().filter(|path| path.exists());
    let fixed = match known {
        Some(path) => {
            let cache: Cache = serde_json::from_slice(&fs::read(path)?)
                .with_context(|| path.display().to_string())?;
            ensure!(
                cache.ios == args.ios,
                "the results in {} are of --ios {}, not of --ios {}: delete the file, or give the same --ios",
                path.display(),
                cache.ios,
                args.ios
            );
            let of = |cell: &Cell| {
                cache.fixed.get(&cell.to_string()).filter(|list| list.len() == FIXED.len()).cloned()
            };
            let all = cells.iter().map(|cell| {
                of(cell).with_context(|| format!("{} lacks the cell '{cell}'", path.display()))
            });
            all.collect::<Result<Vec<_>>>()?
        }
        None => runs(&FIXED, "fixed modes")?,
    };
    if let (Some(path), None) = (&args.fixed, known) {
        let fixed = cells.iter().map(Cell::to_string).zip(fixed.iter().cloned()).collect();
        fs::write(path, serde_json::to_string(&Cache { ios: args.ios, fixed })?)
            .with_context(|| path.display().to_string())?;
    }
    let own: Vec<Figures> = runs(&[Mode::ADAPTIVE], "adaptive")?.into_iter().flatten().collect();
    let verdicts =
        cells.iter().zip(&own).zip(&fixed).map(|((cell, own), fixed)| verdict(cell, own, fixed));
    print!("{}", show(&verdicts.collect::<Vec<_>>()));
    if let Some(path) = &args.json {
        let all = cells.iter().zip(&own).zip(&fixed).flat_map(|((cell, own), fixed)| {
            FIXED.iter().zip(fixed).chain([(&Mode::ADAPTIVE, own)]).map(|(mode, figures)| {
                json!({
                    "cell": cell.to_string(), "load_pct": cell.kind.load(), "qd": cell.depth, "mode": mode.to_string(),
                    "default": *mode == Mode::ADAPTIVE, "cpu_ns_per_io": figures.cpu, "mean_ns": figures.latency,
                    "p50_ns": figures.p50, "p99_ns": figures.p99, "iops": figures.iops, "state": figures.state,
                })
            })
        });
        fs::write(path, serde_json::to_string_pretty(&all.collect::<Vec<_>>())? + "\n")
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Runs `mode` in a cell for the time that `ios` I/Os take at the cell's load. `capacity`: the IOPS
/// of `poll`.
///
/// # Errors
/// The run breaks an invariant, or no I/O completes after the warm-up.
fn figures(cell: &Cell, mode: Mode, capacity: f64, ios: u64) -> Result<Figures, SimError> {
    let mut scenario = cell.scenario(mode, capacity, ENDLESS, 1)?;
    let rate = capacity * f64::from(cell.kind.load()) / 100.0;
    for spec in &mut scenario.jobs {
        spec.job.ramp_time = Nanos(WARM_UP.0.saturating_mul(ios) / IOS);
        (spec.job.runtime, spec.job.time_based) =
            (Some(Nanos((ios as f64 / rate.max(1.0) * 1e9) as u64)), true);
    }
    let outcome = scenario.run()?;
    let at = outcome
        .latency
        .histogram
        .as_ref()
        .map(|histogram| histogram.percentiles(&[50.0, 99.0]))
        .unwrap_or_default();
    let [p50, p99] = at[..] else {
        return Err(SimError::Unfit(format!(
            "{cell} {mode}: no I/O has completed after the warm-up"
        )));
    };
    // With a rate, latency includes the delay of a late start. In a closed loop there is no such
    // delay, and Little's law gives the mean.
    let latency = match cell.kind {
        Kind::Open { .. } => outcome.latency.moments.mean(),
        _ => f64::from(cell.depth * cell.kind.threads()) / outcome.iops().max(1e-3) * 1e9,
    };
    Ok(Figures {
        cpu: outcome.cpu_ns_per_io(),
        latency,
        p50: p50 as f64,
        p99: p99 as f64,
        iops: outcome.iops(),
        state: outcome.state.map_or_else(String::new, |state| state.to_string()),
    })
}

/// Compares `own`, the results of `adaptive`, with `fixed`, the results of [`FIXED`].
fn verdict<'a>(cell: &'a Cell, own: &'a Figures, fixed: &[Figures]) -> Verdict<'a> {
    let all = || FIXED.iter().zip(fixed);
    let (&best, least) = all()
        .min_by(|a, b| a.1.log_cost().total_cmp(&b.1.log_cost()))
        .expect("there are fixed modes");
    let fastest = all().map(|(_, figures)| figures.iops).fold(0.0, f64::max);
    let as_fast = all().filter(|(_, fixed)| {
        fixed.iops >= own.iops * MIN_IOPS && fixed.latency <= own.latency * MAX_LATENCY
    });
    let tail = all()
        .filter(|(mode, _)| [Mode::POLL, Mode::INTERRUPT].contains(mode))
        .map(|(_, figures)| figures.p99);
    Verdict {
        cell,
        own,
        best,
        regret: (own.log_cost() - least.log_cost()).exp(),
        fixed: fixed.iter().map(|figures| (figures.log_cost() - least.log_cost()).exp()).collect(),
        rate: own.iops / fastest,
        cpu: as_fast.map(|(_, fixed)| own.cpu / fixed.cpu).reduce(f64::max),
        p99: own.p99 / tail.fold(f64::MAX, f64::min),
    }
}

/// The tables: `adaptive` in all cells and by family; each fixed mode in all cells; the worst cells
/// of `adaptive`.
fn show(verdicts: &[Verdict<'_>]) -> String {
    let mut families: BTreeMap<&str, Vec<&Verdict<'_>>> = BTreeMap::new();
    verdicts
        .iter()
        .for_each(|verdict| families.entry(verdict.cell.kind.family()).or_default().push(verdict));
    let row = |(family, of): (&str, &[&Verdict<'_>])| {
        let at = |percent: usize, figure: &dyn Fn(&Verdict<'_>) -> Option<f64>| {
            let mut all: Vec<f64> = of.iter().filter_map(|verdict| figure(verdict)).collect();
            all.sort_by(f64::total_cmp);
            // Nearest rank, rounded up.
            all.get((all.len().saturating_sub(1) * percent).div_ceil(100))
                .map_or_else(String::new, |figure| format!("{figure:.2}"))
        };
        let regret = |verdict: &Verdict<'_>| Some(verdict.regret);
        let above = of.iter().filter(|verdict| verdict.regret > 1.5).count() * 100;
        let mut cells = vec![family.to_owned(), of.len().to_string()];
        cells.extend([50, 75, 90, 100].map(|percent| at(percent, &regret)));
        cells.push(format!("{} %", above / of.len().max(1)));
        cells.extend([at(50, &|v| Some(v.rate)), at(10, &|v| Some(v.rate))]);
        cells.extend([
            at(50, &|v| v.cpu),
            at(90, &|v| v.cpu),
            at(50, &|v| Some(v.p99)),
            at(90, &|v| Some(v.p99)),
        ]);
        cells
    };
    let all: Vec<&Verdict<'_>> = verdicts.iter().collect();
    let rows = std::iter::once(("all", &all[..]))
        .chain(families.iter().map(|(family, of)| (*family, &of[..])));
    let headers = [
        "family",
        "cells",
        "R median",
        "75th",
        "90th",
        "worst",
        "> 1.5",
        "rate ÷ best",
        "10th",
        "CPU ÷ as fast",
        "90th",
        "p99 ÷ best",
        "90th",
    ];
    // R if one fixed mode were used in all cells, for each fixed mode.
    let by_mode = FIXED.iter().enumerate().map(|(at, mode)| {
        let mut all: Vec<f64> = verdicts.iter().map(|verdict| verdict.fixed[at]).collect();
        all.sort_by(f64::total_cmp);
        let rank = |percent: usize| all[((all.len() - 1) * percent).div_ceil(100)];
        let above = all.iter().filter(|&&regret| regret > 1.5).count() * 100 / all.len();
        let mut cells = vec![mode.to_string()];
        cells.extend([50, 75, 90, 100].map(|percent| format!("{:.2}", rank(percent))));
        cells.push(format!("{above} %"));
        cells
    });
    let mut worst = all.clone();
    worst.sort_by(|a, b| b.regret.total_cmp(&a.regret));
    let worst = worst.iter().take(SHOWN).map(|verdict| {
        let figures = [
            verdict.regret,
            verdict.rate,
            verdict.own.cpu / 1e3,
            verdict.own.latency / 1e3,
            verdict.p99,
        ];
        let texts = figures.map(|figure| format!("{figure:.2}"));
        [verdict.cell.to_string(), verdict.best.to_string()].into_iter().chain(texts).collect()
    });
    output::table(&headers, 1, rows.map(row))
        + "\nEach fixed mode in place of adaptive:\n"
        + &output::table(&["mode", "R median", "75th", "90th", "worst", "> 1.5"], 1, by_mode)
        + "\nThe worst cells of adaptive:\n"
        + &output::table(
            &["cell", "best mode", "R", "rate ÷ best", "CPU, µs", "L, µs", "p99 ÷ best"],
            2,
            worst,
        )
}

#[cfg(test)]
mod tests;
