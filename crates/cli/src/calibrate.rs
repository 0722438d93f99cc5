//! `reap calibrate`: what things cost on this machine, as the price list of a simulated one.
//!
//! [`sleeps`], [`lines`], [`library`] and [`rings`] measure; [`list`] makes prices of what they found and says which could not be
//! measured; [`sampler`] repeats, until there is enough or the time is over.

mod library;
mod lines;
mod list;
mod rings;
mod sampler;
mod sleeps;

use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, bail};

use crate::args::CalibrateArgs;
use crate::machine::{self, Machine};
use crate::output::{self, Aside, say};
use crate::stop;
use list::Found;
use sampler::Sampler;
use units::Nanos;

/// A sleep that ends at once: what a busy device makes of it.
const SHORT: Nanos = Nanos(1_000);

/// Measures, prints the table, and writes the price list.
///
/// # Errors
/// The file cannot be written, or the system refuses something.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode> {
    let machine = Machine::here()?;
    let stop = stop::on_signal()?;
    let file = Aside::open(args.output.as_deref())?;
    let host = machine.host.first().copied().unwrap_or(0);
    machine::settle(host);
    let mut sampler = Sampler::new(&stop);
    let mut found = Found::default();
    sleeps::on_this_cpu(&mut sampler, &mut found)?;
    rings::measure(&mut sampler, &mut found);
    if let Some(other) = machine.device {
        lines::measure(&mut sampler, other, &mut found)?;
        let sleep = Nanos(args.sleep_us.saturating_mul(1_000));
        found.sleep = sleeps::across(&mut sampler, other, sleep)?;
        found.short_sleep = sleeps::across(&mut sampler, other, SHORT)?;
        if let Some(deep) = found.sleep {
            found.awake = sleeps::awake(&mut sampler, other, sleep, deep.delay)?;
            found.caught = sleeps::caught(&mut sampler, other, deep.delay)?;
        }
        library::measure(&mut sampler, other, &mut found)?;
    } else {
        say("note: there is one CPU; what happens between two of them is taken from the list that ships");
    }
    if stop.load(Relaxed) {
        bail!("stopped; nothing was written");
    }
    let prices = list::prices(&found)?;
    let machine = machine.describe();
    output::all([output::print(&list::table(&found, &prices, &machine)), file.write(|| Ok(list::toml(&prices, &machine)))])?;
    Ok(ExitCode::SUCCESS)
}
