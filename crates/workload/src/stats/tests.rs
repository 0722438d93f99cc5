use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn bucket_error_is_below_a_64th(nanos in 0u64..(1 << 41)) {
        let (low, width) = extent(bucket(nanos));
        prop_assert!(low <= nanos && nanos < low + width);
        prop_assert!(width == 1 || width <= low / 64);
    }

    #[test]
    fn percentiles_match_sorted_values(mut values in proptest::collection::vec(0u64..10_000_000, 1..400), percent in 0.1f64..100.0) {
        let mut histogram = Histogram::default();
        values.iter().for_each(|v| histogram.add(*v, 1));
        values.sort_unstable();
        let rank = (percent / 100.0 * values.len() as f64).ceil().max(1.0) as usize;
        let (low, width) = extent(bucket(values[rank - 1]));
        let found = histogram.percentiles(&[percent])[0];
        prop_assert_eq!(found, low + width / 2);
        prop_assert_eq!(histogram.buckets().map(|(_, n)| n).sum::<u64>(), values.len() as u64);
    }

    #[test]
    fn merged_is_as_if_counted_together(a in proptest::collection::vec(any::<u32>(), 0..50), b in proptest::collection::vec(any::<u32>(), 0..50)) {
        let count = |values: &[u32]| {
            let mut latency = Latency { histogram: Some(Histogram::default()), ..Latency::default() };
            values.iter().for_each(|v| latency.add(Nanos(u64::from(*v)), 1));
            latency
        };
        let mut merged = count(&a);
        merged.merge(&count(&b));
        let together = count(&[a, b].concat());
        prop_assert_eq!(merged.moments, together.moments);
        let (merged, together) = (merged.histogram.unwrap(), together.histogram.unwrap());
        prop_assert!(merged.buckets().eq(together.buckets()));
    }

    #[test]
    fn moments_are_exact(values in proptest::collection::vec(0u64..1_000_000_000, 2..100), n in 1u64..5) {
        let (mut one_by_one, mut at_once) = (Moments::default(), Moments::default());
        for value in &values {
            (0..n).for_each(|_| one_by_one.add(*value, 1));
            at_once.add(*value, n);
        }
        prop_assert_eq!(one_by_one, at_once);
        let count = (values.len() as u64 * n) as f64;
        let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|v| (*v as f64 - mean).powi(2) * n as f64).sum();
        prop_assert!((one_by_one.mean() - mean).abs() <= mean * 1e-12);
        let stdev = (squares / (count - 1.0)).sqrt();
        prop_assert!((one_by_one.stdev() - stdev).abs() <= 1e-6 * (1.0 + stdev), "{} {stdev}", one_by_one.stdev());
        prop_assert_eq!((one_by_one.min(), one_by_one.max()), (*values.iter().min().unwrap(), *values.iter().max().unwrap()));
    }
}

#[test]
fn deviations_survive_large_means() {
    // Where a sum of squares in f64 has no digits left.
    let mut moments = Moments::default();
    for i in 0..1000u64 {
        moments.add(1_000_000_000_000 + i % 2, 1);
    }
    assert!((moments.stdev() - 0.50025).abs() < 1e-4, "{}", moments.stdev());
}

#[test]
fn extreme_values_never_panic() {
    let mut histogram = Histogram::default();
    assert!(histogram.percentiles(&[50.0]).is_empty() && histogram.total() == 0);
    histogram.add(u64::MAX, 1);
    histogram.add(0, 2);
    assert_eq!(histogram.total(), 3);
    assert_eq!(histogram.percentiles(&[1.0, 50.0, 100.0])[..2], [0, 0]);
    let none = Moments::default();
    assert_eq!((none.min(), none.max(), none.mean(), none.stdev()), (0, 0, 0.0, 0.0));
}

#[test]
fn bands_are_those_of_fio() {
    let mut depth = Bands::default();
    for (n, band) in [
        (1, 0),
        (2, 1),
        (3, 1),
        (4, 2),
        (7, 2),
        (8, 3),
        (16, 4),
        (31, 4),
        (32, 5),
        (63, 5),
        (64, 6),
        (9999, 6),
    ] {
        let before = depth.0[band];
        depth.add_depth(n, 1);
        assert_eq!(depth.0[band], before + 1, "depth {n}");
    }
    let mut batch = Bands::default();
    for (n, band) in [
        (0, 0),
        (1, 1),
        (4, 1),
        (5, 2),
        (8, 2),
        (9, 3),
        (16, 3),
        (17, 4),
        (32, 4),
        (33, 5),
        (64, 5),
        (65, 6),
    ] {
        let before = batch.0[band];
        batch.add_batch(n);
        assert_eq!(batch.0[band], before + 1, "batch {n}");
    }
}

#[test]
fn concurrent_rates_add_up() {
    let rate = |values: &[u64]| {
        let mut moments = Moments::default();
        values.iter().for_each(|v| moments.add(*v, 1));
        moments
    };
    let mut sum = rate(&[100, 120, 110]);
    sum.merge_parallel(&rate(&[200, 220, 210]));
    assert_eq!((sum.min(), sum.max(), sum.n), (300, 340, 6));
    assert!((sum.mean() - 320.0).abs() < 1e-9);
    assert!((sum.stdev() - 200f64.sqrt()).abs() < 0.2, "{}", sum.stdev());
    let mut one = Moments::default();
    one.merge_parallel(&rate(&[5, 7]));
    assert_eq!(one, rate(&[5, 7]));
}
