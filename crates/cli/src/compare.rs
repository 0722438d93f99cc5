//! `reap compare`: one job under several completion modes, on a machine that has other things to do as well.
//!
//! Blocks of 100 ms, one of each mode to a round and the first mode twice, in random order, in one process, on devices
//! that stay open: [`blocks`] runs them, [`results`] makes rows and pairs of them by way of [`statistics`],
//! [`crate::rows`] shows them, with [`notes`] around.

mod blocks;
mod notes;
mod results;
pub mod statistics;
mod stolen;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use completion::Mode;
use indicatif::{ProgressBar, ProgressStyle};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use reap::{DeviceUri, Nanos};
use workload::fio::{self, Input};
use workload::plan::Plan;
use workload::{Generator, Job, Rate};

use crate::args::CompareArgs;
use crate::bench::{Rig, Setup};
use crate::machine::Machine;
use crate::output::Output;
use crate::report::{self, Report};
use crate::rows::json::JsonResults;
use crate::rows::{self, Results, Scene, table};
use crate::{jobs, run, stop};
use blocks::{Block, Field, Sample, prepare};
use results::{Labels, Outcome, Record};
use stolen::Counters;

/// A measured stretch.
const BLOCK: Nanos = Nanos::from_millis(100);
/// The stretch before it, in which caches and policies settle.
const RAMP: Nanos = Nanos::from_millis(10);
/// With a rate: rounds from one measurement of the capacity to the next.
const CAPACITY_EVERY: usize = 4;
/// Blocks of each mode in which stolen time is measured.
const STOLEN_BLOCKS: usize = 4;
/// Rounds that make an interval worth printing; where fewer are clean, half as many again are run.
const ENOUGH: usize = 30;

/// What is compared without a job file.
const DEFAULT_JOB: &str = include_str!("../../../jobs/randread-4k-qd32.fio");

/// Compares, and prints the table.
///
/// # Errors
/// Bad input, a device that cannot be used, an I/O that failed.
pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let labels = Labels::new(&args.modes)?;
    let jobs = jobs(args)?;
    let machine = Machine::here()?;
    machine.keep_clear();
    let plan = run::plan(&jobs, &machine);
    if plan.stages > 1 {
        bail!("the job file has a `stonewall`: compare runs all its jobs at once; keep those that belong together in a file of their own");
    }
    let stop = stop::on_signal()?;
    let setup =
        Setup { uri: &args.device.device, mode: labels.mode(0), slack: args.slack.latency_slack, queues: args.queues, histograms: false };
    let rig = Rig::open(&jobs, &plan, setup, &machine)?;
    let mut file = args.json.as_deref().map(|path| Output::open(Some(path))).transpose()?;
    let mut page = report::open(args.html.as_deref())?;
    fill(&jobs, &plan, &rig, &stop)?;
    let experiment = Experiment { args, labels, jobs, plan, machine, rig, stop };
    let results = experiment.run()?;
    if let Some(mut file) = file.take() {
        file.write(&(serde_json::to_string_pretty(&JsonResults::new(&results))? + "\n"))?;
        file.finish()?;
    }
    if let Some(page) = page.take() {
        report::write(&Report { results: &results, machine: &experiment.machine.describe() }, page)?;
    }
    let mut output = Output::open(None)?;
    output.write(&table::show(&results, table::width()))?;
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn jobs(args: &CompareArgs) -> Result<Vec<Job>> {
    let jobs = match &args.file {
        Some(file) => jobs::load(std::slice::from_ref(file))?.jobs,
        None => fio::parse(&[Input { name: "(default job)", text: DEFAULT_JOB.as_bytes() }], &fio::Nothing)?.jobs,
    };
    if jobs.iter().any(|job| job.verify.is_some()) {
        eprintln!("note: verify= is left out of comparisons");
    }
    Ok(jobs)
}

/// Fills all that the jobs use: writes to blocks that were never written are slower, reads of them faster.
fn fill(jobs: &[Job], plan: &Plan, rig: &Rig, stop: &AtomicBool) -> Result<()> {
    let generator = |thread: &workload::plan::Thread| Ok(Generator::new(&jobs[thread.job], thread.seat(0), &rig.targets(thread)?)?);
    let generators: Vec<Generator> = plan.threads.iter().map(generator).collect::<Result<_>>()?;
    let users: Vec<_> = plan.threads.iter().zip(&generators).collect();
    run::say_filled(&rig.fill(&users, stop)?, stop);
    Ok(())
}

struct Experiment<'a> {
    args: &'a CompareArgs,
    labels: Labels,
    jobs: Vec<Job>,
    plan: Plan,
    machine: Machine,
    rig: Rig,
    stop: Arc<AtomicBool>,
}

impl Experiment<'_> {
    fn run(&self) -> Result<Results> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let host_work = Nanos(self.args.host_work);
        let mut field = Field::new(&self.jobs, &self.plan, &self.rig, &self.machine, host_work, &self.stop)?;
        let repeat = self.args.repeat as usize;
        let steps = repeat * self.labels.len() + STOLEN_BLOCKS * (self.labels.modes().len() + 1);
        let bar = bar(steps);
        let mut record = self.rounds(&mut field, repeat, &mut rng, &bar)?;
        match self.stolen(&mut field, &mut rng, &bar) {
            Ok(stolen) => record.stolen = stolen,
            Err(error) => eprintln!("warning: stolen time is not measured: {error:#}"),
        }
        bar.finish_and_clear();
        if self.stop.load(Relaxed) {
            eprintln!("note: stopped by a signal after {} of {repeat} rounds", record.rounds.len());
        }
        let facts = self.facts();
        let outcome =
            Outcome::new(&self.labels, &record, self.scene()?, facts.offered, &mut rng).context("stopped before anything was measured")?;
        let mut results = Results {
            title: notes::title(&facts),
            device: facts.device.clone(),
            rows: outcome.rows.clone(),
            pairs: outcome.pairs.clone(),
            ..Results::default()
        };
        results.notes = notes::notes(&facts, &[outcome], &results, &self.machine.describe());
        Ok(results)
    }

    /// Round after round: a block of each label, in random order.
    fn rounds(&self, field: &mut Field, repeat: usize, rng: &mut Xoshiro256PlusPlus, bar: &ProgressBar) -> Result<Record> {
        let paced: Vec<Job> = self.jobs.iter().map(|job| prepare(job, RAMP, BLOCK)).collect();
        let capacity = self.is_paced().then(|| paced.iter().map(without_rate).collect::<Vec<Job>>());
        let mut record = Record::default();
        let mut order: Vec<usize> = (0..self.labels.len()).collect();
        field.run(Block { mode: self.labels.mode(0), jobs: &paced, seed: 0 })?;
        while record.rounds.len() < repeat || record.clean() < repeat.min(ENOUGH) && record.rounds.len() < repeat + repeat / 2 {
            let seed = rng.next_u64();
            if let Some(jobs) = capacity.as_deref().filter(|_| record.rounds.len() % CAPACITY_EVERY == 0) {
                record.capacity.push(field.run(Block { mode: Mode::POLL, jobs, seed })?);
            }
            let mut round: Vec<Option<Sample>> = vec![None; self.labels.len()];
            order.shuffle(rng);
            for &label in &order {
                let sample = field.run(Block { mode: self.labels.mode(label), jobs: &paced, seed })?;
                bar.inc(1);
                if self.stop.load(Relaxed) {
                    return Ok(record);
                }
                round[label] = Some(sample);
            }
            record.rounds.push(round);
        }
        Ok(record)
    }

    /// What each mode takes from a loop at idle priority, in nanoseconds per I/O.
    fn stolen(&self, field: &mut Field, rng: &mut Xoshiro256PlusPlus, bar: &ProgressBar) -> Result<Vec<Option<f64>>> {
        let modes = self.labels.modes();
        let jobs: Vec<Job> = self.jobs.iter().map(|job| prepare(job, Nanos::ZERO, BLOCK)).collect();
        let wishes: Vec<Vec<u32>> = self.plan.threads.iter().map(|t| t.cpus.clone()).collect();
        let mut cpus = self.machine.place(&wishes);
        cpus.sort_unstable();
        cpus.dedup();
        let counters = Counters::start(&cpus)?;
        let mut lost: Vec<Vec<f64>> = vec![Vec::new(); modes.len()];
        let (mut idle, mut readings) = (Vec::new(), Vec::new());
        let mut order: Vec<usize> = (0..modes.len()).collect();
        for _ in 0..STOLEN_BLOCKS {
            let from = counters.read();
            hw::sleep_until(hw::now() + BLOCK);
            idle.push(from.rate(&counters.read()));
            bar.inc(1);
            order.shuffle(rng);
            for &at in &order {
                if self.stop.load(Relaxed) {
                    return Ok(Vec::new());
                }
                let from = counters.read();
                let sample = field.run(Block { mode: modes[at], jobs: &jobs, seed: rng.next_u64() })?;
                readings.push((at, from, counters.read(), sample.counted.ios));
                bar.inc(1);
            }
        }
        let idle = statistics::median(&idle).unwrap_or(0.0);
        for (at, from, to, ios) in readings {
            if ios > 0 {
                lost[at].push(from.lost(&to, idle) / ios as f64);
            }
        }
        Ok(lost.iter().map(|values| statistics::median(values)).collect())
    }

    fn is_paced(&self) -> bool {
        self.jobs.iter().any(|job| job.rate.read.is_some() || job.rate.write.is_some())
    }

    fn scene(&self) -> Result<Scene> {
        let uri: DeviceUri = self.args.device.device.parse()?;
        let depth = self.plan.threads.iter().map(|thread| u64::from(self.jobs[thread.job].iodepth)).sum();
        Ok(Scene { load_pct: 100.0, qd: depth, profile: uri.profile, ..Scene::default() })
    }

    fn facts(&self) -> results::Facts {
        let threads = || self.plan.threads.iter().map(|thread| &self.jobs[thread.job]);
        let wishes: Vec<Vec<u32>> = self.plan.threads.iter().map(|t| t.cpus.clone()).collect();
        results::Facts {
            device: self.args.device.device.clone(),
            job: threads().next().map_or(String::new(), |job| describe(job, self.plan.threads.len())),
            offered: self.is_paced().then(|| threads().map(offered).sum()),
            host_work: self.args.host_work,
            block: BLOCK,
            oversubscribed: self.machine.oversubscribed(&self.machine.place(&wishes)),
        }
    }
}

fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    // The template is a constant: it parses.
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} blocks  ETA {eta}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn without_rate(job: &Job) -> Job {
    let mut job = job.clone();
    job.rate = Default::default();
    job
}

/// I/Os per second that a thread of `job` means to issue.
fn offered(job: &Job) -> f64 {
    let iops = |rate: Option<Rate>, block: u64| match rate {
        Some(Rate::Iops(n)) => n as f64,
        Some(Rate::Bytes(n)) => n as f64 / block.max(1) as f64,
        None => 0.0,
    };
    let read = if job.pattern.reads() { iops(job.rate.read, job.block.read.min) } else { 0.0 };
    let write = if job.pattern.writes() { iops(job.rate.write, job.block.write.min) } else { 0.0 };
    read + write
}

fn describe(job: &Job, threads: usize) -> String {
    let size = match job.pattern.reads() {
        true => &job.block.read,
        false => &job.block.write,
    };
    let size = if size.is_fixed() { rows::bytes(size.min) } else { format!("{}–{}", rows::bytes(size.min), rows::bytes(size.max)) };
    let threads = if threads > 1 { format!(", {threads} threads") } else { String::new() };
    format!("{} {size}, queue depth {}{threads}", job.pattern.name(), job.iodepth)
}
