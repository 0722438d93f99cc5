//! One scenario under several modes and with several seeds.

mod rows;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::sim::file::{self, ScenarioFile};
use ::sim::{Outcome, Scenario, SimError};
use anyhow::{Context, Result, bail};
use completion::Mode;

use super::{pool, replay};
use crate::args::{SimArgs, once};
use crate::output::{self, Aside, say};
use crate::report;
use crate::rows::json;
use crate::rows::table::width;
use crate::{jobs, stop};

/// What is simulated without a scenario file.
const DEFAULT: &str = include_str!("../../scenarios/small.toml");

/// The modes unless some are named: one of each family.
const USUAL: [Mode; 6] = [Mode::INTERRUPT, Mode::IRQ_POLL, Mode::HYBRID_MEAN, Mode::SUSPEND, Mode::POLL, Mode::ADAPTIVE];

/// Runs it, and prints the table.
///
/// # Errors
/// Bad input, a run that broke a law.
pub fn run(args: &SimArgs) -> Result<ExitCode> {
    let (json, html) = (args.json.as_deref(), args.html.as_deref());
    let costs = args.costs.as_deref().filter(|costs| costs.ends_with(".toml")).map(Path::new);
    let read = [args.scenario.as_deref(), costs].into_iter().flatten().chain(args.replay.iter().map(PathBuf::as_path));
    output::apart(read, &[("--json", json), ("--html", html)])?;
    let mut file = load(args.scenario.as_deref())?;
    if let Some(name) = &args.costs {
        file.scenario.machine.costs = replay::costs(name)?;
    }
    if !args.replay.is_empty() {
        replay::replay(&mut file, &args.replay)?;
    }
    file.warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
    file.scenario.ticks = rows::ticks(&file.scenario);
    let modes = rows::contenders(&modes(args, &file)?, &file.spins);
    let seeds = args.seeds.map_or(file.seeds, |seeds| seeds.count);
    let first = args.seeds.and_then(|seeds| seeds.first).or(args.seed).unwrap_or(file.scenario.seed);
    let stop = stop::on_signal()?;
    let (json, html) = (Aside::open(json)?, Aside::open(html)?);
    let runs: Vec<Scenario> = (0..u64::from(seeds))
        .flat_map(|n| modes.iter().map(move |contender| (contender, first.wrapping_add(n))))
        .map(|(contender, seed)| Scenario { mode: contender.mode, spin: contender.spin, seed, ..file.scenario.clone() })
        .collect();
    let outcomes = pool::each(&runs, "runs", &stop, |scenario| scenario.run_unless(&stop));
    // One that was stopped in the middle counts as one that was not begun.
    let outcome = |run: Option<Result<Outcome, SimError>>| match run {
        Some(Err(SimError::Stopped(_))) => Ok(None),
        run => run.transpose(),
    };
    let outcomes: Vec<Option<Outcome>> =
        outcomes.into_iter().map(outcome).collect::<Result<_, SimError>>().with_context(|| file.title.clone())?;
    let rounds: Vec<&[Option<Outcome>]> = outcomes.chunks(modes.len()).filter(|round| round.iter().all(Option::is_some)).collect();
    if rounds.is_empty() {
        bail!("stopped before anything was simulated");
    }
    let complete = rounds.len() as u64 == u64::from(seeds);
    if !complete {
        say(format_args!("note: stopped by a signal after {} of {seeds} seeds; what follows is of those", rounds.len()));
    }
    let mut results = rows::results(&file, &modes, &rounds);
    results.extra.insert("complete".into(), complete.into());
    let machine = &rows::machine(&file.scenario);
    output::all([
        output::print(&table::show(&results, machine, width())),
        json.write(|| json::text(&results)),
        html.write(|| report::page(&results, machine)),
    ])?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a scenario file, or the default one.
///
/// # Errors
/// It cannot be read, or something is wrong with it.
pub fn load(path: Option<&Path>) -> Result<ScenarioFile> {
    Ok(match path {
        Some(path) => {
            let name = path.display().to_string();
            if path.extension().is_some_and(|extension| extension == "fio") {
                bail!(
                    "{name} is a job file; a scenario has a machine and devices as well, and names it in a table: [[job]] file = \"{name}\""
                );
            }
            let text = jobs::text(path).with_context(|| format!("scenario {name}"))?;
            let text = String::from_utf8(text).map_err(|error| {
                let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|&byte| byte == b'\n').count();
                anyhow::anyhow!("{name}:{line}: this is not UTF-8 text")
            })?;
            file::read(&name, &text, &jobs::Disk)?
        }
        None => file::read("(default scenario)", DEFAULT, &jobs::Disk)?,
    })
}

fn modes(args: &SimArgs, file: &ScenarioFile) -> Result<Vec<Mode>> {
    let modes = match (&args.modes[..], &file.modes[..]) {
        ([], []) => USUAL.to_vec(),
        ([], modes) | (modes, _) => modes.to_vec(),
    };
    once("--modes", &modes)?;
    Ok(modes)
}

#[cfg(test)]
mod tests;
