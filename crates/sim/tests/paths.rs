//! Path policies on whole machines in virtual time: driver, controllers, completion mode and load
//! generator, with a controller per path.

use driver::paths::Policy;
use emu::Profile;
use sim::{Outcome, Scenario};
use units::Nanos;

const DEPTH: Policy = Policy::QueueDepth;

fn shipped() -> Scenario {
    let text = include_str!("../../../scenarios/paths.toml");
    sim::file::read("scenarios/paths.toml", text, &workload::fio::Nothing)
        .unwrap_or_else(|e| panic!("{e}"))
        .scenario
}

/// The shipped scenario, with other paths.
fn run(policy: Policy, change: impl Fn(&mut Profile, &mut Profile)) -> Outcome {
    let mut scenario = shipped();
    if let Some(paths) = &mut scenario.jobs[0].paths {
        paths.policy = policy;
    }
    let [near, far] = &mut scenario.devices[..] else { panic!("two devices") };
    change(&mut near.config.profile, &mut far.config.profile);
    let outcome = scenario.run().unwrap_or_else(|error| panic!("{policy}: {error}"));
    assert_eq!((outcome.counts.failed, outcome.counts.lost), (0, 0), "{policy}");
    outcome
}

fn is_better(what: &str, change: impl Fn(&mut Profile, &mut Profile)) {
    let (depth, latency) = (run(DEPTH, &change), run(Policy::Latency, &change));
    let (ratio, p99) = (
        latency.iops() / depth.iops(),
        [&depth, &latency].map(|outcome| outcome.read_latency().p99),
    );
    let by_path = |outcome: &Outcome| {
        outcome.devices.iter().map(|device| device.completed).collect::<Vec<_>>()
    };
    println!(
        "{what}: {ratio:.2} times the throughput, p99 {p99:?} ns; {:?} and {:?} by path",
        by_path(&depth),
        by_path(&latency)
    );
    assert!(ratio >= 1.1 && p99[1] <= p99[0], "{what}: {ratio:.3}, {p99:?}");
}

#[test]
fn unequal_paths_are_distinguished() {
    is_better("2 ms farther", |_, _| ());
    is_better("30 ms farther", |_, far| far.read.base = Nanos(30_060_000));
    // The channels of a TLC drive, and a third of them.
    is_better("a third of the IOPS", |near, far| {
        (near.channels, far.channels) = (48, 16);
        far.read.base = Nanos(180_000);
    });
}

#[test]
fn equal_paths_lose_nothing() {
    let same = |near: &mut Profile, far: &mut Profile| *far = near.clone();
    let best = [DEPTH, Policy::RoundRobin]
        .map(|policy| run(policy, same).iops())
        .into_iter()
        .fold(0.0, f64::max);
    let latency = run(Policy::Latency, same);
    assert!(latency.iops() >= 0.98 * best, "{} of {best}", latency.iops());
    let [near, far] = [0, 1].map(|device| latency.devices[device].completed);
    assert!(near.abs_diff(far) < near / 4, "{near} and {far}");
}
