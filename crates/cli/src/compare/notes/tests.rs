use workload::fio::{self, Input};

use reap::Nanos;

use super::*;
use crate::args::{Cli, Command};

fn outcome(load_pct: f64, qd: u64, profile: &str) -> Outcome {
    let scene = Scene { load_pct, qd, profile: profile.into(), ..Scene::default() };
    Outcome { scene, rows: Vec::new(), pairs: Vec::new(), rounds: 30, together: 1, capacity: Some(6e5), doubts: Vec::new() }
}

fn facts() -> Facts {
    Facts { job: "randread 4 KiB".into(), device: "mem:1G".into(), block: Nanos::from_millis(100), ..Facts::default() }
}

#[test]
fn a_rate_in_bytes_means_so_many_ios_of_the_mean_size() {
    let job = |text: &str| {
        let text = format!("[a]\n{text}");
        fio::parse(&[Input { name: "j", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs.remove(0)
    };
    for (text, iops) in [
        ("rw=randread\nbs=4k\nrate=40m", 10_240.0),
        // 34 KiB on average.
        ("rw=randread\nbsrange=4k-64k\nrate=40m", 40.0 * 1024.0 / 34.0),
        ("rw=randrw\nbssplit=4k/50:12k/50\nrate=40m,8m", 6_144.0),
        ("rw=randread\nbsrange=4k-64k\nrate_iops=100", 100.0),
    ] {
        assert!((offered(&job(text)) / iops - 1.0).abs() < 1e-9, "{text}: {}", offered(&job(text)));
    }
}

#[test]
fn a_title_says_what_varies() {
    let outcomes = [outcome(5.0, 1, "optane"), outcome(100.0, 32, "tlc")];
    assert_eq!(title(&facts(), &outcomes), "randread 4 KiB, queue depths 1, 32 on mem:1G, profiles optane, tlc, loads 5, 100 %");
    assert_eq!(title(&facts(), &outcomes[1..]), "randread 4 KiB, queue depth 32 on mem:1G");
    assert_eq!(title(&Facts { offered: Some(1e3), ..facts() }, &outcomes[..1]), "randread 4 KiB, queue depth 1 on mem:1G");
}

#[test]
fn jobs_that_differ_are_all_in_the_title() {
    let text = b"[global]\nbs=4k\n[r]\nrw=randread\nnumjobs=2\n[w]\nrw=write\nbs=64k\n[m]\nrw=randrw\nbs=4k,8k";
    let jobs = fio::parse(&[Input { name: "j", text }], &fio::Nothing).unwrap().jobs;
    let threads = [0, 0, 1, 2].map(|job| &jobs[job]);
    assert_eq!(describe(threads.into_iter()), "randread 4 KiB, 2 threads beside write 64 KiB beside randrw 4 KiB and 8 KiB");
    assert_eq!(describe(threads.into_iter().take(1)), "randread 4 KiB");
}

#[test]
fn of_devices_outside_other_columns_are_told() {
    let columns = |outside| {
        let facts = Facts { outside, ..facts() };
        columns(&facts, &Results::default()).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(columns(true), ["÷ first", "CPU", "stolen", "sys per IO", "IO per wake"]);
    assert_eq!(columns(false), ["÷ first", "CPU", "stolen", "notify", "msgs", "IO per wake"]);
}

/// Every command that is recommended parses.
#[test]
fn what_is_recommended_is_a_command() {
    let parse = |line: &str| Cli::parse_words(line.split_whitespace().map(|word| word.trim_matches('\'').into()));
    for (line, wanted) in [
        ("reap compare", "reap sim"),
        ("reap compare --modes poll,adaptive@0.5,kernel-iopoll,interrupt", "reap sim --modes poll,interrupt"),
        (
            "reap compare job.fio --device mem:1G?lba=4096 --modes poll",
            "reap sim --replay run.log --modes poll (with write_iolog=run.log in job.fio)",
        ),
        ("reap compare --loads 2.5,50,100 --qd 1,4 --profiles tlc,optane", "reap sim"),
    ] {
        let Ok(Cli { command: Command::Compare(args) }) = parse(line) else { panic!("{line}") };
        assert_eq!(simulate(&args), wanted);
        drop(parse(wanted.split(" (").next().unwrap()).expect(wanted));
    }
}

#[test]
fn the_notes_say_what_loads_are_shares_of() {
    let outcomes = [Outcome { together: 4, ..outcome(5.0, 32, "optane") }, outcome(50.0, 32, "optane")];
    let text = notes(&facts(), &outcomes, &Results::default(), "2 CPUs").join(" ");
    for part in [
        "Machine: 2 CPUs.",
        "60 rounds of 100 ms blocks",
        "up to 4 rounds count as one",
        "600 kIOPS (optane at depth 32)",
        "intended start",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
