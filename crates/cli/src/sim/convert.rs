//! Converts outcomes of the simulator to the rows that `compare` has too, with further figures that
//! only the simulator can count.

use ::sim::file::ScenarioFile;
use ::sim::{
    CpuOutcome, FailoverCounters, HostStack, JobSpec, Outcome, PathOutcome, Scenario, Spin,
};
use completion::Mode;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use units::Nanos;
use workload::report::PathStats;
use workload::{Histogram, Moments};

use crate::bench::merge_spans;
use crate::compare::statistics::{self, FEWEST};
use crate::rows::{CPU, IOPS, P50, Pair, Results, Row, SCORE, Scene, merged, score, table};

/// A row of the table: a mode, and its behaviour while other threads need the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The mode.
    pub mode: Mode,
    /// How polling modes spin.
    pub spin: Spin,
    /// The row's name.
    pub label: String,
}

/// The modes; those that spin once per element of `spins`.
pub fn contenders(modes: &[Mode], spins: &[Spin]) -> Vec<Contender> {
    let first = spins.first().copied().unwrap_or_default();
    let of_mode = |&mode: &Mode| {
        // A mode that never spins gives the same result for each, so it is simulated once.
        let several = mode.facts().spins && spins.len() > 1;
        let ways = if several { spins.to_vec() } else { vec![first] };
        let named = move |spin| {
            if several && spin != first { format!("{mode} ({spin})") } else { mode.to_string() }
        };
        ways.into_iter().map(move |spin| Contender { mode, spin, label: named(spin) })
    };
    modes.iter().flat_map(of_mode).collect()
}

/// The results of `rounds`, which are by seed, then by mode.
pub fn results(file: &ScenarioFile, modes: &[Contender], rounds: &[&[Option<Outcome>]]) -> Results {
    // A fixed seed for the bootstrap, so that a scenario always prints the same table.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let scene = scene(&file.scenario);
    let of = |at: usize| {
        rounds.iter().filter_map(move |round| round.get(at)?.as_ref()).collect::<Vec<&Outcome>>()
    };
    let rows = modes
        .iter()
        .enumerate()
        .filter_map(|(at, mode)| row(mode.label.clone(), &scene, &of(at), &mut rng))
        .collect();
    let profiles: Vec<&str> =
        file.scenario.devices.iter().map(|device| device.config.profile.name.as_str()).collect();
    Results {
        subject: "In this scenario",
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

/// A note about a job thread with less than a tenth of the I/Os of the median thread. A starved
/// thread improves the figures of its mode, since its long latencies are few.
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
        "{mode}: a thread of job '{name}' completed {least} I/Os, and the median thread of that job {middle}: other threads had its CPU, \
         and what it waited is in hardly any of these figures."
    ))
}

/// The conditions of the scenario.
fn scene(scenario: &Scenario) -> Scene {
    let steps = scenario.jobs.iter().any(|spec| !spec.phases.is_empty());
    Scene {
        // The capacity is not simulated, so the load in per cent is unknown: 0.
        load_pct: if scenario.jobs.iter().any(is_paced) { 0.0 } else { 100.0 },
        qd: scenario
            .jobs
            .iter()
            .map(|spec| u64::from(spec.job.iodepth) * u64::from(spec.job.numjobs.max(1)))
            .sum(),
        profile: scenario
            .devices
            .first()
            .map_or(String::new(), |device| device.config.profile.name.clone()),
        arrivals: steps.then(|| "steps".to_owned()),
        background_pct: None,
    }
}

fn is_paced(spec: &JobSpec) -> bool {
    spec.job.rate.read.is_some() || spec.job.rate.write.is_some() || !spec.phases.is_empty()
}

/// Number of ticks of a time line.
const TICKS: u64 = 200;

/// Length of a tick, if the load changes in steps.
pub fn ticks(scenario: &Scenario) -> Option<Nanos> {
    let ends = |spec: &JobSpec| {
        (!spec.phases.is_empty()).then(|| spec.job.ramp_time + spec.job.runtime.unwrap_or_default())
    };
    let longest = scenario.jobs.iter().filter_map(ends).max()?;
    (longest > Nanos::ZERO).then(|| Nanos(longest.0.div_ceil(TICKS)))
}

/// Time line of a mode for the first seed. Counts are per second and latencies in nanoseconds.
/// `cpu`: CPUs that host threads used; `gathered`: naps to coalesce completions; `tried`: periods
/// in which `adaptive` tried another action.
fn timeline(scenario: &Scenario, mode: &str, scene: &Scene, outcome: &Outcome) -> Option<Value> {
    // Only a load that changes has a time line.
    let every = ticks(scenario).filter(|_| !outcome.ticks.is_empty())?;
    let unit = 1.0 / every.as_secs_f64();
    let tick = |(at, tick): (usize, &::sim::Tick)| {
        let rate = |count: u64| count as f64 * unit;
        // The offered IOPS in the middle of the tick.
        let middle = Nanos(at as u64 * every.0 + every.0 / 2);
        let offered =
            |spec: &JobSpec| spec.phase_at(middle) as f64 * f64::from(spec.job.numjobs.max(1));
        json!({
            "offered": scenario.jobs.iter().map(offered).sum::<f64>(),
            "iops": rate(tick.counts.completed),
            "cpu": tick.cpu.as_secs_f64() * unit,
            "p50": tick.p50 as f64,
            "p99": tick.p99 as f64,
            "polls": rate(tick.counts.polls),
            "empty_polls": rate(tick.counts.empty_polls),
            "spins": rate(tick.spins),
            "naps": rate(tick.counts.naps),
            "sleeps": rate(tick.counts.sleeps),
            "gathered": rate(tick.decisions.gathered),
            "tried": rate(tick.decisions.tried),
        })
    };
    let ticks: Vec<Value> = outcome.ticks.iter().enumerate().map(tick).collect();
    Some(merged([
        json!({ "mode": mode }),
        json!(scene),
        json!({ "tick_ns": every.0, "ticks": ticks }),
    ]))
}

/// The row of one mode: medians over seeds, with intervals if there are enough seeds.
pub fn row(
    mode: String,
    scene: &Scene,
    runs: &[&Outcome],
    rng: &mut Xoshiro256PlusPlus,
) -> Option<Row> {
    let of =
        |figure: &dyn Fn(&Outcome) -> f64| runs.iter().map(|run| figure(run)).collect::<Vec<f64>>();
    let median = |figure: &dyn Fn(&Outcome) -> f64| statistics::median(&of(figure)).unwrap_or(0.0);
    let rate = |count: fn(&Outcome) -> u64| median(&|run| run.per_second(count(run)));
    // Share of the time of all CPUs, in per cent.
    let share = |part: fn(&CpuOutcome) -> Nanos| {
        median(&|run| {
            let all: u64 =
                run.cpus.iter().map(|cpu| (cpu.hard + cpu.soft + cpu.thread + cpu.idle).0).sum();
            let part: u64 = run.cpus.iter().map(|cpu| part(cpu).0).sum();
            if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
        })
    };
    let (hard, soft, thread, idle) = (
        share(|cpu| cpu.hard),
        share(|cpu| cpu.soft),
        share(|cpu| cpu.thread),
        share(|cpu| cpu.idle),
    );
    let away =
        runs.iter().flat_map(|run| &run.cpus).map(|cpu| cpu.longest_away).max().unwrap_or_default();
    let mut extra = json!({
        "seeds": runs.len(),
        "interrupts_per_s": rate(|run| run.all_cpus.interrupts),
        "notifications_per_s": rate(|run| run.all_cpus.notifications),
        "softirqs_per_s": rate(|run| run.all_cpus.softirqs),
        "sq_doorbells_per_s": rate(|run| run.sq_doorbells),
        "context_switches_per_s": rate(|run| run.all_cpus.context_switches),
        "waits_over_at_once_per_s": rate(|run| run.counts.returned_at_once),
        "cpu_pct": { "hard": hard, "soft": soft, "thread": thread, "idle": idle },
        "longest_away_ns": away.0,
    });
    // Counts of decisions are summed over all seeds.
    let decisions = runs.iter().filter_map(|run| run.decisions).reduce(|mut all, decisions| {
        all.add(&decisions);
        all
    });
    if let Some(state) = runs.first().and_then(|run| run.state) {
        extra["state"] = json!(state.to_string());
    }
    if let Some(decisions) = decisions {
        extra["decisions"] =
            decisions.named().map(|(name, count)| (name, json!(count))).into_iter().collect();
    }
    // Where devices share an interrupt path: waiting and holding times per message, in nanoseconds.
    let shared: Vec<_> = runs.iter().map(|run| run.way).filter(|way| way.messages > 0).collect();
    if !shared.is_empty() {
        let of = |figure: &dyn Fn(usize) -> u64| {
            statistics::median(
                &(0..shared.len())
                    .map(|at| figure(at) as f64 / shared[at].messages as f64)
                    .collect::<Vec<f64>>(),
            )
        };
        extra["interrupt_path"] = json!({ "wait_ns": of(&|at| shared[at].waited.0), "held_ns": of(&|at| shared[at].held.0) });
    }
    // Path errors are summed over all seeds; longest times are the maximum.
    let failover = runs
        .iter()
        .filter(|run| !run.paths.is_empty())
        .map(|run| run.failover)
        .reduce(FailoverCounters::merged);
    if let Some(FailoverCounters {
        retried,
        failed_over,
        held,
        longest_hold,
        waited,
        longest_stall,
        failed,
        ..
    }) = failover
    {
        extra["failover"] = json!({
            "retried": retried, "failed_over": failed_over, "held": held, "longest_hold_ns": longest_hold.0, "waited": waited,
            "longest_stall_ns": longest_stall.0, "failed": failed,
        });
    }
    let figures = |run: &&Outcome| -> Vec<PathStats> {
        let of_path = |path: &PathOutcome| PathStats {
            device: String::new(),
            path: path.device.clone(),
            state: path.status.to_string(),
            ios: path.ios,
            failed: path.failed,
            // Little's law: total latency per time is the mean number in flight.
            in_flight: path.time.0 as f64 / run.elapsed.0.max(1) as f64,
            lat_ns: path.time.0.checked_div(path.ios).unwrap_or(0),
        };
        run.paths.iter().map(of_path).collect()
    };
    let paths: Vec<Vec<PathStats>> = runs.iter().map(figures).collect();
    let mut moments = Moments::default();
    runs.iter().for_each(|run| moments.merge(&run.latency.moments));
    let histograms: Vec<&Histogram> =
        runs.iter().filter_map(|run| run.latency.histogram.as_ref()).collect();
    let wakeups = rate(|run| run.counts.wakeups);
    // A run without wake-ups has no value; if most runs have none, neither has the row.
    let per_wakeup: Vec<f64> = runs
        .iter()
        .filter(|_| wakeups > 0.0)
        .filter_map(|run| run.completions_per_wakeup())
        .collect();
    Some(Row {
        mode,
        scene: scene.clone(),
        iops: statistics::estimate(&of(&|run| run.iops()), rng),
        cpu: statistics::estimate(&of(&|run| run.cpu_ns_per_io()), rng),
        messages: rate(|run| run.messages),
        wakeups,
        per_wakeup: statistics::median(&per_wakeup).unwrap_or(0.0),
        drain_max: runs.iter().map(|run| run.counts.entries_per_drain_max).max()?,
        latency: statistics::latencies(&moments, &histograms, rng),
        paths: merge_spans(&paths.iter().map(Vec::as_slice).collect::<Vec<_>>()),
        extra: extra.as_object().cloned().unwrap_or_default(),
        ..Row::default()
    })
}

/// Ratios of all pairs of modes, paired by seed.
fn pairs(
    modes: &[Contender],
    scene: &Scene,
    rounds: &[&[Option<Outcome>]],
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<Pair> {
    type Figure = fn(&Outcome) -> Option<f64>;
    let figures: [(&'static str, Figure); 4] = [
        (IOPS, |o| Some(o.iops())),
        (CPU, |o| Some(o.cpu_ns_per_io())),
        (P50, |o| o.latency.histogram.as_ref()?.percentiles(&[50.0]).first().map(|&p| p as f64)),
        (SCORE, |o| {
            let moments = &o.latency.moments;
            score(Some(o.cpu_ns_per_io()), (moments.n > 0).then(|| moments.mean()), o.iops())
        }),
    ];
    let labels: Vec<&str> = modes.iter().map(|mode| mode.label.as_str()).collect();
    let mut pairs = Vec::new();
    for (figure, of) in figures {
        let values: Vec<Vec<Option<f64>>> = (0..modes.len())
            .map(|at| rounds.iter().map(|round| of(round.get(at)?.as_ref()?)).collect())
            .collect();
        pairs.append(&mut statistics::pairs(scene, &labels, figure, &values, rng));
    }
    pairs
}

/// One line about the simulated machine.
pub fn machine(scenario: &Scenario) -> String {
    let machine = &scenario.machine;
    let nodes =
        if machine.nodes > 1 { format!(" on {} nodes", machine.nodes) } else { String::new() };
    let cpus =
        if machine.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", machine.cpus) };
    let host = match scenario.host {
        HostStack::User => "Reap in user space",
        HostStack::Kernel => "the kernel's block layer",
    };
    let posted = if machine.posted { ", posted MSI" } else { "" };
    format!(
        "{cpus}{nodes}{posted}; {host} drives {} device{}",
        scenario.devices.len(),
        if scenario.devices.len() == 1 { "" } else { "s" }
    )
}

/// Notes on how to read the figures.
fn notes(scenario: &Scenario, seeds: usize) -> Vec<String> {
    let medians =
        format!("Medians over {seeds} seeds (latencies: percentiles of all seeds together)");
    let intervals = match seeds {
        ..=1 => format!("One seed, {}: --seeds {FEWEST} gives intervals.", scenario.seed),
        2..FEWEST => format!("{medians}; an interval takes {FEWEST}."),
        _ => format!("{medians}, ± half of their 95 % interval."),
    };
    let paced = scenario.jobs.iter().filter(|spec| is_paced(spec)).count();
    // Jobs with a rate measure from the intended start, others from the decision to issue.
    let from = match paced {
        0 => "decision to issue",
        n if n == scenario.jobs.len() => "intended start",
        _ => "intended start (of jobs without a rate: from the decision to issue)",
    };
    vec![format!(
        "Virtual time. {intervals} CPU: of all CPUs, interrupts included, the application's own work not. Latencies: from the {from} until \
         the completion was found; a percentile is shown if 20 samples lie above it."
    )]
}

/// The output of `reap sim` in lines of `width` characters: the table of `compare`, and with `wide`
/// the use of CPUs and the decisions of policies.
pub fn show(results: &Results, machine: &str, width: u16, wide: bool) -> String {
    let number = |row: &Row, pointer: &str| {
        Value::Object(row.extra.clone()).pointer(pointer).and_then(Value::as_f64)
    };
    let mut notes = vec![format!("{machine}.")];
    let mut cpus = String::new();
    // Shares of CPU time do not fit next to the columns of `compare`, so they are a second table.
    if wide {
        type Shown = fn(f64) -> String;
        let thousands: Shown = |n| table::digits(n / 1e3);
        let part: Shown = |pct| format!("{pct:.1}");
        let columns = [
            ("IRQ\nk/s", "/interrupts_per_s", thousands),
            ("softirq\nk/s", "/softirqs_per_s", thousands),
            ("switches\nk/s", "/context_switches_per_s", thousands),
            ("hard\n%", "/cpu_pct/hard", part),
            ("soft\n%", "/cpu_pct/soft", part),
            ("thread\n%", "/cpu_pct/thread", part),
            ("idle\n%", "/cpu_pct/idle", part),
            ("longest away\nµs", "/longest_away_ns", thousands),
        ];
        let cells = |row: &Row| {
            let cells = columns
                .iter()
                .map(|(_, pointer, shown)| number(row, pointer).map_or("–".into(), shown));
            std::iter::once(row.mode.clone()).chain(cells).collect()
        };
        let headers = std::iter::once("mode").chain(columns.iter().map(|(header, ..)| *header));
        cpus = table::unruled(headers, results.rows.iter().map(cells).collect()).trim_fmt() + "\n";
        notes.push(
            "Shares are of all CPUs' time; longest away: the longest that interrupts and softirqs kept a CPU from its threads.".into(),
        );
        // `adaptive` counts its decisions; other modes have none.
        for row in &results.rows {
            let Some(decisions) = row.extra.get("decisions").and_then(Value::as_object) else {
                continue;
            };
            let counts: Vec<String> = decisions
                .iter()
                .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
                .collect();
            notes.push(format!("{} decided: {}.", row.mode, counts.join(", ")));
            notes.extend(
                row.extra
                    .get("state")
                    .and_then(Value::as_str)
                    .map(|state| format!("{} in the end: {state}.", row.mode)),
            );
        }
    }
    // Multipath: print retries only if a request was delayed by them.
    for row in &results.rows {
        let of = |key: &str| number(row, &format!("/failover/{key}")).unwrap_or(0.0);
        let ms = |key: &str| table::digits(of(key) / 1e6);
        if of("longest_stall_ns") > 0.0 {
            notes.push(format!(
                "{}: {} requests went another way, {} waited for a path, {} writes for their controller ({} ms at most); the longest stall \
                 was {} ms.",
                row.mode,
                of("failed_over") + of("retried"),
                of("waited"),
                of("held"),
                ms("longest_hold_ns"),
                ms("longest_stall_ns")
            ));
        }
    }
    notes.extend(results.notes.iter().cloned());
    table::show(&Results { notes, ..results.clone() }, width, wide, &cpus)
}
