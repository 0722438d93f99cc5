//! What stands around the table: what is planned, what was done, what is noise, how to read the figures.

use reap::Nanos;
use workload::{BlockSizes, Job, Rate};

use super::design::FEW;
use super::labels::Labels;
use super::results::{Facts, Outcome};
use super::scenes::{Effort, Setting};
use super::statistics::FEWEST;
use crate::args::CompareArgs;
use crate::rows::table::{digits, ratio};
use crate::rows::{self, CPU, Estimate, IOPS, Results, Scene};

/// What a sweep is going to do, and how long that takes.
pub fn planned<T>(devices: &[(T, Vec<Setting>)], labels: &Labels, repeat: u32, efforts: &[Effort]) -> String {
    let scenes = devices.iter().map(|(_, settings)| settings.len()).sum::<usize>();
    let time = efforts.iter().fold(Nanos::ZERO, |sum, effort| sum + effort.time);
    let (scenes, modes, rounds) = (counted(scenes, "scene"), counted(labels.modes().len(), "mode"), counted(repeat as usize, "round"));
    format!(
        "{scenes} × ({modes} + A/A) × {rounds}, {} blocks: about {}. Where other work has the CPUs it takes longer, and how long is said then. \
         Ctrl-C prints what there is by then.",
        efforts.iter().map(|effort| effort.blocks).sum::<u64>(),
        span(time)
    )
}

fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// `12 s`, `2 min 40 s`, `1 h 5 min`
pub fn span(span: Nanos) -> String {
    let seconds = (span.as_secs_f64().ceil() as u64).max(1);
    match seconds {
        ..100 => format!("{seconds} s"),
        100..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The title of a comparison.
pub fn title(facts: &Facts, outcomes: &[Outcome], sweep: bool) -> String {
    let work = if facts.host_work > 0 { format!(", {} ns of application work per I/O", facts.host_work) } else { String::new() };
    let scenes: Vec<&Scene> = outcomes.iter().map(|outcome| &outcome.scene).collect();
    let depths = list(&scenes, |scene| scene.qd.to_string());
    let depth = if depths.len() > 1 { "queue depths" } else { "queue depth" };
    let mut title = format!("{}, {depth} {} on {}{work}", facts.job, depths.join(", "), facts.device);
    if !sweep {
        return title;
    }
    let profiles = list(&scenes, |scene| scene.profile.clone());
    if profiles.len() > 1 {
        title += &format!(", profiles {}", profiles.join(", "));
    }
    let named = |name: Option<&str>| scenes.iter().copied().filter(|scene| scene.arrivals.as_deref() == name).collect::<Vec<_>>();
    let loads = list(&named(None), |scene| digits_of(scene.load_pct));
    if loads != ["100"] && !loads.is_empty() {
        title += &format!(", {} {} %", if loads.len() > 1 { "loads" } else { "load" }, loads.join(", "));
    }
    let bursts = list(&named(Some("bursts")), |scene| digits_of(scene.load_pct));
    if !bursts.is_empty() {
        title += &format!(", bursts at {} %", bursts.join(", "));
    }
    if !named(Some("steps")).is_empty() {
        title += ", steps";
    }
    title
}

/// Per cent, whole where they are.
fn digits_of(pct: f64) -> String {
    if pct.fract() == 0.0 { format!("{pct:.0}") } else { digits(pct) }
}

/// What the scenes have, each once.
fn list(scenes: &[&Scene], of: impl Fn(&Scene) -> String) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for one in scenes.iter().map(|scene| of(scene)) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// What stands below the table, where `results` are those of `outcomes`.
pub fn notes(facts: &Facts, outcomes: &[Outcome], results: &Results, machine: &str) -> Vec<String> {
    let mut lines = vec![format!("Machine: {machine}."), blocks(facts, outcomes)];
    lines.extend(few(facts, outcomes));
    lines.extend(against_itself(results));
    if let (Some(offered), [outcome]) = (facts.offered, outcomes)
        && let Some(capacity) = outcome.capacity
    {
        lines.push(format!(
            "Load: {} kIOPS meant, {:.0} % of the {} kIOPS that polling reaches without a rate.",
            digits(offered / 1e3),
            outcome.scene.load_pct,
            digits(capacity / 1e3)
        ));
    }
    lines.extend(capacities(facts, outcomes));
    if facts.oversubscribed {
        lines.push("Oversubscribed: there are more threads than CPUs, and they wait for each other.".to_owned());
    }
    lines.push(legend(facts, outcomes, results));
    lines
}

fn blocks(facts: &Facts, outcomes: &[Outcome]) -> String {
    let rounds = counted(outcomes.iter().map(|o| o.rounds).sum(), "round");
    format!("Blocks: {rounds} of {} ms blocks in random order.", facts.block.0 / 1_000_000)
}

/// That blocks have few I/Os.
fn few(facts: &Facts, outcomes: &[Outcome]) -> Option<String> {
    let most = outcomes.iter().map(|outcome| outcome.together).max().filter(|&most| most > 1)?;
    let up_to = if outcomes.iter().all(|outcome| outcome.together == most) { "" } else { "up to " };
    let block = facts.block.0 / 1_000_000;
    Some(format!("Few I/Os: blocks of {block} ms have fewer than {FEW}, or none; {up_to}{most} rounds count as one."))
}

/// How far the first mode differs from itself: in the only scene, or at most in any.
fn against_itself(results: &Results) -> Option<String> {
    let scenes = results.scenes();
    let first = scenes.first().and_then(|scene| results.first(scene))?;
    if let [scene] = scenes.as_slice() {
        let (iops, cpu) = (results.against_itself(scene, IOPS)?, results.against_itself(scene, CPU)?);
        let (iops, cpu) = (ratio(&iops), ratio(&cpu));
        return Some(format!("A/A: {first} against itself: IOPS × {iops}, CPU × {cpu}; such differences are noise."));
    }
    let farthest = |figure| {
        let all = scenes.iter().filter_map(|scene| Some((results.against_itself(scene, figure)?, *scene)));
        let (farthest, scene) = all.max_by(|a, b| off(&a.0).total_cmp(&off(&b.0)))?;
        let arrivals = scene.arrivals.as_deref().map_or(String::new(), |arrivals| format!(", {arrivals}"));
        Some(format!("× {} ({} QD {}, load {} %{arrivals})", ratio(&farthest), scene.profile, scene.qd, digits(scene.load_pct)))
    };
    let (iops, cpu) = (farthest(IOPS)?, farthest(CPU)?);
    Some(format!("A/A: {first} against itself, where it differs most: IOPS {iops}, CPU {cpu}; such differences are noise."))
}

fn off(estimate: &Estimate) -> f64 {
    estimate.value.max(1e-9).ln().abs()
}

/// What loads are shares of.
fn capacities(facts: &Facts, outcomes: &[Outcome]) -> Option<String> {
    let shares = facts.offered.is_none();
    let of = |outcome: &Outcome| Some((outcome.scene.profile.clone(), outcome.scene.qd, outcome.capacity.filter(|_| shares)?));
    let mut said: Vec<String> = Vec::new();
    for (profile, qd, capacity) in outcomes.iter().filter_map(of) {
        let one = format!("{profile} at depth {qd} {} kIOPS", digits(capacity / 1e3));
        if !said.contains(&one) {
            said.push(one);
        }
    }
    let all = said.join("; ");
    (!said.is_empty())
        .then(|| format!("Loads are shares of what polling reaches in a closed loop, measured again every few rounds: {all} (medians)."))
}

fn legend(facts: &Facts, outcomes: &[Outcome], results: &Results) -> String {
    let paced = match (facts.offered.is_some(), outcomes.iter().any(|outcome| outcome.scene.load_pct < 100.0)) {
        (true, _) => "intended start",
        (false, true) => "intended start (at load 100, a closed loop: from the decision to issue)",
        (false, false) => "decision to issue",
    };
    let intervals = if results.rows.iter().any(|row| row.iops.is_some_and(|iops| iops.interval.is_some())) {
        ", below them their 95 % interval (where the table is narrow, half of it)".to_owned()
    } else {
        format!("; an interval takes {FEWEST} of them")
    };
    format!(
        "Medians over blocks (latencies: percentiles of all blocks together){intervals}. \
         Latencies: from the {paced} until the completion was found; a percentile is shown if 20 samples lie above it."
    )
}

/// The command that compares the same modes simulated: of a recording for jobs of a file.
pub fn simulate(args: &CompareArgs) -> String {
    let option =
        |name: &str, values: Vec<String>| if values.is_empty() { String::new() } else { format!(" --{name} {}", values.join(",")) };
    let simulated = args.modes.iter().filter(|contender| contender.price.is_none() && !contender.mode.is_the_kernels());
    let modes = option("modes", simulated.map(ToString::to_string).collect());
    match &args.file {
        Some(file) => {
            let device = args.device.device.as_ref().map_or(String::new(), |uri| format!(" --device '{uri}'"));
            format!("reap run {}{device} --record run.trace; reap sim --replay run.trace{modes}", file.display())
        }
        None => format!("reap sim{modes}"),
    }
}

/// What the columns of a comparison mean, by their names.
pub fn columns(facts: &Facts, results: &Results) -> Vec<(&'static str, String)> {
    let columns = if facts.outside { OUTSIDE } else { EMBEDDED };
    let first = results.rows.first().map_or("the first", |row| &row.mode);
    let against = ("÷ first", format!("÷ first: against {first}, paired by round."));
    std::iter::once(against).chain(columns.iter().map(|&(key, words)| (key, words.to_owned()))).collect()
}

const EMBEDDED: &[(&str, &str)] = &[
    ("CPU", "CPU: of the host's threads, load generator included."),
    ("stolen", "stolen: work that a loop at idle priority loses on the host's CPU, which counts interrupts and idle exits as well."),
    ("notify", "notify: the device's time for sending messages."),
    ("msgs", "msgs: messages (interrupts) that the device sent."),
    ("IO per wake", WAKES),
];
const OUTSIDE: &[(&str, &str)] = &[
    ("CPU", "CPU: of this process, load generator and the kernel's workers in it included."),
    (
        "stolen",
        "stolen: work that loops at idle priority lose on all CPUs together, which counts interrupts and idle exits as well. Messages \
         (interrupts) are the kernel's: `reap trace` counts them.",
    ),
    ("sys per IO", "sys per IO: system calls."),
    ("IO per wake", WAKES),
];
const WAKES: &str = "IO per wake: I/Os for each time that a thread was woken.";

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
