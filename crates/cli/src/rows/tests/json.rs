use super::{results, sweep, with_paths};

#[test]
fn json_has_schema_1_keys() {
    let value = results().json();
    let keys = |value: &serde_json::Value| {
        value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&value), "schema device rows pairs");
    let row = &value["rows"][0];
    assert_eq!(
        keys(row),
        "mode load_pct qd profile iops cpu_ns_per_io thread_cpu_ns_per_io stolen_ns_per_io notify_ns_per_io messages_per_s wakeups_per_s \
         completions_per_wakeup lat_ns entries_per_drain_max ci lat_curve"
    );
    assert_eq!(keys(&row["lat_ns"]), "mean p50 p99 p999 p9999 max");
    assert_eq!(
        keys(&row["ci"]),
        "iops cpu_ns_per_io thread_cpu_ns_per_io lat_p50 lat_p99 lat_p999"
    );
    assert_eq!(keys(&value["pairs"][0]), "a b figure ratio ci load_pct qd profile");
    assert_eq!(value["rows"][1]["stolen_ns_per_io"], serde_json::Value::Null);
}

#[test]
fn extra_keys_extend_the_schema() {
    let mut all = sweep();
    all.extra.insert("seeds".into(), 4.into());
    all.rows[0].extra.insert("empty_polls".into(), 7.into());
    let value = all.json();
    assert_eq!((&value["seeds"], &value["rows"][0]["empty_polls"]), (&4.into(), &7.into()));
    assert_eq!((&value["rows"][0]["load_pct"], &value["rows"][0]["qd"]), (&5.0.into(), &1.into()));
    assert_eq!(value["timelines"][0]["ticks"][0]["iops"], 1e5);
}

#[test]
fn several_paths_appear_in_json() {
    let value = with_paths().json();
    let paths = value["rows"][0]["paths"].as_array().unwrap();
    assert_eq!(
        (paths.len(), &paths[1]["ios"], &paths[1]["state"]),
        (2, &2000.into(), &"optimized".into())
    );
}
