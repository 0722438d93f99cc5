//! `reap paths-bench`: what choosing a path costs, by where requests in flight are counted (post 004).
//!
//! Every cell (policy, paths, hardware queues, threads) is measured in every round, in random order, so that whatever
//! else the machine does meets them all. A figure is the median over rounds, with the least and the most.

mod cells;
mod counted;
mod plot;
mod row;
mod table;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, bail};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::args::PathsBenchArgs;
use crate::machine::Machine;
use crate::output::{self, Aside, say};
use crate::rows::table::width;
use crate::stop;
use cells::Cell;
use row::Row;

/// Measures, prints, and writes what was asked for.
///
/// # Errors
/// A file that cannot be written, or threads that cannot be started.
pub fn run(args: &PathsBenchArgs) -> Result<ExitCode> {
    if counted::is_child() {
        counted::run_cells();
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop::on_signal()?;
    // Files first: minutes of measuring are not to end with a missing directory.
    output::apart([], &[("--json", args.json.as_deref()), ("--plot", args.plot.as_deref())])?;
    let (json, plot) = (Aside::open(args.json.as_deref())?, Aside::open(args.plot.as_deref())?);
    let machine = Machine::here()?;
    let cpus = hw::allowed_cpus().context("cannot ask which CPUs this process may use")?;
    let cells = Cell::all(cpus.len());
    if cells.is_empty() {
        bail!("there is nothing to measure");
    }
    let instructions = counted::count(&stop);
    if let Some(why) = instructions.as_ref().err().filter(|_| !stop.load(Relaxed)) {
        say(format_args!("note: instructions are not counted: {why:#}"));
    }
    let (rounds, rows) = rows(&cells, args.rounds, &cpus, instructions.ok().as_deref(), &stop)?;
    if rounds < args.rounds {
        stop::tell(format_args!("{rounds} of {} rounds", args.rounds));
    }
    output::all([
        output::print(&table::draw(&rows, rounds, &machine.describe(), width())),
        json.write(|| Ok(serde_json::to_string_pretty(&rows)? + "\n")),
        plot.write(|| plot::draw(&rows)),
    ])?;
    Ok(ExitCode::SUCCESS)
}

/// Measures in so many rounds, or in fewer if it is stopped: how many, and what came of them.
fn rows(cells: &[Cell], rounds: u32, cpus: &[usize], instructions: Option<&[f64]>, stop: &AtomicBool) -> Result<(u32, Vec<Row>)> {
    let mut measured = vec![Vec::with_capacity(rounds as usize); cells.len()];
    let mut done = 0;
    let mut order: Vec<usize> = (0..cells.len()).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let benches: Vec<_> = cells.iter().map(|cell| cell.prepare(cpus)).collect::<Result<_>>()?;
    while done < rounds && !stop.load(Relaxed) {
        order.shuffle(&mut random);
        for &at in &order {
            measured[at].push(benches[at].measure()?);
        }
        done += 1;
    }
    if done == 0 {
        bail!("stopped before anything was measured");
    }
    // Instructions do not depend on who else is at work: they are counted for one thread.
    let alone: Vec<&Cell> = cells.iter().filter(|cell| cell.threads == 1).collect();
    let instructions_of = |cell: &Cell| {
        let at = alone.iter().position(|other| other.is_like(cell))?;
        instructions?.get(at).copied()
    };
    let row = |(cell, mut ns): (&Cell, Vec<f64>)| {
        ns.sort_by(f64::total_cmp);
        Row {
            policy: cell.policy.name(),
            paths: cell.paths,
            queues: cell.queues,
            threads: cell.threads,
            ns: ns.get(ns.len() / 2).copied().unwrap_or(f64::NAN),
            ns_min: ns.first().copied().unwrap_or(f64::NAN),
            ns_max: ns.last().copied().unwrap_or(f64::NAN),
            instructions: instructions_of(cell),
        }
    };
    Ok((done, cells.iter().zip(measured).map(row).collect()))
}

#[cfg(test)]
mod tests;
