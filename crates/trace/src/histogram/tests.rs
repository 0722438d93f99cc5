use super::*;
use proptest::prelude::*;

#[test]
fn linear_histogram_matches_the_post() {
    // Post 002's second table: 11,690 interrupts brought one completion, 46 two, one three.
    let drawn = Linear::from_parts(&[0, 11_690, 46, 1], 11_785, 3).draw("completed").to_string();
    let expected = "     \
     completed     : count     distribution
        0          : 0        |                                        |
        1          : 11690    |****************************************|
        2          : 46       |                                        |
        3          : 1        |                                        |
";
    assert_eq!(drawn, expected);
}

#[test]
fn log2_histogram_matches_the_post() {
    // Post 002, five queues, the first of them.
    let drawn = Log2::from_parts(&[701, 177, 56, 24, 6, 1], 0, 0).draw("usecs").to_string();
    let expected = "     \
     usecs               : count     distribution
         0 -> 1          : 701      |****************************************|
         2 -> 3          : 177      |**********                              |
         4 -> 7          : 56       |***                                     |
         8 -> 15         : 24       |*                                       |
        16 -> 31         : 6        |                                        |
        32 -> 63         : 1        |                                        |
";
    assert_eq!(drawn, expected);
}

#[test]
fn empty_buckets_share_a_line() {
    let mut counts = Linear::default();
    [2, 32, 32, 300].into_iter().for_each(|value| counts.record(value));
    let drawn = counts.draw("completions").to_string();
    let names: Vec<&str> =
        drawn.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert_eq!(names, ["0 -> 1", "2", "3 -> 31", "32", "33 -> 127", "128+"]);
}

#[test]
fn nothing_recorded_draws_nothing() {
    assert_eq!(Linear::default().draw("x").to_string(), "");
    assert_eq!(Log2::default().draw("x").to_string(), "");
    assert_eq!(Log2::default().mean(), None);
}

#[test]
fn large_values_keep_their_sum() {
    let mut counts = Linear::default();
    counts.record(127);
    counts.record(128);
    counts.record(1_000_000);
    assert_eq!(counts.counts().len(), LINEAR_VALUES + 1);
    assert_eq!(counts.counts().last(), Some(&2));
    assert_eq!((counts.sum(), counts.max()), (1_000_255, 1_000_000));
    assert!(counts.draw("x").to_string().contains("128+"));
    let mut times = Log2::default();
    times.record(u64::MAX);
    assert_eq!(times.counts().len(), LOG2_BUCKETS);
}

proptest! {
    #[test]
    fn values_lie_in_their_bucket(value in 0..1u64 << 38) {
        let bucket = Log2::bucket(value);
        let (low, high) = (if bucket == 0 { 0 } else { 1u64 << bucket }, (1u64 << (bucket + 1)) - 1);
        prop_assert!(low <= value && value <= high, "{low} {value} {high}");
    }

    #[test]
    fn interval_is_the_difference(before in prop::collection::vec(0..300u64, 0..50), after in prop::collection::vec(0..300u64, 0..50)) {
        let (mut all, mut only_after) = (Linear::default(), Linear::default());
        before.iter().for_each(|&value| all.record(value));
        let earlier = all.clone();
        after.iter().for_each(|&value| { all.record(value); only_after.record(value); });
        let interval = all.since(&earlier);
        prop_assert_eq!(interval.counts(), only_after.counts());
        prop_assert_eq!(interval.sum(), only_after.sum());
        let mut merged = earlier;
        merged.merge(&interval);
        prop_assert_eq!(merged.counts(), all.counts());
    }
}
