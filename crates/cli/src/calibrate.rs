//! `reap calibrate`: what things cost on this machine, as the price list of a simulated one.
//!
//! [`sleeps`] and [`library`] measure; [`list`] makes prices of what they found and says which could not be measured.

mod library;
pub mod list;
mod sleeps;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::args::CalibrateArgs;
use crate::compare::statistics;
use crate::machine::{self, Machine};
use crate::output::{self, Aside, say};
use crate::rows::Estimate;
use crate::rows::table::width;
use crate::stop;
use list::Found;
use units::Nanos;

/// Of the progress line: what is measured one after the other, with another CPU and without.
const STEPS: u64 = 5;
const STEPS_ALONE: u64 = 1;

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
        (Some(path), Some(wrong)) => Err(anyhow!("{} is not written: {wrong}; calibrate again while less else runs", path.display())),
        (None, Some(wrong)) => {
            say(format_args!("warning: {wrong}; calibrate again while less else runs"));
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

/// Samples of each figure.
const SAMPLES: usize = 31;
/// No figure takes longer, however busy the machine is; nor all of them together.
const LONGEST: Duration = Duration::from_millis(800);
const ALL: Duration = Duration::from_secs(17);

/// Repeats measurements, until there are enough samples or the time is over.
pub struct Sampler<'a> {
    stop: &'a AtomicBool,
    rng: Xoshiro256PlusPlus,
    until: Instant,
}

impl<'a> Sampler<'a> {
    /// Until `stop` is set.
    pub fn new(stop: &'a AtomicBool) -> Sampler<'a> {
        Sampler { stop, rng: Xoshiro256PlusPlus::seed_from_u64(1), until: Instant::now() + ALL }
    }

    /// The figure that `sample` measures.
    pub fn one(&mut self, mut sample: impl FnMut() -> Option<f64>) -> Option<Estimate> {
        self.repeat(|| Some([sample()?])).map(|[figure]| figure)
    }

    /// Each figure of what `sample` measures, in the order in which it returns them. A sample that failed is `None`.
    pub fn repeat<const N: usize>(&mut self, mut sample: impl FnMut() -> Option<[f64; N]>) -> Option<[Estimate; N]> {
        let until = self.until.min(Instant::now() + LONGEST);
        let mut samples: Vec<[f64; N]> = Vec::with_capacity(SAMPLES);
        // The first one warms up caches and code.
        sample();
        while samples.len() < SAMPLES && (samples.len() < 3 || Instant::now() < until) {
            if self.stop.load(Relaxed) {
                return None;
            }
            samples.push(sample()?);
        }
        let mut figures = [Estimate { value: 0.0, interval: None }; N];
        for (n, figure) in figures.iter_mut().enumerate() {
            let values: Vec<f64> = samples.iter().filter_map(|sample| sample.get(n).copied()).collect();
            *figure = statistics::estimate(&values, &mut self.rng)?;
        }
        Some(figures)
    }
}

/// Nanoseconds for each of `n` times that `work` does something.
pub fn time_each(n: u32, mut work: impl FnMut()) -> f64 {
    let began = hw::now();
    for _ in 0..n {
        work();
    }
    (hw::now() - began).0 as f64 / f64::from(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_have_intervals() {
        let never = AtomicBool::new(false);
        let mut n = 0.0;
        let [a, b] = Sampler::new(&never)
            .repeat(|| {
                n += 1.0;
                Some([7.0, n])
            })
            .unwrap();
        assert_eq!((a.value, a.interval), (7.0, Some([7.0, 7.0])));
        assert!(b.interval.is_some_and(|[low, high]| low < b.value && b.value < high) && (10.0..24.0).contains(&b.value), "{b:?}");
    }

    #[test]
    fn stop_or_failure_yields_nothing() {
        let (now, never) = (AtomicBool::new(true), AtomicBool::new(false));
        assert!(Sampler::new(&now).repeat(|| Some([1.0])).is_none());
        assert!(Sampler::new(&never).repeat(|| None::<[f64; 1]>).is_none());
    }
}
