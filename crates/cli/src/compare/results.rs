//! Converts blocks to rows and ratios, decides whether a scene is conclusive, and writes the text
//! around the table. This module does no I/O.
//!
//! A scene is inconclusive if the first mode differs from itself (A/A) as much as from other modes,
//! if there are too few rounds for intervals, or if `poll` did not get its CPU. The last check is
//! needed because other work on the CPUs slows modes that spin more than modes that sleep, and A/A
//! does not show that.

use completion::Mode;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{BlockSizes, Histogram, Job, Moments, Rate};

use super::blocks::{Record, Sample};
use super::plan::{BLOCK, FEW, SceneJobs};
use super::statistics::{self, FEWEST};
use crate::args::CompareArgs;
use crate::bench::merge_spans;
use crate::machine::WakeUp;
use crate::rows::table::{digits, percent};
use crate::rows::{self, CPU, Estimate, IOPS, P50, Pair, Results, Row, SCORE, Scene, score};

/// If `poll` got less than this share of its CPUs, other work was running on them.
const OWN: f64 = 0.9;
/// An A/A ratio up to this is accepted even if the modes differ from each other by less: the modes
/// are then equal within this ratio.
const SMALL: f64 = 1.05;

/// Results of one scene.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The conditions. With a rate, `load_pct` is the offered rate in per cent of the measured
    /// capacity.
    pub scene: Scene,
    /// A row per mode.
    pub rows: Vec<Row>,
    /// Ratios of all pairs of labels; the last label is the first mode again (A/A).
    pub pairs: Vec<Pair>,
    /// Rounds run.
    pub rounds: usize,
    /// How many rounds make up one sample, because their blocks have few I/Os; 1: none are joined.
    pub together: usize,
    /// IOPS of `poll` in a closed loop, in scenes with a rate.
    pub capacity: Option<f64>,
    /// Reasons why the scene is inconclusive; empty: it is conclusive.
    pub doubts: Vec<String>,
}

impl Outcome {
    /// Computes rows and pairs from `record`; `None` if there is no complete round. `cpus`: number
    /// of CPUs that the job threads need. `offered`: I/Os per second that the jobs offer, to
    /// compute the load. `wake_up`: CPU cost of a wake-up outside the thread.
    pub fn new(
        modes: &[Mode],
        record: &Record,
        scene: &SceneJobs,
        cpus: usize,
        offered: Option<f64>,
        wake_up: &WakeUp,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Outcome> {
        let (closed, mut scene) = (scene.is_closed(), scene.scene.clone());
        let polled: Vec<f64> = record.polled.iter().map(|sample| sample.iops).collect();
        let capacity = statistics::median(&polled).filter(|_| !closed);
        if let Some((offered, capacity)) =
            offered.zip(capacity).filter(|(_, capacity)| *capacity > 0.0)
        {
            scene.load_pct = offered * 100.0 / capacity;
        }
        // By label, then by round.
        let labels = modes.len() + 1;
        let blocks: Vec<Vec<Option<&Sample>>> = (0..labels)
            .map(|label| record.rounds.iter().map(|round| round.get(label)?.as_ref()).collect())
            .collect();
        // Blocks of slow devices have too few I/Os for a median of their own; neighbouring rounds
        // are joined until they have enough.
        let together = together(&blocks);
        // Each part has `together` rounds; if they do not divide evenly, some have one more.
        let parts = (record.rounds.len() / together).max(1);
        let join = |rounds: &Vec<Option<&Sample>>| {
            let part = |n: usize| &rounds[n * rounds.len() / parts..(n + 1) * rounds.len() / parts];
            (0..parts)
                .map(|n| Sample::in_turn(&part(n).iter().copied().flatten().collect::<Vec<_>>()))
                .collect()
        };
        let joined: Vec<Vec<Option<Sample>>> = blocks.iter().map(join).collect();

        let mut rows = Vec::new();
        for (at, mode) in modes.iter().enumerate() {
            let samples: Vec<&Sample> = joined[at].iter().flatten().collect();
            let stolen = record.stolen.get(at).copied().flatten();
            let mut row = Row {
                mode: mode.to_string(),
                scene: scene.clone(),
                stolen,
                ..row(&samples, wake_up, rng)?
            };
            let last = blocks[at].iter().rev().flatten().next();
            if let Some(state) = last.and_then(|sample| sample.counted.state) {
                row.extra.insert("state".into(), state.to_string().into());
            }
            rows.push(row);
        }
        type Figure<'a> = &'a dyn Fn(&Sample) -> Option<f64>;
        let cpu = |s: &Sample| wake_up.cpu_ns_per_io(&s.counted);
        let mean = |s: &Sample| (s.latency.moments.n > 0).then(|| s.latency.moments.mean());
        let figures: [(&'static str, Figure<'_>); 4] = [
            (IOPS, &|s| Some(s.iops)),
            (CPU, &cpu),
            (P50, &|s| {
                s.latency.histogram.as_ref()?.percentiles(&[50.0]).first().map(|&p| p as f64)
            }),
            (SCORE, &|s| score(cpu(s), mean(s), s.iops)),
        ];
        // A/A needs a label of its own; the pairs then treat it as another mode.
        let again = rows.first().map(|row| again(&row.mode))?;
        let names: Vec<&str> =
            rows.iter().map(|row| row.mode.as_str()).chain([again.as_str()]).collect();
        let mut pairs = Vec::new();
        for (figure, of) in figures {
            let values: Vec<Vec<Option<f64>>> = joined
                .iter()
                .map(|rounds| rounds.iter().map(|sample| of(sample.as_ref()?)).collect())
                .collect();
            pairs.append(&mut statistics::pairs(&scene, &names, figure, &values, rng));
        }
        // With a rate, a thread without I/O in flight sleeps, so its CPU time does not show other
        // work. Only closed blocks of `poll` count, and the capacity blocks.
        let is_poll =
            |label: usize| closed && modes.get(label).or(modes.first()) == Some(&Mode::POLL);
        let own = (0..labels)
            .filter(|&label| is_poll(label))
            .flat_map(|label| blocks[label].iter().copied().flatten());
        let doubts = doubts(&pairs, names[0], &own.chain(&record.polled).collect::<Vec<_>>(), cpus);
        // The rows stay in the JSON, marked as invalid: they may still be useful to compare with.
        if !doubts.is_empty() {
            rows.iter_mut().for_each(|row| drop(row.extra.insert("valid".into(), false.into())));
        }
        Some(Outcome {
            pairs,
            scene,
            rows,
            doubts,
            rounds: record.rounds.len(),
            together,
            capacity,
        })
    }
}

/// The label of the A/A blocks of mode `first`.
pub fn again(first: &str) -> String {
    format!("{first} (A/A)")
}

/// Rounds to join so that a sample of each label has at least [`FEW`] I/Os; at most all rounds.
fn together(blocks: &[Vec<Option<&Sample>>]) -> usize {
    let enough = |rounds: &Vec<Option<&Sample>>| {
        let ios: u64 = rounds.iter().flatten().map(|s| s.counted.ios).sum();
        (FEW as f64 * rounds.iter().flatten().count() as f64 / (ios as f64).max(f64::MIN_POSITIVE))
            .ceil() as usize
    };
    let all = blocks.iter().map(Vec::len).max().unwrap_or(0);
    blocks.iter().map(enough).max().unwrap_or(1).min(all).max(1)
}

/// A row: medians over blocks, and latencies over all I/Os of all blocks.
fn row(samples: &[&Sample], wake_up: &WakeUp, rng: &mut Xoshiro256PlusPlus) -> Option<Row> {
    let of = |figure: fn(&Sample) -> Option<f64>| {
        samples.iter().filter_map(|s| figure(s)).collect::<Vec<f64>>()
    };
    let cpu: Vec<f64> = samples.iter().filter_map(|s| wake_up.cpu_ns_per_io(&s.counted)).collect();
    let median = |figure: fn(&Sample) -> Option<f64>| statistics::median(&of(figure));
    let mut moments = Moments::default();
    samples.iter().for_each(|s| moments.merge(&s.latency.moments));
    let histograms: Vec<&Histogram> =
        samples.iter().filter_map(|s| s.latency.histogram.as_ref()).collect();
    // Per cent of a CPU that the background threads really got: next to a spinning job it is less
    // than `--background`.
    let background = median(|s| Some(s.background?.0 as f64 * 100.0 / s.took.0.max(1) as f64));
    Some(Row {
        iops: Some(statistics::estimate(&of(|s| Some(s.iops)), rng)?),
        cpu: statistics::estimate(&cpu, rng),
        thread_cpu: statistics::estimate(&of(|s| s.counted.cpu_ns_per_io()), rng),
        notify: median(|s| s.counted.per_io(s.counted.notify_ns)).unwrap_or(0.0),
        messages: median(|s| Some(s.counted.per_second(s.counted.messages))).unwrap_or(0.0),
        messages_unknown: samples.iter().any(|s| s.counted.messages_unknown),
        system_calls: median(|s| s.counted.per_io(s.counted.system_calls?)),
        wakeups: median(|s| Some(s.counted.per_second(s.counted.queues.wakeups as f64)))
            .unwrap_or(0.0),
        per_wakeup: median(|s| s.counted.completions_per_wakeup()).unwrap_or(0.0),
        drain_max: samples.iter().map(|s| s.counted.queues.drain_max).max().unwrap_or(0),
        latency: statistics::latencies(&moments, &histograms, rng),
        paths: merge_spans(&samples.iter().map(|s| s.paths.as_slice()).collect::<Vec<_>>()),
        extra: background
            .map(|pct| ("background_had_pct".to_owned(), pct.into()))
            .into_iter()
            .collect(),
        ..Row::default()
    })
}

/// Why the `pairs` of a scene with first mode `first` are inconclusive. `polled`: blocks in which
/// `poll` spins from start to end, on `cpus` CPUs.
fn doubts(pairs: &[Pair], first: &str, polled: &[&Sample], cpus: usize) -> Vec<String> {
    let mut doubts = Vec::new();
    // The share of their CPUs that polling threads had. CPU time of background threads is added,
    // since they are part of the scene. On a device outside this process a polling thread may block
    // in the kernel, so there the share is computed from the time that it was runnable without a
    // CPU.
    let share = |sample: &&Sample| {
        let (wall, took) =
            (sample.counted.wall.0 as f64 * cpus as f64, sample.took.0.max(1) as f64);
        let background = sample.background.unwrap_or_default().0 as f64
            * (sample.counted.wall.0 as f64 / took).min(1.0);
        let had = match sample.away {
            Some(away) => 1.0 - away.0 as f64 / (took * cpus as f64) + background / wall.max(1.0),
            None => (sample.counted.cpu.0 as f64 + background) / wall.max(1.0),
        };
        (wall > 0.0).then_some(had)
    };
    let shares: Vec<f64> = polled.iter().filter_map(share).collect();
    if let Some(share) = statistics::median(&shares).filter(|share| *share < OWN) {
        doubts.push(format!(
            "other work left only {:.0} % of its CPU to poll",
            (share * 100.0).clamp(0.0, 89.0)
        ));
    }
    // Distance of a ratio from 1; equal for a ratio and its reciprocal.
    let off = |ratio: f64| ratio.max(1e-9).ln().abs();
    let farther = |a: f64, b: f64| if off(a) > off(b) { a } else { b };
    let again = again(first);
    for (figure, name) in [(IOPS, "IOPS"), (CPU, "CPU")] {
        let (itself, others): (Vec<&Pair>, Vec<&Pair>) = pairs
            .iter()
            .filter(|pair| pair.figure == figure && pair.a == first)
            .partition(|pair| pair.b == again);
        let Some([low, high]) = itself.first().and_then(|pair| pair.ratio.interval) else {
            doubts.push(format!(
                "an interval takes {FEWEST} rounds with I/Os in all modes (--repeat)"
            ));
            continue;
        };
        // The farther end of the interval is used, not the median: the A/A difference could be as
        // large as that.
        let itself = farther(low, high);
        let Some(others) = others.iter().map(|pair| pair.ratio.value).reduce(farther) else {
            continue;
        };
        if off(itself) > off(SMALL) && off(itself) >= off(others) {
            let by = format!("× {itself:.2}, and from other modes by × {others:.2} at most");
            doubts.push(format!("{name} of {first} differs from itself (A/A) by {by}"));
        }
    }
    doubts.dedup();
    doubts
}

/// Explanations of columns by name. `wake_up`: the cost that CPU per I/O includes.
pub fn legend(wake_up: &WakeUp) -> Vec<(&'static str, String)> {
    [
        ("CPU", wake_up.caption()),
        ("÷ first", "÷ first: ratio to the first mode, paired by round.".to_owned()),
        (
            "thread",
            "thread: CPU time of this process's threads per I/O, load generator included."
                .to_owned(),
        ),
        ("stolen", "stolen: what an idle-priority loop loses per I/O.".to_owned()),
        ("notify", "notify: time that the device spends on sending interrupt messages.".to_owned()),
        ("msgs", "msgs: interrupt messages that the device sent.".to_owned()),
        ("sys per IO", "sys per IO: system calls.".to_owned()),
        ("IO per wake", "IO per wake: completions for each wake-up.".to_owned()),
        (
            "C·L³",
            "C·L³: CPU per I/O × mean latency³; the verdict recommends the lowest.".to_owned(),
        ),
    ]
    .into()
}

/// The title of a comparison on `device`; `threads` has the job of each thread.
pub fn title(args: &CompareArgs, threads: &[&Job], device: &str, outcomes: &[Outcome]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for job in threads {
        let kind = kind(job);
        match kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, threads)) => *threads += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let jobs = kinds.iter().map(|(kind, threads)| {
        if *threads > 1 { format!("{kind}, {threads} threads") } else { kind.clone() }
    });
    let each = |of: fn(&Scene) -> String| {
        let mut all: Vec<String> = outcomes.iter().map(|outcome| of(&outcome.scene)).collect();
        // Scenes of different depths have the same loads: list each value once.
        let mut known = std::collections::BTreeSet::new();
        all.retain(|one| known.insert(one.clone()));
        all.join(", ")
    };
    let mut title = format!(
        "{}, queue depth {} on {device}",
        jobs.collect::<Vec<_>>().join("; "),
        each(|scene| scene.qd.to_string())
    );
    if args.host_work > 0 {
        title += &format!(", {} ns of application work per I/O", args.host_work);
    }
    if !args.loads.is_empty() {
        title += &format!(", load {} %", each(|scene| percent(scene.load_pct)));
    }
    title
}

/// The pattern and block size of a job, as in `randrw 4 KiB`.
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

/// One sentence for inconclusive results: the reasons of the first such scene, and what to try
/// (`reap sim`, which has no other work, or more rounds). `None`: all scenes are conclusive.
pub fn inconclusive(args: &CompareArgs, outcomes: &[Outcome]) -> Option<String> {
    let bad: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.doubts.is_empty()).collect();
    let reasons = bad.first()?.doubts.join("; ");
    let scenes = if bad.len() == outcomes.len() {
        String::new()
    } else {
        format!(" in {} of {} scenes", bad.len(), outcomes.len())
    };
    let simulated = args.modes.iter().filter(|mode| !mode.is_the_kernels());
    let modes: Vec<String> = simulated.map(ToString::to_string).collect();
    // The shell would expand a `?` in a mode's parameters.
    let modes = match modes.join(",") {
        none if none.is_empty() => none,
        plain if !plain.contains('?') => format!(" --modes {plain}"),
        quoted => format!(" --modes '{quoted}'"),
    };
    let simulate = match &args.file {
        Some(file) => format!(
            "`reap sim --replay run.log{modes}` (with write_iolog=run.log in {})",
            file.display()
        ),
        None => format!("`reap sim{modes}`"),
    };
    Some(format!(
        "Inconclusive{scenes}: {reasons}. Try {simulate}, or --repeat {} while less else runs.",
        (args.repeat * 2).max(32)
    ))
}

/// The lines below the table. `offered`: I/Os per second that the jobs offer, if they have a rate.
pub fn notes(
    outcomes: &[Outcome],
    results: &Results,
    machine: &str,
    oversubscribed: bool,
    offered: Option<f64>,
) -> Vec<String> {
    let mut lines = vec![format!("Machine: {machine}.")];
    if oversubscribed {
        lines.push(
            "Oversubscribed: there are more threads than CPUs, and they wait for each other."
                .to_owned(),
        );
    }
    let rounds: usize = outcomes.iter().map(|outcome| outcome.rounds).sum();
    let together = outcomes.iter().map(|outcome| outcome.together).max().filter(|&most| most > 1);
    let together = together
        .map_or_else(String::new, |max| format!(" (few I/Os: up to {max} rounds count as one)"));
    let intervals =
        match results.rows.iter().any(|row| row.iops.is_some_and(|iops| iops.interval.is_some())) {
            true => "with 95 % intervals".to_owned(),
            false => format!("an interval takes {FEWEST} rounds"),
        };
    let open = offered.is_some() || outcomes.iter().any(|outcome| outcome.scene.load_pct < 100.0);
    let from =
        if open { "intended start (closed loop: decision to issue)" } else { "decision to issue" };
    lines.push(format!(
        "{rounds} rounds{together} of {} ms blocks in random order; medians, {intervals}. Latencies count from the {from}.",
        BLOCK.0 / 1_000_000
    ));
    // A/A of the only scene, or of the scene in which it is farthest from 1.
    let scenes = results.scenes();
    let farthest = |figure| {
        let off = |estimate: &Estimate| estimate.value.max(1e-9).ln().abs();
        let all = scenes.iter().filter_map(|scene| {
            results.against_first(scene, &again(results.first(scene)?), figure)
        });
        let Estimate { value, interval } = all.max_by(|a, b| off(a).total_cmp(&off(b)))?;
        let between =
            interval.map_or(String::new(), |[low, high]| format!(" ({low:.3}–{high:.3})"));
        Some(format!("{value:.3}{between}"))
    };
    if let (Some(row), Some(iops), Some(cpu)) =
        (results.rows.first(), farthest(IOPS), farthest(CPU))
    {
        let at_most = if scenes.len() > 1 { ", where it differs most" } else { "" };
        lines.push(format!("A/A: {} against itself{at_most}: IOPS × {iops}, CPU × {cpu}; such differences are noise.", row.mode));
    }
    // The capacities of which loads are a share.
    let mut capacities: Vec<String> = Vec::new();
    for outcome in outcomes {
        let one = outcome.capacity.map(|capacity| {
            format!("{} kIOPS at depth {}", digits(capacity / 1e3), outcome.scene.qd)
        });
        capacities.extend(one.filter(|one| !capacities.contains(one)));
    }
    if !capacities.is_empty() {
        let offered = offered
            .map_or_else(String::new, |iops| format!("{} kIOPS offered; ", digits(iops / 1e3)));
        lines.push(format!(
            "Loads: {offered}100 % is what polling reaches in a closed loop, {}.",
            capacities.join(", ")
        ));
    }
    lines
}

/// I/Os per second that a thread of `job` offers; 0 without a rate.
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
