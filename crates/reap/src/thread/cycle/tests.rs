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
fn half_of_the_sleeps_cost_less_than_the_median() {
    let sleeps = [9, 1, 5, 7, 3].map(|n| Sleep { cpu: Nanos(n), late: Nanos(10 * n) });
    assert_eq!(medians(sleeps.to_vec()), (Nanos(5), Nanos(50)));
    assert_eq!(medians(Vec::new()), (Nanos::ZERO, Nanos::ZERO));
}
