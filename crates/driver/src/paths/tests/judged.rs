//! Compares the policies `latency` and `queue-depth` in virtual time, on unequal and equal paths.
//!
//! The loops are closed, with a load that one path could carry alone. If both paths are saturated
//! there is nothing to choose; that is tested too.

use super::super::Policy;
use super::world::{Model, Outcome, Service, World};

/// A TLC drive behind a switch: reads take 80 µs, 64 at a time.
const TLC: Model = Model { servers: 64, service: Service::Exponential(80_000), wire: 5_000 };
/// A fast drive: 10 µs, 7 at a time.
const FAST: Model = Model { servers: 7, service: Service::Exponential(10_000), wire: 2_000 };
/// A drive that is slow once in ten.
const BIMODAL: Model =
    Model { servers: 32, service: Service::Bimodal(10_000, 500_000), wire: 2_000 };
/// A drive with constant latency.
const STEADY: Model = Model { servers: 16, service: Service::Fixed(100_000), wire: 0 };

const DEPTH: Policy = Policy::QueueDepth;
const LENGTH: u64 = 200_000_000;

fn farther(model: Model, ns: u64) -> Model {
    Model { wire: model.wire + ns, ..model }
}

fn slower(model: Model, times: u64) -> Model {
    let service = match model.service {
        Service::Fixed(ns) => Service::Fixed(ns * times),
        Service::Exponential(ns) => Service::Exponential(ns * times),
        Service::Bimodal(fast, slow) => Service::Bimodal(fast * times, slow * times),
    };
    Model { service, ..model }
}

/// Both policies in the same world. Asserts that all counts return to zero.
fn judge(world: &World) -> (Outcome, Outcome) {
    let outcomes = [DEPTH, Policy::Latency].map(|policy| world.run(policy, 1));
    assert!(outcomes.iter().all(|outcome| outcome.counted_at_end == 0));
    let [depth, latency] = outcomes;
    (depth, latency)
}

/// At least 10 % more throughput, and no longer tail.
fn is_better(what: &str, world: World) {
    let (depth, latency) = judge(&world);
    let ratio = latency.iops / depth.iops;
    assert!(
        ratio >= 1.1,
        "{what}: {ratio:.3} of queue-depth's throughput; by path {:?} and {:?}",
        depth.by_path,
        latency.by_path
    );
    assert!(
        latency.p99 <= depth.p99,
        "{what}: p99 {} ns, queue-depth's {} ns",
        latency.p99,
        depth.p99
    );
}

#[test]
fn unequal_paths_are_distinguished() {
    for (queues, depth) in [(1, 8), (1, 32), (4, 8)] {
        for (name, paths) in [
            ("2 ms farther", vec![TLC, farther(TLC, 2_000_000)]),
            ("30 ms farther", vec![TLC, farther(TLC, 30_000_000)]),
            ("a third of the IOPS", vec![TLC, slower(TLC, 3)]),
            ("a third of the IOPS, bimodal", vec![BIMODAL, slower(BIMODAL, 3)]),
            ("one of four 2 ms farther", vec![TLC, TLC, farther(TLC, 2_000_000), TLC]),
        ] {
            is_better(name, World { paths, changes: Vec::new(), queues, depth, length: LENGTH });
        }
    }
}

#[test]
fn degrading_path_is_left() {
    for (name, worse) in
        [("30 ms farther", farther(TLC, 30_000_000)), ("20 times slower", slower(TLC, 20))]
    {
        let world = World {
            paths: vec![TLC; 2],
            changes: vec![(LENGTH / 2, 1, worse)],
            queues: 1,
            depth: 32,
            length: LENGTH,
        };
        is_better(name, world);
    }
}

/// The path is explored and used again.
#[test]
fn a_path_that_recovers_is_found() {
    let changes = vec![(LENGTH / 4, 1, STEADY)];
    let world = World {
        paths: vec![STEADY, farther(STEADY, 5_000_000)],
        changes,
        queues: 1,
        depth: 32,
        length: 5 * LENGTH,
    };
    let outcome = world.run(Policy::Latency, 1);
    assert!(outcome.by_path[1] * 4 > outcome.by_path[0], "by path {:?}", outcome.by_path);
}

#[test]
fn equal_paths_lose_nothing() {
    for model in [TLC, FAST, BIMODAL, STEADY] {
        for (count, queues, depth) in [(2, 1, 8), (2, 1, 32), (2, 4, 32), (4, 4, 8), (4, 1, 64)] {
            let world = World {
                paths: vec![model; count],
                changes: Vec::new(),
                queues,
                depth,
                length: LENGTH / 2,
            };
            let best = [DEPTH, Policy::RoundRobin].map(|policy| world.run(policy, 1).iops);
            let best = best.into_iter().fold(0.0, f64::max);
            let latency = world.run(Policy::Latency, 1);
            assert!(
                latency.iops >= 0.98 * best,
                "{model:?} × {count}, {queues} × {depth}: {:.3} of the best",
                latency.iops / best
            );
            assert_eq!(latency.counted_at_end, 0);
        }
    }
}

/// With both paths saturated there is nothing to gain, and almost nothing is lost to trials.
#[test]
fn saturated_paths_stay_saturated() {
    for (model, queues, depth) in [
        (FAST, 1, 128),
        (TLC, 1, 128),
        (TLC, 4, 32),
        (TLC, 4, 64),
        (BIMODAL, 1, 96),
        (STEADY, 4, 16),
    ] {
        let world = |length| World {
            paths: vec![model, slower(model, 3)],
            changes: Vec::new(),
            queues,
            depth,
            length,
        };
        for (length, least) in [(2 * LENGTH, 0.98), (LENGTH / 4, 0.94)] {
            let (depth, latency) = judge(&world(length));
            let ratio = latency.iops / depth.iops;
            assert!(ratio >= least, "{:?}: {ratio:.3}", world(length));
        }
    }
}

/// A path 30 ms farther is not worth using, even if the other is saturated.
#[test]
fn far_path_is_spared_when_useless() {
    for (queues, depth) in [(1, 128), (4, 32)] {
        let world = World {
            paths: vec![TLC, farther(TLC, 30_000_000)],
            changes: Vec::new(),
            queues,
            depth,
            length: LENGTH,
        };
        let (depth, latency) = judge(&world);
        assert!(latency.iops >= depth.iops, "{:.3} of queue-depth's", latency.iops / depth.iops);
        assert!(latency.by_path[1] * 1000 < latency.by_path[0], "by path {:?}", latency.by_path);
    }
}
