use super::*;

#[test]
fn a_wake_up_ends_where_the_next_begins() {
    let mut wakeups = Wakeups::default();
    wakeups.took(9); // before any notification: nobody's
    wakeups.woken(Nanos(900));
    wakeups.took(2);
    wakeups.took(1);
    wakeups.woken(Nanos::from_micros(17));
    wakeups.woken(Nanos::from_micros(3));
    assert_eq!((wakeups.completions.counts[3], wakeups.completions.counts[0], wakeups.completions.sum), (1, 1, 3));
    assert_eq!((wakeups.delay.counts[0], wakeups.delay.counts[1], wakeups.delay.counts[4], wakeups.delay.max), (1, 1, 1, 17));
}

#[test]
fn more_than_the_last_bucket_is_counted_there() {
    let mut wakeups = Wakeups::default();
    wakeups.woken(Nanos::MAX);
    wakeups.took(1000);
    wakeups.woken(Nanos::ZERO);
    assert_eq!((wakeups.completions.counts[LINEAR - 1], wakeups.delay.counts[LOG2 - 1]), (1, 1));
    let mut both = wakeups;
    both.merge(&wakeups);
    assert_eq!((both.completions.max, both.completions.counts[LINEAR - 1]), (1000, 2));
}
