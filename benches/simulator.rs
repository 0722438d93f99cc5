//! How fast the simulator is: simulated I/Os per second of one core, clocked, and instructions per
//! simulated I/O, counted by callgrind: `cargo bench -p reap-sim --bench simulator`. Bring-up is in
//! both, spread over the I/Os.
//!
//! Clocked figures are medians of runs, with the slowest and the fastest; on a machine that has
//! other things to do only the instructions mean anything. Needs valgrind for those.

mod callgrind;

use std::process::ExitCode;
use std::time::Instant;

use completion::Mode;
use emu::Profile;
use sim::{DeviceSpec, HostStack, JobSpec, Machine, Scenario, closed_loop};

/// Clocked runs of each case.
const RUNS: usize = 5;

/// I/Os of a clocked run, and of one under callgrind.
const CLOCKED: u64 = 200_000;
const COUNTED: u64 = 20_000;

const MODES: [Mode; 4] = [Mode::INTERRUPT, Mode::IRQ_POLL, Mode::POLL, Mode::ADAPTIVE];

/// A machine, what is aimed at on it in I/Os per second, and the scenario of a mode with about this
/// many I/Os.
struct Shape {
    name: &'static str,
    goal: f64,
    scenario: fn(Mode, u64) -> Scenario,
}

const SHAPES: [Shape; 4] = [
    Shape {
        name: "1 CPU, 1 device",
        goal: 1e6,
        scenario: |mode, ios| Scenario::new(mode, Profile::optane(), closed_loop(32, ios)),
    },
    Shape {
        name: "1 CPU, 1 device, QD 1",
        goal: 1e6,
        scenario: |mode, ios| Scenario::new(mode, Profile::optane(), closed_loop(1, ios)),
    },
    Shape { name: "80 CPUs, 8 queues", goal: 3e5, scenario: |mode, ios| server(mode, ios, 1) },
    Shape { name: "80 CPUs, 8 x 8 queues", goal: 3e5, scenario: |mode, ios| server(mode, ios, 8) },
];

/// 80 CPUs on two nodes under the kernel's block layer, a thread on each, on drives with 8 queues.
fn server(mode: Mode, ios: u64, drives: usize) -> Scenario {
    let mut job = closed_loop(16, ios.div_ceil(80));
    job.numjobs = 80;
    job.filenames = (0..drives).map(|n| format!("nvme{n}")).collect();
    let devices = job
        .filenames
        .iter()
        .map(|name| DeviceSpec::new(name, Profile::optane()).with_queues(8))
        .collect();
    let base = Scenario::new(mode, Profile::optane(), closed_loop(1, 1));
    Scenario {
        machine: Machine::new(80, 2),
        host: HostStack::Kernel,
        devices,
        jobs: vec![JobSpec::new(job)],
        ..base
    }
}

fn main() -> ExitCode {
    match callgrind::case() {
        Some(case) => {
            let (shape, mode) =
                (&SHAPES[case / MODES.len() % SHAPES.len()], MODES[case % MODES.len()]);
            counted_run(&(shape.scenario)(mode, COUNTED));
            ExitCode::SUCCESS
        }
        None => measure(),
    }
}

fn measure() -> ExitCode {
    println!(
        "{:<22} {:<10} {:>8} {:>15} {:>6} {:>16}",
        "", "mode", "kI/O/s", "min - max", "goal", "instructions/I/O"
    );
    let mut missing = false;
    for (at, shape) in SHAPES.iter().enumerate() {
        for (n, mode) in MODES.into_iter().enumerate() {
            let scenario = (shape.scenario)(mode, CLOCKED);
            let mut rates: Vec<f64> = (0..RUNS).map(|_| rate(&scenario)).collect();
            rates.sort_by(f64::total_cmp);
            let [min, median, max] = [0, RUNS / 2, RUNS - 1].map(|at| rates[at] / 1e3);
            let instructions = callgrind::count(at * MODES.len() + n, "counted_run");
            missing |= instructions.is_none();
            let instructions = instructions
                .map_or("?".to_owned(), |count| format!("{:.0}", count as f64 / COUNTED as f64));
            let (range, goal) = (format!("{min:.0} - {max:.0}"), shape.goal / 1e3);
            println!(
                "{:<22} {mode:<10} {median:>8.0} {range:>15} {goal:>6.0} {instructions:>16}",
                shape.name
            );
        }
    }
    if missing { callgrind::missing() } else { ExitCode::SUCCESS }
}

/// I/Os per second of one run.
fn rate(scenario: &Scenario) -> f64 {
    let began = Instant::now();
    let completed = counted_run(scenario);
    completed as f64 / began.elapsed().as_secs_f64()
}

#[inline(never)]
fn counted_run(scenario: &Scenario) -> u64 {
    scenario.run().expect("it runs").counts.completed
}
