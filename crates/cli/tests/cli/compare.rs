use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Ended, Place};

const SMALL: &str = "--device mem:16M?profile=optane";

fn words(ended: &Ended, words: &[&str]) {
    for word in words {
        assert!(ended.stdout.contains(word), "{word:?} is not in\n{}\n{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn two_modes_make_a_table_and_a_file() {
    let place = Place::new();
    let ended = place.reap(&format!("compare {SMALL} --modes interrupt,poll --repeat 1 --json results.json")).ok();
    words(&ended, &["randread 4 KiB, queue depth 32", "interrupt", "poll", "A/A: interrupt against itself", "Machine: "]);
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    assert_eq!(results["schema"], 1);
    assert_eq!(results["device"], "mem:16M?profile=optane");
    for row in results["rows"].as_array().unwrap() {
        assert_eq!((&row["qd"], &row["profile"], &row["load_pct"]), (&32.into(), &"optane".into(), &100.0.into()));
        assert!(row["iops"].as_f64().unwrap() > 0.0 && row["cpu_ns_per_io"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["lat_ns"]["p50"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["stolen_ns_per_io"].is_number(), "{row}");
        let ci = row["ci"]["iops"].as_array().unwrap();
        assert!(ci[0].as_f64() <= row["iops"].as_f64() && row["iops"].as_f64() <= ci[1].as_f64(), "{row}");
    }
    let pairs = results["pairs"].as_array().unwrap();
    let named: BTreeSet<&str> = pairs.iter().map(|pair| pair["figure"].as_str().unwrap()).collect();
    assert_eq!(named, BTreeSet::from(["iops", "cpu_ns_per_io", "lat_p50"]));
    assert!(pairs.iter().any(|pair| pair["b"] == "interrupt (A/A)"), "{pairs:?}");
}

#[test]
fn jobs_of_several_threads_and_devices_are_compared_as_one() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randrw\nbs=4k\niodepth=4\nfilename=x:y\n[b]\nnumjobs=2\nfilename=y\niodepth=2\ngtod_reduce=1\n");
    let ended = place.reap(&format!("compare job.fio {SMALL} --modes irq-poll --repeat 1 --json results.json")).ok();
    words(&ended, &["3 threads"]);
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    assert_eq!(results["rows"][0]["qd"], 8);
}

#[test]
fn a_rate_is_a_load() {
    let place = Place::new();
    place.write("job.fio", "[paced]\nrw=randread\nbs=4k\niodepth=16\nrate_iops=2000\nrate_process=poisson\n");
    let ended = place.reap(&format!("compare job.fio {SMALL} --modes interrupt --repeat 1 --json results.json")).ok();
    words(&ended, &["Load: 2.00 kIOPS meant", "intended start"]);
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    let load = results["rows"][0]["load_pct"].as_f64().unwrap();
    assert!(load > 0.0 && load < 100.0, "{load}");
}

#[test]
fn stages_are_not_compared() {
    let place = Place::new();
    place.write("job.fio", "[a]\n[b]\nstonewall\n");
    place.reap(&format!("compare job.fio {SMALL}")).fails_with(&["stonewall"]);
}
