use super::*;

#[test]
fn a_sleep_costs_something_and_a_timer_is_late_rather_than_early() {
    let cycle = measure().unwrap();
    for span in [cycle.cpu, cycle.nap] {
        assert!(span > Nanos(100) && span < LOST, "{cycle:?}");
    }
    assert!(cycle.late < LOST && cycle.delay < LOST, "{cycle:?}");
}

#[test]
fn rounds_in_which_somebody_else_had_the_cpu_do_not_count() {
    let sleeps: Vec<Sleep> = (1..=20).map(|n| Sleep { cpu: Nanos(n), late: Nanos(if n < 5 { 10 * n } else { 1_000_000 }) }).collect();
    assert_eq!(tenths(sleeps), (Nanos(3), Nanos(30)));
    assert_eq!(tenths(Vec::new()), (Nanos::ZERO, Nanos::ZERO));
}
