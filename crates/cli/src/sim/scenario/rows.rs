//! From outcomes to the rows that `compare` has too, and what only a simulator knows.

use ::sim::file::ScenarioFile;
use ::sim::{FailoverCounters, Host, JobSpec, Outcome, Scenario, Spin};
use completion::{Decisions, Mode};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Map, json};
use units::Nanos;
use workload::{Histogram, Moments};

use super::figures::Figures;
use crate::bench::over_all;
use crate::compare::statistics::{self, FEWEST};
use crate::rows::{CPU, IOPS, P50, Pair, Results, Row, Scene, Tick, Timeline};

/// What has a row: a mode, and, if it spins, what it does where others want the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The mode.
    pub mode: Mode,
    /// How it spins.
    pub spin: Spin,
    /// The row's name.
    pub label: String,
}

/// The modes, each once for every way of spinning that makes a difference to it.
pub fn contenders(modes: &[Mode], spins: &[Spin]) -> Vec<Contender> {
    let first = spins.first().copied().unwrap_or_default();
    let of_mode = |&mode: &Mode| {
        let several = mode.spins() && spins.len() > 1;
        let ways = if several { spins.to_vec() } else { vec![first] };
        let named = move |spin| if several && spin != first { format!("{mode} ({spin})") } else { mode.to_string() };
        ways.into_iter().map(move |spin| Contender { mode, spin, label: named(spin) })
    };
    modes.iter().flat_map(of_mode).collect()
}

/// Keys of what only a simulator knows.
pub const INTERRUPTS: &str = "interrupts_per_s";
pub const SOFTIRQS: &str = "softirqs_per_s";
pub const SWITCHES: &str = "context_switches_per_s";
pub const SPLIT: &str = "cpu_pct";
pub const AWAY: &str = "longest_away_ns";
pub const DECISIONS: &str = "decisions";
pub const WAY: &str = "interrupt_path";
pub const FAILOVER: &str = "failover";

/// The results of `rounds`: by seed, and of each by mode.
pub fn results(file: &ScenarioFile, modes: &[Contender], rounds: &[&[Option<Outcome>]]) -> Results {
    // Of virtual time nothing is left to chance: the same scenario, the same table.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let scene = scene(&file.scenario);
    let of = |at: usize| rounds.iter().filter_map(move |round| round.get(at)?.as_ref()).collect::<Vec<&Outcome>>();
    let figures = |at: usize| of(at).into_iter().map(Figures::of).collect::<Vec<Figures>>();
    let rows = modes.iter().enumerate().filter_map(|(at, mode)| row(mode.label.clone(), &scene, &figures(at), &mut rng)).collect();
    let profiles: Vec<&str> = file.scenario.devices.iter().map(|device| device.config.profile.name.as_str()).collect();
    Results {
        title: file.title.clone(),
        device: format!("{} × {}", profiles.len(), scene.profile),
        rows,
        pairs: pairs(modes, &scene, rounds, &mut rng),
        timelines: modes
            .iter()
            .enumerate()
            .filter_map(|(at, mode)| timeline(&file.scenario, &mode.label, &scene, of(at).first()?))
            .collect(),
        notes: modes
            .iter()
            .enumerate()
            .filter_map(|(at, mode)| starved(&mode.label, &of(at)))
            .chain(notes(&file.scenario, rounds.len()))
            .collect(),
        ..Results::default()
    }
}

/// Of a job's threads, one that did less than a tenth of what the middle one did: what it waited for is in hardly any figure of a mode,
/// which looks the faster for it.
fn starved(mode: &str, runs: &[&Outcome]) -> Option<String> {
    let of_run = |run: &&Outcome| {
        run.jobs.iter().find_map(|job| {
            let others = run.jobs.iter().filter(|other| other.name == job.name);
            let mut ios: Vec<u64> = others.flat_map(|other| other.ios.iter().copied()).collect();
            ios.sort_unstable();
            let (least, middle) = (*ios.first()?, ios[ios.len() / 2]);
            (least < middle / 10).then(|| (job.name.clone(), least, middle))
        })
    };
    let (name, least, middle) = runs.iter().find_map(of_run)?;
    Some(format!(
        "{mode}: a thread of job '{name}' completed {least} I/Os, where the middle one of its threads completed {middle}: others had its CPU, \
         and what it waited is in hardly any of these figures."
    ))
}

fn scene(scenario: &Scenario) -> Scene {
    let steps = scenario.jobs.iter().any(|spec| !spec.phases.is_empty());
    Scene {
        // What part of the capacity a rate is takes a sweep to say.
        load_pct: if scenario.jobs.iter().any(is_paced) { 0.0 } else { 100.0 },
        qd: scenario.jobs.iter().map(|spec| u64::from(spec.job.iodepth) * u64::from(spec.job.numjobs.max(1))).sum(),
        profile: scenario.devices.first().map_or(String::new(), |device| device.config.profile.name.clone()),
        arrivals: steps.then(|| "steps".to_owned()),
        background_pct: None,
    }
}

fn is_paced(spec: &JobSpec) -> bool {
    spec.job.rate.read.is_some() || spec.job.rate.write.is_some() || !spec.phases.is_empty()
}

/// Ticks of a time line.
const TICKS: u64 = 200;

/// How long a tick is where the load goes in steps: there it matters what a mode decides when.
pub fn ticks(scenario: &Scenario) -> Option<Nanos> {
    let ends = |spec: &JobSpec| (!spec.phases.is_empty()).then(|| spec.job.ramp_time + spec.job.runtime.unwrap_or_default());
    let longest = scenario.jobs.iter().filter_map(ends).max()?;
    (longest > Nanos::ZERO).then(|| Nanos(longest.0.div_ceil(TICKS)))
}

/// What a mode did when, with the first seed.
fn timeline(scenario: &Scenario, mode: &str, scene: &Scene, outcome: &Outcome) -> Option<Timeline> {
    let every = ticks(scenario).filter(|_| !outcome.ticks.is_empty())?;
    let unit = 1.0 / every.as_secs_f64();
    let tick = |(at, tick): (usize, &::sim::Tick)| {
        let rate = |count: u64| count as f64 * unit;
        Tick {
            offered: offered(scenario, Nanos(at as u64 * every.0 + every.0 / 2)),
            iops: rate(tick.completed),
            cpu: tick.cpu.as_secs_f64() * unit,
            p50: tick.p50 as f64,
            p99: tick.p99 as f64,
            looks: rate(tick.looks),
            empty_looks: rate(tick.empty_looks),
            spins: rate(tick.spins),
            naps: rate(tick.naps),
            sleeps: rate(tick.sleeps),
            gathered: rate(tick.gathered),
            explored: rate(tick.explored),
        }
    };
    let ticks = outcome.ticks.iter().enumerate().map(tick).collect();
    Some(Timeline { mode: mode.to_owned(), scene: scene.clone(), tick_ns: every.0, ticks })
}

/// I/Os per second that the steps mean, so long after the start.
fn offered(scenario: &Scenario, at: Nanos) -> f64 {
    let of = |spec: &JobSpec| spec.phase_at(at) as f64 * f64::from(spec.job.numjobs.max(1));
    scenario.jobs.iter().map(of).sum()
}

/// One mode's figures: medians over seeds, with intervals where there are several.
pub fn row(mode: String, scene: &Scene, runs: &[Figures], rng: &mut Xoshiro256PlusPlus) -> Option<Row> {
    let of = |figure: fn(&Figures) -> f64| runs.iter().map(figure).collect::<Vec<f64>>();
    let median = |figure: fn(&Figures) -> f64| statistics::median(&of(figure)).unwrap_or(0.0);
    let mut extra = Map::new();
    extra.insert("seeds".into(), runs.len().into());
    extra.insert(INTERRUPTS.into(), json!(median(|run| run.interrupts)));
    extra.insert("notifications_per_s".into(), json!(median(|run| run.notifications)));
    extra.insert(SOFTIRQS.into(), json!(median(|run| run.softirqs)));
    extra.insert("sq_doorbells_per_s".into(), json!(median(|run| run.sq_doorbells)));
    extra.insert(SWITCHES.into(), json!(median(|run| run.context_switches)));
    extra.insert("waits_over_at_once_per_s".into(), json!(median(|run| run.over_at_once)));
    extra.insert(
        SPLIT.into(),
        json!({
            "hard": median(|run| run.hard), "soft": median(|run| run.soft), "thread": median(|run| run.thread), "idle": median(|run| run.idle),
        }),
    );
    let away = runs.iter().map(|run| run.longest_away).max().unwrap_or_default();
    extra.insert(AWAY.into(), away.0.into());
    if let Some(decisions) = decisions(runs) {
        extra.insert(DECISIONS.into(), decisions.named().map(|(name, count)| (name, json!(count))).into_iter().collect());
    }
    let ways: Vec<[f64; 3]> = runs.iter().filter_map(|run| run.way).collect();
    if !ways.is_empty() {
        let of = |at: usize| statistics::median(&ways.iter().map(|way| way[at]).collect::<Vec<f64>>());
        extra.insert(WAY.into(), json!({ "wait_ns": of(0), "held_ns": of(1), "miss_pct": of(2) }));
    }
    if let Some(failover) = failover(runs) {
        extra.insert(FAILOVER.into(), failover);
    }
    let mut moments = Moments::default();
    runs.iter().for_each(|run| moments.merge(&run.moments));
    let histograms: Vec<Histogram> = runs.iter().map(Figures::histogram).collect();
    let wakeups = median(|run| run.wakeups);
    // Runs that were never woken have none, as a row has none whose runs mostly were not.
    let per_wakeup: Vec<f64> = runs.iter().filter(|_| wakeups > 0.0).filter_map(|run| run.per_wakeup).collect();
    Some(Row {
        mode,
        scene: scene.clone(),
        iops: statistics::estimate(&of(|run| run.iops), rng),
        cpu: statistics::estimate(&of(|run| run.cpu), rng),
        messages: median(|run| run.messages),
        wakeups,
        per_wakeup: statistics::median(&per_wakeup).unwrap_or(0.0),
        drain_max: runs.iter().map(|run| run.drain_max).max()?,
        latency: statistics::latencies(&moments, &histograms.iter().collect::<Vec<_>>(), rng),
        paths: over_all(&runs.iter().map(|run| &run.paths[..]).collect::<Vec<_>>()),
        extra,
        ..Row::default()
    })
}

/// What went wrong on paths in all runs together, if they are several.
fn failover(runs: &[Figures]) -> Option<serde_json::Value> {
    let all = runs.iter().filter_map(|run| run.failover).reduce(FailoverCounters::and)?;
    let FailoverCounters { retried, failed_over, held, longest_hold, waited, longest_stall, failed, .. } = all;
    Some(json!({
        "retried": retried, "failed_over": failed_over, "held": held, "longest_hold_ns": longest_hold.0, "waited": waited,
        "longest_stall_ns": longest_stall.0, "failed": failed,
    }))
}

/// What `adaptive` decided in all runs together.
fn decisions(runs: &[Figures]) -> Option<Decisions> {
    runs.iter().filter_map(|run| run.decisions).reduce(|mut all, decisions| {
        all.add(&decisions);
        all
    })
}

/// Each mode with each later one, seed by seed.
fn pairs(modes: &[Contender], scene: &Scene, rounds: &[&[Option<Outcome>]], rng: &mut Xoshiro256PlusPlus) -> Vec<Pair> {
    type Figure = fn(&Outcome) -> Option<f64>;
    let figures: [(&'static str, Figure); 3] = [
        (IOPS, |o| Some(o.iops())),
        (CPU, |o| Some(o.cpu_ns_per_io())),
        (P50, |o| Figures::of(o).histogram().percentiles(&[50.0]).first().map(|&p| p as f64)),
    ];
    let labels: Vec<&str> = modes.iter().map(|mode| mode.label.as_str()).collect();
    let mut pairs = Vec::new();
    for (figure, of) in figures {
        let values: Vec<Vec<Option<f64>>> =
            (0..modes.len()).map(|at| rounds.iter().map(|round| of(round.get(at)?.as_ref()?)).collect()).collect();
        pairs.append(&mut statistics::pairs(scene, &labels, figure, &values, rng));
    }
    pairs
}

/// The machine, in a line.
pub fn machine(scenario: &Scenario) -> String {
    let machine = &scenario.machine;
    let nodes = if machine.nodes > 1 { format!(" on {} nodes", machine.nodes) } else { String::new() };
    let cpus = if machine.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", machine.cpus) };
    let host = match scenario.host {
        Host::User => "Reap in user space",
        Host::Kernel => "the kernel's block layer",
    };
    let posted = if machine.posted { ", posted MSI" } else { "" };
    format!("{cpus}{nodes}{posted}; {host} drives {} device{}", scenario.devices.len(), if scenario.devices.len() == 1 { "" } else { "s" })
}

fn notes(scenario: &Scenario, seeds: usize) -> Vec<String> {
    let medians = format!("Medians over {seeds} seeds (latencies: percentiles of all seeds together)");
    let intervals = match seeds {
        ..=1 => format!("One seed, {}: --seeds {FEWEST} gives intervals.", scenario.seed),
        2..FEWEST => format!("{medians}; an interval takes {FEWEST}."),
        _ => format!("{medians}, below them their 95 % interval."),
    };
    let paced = scenario.jobs.iter().filter(|spec| is_paced(spec)).count();
    let from = match paced {
        0 => "decision to issue",
        n if n == scenario.jobs.len() => "intended start",
        _ => "intended start (of jobs without a rate: from the decision to issue)",
    };
    vec![format!(
        "Virtual time. {intervals} CPU: of all CPUs, interrupts included, the application's own work not. Latencies: from the {from} until \
         the completion was found; a percentile is shown if 20 samples lie above it. Shares are of all CPUs' time; longest away: the longest that interrupts and \
         softirqs kept a CPU from its threads."
    )]
}
