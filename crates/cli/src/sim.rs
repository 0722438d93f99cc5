//! `reap sim`: runs a scenario in virtual time, once per mode, spin setting and seed, on all CPUs.
//! The crate `sim` simulates; [`convert`] makes the outcomes into rows of the table that `compare`
//! prints too.
//!
//! ```text
//! scenario (--costs, --replay) ─► contenders × seeds ─► run_unless ─► rows ─► table, JSON, HTML
//! ```

mod convert;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::thread;

use ::sim::file::{self, ScenarioFile};
use ::sim::{Costs, JobSpec, Outcome, Scenario, SimError};
use anyhow::{Context, Result, anyhow, bail};
use completion::Mode;
use units::{Nanos, Op};
use workload::fio::read_iolog;
use workload::{Iolog, IologStep, Job};

use crate::args::{SimArgs, once};
use crate::output::{self, OptionalOutput, say};
use crate::rows::table::width;
use crate::{calibrate, jobs, report, stop};

/// The default scenario.
const DEFAULT: &str = include_str!("../scenarios/small.toml");
/// The default modes: one of each kind.
const DEFAULT_MODES: [Mode; 6] =
    [Mode::INTERRUPT, Mode::IRQ_POLL, Mode::HYBRID_MEAN, Mode::SUSPEND, Mode::POLL, Mode::ADAPTIVE];
/// Queue depth of a replayed log. A log with more I/Os in flight is delayed: its replay is no
/// longer open-loop.
const DEPTH: u32 = 4096;

/// Runs `reap sim`.
///
/// # Errors
/// An invalid scenario, price list (the machine's costs) or iolog; a file that cannot be written; or
/// a run that breaks an invariant of the simulator.
pub fn sim(args: &SimArgs) -> Result<ExitCode> {
    let (json, html) = (args.json.as_deref(), args.html.as_deref());
    let costs = args.costs.as_deref().filter(|costs| costs.ends_with(".toml")).map(Path::new);
    let read = [args.scenario.as_deref(), costs]
        .into_iter()
        .flatten()
        .chain(args.replay.iter().map(PathBuf::as_path));
    // Results must not overwrite an input file.
    output::apart(read, &[("--json", json), ("--html", html)])?;
    let mut file = load(args.scenario.as_deref())?;
    if let Some(name) = &args.costs {
        file.scenario.machine.costs = price_list(name)?;
    }
    if !args.replay.is_empty() {
        replay(&mut file, &args.replay)?;
    }
    file.warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
    file.scenario.ticks = convert::ticks(&file.scenario);
    let contenders = convert::contenders(&modes(args, &file)?, &file.spins);
    let seeds = args.seeds.unwrap_or(file.seeds);
    let first = args.seed.unwrap_or(file.scenario.seed);
    let stop = stop::on_signal()?;
    let (json, html) = (OptionalOutput::open(json)?, OptionalOutput::open(html)?);
    let runs: Vec<Scenario> = (0..u64::from(seeds))
        .flat_map(|n| contenders.iter().map(move |contender| (contender, first.wrapping_add(n))))
        .map(|(contender, seed)| Scenario {
            mode: contender.mode,
            spin: contender.spin,
            seed,
            ..file.scenario.clone()
        })
        .collect();
    let outcomes = on_all_cores(&runs, &stop, |scenario| scenario.run_unless(&stop));
    // A run that a signal stopped has no result. It is not an error: complete rounds are still
    // printed.
    let outcome = |run: Option<Result<Outcome, SimError>>| match run {
        Some(Err(SimError::Stopped(_))) => Ok(None),
        run => run.transpose(),
    };
    let outcomes: Vec<Option<Outcome>> = outcomes
        .into_iter()
        .map(outcome)
        .collect::<Result<_, SimError>>()
        .with_context(|| file.title.clone())?;
    // A round: the runs of all contenders with one seed. Only complete rounds are compared.
    let rounds: Vec<&[Option<Outcome>]> = outcomes
        .chunks(contenders.len())
        .filter(|round| round.iter().all(Option::is_some))
        .collect();
    if rounds.is_empty() {
        bail!("stopped before anything was simulated");
    }
    let complete = rounds.len() as u64 == u64::from(seeds);
    if !complete {
        say(format_args!(
            "note: stopped by a signal after {} of {seeds} seeds; the results are those of the finished seeds",
            rounds.len()
        ));
    }
    let mut results = convert::results(&file, &contenders, &rounds);
    results.extra.insert("complete".into(), complete.into());
    let machine = &convert::machine(&file.scenario);
    output::all([
        output::print(&convert::show(&results, machine, width(), args.wide)),
        json.write(|| results.json_text()),
        html.write(|| report::page(&results, machine)),
    ])?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `work` for each item on all CPUs. Items that were not started before `stop` was set are
/// `None`.
fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    stop: &AtomicBool,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<Option<R>> {
    let bar = output::bar(items.len() as u64, "runs");
    let (next, mut results) = (AtomicUsize::new(0), Vec::new());
    results.resize_with(items.len(), || None);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    let (done, each_done) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (done, next, work) = (done.clone(), &next, &work);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(item) = items.get(at) else { return };
                    // `send` fails if the main thread is unwinding.
                    if done.send((at, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        // The receiver ends when all senders are dropped, this one included.
        drop(done);
        for (at, result) in each_done {
            results[at] = Some(result);
            bar.inc(1);
        }
    });
    bar.finish_and_clear();
    results
}

/// Reads a scenario file; without a path the default scenario.
fn load(path: Option<&Path>) -> Result<ScenarioFile> {
    let Some(path) = path else {
        return Ok(file::read("(default scenario)", DEFAULT, &jobs::Disk)?);
    };
    let name = path.display().to_string();
    // Giving a job file is a frequent mistake, which the TOML parser's error would not name.
    if path.extension().is_some_and(|extension| extension == "fio") {
        bail!(
            "{name} is a job file, not a scenario; a scenario refers to it with: [[job]] file = \"{name}\""
        );
    }
    let text = jobs::text(path).with_context(|| format!("scenario {name}"))?;
    let text = String::from_utf8(text).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .split(|&byte| byte == b'\n')
            .count();
        anyhow!("{name}:{line}: this is not UTF-8 text")
    })?;
    Ok(file::read(&name, &text, &jobs::Disk)?)
}

/// The modes of the command line, else of the scenario, else the default ones.
fn modes(args: &SimArgs, file: &ScenarioFile) -> Result<Vec<Mode>> {
    let modes = match (&args.modes[..], &file.modes[..]) {
        ([], []) => DEFAULT_MODES.to_vec(),
        ([], modes) | (modes, _) => modes.to_vec(),
    };
    once("--modes", &modes)?;
    Ok(modes)
}

/// Replaces the jobs of `file` by the I/Os of iologs (fio's `write_iolog`, version 3). Each file in
/// a log becomes a thread that issues its I/Os at their time stamps, on a device of its own if the
/// scenario has enough devices.
///
/// # Errors
/// A log that cannot be read, or that has no time stamps.
fn replay(file: &mut ScenarioFile, iologs: &[PathBuf]) -> Result<()> {
    let Scenario { devices, jobs, limit, .. } = &mut file.scenario;
    jobs.clear();
    let (mut files, mut ios, mut end) = (Vec::new(), 0, Nanos::ZERO);
    for path in iologs {
        let name = path.display().to_string();
        let text = jobs::text(path).with_context(|| format!("iolog {name}"))?;
        let iolog = read_iolog(&name, &text, false)
            .map_err(|why| anyhow!("{why} (`write_iolog` of fio or `reap run` writes one)"))?;
        for (number, target) in (0..).zip(&iolog.files) {
            let mut steps = Vec::new();
            let mut bytes = 0;
            for step in &iolog.steps {
                let IologStep::Io { op, file, offset, len, at: Some(at) } = *step else {
                    bail!(
                        "{name} is an iolog of version 2, which has no time stamps; fio 3.31 and later write version 3"
                    );
                };
                if file != number {
                    continue;
                }
                steps.push(IologStep::Io { op, file: 0, offset, len, at: Some(at) });
                end = end.max(at);
                if op != Op::Flush {
                    bytes = offset.saturating_add(len).max(bytes);
                }
            }
            // The log opens this file, but has no I/O on it.
            if steps.is_empty() {
                continue;
            }
            let index = files.iter().position(|known| known == target).unwrap_or_else(|| {
                files.push(target.clone());
                files.len() - 1
            });
            // With fewer devices than files, files share devices.
            let device = index % devices.len();
            // The device must be large enough for the highest offset in the log.
            devices[device].bytes = devices[device].bytes.max(bytes);
            ios += steps.len();
            let depth = steps.len().min(DEPTH as usize) as u32;
            let filenames = vec![devices[device].name.clone()];
            let mut job = Job {
                name: target.clone(),
                filenames,
                iodepth: depth,
                batch_submit: depth,
                complete_max: depth,
                ..Job::default()
            };
            job.set_iolog(Iolog { name: name.clone(), steps, files: vec![target.clone()] });
            jobs.push(JobSpec::new(job));
        }
    }
    // The scenario's time limit may be shorter than the log; the factor 2 allows for a slow device.
    *limit = (*limit).max(Nanos(end.0.saturating_mul(2)));
    let names: Vec<String> = iologs.iter().map(|path| path.display().to_string()).collect();
    file.title =
        format!("{ios} I/Os of {} in {} threads, on: {}", names.join(", "), jobs.len(), file.title);
    Ok(())
}

/// A price list by name, or from a .toml file of `reap calibrate`.
fn price_list(name: &str) -> Result<Costs> {
    if name.ends_with(".toml") {
        return calibrate::price_list(Path::new(name));
    }
    let known: Vec<&str> = file::COSTS.iter().map(|(name, _)| *name).collect();
    let unknown = || {
        anyhow!(
            "unknown price list '{name}'; use {}, or a .toml file of `reap calibrate`",
            known.join(", ")
        )
    };
    file::costs_of(name).ok_or_else(unknown)
}

#[cfg(test)]
mod tests;
