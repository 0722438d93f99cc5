//! How long `adaptive` takes to adapt: after the start of a run, and after a step in the load.

use anyhow::Result;
use completion::{DelayExponent, Mode};
use emu::Profile;
use sim::{Costs, Scenario, SimError, closed_loop, open_loop};
use units::Nanos;
use workload::{Job, RatePhase};

use crate::output;

/// `adaptive` has adapted when the cost of an I/O is within this fraction of its final value. The
/// cost is the weighted geometric mean of CPU time per I/O (C) and median latency (L);
/// [`DelayExponent::cost`] returns its logarithm.
const WITHIN: f64 = 0.10;
/// Limits: `adaptive` must adapt within this time or this number of completions, whichever is
/// longer.
const MAX_TIME: Nanos = Nanos::from_millis(20);
const MAX_COMPLETIONS: u64 = 2_000;
/// Number of ticks (intervals in which the simulator samples its statistics) of each phase of
/// constant load, and the length of a tick.
const TICKS: usize = 60;
const TICK: Nanos = Nanos::from_millis(5);

/// A run with one step: its start, or a change of the load.
pub struct StepRun {
    name: String,
    scenario: Scenario,
    /// Index of the tick at which the step is.
    at: usize,
}

/// How long `adaptive` took to adapt; the whole run after the step if it never did.
pub struct Adapted {
    /// From the step, in whole ticks.
    pub time: Nanos,
    /// Completions in this time.
    pub completions: u64,
}

/// The steps: starts of closed loops, and open loops with a load that rises or falls.
pub fn steps() -> Vec<StepRun> {
    let mut all = Vec::new();
    for (machine, costs) in [("bare-metal", Costs::BARE_METAL), ("vm", Costs::VIRTUAL)] {
        for profile in [Profile::optane(), Profile::tlc()] {
            let runtime = |ticks: usize| Some(Nanos(TICK.0 * ticks as u64));
            let scenario = |job: Job, ticks: usize| {
                let job = Job { runtime: runtime(ticks), time_based: true, ..job };
                let scenario =
                    Scenario::new(Mode::ADAPTIVE, profile.clone(), job).with_costs(costs);
                Scenario { ticks: Some(TICK), ..scenario }
            };
            for depth in [1, 32] {
                let name = format!("{machine} {} closed qd={depth}: start", profile.name);
                all.push(StepRun {
                    name,
                    scenario: scenario(closed_loop(depth, u64::MAX), TICKS),
                    at: 0,
                });
            }
            let rate = if profile.name == "optane" { 200_000 } else { 100_000 };
            for (name, from, to) in [("load rises", 0.1, 0.9), ("load falls", 0.9, 0.1)] {
                let phases = [from, to]
                    .map(|share| RatePhase { span: Nanos(TICK.0 * TICKS as u64), share })
                    .to_vec();
                let job = Job { iodepth: 32, rate_phases: phases, ..open_loop(rate, u64::MAX) };
                let name = format!("{machine} {} open qd=32: {name}", profile.name);
                all.push(StepRun { name, scenario: scenario(job, 2 * TICKS), at: TICKS });
            }
        }
    }
    all
}

impl StepRun {
    /// Runs the scenario. The cost of each tick is compared with the final value: the median cost
    /// of the last half of the ticks.
    ///
    /// # Errors
    /// The run breaks an invariant.
    pub fn run(&self) -> Result<Adapted, SimError> {
        let outcome = self.scenario.run()?;
        let ticks = &outcome.ticks[self.at.min(outcome.ticks.len())..];
        let log_cost = |tick: &sim::Tick| {
            let n = tick.counts.completed.max(1) as f32;
            f64::from(
                DelayExponent::DEFAULT.cost(tick.cpu.0 as f32 / n, (tick.p50 as f32).max(1.0)),
            )
        };
        let costs: Vec<f64> = ticks.iter().map(log_cost).collect();
        let mut last = costs[costs.len() / 2..].to_vec();
        last.sort_by(f64::total_cmp);
        let settled = last.get(last.len() / 2).copied().unwrap_or_default();
        // Three ticks in a row, since a single one may match by chance. Costs are logarithms, so
        // ln(1 + WITHIN) is the difference of a fraction WITHIN.
        let adapted = costs
            .windows(3)
            .position(|three| three.iter().all(|cost| (cost - settled).abs() <= WITHIN.ln_1p()));
        let adapted = adapted.unwrap_or(ticks.len());
        let completions = ticks[..adapted].iter().map(|tick| tick.counts.completed).sum();
        Ok(Adapted { time: Nanos(TICK.0 * adapted as u64), completions })
    }
}

impl Adapted {
    /// Whether `adaptive` adapted within the limits, plus one tick of resolution.
    pub fn is_in_time(&self) -> bool {
        self.time <= MAX_TIME + TICK || self.completions <= MAX_COMPLETIONS
    }
}

/// The table of all steps.
///
/// # Errors
/// A run breaks an invariant.
pub fn table() -> Result<String> {
    let steps = steps();
    let ran =
        output::each("steps", &steps, StepRun::run).into_iter().collect::<Result<Vec<_>, _>>()?;
    let rows = steps.iter().zip(&ran).map(|(step, adapted)| {
        let verdict = if adapted.is_in_time() { "in time" } else { "late" };
        vec![
            step.name.clone(),
            verdict.to_owned(),
            (adapted.time.0 / 1_000_000).to_string(),
            adapted.completions.to_string(),
        ]
    });
    Ok(output::table(&["step", "verdict", "ms to within 10 %", "completions"], 2, rows))
}
