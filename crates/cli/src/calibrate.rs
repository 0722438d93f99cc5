//! `reap calibrate`: what things cost on this machine, as the price list of a simulated one.
//!
//! [`sleeps`], [`library`] and [`rings`] measure; [`list`] makes prices of what they found and says which could not be measured.

mod library;
pub mod list;
mod rings;
mod sampler;
mod sleeps;

use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, anyhow, bail};
use indicatif::ProgressBar;

use crate::args::CalibrateArgs;
use crate::machine::{self, Machine};
use crate::output::{self, Aside, say};
use crate::rows::table::width;
use crate::stop;
use list::Found;
use sampler::Sampler;
use units::Nanos;

/// Of the progress line: what is measured one after the other, with another CPU and without.
const STEPS: u64 = 6;
const STEPS_ALONE: u64 = 2;

/// Measures, prints the table, and writes the price list.
///
/// # Errors
/// The file cannot be written, or the system refuses something.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode> {
    let machine = Machine::here()?;
    let stop = stop::on_signal()?;
    let file = Aside::open(args.output.as_deref())?;
    let host = machine.host.first().copied().unwrap_or(0);
    machine::settle(&[host]);
    let mut sampler = Sampler::new(&stop);
    let bar = output::bar(if machine.device.is_some() { STEPS } else { STEPS_ALONE }, "steps");
    let found = measure(&mut sampler, machine.device, args, &bar);
    bar.finish_and_clear();
    let found = found?;
    if machine.device.is_none() {
        say("note: there is one CPU; what happens between two of them is taken from the list that ships");
    }
    if stop.load(Relaxed) {
        bail!("stopped; nothing was written");
    }
    let prices = list::prices(&found)?;
    let machine = machine.describe();
    let wrong = list::free(&list::costs(&prices)?);
    let written = match (&args.output, &wrong) {
        (Some(path), Some(wrong)) => Err(anyhow!("{} is not written: {wrong}; calibrate again with less beside it", path.display())),
        (None, Some(wrong)) => {
            say(format_args!("warning: {wrong}; calibrate again with less beside it"));
            Ok(())
        }
        (_, None) => file.write(|| Ok(list::toml(&prices, &machine))),
    };
    output::all([output::print(&list::table(&prices, &machine, width())), written])?;
    Ok(ExitCode::SUCCESS)
}

/// Measures one thing after the other.
fn measure(sampler: &mut Sampler<'_>, other: Option<usize>, args: &CalibrateArgs, bar: &ProgressBar) -> Result<Found> {
    let mut found = Found::default();
    sleeps::on_this_cpu(sampler, &mut found)?;
    bar.inc(1);
    rings::measure(sampler, &mut found);
    bar.inc(1);
    let Some(other) = other else { return Ok(found) };
    found.line = sleeps::line(sampler, other)?;
    bar.inc(1);
    let sleep = Nanos(args.sleep_us.saturating_mul(1_000));
    found.sleep = sleeps::across(sampler, other, sleep)?;
    bar.inc(1);
    if let Some(deep) = found.sleep {
        found.awake = sleeps::awake(sampler, other, sleep, deep.delay)?;
    }
    bar.inc(1);
    library::measure(sampler, other, &mut found)?;
    bar.inc(1);
    Ok(found)
}
