//! `reap sim --replay`.

use serde_json::Value;

use crate::support::Place;

fn recorded(job: &str, more: &str) -> Place {
    let place = Place::new();
    place.write("job.fio", job);
    place.reap(&format!("run job.fio --record run.trace --device mem:16M?profile=optane {more}")).ok();
    place
}

fn rows(place: &Place) -> Value {
    serde_json::from_str(&place.read("rows.json")).unwrap()
}

#[test]
fn a_recorded_run_in_its_own_mode_has_the_same_counts() {
    let job = "[a]\nrw=randread\nbs=4k\niodepth=8\niodepth_batch=8\niodepth_batch_complete_min=8\nnumber_ios=2000\n";
    let place = recorded(job, "--completion interrupt");
    let ended = place.reap("sim --replay run.trace --modes interrupt,poll --json rows.json").ok();
    for part in ["2000 submissions recorded under interrupt", "Recorded, for real: interrupt:", "Prices: vm."] {
        assert!(ended.stdout.contains(part), "{part:?} is not in\n{}", ended.stdout);
    }
    let json = rows(&place);
    assert_eq!((&json["recorded"]["run"]["ios"], &json["recorded"]["run"]["sq_doorbells"]), (&2_000.into(), &250.0.into()));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    // Batches of eight, and a message for each entry, as there were.
    let per_io = |row: &Value, key: &str| row[key].as_f64().unwrap() / row["iops"].as_f64().unwrap();
    assert!((per_io(&rows[0], "messages_per_s") - 1.0).abs() < 1e-6, "{}", rows[0]);
    assert!(rows.iter().all(|row| (per_io(row, "sq_doorbells_per_s") - 0.125).abs() < 1e-6), "{rows:?}");
    assert_eq!(rows[1]["messages_per_s"], 0.0);
}

#[test]
fn flushes_are_recorded_and_submitted_again() {
    let place = recorded("[a]\nrw=write\nbs=4k\niodepth=4\nnumber_ios=300\nfsync=3\nend_fsync=1\n", "--completion interrupt");
    let ended = place.reap("sim --replay run.trace --modes interrupt --json rows.json").ok();
    assert!(ended.stdout.contains("400 submissions recorded"), "{}", ended.stdout);
    let row = &rows(&place)["rows"][0];
    // Each command has its message, but of the 400 only 300 are I/Os.
    assert!((row["messages_per_s"].as_f64().unwrap() / row["iops"].as_f64().unwrap() - 4.0 / 3.0).abs() < 1e-6, "{row}");
    // And a scenario's job flushes, on several paths, too.
    for paths in ["", "paths = { policy = \"queue-depth\" }\ndevices = [\"a\", \"b\"]\n"] {
        let devices = "[[device]]\nname = \"a\"\nprofile = \"tlc\"\n[[device]]\nname = \"b\"\nprofile = \"tlc\"\n";
        place.write("s.toml", &format!("{devices}[[job]]\n{paths}options = {{ rw = \"randwrite\", iodepth = 8, fsync = 4 }}\n"));
        place.reap("sim s.toml --modes interrupt,adaptive").ok();
    }
}

#[test]
fn a_price_list_may_stand_in_a_file() {
    let place = recorded("[a]\nrw=randread\nbs=4k\nnumber_ios=300\n", "");
    let cost = |costs: &str| {
        place.reap(&format!("sim --replay run.trace --modes interrupt --json rows.json --costs {costs}")).ok();
        let json = rows(&place);
        assert_eq!(json["costs"], costs);
        json["rows"][0]["cpu_ns_per_io"].as_f64().unwrap()
    };
    place.write("here.toml", "base = \"vm\"\n[thread]\nswitch = 26000\n");
    // Away and back: two switches, each 20 µs dearer.
    assert!(cost("here.toml") > cost("vm") + 15_000.0);
    place.write("wrong.toml", "[thread]\nswich = 1\n");
    let wrong = place.reap("sim --replay run.trace --costs wrong.toml");
    wrong.fails_with(&["wrong.toml:2:1", "thread.swich", "did you mean 'switch'?"]);
    place.reap("sim --replay run.trace --costs vn").fails_with(&["there is no price list 'vn'", "bare-metal, vm"]);
    // A scenario names it as well.
    place.write(
        "s.toml",
        "ios = 100\n[machine]\ncosts = \"here.toml\"\n[[device]]\nprofile = \"optane\"\n[[job]]\noptions = { rw = \"randread\" }\n",
    );
    place.reap("sim s.toml --modes interrupt").ok();
}

#[test]
fn bad_recordings_are_told_apart() {
    let place = recorded("[a]\nrw=randread\nnumber_ios=300\n[b]\nstonewall\nrw=randread\nnumber_ios=200\n", "");
    let whole = std::fs::read(place.path("run.trace")).unwrap();
    std::fs::write(place.path("cut.trace"), &whole[..whole.len() - 9]).unwrap();
    let mut damaged = whole.clone();
    let last = damaged.len() - 500;
    damaged[last] ^= 4;
    std::fs::write(place.path("damaged.trace"), damaged).unwrap();
    place.reap("sim --replay none.trace").fails_with(&["recording none.trace", "No such file"]);
    place.reap("sim --replay job.fio").fails_with(&["recording job.fio", "it is not a recording"]);
    place.reap("sim --replay cut.trace").fails_with(&["cut off at byte"]);
    place.reap("sim --replay damaged.trace").fails_with(&["damaged", "at byte"]);
    place.reap("sim --replay run.trace").fails_with(&["2 stages", "--stage 1 to 2"]);
    place.reap("sim --replay run.trace --stage 3").fails_with(&["--stage 3"]);
    let ended = place.reap("sim --replay run.trace --stage 2 --modes poll").ok();
    assert!(ended.stdout.contains("200 submissions recorded"), "{}", ended.stdout);
}
