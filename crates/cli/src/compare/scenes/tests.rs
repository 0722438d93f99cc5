use clap::Parser;
use workload::{Direction, Pattern};

use super::*;
use crate::args::{Cli, Command};

fn args(line: &str) -> CompareArgs {
    let words = ["reap", "compare"].into_iter().chain(line.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Compare(args) => args,
        other => panic!("{other:?}"),
    }
}

fn jobs() -> Vec<Job> {
    vec![Job { name: "a".into(), iodepth: 8, numjobs: 2, ..Job::default() }]
}

fn settings_of(line: &str) -> Result<Vec<Setting>> {
    let jobs = jobs();
    settings(&args(line), &jobs, &workload::plan::plan(&jobs, &[0]), "optane")
}

#[test]
fn without_more_there_is_one_scene() {
    let all = settings_of("").unwrap();
    let scene = Scene { load_pct: 100.0, qd: 16, profile: "optane".into(), ..Scene::default() };
    assert_eq!(all.iter().map(|s| (s.scene.clone(), s.load)).collect::<Vec<_>>(), [(scene, None)]);
    assert!(!is_sweep(&args("")));
}

#[test]
fn each_depth_load_and_background_makes_a_scene() {
    let all = settings_of("--loads 100,5,50 --qd 1,32 --background 40").unwrap();
    // Two depths, without and with background: three loads.
    assert_eq!(all.len(), 2 * 2 * 3);
    let first: Vec<_> = all[..3].iter().map(|s| (s.scene.load_pct, s.load)).collect();
    assert_eq!(first, [(5.0, Some(5.0)), (50.0, Some(50.0)), (100.0, None)]);
    assert_eq!(all.iter().filter(|s| s.scene.background_pct == Some(40.0)).count(), 6);
    // Two threads.
    assert!(all.iter().all(|s| s.scene.qd == 2 * u64::from(s.jobs[0].iodepth)));
    assert!(is_sweep(&args("--loads 5")));
}

#[test]
fn a_load_is_shared_by_the_threads() {
    let all = settings_of("--loads 25,100").unwrap();
    let jobs = jobs();
    let plan = workload::plan::plan(&jobs, &[0]);
    let paced = all[0].paced(400_000.0, &plan);
    assert_eq!((paced[0].rate.read, paced[0].rate_process), (Some(Rate::Iops(50_000)), RateProcess::Poisson));
    assert_eq!(all[1].paced(400_000.0, &plan), all[1].jobs);
    let mixed = Job { pattern: Pattern { direction: Direction::Mixed, random: true, step: 1 }, read_percent: 70, ..Job::default() };
    let rate = pace(&mixed, 1000.0).rate;
    assert_eq!((rate.read, rate.write), (Some(Rate::Iops(700)), Some(Rate::Iops(300))));
}

#[test]
fn profiles_take_the_place_of_the_device_s() {
    let given = args("--device mem:64M?lba=512&profile=tlc&seed=3 --profiles optane,bimodal");
    let uris = |args: &CompareArgs| {
        let meant = Meant::of(args.device.device.as_deref(), &[])?;
        let all = profiles(args, &meant)?;
        Ok::<_, anyhow::Error>(
            all.into_iter().map(|meant| if let Meant::Name(uri) = meant { uri } else { unreachable!() }).collect::<Vec<_>>(),
        )
    };
    assert_eq!(uris(&given).unwrap(), ["mem:64M?lba=512&seed=3&profile=optane", "mem:64M?lba=512&seed=3&profile=bimodal"]);
    assert_eq!(with_profile("mem:64M", "null"), "mem:64M?profile=null");
    let paths = with_profile("multipath:?path=mem:64M?profile=tlc%26delay=2ms&path=mem:64M&policy=numa", "null");
    assert_eq!(paths, "multipath:?path=mem:64M?delay=2ms%26profile=null&path=mem:64M?profile=null&policy=numa");
    assert_eq!(DeviceUri::behind(&paths).unwrap().profile, "null");
    assert!(uris(&args("--device kernel:/x --profiles tlc")).unwrap_err().to_string().contains("only embedded devices have profiles"));
    assert!(uris(&args("--profiles tlc,tlc")).unwrap_err().to_string().contains("twice"));
}

#[test]
fn what_cannot_go_together_is_refused() {
    assert!(settings_of("--loads 50,5,50%").unwrap_err().to_string().contains("--loads names 50 twice"));
    assert!(settings_of("--qd 32,32").unwrap_err().to_string().contains("--qd names 32 twice"));
    let rated = vec![Job { name: "own".into(), rate: PerOp::both(Some(Rate::Iops(5))), ..Job::default() }];
    let plan = workload::plan::plan(&rated, &[0]);
    assert!(settings(&args("--loads 5"), &rated, &plan, "optane").unwrap_err().to_string().contains("job 'own'"));
    assert!(settings(&args("--qd 1,2"), &rated, &plan, "optane").is_ok());
    for line in ["--loads 0", "--loads 101", "--loads x", "--loads -5", "--qd 0", "--background 0", "--background 101"] {
        assert!(Cli::try_parse_from(["reap", "compare"].into_iter().chain(line.split_whitespace())).is_err(), "{line}");
    }
}

#[test]
fn the_effort_counts_what_is_run() {
    let plain = Effort::of(&settings_of("").unwrap(), 3, 10);
    // Ten rounds of three labels, three blocks that poll, and stolen time.
    assert_eq!((plain.blocks, plain.time), (30 + 12, Nanos::from_millis(33 * 115 + 12 * 105)));
}
