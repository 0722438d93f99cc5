use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Ended, Place, interrupt, patiently};

const SMALL: &str = "--device mem:16M?profile=optane";

/// The output has these words, wherever its lines break.
fn words(ended: &Ended, words: &[&str]) {
    let output = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(output.contains(word), "{word:?} is not in\n{}\n{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn two_modes_make_table_and_json() {
    let place = Place::new();
    let ended = place
        .reap(&format!("compare {SMALL} --modes interrupt,poll --repeat 1 --json results.json"))
        .ok();
    words(
        &ended,
        &[
            "randread 4 KiB, queue depth 32",
            "interrupt",
            "poll",
            "A/A: interrupt against itself",
            "Machine: ",
        ],
    );
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    assert_eq!(results["schema"], 1);
    assert_eq!(results["device"], "mem:16M?profile=optane");
    for row in results["rows"].as_array().unwrap() {
        assert_eq!(
            (&row["qd"], &row["profile"], &row["load_pct"]),
            (&32.into(), &"optane".into(), &100.0.into())
        );
        let (iops, latencies) = (row["iops"].as_f64().unwrap(), &row["lat_ns"]);
        assert!(
            iops > 0.0 && row["cpu_ns_per_io"].as_f64() >= row["thread_cpu_ns_per_io"].as_f64(),
            "{row}"
        );
        assert!(latencies["mean"].as_f64().unwrap() > 0.0, "{row}");
        // A median takes 40 I/Os. A block of 100 ms has them at this rate; where others have the
        // CPU it may have no more than its depth.
        assert!(latencies["p50"].as_f64().map_or(iops < 1_000.0, |p50| p50 > 0.0), "{row}");
        // Where others have the CPU nothing is known of it, or nothing is left to lose.
        assert!(row["stolen_ns_per_io"].as_f64().is_none_or(|stolen| stolen >= 0.0), "{row}");
        // One round: no interval of that.
        assert!(row["ci"]["iops"].is_null(), "{row}");
    }
    // Table and file say so.
    assert_eq!(
        (&results["valid"], results["reasons"].as_array().unwrap().is_empty()),
        (&false.into(), false),
        "{results}"
    );
    assert!(ended.stdout.contains("\n\nInconclusive: "), "{}", ended.stdout);
    assert!(
        !ended.stdout.contains("stolen") && results["wake_up_ns"]["notified"].as_f64() > Some(0.0),
        "{}",
        ended.stdout
    );
    words(&ended, &["an interval takes 6 rounds"]);
    let pairs = results["pairs"].as_array().unwrap();
    let named: BTreeSet<&str> = pairs.iter().map(|pair| pair["figure"].as_str().unwrap()).collect();
    assert_eq!(named, BTreeSet::from(["iops", "cpu_ns_per_io", "lat_p50", "cpu_x_lat_mean_cubed"]));
    assert!(pairs.iter().any(|pair| pair["b"] == "interrupt (A/A)"), "{pairs:?}");
}

/// A price list says what a wake-up takes; without one the default is named.
#[test]
fn wake_ups_cost_what_the_list_says() {
    let place = Place::new();
    place.write("here.toml", "base = \"vm\"\n[wake_up]\neventfd = 5000\ntimer = 7000\n");
    let compare = format!("compare {SMALL} --modes interrupt --repeat 1 --json results.json");
    let notified = |place: &Place| {
        serde_json::from_str::<Value>(&place.read("results.json")).unwrap()["wake_up_ns"]["notified"].clone()
    };
    words(
        &place.reap(&format!("{compare} --costs here.toml --wide")).ok(),
        &["plus 5.0 µs (by timer 7.0 µs) per wake-up", "thread: CPU time"],
    );
    assert_eq!(notified(&place), 5000.0);
    words(&place.reap(&compare).ok(), &["(not measured here: the default for "]);
    assert_ne!(notified(&place), 5000.0);
    place.reap(&format!("{compare} --costs no.toml")).fails_with(&["price list no.toml"]);
}

#[test]
fn several_threads_compare_as_one() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randrw\nbs=4k\niodepth=4\nfilename=x:y\n[b]\nnumjobs=2\nfilename=y\niodepth=2\ngtod_reduce=1\n");
    let ended = place
        .reap(&format!("compare job.fio {SMALL} --modes irq-poll --repeat 1 --json results.json"))
        .ok();
    words(&ended, &["randrw 4 KiB; read 4 KiB, 2 threads"]);
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    assert_eq!(results["rows"][0]["qd"], 8);
}

#[test]
fn a_rate_is_a_load() {
    let place = Place::new();
    place.write(
        "job.fio",
        "[paced]\nrw=randread\nbs=4k\niodepth=16\nrate_iops=2000\nrate_process=poisson\n",
    );
    let ended = place
        .reap(&format!("compare job.fio {SMALL} --modes interrupt --repeat 1 --json results.json"))
        .ok();
    words(&ended, &["Loads: 2.00 kIOPS offered", "intended start"]);
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    let load = results["rows"][0]["load_pct"].as_f64().unwrap();
    // A machine that is busy may reach less than the rate; what it never is, is the 100 of a closed
    // loop.
    assert!(load > 0.0 && load != 100.0, "{load}");
}

#[test]
fn output_shows_thread_placement() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nfilename=disk\nsize=1m\n");
    let list = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let first = list
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"))
        .unwrap()
        .split([',', '-'])
        .next()
        .unwrap()
        .to_owned();
    let compare = "compare job.fio --device kernel: --modes interrupt --repeat 1";
    words(
        &place.reap(&format!("{compare} --cpus {first}")).ok(),
        &[&format!("threads on CPU {first}, as --cpus says;")],
    );
    words(&place.reap(compare).ok(), &["Machine: ", "; threads "]);
    place
        .reap(&format!("{compare} --cpus 4095"))
        .fails_with(&["--cpus: this process may not use CPU 4095"]);
    place.reap(&format!("{compare} --cpus x")).fails_with(&["'x' is not the number of a CPU"]);
}

#[test]
fn stages_are_not_compared() {
    let place = Place::new();
    place.write("job.fio", "[a]\n[b]\nstonewall\n");
    place.reap(&format!("compare job.fio {SMALL}")).fails_with(&["stonewall"]);
}

#[test]
fn sweep_is_planned_and_drawn() {
    let place = Place::new();
    let ended = place
        .reap(&format!(
            "compare {SMALL} --modes interrupt,poll --repeat 1 --loads 20,100 --qd 2,3 --background 30 --json results.json --html page.html"
        ))
        .ok();
    assert!(ended.stderr.contains(" blocks: about "), "{}", ended.stderr);
    words(
        &ended,
        &[
            "optane, queue depth 2 ─",
            "optane, queue depth 3 ─",
            "a thread that takes 30 %",
            "100 % is what polling reaches",
        ],
    );
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    let rows = results["rows"].as_array().unwrap();
    let scenes: BTreeSet<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{} {} {} {}",
                row["profile"], row["qd"], row["load_pct"], row["background_pct"]
            )
        })
        .collect();
    assert_eq!((rows.len(), scenes.len()), (16, 8), "{scenes:?}");
    // Beside a background thread it is said what that one got, and no loop at idle priority is
    // asked.
    for row in rows {
        let background = row["background_pct"].is_number();
        assert_eq!(row["background_had_pct"].is_number(), background, "{row}");
        assert!(!background || row["stolen_ns_per_io"].is_null(), "{row}");
    }
    let page = place.read("page.html");
    assert!(
        page.starts_with("<!doctype html>") && page.contains("\"command\":\"reap compare --device"),
        "{}",
        page.len()
    );
}

#[test]
fn ctrl_c_prints_what_there_is() {
    let place = Place::new();
    let ended = patiently(|time| {
        let child = place.start(&format!(
            "compare {SMALL} --modes interrupt --repeat 1000 --loads 50 --json results.json"
        ));
        thread::sleep(time);
        interrupt(&child);
        let ended: Ended = child.wait_with_output().unwrap().into();
        (ended.code.is_some() && place.path("results.json").exists()).then_some(ended)
    });
    let ended = ended.stopped();
    assert!(ended.stderr.contains("stopped by a signal after"), "{}", ended.stderr);
    words(&ended, &["interrupt", "A/A: interrupt against itself"]);
    assert!(place.read("results.json").contains("\"load_pct\": 50.0"));
}

/// Its file is cut short in the middle of its rounds.
#[test]
fn failing_device_keeps_finished_rounds() {
    let place = Place::new();
    let ended = patiently(|time| {
        let disk = place.path("disk.img");
        let _ = std::fs::remove_file(&disk);
        let mut child = place.start("compare --device file:disk.img?size=16M --modes poll --repeat 1000 --json results.json");
        thread::sleep(time);
        while child.try_wait().unwrap().is_none() {
            let _ = std::fs::File::options()
                .write(true)
                .open(&disk)
                .and_then(|disk| disk.set_len(4_096));
            thread::sleep(Duration::from_millis(10));
        }
        let ended: Ended = child.wait_with_output().unwrap().into();
        // The first round is over, or it was too soon.
        place.path("results.json").exists().then_some(ended)
    });
    let ended = ended.fails_with(&["job 'randread'"]);
    words(&ended, &["A/A: poll against itself"]);
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    assert_eq!(
        (&results["complete"], results["rows"].as_array().unwrap().len()),
        (&false.into(), 1)
    );
}

#[test]
fn impossible_sweeps_say_why() {
    let place = Place::new();
    place.write("job.fio", "[paced]\nrate_iops=2000\n");
    place
        .reap(&format!("compare job.fio {SMALL} --loads 5"))
        .fails_with(&["job 'paced' has a rate of its own"]);
    place.reap(&format!("compare {SMALL} --loads 5,150")).fails_with(&["above 0 and at most 100"]);
    place
        .reap(&format!("compare {SMALL} --html /nowhere/page.html"))
        .fails_with(&["/nowhere/page.html"]);
}
