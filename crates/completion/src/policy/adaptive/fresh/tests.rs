use super::*;

/// Microseconds.
fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

/// A burst of `n`, of which the `k`-th is found at an age of `takes(k)`; each makes way for another command.
fn burst(fresh: &mut Fresh, at: Nanos, n: u32, takes: impl Fn(u32) -> Nanos) {
    fresh.drains(Nanos::MAX);
    (0..n).for_each(|sent| fresh.sent(at, 1, sent + 1, n));
    let mut ages: Vec<Nanos> = (0..n).map(takes).collect();
    ages.sort();
    for age in ages {
        fresh.found(at + age, age);
        fresh.sent(at + age, 1, n, n);
        // Those that are sent then are found soon, and say nothing.
        fresh.found(at + age + Nanos(1), Nanos(1));
    }
    assert!(!fresh.is_under_way());
}

fn alone_of(n: u32, full: f32, takes: impl Fn(u32) -> Nanos) -> f32 {
    let mut fresh = Fresh::new();
    for round in 0..u64::from(MEMORY) {
        burst(&mut fresh, us(round * 100_000), n, &takes);
    }
    fresh.alone(full)
}

/// Of 32 commands that take 10 µs each, and of which eight are served at a time, the last takes 40 µs.
#[test]
fn commands_that_wait_for_each_other_take_less_alone() {
    let alone = alone_of(32, 8.0 / 10_000.0, |k| us(10 * u64::from(k / 8 + 1)));
    assert!((9_000.0..11_000.0).contains(&alone), "{alone}");
}

/// A device that serves them all at once takes 10 to 640 µs for each, whatever else it has: all of that is its own.
#[test]
fn a_spread_is_no_queue() {
    let mean = 325_000.0;
    let alone = alone_of(32, 32.0 / mean, |k| us(10 + 630 * u64::from(k) / 31));
    assert!((0.9 * mean..1.1 * mean).contains(&alone), "{alone}");
}

#[test]
fn nothing_is_known_of_a_few() {
    let mut fresh = Fresh::new();
    burst(&mut fresh, Nanos(1), 4, |_| us(10));
    assert_eq!(fresh.alone(1.0), f32::INFINITY);
    assert_eq!(alone_of(4, 0.0, |_| us(10)), f32::INFINITY, "nor as long as no rate is");
}

/// A device that was never idle when commands were sent.
#[test]
fn among_others_there_is_no_burst() {
    let mut fresh = Fresh::new();
    fresh.sent(Nanos(1), 4, 32, 32);
    assert!(!fresh.is_under_way());
    // Some of these have completed before they were counted.
    fresh.sent(Nanos(2), 4, 3, 32);
    assert!(fresh.is_under_way());
}

#[test]
fn a_burst_ends_with_another_mode() {
    let mut fresh = Fresh::new();
    fresh.sent(us(1), 8, 8, 8);
    fresh.found(us(11), us(10));
    let mut fresh = fresh.resumes();
    assert!(!fresh.is_under_way());
    assert!(fresh.drains(us(12)), "and the next is waited for");
}

/// A command that was aborted is never found.
#[test]
fn a_burst_of_which_one_is_lost_is_given_up() {
    let mut fresh = Fresh::new();
    fresh.sent(us(1), 8, 8, 8);
    (0..7).for_each(|_| fresh.found(us(11), us(10)));
    (0..8 * STRETCH).for_each(|n| fresh.sent(us(11 + u64::from(n)), 1, 8, 8));
    assert!(fresh.is_under_way());
    fresh.sent(us(100), 1, 8, 8);
    assert!(!fresh.is_under_way());
    assert!(!fresh.drains(us(200)) && fresh.drains(us(10_000)), "the next is tried, and not at once");
}
