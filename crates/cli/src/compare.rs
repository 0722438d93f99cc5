//! `reap compare`: one job under several completion modes, on a machine that has other things to do as well.
//!
//! Blocks of 100 ms, one of each mode to a round and the first mode twice, in random order, in one process, on devices
//! that stay open. [`scenes`] says what there is to run (loads, depths, profiles, others on the CPU),
//! [`design`] how long and how often each, [`experiment`] runs it by way of [`blocks`], [`results`] makes rows and pairs of it by way
//! of [`statistics`], [`crate::rows`] and [`crate::report`] show them, with [`notes`] around.

mod background;
mod blocks;
mod contender;
mod design;
mod experiment;
mod host;
mod labels;
mod notes;
mod results;
mod scenes;
mod seats;
pub mod statistics;
mod stolen;
mod validity;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};
use completion::{Mode, Placement};
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use reap::{Nanos, QueueError};
use serde_json::Value;
use workload::Job;
use workload::fio::{self, Input};
use workload::plan::Plan;

use crate::args::CompareArgs;
use crate::bench::{Meant, Named, Rig, Setup};
use crate::machine::{self, Machine};
use crate::output::{self, Aside, say};
use crate::report::{self, Report};
use crate::rows::{Results, json, table};
use crate::{jobs, run, stop};
use background::Background;
use blocks::Field;
pub use contender::Contender;
use design::BLOCK;
use experiment::Experiment;
use labels::Labels;
use results::{Facts, Outcome};
use scenes::{Effort, Setting};
use seats::Seats;
use validity::{Doubt, Yardstick};

/// What is compared without a job file.
const DEFAULT_JOB: &str = include_str!("../jobs/randread-4k-qd32.fio");

/// Compares, and prints the table.
///
/// # Errors
/// Bad input, a device that cannot be used, an I/O that failed.
pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let labels = Labels::new(&args.modes, scenes::is_sweep(args))?;
    args.price.note(labels.modes().iter().any(Contender::asks)).into_iter().for_each(say);
    let mut jobs = scenes::deepest(args, &jobs(args)?);
    let meant = Meant::of(args.device.device.as_deref(), &jobs)?;
    meant.gather(&mut jobs);
    let mut machine = seats::given(run::machine(&meant)?, args.cpus.as_ref())?;
    machine.keep_clear();
    machine::fine_timers();
    if let Some(contender) = labels.modes().iter().find(|contender| contender.mode.is_the_kernels() && !machine.outside) {
        bail!("--modes: {}, and the device of these jobs is embedded in this program", QueueError::NotTheKernels(contender.mode));
    }
    let plan = run::plan(&jobs, &machine, args.queues);
    if plan.stages > 1 {
        bail!("the job file has a `stonewall`: compare runs all its jobs at once; keep those that belong together in a file of their own");
    }
    let mut devices = Vec::new();
    for meant in scenes::profiles(args, &meant)? {
        let settings = scenes::settings(args, &jobs, &plan, &meant.profile()?)?;
        devices.push((meant.devices(&jobs, &plan, args.device.allowed())?, settings));
    }
    let uris: Vec<&str> = devices.iter().flat_map(|(named, _)| named).map(|named| named.uri.as_str()).collect();
    let seats = Seats::new(Path::new("/"), &plan, &mut machine, &uris, args.cpus.is_some());
    let stop = stop::on_signal()?;
    let read: Vec<PathBuf> = devices.iter().flat_map(|(named, _)| named).flat_map(Named::files).collect();
    output::apart(
        args.file.iter().chain(&read).map(PathBuf::as_path),
        &[("--json", args.json.as_deref()), ("--html", args.html.as_deref())],
    )?;
    let (json, html) = (Aside::open(args.json.as_deref())?, Aside::open(args.html.as_deref())?);
    let comparison = Comparison { args, labels, jobs, plan, device: title(&meant, &devices), machine, seats, stop };
    let (results, ended) = comparison.run(&devices)?;
    output::all([
        output::print(&table::show(&results, table::width())),
        json.write(|| json::text(&results)),
        html.write(|| report::page(&Report { results: &results, machine: &comparison.machine.describe() })),
        ended,
    ])?;
    Ok(ExitCode::SUCCESS)
}

fn jobs(args: &CompareArgs) -> Result<Vec<Job>> {
    let jobs = match &args.file {
        Some(file) => jobs::load(std::slice::from_ref(file), None)?.jobs,
        None => fio::parse(&[Input { name: "(default job)", text: DEFAULT_JOB.as_bytes() }], &fio::Nothing)?.jobs,
    };
    if let Some(job) = jobs.iter().find(|job| job.verify.as_ref().is_some_and(|verify| verify.only)) {
        bail!("job '{}': verify_only: comparisons verify nothing, and would write over what it checks; leave the option out", job.name);
    }
    if jobs.iter().any(|job| job.verify.is_some()) {
        say("note: verify= is left out of comparisons");
    }
    Ok(jobs)
}

/// What a comparison's title calls the devices.
fn title(meant: &Meant, devices: &[(Vec<Named>, Vec<Setting>)]) -> String {
    match (meant, devices) {
        (Meant::Path(_), [(named, _), ..]) => named.iter().map(|one| one.uri.as_str()).collect::<Vec<_>>().join(" and "),
        (Meant::Path(shared), []) => shared.to_string(),
        (Meant::Name(uri), _) => uri.clone(),
    }
}

/// Fills all that the jobs use: writes to blocks that were never written are slower, reads of them faster.
fn fill(jobs: &[Job], plan: &Plan, rig: &Rig, stop: &AtomicBool) -> Result<()> {
    let generators = run::generators(jobs, plan, rig, 0)?;
    let users: Vec<_> = plan.threads.iter().zip(&generators).collect();
    run::say_filled(&rig.fill(&users, stop)?, stop);
    Ok(())
}

struct Comparison<'a> {
    args: &'a CompareArgs,
    labels: Labels,
    jobs: Vec<Job>,
    plan: Plan,
    /// What it is compared on, in words.
    device: String,
    machine: Machine,
    seats: Seats,
    stop: Arc<AtomicBool>,
}

impl Comparison<'_> {
    /// One set of devices after the other, and the scenes on them. What was measured until one failed comes with what happened to that.
    fn run(&self, devices: &[(Vec<Named>, Vec<Setting>)]) -> Result<(Results, Result<()>)> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let efforts: Vec<Effort> =
            devices.iter().map(|(_, settings)| Effort::of(settings, self.labels.len(), self.args.repeat.into())).collect();
        if scenes::is_sweep(self.args) {
            say(notes::planned(&efforts));
        }
        let bar = output::bar(efforts.iter().map(|effort| effort.blocks).sum(), "blocks");
        let mut results = Results { device: self.device.clone(), ..Results::default() };
        let (mut outcomes, mut ended, mut remarks) = (Vec::new(), Ok(()), Vec::new());
        for (named, settings) in devices {
            match self.on_device((named, settings), &mut results, &mut remarks, &mut rng, &bar) {
                Ok((more, how)) => {
                    outcomes.extend(more);
                    ended = how;
                }
                Err(error) => ended = Err(error),
            }
            if ended.is_err() || self.stop.load(Relaxed) {
                break;
            }
        }
        bar.finish_and_clear();
        if self.stop.load(Relaxed) {
            let rounds: usize = outcomes.iter().map(|outcome: &Outcome| outcome.rounds).sum();
            let planned = devices.iter().map(|(_, settings)| settings.len()).sum::<usize>() * self.args.repeat as usize;
            stop::tell(format_args!("{rounds} of {planned} rounds"));
        }
        if outcomes.is_empty() {
            return Err(ended.err().unwrap_or_else(|| anyhow!("stopped before anything was measured")));
        }
        results.extra.insert("complete".into(), (ended.is_ok() && !self.stop.load(Relaxed)).into());
        let facts = self.facts();
        let doubts: Vec<&[Doubt]> = outcomes.iter().map(|outcome| outcome.doubts.as_slice()).collect();
        results.banner = validity::banner(&doubts, &facts.simulate);
        results.extra.insert(json::VALID.into(), results.banner.is_none().into());
        results.extra.insert(json::REASONS.into(), validity::reasons(&doubts).into());
        results.title = notes::title(&facts, &outcomes);
        for outcome in &mut outcomes {
            results.rows.append(&mut outcome.rows);
            results.pairs.append(&mut outcome.pairs);
        }
        results.notes = notes::notes(&facts, &outcomes, &results, &self.machine.describe());
        results.legend = notes::columns(&facts, &results);
        // After the machine, before what was measured.
        results.notes.splice(1..1, remarks);
        Ok((results, ended))
    }

    /// What was measured on it, and whether that is all of it.
    ///
    /// # Errors
    /// It cannot be opened, or not be filled.
    fn on_device(
        &self,
        (named, settings): (&[Named], &[Setting]),
        results: &mut Results,
        remarks: &mut Vec<String>,
        rng: &mut Xoshiro256PlusPlus,
        bar: &ProgressBar,
    ) -> Result<(Vec<Outcome>, Result<()>)> {
        let price = self.args.price.or_default();
        let setup = Setup {
            devices: named,
            mode: self.labels.mode(0).mode,
            price,
            spin: self.args.poll,
            queues: self.args.queues,
            histograms: false,
        };
        let rig = Rig::open(&self.jobs, &self.plan, setup, &self.machine)?;
        let labels = self.labels_on(&rig, named, results, remarks);
        let reach = stop::reach(&self.stop, rig.devices())?;
        fill(&self.jobs, &self.plan, &rig, &self.stop)?;
        let host_work = Nanos(self.args.host_work);
        let mut field = Field::new(&self.jobs, &self.plan, &rig, &self.seats, host_work, &self.stop)?;
        let background = self.args.background.map(|percent| Background::start(&self.seats.used, percent.into())).transpose()?;
        let experiment = Experiment {
            labels: &labels,
            settings,
            plan: &self.plan,
            seats: &self.seats,
            background,
            repeat: self.args.repeat as usize,
            stop: &self.stop,
            bar,
        };
        let (records, ended) = experiment.run(&mut field, rng);
        drop(reach);
        let offered = self.facts().offered;
        let mut outcomes = Vec::new();
        for (setting, record) in settings.iter().zip(&records) {
            let yardstick = Yardstick { cpus: self.seats.needed, closed: setting.is_closed() };
            outcomes.extend(Outcome::new(&labels, record, (setting.scene.clone(), yardstick), offered, rng));
        }
        Ok((outcomes, ended))
    }

    /// What there is to compare on these devices, each once. What has to be known of them and of the modes there goes to `remarks`.
    fn labels_on(&self, rig: &Rig, named: &[Named], results: &mut Results, remarks: &mut Vec<String>) -> Labels {
        let (devices, of) = (rig.devices(), run::devices::json(named, rig.devices(), &self.plan));
        match (results.extra.get_mut("devices").and_then(Value::as_array_mut), of) {
            (Some(all), Value::Array(mut of)) => all.append(&mut of),
            (_, of) => drop(results.extra.insert("devices".into(), of)),
        }
        let told = |named: &Named| self.machine.outside || named.words != format!("{} (embedded)", named.uri);
        if named.iter().any(told) {
            remarks.extend(run::devices::lines(named, devices).lines().map(|line| format!("{line}.")));
        }
        let note = |mode: Mode| devices.iter().find_map(|device| device.mode_note(mode));
        // The queues are taken as the first mode wants them: then `threaded` is what it says.
        let drained = |mode: Mode| self.machine.outside && mode.placement() == Placement::DrainThread;
        let first = drained(self.labels.mode(0).mode);
        let otherwise = |mode: Mode| note(mode).is_some() && !(first && drained(mode));
        // The first there is, or its device could not have been opened.
        let (had, lacks) = self.labels.had(|mode| devices.iter().find_map(|device| device.lacks(mode)));
        remarks.extend(lacks.into_iter().map(|why| format!("Left out: {why}.")));
        let (labels, same) = had.apart(|mode| contender::stands_for(mode, otherwise(mode)));
        if first {
            remarks
                .push("All modes have queues that any thread may drain, because threaded is named first; others are cheaper.".to_owned());
        }
        remarks.extend(same.iter().map(|(left_out, kept)| {
            let why = note(left_out.mode).or_else(|| note(kept.mode)).unwrap_or_default();
            format!("{left_out} is left out, because it is {kept} here: {why}.")
        }));
        remarks.extend(labels.modes().iter().filter_map(|contender| Some(format!("{contender}: {}.", note(contender.mode)?))));
        labels
    }

    fn facts(&self) -> Facts {
        let threads = || self.plan.threads.iter().map(|thread| &self.jobs[thread.job]);
        let paced = self.jobs.iter().any(|job| job.rate.read.is_some() || job.rate.write.is_some());
        Facts {
            device: self.device.clone(),
            job: notes::describe(threads()),
            offered: paced.then(|| threads().map(notes::offered).sum()),
            host_work: self.args.host_work,
            block: BLOCK,
            outside: self.machine.outside,
            simulate: notes::simulate(self.args),
            oversubscribed: self.seats.oversubscribed,
        }
    }
}
