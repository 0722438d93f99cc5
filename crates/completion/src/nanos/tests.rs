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
