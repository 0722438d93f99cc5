//! `reap run`: runs fio job files, and reports as fio does. Order: parse the jobs, open the
//! devices, fill what will be read, run the stages (separated by `stonewall`), print the results.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use completion::Mode;
use indicatif::{ProgressBar, ProgressStyle};
use reap::{Device, Nanos, Wakeups};
use serde_json::{Value, json};
use trace::histogram::{Linear, Log2};
use workload::fio::Parsed;
use workload::plan::{self, Plan, Thread};
use workload::report::{
    self, CompletionStats, JobResult, Report, ResourceUsage, log_files, write_log,
};
use workload::{Amount, Generator, Job};

use crate::PROGRAM;
use crate::args::{OutputFormat, RunArgs};
use crate::bench::{
    self, Counted, Filenames, Filled, JobProgress, PathMark, Ran, Rig, Setup, TargetDevice,
    ThreadControl,
};
use crate::disk_util::DiskUtil;
use crate::machine::{self, Machine, WakeUp};
use crate::output::{self, Output, OutputFile, STANDARD, say};
use crate::{calibrate, jobs, rows, stop};

/// Interval between updates of the progress line.
const REFRESH: Duration = Duration::from_millis(250);

/// Runs the job files. Returns a failure if a job failed.
///
/// # Errors
/// Bad input, or a device that cannot be used; no job has then been started.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut parsed = jobs::load(&args.files, args.jobs.as_deref())?;
    if !args.section.is_empty() {
        parsed.jobs.retain(|job| args.section.contains(&job.name));
        ensure!(
            !parsed.jobs.is_empty(),
            "--section {}: no job has that name",
            args.section.join(", ")
        );
    }
    if let Some(job) = parsed.jobs.iter().find(|job| args.readonly && job.pattern.modifies()) {
        bail!("job '{}' writes or trims, which --readonly forbids", job.name);
    }
    if args.parse_only {
        let threads: u64 = parsed.jobs.iter().map(|job| u64::from(job.numjobs)).sum();
        let counted =
            |n: u64, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
        let (jobs, threads) =
            (counted(parsed.jobs.len() as u64, "job"), counted(threads, "thread"));
        say(format_args!("{jobs} with {threads}; nothing was run"));
        return Ok(ExitCode::SUCCESS);
    }
    let filenames = Filenames::of(args.device.device.as_deref(), &parsed.jobs)?;
    // This comes before the plan, which identifies targets by their names.
    filenames.gather(&mut parsed.jobs);
    let machine = machine(&filenames)?;
    machine::fine_timers();
    // Everything up to `run_stages` may fail without having changed any data.
    let plan = plan(&parsed.jobs, &machine);
    let devices = filenames.devices(&parsed.jobs, &plan, args.device.allowed())?;
    let (mut mode, otherwise, notes) =
        choose_mode(args.completion, &parsed.jobs, filenames.is_kernel());
    notes.into_iter().for_each(|note| say(format_args!("note: {note}")));
    let stop = stop::on_signal()?;
    let setup = Setup {
        devices: &devices,
        mode: otherwise,
        spin: args.queue.poll,
        queues: args.queue.queues,
        histograms: args.histograms,
    };
    let read: Vec<PathBuf> = devices.iter().flat_map(TargetDevice::files).collect();
    // `--output` must not overwrite a job file or a device.
    output::apart(
        args.files.iter().chain(&args.costs).chain(&read).map(PathBuf::as_path),
        &[("--output", args.output.as_deref())],
    )?;
    check_logs(&parsed.jobs, &plan)?;
    if let Some(path) = &args.costs {
        let costs = calibrate::price_list(path)?;
        WakeUp::new(Some((&costs, path)), filenames.is_kernel()).apply();
    }
    let mut rig = Rig::open(&parsed.jobs, &plan, setup, &machine)?;
    // Only a mode that the jobs chose (hipri) is replaced. If the command line chose a mode that
    // the device does not support, `Rig::open` returns an error.
    if mode != otherwise
        && let Some(why) = rig.devices.iter().find_map(|device| device.unsupported_reason(mode))
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
    // A signal must also end requests that wait for a path or a dead controller, or the run would
    // not stop.
    let reach = stop::reach(&stop, &rig.devices)?;
    // Jobs that verify without writing need the data of an earlier run: filling would destroy it.
    let reads = |job: &Job| job.pattern.reads() && (job.verify.is_none() || job.pattern.writes());
    let readers: Vec<_> = plan
        .threads
        .iter()
        .zip(&generators)
        .filter(|(thread, _)| reads(&parsed.jobs[thread.job]))
        .collect();
    say_filled(&rig.fill(&readers, &stop)?, &stop);
    // Counters are read after filling, whose I/Os must not count.
    let mark = PathMark::new(&rig.devices);
    let disks = DiskUtil::now(&devices);
    let ended = run_stages(&parsed.jobs, &plan, &rig, generators, &machine, &stop)?;
    drop(reach);
    let paths = mark.since(&rig.devices, &plan.targets);
    let disks = disks.since();
    let used = devices_json(&devices, &rig.devices, &plan);
    drop(rig);
    let unix_ms = since_epoch().as_millis() as u64;
    let results = Report { paths, unix_ms, ..report_of(&parsed, &plan, &ended, mode) };
    let json = |mut json: Value| {
        // `devices` is not in fio's schema.
        json["devices"] = used;
        // As in fio, `disk_util` is absent without disks.
        if !disks.is_empty() {
            json["disk_util"] = disks.into();
        }
        serde_json::to_string_pretty(&json).map(|text| text + "\n")
    };
    let mut text = match args.output_format {
        OutputFormat::Normal => report::normal(&results),
        OutputFormat::Json => json(report::json(&results, false))?,
        OutputFormat::JsonPlus => json(report::json(&results, true))?,
    };
    if args.histograms {
        let drawn = histograms(&parsed.jobs, &plan, &ended);
        match args.output_format {
            OutputFormat::Normal => text += &drawn,
            OutputFormat::Json | OutputFormat::JsonPlus => say(drawn.trim_end()),
        }
    }
    // All outputs are tried before the first error is returned, so that results are not lost.
    let written = output::all([output.write(&text), write_logs(&parsed.jobs, &plan, &ended)]);
    let failed = failures(
        &parsed.jobs,
        &plan,
        &ended,
        &devices.first().map_or(String::new(), |named| named.uri.clone()),
    );
    // Errors follow the results, so that they are the last lines on a terminal.
    failed.iter().for_each(|line| say(format_args!("error: {line}")));
    if stop.load(Relaxed) {
        say("note: stopped by a signal; the results cover the time until then");
    }
    written?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line per device that says what it is, above all whether `filename=` is a path or a name, which
/// decides whose data are overwritten.
pub fn device_lines(named: &[TargetDevice], devices: &[Device]) -> String {
    let line = |(named, device): (&TargetDevice, &Device)| {
        let notes: String = device.notes().iter().map(|note| format!("; {note}")).collect();
        format!("Device: {}{notes}\n", named.words)
    };
    named.iter().zip(devices).map(line).collect()
}

/// The devices as JSON: `filename`, `uri`, `link` (`kernel` or `embedded`), `notes`.
pub fn devices_json(named: &[TargetDevice], devices: &[Device], plan: &Plan) -> Value {
    let one = |((named, device), name): ((&TargetDevice, &Device), &Option<String>)| {
        let link = if device.embedded().is_some() { "embedded" } else { "kernel" };
        json!({ "filename": name, "uri": named.uri, "link": link, "notes": device.notes() })
    };
    named.iter().zip(devices).zip(&plan.targets).map(one).collect()
}

/// The CPUs of this machine. An embedded device needs one for its thread.
pub fn machine(filenames: &Filenames) -> Result<Machine> {
    Ok(if filenames.is_embedded() { Machine::here() } else { Machine::without_device() }?)
}

/// The plan of `jobs` on this machine. Prints its warnings.
pub fn plan(jobs: &[Job], machine: &Machine) -> Plan {
    let available: Vec<u32> = machine.job_cpus.iter().map(|&cpu| cpu as u32).collect();
    let plan = plan::plan(jobs, &available);
    for warning in &plan.warnings {
        let device = machine
            .device
            .map_or(String::new(), |cpu| format!(" (CPU {cpu} is the embedded device's)"));
        say(format_args!("warning: {warning}{device}"));
    }
    plan
}

/// A generator for each thread. All are created before any thread starts, so that a job that does
/// not fit its devices is an error before any I/O. Prints a note for jobs with a larger `size` than
/// their device.
pub fn generators(
    jobs: &[Job],
    plan: &Plan,
    rig: &Rig<'_>,
    entropy: u64,
) -> Result<Vec<Generator>> {
    let generator = |thread: &plan::Thread| {
        let job = &jobs[thread.job];
        Ok(Generator::new(job, thread.id(entropy), &rig.targets(thread)?)?)
    };
    let generators: Vec<Generator> = plan.threads.iter().map(generator).collect::<Result<_>>()?;
    for (thread, generator) in
        plan.threads.iter().zip(&generators).filter(|(thread, _)| thread.subjob == 0)
    {
        let job = &jobs[thread.job];
        let Some(Amount::Bytes(wanted)) = job.size else { continue };
        let has: u64 = generator.regions().map(|region| region.end - region.start).sum();
        // A difference of less than a block is only rounding.
        if wanted.saturating_sub(has)
            >= job.block.read.min.max(job.block.write.min) * thread.targets.len() as u64
        {
            let (name, wanted, has) = (&job.name, rows::bytes(wanted), rows::bytes(has));
            say(format_args!(
                "note: job '{name}' has size={wanted}, but the device has only {has}; the job uses those"
            ));
        }
    }
    Ok(generators)
}

/// Prints a note if the device could not be filled.
pub fn say_filled(filled: &Filled, stop: &AtomicBool) {
    if filled.written < filled.wanted && !stop.load(Relaxed) {
        say(format_args!(
            "note: {} of {} were written before the jobs started; reads of the rest hit unwritten blocks, which is faster",
            rows::bytes(filled.written),
            rows::bytes(filled.wanted)
        ));
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The completion mode of a run: `given` by the command line, else chosen by the jobs' io_uring
/// options if the devices are the kernel's. Also the mode for devices that do not support it, and
/// notes about options without effect. `registerfiles` and `fixedbufs` are always on.
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
            (None, Some((other, _))) => format!("{other} is used, and a ring cannot have both"),
            (None, None) if jobs.iter().all(says) => {
                chosen = Some((mode, otherwise));
                continue;
            }
            (None, None) => format!(
                "not all jobs have it, and a run has one mode; use --completion {mode} for all jobs"
            ),
        };
        notes.push(format!("job '{}': {option} has no effect: {not_done}", job.name));
    }
    let usual = given.unwrap_or(Mode::ADAPTIVE);
    let (mode, otherwise) = chosen.unwrap_or((usual, usual));
    (mode, otherwise, notes)
}

/// The result of one thread.
struct Ended {
    /// The generator, which has the statistics.
    generator: Generator,
    /// Cost and counts.
    ran: Ran,
    /// From the start of the run until it ended.
    elapsed: Nanos,
    /// The numbers of threads and of CPUs, if there were more threads than CPUs.
    oversubscribed: Option<(usize, usize)>,
}

/// Runs all stages. Returns an [`Ended`] for each thread of the plan, in order. Once `stop` is set,
/// later stages issue no I/O.
fn run_stages(
    jobs: &[Job],
    plan: &Plan,
    rig: &Rig<'_>,
    generators: Vec<Generator>,
    machine: &Machine,
    stop: &AtomicBool,
) -> Result<Vec<Ended>> {
    let began = hw::now();
    let groups: Vec<AtomicBool> = (0..=plan.threads.iter().map(|t| t.group).max().unwrap_or(0))
        .map(|_| AtomicBool::new(false))
        .collect();
    let mut generators: Vec<Option<Generator>> = generators.into_iter().map(Some).collect();
    let mut ended: Vec<Option<Ended>> = generators.iter().map(|_| None).collect();
    // Keeps the device's thread polling, so that no stage measures its wake-up.
    let _measured: Vec<_> = if machine.device.is_some() {
        rig.devices.iter().filter_map(|d| Some(d.embedded()?.measure())).collect()
    } else {
        Vec::new()
    };
    for stage in 0..plan.stages {
        let of_stage = plan
            .threads
            .iter()
            .enumerate()
            .zip(&mut generators)
            .filter(|((_, thread), _)| thread.stage == stage);
        let threads: Vec<(usize, &Thread, Generator)> = of_stage
            .filter_map(|((index, thread), generator)| Some((index, thread, generator.take()?)))
            .collect();
        let cpus = machine
            .place(&threads.iter().map(|(_, thread, _)| thread.cpus.clone()).collect::<Vec<_>>());
        let oversubscribed = machine
            .oversubscribed(&cpus)
            .then(|| (cpus.len(), cpus.iter().collect::<BTreeSet<_>>().len()));
        let count = threads.len();
        let progress: Vec<JobProgress> = threads.iter().map(|_| JobProgress::default()).collect();
        let (ready, are_ready) = mpsc::channel();
        let (done, are_done) = mpsc::channel();
        // Locked until all threads are set up: they start together, or none does.
        let gate = Mutex::new(());
        let before = hw::thread_cpu();
        let mut outcomes = thread::scope(|scope| {
            let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
            for ((index, thread, mut generator), progress) in threads.into_iter().zip(&progress) {
                // No application work in a run: only `compare` saturates hosts on purpose.
                let worker = rig.worker(jobs, thread, Nanos::ZERO);
                // As in fio (`fio_set_affinity`) a thread without cpus_allowed is not pinned.
                let cpus = machine.allowed_by(&thread.cpus);
                let (exitall, group) = (jobs[thread.job].exitall, &groups[thread.group as usize]);
                // Sending fails only if the run has failed already, so errors are ignored below.
                let (ready, done, gate) = (ready.clone(), done.clone(), &gate);
                let body = move || {
                    machine::prepare_job_thread(&cpus);
                    let mut worker = match worker() {
                        Ok(worker) => worker,
                        Err(error) => {
                            _ = ready.send(Err(error));
                            return;
                        }
                    };
                    _ = ready.send(Ok(()));
                    drop(gate.lock());
                    let ran = worker
                        .run(&mut generator, &ThreadControl { stop: [stop, group], progress });
                    // `exitall` stops the threads of the group, not of the run.
                    if exitall {
                        group.store(true, Relaxed);
                    }
                    // Close the queues before the next stage opens its own.
                    drop(worker);
                    _ = done.send((index, generator, ran));
                };
                let spawned = thread::Builder::new()
                    .name(format!("reap-job-{}", thread.number))
                    .spawn_scoped(scope, body);
                spawned
                    .inspect_err(|_| stop.store(true, Relaxed))
                    .context("cannot start a job thread")?;
            }
            drop((ready, done));
            for _ in 0..count {
                let set_up: Result<()> =
                    are_ready.recv().map_err(|_| anyhow!("a job thread ended before it began"))?;
                set_up.inspect_err(|_| stop.store(true, Relaxed))?;
            }
            drop(closed);
            // Hidden if stderr is not a terminal.
            let bar = ProgressBar::new(1_000_000);
            // The template is a constant: it parses.
            if let Ok(style) = ProgressStyle::with_template(
                "{prefix}[{bar:24}] {percent:>3}%  {msg}  ETA {eta_precise}",
            ) {
                bar.set_style(style.progress_chars("=> "));
            }
            if plan.stages > 1 {
                bar.set_prefix(format!("stage {}/{} ", stage + 1, plan.stages));
            }
            let mut last = (Instant::now(), [0, 0]);
            let mut outcomes = Vec::with_capacity(count);
            while outcomes.len() < count {
                match are_done.recv_timeout(REFRESH) {
                    Ok((index, generator, ran)) => {
                        let ran: Result<Ran> = ran;
                        outcomes.push((
                            index,
                            generator,
                            ran.inspect_err(|_| stop.store(true, Relaxed))?,
                        ));
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        let sum = |of: fn(&JobProgress) -> &AtomicU64| {
                            progress.iter().map(|thread| of(thread).load(Relaxed)).sum::<u64>()
                        };
                        let now = (
                            Instant::now(),
                            [sum(|thread| &thread.ios), sum(|thread| &thread.bytes)],
                        );
                        let seconds = (now.0 - last.0).as_secs_f64().max(1e-3);
                        // Counts are reset when the ramp ends: the rate of that interval is shown
                        // as 0.
                        let [iops, rate] =
                            [0, 1].map(|at| now.1[at].saturating_sub(last.1[at]) as f64 / seconds);
                        last = now;
                        bar.set_message(format!("{:.1}k IOPS  {:.0} MB/s", iops / 1e3, rate / 1e6));
                        // The stage ends with its slowest thread.
                        bar.set_position(
                            progress
                                .iter()
                                .map(|thread| thread.millionths.load(Relaxed))
                                .min()
                                .unwrap_or(0),
                        );
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        return Err(anyhow!("a job thread ended without a result"));
                    }
                }
            }
            bar.finish_and_clear();
            Ok(outcomes)
        })?;
        // Only kernel devices have workers of the kernel in this process.
        if machine.external_device {
            bench::charge_kernel_workers(
                outcomes.iter_mut().map(|(_, _, ran)| &mut ran.counted),
                hw::thread_cpu() - before,
            );
        }
        for (index, generator, ran) in outcomes {
            ended[index] =
                Some(Ended { generator, ran, elapsed: hw::now() - began, oversubscribed });
        }
    }
    ended.into_iter().collect::<Option<Vec<_>>>().context("a thread of the plan was not run")
}

/// The report of a run.
fn report_of(parsed: &Parsed, plan: &Plan, ended: &[Ended], mode: Mode) -> Report {
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let mut entries: Vec<JobResult> = Vec::with_capacity(plan.reports);
    let mut counted = vec![Counted::default(); plan.reports];
    for (thread, end) in plan.threads.iter().zip(ended) {
        if thread.report == entries.len() {
            entries.push(JobResult {
                pid: std::process::id(),
                ..JobResult::new(&parsed.jobs[thread.job], thread)
            });
        }
        let Some(entry) = entries.get_mut(thread.report) else { continue };
        let hw::Usage { user, system, context_switches, major_faults, minor_faults, .. } =
            end.ran.usage;
        entry.add(
            &end.generator,
            ResourceUsage { user, system, context_switches, major_faults, minor_faults },
        );
        entry.elapsed = entry.elapsed.max(end.elapsed);
        counted[thread.report].merge(&end.ran.counted);
        if let Some((threads, cpus)) = end.oversubscribed.filter(|_| !entry.reap.oversubscribed) {
            entry.reap.oversubscribed = true;
            let on =
                format!("{threads} job thread{} on {cpus} CPU{}", plural(threads), plural(cpus));
            entry.lines.push((
                "oversubscribed".into(),
                format!("{on}: threads wait for a CPU, which increases latencies"),
            ));
        }
    }
    for (entry, counted) in entries.iter_mut().zip(&counted) {
        let told = !counted.messages_unknown;
        entry.reap = CompletionStats {
            mode: mode.to_string(),
            cpu_ns_per_io: counted.cpu_ns_per_io().unwrap_or(0.0),
            notify_ns_per_io: told.then(|| counted.per_io(counted.notify_ns).unwrap_or(0.0)),
            messages: told.then(|| counted.messages.round() as u64),
            wakeups: counted.queues.wakeups,
            completions_per_wakeup: counted.completions_per_wakeup().unwrap_or(0.0),
            empty_polls: counted.queues.empty_polls,
            sq_doorbells: counted.sq_doorbells.round() as u64,
            cq_doorbells: counted.cq_doorbells.round() as u64,
            system_calls_per_io: counted.system_calls.and_then(|calls| counted.per_io(calls)),
            decisions: counted
                .decisions
                .map(|decisions| decisions.named().into())
                .unwrap_or_default(),
            oversubscribed: entry.reap.oversubscribed,
        };
        if let Some(state) = counted.state {
            entry.lines.push(("adaptive".into(), state.to_string()));
        }
        if let Some(calls) = entry.reap.system_calls_per_io {
            entry.lines.push(("sys calls".into(), format!("{calls:.3} per I/O")));
        }
    }
    Report {
        program: PROGRAM.into(),
        global_options: parsed.globals.clone(),
        entries,
        ..Report::default()
    }
}

/// A line for each failed thread: the I/O, the target, and the device's error. `uri` is the device
/// of jobs without a filename.
fn failures(jobs: &[Job], plan: &Plan, ended: &[Ended], uri: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (thread, end) in plan.threads.iter().zip(ended) {
        let job = &jobs[thread.job].name;
        let on = |target: u16| match thread
            .targets
            .get(usize::from(target))
            .and_then(|&t| plan.targets.get(t))
        {
            Some(Some(name)) => format!(" on {name}"),
            _ => String::new(),
        };
        if let Some(failure) = end.generator.failure() {
            let said = end.ran.first_error.map_or(String::new(), |error| format!(" ({error})"));
            lines.push(format!(
                "job '{job}', thread {}{}: {failure}{said}",
                thread.number,
                on(failure.io.target)
            ));
        }
        let bad = end.generator.bad_blocks();
        // Wrong data always need a device's name, even if there is only one.
        let held_by = |target| {
            Some(on(target)).filter(|on| !on.is_empty()).unwrap_or_else(|| format!(" on {uri}"))
        };
        lines.extend(bad.iter().map(|bad| {
            format!("job '{job}', thread {}{}: {bad}", thread.number, held_by(bad.target))
        }));
        let more = end.generator.bad_count() - bad.len() as u64;
        if more > 0 {
            lines.push(format!("job '{job}', thread {}: {more} more bad blocks", thread.number));
        }
    }
    lines
}

/// `--histograms`: completions per wake-up and delays, in the format of `reap trace`.
fn histograms(jobs: &[Job], plan: &Plan, ended: &[Ended]) -> String {
    let mut entries: Vec<(&str, Wakeups)> = Vec::new();
    for (thread, end) in plan.threads.iter().zip(ended) {
        if thread.report == entries.len() {
            entries.push((&jobs[thread.job].name, Wakeups::default()));
        }
        if let Some((_, wakeups)) = entries.get_mut(thread.report) {
            wakeups.merge(&end.ran.wakeups);
        }
    }
    let draw = |(name, Wakeups { completions, delay, .. }): &(&str, Wakeups)| {
        let per_wakeup = Linear::from_parts(&completions.counts, completions.sum, completions.max);
        let first_look = Log2::from_parts(&delay.counts, delay.sum, delay.max);
        // Polling modes have no notifications.
        if first_look.is_empty() {
            return format!("\n{name}: no notification woke the thread\n");
        }
        format!(
            "\n{name}: completions per wake-up by a notification ({} wake-ups, mean {:.1})\n{}\n{name}: from the notification to the first \
             poll\n{}",
            per_wakeup.total(),
            per_wakeup.mean().unwrap_or(0.0),
            per_wakeup.draw("completions"),
            first_look.draw("usecs")
        )
    };
    entries.iter().map(draw).collect()
}

/// Checks before the run that the log files can be written. Does not leave new files behind.
fn check_logs(jobs: &[Job], plan: &Plan) -> Result<()> {
    for thread in &plan.threads {
        let job = &jobs[thread.job];
        for file in log_files(job, thread) {
            let path = Path::new(&file.name);
            // Opening a pipe here would end its reader when it is closed. `write_iolog=-` is a file
            // named `-`, as in fio.
            if path == Path::new(STANDARD) || path.exists() && !path.is_file() && !path.is_dir() {
                continue;
            }
            OutputFile::open(path).with_context(|| cannot(&file.name, job))?;
        }
    }
    Ok(())
}

fn cannot(name: &str, job: &Job) -> String {
    format!("cannot write the log {name} of job '{}'", job.name)
}

/// Writes the log files of all threads.
fn write_logs(jobs: &[Job], plan: &Plan, ended: &[Ended]) -> Result<()> {
    for (thread, end) in plan.threads.iter().zip(ended) {
        let (job, Some(logs)) = (&jobs[thread.job], end.generator.logs()) else { continue };
        let name =
            |&target: &usize| plan.targets[target].clone().unwrap_or_else(|| "device".to_owned());
        let targets: Vec<String> = thread.targets.iter().map(name).collect();
        for file in log_files(job, thread) {
            let mut out =
                BufWriter::new(File::create(&file.name).with_context(|| cannot(&file.name, job))?);
            write_log(file.kind, job, &targets, logs, &mut out)
                .and_then(|()| out.flush())
                .with_context(|| cannot(&file.name, job))?;
        }
        if logs.dropped > 0 {
            say(format_args!(
                "note: job '{}': {} log samples were dropped; use log_avg_msec=1000 for fewer samples",
                job.name, logs.dropped
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
