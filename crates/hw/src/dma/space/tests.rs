#![allow(clippy::single_range_in_vec_init)] // a list of ranges may have one

use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

#[test]
fn pools_fit_the_address_width() {
    for _ in 0..2 * SLOTS {
        for (bytes, bits) in [
            (GIB, 34),
            (GIB, 39),
            (400 * GIB, 39),
            (508 * GIB, 39),
            (1024 * GIB, 48),
            (1024 * GIB, 64),
        ] {
            let space = AddressSpace::new(bytes, bits, &[]).unwrap();
            let (base, limit) = (space.pool_base(), space.limit());
            assert!(
                base >= FIRST && base % 4096 == 0 && base + bytes <= limit,
                "{bytes} at {base:#x} below {limit:#x}"
            );
            assert_eq!(limit, 1 << bits.min(63));
        }
    }
    assert_eq!(AddressSpace::new(508 * GIB + 1, 39, &[]).unwrap_err(), 508 * GIB);
    assert_eq!(AddressSpace::new(1, 32, &[]).unwrap_err(), 0);
    assert_eq!(AddressSpace::new(1, 0, &[]).unwrap_err(), 0);
}

#[test]
fn two_pools_rarely_share_an_address() {
    let spaces: Vec<AddressSpace> =
        (0..8).map(|_| AddressSpace::new(GIB, 39, &[]).unwrap()).collect();
    for (n, one) in spaces.iter().enumerate() {
        assert!(
            spaces[n + 1..].iter().all(|other| !other.pool.contains(&one.pool_base())),
            "{spaces:#x?}"
        );
    }
}

/// Reserves and frees at random: regions are within the limits and overlap neither the pool nor
/// each other, and are refused only if no gap is large enough.
fn regions_are_disjoint(
    steps: &[(bool, u64)],
    reserve: impl Fn(&AddressSpace, u64) -> Option<u64>,
    free: impl Fn(&AddressSpace, u64),
) -> Result<(), String> {
    const UNIT: u64 = GIB / 4;
    let space = AddressSpace {
        pool: FIRST + GIB..FIRST + 2 * GIB,
        windows: vec![FIRST..FIRST + 4 * GIB],
        regions: Mutex::default(),
    };
    let mut taken: Vec<Range<u64>> = Vec::new();
    for &(take, n) in steps {
        if !take {
            if !taken.is_empty() {
                free(&space, taken.swap_remove(n as usize % taken.len()).start);
            }
            continue;
        }
        let bytes = (1 + n % 8) * UNIT;
        let hits = |range: &Range<u64>| {
            taken.iter().chain([&space.pool]).any(|t| range.start < t.end && t.start < range.end)
        };
        let room = (FIRST..=space.limit() - bytes)
            .step_by(UNIT as usize)
            .any(|at| !hits(&(at..at + bytes)));
        match reserve(&space, bytes) {
            Some(base) if hits(&(base..base + bytes)) => {
                return Err(format!("{bytes:#x} at {base:#x} among {taken:x?}"));
            }
            Some(base) if base < FIRST || base + bytes > space.limit() => {
                return Err(format!("{base:#x} is outside"));
            }
            Some(base) => taken.push(base..base + bytes),
            None if room => return Err(format!("no {bytes:#x} among {taken:x?}")),
            None => {}
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn regions_never_overlap(steps in prop::collection::vec((prop::bool::weighted(0.6), 0u64..100), 1..60)) {
        prop_assert_eq!(regions_are_disjoint(&steps, AddressSpace::reserve, AddressSpace::free), Ok(()));
    }
}

#[test]
fn overlap_mutant_is_caught() {
    let twice =
        |space: &AddressSpace, bytes| space.reserve(bytes).inspect(|&base| space.free(base));
    assert!(regions_are_disjoint(&[(true, 0), (true, 0)], twice, AddressSpace::free).is_err());
}

#[test]
fn leak_mutant_is_caught() {
    let steps: Vec<_> = [(true, 7), (false, 0)].repeat(3);
    assert!(regions_are_disjoint(&steps, AddressSpace::reserve, |_, _| {}).is_err());
}

#[test]
fn iommu_windows_are_respected() {
    // As Linux lists them: without the MSI range of the local APIC, and 39 bits wide.
    let windows = [0..0xfee0_0000, 0xfef0_0000..1 << 39];
    for _ in 0..2 * SLOTS {
        let space = AddressSpace::new(GIB, 48, &windows).unwrap();
        assert!(space.pool_base() >= FIRST && space.pool_base() + GIB <= 1 << 39, "{space:#x?}");
        assert_eq!(space.limit(), 1 << 39);
    }
    assert_eq!(
        AddressSpace::new(GIB, 48, &[0..0xfee0_0000]).unwrap_err(),
        0,
        "nothing above 4 GiB"
    );
    assert_eq!(
        AddressSpace::new(2 * GIB, 48, &[FIRST..FIRST + GIB, 4 * FIRST..5 * FIRST - 5000])
            .unwrap()
            .pool_base(),
        4 * FIRST
    );
    assert_eq!(
        AddressSpace::new(9 * GIB, 48, &[FIRST..FIRST + GIB, 4 * FIRST..4 * FIRST + 2 * GIB])
            .unwrap_err(),
        2 * GIB
    );
}

fn windows() -> impl Strategy<Value = Vec<Range<u64>>> {
    prop::collection::vec((0..40 * GIB, 0..10 * GIB), 1..6).prop_map(|windows| {
        windows.into_iter().map(|(start, bytes)| start..start + bytes).collect()
    })
}

proptest! {
    /// Windows of an IOMMU may be unordered, overlap, and begin within a page. All addresses lie in
    /// one of them.
    #[test]
    fn pools_and_regions_lie_in_windows(windows in windows(), bytes in 1u64..64, regions in prop::collection::vec(1u64..3 << 20, 0..20)) {
        let bytes = bytes * CHUNK;
        let Ok(space) = AddressSpace::new(bytes, 48, &windows) else { return Ok(()) };
        let mut taken = vec![space.pool.clone()];
        for pages in regions {
            let bytes = pages * PAGE;
            if let Some(base) = space.reserve(bytes) {
                prop_assert!(taken.iter().all(|other| base >= other.end || base + bytes <= other.start), "{:x?} and {:x}", taken, base);
                taken.push(base..base + bytes);
            }
        }
        prop_assert!(space.pool_base().is_multiple_of(CHUNK));
        for Range { start, end } in taken {
            prop_assert!(start >= FIRST && start % PAGE == 0);
            // One window, or several overlapping ones, contain all of it.
            let mut at = start;
            while let Some(next) = windows.iter().filter(|window| window.contains(&at)).map(|window| window.end).max() {
                at = next;
            }
            prop_assert!(at >= end, "{start:x}..{end:x} is not in {windows:x?}");
        }
    }
}
