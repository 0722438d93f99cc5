use rand::{RngExt, SeedableRng};

use super::*;

fn seeded(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn width(e: &Estimate) -> f64 {
    e.interval.map(|[low, high]| high - low).unwrap()
}

fn holds(e: &Estimate, value: f64) -> bool {
    e.interval.is_some_and(|[low, high]| low <= value && value <= high)
}

/// A number from 0 to 2 around 1, as noise on a ratio.
fn noise(rng: &mut Xoshiro256PlusPlus) -> f64 {
    (0..4).map(|_| rng.random_range(0.0..0.5)).sum()
}

#[test]
fn the_median_is_in_the_middle() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
}

#[test]
fn interval_narrows_with_more_blocks() {
    let mut rng = seeded(1);
    let values: Vec<f64> = (0..400).map(|_| noise(&mut rng)).collect();
    let few = estimate(&values[..30], &mut rng).unwrap();
    let many = estimate(&values, &mut rng).unwrap();
    for e in [few, many] {
        assert!(holds(&e, e.value), "{e:?}");
    }
    assert!(width(&many) < width(&few) / 2.0, "{few:?} {many:?}");
}

#[test]
fn interval_coverage_is_nominal() {
    let mut rng = seeded(2);
    let covered = (0..200)
        .filter(|_| {
            let values: Vec<f64> = (0..30).map(|_| noise(&mut rng)).collect();
            estimate(&values, &mut rng).is_some_and(|e| holds(&e, 1.0))
        })
        .count();
    assert!((180..=200).contains(&covered), "{covered} of 200");
}

#[test]
fn few_values_have_no_interval() {
    let (mut rng, blocks) = (seeded(9), [(); 6].map(|()| block(1..=100)));
    for n in 1..=6 {
        let values: Vec<f64> = (0..n).map(|_| noise(&mut rng)).collect();
        let half = percentile(&blocks[..n].iter().collect::<Vec<_>>(), 50.0, &mut rng).unwrap();
        for e in [estimate(&values, &mut rng).unwrap(), half] {
            assert_eq!(e.interval.is_some(), n >= FEWEST, "{n}: {e:?}");
        }
    }
}

/// Of two labels, as the only ones.
fn ratio(a: &[Option<f64>], b: &[Option<f64>], rng: &mut Xoshiro256PlusPlus) -> Option<Estimate> {
    let all = pairs(&Scene::default(), &["a", "b"], "iops", &[a.to_vec(), b.to_vec()], rng);
    all.first().map(|pair| pair.ratio)
}

#[test]
fn pairs_cancel_what_disturbs_both() {
    let mut rng = seeded(3);
    // The machine's speed wanders by a factor of four; b is 10 % faster than a throughout.
    let speed: Vec<f64> = (0..32).map(|_| rng.random_range(1.0..4.0)).collect();
    let a: Vec<Option<f64>> = speed.iter().map(|s| Some(100.0 * s)).collect();
    let b: Vec<Option<f64>> = speed.iter().map(|s| Some(110.0 * s)).collect();
    let paired = ratio(&a, &b, &mut rng).unwrap();
    assert!((paired.value - 1.1).abs() < 1e-9 && width(&paired) < 1e-9, "{paired:?}");
    // The mutant without pairing: shuffled rounds, and the interval is wide open.
    let unpaired = ratio(&a, &b.iter().rev().copied().collect::<Vec<_>>(), &mut rng).unwrap();
    assert!(width(&unpaired) > 0.1, "{unpaired:?}");
}

#[test]
fn a_mode_against_itself_is_one() {
    let mut rng = seeded(4);
    let mut block = |_| Some(1000.0 * (0.95 + 0.05 * noise(&mut rng)));
    let (a, b): (Vec<_>, Vec<_>) =
        ((0..32).map(&mut block).collect(), (0..32).map(&mut block).collect());
    let aa = ratio(&a, &b, &mut seeded(5)).unwrap();
    assert!(holds(&aa, 1.0), "{aa:?}");
}

#[test]
fn incomplete_rounds_are_dropped() {
    let one = ratio(
        &[Some(2.0), None, Some(4.0), Some(0.0)],
        &[Some(1.0), Some(1.0), None, Some(3.0)],
        &mut seeded(6),
    );
    assert_eq!(one, Some(Estimate { value: 0.5, interval: None }));
    assert_eq!(ratio(&[None], &[Some(1.0)], &mut seeded(6)), None);
}

fn block(values: impl Iterator<Item = u64>) -> Histogram {
    let mut histogram = Histogram::default();
    values.for_each(|v| histogram.add(v, 1));
    histogram
}

#[test]
fn a_percentile_needs_samples_above_it() {
    let blocks: Vec<Histogram> = (0..10).map(|_| block(1..=300)).collect();
    let blocks: Vec<&Histogram> = blocks.iter().collect();
    // 3000 samples: 30 above p99, 3 above p99.9.
    let p99 = percentile(&blocks, 99.0, &mut seeded(7)).unwrap();
    assert!((p99.value - 297.0).abs() < 6.0 && holds(&p99, p99.value), "{p99:?}");
    assert_eq!(percentile(&blocks, 99.9, &mut seeded(7)), None);
    assert_eq!(percentile(&[], 50.0, &mut seeded(7)), None);
}

#[test]
fn disturbed_block_widens_tail_interval() {
    let quiet: Vec<Histogram> = (0..10).map(|_| block((0..1000).map(|i| 1000 + i % 100))).collect();
    let mut disturbed = quiet.clone();
    disturbed[3] = block((0..1000).map(|i| if i < 150 { 90_000 } else { 1000 + i % 100 }));
    let of = |blocks: &[Histogram]| {
        percentile(&blocks.iter().collect::<Vec<_>>(), 99.0, &mut seeded(8)).unwrap()
    };
    let (calm, wild) = (of(&quiet).interval.unwrap(), of(&disturbed).interval.unwrap());
    assert!(calm[1] < 1200.0, "{calm:?}");
    assert!(wild[0] < 1200.0 && wild[1] > 80_000.0, "{wild:?}");
}
