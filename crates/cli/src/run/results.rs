//! From what the threads came to, to the entries of the report.

use completion::Mode;
use workload::Job;
use workload::fio::Parsed;
use workload::plan::Plan;
use workload::report::{Entry, Figures, Report, Usage};

use super::ended::Ended;
use crate::bench::Counted;
use crate::program::PROGRAM;

/// The report of a run whose threads ended as `ended` says.
pub fn report(parsed: &Parsed, plan: &Plan, ended: &[Ended], mode: Mode, unix_ms: u64) -> Report {
    let mut entries: Vec<Entry> = Vec::with_capacity(plan.reports);
    let mut counted = vec![Counted::default(); plan.reports];
    for (thread, end) in plan.threads.iter().zip(ended) {
        if thread.report == entries.len() {
            entries.push(Entry { pid: std::process::id(), ..Entry::new(&parsed.jobs[thread.job], thread) });
        }
        let Some(entry) = entries.get_mut(thread.report) else { continue };
        entry.add(&end.generator, usage(&end.ran.usage));
        entry.elapsed = entry.elapsed.max(end.elapsed);
        counted[thread.report].merge(&end.ran.counted);
        if let Some((threads, cpus)) = end.oversubscribed.filter(|_| !entry.reap.oversubscribed) {
            entry.reap.oversubscribed = true;
            entry.lines.push(("oversubscribed".into(), crowd(threads, cpus)));
        }
    }
    for (entry, counted) in entries.iter_mut().zip(&counted) {
        entry.reap = figures(mode, counted, entry.reap.oversubscribed);
        if let Some(calls) = entry.reap.system_calls_per_io {
            entry.lines.push(("sys calls".into(), format!("{calls:.3} per I/O")));
        }
    }
    Report { program: PROGRAM.into(), unix_ms, global_options: parsed.global_options.clone(), entries, ..Report::default() }
}

fn crowd(threads: usize, cpus: usize) -> String {
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    format!("{threads} job thread{} on {cpus} CPU{}: they wait for each other, and latencies show that", plural(threads), plural(cpus))
}

fn figures(mode: Mode, counted: &Counted, oversubscribed: bool) -> Figures {
    let told = !counted.untold;
    Figures {
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
        oversubscribed,
    }
}

fn usage(usage: &hw::Usage) -> Usage {
    Usage {
        user: usage.user,
        system: usage.system,
        context_switches: usage.context_switches,
        major_faults: usage.major_faults,
        minor_faults: usage.minor_faults,
    }
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
