//! `reap sim` as a user meets it.

use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ended, Place, patiently, send};

const SMALL: &str = "modes = [\"interrupt\", \"poll\"]\nduration = \"2ms\"\n[[device]]\nprofile = \"optane\"\n[[job]]\nfile = \"job.fio\"\n";

fn place() -> Place {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nbs=4k\niodepth=8\n").write("s.toml", SMALL);
    place
}

#[test]
fn scenario_output_is_deterministic() {
    let place = place();
    let (first, second) = (
        place.reap("sim s.toml --wide --json a.json").ok(),
        place.reap("sim s.toml --wide --json b.json").ok(),
    );
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(place.read("a.json"), place.read("b.json"));
    for word in ["interrupt", "poll", "IRQ", "longest away", "1 CPU;"] {
        assert!(first.stdout.contains(word), "{word}: {}", first.stdout);
    }
    let results: Value = serde_json::from_str(&place.read("a.json")).unwrap();
    let row = &results["rows"][0];
    assert_eq!(
        (&row["mode"], &row["qd"], &row["profile"]),
        (&"interrupt".into(), &8.into(), &"optane".into())
    );
    assert!(
        row["interrupts_per_s"].as_f64().unwrap() > 0.0
            && row["cpu_pct"]["hard"].as_f64().unwrap() > 0.0,
        "{row}"
    );
    let other = place.reap("sim s.toml --seed 9 --seeds 3 --modes poll").ok();
    assert!(
        other.stdout.contains("3 seeds") && !other.stdout.contains("interrupt "),
        "{}",
        other.stdout
    );
}

#[test]
fn mistakes_have_a_place() {
    let place = place();
    place
        .write("typo.toml", &SMALL.replace("profile", "profil"))
        .reap("sim typo.toml")
        .fails_with(&["typo.toml:4:1", "did you mean 'profile'?"]);
    place
        .write("none.toml", &SMALL.replace("job.fio", "jib.fio"))
        .reap("sim none.toml")
        .fails_with(&["none.toml:6:8", "jib.fio"]);
    place.write("job.fio", "[a]\nrw=randrea\n").reap("sim s.toml").fails_with(&["job.fio:2:4"]);
    place.reap("sim nowhere.toml").fails_with(&["scenario nowhere.toml", "No such file"]);
    place.reap("sim s.toml --modes pol").fails_with(&["did you mean 'poll'?"]);
    place
        .reap("sim s.toml --modes adaptive?price=0.1")
        .fails_with(&["'adaptive' has no parameter 'price': it has delay-exponent"]);
    place.reap("sim job.fio").fails_with(&["job.fio is a job file", "[[job]] file = \"job.fio\""]);
    place.reap("sim --modes poll,poll").fails_with(&["--modes has poll twice"]);
    place.reap("sim --json no/such/file").fails_with(&["cannot write the results to no/such/file"]);
    std::fs::write(place.path("bytes.toml"), b"title = \"\xff\"").unwrap();
    place.reap("sim bytes.toml").fails_with(&["bytes.toml:1", "UTF-8"]);
}

/// What is printed of a part says that it is one.
#[test]
fn interrupted_results_are_marked_partial() {
    let place = place();
    let part = |arguments: &str, of: &str| {
        let ended = place
            .interrupted(|| place.command(&format!("{arguments} --json part.json")), "part.json")
            .stopped();
        assert!(
            ended.stderr.contains("note: stopped by a signal after ") && ended.stderr.contains(of),
            "{ended:#?}"
        );
        let results: Value = serde_json::from_str(&place.read("part.json")).unwrap();
        std::fs::remove_file(place.path("part.json")).unwrap();
        assert_eq!(results["complete"], false);
        results["rows"].as_array().unwrap().len()
    };
    assert_eq!(part("sim s.toml --seeds 10000", " of 10000 seeds"), 2);
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
