use super::*;

#[test]
fn size_classes_split_at_powers() {
    let all =
        Op::ALL.map(|op| [0, 512, 513, 4096, 4097, u32::MAX].map(|n| Class::new(op, n).index()));
    assert_eq!(all[0], [0, 0, 1, 3, 4, 11]);
    assert!(all.iter().flatten().all(|&i| i < Class::COUNT));
    assert_eq!(all[1], [12, 12, 13, 15, 16, 23]);
    // Whatever they name.
    assert_eq!(all[2..], [[24; 6], [25; 6], [26; 6], [27; 6], [28; 6], [29; 6]]);
    let mut indices: Vec<_> = Op::ALL
        .iter()
        .flat_map(|&op| (0..32).map(move |n| Class::new(op, 1 << n).index()))
        .collect();
    indices.sort_unstable();
    indices.dedup();
    assert!(indices.iter().copied().eq(0..Class::COUNT), "every index is some class's");
}

#[test]
fn size_class_upper_bounds() {
    assert_eq!(
        [1, 512, 513, 4096, 1 << 20].map(|n| Class::new(Op::Write, n).most_bytes()),
        [512, 512, 1024, 4096, 1 << 20]
    );
    assert_eq!(
        [Op::Flush, Op::WriteZeroes, Op::Deallocate]
            .map(|op| Class::new(op, u32::MAX).most_bytes()),
        [512; 3]
    );
}

#[test]
fn writes_include_zeroes_and_deallocate() {
    let of = |is: fn(Op) -> bool| Op::ALL.into_iter().filter(|&op| is(op)).collect::<Vec<_>>();
    assert_eq!(of(Op::transfers_blocks), [Op::Read, Op::Write]);
    assert_eq!(
        of(Op::changes_blocks),
        [Op::Write, Op::WriteZeroes, Op::Deallocate, Op::WriteUncorrectable]
    );
}
