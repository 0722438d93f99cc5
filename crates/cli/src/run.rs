//! `reap run`: fio job files, run and reported as fio does.

mod engines;
mod results;
mod showcmd;
mod stages;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use completion::Mode;
use reap::Device;
use serde_json::{Value, json};
use workload::fio::Parsed;
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
///
/// # Errors
/// Bad input, or a device that cannot be used; nothing was run.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut parsed = jobs::load(&args.files, args.jobs.as_deref())?;
    if args.showcmd || args.parse_only {
        return show(args, &parsed);
    }
    let filenames = Filenames::of(args.device.device.as_deref(), &parsed.jobs)?;
    filenames.gather(&mut parsed.jobs);
    let machine = machine(&filenames)?;
    machine::fine_timers();
    let plan = plan(&parsed.jobs, &machine, args.queue.queues);
    let devices = filenames.devices(&parsed.jobs, &plan, args.device.allowed())?;
    let choice = engines::choose(args.completion, &parsed.jobs, filenames.is_kernel());
    args.queue.price_note(choice.mode == Mode::ADAPTIVE).into_iter().for_each(say);
    let stop = stop::on_signal()?;
    let mode = choice.otherwise;
    let setup = Setup {
        devices: &devices,
        mode,
        price: args.queue.price(),
        spin: args.queue.poll,
        queues: args.queue.queues,
        histograms: args.histograms,
    };
    let read: Vec<PathBuf> = devices.iter().flat_map(TargetDevice::files).collect();
    output::apart(args.files.iter().chain(&read).map(PathBuf::as_path), &[("--output", args.output.as_deref())])?;
    results::check_logs(&parsed.jobs, &plan)?;
    let mut rig = Rig::open(&parsed.jobs, &plan, setup, &machine)?;
    let mode = choice.on(&rig.devices);
    rig.setup.mode = mode;
    let entropy = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
    let generators = generators(&parsed.jobs, &plan, &rig, entropy)?;
    let mut output = Output::open(args.output.as_deref())?;
    if args.output_format == OutputFormat::Normal {
        output.write(&report::opening(&parsed.jobs, &plan, PROGRAM, "reap"))?;
        output.write(&device_lines(&devices, &rig.devices))?;
    }
    if let Some(note) = rig.devices.first().and_then(|device| device.mode_note(mode)) {
        say(format_args!("note: {note}"));
    }
    let reach = stop::reach(&stop, &rig.devices)?;
    say_filled(&fill(&parsed.jobs, &plan, &rig, &generators, &stop)?, &stop);
    let mark = PathMark::new(&rig.devices);
    let ended = stages::run(&parsed.jobs, &plan, &rig, generators, &machine, &stop)?;
    drop(reach);
    let paths = mark.since(&rig.devices, &plan.targets);
    let used = devices_json(&devices, &rig.devices, &plan);
    drop(rig);
    let results = results::report(&parsed, &plan, &ended, mode, unix_ms());
    let results = Report { paths, ..results };
    let mut text = lay_out(args.output_format, &results, used)?;
    if args.histograms {
        let drawn = results::histograms(&parsed.jobs, &plan, &ended);
        match args.output_format {
            OutputFormat::Normal => text += &drawn,
            OutputFormat::Json | OutputFormat::JsonPlus => say(drawn.trim_end()),
        }
    }
    let written = output::all([output.write(&text).and_then(|()| output.finish()), results::write_logs(&parsed.jobs, &plan, &ended)]);
    let failed = results::failures(&parsed.jobs, &plan, &ended, &devices.first().map_or(String::new(), |named| named.uri.clone()));
    failed.iter().for_each(|line| say(format_args!("error: {line}")));
    if stop.load(Relaxed) {
        say("note: stopped by a signal; the results are of the time until then");
    }
    written?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is asked for instead of a run: the command line of the jobs, or how many they are.
fn show(args: &RunArgs, parsed: &Parsed) -> Result<ExitCode> {
    if args.showcmd {
        output::print(&showcmd::line(parsed))?;
    }
    if args.parse_only {
        let threads: u64 = parsed.jobs.iter().map(|job| u64::from(job.numjobs)).sum();
        let counted = |n: u64, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
        let (jobs, threads) = (counted(parsed.jobs.len() as u64, "job"), counted(threads, "thread"));
        say(format_args!("{jobs} with {threads}; nothing was run"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The results in that layout. `used`: the devices, of which fio's schema knows nothing.
fn lay_out(format: OutputFormat, results: &Report, used: Value) -> Result<String> {
    let mut json = match format {
        OutputFormat::Normal => return Ok(report::normal(results)),
        OutputFormat::Json => report::json(results, false),
        OutputFormat::JsonPlus => report::json(results, true),
    };
    json["devices"] = used;
    Ok(serde_json::to_string_pretty(&json)? + "\n")
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
///
/// # Errors
/// What the system says.
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
///
/// # Errors
/// Such a job.
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

/// Fills what the jobs read. Jobs that verify read only what was written for them.
fn fill(jobs: &[Job], plan: &Plan, rig: &Rig<'_>, generators: &[Generator], stop: &AtomicBool) -> Result<Filled> {
    let reads = |job: &Job| job.pattern.reads() && (job.verify.is_none() || job.pattern.writes());
    let readers: Vec<_> = plan.threads.iter().zip(generators).filter(|(thread, _)| reads(&jobs[thread.job])).collect();
    rig.fill(&readers, stop)
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

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}
