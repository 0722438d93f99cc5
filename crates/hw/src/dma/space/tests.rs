use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

#[test]
fn a_pool_fits_the_width_or_is_told_how_much_does() {
    for _ in 0..2 * TURNS {
        for (bytes, bits) in [(GIB, 34), (GIB, 39), (400 * GIB, 39), (508 * GIB, 39), (1024 * GIB, 48), (1024 * GIB, 64)] {
            let space = Space::new(bytes, bits).unwrap();
            let (base, limit) = (space.pool(), space.limit());
            assert!(base >= FIRST && base % 4096 == 0 && base + bytes <= limit, "{bytes} at {base:#x} below {limit:#x}");
            assert_eq!(limit, 1 << bits.min(63));
        }
    }
    assert_eq!(Space::new(508 * GIB + 1, 39).unwrap_err(), 508 * GIB);
    assert_eq!(Space::new(1, 32).unwrap_err(), 0);
    assert_eq!(Space::new(1, 0).unwrap_err(), 0);
}

#[test]
fn two_pools_rarely_share_an_address() {
    let spaces: Vec<Space> = (0..8).map(|_| Space::new(GIB, 39).unwrap()).collect();
    for (n, one) in spaces.iter().enumerate() {
        assert!(spaces[n + 1..].iter().all(|other| !other.pool.contains(&one.pool())), "{spaces:#x?}");
    }
}

/// Reserves and forgets at random: regions are inside, beside the pool and beside each other, and are refused only if
/// there is no gap for them.
fn regions_are_disjoint(
    steps: &[(bool, u64)],
    reserve: impl Fn(&Space, u64) -> Option<u64>,
    forget: impl Fn(&Space, u64),
) -> Result<(), String> {
    const UNIT: u64 = GIB / 4;
    let space = Space { pool: FIRST + GIB..FIRST + 2 * GIB, limit: FIRST + 4 * GIB, regions: Mutex::default() };
    let mut taken: Vec<Range<u64>> = Vec::new();
    for &(take, n) in steps {
        if !take {
            if !taken.is_empty() {
                forget(&space, taken.swap_remove(n as usize % taken.len()).start);
            }
            continue;
        }
        let bytes = (1 + n % 8) * UNIT;
        let hits = |range: &Range<u64>| taken.iter().chain([&space.pool]).any(|t| range.start < t.end && t.start < range.end);
        let room = (FIRST..=space.limit - bytes).step_by(UNIT as usize).any(|at| !hits(&(at..at + bytes)));
        match reserve(&space, bytes) {
            Some(base) if hits(&(base..base + bytes)) => return Err(format!("{bytes:#x} at {base:#x} among {taken:x?}")),
            Some(base) if base < FIRST || base + bytes > space.limit => return Err(format!("{base:#x} is outside")),
            Some(base) => taken.push(base..base + bytes),
            None if room => return Err(format!("no {bytes:#x} among {taken:x?}")),
            None => {}
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn regions_never_overlap_and_fill_every_gap(steps in prop::collection::vec((prop::bool::weighted(0.6), 0u64..100), 1..60)) {
        prop_assert_eq!(regions_are_disjoint(&steps, Space::reserve, Space::forget), Ok(()));
    }
}

#[test]
fn addresses_that_are_given_twice_are_caught() {
    let twice = |space: &Space, bytes| space.reserve(bytes).inspect(|&base| space.forget(base));
    assert!(regions_are_disjoint(&[(true, 0), (true, 0)], twice, Space::forget).is_err());
}

#[test]
fn addresses_that_are_never_free_again_are_caught() {
    let steps: Vec<_> = [(true, 7), (false, 0)].repeat(3);
    assert!(regions_are_disjoint(&steps, Space::reserve, |_, _| {}).is_err());
}
