use proptest::prelude::*;

use super::*;

/// The definition of a correct split.
fn check(
    splitter: &Splitter,
    boundary: u32,
    lba: u64,
    blocks: u32,
    parts: &[Part],
) -> Result<(), String> {
    let mut next = lba;
    for part in parts {
        if part.lba != next {
            return Err(format!("gap or overlap before {part:?}"));
        }
        if part.offset != (part.lba - lba) * splitter.block_size() {
            return Err(format!("data of {part:?} is elsewhere in the buffer"));
        }
        if part.blocks == 0 || part.blocks > splitter.max_blocks() {
            return Err(format!("{part:?} is empty or too large"));
        }
        if boundary != 0
            && part.lba / u64::from(boundary)
                != (part.lba + u64::from(part.blocks) - 1) / u64::from(boundary)
        {
            return Err(format!("{part:?} crosses a boundary"));
        }
        next += u64::from(part.blocks);
    }
    if next != lba + u64::from(blocks) {
        return Err(format!("parts end at {next}"));
    }
    Ok(())
}

fn cases() -> impl Strategy<Value = (u8, u64, u32, u64, u32)> {
    let boundary = prop_oneof![Just(0u32), 1u32..40, (0u32..16).prop_map(|n| 1 << n)];
    (
        9u8..=16,
        1u64..300,
        boundary,
        prop_oneof![0u64..1000, any::<u64>().prop_map(|n| n >> 1)],
        1u32..2000,
    )
        .prop_map(|(log2, max, boundary, lba, blocks)| (log2, max << log2, boundary, lba, blocks))
}

proptest! {
    #[test]
    fn parts_cover_request_within_limits((log2, max, boundary, lba, blocks) in cases()) {
        let splitter = Splitter::new(log2, max, boundary).unwrap();
        let split = splitter.split(lba, blocks);
        let count = split.parts();
        let parts: Vec<_> = split.collect();
        prop_assert_eq!(check(&splitter, boundary, lba, blocks, &parts), Ok(()));
        prop_assert_eq!(count as usize, parts.len());
    }

    /// The request completes with its last part, once, with the error that came first.
    #[test]
    fn first_error_wins_and_completes_once(results in prop::collection::vec(prop::result::maybe_ok(Just(()), any::<u16>()), 1..50)) {
        let mut parts = Parts::new(results.len() as u32);
        let first = results.iter().find(|r| r.is_err()).copied().unwrap_or(Ok(()));
        let done: Vec<_> = results.iter().map(|&r| parts.complete(r)).collect();
        let (last, others) = done.split_last().unwrap();
        prop_assert!(others.iter().all(Option::is_none));
        prop_assert_eq!(*last, Some(first));
        prop_assert_eq!(parts.complete(Err(0)), None);
    }
}

/// Mutant: a split that ignores the boundary fails the same check.
#[test]
fn a_splitter_without_boundary_is_caught() {
    let splitter = Splitter::new(9, 8 << 9, 0).unwrap();
    let parts: Vec<_> = splitter.split(3, 16).collect();
    assert!(check(&splitter, 8, 3, 16, &parts).unwrap_err().contains("crosses"));
}

#[test]
fn requests_are_refused_with_the_reason() {
    let splitter = Splitter::new(12, 1 << 17, 0).unwrap();
    assert!(splitter.split_bytes(4096, 8192, 3).is_ok());
    assert!(matches!(
        splitter.split_bytes(512, 4096, 3),
        Err(SplitError::Unaligned { block: 4096, .. })
    ));
    assert!(matches!(splitter.split_bytes(4096, 0, 3), Err(SplitError::Empty { .. })));
    assert!(matches!(
        splitter.split_bytes(8192, 8192, 3),
        Err(SplitError::OutOfRange { capacity: 12288, .. })
    ));
    assert!(matches!(
        splitter.split_bytes(!4095, 8192, 1 << 52),
        Err(SplitError::OutOfRange { .. })
    ));
    assert!(matches!(Splitter::new(12, 2048, 0), Err(SplitError::NoBlockFits { .. })));
    assert!(matches!(Splitter::new(200, 1 << 20, 0), Err(SplitError::NoBlockFits { .. })));
}

#[test]
fn dataless_commands_have_own_limits() {
    let plain = Splitter::new(9, 1 << 20, 100).unwrap();
    assert_eq!(
        [Op::WriteZeroes, Op::Deallocate, Op::Flush, Op::Read]
            .map(|op| plain.max_optional_blocks(op)),
        [None; 4]
    );
    let most = |zeroes, deallocate| {
        let splitter = plain.with_dataless(zeroes, deallocate);
        // Reads and writes are split as before.
        assert_eq!(
            (splitter.max_blocks(), splitter.block_log2(), splitter.boundary()),
            (2048, 9, 100)
        );
        [Op::WriteZeroes, Op::Deallocate].map(|op| splitter.max_optional_blocks(op))
    };
    assert_eq!(most(Some(8192), Some(u64::from(u32::MAX))), [Some(8192), Some(1 << 30)]);
    assert_eq!(most(Some(u64::MAX), Some(u64::MAX)), [Some(1 << 15), Some(1 << 30)]);
    assert_eq!(most(Some(100), Some(100)), [Some(64), Some(64)]);
    assert_eq!(most(Some(1), Some(3)), [None, None]);
    assert_eq!(most(Some(0), None), [None, None]);
    assert!(
        plain.fits_one(0, 0)
            && plain.of(Op::Read).fits_one(0, 8)
            && !plain.of(Op::Flush).fits_one(0, 0)
    );
}

#[test]
fn compare_and_verify_have_own_limits() {
    let plain =
        Splitter::new(9, 1 << 20, u16::MAX.into()).unwrap().with_dataless(Some(64), Some(256));
    let most =
        |splitter: Splitter| [Op::Compare, Op::Verify].map(|op| splitter.max_optional_blocks(op));
    assert_eq!(most(plain), [None; 2]);
    for (verify, expected) in [
        (None, None),
        (Some(0), None),
        (Some(1), Some(1)),
        (Some(100), Some(64)),
        (Some(u64::MAX), Some(65_536)),
    ] {
        for compare in [false, true] {
            let splitter = plain.with_checks(compare, verify);
            assert_eq!(most(splitter), [compare.then_some(2048), expected]);
            assert_eq!(
                (splitter.max_blocks(), splitter.block_log2(), splitter.boundary()),
                (2048, 9, 65_535)
            );
            assert_eq!(
                [Op::WriteZeroes, Op::Deallocate].map(|op| splitter.max_optional_blocks(op)),
                [Some(64), Some(256)]
            );
            assert_eq!(most(splitter.and_optional(splitter)), most(splitter));
            assert_eq!(most(splitter.and_optional(plain)), [None; 2]);
        }
    }
    let both = plain.with_checks(true, Some(16));
    // Neither is posted as a Read or a Write is; parts are as large as allowed.
    assert!(!both.of(Op::Compare).fits_one(0, 1) && !both.of(Op::Verify).fits_one(0, 1));
    let apart = both.without_fast_path();
    assert!(
        both.fits_one(0, 1)
            && !apart.fits_one(0, 1)
            && apart.split(0, both.max_blocks()).parts() == 1
    );
    let parts = |op| both.of(op).split(60_000, 10_000).map(|part| part.blocks).max();
    assert_eq!([Op::Compare, Op::Verify].map(parts), [Some(2048), Some(16)]);
    assert_eq!(
        [Op::Compare, Op::Verify].map(|op| most(both.of(op))),
        [[Some(2048), Some(16)], [Some(16); 2]]
    );
}

/// It leaves the neighbouring bit fields alone.
#[test]
fn write_uncorrectable_has_own_limit() {
    let plain = Splitter::new(9, 1 << 20, u16::MAX.into())
        .unwrap()
        .with_dataless(Some(64), Some(256))
        .with_checks(true, Some(16));
    let of = |splitter: Splitter| {
        Op::ALL.map(|op| (op != Op::WriteUncorrectable).then(|| splitter.max_optional_blocks(op)))
    };
    for (most, expected) in [
        (None, None),
        (Some(0), None),
        (Some(1), Some(1)),
        (Some(100), Some(64)),
        (Some(u64::MAX), Some(65_536)),
    ] {
        let splitter = plain.with_uncorrectable(most);
        assert_eq!(splitter.max_optional_blocks(Op::WriteUncorrectable), expected);
        assert_eq!(
            (of(splitter), splitter.boundary(), splitter.with_uncorrectable(None)),
            (of(plain), 65_535, plain)
        );
        assert_eq!(
            (splitter.and_optional(splitter), splitter.and_optional(plain)),
            (splitter, plain)
        );
    }
    let parts = plain.with_uncorrectable(Some(16)).of(Op::WriteUncorrectable);
    assert_eq!((parts.fits_one(0, 1), parts.split(60_000, 40).parts()), (false, 3));
}

#[test]
fn range_lists_fit_every_path() {
    let plain = Splitter::new(9, 1 << 20, u16::MAX.into())
        .unwrap()
        .with_dataless(Some(64), Some(256))
        .with_checks(true, Some(16));
    assert_eq!(plain.max_ranges(), 1);
    let most = [0, 1, 5, 255, 256, u32::MAX].map(|most| plain.with_ranges(most));
    assert_eq!(most.map(|splitter| splitter.max_ranges()), [1, 1, 4, 128, 256, 256]);
    assert_eq!((most[4].and_optional(most[2]), most[4].with_ranges(1)), (most[2], plain));
    assert_eq!(most[4].of(Op::Deallocate).max_ranges(), 256);
}

/// A boundary of more than 16 bits counts as none: a Namespace page cannot express it.
#[test]
fn a_boundary_has_16_bits() {
    assert_eq!(
        [0, 65_535, 65_536, u32::MAX]
            .map(|wide| Splitter::new(9, 1 << 20, wide).unwrap().boundary()),
        [0, 65_535, 0, 0]
    );
}

proptest! {
    #[test]
    fn lesser_limit_is_kept(a in any::<[Option<u64>; 2]>(), b in any::<[Option<u64>; 2]>(), lba in 0u64..1 << 40, blocks in 1u32..1 << 20) {
        let plain = Splitter::new(12, 1 << 20, 256).unwrap();
        let [first, second] = [a, b].map(|[zeroes, deallocate]| plain.with_dataless(zeroes, deallocate));
        for (n, op) in [Op::WriteZeroes, Op::Deallocate].into_iter().enumerate() {
            let most = first.max_optional_blocks(op);
            prop_assert!(most.is_none_or(|most| u64::from(most) <= a[n].unwrap_or(0)));
            prop_assert_eq!(first.and_optional(second).max_optional_blocks(op), most.min(second.max_optional_blocks(op)));
            let Some(most) = most else { continue };
            let split = first.of(op);
            prop_assert_eq!(split.max_optional_blocks(op), Some(most));
            prop_assert!(!split.fits_one(lba, 1) && !split.fits_one(lba, most));
            let parts: Vec<_> = split.split(lba, blocks).collect();
            prop_assert_eq!(parts.len() as u32, blocks.div_ceil(most.min(65_536)));
            check(&split, 0, lba, blocks, &parts).map_err(TestCaseError::fail)?;
        }
    }
}
