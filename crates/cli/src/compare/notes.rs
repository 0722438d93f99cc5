//! The words around the table: what was done, what is noise, how to read the figures.

use workload::{BlockSizes, Job, Rate};

use super::plan::BLOCK;
use super::results::{Outcome, again};
use super::statistics::FEWEST;
use crate::args::CompareArgs;
use crate::rows::table::{digits, percent};
use crate::rows::{self, CPU, Estimate, IOPS, Results, Scene};

/// What columns mean, by their names.
pub const LEGEND: &[(&str, &str)] = &[
    ("÷ first", "÷ first: ratio to the first mode, paired by round."),
    ("CPU", "CPU: of this process's threads, load generator included."),
    ("stolen", "stolen: what an idle-priority loop loses, to interrupts and idle exits as well."),
    ("notify", "notify: the device's time for sending messages."),
    ("msgs", "msgs: messages (interrupts) that the device sent."),
    ("sys per IO", "sys per IO: system calls."),
    ("IO per wake", "IO per wake: completions for each wake-up."),
];

/// The title of a comparison, of `threads` (the job of each) on `device`.
pub fn title(args: &CompareArgs, threads: &[&Job], device: &str, outcomes: &[Outcome]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for job in threads {
        let kind = kind(job);
        match kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, threads)) => *threads += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let jobs = kinds.iter().map(|(kind, threads)| if *threads > 1 { format!("{kind}, {threads} threads") } else { kind.clone() });
    let each = |of: fn(&Scene) -> String| {
        let mut all: Vec<String> = outcomes.iter().map(|outcome| of(&outcome.scene)).collect();
        // Depth after depth, and at each one the same loads.
        let mut known = std::collections::BTreeSet::new();
        all.retain(|one| known.insert(one.clone()));
        all.join(", ")
    };
    let mut title = format!("{}, queue depth {} on {device}", jobs.collect::<Vec<_>>().join("; "), each(|scene| scene.qd.to_string()));
    if args.host_work > 0 {
        title += &format!(", {} ns of application work per I/O", args.host_work);
    }
    if !args.loads.is_empty() {
        title += &format!(", load {} %", each(|scene| percent(scene.load_pct)));
    }
    title
}

/// `randrw 4 KiB`
fn kind(job: &Job) -> String {
    let words = |size: &BlockSizes| match size.is_fixed() {
        true => rows::bytes(size.min),
        false => format!("{}–{}", rows::bytes(size.min), rows::bytes(size.max)),
    };
    let (read, write) = (words(&job.block.read), words(&job.block.write));
    let size = match (job.pattern.reads(), job.pattern.writes()) {
        (true, true) if read != write => format!("{read} and {write}"),
        (true, _) => read,
        _ => write,
    };
    format!("{} {size}", job.pattern.name())
}

/// The first line of results that are inconclusive, with the reasons of the first such scene; `None`: they are conclusive.
pub fn banner(outcomes: &[Outcome]) -> Option<String> {
    let bad: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.doubts.is_empty()).collect();
    let scenes = if bad.len() == outcomes.len() { String::new() } else { format!(" in {} of {} scenes", bad.len(), outcomes.len()) };
    Some(format!("Inconclusive{scenes}: {}.", bad.first()?.doubts.join("; ")))
}

/// The lines below the table. `offered`: I/Os per second that the jobs mean to issue, where they have a rate.
pub fn notes(outcomes: &[Outcome], results: &Results, machine: &str, oversubscribed: bool, offered: Option<f64>) -> Vec<String> {
    let mut lines = vec![format!("Machine: {machine}.")];
    if oversubscribed {
        lines.push("Oversubscribed: there are more threads than CPUs, and they wait for each other.".to_owned());
    }
    let rounds: usize = outcomes.iter().map(|outcome| outcome.rounds).sum();
    let together = outcomes.iter().map(|outcome| outcome.together).max().filter(|&most| most > 1);
    let together = together.map_or_else(String::new, |most| format!(" (few I/Os: up to {most} rounds count as one)"));
    let intervals = match results.rows.iter().any(|row| row.iops.is_some_and(|iops| iops.interval.is_some())) {
        true => "with 95 % intervals".to_owned(),
        false => format!("an interval takes {FEWEST} rounds"),
    };
    let open = offered.is_some() || outcomes.iter().any(|outcome| outcome.scene.load_pct < 100.0);
    let from = if open { "intended start (closed loop: decision to issue)" } else { "decision to issue" };
    lines.push(format!(
        "{rounds} rounds{together} of {} ms blocks in random order; medians, {intervals}. Latencies count from the {from}.",
        BLOCK.0 / 1_000_000
    ));
    // How far the first mode differs from itself: in the only scene, or at most in any.
    let scenes = results.scenes();
    let farthest = |figure| {
        let off = |estimate: &Estimate| estimate.value.max(1e-9).ln().abs();
        let all = scenes.iter().filter_map(|scene| results.against_first(scene, &again(results.first(scene)?), figure));
        let Estimate { value, interval } = all.max_by(|a, b| off(a).total_cmp(&off(b)))?;
        let between = interval.map_or(String::new(), |[low, high]| format!(" ({low:.3}–{high:.3})"));
        Some(format!("{value:.3}{between}"))
    };
    if let (Some(row), Some(iops), Some(cpu)) = (results.rows.first(), farthest(IOPS), farthest(CPU)) {
        let at_most = if scenes.len() > 1 { ", where it differs most" } else { "" };
        lines.push(format!("A/A: {} against itself{at_most}: IOPS × {iops}, CPU × {cpu}; such differences are noise.", row.mode));
    }
    // What loads are shares of.
    let mut capacities: Vec<String> = Vec::new();
    for outcome in outcomes {
        let one = outcome.capacity.map(|capacity| format!("{} kIOPS at depth {}", digits(capacity / 1e3), outcome.scene.qd));
        capacities.extend(one.filter(|one| !capacities.contains(one)));
    }
    if !capacities.is_empty() {
        let offered = offered.map_or_else(String::new, |iops| format!("{} kIOPS meant; ", digits(iops / 1e3)));
        lines.push(format!("Loads: {offered}100 % is what polling reaches in a closed loop, {}.", capacities.join(", ")));
    }
    lines
}

/// I/Os per second that a thread of `job` means to issue.
pub fn offered(job: &Job) -> f64 {
    let iops = |rate: Option<Rate>, sizes: &BlockSizes| match rate {
        Some(Rate::Iops(n)) => n as f64,
        Some(Rate::Bytes(n)) => n as f64 / sizes.mean().max(1.0),
        None => 0.0,
    };
    let read = if job.pattern.reads() { iops(job.rate.read, &job.block.read) } else { 0.0 };
    let write = if job.pattern.writes() { iops(job.rate.write, &job.block.write) } else { 0.0 };
    read + write
}

#[cfg(test)]
mod tests;
