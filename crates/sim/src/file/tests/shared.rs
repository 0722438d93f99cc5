//! The keys of shared resources: the interrupt path, a drive's dies, and CPUs with several threads.

use super::*;
use crate::{DieLayout, InterruptPath, Spin};

const REST: &str = "[[device]]\nprofile = \"tlc\"\n[[job]]\noptions = {}\n";

fn reads(text: &str) -> ScenarioFile {
    read("s.toml", &format!("{text}\n{REST}"), &Nothing)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn the_way_of_interrupts_arrives() {
    let path = reads("[machine.interrupts]\nnotify = \"100ns\"\ninject = \"2us\"\ninjectors = 8\n");
    let expected = InterruptPath { notify: Nanos(100), inject: Nanos(2_000), injectors: 8 };
    assert_eq!(path.scenario.machine.interrupts, expected);
    assert!(!reads("").scenario.machine.interrupts.is_shared());
}

#[test]
fn the_rules_of_the_scheduler_arrive() {
    let machine = reads(
        "[machine]\nscheduler = { tick = \"4ms\", rt_runtime = \"40ms\", rt_period = \"100ms\" }\nsoftirq = { restarts = 3 }\n\
         costs.thread = { refill = 900, deepest_exit = 133_000 }\n",
    )
    .scenario
    .machine;
    let scheduler = machine.scheduler;
    assert_eq!(
        [scheduler.tick, scheduler.rt_runtime, scheduler.rt_period],
        [4, 40, 100].map(Nanos::from_millis)
    );
    let thread = machine.costs.thread;
    assert_eq!((thread.refill, thread.deepest_exit), (Nanos(900), Nanos(133_000)));
    assert_eq!(machine.softirq.restarts, 3);
}

#[test]
fn spin_kinds_are_read() {
    assert_eq!(reads("").spins, [Spin::Spins]);
    assert_eq!(reads("poll = \"naps\"").scenario.spin, Spin::Naps);
    assert_eq!(reads("poll = [\"spins\", \"yields\"]").spins, [Spin::Spins, Spin::Yields]);
}

#[test]
fn drive_dies_are_read() {
    let devices = reads(
        "[[device]]
name = \"a\"
profile = \"tlc\"
inside = { dies = 64, stripe = \"16k\" }
",
    )
    .scenario
    .devices;
    assert_eq!(
        [devices[0].inside, devices[1].inside],
        [DieLayout { dies: 64, stripe_unit: 16_384 }, DieLayout::default()]
    );
}

/// Text, and what the message must contain.
const MISTAKES: [(&str, &[&str]); 10] = [
    ("[machine.interrupts]\nnotfy = \"1us\"", &["s.toml:2:1", "did you mean 'notify'?"]),
    ("[machine.interrupts]\nnotify = 5", &["s.toml:2:10", "string"]),
    ("[machine.interrupts]\ninjectors = 99999999", &["s.toml:1:2", "at most 4096"]),
    ("[machine.scheduler]\nrt_period = \"0s\"", &["s.toml:2:13", "must be more than 0"]),
    ("poll = \"spin\"", &["s.toml:1:8", "did you mean 'spins'?"]),
    ("poll = []", &["s.toml:1:8", "`poll` is an empty list"]),
    ("poll = [\"naps\", \"naps\"]", &["s.toml:1:8", "naps twice"]),
    (
        "[[device]]\nname = \"b\"\nprofile = \"tlc\"\ninside = { dies = 70_000 }",
        &["s.toml:1:1", "'b'", "at most 65536"],
    ),
    (
        "[[device]]\nname = \"b\"\nprofile = \"tlc\"\ninside = { dies = 8, stripe = 0 }",
        &["s.toml:1:1", "stripe"],
    ),
    ("ios = 9223372036854775807", &["s.toml:1:7", "at most 10000000000", "`duration`"]),
];

#[test]
fn mistakes_name_their_place() {
    for (text, words) in MISTAKES {
        let error = read("s.toml", &format!("{text}\n{REST}"), &Nothing).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{text}\nlacks `{word}`: {error}");
        }
    }
}

/// Profiles too slow for any run to end within the limit.
#[test]
fn too_slow_device_names_its_key() {
    let with = |profile: &str| {
        let text = format!(
            "[[device]]\nprofile = {{ read = {{}}, write = {{}}, {profile} }}\n[[job]]\noptions = {{ bs = \"4k\" }}\n"
        );
        read("s.toml", &text, &Nothing).map(drop).map_err(|error| error.to_string())
    };
    let slow = with("bytes_per_second = 1").unwrap_err();
    assert!(
        slow.contains("1 bytes per second")
            && slow.contains("4096 bytes")
            && slow.contains("`limit`"),
        "{slow}"
    );
    assert_eq!(with("bytes_per_second = 1_000_000"), Ok(()));
    let base = |ns: &str| {
        let text = format!(
            "limit = \"1s\"\n[[device]]\nprofile = {{ read.base_ns = {ns}, write.base_ns = {ns} }}\n[[job]]\noptions = {{}}\n"
        );
        read("s.toml", &text, &Nothing).map(drop).map_err(|error| error.to_string())
    };
    assert!(base("2_000_000_000").unwrap_err().contains("a command takes"), "longer than the run");
    assert!(
        base("9_223_372_036_854_775_807").unwrap_err().contains("an hour"),
        "longer than anything"
    );
    assert_eq!(base("2_000"), Ok(()));
    let tail = |ns: &str| {
        let text = format!(
            "[[device]]\nprofile = {{ read = {{ tail_ppm = 1000, tail_ns = {ns} }}, write = {{}} }}\n[[job]]\noptions = {{}}\n"
        );
        read("s.toml", &text, &Nothing).map(drop).map_err(|error| error.to_string())
    };
    let endless = tail("18_446_744_073_709_551_615").unwrap_err();
    assert!(endless.contains("s.toml:2:") && endless.contains("an hour"), "{endless}");
    assert_eq!(tail("2_000_000"), Ok(()));
}

#[test]
fn profile_file_names_the_profile() {
    let profile =
        read_profile("drives/mine.toml", "channels = 8\nread.base_ns = 7000\nwrite = {}\n")
            .unwrap();
    assert_eq!(
        (profile.name.as_str(), profile.channels, profile.read.base),
        ("mine", 8, Nanos(7_000))
    );
    let error =
        read_profile("mine.toml", "read = {}\nwrite = {}\nchanels = 8\n").unwrap_err().to_string();
    assert!(error.contains("mine.toml:3:1") && error.contains("channels"), "{error}");
}
