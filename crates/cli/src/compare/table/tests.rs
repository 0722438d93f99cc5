use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use reap::Nanos;

use super::super::json;
use super::super::results::tests::{labels, record};
use super::*;

fn comparison() -> Comparison {
    let facts = Facts {
        device: "mem:1G?profile=optane".into(),
        profile: "optane".into(),
        job: "randread 4 KiB, queue depth 32".into(),
        depth: 32,
        block: Nanos::from_millis(100),
        ..Facts::default()
    };
    Comparison::new(&labels(&["interrupt+submit-check", "poll"]), &record(30), &facts, &mut Xoshiro256PlusPlus::seed_from_u64(1)).unwrap()
}

#[test]
fn the_table_fits_its_line() {
    for width in [80, 120] {
        let text = show(&comparison(), "2 CPUs", width);
        for line in text.lines() {
            assert!(line.trim_end().chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

#[test]
fn the_table_says_what_it_compares_and_what_it_dropped() {
    let text = show(&comparison(), "2 CPUs", 120).replace('\n', " ");
    for part in [
        "randread 4 KiB, queue depth 32 on mem:1G?profile=optane",
        "interrupt      ",
        "+submit-check  ",
        "ns/IO",
        "1.50–1.50",
        "Machine: 2 CPUs.",
        "30 rounds of 100 ms blocks in random order.",
        "90 blocks kept, 0 dropped that had any.",
        "A/A: interrupt+submit-check against itself: IOPS × 1.000 (1.000–1.000)",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn numbers_have_three_digits() {
    for (value, text) in
        [(0.0, "0"), (0.5, "0.50"), (9.999, "10.0"), (54.32, "54.3"), (4145.2, "4145"), (17_170.0, "17.2k"), (2e6, "2000k")]
    {
        assert_eq!(digits(value), text);
    }
}

#[test]
fn json_has_the_keys_of_schema_1() {
    let value = serde_json::to_value(json::Results::new(&comparison())).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&value), "schema device rows pairs");
    let row = &value["rows"][0];
    assert_eq!(
        keys(row),
        "mode load_pct qd profile iops cpu_ns_per_io stolen_ns_per_io notify_ns_per_io messages_per_s wakeups_per_s \
         completions_per_wakeup lat_ns entries_per_drain_max ci"
    );
    assert_eq!(keys(&row["lat_ns"]), "mean p50 p99 p999 p9999 max");
    assert_eq!(keys(&row["ci"]), "iops cpu_ns_per_io");
    assert_eq!(keys(&value["pairs"][0]), "a b figure ratio ci");
    assert_eq!(value["rows"][1]["stolen_ns_per_io"], serde_json::Value::Null);
}
