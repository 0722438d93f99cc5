use super::*;

#[test]
fn never_stays_never() {
    assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
    assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
}

#[test]
fn spans_print_in_the_unit_a_person_would_choose() {
    let shown = [999, 12_300, 80_000_000, 30_000_000_000].map(|n| Nanos(n).to_string());
    assert_eq!(shown, ["999 ns", "12.3 µs", "80.0 ms", "30.0 s"]);
}

#[test]
fn classes_are_dense_and_split_at_powers_of_two() {
    let all = [Op::Read, Op::Write, Op::Flush].map(|op| [0, 512, 513, 4096, 4097, u32::MAX].map(|n| Class::new(op, n).index()));
    assert_eq!(all[0], [0, 0, 1, 3, 4, 11]);
    assert!(all.iter().flatten().all(|&i| i < Class::COUNT));
    assert_eq!(all[1][0], 12);
}
