use super::*;

#[test]
fn wakeups_end_at_the_next() {
    let mut wakeups = Wakeups::default();
    wakeups.took(9, Nanos(5)); // before any notification: not counted
    wakeups.woken(Some(Nanos(100)), Nanos(1_000));
    wakeups.took(2, Nanos(1_100));
    wakeups.took(1, Nanos(1_200));
    wakeups.woken(Some(Nanos(2_000)), Nanos(19_000));
    wakeups.woken(Some(Nanos(20_000)), Nanos(23_000));
    assert_eq!(
        (wakeups.completions.counts[3], wakeups.completions.counts[0], wakeups.completions.sum),
        (1, 1, 3)
    );
    assert_eq!(
        (
            wakeups.delay.counts[0],
            wakeups.delay.counts[1],
            wakeups.delay.counts[4],
            wakeups.delay.max
        ),
        (1, 1, 1, 17)
    );
}

#[test]
fn last_bucket_counts_the_rest() {
    let mut wakeups = Wakeups::default();
    wakeups.woken(Some(Nanos::ZERO), Nanos::MAX);
    wakeups.took(1000, Nanos::MAX);
    wakeups.woken(None, Nanos::MAX);
    assert_eq!((wakeups.completions.counts[LINEAR - 1], wakeups.delay.counts[LOG2 - 1]), (1, 1));
    let mut both = wakeups;
    both.merge(&wakeups);
    assert_eq!((both.completions.max, both.completions.counts[LINEAR - 1]), (1000, 2));
}

/// A message from before the run, and one that a polling thread has seen already.
#[test]
fn leftover_messages_are_not_timed() {
    let mut wakeups = Wakeups::begun(Nanos::from_millis(9_000));
    wakeups.woken(Some(Nanos::from_millis(1)), Nanos::from_millis(9_002));
    assert_eq!(wakeups.delay.max, 2_000);
    wakeups.took(3, Nanos::from_millis(9_500));
    wakeups.woken(Some(Nanos::from_millis(9_100)), Nanos::from_millis(9_501));
    assert_eq!((wakeups.delay.max, wakeups.delay.sum), (2_000, 3_000));
}
