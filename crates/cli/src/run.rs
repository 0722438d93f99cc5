//! `reap run`: fio job files, run and reported as fio does.

mod results;
mod stages;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use completion::Mode;
use reap::Device;
use serde_json::{Value, json};
use workload::plan::{self, Plan};
use workload::report::Report;
use workload::{Amount, Generator, Job, report};

use crate::PROGRAM;
use crate::args::{OutputFormat, RunArgs};
use crate::bench::{Filenames, Filled, PathMark, Rig, Setup, TargetDevice};
use crate::machine::{self, Machine};
use crate::output::{self, Output, say};
use crate::{jobs, rows, stop};

/// Runs the job files. The exit code is a failure if a job failed.
/// After bad input, or with a device that cannot be used, nothing is run.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut parsed = jobs::load(&args.files, args.jobs.as_deref())?;
    if !args.section.is_empty() {
        parsed.jobs.retain(|job| args.section.contains(&job.name));
        ensure!(!parsed.jobs.is_empty(), "--section {}: there is no job of that name", args.section.join(", "));
    }
    if let Some(job) = parsed.jobs.iter().find(|job| args.readonly && job.pattern.changes()) {
        bail!("job '{}' writes or trims, and --readonly forbids it", job.name);
    }
    if args.parse_only {
        let threads: u64 = parsed.jobs.iter().map(|job| u64::from(job.numjobs)).sum();
        let counted = |n: u64, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
        let (jobs, threads) = (counted(parsed.jobs.len() as u64, "job"), counted(threads, "thread"));
        say(format_args!("{jobs} with {threads}; nothing was run"));
        return Ok(ExitCode::SUCCESS);
    }
    let filenames = Filenames::of(args.device.device.as_deref(), &parsed.jobs)?;
    filenames.gather(&mut parsed.jobs);
    let machine = machine(&filenames)?;
    machine::fine_timers();
    let plan = plan(&parsed.jobs, &machine, args.queue.queues);
    let devices = filenames.devices(&parsed.jobs, &plan, args.device.allowed())?;
    let (mut mode, otherwise, notes) = choose_mode(args.completion, &parsed.jobs, filenames.is_kernel());
    notes.into_iter().for_each(|note| say(format_args!("note: {note}")));
    args.queue.price_note(mode == Mode::ADAPTIVE).into_iter().for_each(say);
    let stop = stop::on_signal()?;
    let setup = Setup {
        devices: &devices,
        mode: otherwise,
        price: args.queue.price(),
        spin: args.queue.poll,
        queues: args.queue.queues,
        histograms: args.histograms,
    };
    let read: Vec<PathBuf> = devices.iter().flat_map(TargetDevice::files).collect();
    output::apart(args.files.iter().chain(&read).map(PathBuf::as_path), &[("--output", args.output.as_deref())])?;
    results::check_logs(&parsed.jobs, &plan)?;
    let mut rig = Rig::open(&parsed.jobs, &plan, setup, &machine)?;
    // A device that lacks the mode of the command line is an error when it is opened.
    if mode != otherwise
        && let Some(why) = rig.devices.iter().find_map(|device| device.lacks(mode))
    {
        say(format_args!("note: {why}: the jobs run in {otherwise}"));
        mode = otherwise;
    }
    rig.setup.mode = mode;
    let generators = generators(&parsed.jobs, &plan, &rig, since_epoch().as_nanos() as u64)?;
    let mut output = Output::open(args.output.as_deref())?;
    if args.output_format == OutputFormat::Normal {
        output.write(&report::opening(&parsed.jobs, &plan, PROGRAM, "reap"))?;
        output.write(&device_lines(&devices, &rig.devices))?;
    }
    if let Some(note) = rig.devices.first().and_then(|device| device.mode_note(mode)) {
        say(format_args!("note: {note}"));
    }
    let reach = stop::reach(&stop, &rig.devices)?;
    // Jobs that verify read only what was written for them.
    let reads = |job: &Job| job.pattern.reads() && (job.verify.is_none() || job.pattern.writes());
    let readers: Vec<_> = plan.threads.iter().zip(&generators).filter(|(thread, _)| reads(&parsed.jobs[thread.job])).collect();
    say_filled(&rig.fill(&readers, &stop)?, &stop);
    let mark = PathMark::new(&rig.devices);
    let ended = stages::run(&parsed.jobs, &plan, &rig, generators, &machine, &stop)?;
    drop(reach);
    let paths = mark.since(&rig.devices, &plan.targets);
    let used = devices_json(&devices, &rig.devices, &plan);
    drop(rig);
    let unix_ms = since_epoch().as_millis() as u64;
    let results = Report { paths, unix_ms, ..results::report(&parsed, &plan, &ended, mode) };
    let json = |mut json: Value| {
        // fio's schema knows nothing of devices.
        json["devices"] = used;
        serde_json::to_string_pretty(&json).map(|text| text + "\n")
    };
    let mut text = match args.output_format {
        OutputFormat::Normal => report::normal(&results),
        OutputFormat::Json => json(report::json(&results))?,
        OutputFormat::JsonPlus => json(report::json_plus(&results))?,
    };
    if args.histograms {
        let drawn = results::histograms(&parsed.jobs, &plan, &ended);
        match args.output_format {
            OutputFormat::Normal => text += &drawn,
            OutputFormat::Json | OutputFormat::JsonPlus => say(drawn.trim_end()),
        }
    }
    let written = output::all([output.write(&text), results::write_logs(&parsed.jobs, &plan, &ended)]);
    let failed = results::failures(&parsed.jobs, &plan, &ended, &devices.first().map_or(String::new(), |named| named.uri.clone()));
    failed.iter().for_each(|line| say(format_args!("error: {line}")));
    if stop.load(Relaxed) {
        say("note: stopped by a signal; the results are of the time until then");
    }
    written?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line for each device: what it is, and what was found otherwise than one would expect. Whether a name is a path must be plain to see.
pub fn device_lines(named: &[TargetDevice], devices: &[Device]) -> String {
    let line = |(named, device): (&TargetDevice, &Device)| {
        let notes: String = device.notes().iter().map(|note| format!("; {note}")).collect();
        format!("Device: {}{notes}\n", named.words)
    };
    named.iter().zip(devices).map(line).collect()
}

/// The same for scripts: `filename`, `uri`, `link` (`kernel` or `embedded`), `notes`.
pub fn devices_json(named: &[TargetDevice], devices: &[Device], plan: &Plan) -> Value {
    let one = |((named, device), name): ((&TargetDevice, &Device), &Option<String>)| {
        let link = if device.embedded().is_some() { "embedded" } else { "kernel" };
        json!({ "filename": name, "uri": named.uri, "link": link, "notes": device.notes() })
    };
    named.iter().zip(devices).zip(&plan.targets).map(one).collect()
}

/// This machine, as the devices leave it to the jobs.
pub fn machine(filenames: &Filenames) -> Result<Machine> {
    Ok(if filenames.is_embedded() { Machine::here() } else { Machine::without_device() }?)
}

/// The plan of `jobs` on this machine. What is to be said about it goes to stderr.
pub fn plan(jobs: &[Job], machine: &Machine, queues: Option<u16>) -> Plan {
    let available: Vec<u32> = machine.host.iter().map(|&cpu| cpu as u32).collect();
    let plan = plan::plan(jobs, &available);
    for warning in &plan.warnings {
        let device = machine.device.map_or(String::new(), |cpu| format!(" (CPU {cpu} is the embedded device's)"));
        say(format_args!("warning: {warning}{device}"));
    }
    if let Some(queues) = queues.filter(|&queues| usize::from(queues) > plan.threads.len()) {
        let threads = plan.threads.len();
        say(format_args!(
            "note: --queues {queues} is as good as {threads}: a hardware queue for each job thread is the most that is opened"
        ));
    }
    plan
}

/// A generator for each thread. All of them are made before anything runs, so that a job that does not fit its devices
/// is an error and not a half of a run. One that fits because it makes do with less than it asks for is told of.
pub fn generators(jobs: &[Job], plan: &Plan, rig: &Rig<'_>, entropy: u64) -> Result<Vec<Generator>> {
    let generator = |thread: &plan::Thread| {
        let job = &jobs[thread.job];
        Ok(Generator::new(job, thread.seat(entropy), &rig.targets(thread)?)?)
    };
    let generators: Vec<Generator> = plan.threads.iter().map(generator).collect::<Result<_>>()?;
    for (thread, generator) in plan.threads.iter().zip(&generators).filter(|(thread, _)| thread.subjob == 0) {
        let job = &jobs[thread.job];
        let Some(Amount::Bytes(wanted)) = job.size else { continue };
        let has: u64 = generator.regions().map(|region| region.len).sum();
        // What no whole block can be made of is nobody's loss.
        if wanted.saturating_sub(has) >= job.block.read.min.max(job.block.write.min) * thread.targets.len() as u64 {
            let (name, wanted, has) = (&job.name, rows::bytes(wanted), rows::bytes(has));
            say(format_args!("note: job '{name}' asks for size={wanted}, and does its I/O within the {has} that there are"));
        }
    }
    Ok(generators)
}

/// Says so where not all of what is read could be written before.
pub fn say_filled(filled: &Filled, stop: &AtomicBool) {
    if filled.written < filled.wanted && !stop.load(Relaxed) {
        say(format_args!(
            "note: {} of {} were written before the jobs began; reads of the rest find blocks that were never written, which is faster",
            rows::bytes(filled.written),
            rows::bytes(filled.wanted)
        ));
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The mode of a run: as the command line says (`given`), else as the jobs do by options of fio's engine io_uring, where the devices are the
/// kernel's as well. Second, the mode that devices are opened in, which a run has in its place on a device that lacks it; and notes of what
/// is not done as a job says. Files and buffers are always registered: `registerfiles` and `fixedbufs` ask for nothing more.
fn choose_mode(given: Option<Mode>, jobs: &[Job], kernel: bool) -> (Mode, Mode, Vec<String>) {
    type Says = fn(&Job) -> bool;
    let options: [(&str, Says, Mode, Mode); 2] = [
        ("sqthread_poll", |job| job.engine.sqthread_poll, Mode::KERNEL_SQPOLL, Mode::ADAPTIVE),
        ("hipri", |job| job.engine.hipri, Mode::KERNEL_IOPOLL, Mode::POLL),
    ];
    let (mut chosen, mut notes) = (None, Vec::new());
    for (option, says, mode, otherwise) in options.into_iter().filter(|_| kernel) {
        let Some(job) = jobs.iter().find(|job| says(job)) else { continue };
        let not_done = match (given, chosen) {
            (Some(given), _) if given == mode || given == otherwise => continue,
            (Some(given), _) => format!("--completion {given} decides"),
            (None, Some((other, _))) => format!("{other} is, and no ring is made for both"),
            (None, None) if jobs.iter().all(says) => {
                chosen = Some((mode, otherwise));
                continue;
            }
            (None, None) => format!("not all jobs say it, and the run has one mode; --completion {mode} is that of all"),
        };
        notes.push(format!("job '{}': {option} is not done: {not_done}", job.name));
    }
    let usual = given.unwrap_or(Mode::ADAPTIVE);
    let (mode, otherwise) = chosen.unwrap_or((usual, usual));
    (mode, otherwise, notes)
}

#[cfg(test)]
mod tests;
