//! What `adaptive` reaches in virtual time, on both price lists.

use completion::{LatencySlack, Mode};
use device::Profile;
use sim::{Costs, Outcome, Scenario, closed_loop, open_loop};
use workload::Job;

const BOTH: [(&str, Costs); 2] = [("bare metal", Costs::BARE_METAL), ("virtual", Costs::VIRTUAL)];

fn run(mode: Mode, slack: LatencySlack, costs: Costs, profile: Profile, job: Job) -> Outcome {
    let mut scenario = Scenario { latency_slack: slack, ..Scenario::new(mode, profile, job) };
    scenario.machine.costs = costs;
    scenario.run().unwrap_or_else(|error| panic!("{mode}: {error}"))
}

/// The objection to polling in the interrupt's place (SOURCES, 001): the common case is one command per interrupt.
#[test]
fn at_one_command_per_interrupt_irq_poll_is_dearer_and_adaptive_is_not() {
    for (name, costs) in BOTH {
        for profile in [Profile::optane(), Profile::tlc()] {
            let cpu = |mode| run(mode, LatencySlack::default(), costs, profile.clone(), closed_loop(1, 10_000)).cpu_ns_per_io();
            let (interrupt, irq_poll, adaptive) = (cpu(Mode::INTERRUPT), cpu(Mode::IRQ_POLL), cpu(Mode::ADAPTIVE));
            println!("{name} {}: interrupt {interrupt:.0}, irq-poll {irq_poll:.0}, adaptive {adaptive:.0} ns per I/O", profile.name);
            assert!(irq_poll > interrupt, "{name}: {irq_poll} {interrupt}");
            assert!(adaptive <= 1.02 * irq_poll, "{name}: {adaptive} {irq_poll}");
        }
    }
}

/// The low end of the knob is poll's latency for no more than its CPU time, the high end no dearer than interrupts.
#[test]
fn the_knob_reaches_from_poll_to_interrupts() {
    for (name, costs) in BOTH {
        for (depth, rate) in [(1, 20_000), (32, 100_000)] {
            let job = || Job { iodepth: depth, ..open_loop(rate, 10_000) };
            let at = |mode, slack| run(mode, slack, costs, Profile::optane(), job());
            let (poll, interrupt) = (at(Mode::POLL, LatencySlack::NONE), at(Mode::INTERRUPT, LatencySlack::NONE));
            let (low, high) = (at(Mode::ADAPTIVE, LatencySlack::NONE), at(Mode::ADAPTIVE, LatencySlack::UNLIMITED));
            let p99 = |outcome: &Outcome| outcome.intended_read_latency().p99 as f64;
            assert!(p99(&low) <= 1.05 * p99(&poll), "{name} depth {depth}: {} {}", p99(&low), p99(&poll));
            assert!(low.cpu_ns_per_io() <= 1.05 * poll.cpu_ns_per_io(), "{name}: {} {}", low.cpu_ns_per_io(), poll.cpu_ns_per_io());
            let (high, interrupt) = (high.cpu_ns_per_io(), interrupt.cpu_ns_per_io());
            assert!(high <= 1.05 * interrupt, "{name} depth {depth}: {high} {interrupt}");
        }
    }
}

#[test]
fn at_saturation_it_finds_as_much_as_poll_and_drains_within_its_budget() {
    for (name, costs) in BOTH {
        for depth in [32, 128] {
            let at = |mode| run(mode, LatencySlack::default(), costs, Profile::optane(), closed_loop(depth, 20_000));
            let (poll, adaptive) = (at(Mode::POLL), at(Mode::ADAPTIVE));
            assert!(adaptive.iops() >= 0.98 * poll.iops(), "{name} depth {depth}: {} {}", adaptive.iops(), poll.iops());
            assert!(adaptive.entries_per_drain_max <= 256);
        }
    }
}
