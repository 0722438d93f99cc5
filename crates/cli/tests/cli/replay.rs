//! `reap sim --replay`, and price lists.

use serde_json::Value;

use crate::support::Place;

fn rows(place: &Place) -> Value {
    serde_json::from_str(&place.read("rows.json")).unwrap()
}

#[test]
fn a_list_of_run_is_replayed() {
    let place = Place::new();
    place.write(
        "job.fio",
        "[a]\nrw=randrw\nbs=4k\nrate_iops=10000\nnumber_ios=300\nwrite_iolog=run.log\n",
    );
    place.reap("run job.fio --device mem:128M?profile=null").ok();
    let ended = place.reap("sim --replay run.log --modes interrupt,poll").ok();
    assert!(ended.stdout.contains(" I/Os of run.log in 1 threads"), "{}", ended.stdout);
}

#[test]
fn iolog_files_are_separate_streams() {
    let place = Place::new();
    let ios = |start: u64, step: u64, name: &str| {
        (0..50)
            .map(|n| format!("{} {name} read {} 4096\n", start + n * step, n * 8192))
            .collect::<String>()
    };
    let list = |ios: String| {
        format!("fio version 3 iolog\n0 a add\n0 b add\n0 a open\n0 b open\n{ios}5000 b sync 0 0\n")
    };
    place.write("two", &list(ios(0, 100, "a") + &ios(0, 100, "b")));
    place.write("one", &list(ios(0, 100, "b")));
    let iops = |lists: &str| {
        let ended = place.reap(&format!("sim {lists} --modes interrupt --json rows.json")).ok();
        (rows(&place)["rows"][0]["iops"].as_f64().unwrap().round(), ended.stdout)
    };
    let (one, _) = iops("--replay one");
    let (two, said) = iops("--replay two");
    assert!(said.contains("101 I/Os of two in 2 threads"), "{said}");
    assert!((one * 1.95..one * 2.05).contains(&two), "{one} {two}");
    let (both, said) = iops("--replay one --replay two");
    assert!(said.contains("152 I/Os of one, two in 3 threads"), "{said}");
    assert!(both > one * 2.9, "{one} {both}");
    // On a scenario's own machine and devices, one for each file.
    place.write("s.toml", "[machine]\ncpus = 2\n[[device]]\ncount = 2\nprofile = \"tlc\"\n[[job]]\noptions = { rw = \"randread\" }\n");
    iops("s.toml --replay two");
}

#[test]
fn flushes_are_not_ios() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=write\nbs=4k\niodepth=4\nnumber_ios=300\nfsync=3\nend_fsync=1\nwrite_iolog=run.log\n");
    place.reap("run job.fio --device mem:16M?profile=optane").ok();
    let ended = place.reap("sim --replay run.log --modes interrupt --json rows.json").ok();
    assert!(ended.stdout.contains("400 I/Os of run.log"), "{}", ended.stdout);
    let row = &rows(&place)["rows"][0];
    // Each command has its message, but of the 400 only 300 are I/Os.
    assert!(
        (row["messages_per_s"].as_f64().unwrap() / row["iops"].as_f64().unwrap() - 4.0 / 3.0).abs()
            < 1e-6,
        "{row}"
    );
    // And a scenario's job flushes, on several paths, too.
    for paths in ["", "paths = { policy = \"queue-depth\" }\ndevices = [\"a\", \"b\"]\n"] {
        let devices = "[[device]]\nname = \"a\"\nprofile = \"tlc\"\n[[device]]\nname = \"b\"\nprofile = \"tlc\"\n";
        place.write("s.toml", &format!("{devices}[[job]]\n{paths}options = {{ rw = \"randwrite\", iodepth = 8, fsync = 4 }}\n"));
        place.reap("sim s.toml --modes interrupt,adaptive").ok();
    }
}

#[test]
fn price_list_from_a_file() {
    let place = Place::new();
    place.write(
        "job.toml",
        "ios = 300\n[[device]]\nprofile = \"optane\"\n[[job]]\noptions = { rw = \"randread\" }\n",
    );
    let cost = |costs: &str| {
        place
            .reap(&format!("sim job.toml --modes interrupt --json rows.json --costs {costs}"))
            .ok();
        rows(&place)["rows"][0]["cpu_ns_per_io"].as_f64().unwrap()
    };
    place.write("here.toml", "base = \"vm\"\n[thread]\nswitch = 26000\n");
    // Away and back: two switches, each 20 µs dearer.
    assert!(cost("here.toml") > cost("vm") + 15_000.0);
    place.write("wrong.toml", "[thread]\nswich = 1\n");
    let wrong = place.reap("sim job.toml --costs wrong.toml");
    wrong.fails_with(&["wrong.toml:2:1", "thread.swich", "did you mean 'switch'?"]);
    place.reap("sim --costs vn").fails_with(&["unknown price list 'vn'", "bare-metal, vm"]);
    // A scenario names it as well.
    place.write(
        "s.toml",
        "ios = 100\n[machine]\ncosts = \"here.toml\"\n[[device]]\nprofile = \"optane\"\n[[job]]\noptions = { rw = \"randread\" }\n",
    );
    place.reap("sim s.toml --modes interrupt").ok();
}

#[test]
fn bad_lists_have_own_errors() {
    let place = Place::new();
    let v3 = |line: &str| format!("fio version 3 iolog\n0 a add\n{line}\n");
    place.write("not", "[a]\nrw=read\n").write("v2", "fio version 2 iolog\na add\na read 0 4096\n");
    place
        .write("cut", &v3("5 a read 4096"))
        .write("odd", &v3("5 a read 100 4096"))
        .write("trim", &v3("5 a trim 0 4096"));
    place.write("long", &v3("5 a read 0 2097152")).write("empty", &v3("5 a open"));
    for (list, words) in [
        ("none", "iolog none"),
        ("not", "its first line is not 'fio version"),
        ("v2", "v2 is an iolog of version 2, which has no time stamps"),
        ("cut", "cut:3: 'read' needs an offset and a length"),
        ("odd", "100"),
        ("trim", "does not support trims"),
        ("long", "requests of 2097152 bytes"),
        ("empty", "empty has no I/O"),
    ] {
        place.reap(&format!("sim --replay {list}")).fails_with(&[words]);
    }
}
