//! `reap sim` as a user meets it.

use std::process::Child;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ended, Place, patiently, send};

const SMALL: &str =
    "modes = [\"interrupt\", \"poll\"]\nduration = \"2ms\"\n[[device]]\nprofile = \"optane\"\n[[job]]\nfile = \"job.fio\"\n";

fn place() -> Place {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nbs=4k\niodepth=8\n").write("s.toml", SMALL);
    place
}

#[test]
fn a_scenario_makes_a_table_and_a_file_the_same_each_time() {
    let place = place();
    let (first, second) = (place.reap("sim s.toml --json a.json").ok(), place.reap("sim s.toml --json b.json").ok());
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(place.read("a.json"), place.read("b.json"));
    for word in ["interrupt", "poll", "IRQ", "longest away", "1 CPU;"] {
        assert!(first.stdout.contains(word), "{word}: {}", first.stdout);
    }
    let results: Value = serde_json::from_str(&place.read("a.json")).unwrap();
    let row = &results["rows"][0];
    assert_eq!((&row["mode"], &row["qd"], &row["profile"]), (&"interrupt".into(), &8.into(), &"optane".into()));
    assert!(row["interrupts_per_s"].as_f64().unwrap() > 0.0 && row["cpu_pct"]["hard"].as_f64().unwrap() > 0.0, "{row}");
    let other = place.reap("sim s.toml --seed 9 --seeds 3 --modes poll").ok();
    assert!(other.stdout.contains("3 seeds") && !other.stdout.contains("interrupt "), "{}", other.stdout);
}

#[test]
fn mistakes_have_a_place() {
    let place = place();
    place
        .write("typo.toml", &SMALL.replace("profile", "profil"))
        .reap("sim typo.toml")
        .fails_with(&["typo.toml:4:1", "did you mean 'profile'?"]);
    place.write("none.toml", &SMALL.replace("job.fio", "jib.fio")).reap("sim none.toml").fails_with(&["none.toml:6:8", "jib.fio"]);
    place.write("job.fio", "[a]\nrw=randrea\n").reap("sim s.toml").fails_with(&["job.fio:2:4"]);
    place.reap("sim nowhere.toml").fails_with(&["scenario nowhere.toml", "No such file"]);
    place.reap("sim s.toml --modes pol").fails_with(&["did you mean 'poll'?"]);
    place.reap("sim s.toml --modes adaptive@0.1").fails_with(&["only `compare`", "`latency_price`"]);
    place.reap("sim job.fio").fails_with(&["job.fio is a job file", "[[job]] file = \"job.fio\""]);
    place.reap("sim s.toml --published").fails_with(&["--published"]);
    place.reap("sim --ios 5000").fails_with(&["--sweep"]);
    place.reap("sim s.toml --ios 5000").fails_with(&["--ios"]);
    place.reap("sim --published --quick").fails_with(&["--published", "--quick"]);
    for (option, twice) in
        [("--qd 32,32", "32"), ("--profiles drawn,drawn-1", "drawn-1"), ("--modes poll,poll", "poll"), ("--loads 50,50%", "50")]
    {
        let name = option.split(' ').next().unwrap_or_default();
        place.reap(&format!("sim --sweep {option}")).fails_with(&[&format!("{name} names {twice} twice")]);
    }
    place.reap("sim --sweep --seeds 4").fails_with(&["--seeds 4", "each cell of the sweep has 8"]);
    place.reap("sim --json no/such/file").fails_with(&["cannot write the results to no/such/file"]);
    std::fs::write(place.path("bytes.toml"), b"title = \"\xff\"").unwrap();
    place.reap("sim bytes.toml").fails_with(&["bytes.toml:1", "UTF-8"]);
}

/// One cell with thirteen runs, which together take a second or two of CPU time.
const SWEEP: &str = "sim --sweep --costs vm --profiles optane --qd 1 --loads 50 --modes interrupt,poll,adaptive --ios 50000";

/// Lets a sweep go on until some of its runs are done, and ends it by a signal.
fn interrupted(place: &Place, arguments: &str, signal: Signal) -> Ended {
    let done = || std::fs::read_to_string(place.path("s.json.journal")).map_or(0, |text| text.lines().count());
    let (before, mut child): (usize, Child) = (done(), place.start(arguments));
    while done() < before + 2 && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    send(&child, signal);
    child.wait_with_output().unwrap().into()
}

/// Kills a sweep, and stops by Ctrl-C what goes on of it: what that printed. On a busy machine a signal may come when all is done, and
/// then both are tried again, from the start.
fn killed_and_stopped(place: &Place) -> Ended {
    for _ in 0..20 {
        for left in ["s.json", "s.json.journal"] {
            let _ = std::fs::remove_file(place.path(left));
        }
        let killed = interrupted(place, &format!("{SWEEP} --json s.json"), Signal::KILL);
        if killed.code == Some(0) || !killed.stdout.is_empty() {
            continue;
        }
        assert_eq!(killed.code, None, "{killed:#?}");
        place.reap(&format!("{SWEEP} --json s.json")).fails_with(&["s.json.journal holds the runs", "--resume"]);
        place.reap(&format!("{SWEEP} --seed 2 --json s.json --resume")).fails_with(&["seed is 1 there, and 2 here"]);
        let stopped = interrupted(place, &format!("{SWEEP} --json s.json --resume"), Signal::INT);
        let part: Value = serde_json::from_str(&place.read("s.json")).unwrap();
        if part["rows"].as_array().unwrap().len() < 13 {
            return stopped.stopped();
        }
    }
    panic!("no signal has come before a sweep was done");
}

/// Killed, then stopped by Ctrl-C, then left alone: the results are those of a sweep that was never interrupted.
#[test]
fn an_interrupted_sweep_goes_on_where_it_was() {
    let place = Place::new();
    let whole = place.reap(&format!("{SWEEP} --json whole.json")).ok();
    assert!(!place.path("whole.json.journal").exists());
    let stopped = killed_and_stopped(&place);
    for word in ["stopped by a signal after", "of at least 13 runs", "s.json.journal keeps them: --resume goes on"] {
        assert!(stopped.stderr.contains(word), "{word}: {}", stopped.stderr);
    }
    let part: Value = serde_json::from_str(&place.read("s.json")).unwrap();
    let rows = part["rows"].as_array().unwrap().len();
    assert!(part["complete"] == false && rows >= 2, "{rows} rows");
    let resumed = place.reap(&format!("{SWEEP} --json s.json --resume")).ok();
    assert_eq!(resumed.stdout, whole.stdout);
    assert_eq!(place.read("s.json"), place.read("whole.json"));
    let results: Value = serde_json::from_str(&place.read("s.json")).unwrap();
    assert!(results["complete"] == true && results["rows"].as_array().unwrap().len() >= 13);
    place.reap(&format!("{SWEEP} --json s.json --resume")).fails_with(&["there is no s.json.journal: nothing to resume"]);
    place.reap(&format!("{SWEEP} --json /dev/null --resume")).fails_with(&["/dev/null is no file"]);
    place.reap(&format!("{SWEEP} --resume")).fails_with(&["--json"]);
}

/// What is printed of a part says that it is one.
#[test]
fn ctrl_c_marks_what_is_done_as_a_part() {
    let place = place();
    let part = |arguments: &str, of: &str| {
        let ended = place.interrupted(|| place.command(&format!("{arguments} --json part.json")), "part.json").stopped();
        assert!(ended.stderr.contains("note: stopped by a signal after ") && ended.stderr.contains(of), "{ended:#?}");
        let results: Value = serde_json::from_str(&place.read("part.json")).unwrap();
        std::fs::remove_file(place.path("part.json")).unwrap();
        assert_eq!(results["complete"], false);
        results["rows"].as_array().unwrap().len()
    };
    assert_eq!(part("sim s.toml --seeds 10000", " of 10000 seeds"), 2);
    part("sim --published", " cases; what follows is of those");
    place.reap("sim s.toml --json whole.json").ok();
    assert_eq!(serde_json::from_str::<Value>(&place.read("whole.json")).unwrap()["complete"], true);
}

/// A minute of work, or more, in one run: it ends in the middle.
#[test]
fn a_signal_ends_a_long_run() {
    let long = SMALL.replace("duration = \"2ms\"", "ios = 40000000").replace(", \"poll\"", "");
    let place = place();
    place.write("long.toml", &long);
    // Before it listens to signals the first one ends it, as any program.
    let ended = patiently(|time| {
        let child = place.start("sim long.toml");
        thread::sleep(time);
        send(&child, Signal::TERM);
        let ended: Ended = child.wait_with_output().unwrap().into();
        ended.code.is_some().then_some(ended)
    });
    assert_eq!(ended.code, Some(143), "{ended:#?}");
    assert!(ended.stderr.contains("stopped before anything was simulated"), "{ended:#?}");
}

/// The constants belong together: a part of them is not printed as if it were all. It is left to the signal's default, and what
/// a shell runs in the background inherits that SIGINT is ignored.
#[test]
fn a_signal_ends_a_calibration_at_once() {
    let child = place().start("sim --published --calibrate");
    thread::sleep(Duration::from_millis(500));
    send(&child, Signal::TERM);
    let ended: Ended = child.wait_with_output().unwrap().into();
    assert_eq!((ended.code, ended.stdout.as_str()), (None, ""), "{}", ended.stderr);
}
