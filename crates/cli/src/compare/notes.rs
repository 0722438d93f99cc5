//! What stands around the table: what is planned, what was done, what is noise, how to read the figures.

use workload::{BlockSizes, Job, Rate};

use super::results::{Facts, Outcome};
use super::scenes::Effort;
use super::statistics::FEWEST;
use crate::args::CompareArgs;
use crate::rows::table::{digits, ratio};
use crate::rows::{self, CPU, Estimate, IOPS, Results, Scene};

/// How long a sweep takes.
pub fn planned(efforts: &[Effort]) -> String {
    let seconds = efforts.iter().map(|effort| effort.time.as_secs_f64()).sum::<f64>().ceil();
    let blocks: u64 = efforts.iter().map(|effort| effort.blocks).sum();
    format!("{blocks} blocks: about {seconds} s, more next to other work. Ctrl-C prints what there is by then.")
}

/// The title of a comparison.
pub fn title(facts: &Facts, outcomes: &[Outcome]) -> String {
    let work = if facts.host_work > 0 { format!(", {} ns of application work per I/O", facts.host_work) } else { String::new() };
    let depths = list(outcomes, |scene| scene.qd.to_string());
    let depth = if depths.len() > 1 { "queue depths" } else { "queue depth" };
    let mut title = format!("{}, {depth} {} on {}{work}", facts.job, depths.join(", "), facts.device);
    let profiles = list(outcomes, |scene| scene.profile.clone());
    if profiles.len() > 1 {
        title += &format!(", profiles {}", profiles.join(", "));
    }
    let loads = list(outcomes, |scene| digits_of(scene.load_pct));
    if facts.offered.is_none() && loads != ["100"] {
        title += &format!(", {} {} %", if loads.len() > 1 { "loads" } else { "load" }, loads.join(", "));
    }
    title
}

/// Per cent, whole where they are.
fn digits_of(pct: f64) -> String {
    if pct.fract() == 0.0 { format!("{pct:.0}") } else { digits(pct) }
}

/// What the scenes have, each once.
fn list(outcomes: &[Outcome], of: impl Fn(&Scene) -> String) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for one in outcomes.iter().map(|outcome| of(&outcome.scene)) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// What stands below the table, where `results` are those of `outcomes`.
pub fn notes(facts: &Facts, outcomes: &[Outcome], results: &Results, machine: &str) -> Vec<String> {
    let rounds: usize = outcomes.iter().map(|outcome| outcome.rounds).sum();
    let together = outcomes.iter().map(|outcome| outcome.together).max().filter(|&most| most > 1);
    let together = together.map_or_else(String::new, |most| format!("; few I/Os, so that up to {most} rounds count as one"));
    let block = facts.block.0 / 1_000_000;
    let mut lines =
        vec![format!("Machine: {machine}."), format!("Blocks: {rounds} rounds of {block} ms blocks in random order{together}.")];
    lines.extend(against_itself(results));
    // What loads are shares of.
    let mut capacities: Vec<String> = Vec::new();
    for outcome in outcomes {
        let Some(capacity) = outcome.capacity else { continue };
        let one = format!("{} kIOPS ({} at depth {})", digits(capacity / 1e3), outcome.scene.profile, outcome.scene.qd);
        if !capacities.contains(&one) {
            capacities.push(one);
        }
    }
    if !capacities.is_empty() {
        let offered = facts.offered.map_or_else(String::new, |iops| format!("{} kIOPS meant; ", digits(iops / 1e3)));
        lines.push(format!("Loads: {offered}100 % is what polling reaches in a closed loop, {}.", capacities.join(", ")));
    }
    if facts.oversubscribed {
        lines.push("Oversubscribed: there are more threads than CPUs, and they wait for each other.".to_owned());
    }
    let intervals = if results.rows.iter().any(|row| row.iops.is_some_and(|iops| iops.interval.is_some())) {
        ", with 95 % intervals".to_owned()
    } else {
        format!("; an interval takes {FEWEST} of them")
    };
    let open = facts.offered.is_some() || outcomes.iter().any(|outcome| outcome.scene.load_pct < 100.0);
    let from = if open { "intended start (in a closed loop: from the decision to issue)" } else { "decision to issue" };
    lines.push(format!("Medians over blocks{intervals}. Latencies: from the {from} until the completion was found."));
    lines
}

/// How far the first mode differs from itself: in the only scene, or at most in any.
fn against_itself(results: &Results) -> Option<String> {
    let scenes = results.scenes();
    let first = scenes.first().and_then(|scene| results.first(scene))?;
    let off = |estimate: &Estimate| estimate.value.max(1e-9).ln().abs();
    let farthest = |figure| {
        let all = scenes.iter().filter_map(|scene| results.against_itself(scene, figure));
        all.max_by(|a, b| off(a).total_cmp(&off(b))).map(|farthest| ratio(&farthest))
    };
    let at_most = if scenes.len() > 1 { ", where it differs most" } else { "" };
    Some(format!("A/A: {first} against itself{at_most}: IOPS × {}, CPU × {}; such differences are noise.", farthest(IOPS)?, farthest(CPU)?))
}

/// The command that compares the same modes simulated: for jobs of a file, with the list of I/Os that `write_iolog=run.log` in them writes.
pub fn simulate(args: &CompareArgs) -> String {
    let option =
        |name: &str, values: Vec<String>| if values.is_empty() { String::new() } else { format!(" --{name} {}", values.join(",")) };
    let simulated = args.modes.iter().filter(|contender| contender.price.is_none() && !contender.mode.is_the_kernels());
    let modes = option("modes", simulated.map(ToString::to_string).collect());
    match &args.file {
        Some(file) => format!("reap sim --replay run.log{modes} (with write_iolog=run.log in {})", file.display()),
        None => format!("reap sim{modes}"),
    }
}

/// What the columns of a comparison mean, by their names.
pub fn columns(facts: &Facts, results: &Results) -> Vec<(&'static str, String)> {
    let first = results.rows.first().map_or("the first", |row| &row.mode);
    let mut columns = vec![
        ("÷ first", format!("÷ first: against {first}, paired by round.")),
        ("CPU", "CPU: of this process's threads, load generator included.".to_owned()),
        ("stolen", "stolen: work that a loop at idle priority loses, to interrupts and idle exits as well.".to_owned()),
    ];
    let own: &[(&str, &str)] = match facts.outside {
        true => &[("sys per IO", "sys per IO: system calls.")],
        false => {
            &[("notify", "notify: the device's time for sending messages."), ("msgs", "msgs: messages (interrupts) that the device sent.")]
        }
    };
    let own = own.iter().chain(&[("IO per wake", "IO per wake: I/Os for each time that a thread was woken.")]);
    columns.extend(own.map(|&(key, words)| (key, words.to_owned())));
    columns
}

/// Jobs in words, but for their depths: `of` has the job of each thread.
pub fn describe<'a>(of: impl Iterator<Item = &'a Job>) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for job in of {
        let kind = kind(job);
        match kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, threads)) => *threads += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let threads = |(kind, threads): &(String, usize)| if *threads > 1 { format!("{kind}, {threads} threads") } else { kind.clone() };
    kinds.iter().map(threads).collect::<Vec<_>>().join(" beside ")
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
