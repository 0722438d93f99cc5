//! From what the threads came to: the entries of the report, the histograms of `--histograms`, and the files that jobs ask for
//! (`write_bw_log` and its kin, `write_iolog`).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use completion::Mode;
use reap::Wakeups;
use trace::histogram::{Linear, Log2};
use workload::Job;
use workload::fio::Parsed;
use workload::plan::Plan;
use workload::report::{Entry, Figures, Report, Usage, log_files, write_log};

use super::stages::Ended;
use crate::PROGRAM;
use crate::bench::Counted;
use crate::output::{Kept, STANDARD, say};

/// The report of a run whose threads ended as `ended` says.
pub fn report(parsed: &Parsed, plan: &Plan, ended: &[Ended], mode: Mode) -> Report {
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let mut entries: Vec<Entry> = Vec::with_capacity(plan.reports);
    let mut counted = vec![Counted::default(); plan.reports];
    for (thread, end) in plan.threads.iter().zip(ended) {
        if thread.report == entries.len() {
            entries.push(Entry { pid: std::process::id(), ..Entry::new(&parsed.jobs[thread.job], thread) });
        }
        let Some(entry) = entries.get_mut(thread.report) else { continue };
        let hw::Usage { user, system, context_switches, major_faults, minor_faults, .. } = end.ran.usage;
        entry.add(&end.generator, Usage { user, system, context_switches, major_faults, minor_faults });
        entry.elapsed = entry.elapsed.max(end.elapsed);
        counted[thread.report].merge(&end.ran.counted);
        if let Some((threads, cpus)) = end.oversubscribed.filter(|_| !entry.reap.oversubscribed) {
            entry.reap.oversubscribed = true;
            let on = format!("{threads} job thread{} on {cpus} CPU{}", plural(threads), plural(cpus));
            entry.lines.push(("oversubscribed".into(), format!("{on}: they wait for each other, and latencies show that")));
        }
    }
    for (entry, counted) in entries.iter_mut().zip(&counted) {
        let told = !counted.untold;
        entry.reap = Figures {
            mode: mode.to_string(),
            cpu_ns_per_io: counted.cpu_ns_per_io().unwrap_or(0.0),
            notify_ns_per_io: told.then(|| counted.per_io(counted.notify_ns).unwrap_or(0.0)),
            messages: told.then(|| counted.messages.round() as u64),
            wakeups: counted.host.wakeups,
            completions_per_wakeup: counted.completions_per_wakeup().unwrap_or(0.0),
            empty_looks: counted.host.empty_looks,
            sq_doorbells: counted.sq_doorbells.round() as u64,
            cq_doorbells: counted.cq_doorbells.round() as u64,
            system_calls_per_io: counted.system_calls.and_then(|calls| counted.per_io(calls)),
            decisions: counted.decisions.map(|decisions| decisions.named().into()).unwrap_or_default(),
            oversubscribed: entry.reap.oversubscribed,
        };
        if let Some(calls) = entry.reap.system_calls_per_io {
            entry.lines.push(("sys calls".into(), format!("{calls:.3} per I/O")));
        }
    }
    Report { program: PROGRAM.into(), global_options: parsed.global_options.clone(), entries, ..Report::default() }
}

/// A line for each thread that failed: what, where, and what the device said. `uri` is the device of jobs without a filename.
pub fn failures(jobs: &[Job], plan: &Plan, ended: &[Ended], uri: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (thread, end) in plan.threads.iter().zip(ended) {
        let job = &jobs[thread.job].name;
        let on = |target: u16| match thread.targets.get(usize::from(target)).and_then(|&t| plan.targets.get(t)) {
            Some(Some(name)) => format!(" on {name}"),
            _ => String::new(),
        };
        if let Some(failure) = end.generator.failure() {
            let said = end.ran.first_error.map_or(String::new(), |error| format!(" ({error})"));
            lines.push(format!("job '{job}', thread {}{}: {failure}{said}", thread.number, on(failure.target)));
        }
        let bad = end.generator.bad_blocks();
        // Data that are wrong are somewhere, even if there is only one device.
        let held_by = |target| Some(on(target)).filter(|on| !on.is_empty()).unwrap_or_else(|| format!(" on {uri}"));
        lines.extend(bad.iter().map(|bad| format!("job '{job}', thread {}{}: {bad}", thread.number, held_by(bad.target))));
        let more = end.generator.bad_count() - bad.len() as u64;
        if more > 0 {
            lines.push(format!("job '{job}', thread {}: {more} more bad blocks", thread.number));
        }
    }
    lines
}

/// `--histograms`: what wake-ups brought, drawn as `reap trace` draws the kernel's queues; two for each entry of the report.
pub fn histograms(jobs: &[Job], plan: &Plan, ended: &[Ended]) -> String {
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

/// Refuses files that cannot be written, before anything runs whose samples could then not be kept. Nothing is left of files that are new.
pub fn check_logs(jobs: &[Job], plan: &Plan) -> Result<()> {
    for thread in &plan.threads {
        let job = &jobs[thread.job];
        for file in log_files(job, thread) {
            let path = Path::new(&file.name);
            // A reader of a pipe takes the first close for the end. `write_iolog=-` is a file of that name, as in fio.
            if path == Path::new(STANDARD) || path.exists() && !path.is_file() && !path.is_dir() {
                continue;
            }
            Kept::open(path).with_context(|| cannot(&file.name, job))?;
        }
    }
    Ok(())
}

fn cannot(name: &str, job: &Job) -> String {
    format!("cannot write the log {name} of job '{}'", job.name)
}

/// Writes the files of all threads, in the working directory or where their names say.
pub fn write_logs(jobs: &[Job], plan: &Plan, ended: &[Ended]) -> Result<()> {
    for (thread, end) in plan.threads.iter().zip(ended) {
        let (job, Some(trail)) = (&jobs[thread.job], end.generator.trail()) else { continue };
        let name = |&target: &usize| plan.targets[target].clone().unwrap_or_else(|| "device".to_owned());
        let targets: Vec<String> = thread.targets.iter().map(name).collect();
        for file in log_files(job, thread) {
            let mut out = BufWriter::new(File::create(&file.name).with_context(|| cannot(&file.name, job))?);
            write_log(file.kind, job, &targets, trail, &mut out).and_then(|()| out.flush()).with_context(|| cannot(&file.name, job))?;
        }
        if trail.lost > 0 {
            say(format_args!("note: job '{}': {} samples found no room in its logs; log_avg_msec=1000 needs less", job.name, trail.lost));
        }
    }
    Ok(())
}
