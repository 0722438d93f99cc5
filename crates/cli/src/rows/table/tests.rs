use super::super::tests::{results, sweep, with_paths};
use super::*;

#[test]
fn first_screen_fits_80_columns() {
    for width in [80, 120] {
        let text = show(&sweep(), width, false, "");
        for line in text.lines() {
            assert!(line.trim_end().chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

#[test]
fn first_screen_has_five_columns() {
    let text = show(&results(), 80, false, "more\n");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert_eq!(
        lines,
        [
            "randread 4 KiB, queue depth 32 on mem:1G?profile=optane",
            "───────────────────────────────────────────────────────────────────────",
            "mode                        kIOPS  CPU per I/O         p50         p99",
            "                                            µs          µs          µs",
            "═══════════════════════════════════════════════════════════════════════",
            "interrupt+submit-check  200 ±1.0%   0.70 ±1.0%  50.0 ±1.0%  90.0 ±1.0%",
            "poll                    300 ±1.0%   0.70 ±1.0%  50.0 ±1.0%  90.0 ±1.0%",
            "───────────────────────────────────────────────────────────────────────",
            "more",
            "30 rounds, 90 blocks kept",
        ]
    );
}

#[test]
fn numbers_have_three_digits() {
    for (value, text) in [
        (0.0, "0"),
        (0.5, "0.50"),
        (9.999, "10.0"),
        (54.32, "54.3"),
        (4145.2, "4145"),
        (17_170.0, "17.2k"),
        (2e6, "2000k"),
        (1.52e7, "15.2M"),
    ] {
        assert_eq!(digits(value), text);
    }
}

#[test]
fn sweep_has_one_table_per_depth() {
    let text = show(&sweep(), 120, false, "");
    assert_eq!(text.matches("optane, queue depth 1\n").count(), 1, "{text}");
    assert_eq!(text.matches("optane, queue depth 32\n").count(), 1, "{text}");
    for load in [5, 50, 100] {
        assert_eq!(text.matches(&format!("\n{load:>4}  interrupt")).count(), 2, "{load}: {text}");
    }
}

#[test]
fn empty_columns_are_left_out() {
    let mut all = results();
    assert!(show(&all, 120, true, "").contains("stolen"));
    all.rows.iter_mut().for_each(|row| (row.stolen, row.notify) = (None, 0.0));
    all.pairs.clear();
    let text = show(&all, 120, true, "");
    assert!(["stolen", "notify", "÷"].iter().all(|word| !text.contains(word)), "{text}");
}

#[test]
fn paths_have_lines_per_mode() {
    assert!(!show(&results(), 120, false, "").contains("Paths"));
    let text = show(&with_paths(), 120, false, "");
    for (path, ios) in [("mem:1G?seed=1", "1000"), ("mem:1G?seed=2", "2000")] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(path)).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines.iter().all(|line| [ios, "7.50", "51.0", "optimized"]
                .iter()
                .all(|cell| line.contains(cell))),
            "{text}"
        );
    }
}

#[test]
fn lines_break_between_words() {
    assert_eq!(wrap("one two three", 7), "one two\nthree\n");
    assert_eq!(wrap("incomprehensible", 7), "incomprehensible\n");
}

/// Cells are broken between words for as long as they can.
#[test]
fn wide_tables_are_fitted() {
    let table = || ruled(["mode", "state"], vec![vec!["two words".into(), "of a state".into()]]);
    assert!(fitted(table(), 40).contains("two words  of a state"), "{}", fitted(table(), 40));
    assert!(
        fitted(table(), 14).lines().all(|line| line.chars().count() <= 14),
        "{}",
        fitted(table(), 14)
    );
}
