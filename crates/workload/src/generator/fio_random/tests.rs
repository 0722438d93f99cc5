use super::*;
use std::collections::HashSet;

#[test]
fn random_numbers_keep_their_range() {
    for wide in [false, true] {
        for seed in [0, 1, 7, 1 << 31, u64::MAX] {
            let mut rng = Tausworthe::new(seed, wide);
            let seen: HashSet<u64> = (0..1000).map(|_| rng.next()).collect();
            assert!(seen.len() > 995, "{seed} {wide}");
            assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.fraction())));
        }
    }
}

#[test]
fn threads_and_places_differ_in_seed() {
    let places = [READS, WRITES, TRIMS, DATA, MIX, OFFSETS];
    for base in [Some(0x89), Some(42), None] {
        let seeds: HashSet<u64> =
            (1..20).flat_map(|number| places.map(|place| seed(base, 42, place, number))).collect();
        assert_eq!(seeds.len(), 19 * 6, "{base:?}");
    }
}
