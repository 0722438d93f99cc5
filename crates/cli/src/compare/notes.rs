//! What stands around the table: what is planned, what was done, what was dropped, what is noise, how to read the figures.

use reap::Nanos;
use workload::{BlockSizes, Job, Rate};

use super::design::FEW;
use super::noise::{self, Rule};
use super::results::{Facts, Labels, Outcome};
use super::scenes::{Effort, Setting};
use super::statistics::FEWEST;
use crate::rows::table::{digits, ratio};
use crate::rows::{self, CPU, Estimate, IOPS, Results, Scene};

/// What a sweep is going to do, and how long that takes.
pub fn planned<T>(devices: &[(T, Vec<Setting>)], labels: &Labels, repeat: u32, efforts: &[Effort]) -> String {
    let scenes = devices.iter().map(|(_, settings)| settings.len()).sum::<usize>();
    let time = efforts.iter().fold(Nanos::ZERO, |sum, effort| sum + effort.time);
    let (scenes, modes, rounds) = (counted(scenes, "scene"), counted(labels.modes().len(), "mode"), counted(repeat as usize, "round"));
    format!(
        "{scenes} × ({modes} + A/A) × {rounds}, {} blocks in all: about {}, up to half as much again on a busy machine. Ctrl-C prints what \
         there is by then.",
        efforts.iter().map(|effort| effort.blocks).sum::<u64>(),
        span(time)
    )
}

fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// `12 s`, `2 min 40 s`, `1 h 5 min`
fn span(span: Nanos) -> String {
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
    let loads = list(&scenes, |scene| format!("{}", scene.load_pct));
    if loads.len() > 1 {
        title += &format!(", {} loads", loads.len());
    }
    title
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
    let (kept, dropped) = outcomes.iter().fold((0, 0), |sum, o| (sum.0 + o.blocks.0, sum.1 + o.blocks.1));
    let away = outcomes.iter().any(|outcome| outcome.rule == Rule::Away);
    let allowed = outcomes.iter().map(|o| o.gaps_allowed).max().unwrap_or(0);
    let (what, limit) = if away { (AWAY, away_limit(allowed, outcomes.len())) } else { (GAPS, gaps_limit(allowed, outcomes.len())) };
    format!(
        "Blocks: {} rounds of {} ms blocks in random order. {what}: {kept} blocks kept, {dropped} dropped that had {limit}.",
        outcomes.iter().map(|o| o.rounds).sum::<usize>(),
        facts.block.0 / 1_000_000
    )
}

const GAPS: &str = "Gaps, in which the device's thread was away for more than 50 µs";
const AWAY: &str = "Disturbed, by how long job threads waited for a CPU (run delay) and the hypervisor had it (steal), beyond the median \
                    of the mode";

fn gaps_limit(allowed: u64, scenes: usize) -> String {
    match allowed {
        0 => "any".to_owned(),
        1 => "more than one (too few had none: the machine is busy)".to_owned(),
        n if scenes == 1 => format!("more than {n} (too few had fewer: the machine is busy)"),
        n => format!("more than their scene allowed, at most {n} (too few had fewer: the machine is busy)"),
    }
}

fn away_limit(allowed: u64, scenes: usize) -> String {
    let least = digits((allowed + 1) as f64 * noise::UNIT.0 as f64 / 1e6);
    match allowed {
        0 => format!("{least} ms or more of that"),
        _ if scenes == 1 => format!("{least} ms or more of that (too few had less: the machine is busy)"),
        _ => format!("as much as their scene did not allow, {least} ms at the most (too few had less: the machine is busy)"),
    }
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
    } else if results.banner.is_some() {
        ", without intervals, which would look like knowledge".to_owned()
    } else {
        format!("; an interval takes {FEWEST} of them")
    };
    let columns = if outcomes.iter().any(|outcome| outcome.rule == Rule::Away) { OUTSIDE } else { EMBEDDED };
    format!(
        "Medians over blocks (latencies: percentiles of all blocks together){intervals}. ÷ first: against {}, paired by round. \
         {columns} Latencies: from the {paced} until the completion was found; a percentile is shown if 20 samples lie above it.",
        results.rows.first().map_or("the first", |row| &row.mode)
    )
}

const EMBEDDED: &str = "CPU: of the host's threads, load generator included. stolen: work that a loop at idle priority loses on the \
                        host's CPU, which counts interrupts and idle exits as well. notify: the device's time for sending messages.";
const OUTSIDE: &str = "CPU: of this process, load generator and the kernel's workers in it included. stolen: work that loops at idle \
                       priority lose on all CPUs together, which counts interrupts and idle exits as well. sys per IO: system calls. \
                       Messages (interrupts) are the kernel's: `reap trace` counts them.";

/// A job in words, but for its depth.
pub fn describe(job: &Job, threads: usize) -> String {
    let size = match job.pattern.reads() {
        true => &job.block.read,
        false => &job.block.write,
    };
    let size = if size.is_fixed() { rows::bytes(size.min) } else { format!("{}–{}", rows::bytes(size.min), rows::bytes(size.max)) };
    let threads = if threads > 1 { format!(", {threads} threads") } else { String::new() };
    format!("{} {size}{threads}", job.pattern.name())
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
