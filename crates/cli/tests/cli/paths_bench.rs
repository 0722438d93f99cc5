//! `reap paths-bench`, which ends early here: half a minute is long.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{Ended, Place, interrupt};

#[test]
fn ctrl_c_prints_the_rounds_that_are_over() {
    let place = Place::new();
    // No valgrind is found there.
    let bench = || {
        let mut command = place.command("paths-bench --rounds 10000 --json rows.json");
        command.env("PATH", "/nowhere");
        command
    };
    let ended = place.interrupted(bench, "rows.json").stopped();
    for word in ["instructions are not counted", "note: stopped by a signal after ", " of 10000 rounds"] {
        assert!(ended.stderr.contains(word), "{word:?} is not in {}", ended.stderr);
    }
    assert!(ended.stdout.contains("queue-depth:") && ended.stdout.contains("controller"), "{}", ended.stdout);
    let rows: serde_json::Value = serde_json::from_str(&place.read("rows.json")).unwrap();
    assert!(rows.as_array().unwrap().iter().all(|row| row["ns"].as_f64().unwrap() > 0.0));
}

/// While it counts, the only other process is its child, which a signal to the program alone does not reach.
#[test]
fn ctrl_c_leaves_nothing_behind() {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("there is no valgrind: nothing is counted");
        return;
    }
    let place = Place::new();
    let here = place.path("");
    let left = || fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let children = || {
        let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).contains(&*here.to_string_lossy())).count()
    };
    let mut command = place.command("paths-bench --json rows.json --plot rows.svg");
    let mut child = command.env("TMPDIR", &here).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while children() == 0 && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    interrupt(&child);
    let ended: Ended = child.wait_with_output().unwrap().into();
    let ended = ended.stopped();
    assert!(ended.stderr.contains("stopped before anything was measured"), "{ended:?}");
    assert_eq!((ended.stdout.as_str(), left(), children()), ("", Vec::new(), 0));
}
