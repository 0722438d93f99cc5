//! The shipped scenarios of crowded machines, shortened: checks the order of modes, not the
//! figures.

use completion::Mode;
use sim::{Outcome, Scenario};
use units::Nanos;

const EIGHT: (&str, &str) =
    ("eight-drives.toml", include_str!("../../../scenarios/eight-drives.toml"));
const TEN: (&str, &str) =
    ("ten-drives-vm.toml", include_str!("../../../scenarios/ten-drives-vm.toml"));
const CROWDED: (&str, &str) =
    ("crowded-poll.toml", include_str!("../../../scenarios/crowded-poll.toml"));
const ROOMY: (&str, &str) = ("roomy-poll.toml", include_str!("../../../scenarios/roomy-poll.toml"));

/// The outcome of a scenario under a mode, measured for this many microseconds after a ramp of the
/// same length, with `change` applied.
fn changed(
    (name, text): (&str, &str),
    mode: &str,
    micros: u64,
    change: impl Fn(&mut Scenario),
) -> Outcome {
    let read = sim::file::read(name, text, &workload::fio::Nothing);
    let mut scenario = read.unwrap_or_else(|error| panic!("{error}")).scenario;
    scenario.mode = mode.parse::<Mode>().unwrap();
    for spec in &mut scenario.jobs {
        (spec.job.runtime, spec.job.ramp_time) =
            (Some(Nanos::from_micros(micros)), Nanos::from_micros(micros));
    }
    change(&mut scenario);
    scenario.run().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn shown(file: (&str, &str), mode: &str, micros: u64) -> Outcome {
    changed(file, mode, micros, |_| {})
}

/// With interrupts, twice the drives on one remapping unit do no more I/Os; with posted messages
/// they do.
#[test]
fn eight_drives_need_posted_interrupts() {
    let four = |scenario: &mut Scenario| {
        scenario.devices.truncate(4);
        scenario.jobs.truncate(4);
    };
    let (eight, posted) = (shown(EIGHT, "interrupt", 2_000), shown(EIGHT, "posted", 2_000));
    let half = changed(EIGHT, "interrupt", 2_000, four);
    assert!(eight.iops() < 1.1 * half.iops(), "{} {}", eight.iops(), half.iops());
    assert!(posted.iops() > 1.2 * eight.iops(), "{} {}", posted.iops(), eight.iops());
    assert!(
        changed(EIGHT, "posted", 2_000, four).iops() > 0.9 * posted.iops(),
        "four drives posted are as many"
    );
    // The unit is saturated: one message per 155 ns.
    for outcome in [&eight, &posted] {
        let told = outcome.per_second(outcome.all_cpus.interrupts) * 155e-9;
        assert!((0.9..=1.01).contains(&told), "{told}");
    }
    assert!(eight.way.held.0 / eight.way.messages > posted.way.held.0 / posted.way.messages);
}

#[test]
fn hybrid_is_best_when_oversubscribed() {
    let iops = |file, mode| shown(file, mode, 20_000).iops();
    let [interrupt, hybrid, poll] =
        ["interrupt", "hybrid-mean", "poll"].map(|mode| iops(CROWDED, mode));
    assert!(hybrid > interrupt && interrupt > 1.5 * poll, "{hybrid} {interrupt} {poll}");
    let [interrupt, hybrid, poll] =
        ["interrupt", "hybrid-mean", "poll"].map(|mode| iops(ROOMY, mode));
    assert!(
        poll > 1.1 * interrupt && (hybrid / poll - 1.0).abs() < 0.02,
        "{poll} {hybrid} {interrupt}"
    );
}

/// Eight CPUs take the interrupts of ten drives: with plain interrupts their own threads hardly
/// run, and modes that leave them time reach a higher throughput.
#[test]
fn few_interrupt_cpus_favour_polling() {
    let at = |mode| shown(TEN, mode, 10_000);
    let [interrupt, threaded, irq_poll, check] =
        ["interrupt", "threaded", "irq-poll", "interrupt+submit-check"].map(at);
    assert!(irq_poll.iops() > 1.2 * interrupt.iops(), "{} {}", irq_poll.iops(), interrupt.iops());
    assert!(check.iops() > 1.3 * interrupt.iops(), "{} {}", check.iops(), interrupt.iops());
    assert!(threaded.iops() < 1.1 * interrupt.iops(), "{} {}", threaded.iops(), interrupt.iops());
    assert!(
        irq_poll.all_cpus.interrupts < interrupt.all_cpus.interrupts
            && interrupt.all_cpus.interrupts < threaded.all_cpus.interrupts
    );
    // The criterion of Linux's soft-lockup detector.
    let away = |outcome: &Outcome| {
        outcome.cpus.iter().map(|cpu| cpu.longest_away).max().unwrap_or_default()
    };
    assert!(
        away(&interrupt) > Nanos::from_millis(5) && away(&interrupt).0 > 2 * away(&check).0,
        "{:?} {:?}",
        away(&interrupt),
        away(&check)
    );
    // With the same interrupts spread evenly over the CPUs, only the drives are the limit.
    let spread = |scenario: &mut Scenario| {
        scenario.devices.iter_mut().for_each(|device| device.affinity = sim::Affinity::Managed)
    };
    let [interrupt, irq_poll] =
        ["interrupt", "irq-poll"].map(|mode| changed(TEN, mode, 10_000, spread));
    assert!(
        (irq_poll.iops() / interrupt.iops() - 1.0).abs() < 0.05,
        "{} {}",
        irq_poll.iops(),
        interrupt.iops()
    );
}
