//! `reap compare`: runs one job in several completion modes, and compares IOPS, CPU time and
//! latency.
//!
//! The job runs in blocks of 100 ms, each in one mode, on devices that stay open. A round has a
//! block of every mode, and a second block of the first mode (A/A), which shows how much results
//! vary by chance. Blocks within a round are in random order, so that other work on the machine
//! affects all modes alike.
//!
//! ```text
//! plan: modes, scenes, CPUs ─► blocks: runs rounds ─► results: rows, ratios, doubts (statistics)
//!                                                         │
//!                  table on the terminal, JSON, HTML ◄────┘  (crate::rows, crate::report)
//! ```

mod blocks;
pub mod loops;
mod plan;
mod results;
pub mod statistics;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use reap::{Nanos, UnsupportedMode};
use workload::Job;
use workload::fio::{self, Input};

use crate::args::CompareArgs;
use crate::bench::{Filenames, Rig, Setup, TargetDevice};
use crate::machine::WakeUp;
use crate::output::{self, OptionalOutput, say};
use crate::rows::{Results, table};
use crate::{calibrate, jobs, machine, report, run, stop};
use blocks::{Experiment, JobThreads};
use plan::JobCpus;
use results::Outcome;

/// The job that runs if no job file is given.
const DEFAULT_JOB: &str = include_str!("../jobs/randread-4k-qd32.fio");

/// Runs `reap compare`, and prints the table.
///
/// # Errors
/// Invalid options or job files, devices that cannot be opened, and a failed I/O. Rounds before the
/// failed I/O are printed.
pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let modes = plan::modes(args)?;
    let costs = args
        .costs
        .as_deref()
        .map(|path| anyhow::Ok((calibrate::price_list(path)?, path)))
        .transpose()?;
    let mut jobs = load(args)?;
    if let Some(&deepest) = args.qd.iter().max() {
        // The deepest scene determines the size of queues and buffers; devices are opened only
        // once.
        jobs = plan::at_depth(&jobs, deepest);
    }
    let filenames = Filenames::of(args.device.device.as_deref(), &jobs)?;
    filenames.gather(&mut jobs);
    let mut machine = run::machine(&filenames)?;
    if let Some(cpus) = &args.cpus {
        machine = machine
            .only(&cpus.iter().map(|&cpu| cpu as usize).collect::<Vec<_>>())
            .context("--cpus")?;
    }
    machine.avoid_device_cpu();
    machine::fine_timers();
    // Checked before devices are opened: these modes belong to io_uring, which embedded devices do
    // not use.
    if let Some(&mode) = modes.iter().find(|mode| mode.is_the_kernels() && !machine.external_device)
    {
        bail!(
            "--modes: {}, and the device of these jobs is embedded in this program",
            UnsupportedMode::NotTheKernels(mode)
        );
    }
    let plan = run::plan(&jobs, &machine);
    // A block runs all job threads at once, so jobs cannot wait for each other.
    if plan.stages > 1 {
        bail!(
            "the job file has a `stonewall`, but compare runs all jobs at once; put the jobs of each stage into a file of their own"
        );
    }
    let scenes = plan::scenes(args, &jobs, &plan, &filenames.profile()?)?;
    let named = filenames.devices(&jobs, &plan, args.device.allowed())?;
    let uris: Vec<&str> = named.iter().map(|named| named.uri.as_str()).collect();
    let device =
        if let Filenames::Name(uri) = &filenames { uri.clone() } else { uris.join(" and ") };
    let cpus = JobCpus::new(Path::new("/"), &plan, &mut machine, &uris, args.cpus.is_some());
    let stop = stop::on_signal()?;
    let read: Vec<PathBuf> = named.iter().flat_map(TargetDevice::files).collect();
    // Output files must not overwrite the job file or a device.
    output::apart(
        args.file.iter().chain(&args.costs).chain(&read).map(PathBuf::as_path),
        &[("--json", args.json.as_deref()), ("--html", args.html.as_deref())],
    )?;
    // Output files are opened before measuring: a path that cannot be written must not cost a whole
    // run.
    let (json, html) =
        (OptionalOutput::open(args.json.as_deref())?, OptionalOutput::open(args.html.as_deref())?);

    let setup = Setup {
        devices: &named,
        mode: modes[0],
        spin: args.queue.poll,
        queues: args.queue.queues,
        histograms: false,
    };
    let io_uring = uris.iter().any(|uri| uri.starts_with("kernel:"));
    let wake_up = WakeUp::new(costs.as_ref().map(|(costs, path)| (costs, *path)), io_uring);
    wake_up.apply();
    let rig = Rig::open(&jobs, &plan, setup, &machine)?;
    let lacks = |mode| {
        rig.devices.iter().find_map(|device| Some(device.unsupported_reason(mode)?.to_string()))
    };
    let note =
        |mode| rig.devices.iter().find_map(|device| Some(device.mode_note(mode)?.to_string()));
    let (modes, remarks) = plan::available(&modes, lacks, note);
    let reach = stop::reach(&stop, &rig.devices)?;
    // Unwritten blocks are written more slowly and read faster, so the first round would differ.
    let generators = run::generators(&jobs, &plan, &rig, 0)?;
    run::say_filled(
        &rig.fill(&plan.threads.iter().zip(&generators).collect::<Vec<_>>(), &stop)?,
        &stop,
    );

    let repeat = args.repeat as usize;
    let blocks = plan::blocks(&scenes, modes.len() + 1, repeat);
    // Sweeps run for minutes, so the expected time is printed.
    if plan::is_sweep(args) {
        let seconds = (plan::WHOLE_BLOCK.as_secs_f64() * blocks as f64).ceil();
        say(format_args!(
            "{blocks} blocks: about {seconds} s, longer if other work runs. Ctrl-C ends the comparison and prints the results so far."
        ));
    }
    let bar = output::bar(blocks, "blocks");
    let mut experiment = Experiment {
        modes: &modes,
        scenes: &scenes,
        plan: &plan,
        cpus: &cpus,
        repeat,
        stop: &stop,
        bar: &bar,
        threads: JobThreads::new(&jobs, &plan, &rig, &cpus, Nanos(args.host_work), &stop)?,
    };
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (records, ended) = experiment.run(&mut rng);
    drop((experiment, reach));
    bar.finish_and_clear();

    let threads: Vec<&Job> = plan.threads.iter().map(|thread| &jobs[thread.job]).collect();
    let paced = jobs.iter().any(|job| job.rate.read.is_some() || job.rate.write.is_some());
    let offered = paced.then(|| threads.iter().map(|job| results::offered(job)).sum());
    let mut outcomes = Vec::new();
    for (scene, record) in scenes.iter().zip(&records) {
        outcomes.extend(Outcome::new(
            &modes,
            record,
            scene,
            cpus.needed,
            offered,
            &wake_up,
            &mut rng,
        ));
    }
    let stopped = stop.load(Relaxed);
    if stopped {
        let rounds: usize = outcomes.iter().map(|outcome| outcome.rounds).sum();
        say(format_args!(
            "note: stopped by a signal after {rounds} of {} rounds",
            scenes.len() * repeat
        ));
    }
    // An error after complete rounds is reported at the end, after the table.
    if outcomes.is_empty() {
        return Err(ended.err().unwrap_or_else(|| anyhow!("stopped before anything was measured")));
    }
    let mut results = Results {
        subject: "On this device and job",
        inconclusive: results::inconclusive(args, &outcomes),
        title: results::title(args, &threads, &device, &outcomes),
        device,
        legend: results::legend(&wake_up),
        ..Results::default()
    };
    results.extra.insert("devices".into(), run::devices_json(&named, &rig.devices, &plan));
    results.extra.insert("complete".into(), (ended.is_ok() && !stopped).into());
    results.extra.insert("valid".into(), results.inconclusive.is_none().into());
    results.extra.insert("wake_up_ns".into(), wake_up.json());
    let reasons: BTreeSet<&String> = outcomes.iter().flat_map(|outcome| &outcome.doubts).collect();
    results.extra.insert("reasons".into(), reasons.into_iter().cloned().collect());
    for outcome in &mut outcomes {
        results.rows.append(&mut outcome.rows);
        results.pairs.append(&mut outcome.pairs);
    }
    let machine_words = machine.describe();
    results.notes =
        results::notes(&outcomes, &results, &machine_words, cpus.oversubscribed, offered);
    // The first note is the machine. Next are the devices, unless the title already has all of
    // their description, and remarks about the modes.
    let told = |named: &TargetDevice| {
        machine.external_device || named.words != format!("{} (embedded)", named.uri)
    };
    let lines = if named.iter().any(told) {
        run::device_lines(&named, &rig.devices)
    } else {
        String::new()
    };
    if args.wide {
        let states = results.rows.iter().filter_map(|row| {
            let state = row.extra.get("state")?.as_str()?;
            Some(format!("{} in the end, at queue depth {}: {state}.", row.mode, row.scene.qd))
        });
        let states: Vec<String> = states.collect();
        results.notes.extend(states);
    }
    results.notes.splice(1..1, lines.lines().map(|line| format!("{line}.")).chain(remarks));
    output::all([
        output::print(&table::show(&results, table::width(), args.wide, "")),
        json.write(|| results.json_text()),
        html.write(|| report::page(&results, &machine_words)),
        ended,
    ])?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the job file, or the default job. Verification is left out: it costs CPU time that would
/// be counted as part of the completion mode.
fn load(args: &CompareArgs) -> Result<Vec<Job>> {
    let jobs = match &args.file {
        Some(file) => jobs::load(std::slice::from_ref(file), None)?.jobs,
        None => {
            fio::parse(
                &[Input { name: "(default job)", text: DEFAULT_JOB.as_bytes() }],
                &fio::Nothing,
            )?
            .jobs
        }
    };
    // Without the option the job would write to the data that it only verifies.
    if let Some(job) = jobs.iter().find(|job| job.verify.as_ref().is_some_and(|verify| verify.only))
    {
        bail!(
            "job '{}' has verify_only, but compare verifies nothing, and would overwrite the data that the job checks; leave the option out",
            job.name
        );
    }
    if jobs.iter().any(|job| job.verify.is_some()) {
        say("note: verify= is left out of comparisons");
    }
    Ok(jobs)
}
