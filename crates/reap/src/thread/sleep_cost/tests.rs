use super::*;

#[test]
fn sleeps_cost_and_timers_run_late() {
    // CPU time from before does not count.
    while hw::thread_cpu() < LOST + LOST {}
    let cycle = measure().unwrap();
    assert_ne!(cycle, SleepCosts::default(), "it is a guess");
    for span in [cycle.cpu, cycle.nap] {
        assert!(span > Nanos(100) && span < LOST, "{cycle:?}");
    }
    assert!(cycle.late < LOST && cycle.delay < LOST, "{cycle:?}");
    assert!(cycle.late > Nanos::ZERO, "{cycle:?}");
}

#[test]
fn sleep_cost_needs_a_weighing_mode() {
    prepare(Mode::ADAPTIVE);
    assert_eq!(MEASURED.get().copied(), Some(known()));
    assert_ne!(known(), SleepCosts::default(), "it is a guess");
}

#[test]
fn preempted_rounds_are_dropped() {
    assert_eq!(
        tenth_percentiles(vec![Sleep { cpu: LOST, late: LOST }; 20]),
        (Nanos::ZERO, Nanos::ZERO),
        "all of them are lost"
    );
    let sleeps: Vec<Sleep> = (1..=20)
        .map(|n| Sleep { cpu: Nanos(n), late: Nanos(if n < 5 { 10 * n } else { 1_000_000 }) })
        .collect();
    assert_eq!(tenth_percentiles(sleeps), (Nanos(3), Nanos(30)));
    assert_eq!(tenth_percentiles(Vec::new()), (Nanos::ZERO, Nanos::ZERO));
}

/// A late signal, or two signals for one sleep, do not change the delay of other sleeps.
#[test]
fn sleeps_are_measured_by_their_signal() {
    let woken = [100, 200, 300, 400, 500]
        .map(|at| (Sleep { cpu: Nanos(at / 100), late: Nanos::ZERO }, Nanos(at)));
    // The first and the last end by themselves, two signals end the third, and one meets the very
    // instant.
    let signals = [170, 260, 290, 400].map(Nanos);
    let paired: Vec<_> =
        paired(&woken, &signals).into_iter().map(|sleep| (sleep.cpu.0, sleep.late.0)).collect();
    assert_eq!(paired, [(2, 30), (3, 40), (4, 0)]);
}
