use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

/// Whether `n` draws are the numbers below `n`, each once.
fn covers_once(n: u64, mut draw: impl FnMut() -> u64) -> bool {
    let seen: HashSet<u64> = (0..n).map(|_| draw()).collect();
    seen.len() as u64 == n && seen.iter().all(|x| *x < n)
}

proptest! {
    #[test]
    fn shuffle_visits_each_number_once(n in 1u64..3000, seed: u64) {
        let mut shuffle = Shuffle::new(n, seed);
        for _pass in 0..3 {
            prop_assert_eq!(shuffle.start_pass(), n);
            prop_assert!(covers_once(n, || shuffle.next()));
        }
        // A generator that draws with replacement must fail the check.
        if n > 50 {
            let mut x = seed | 1;
            let mut replaced = || {
                x = x.wrapping_mul(ODD[0]).wrapping_add(1);
                (x >> 33) % n
            };
            let covered = covers_once(n, &mut replaced);
            prop_assert!(!covered);
        }
    }

    #[test]
    fn bitmap_visits_each_block_once(n in 1u64..500, draws in proptest::collection::vec((any::<u64>(), 1u64..9), 500)) {
        let mut map = Bitmap::new(n);
        let (mut seen, mut draws) = (HashSet::new(), draws.into_iter().cycle());
        while (seen.len() as u64) < n {
            let (hint, wanted) = draws.next().unwrap();
            let first = map.free(hint % n).unwrap();
            let blocks = map.visit(first, wanted);
            prop_assert!(blocks >= 1 && blocks <= wanted && first + blocks <= n);
            for block in first..first + blocks {
                prop_assert!(seen.insert(block), "block {} again in one pass", block);
            }
        }
        // The next pass starts over.
        prop_assert_eq!(map.free(0), None);
    }
}

#[test]
fn a_shuffle_is_no_pattern() {
    // Differences of neighbours fall into 16 equal classes about equally often: chi-square with 15
    // degrees of freedom.
    let n = 1 << 20;
    for seed in 0..8 {
        let mut shuffle = Shuffle::new(n, seed);
        let (mut counts, mut last, draws) = ([0u32; 16], shuffle.next(), 64_000);
        for _ in 0..draws {
            let next = shuffle.next();
            counts[((next.wrapping_sub(last) % n) >> 16) as usize] += 1;
            last = next;
        }
        let expected = f64::from(draws) / 16.0;
        let chi: f64 = counts.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
        assert!(chi < 60.0, "seed {seed}: chi-square {chi}: {counts:?}");
    }
}

#[test]
fn passes_and_seeds_differ() {
    let order = |seed| {
        let mut shuffle = Shuffle::new(1000, seed);
        let mut pass = || (0..shuffle.start_pass()).map(|_| shuffle.next()).collect::<Vec<_>>();
        (pass(), pass())
    };
    let (one, two) = (0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321);
    let (first, second) = order(one);
    assert_ne!(first, second);
    assert_ne!(order(two).0, first);
    assert_eq!(order(one).0, first);
}
