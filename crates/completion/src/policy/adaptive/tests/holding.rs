//! When the device is asked to hold its messages back, and what the policy makes of it.

use super::closed::{APART, HELD, Loop};
use super::*;

/// A loop at the device's limit, and what it asks for after a while.
fn at_the_limit(depth: u32) -> (Loop, u16) {
    let mut closed = Loop::new(LatencyPrice::default(), depth, true);
    closed.run(20_000);
    let holds = closed.policy.holds();
    (closed, holds)
}

#[test]
fn spare_completions_are_coalesced() {
    let (mut closed, holds) = at_the_limit(64);
    assert!((8..=32).contains(&holds), "{holds}");
    closed.held = holds.into();
    closed.run(2_000);
    let ran = closed.run(100_000);
    assert!(ran.found > ran.looks * 10, "{} of {}, {holds} held", ran.looks, ran.found);
    assert!(ran.took * 100 < ran.found * APART * 102, "{} of {}", ran.took, ran.found);
}

#[test]
fn idle_device_coalesces_nothing() {
    let mut closed = Loop::new(LatencyPrice::default(), 32, false);
    closed.run(20_000);
    assert!(closed.policy.holds() < 2, "{}", closed.policy.holds());
    assert_eq!(at_the_limit(2).1, 0);
}

#[test]
fn dear_latency_disables_coalescing() {
    let mut closed = Loop::new(LatencyPrice::per_mille(3_000), 64, true);
    closed.run(20_000);
    assert_eq!(closed.policy.holds(), 0);
}

/// The setting stays in force for a while after the last that asked for it. Commands that somebody waits for are found all the same, and
/// not when the device tells of them.
fn takes(told: u32) -> u64 {
    let (mut closed, _) = at_the_limit(2);
    (closed.urgent, closed.held) = (true, told);
    closed.run(10);
    closed.run(2_000).took / 2_000
}

#[test]
fn urgent_commands_need_no_message() {
    assert!(takes(16) < HELD / 4, "{}", takes(16));
}
