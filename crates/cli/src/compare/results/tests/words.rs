use workload::fio::{self, Input};

use super::super::*;
use crate::args::{Cli, Subcommand};

fn outcome(load_pct: f64, qd: u64, doubts: &[&str]) -> Outcome {
    let scene = Scene { load_pct, qd, profile: "optane".into(), ..Scene::default() };
    let doubts = doubts.iter().map(|text| (*text).to_owned()).collect();
    Outcome {
        scene,
        rows: Vec::new(),
        pairs: Vec::new(),
        rounds: 30,
        together: 1,
        capacity: Some(6e5),
        doubts,
    }
}

fn args(line: &str) -> CompareArgs {
    let words = line.split_whitespace().map(|word| word.trim_matches('\'').into());
    let Ok(Cli { command: Subcommand::Compare(args) }) = Cli::parse_words(words) else {
        panic!("{line}")
    };
    args
}

fn jobs(text: &str) -> Vec<Job> {
    fio::parse(&[Input { name: "j", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs
}

#[test]
fn byte_rate_converts_to_iops() {
    let job = |text: &str| jobs(&format!("[a]\n{text}")).remove(0);
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
    let outcomes = [outcome(5.0, 1, &[]), outcome(100.0, 32, &[])];
    let jobs = jobs("[a]\nrw=randread\nbs=4k\n");
    let title = |line: &str, outcomes| title(&args(line), &[&jobs[0]], "mem:1G", outcomes);
    assert_eq!(
        title("reap compare --loads 5,100", &outcomes),
        "randread 4 KiB, queue depth 1, 32 on mem:1G, load 5, 100 %"
    );
    assert_eq!(title("reap compare", &outcomes[1..]), "randread 4 KiB, queue depth 32 on mem:1G");
    let work = "randread 4 KiB, queue depth 32 on mem:1G, 50 ns of application work per I/O";
    assert_eq!(title("reap compare --host-work 50", &outcomes[1..]), work);
}

#[test]
fn the_title_has_all_jobs() {
    let text = "[global]\nbs=4k\n[r]\nrw=randread\nnumjobs=2\n[w]\nrw=write\nbs=64k\n[m]\nrw=randrw\nbs=4k,8k";
    let jobs = jobs(text);
    let threads = [0, 0, 1, 2].map(|job| &jobs[job]);
    let title = title(&args("reap compare"), &threads, "mem:1G", &[outcome(100.0, 1, &[])]);
    assert_eq!(
        title,
        "randread 4 KiB, 2 threads; write 64 KiB; randrw 4 KiB and 8 KiB, queue depth 1 on mem:1G"
    );
}

#[test]
fn inconclusive_names_scene_and_reason() {
    let (good, bad) = (
        outcome(100.0, 1, &[]),
        outcome(100.0, 1, &["other work left only 62 % of its CPU to poll"]),
    );
    let typed = args("reap compare --modes interrupt,poll");
    assert_eq!(inconclusive(&typed, &[good.clone(), good.clone()]), None);
    let all = inconclusive(&typed, std::slice::from_ref(&bad)).unwrap();
    assert_eq!(
        all,
        "Inconclusive: other work left only 62 % of its CPU to poll. Try `reap sim --modes interrupt,poll`, or --repeat 64 while less else runs."
    );
    let some =
        inconclusive(&args("reap compare job.fio --repeat 2"), &[good, bad.clone(), bad]).unwrap();
    assert!(some.starts_with("Inconclusive in 2 of 3 scenes: other work"), "{some}");
    assert!(
        some.ends_with(
            "(with write_iolog=run.log in job.fio), or --repeat 32 while less else runs."
        ),
        "{some}"
    );
}

#[test]
fn the_notes_say_what_loads_are() {
    let outcomes = [Outcome { together: 4, ..outcome(5.0, 32, &[]) }, outcome(50.0, 32, &[])];
    let text = notes(&outcomes, &Results::default(), "2 CPUs", true, Some(2e3)).join(" ");
    for part in [
        "Machine: 2 CPUs.",
        "Oversubscribed",
        "60 rounds (few I/Os: up to 4 rounds count as one) of 100 ms blocks",
        "Loads: 2.00 kIOPS offered; 100 % is what polling reaches in a closed loop, 600 kIOPS at depth 32.",
        "intended start",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
