use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use clap::Parser;
use rustix::fs::{major, minor};
use workload::fio::{self, Input};
use workload::{Direction, Pattern, plan};

use super::*;
use crate::args::{Cli, Subcommand};

fn args(line: &str) -> CompareArgs {
    let words = ["reap", "compare"].into_iter().chain(line.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Subcommand::Compare(args) => args,
        other => panic!("{other:?}"),
    }
}

fn names(modes: &[Mode]) -> Vec<String> {
    modes.iter().map(ToString::to_string).collect()
}

#[test]
fn modes_are_named_once() {
    assert!(
        modes(&args("--modes poll,interrupt,poll")).unwrap_err().to_string().contains("poll twice")
    );
    assert!(
        modes(&args("--modes poll,adaptive?delay-exponent=1,adaptive?delay-exponent=1"))
            .unwrap_err()
            .to_string()
            .contains("adaptive?delay-exponent=1 twice")
    );
    assert_eq!(modes(&args("")).unwrap(), DEFAULT_MODES);
    let swept = names(&modes(&args("--loads 5")).unwrap());
    assert_eq!(
        swept[SWEPT.len()..],
        ["0", "1", "10"].map(|n| format!("adaptive?delay-exponent={n}"))
    );
}

#[test]
fn missing_modes_are_left_out() {
    let all = modes(&args("--modes posted,poll,adaptive")).unwrap();
    let lacks = |mode| (mode == Mode::POLL).then(|| "no poll queues".to_owned());
    let (kept, remarks) = available(&all, lacks, |mode| {
        (mode != Mode::ADAPTIVE).then(|| "as in `interrupt`".to_owned())
    });
    assert_eq!(names(&kept), ["posted", "adaptive"]);
    assert_eq!(remarks, ["posted: as in `interrupt`.", "Left out: no poll queues."]);
}

fn jobs() -> Vec<Job> {
    vec![Job { name: "a".into(), iodepth: 8, numjobs: 2, ..Job::default() }]
}

fn scenes_of(line: &str) -> Result<Vec<SceneJobs>> {
    let jobs = jobs();
    scenes(&args(line), &jobs, &plan::plan(&jobs, &[0]), "optane")
}

#[test]
fn the_default_is_one_scene() {
    let all = scenes_of("").unwrap();
    let scene = Scene { load_pct: 100.0, qd: 16, profile: "optane".into(), ..Scene::default() };
    assert_eq!(all.iter().map(|s| (s.scene.clone(), s.load)).collect::<Vec<_>>(), [(scene, None)]);
    assert!(!is_sweep(&args("")));
}

#[test]
fn each_combination_is_a_scene() {
    let all = scenes_of("--loads 100,5,50 --qd 1,32 --background 40").unwrap();
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
fn threads_share_a_load() {
    let all = scenes_of("--loads 25,100").unwrap();
    let paced = all[0].paced(400_000.0, 2);
    assert_eq!(
        (paced[0].rate.read, paced[0].rate_process),
        (Some(Rate::Iops(50_000)), RateProcess::Poisson)
    );
    assert_eq!(all[1].paced(400_000.0, 2), all[1].jobs);
    assert!(!all[0].is_closed() && all[1].is_closed());
    let mixed = Job {
        pattern: Pattern { direction: Direction::Mixed, random: true, step: 1 },
        read_percent: 70,
        ..Job::default()
    };
    let scene = SceneJobs { jobs: vec![mixed], ..all[0].clone() };
    let rate = scene.paced(4000.0, 1)[0].rate;
    assert_eq!((rate.read, rate.write), (Some(Rate::Iops(700)), Some(Rate::Iops(300))));
}

#[test]
fn conflicting_options_are_refused() {
    assert!(
        scenes_of("--loads 50,5,50%").unwrap_err().to_string().contains("--loads has 50 twice")
    );
    assert!(scenes_of("--qd 32,32").unwrap_err().to_string().contains("--qd has 32 twice"));
    let rated =
        vec![Job { name: "own".into(), rate: PerOp::all(Some(Rate::Iops(5))), ..Job::default() }];
    let plan = plan::plan(&rated, &[0]);
    assert!(
        scenes(&args("--loads 5"), &rated, &plan, "optane")
            .unwrap_err()
            .to_string()
            .contains("job 'own'")
    );
    assert!(scenes(&args("--qd 1,2"), &rated, &plan, "optane").is_ok());
    for line in [
        "--loads 0",
        "--loads 101",
        "--loads x",
        "--loads -5",
        "--qd 0",
        "--background 0",
        "--background 101",
    ] {
        assert!(
            Cli::try_parse_from(["reap", "compare"].into_iter().chain(line.split_whitespace()))
                .is_err(),
            "{line}"
        );
    }
}

#[test]
fn all_blocks_are_counted() {
    // Ten rounds of three labels, and stolen time.
    assert_eq!(blocks(&scenes_of("").unwrap(), 3, 10), 30 + 12);
    assert_eq!(blocks(&scenes_of("--background 5").unwrap(), 3, 10), 60 + 12);
}

fn outside() -> Machine {
    Machine { device: None, job_cpus: vec![0, 1, 2], external_device: true, placement_note: None }
}

fn plan_of(text: &str) -> Plan {
    plan::plan(
        &fio::parse(&[Input { name: "j", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs,
        &[0, 1, 2],
    )
}

/// A root where a file stands on a disk with interrupts on CPUs 2 and 1, and the URI of that file.
fn disk() -> (tempfile::TempDir, String) {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    fs::write(at("file"), "").unwrap();
    let number = fs::metadata(root.path().join("file")).unwrap().dev();
    fs::write(at("sys/devices/0000:02/nvme/nvme0/nvme0n1/size"), "8").unwrap();
    let link = at(&format!("sys/dev/block/{}:{}", major(number), minor(number)));
    symlink(root.path().join("sys/devices/0000:02/nvme/nvme0/nvme0n1"), link).unwrap();
    for (irq, handler, cpu) in
        [("30", "nvme0q0", "0"), ("31", "nvme0q1", "2"), ("32", "nvme0q2", "1")]
    {
        fs::write(at(&format!("sys/devices/0000:02/msi_irqs/{irq}")), "msix").unwrap();
        fs::write(at(&format!("proc/irq/{irq}/effective_affinity_list")), cpu).unwrap();
        fs::create_dir(at(&format!("proc/irq/{irq}/{handler}"))).unwrap();
    }
    let uri = format!("kernel:{}", root.path().join("file").display());
    (root, uri)
}

#[test]
fn threads_follow_the_disks_interrupts() {
    let (root, uri) = disk();
    let cpus = |jobs: &str| {
        let mut machine = outside();
        let cpus =
            JobCpus::new(root.path(), &plan_of(jobs), &mut machine, &["mem:1G", &uri], false);
        (cpus.threads, cpus.disturbed, machine.placement_note.unwrap())
    };
    let one = "threads on CPU 2; nvme0n1's interrupts are on CPU 1-2".to_owned();
    assert_eq!(cpus("[a]\n"), (vec![vec![2]], vec![0, 1, 2], one));
    let three = "threads on CPU 0-2; nvme0n1's interrupts are on CPU 1-2".to_owned();
    assert_eq!(cpus("[a]\nnumjobs=3\n"), (vec![vec![2], vec![1], vec![0]], vec![0, 1, 2], three));
    // What a job names is not overruled.
    assert_eq!(cpus("[a]\ncpus_allowed=0\n").0, [[0]]);
}

#[test]
fn unknown_interrupts_pin_nothing() {
    let (root, mut machine) = (tempfile::tempdir().unwrap(), outside());
    let cpus = JobCpus::new(
        root.path(),
        &plan_of("[a]\n[b]\ncpus_allowed=1\n"),
        &mut machine,
        &["pcie:0000:01:00.0"],
        false,
    );
    assert_eq!((cpus.threads, cpus.used, cpus.needed), (vec![vec![], vec![1]], vec![0, 1, 2], 2));
    assert!(machine.placement_note.unwrap().starts_with("threads not pinned: "));
}

#[test]
fn given_cpus_are_used() {
    let (root, uri) = disk();
    let mut machine = outside().only(&[0, 1]).unwrap();
    let cpus = JobCpus::new(root.path(), &plan_of("[a]\n"), &mut machine, &[&uri], true);
    assert_eq!(
        (cpus.threads, machine.placement_note.unwrap().as_str()),
        (vec![vec![0]], "threads on CPU 0, as --cpus says")
    );
}

#[test]
fn embedded_devices_keep_the_placement() {
    let mut machine = Machine {
        device: Some(1),
        job_cpus: vec![0],
        external_device: false,
        placement_note: None,
    };
    let cpus = JobCpus::new(Path::new("/"), &plan_of("[a]\n"), &mut machine, &["mem:1G"], false);
    assert_eq!(
        (cpus.threads, cpus.disturbed, machine.placement_note),
        (vec![vec![0]], vec![0], None)
    );
}
