use super::*;

#[test]
fn never_stays_never() {
    assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
    assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
}

#[test]
fn durations_print_in_readable_units() {
    let shown = [999, 12_300, 80_000_000, 30_000_000_000].map(|n| Nanos(n).to_string());
    assert_eq!(shown, ["999 ns", "12.3 µs", "80.0 ms", "30.0 s"]);
}

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

#[test]
fn cpu_lists_round_trip() {
    assert_eq!(cpus("8, 0-3,2"), Ok(vec![0, 1, 2, 3, 8]));
    for (text, shown) in [("0-3,8", "0-3,8"), ("1,2", "1-2"), ("5", "5"), ("0,2,4-4", "0,2,4")] {
        assert_eq!(cpu_ranges(&cpus(text).unwrap()), shown);
    }
    for (text, why) in [
        ("3-1", "ends before it starts"),
        ("-1", "before the dash"),
        ("4096", "too large"),
        ("x", "not the number"),
    ] {
        assert!(cpus(text).unwrap_err().contains(why), "{text}");
    }
    assert_eq!(cpu_ranges(&[]), "");
}

#[test]
fn times_are_exact() {
    for (word, nanos) in [
        ("0s", 0),
        ("7ns", 7),
        ("1.5us", 1_500),
        ("2µs", 2_000),
        ("0.25ms", 250_000),
        ("1.000000001s", 1_000_000_001),
    ] {
        assert_eq!(word.parse(), Ok(Nanos(nanos)), "{word}");
    }
    for word in [
        "",
        "s",
        "1",
        "1.s",
        ".5s",
        "1e3s",
        "-1s",
        "1.0000000001s",
        "99999999999999s",
        "1,5s",
        "1h",
    ] {
        assert!(word.parse::<Nanos>().unwrap_err().contains("` is not a duration"), "{word}");
    }
}

const NAMES: [&str; 4] = ["dim", "interrupt", "poll", "irq-poll"];

#[test]
fn a_slip_is_forgiven() {
    for (given, meant) in [
        ("polll", "poll"),
        ("opll", "poll"),
        ("INTERUPT", "interrupt"),
        ("irqpoll", "irq-poll"),
        ("di", "dim"),
    ] {
        assert_eq!(nearest(given, NAMES), Some(meant), "{given}");
    }
}

#[test]
fn unlike_names_get_no_hint() {
    let long = "poll".repeat(17);
    for given in ["", "x", "frobnicate", long.as_str()] {
        assert_eq!(nearest(given, NAMES), None, "{given}");
    }
    assert_eq!(nearest("poll", []), None);
}
