//! The scenarios of crowded machines that ship, cut short: the order of modes that they show, not the figures.

use completion::Mode;
use sim::{Outcome, Scenario};
use units::Nanos;

const EIGHT: (&str, &str) = ("eight-drives.toml", include_str!("../../../scenarios/eight-drives.toml"));
const TEN: (&str, &str) = ("ten-drives-vm.toml", include_str!("../../../scenarios/ten-drives-vm.toml"));
const CROWDED: (&str, &str) = ("crowded-poll.toml", include_str!("../../../scenarios/crowded-poll.toml"));
const ROOMY: (&str, &str) = ("roomy-poll.toml", include_str!("../../../scenarios/roomy-poll.toml"));

/// What comes of a scenario under a mode, in so many microseconds after as many, changed a little.
fn changed((name, text): (&str, &str), mode: &str, micros: u64, change: impl Fn(&mut Scenario)) -> Outcome {
    let read = sim::file::read(name, text, &workload::fio::Nothing);
    let mut scenario = read.unwrap_or_else(|error| panic!("{error}")).scenario;
    scenario.mode = mode.parse::<Mode>().unwrap();
    for spec in &mut scenario.jobs {
        (spec.job.runtime, spec.job.ramp_time) = (Some(Nanos::from_micros(micros)), Nanos::from_micros(micros));
    }
    change(&mut scenario);
    scenario.run().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn shown(file: (&str, &str), mode: &str, micros: u64) -> Outcome {
    changed(file, mode, micros, |_| {})
}

/// Twice the drives on a socket's unit do no more by interrupts; with a bit for each message they do.
#[test]
fn eight_drives_do_what_four_do_unless_messages_are_posted() {
    let four = |scenario: &mut Scenario| {
        scenario.devices.truncate(4);
        scenario.jobs.truncate(4);
    };
    let (eight, posted) = (shown(EIGHT, "interrupt", 2_000), shown(EIGHT, "posted", 2_000));
    let half = changed(EIGHT, "interrupt", 2_000, four);
    assert!(eight.iops() < 1.1 * half.iops(), "{} {}", eight.iops(), half.iops());
    assert!(posted.iops() > 1.2 * eight.iops(), "{} {}", posted.iops(), eight.iops());
    assert!(changed(EIGHT, "posted", 2_000, four).iops() > 0.9 * posted.iops(), "four drives posted are as many");
    // What the unit can tell, it tells, and no more: 155 ns each.
    for outcome in [&eight, &posted] {
        let told = outcome.per_second(outcome.interrupts) * 155e-9;
        assert!((0.9..=1.01).contains(&told), "{told}");
    }
    assert!(eight.way.held.0 / eight.way.messages > posted.way.held.0 / posted.way.messages);
}

#[test]
fn hybrid_polling_is_best_in_a_crowd_and_polling_is_worst() {
    let iops = |file, mode| shown(file, mode, 20_000).iops();
    let [interrupt, hybrid, poll] = ["interrupt", "hybrid-mean", "poll"].map(|mode| iops(CROWDED, mode));
    assert!(hybrid > interrupt && interrupt > 1.5 * poll, "{hybrid} {interrupt} {poll}");
    let [interrupt, hybrid, poll] = ["interrupt", "hybrid-mean", "poll"].map(|mode| iops(ROOMY, mode));
    assert!(poll > 1.1 * interrupt && (hybrid / poll - 1.0).abs() < 0.02, "{poll} {hybrid} {interrupt}");
}

/// Where the drives are the limit the modes differ by what they cost.
#[test]
fn on_ten_drives_of_a_vm_interrupt_threads_cost_most_and_a_poller_least() {
    let at = |mode| shown(TEN, mode, 3_000);
    let [interrupt, threaded, irq_poll] = ["interrupt", "threaded", "irq-poll"].map(at);
    assert!(threaded.cpu_ns_per_io() > 1.2 * interrupt.cpu_ns_per_io(), "{} {}", threaded.cpu_ns_per_io(), interrupt.cpu_ns_per_io());
    assert!(irq_poll.cpu_ns_per_io() < interrupt.cpu_ns_per_io(), "{} {}", irq_poll.cpu_ns_per_io(), interrupt.cpu_ns_per_io());
    assert!(irq_poll.interrupts < interrupt.interrupts && interrupt.interrupts < threaded.interrupts);
}
