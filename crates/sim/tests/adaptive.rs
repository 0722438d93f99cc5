//! What `adaptive` reaches in virtual time, on both price lists.

use completion::{LatencyPrice, Mode};
use emu::Profile;
use sim::{Costs, Outcome, Scenario, closed_loop, open_loop};
use units::Nanos;
use workload::{Job, RateProcess, RatePhase};

const BOTH: [(&str, Costs); 2] = [("bare metal", Costs::BARE_METAL), ("virtual", Costs::VIRTUAL)];

fn run(mode: Mode, costs: Costs, profile: Profile, job: Job) -> Outcome {
    let mut scenario = Scenario::new(mode, profile, job);
    scenario.machine.costs = costs;
    scenario.run().unwrap_or_else(|error| panic!("{mode}: {error}"))
}

/// The objection to polling in the interrupt's place (SOURCES, 001): the common case is one command per interrupt.
#[test]
fn irq_poll_is_dear_at_qd1() {
    for (name, costs) in BOTH {
        for profile in [Profile::optane(), Profile::tlc()] {
            let run = |mode| run(mode, costs, profile.clone(), closed_loop(1, 10_000));
            let [interrupt, irq_poll, adaptive] = [Mode::INTERRUPT, Mode::IRQ_POLL, Mode::ADAPTIVE].map(run);
            let cost = |outcome: &Outcome| outcome.cpu_ns_per_io() + LatencyPrice::default().rate() * outcome.read_latency().mean;
            let name = format!("{name} {}", profile.name);
            println!(
                "{name}: interrupt {:.0}, irq-poll {:.0}, adaptive {:.0} ns per I/O",
                interrupt.cpu_ns_per_io(),
                irq_poll.cpu_ns_per_io(),
                adaptive.cpu_ns_per_io()
            );
            assert!(irq_poll.cpu_ns_per_io() > interrupt.cpu_ns_per_io(), "{name}");
            assert!(cost(&adaptive) <= 1.005 * cost(&interrupt), "{name}: {} {}", cost(&adaptive), cost(&interrupt));
        }
    }
}

/// The low end of the knob is poll's latency for no more than its CPU time, the high end no dearer than interrupts.
#[test]
fn knob_spans_poll_to_interrupt() {
    for (name, costs) in BOTH {
        for (depth, rate) in [(1, 20_000), (32, 100_000)] {
            let job = || Job { iodepth: depth, ..open_loop(rate, 10_000) };
            let at = |mode| run(mode, costs, Profile::optane(), job());
            let (poll, interrupt) = (at(Mode::POLL), at(Mode::INTERRUPT));
            let (low, high) = (at(Mode::adaptive(LatencyPrice::UNLIMITED)), at(Mode::adaptive(LatencyPrice::NONE)));
            let p99 = |outcome: &Outcome| outcome.intended_read_latency().p99 as f64;
            assert!(p99(&low) <= 1.05 * p99(&poll), "{name} depth {depth}: {} {}", p99(&low), p99(&poll));
            assert!(low.cpu_ns_per_io() <= 1.05 * poll.cpu_ns_per_io(), "{name}: {} {}", low.cpu_ns_per_io(), poll.cpu_ns_per_io());
            let (high, interrupt) = (high.cpu_ns_per_io(), interrupt.cpu_ns_per_io());
            assert!(high <= 1.05 * interrupt, "{name} depth {depth}: {high} {interrupt}");
        }
    }
}

#[test]
fn saturated_adaptive_matches_poll() {
    for (name, costs) in BOTH {
        for depth in [32, 128] {
            let at = |mode| run(mode, costs, Profile::optane(), closed_loop(depth, 20_000));
            let (poll, adaptive) = (at(Mode::POLL), at(Mode::ADAPTIVE));
            assert!(adaptive.iops() >= 0.98 * poll.iops(), "{name} depth {depth}: {} {}", adaptive.iops(), poll.iops());
            assert!(adaptive.counts.entries_per_drain_max <= 256);
        }
    }
}

/// At the low end of the knob the tail is that of the better of `poll` and `interrupt`, with 10 % to spare; at the default it does not grow with
/// the run.
#[test]
fn tail_matches_the_better_mode() {
    for (name, costs) in BOTH {
        for profile in [Profile::optane(), Profile::tlc(), Profile::bimodal()] {
            for depth in [1, 32] {
                let capacity = run(Mode::POLL, costs, profile.clone(), closed_loop(depth, 10_000)).iops();
                for load in [10, 50, 90] {
                    let job = || Job { iodepth: depth, ..open_loop((capacity * f64::from(load) / 100.0) as u64, 30_000) };
                    let tail = |mode| run(mode, costs, profile.clone(), job()).intended_read_latency().p999 as f64;
                    let better = tail(Mode::POLL).min(tail(Mode::INTERRUPT));
                    let [low, usual] = [Mode::adaptive(LatencyPrice::UNLIMITED), Mode::ADAPTIVE].map(|mode| tail(mode) / better);
                    let cell = format!("{name} {} depth {depth} load {load}", profile.name);
                    println!("{cell}: p99.9 {low:.3} of {:.1} µs, {usual:.3} at the default price", better / 1e3);
                    assert!(low <= 1.1, "{cell}: {low}");
                    // Where `interrupt` does not keep up it takes a while to see that.
                    assert!(usual <= 5.0, "{cell}: {usual} at the default price");
                }
            }
        }
    }
}

/// With one in flight a sleep takes so much longer than the device that sleeping does not keep up with a caller with whom `poll`
/// does: at the default price it stays awake then, and late ones are found as with `poll` but for what it takes to see that.
#[test]
fn adaptive_keeps_up_with_poll() {
    for (costs, profile, rate) in [(Costs::BARE_METAL, Profile::optane(), 85_000), (Costs::VIRTUAL, Profile::tlc(), 11_000)] {
        for process in [RateProcess::Linear, RateProcess::Poisson] {
            let job = || Job { iodepth: 1, rate_process: process, ..open_loop(rate, 30_000) };
            let run = |mode| run(mode, costs, profile.clone(), job());
            let [poll, interrupt, adaptive] = [Mode::POLL, Mode::INTERRUPT, Mode::ADAPTIVE].map(run);
            let cell = format!("{} at {rate} ({process:?})", profile.name);
            println!("{cell}: {:.0}, {:.0}, {:.0} IOPS", poll.iops(), interrupt.iops(), adaptive.iops());
            assert!(interrupt.iops() < 0.95 * poll.iops(), "{cell}: sleeping would do");
            assert!(adaptive.iops() > 0.99 * poll.iops(), "{cell}: {} of {}", adaptive.iops(), poll.iops());
            assert!(adaptive.cpu_ns_per_io() < 2.0 * interrupt.cpu_ns_per_io(), "{cell}: {}", adaptive.cpu_ns_per_io());
        }
    }
}

/// After each step in load, what an I/O costs is within 15 % of what it costs in the end, from 10 ms on. The same seed gives
/// the same beginning, so that runs of different lengths have windows of time for their differences.
#[test]
fn adaptive_settles_within_ten_milliseconds() {
    const STEP: u64 = 40_000_000;
    const WINDOW: u64 = 5_000_000;
    for (name, costs) in BOTH {
        for (from, to) in [(0.1, 0.9), (0.9, 0.1)] {
            let stretches = [from, to].map(|share| RatePhase { span: Nanos(STEP), share }).to_vec();
            let until = |time: u64| {
                let job =
                    Job { iodepth: 32, runtime: Some(Nanos(time)), rate_phases: stretches.clone(), ..open_loop(400_000, u64::MAX) };
                let outcome = run(Mode::ADAPTIVE, costs, Profile::optane(), job);
                (outcome.cpu_ns_per_io() * outcome.counts.completed as f64, outcome.counts.completed as f64)
            };
            let ends: Vec<(f64, f64)> = (0..=STEP / WINDOW).map(|n| until(STEP + n * WINDOW)).collect();
            let cost: Vec<f64> = ends.windows(2).map(|pair| (pair[1].0 - pair[0].0) / (pair[1].1 - pair[0].1)).collect();
            let (last, half) = (cost.len() as f64 / 2.0, cost.len() / 2);
            let settled = cost[half..].iter().sum::<f64>() / last;
            let text: Vec<String> = cost.iter().map(|cost| format!("{cost:.0}")).collect();
            println!("{name}: {from} to {to} of 400k IOPS: {} ns per I/O in windows of 5 ms", text.join(", "));
            for cost in &cost[2..] {
                assert!((cost / settled - 1.0).abs() <= 0.15, "{name} {from} to {to}: {text:?}");
            }
        }
    }
}

/// However much waits: entries per drain within the overall budget, and the CPU away from its thread's other work for no
/// longer than 100 µs.
#[test]
fn drains_stay_under_100_us() {
    for (name, costs) in BOTH {
        for depth in [128, 1_024] {
            for mode in [Mode::ADAPTIVE, Mode::adaptive(LatencyPrice::NONE)] {
                let outcome = run(mode, costs, Profile::null(), closed_loop(depth, 50_000));
                let entries = u64::from(outcome.counts.entries_per_drain_max);
                let (library, memory) = (&costs.library, &costs.memory);
                let lines = memory.device_line.max(memory.line_node);
                // Four entries have one line; the tag, the doorbell, and the look after it come on top.
                let looks = entries.div_ceil(64);
                let each = library.entry.0 + library.deliver.0 + lines.0 / 4 + memory.line_own.0;
                let drain = entries * each + looks * (library.reap.0 + library.look.0 + memory.mmio.0);
                println!("{name} depth {depth} {mode}: at most {entries} entries in a drain, {drain} ns");
                assert!(entries <= 256 && drain <= 100_000, "{name} depth {depth}: {entries} entries, {drain} ns");
            }
        }
    }
}
