//! Groups and stages were observed with fio 3.33.

use super::*;
use crate::fio::{Input, Nothing, parse};

fn planned(text: &str, cpus: &[u32]) -> (Vec<Job>, Plan) {
    let jobs = parse(&[Input { name: "t", text: text.as_bytes() }], &Nothing).unwrap().jobs;
    let plan = plan(&jobs, cpus);
    (jobs, plan)
}

/// Job name, group, stage, report of each thread.
fn shape(text: &str) -> Vec<(String, u32, u32, usize)> {
    let (jobs, plan) = planned(text, &[0]);
    plan.threads.iter().map(|t| (jobs[t.job].name.clone(), t.group, t.stage, t.report)).collect()
}

fn of(name: &str, group: u32, stage: u32, report: usize) -> (String, u32, u32, usize) {
    (name.to_owned(), group, stage, report)
}

#[test]
fn walls_and_new_groups() {
    let text = "[a]\nstonewall\nnew_group\n[b]\nnew_group\n[c]\nstonewall\nnumjobs=2\ngroup_reporting\n[d]\n";
    assert_eq!(
        shape(text),
        [of("a", 0, 0, 0), of("b", 1, 0, 1), of("c", 2, 1, 2), of("c", 2, 1, 2), of("d", 2, 1, 3)]
    );
}

#[test]
fn reports_of_groups() {
    let text = "[global]\ngroup_reporting\n[a]\n[b]\ngroup_reporting=0\n[c]\n";
    assert_eq!(shape(text), [of("a", 0, 0, 0), of("b", 0, 0, 1), of("c", 0, 0, 1)]);
    let text =
        "[a]\n[b]\ngroup_reporting\n[c]\n[d]\ngroup_reporting\nnew_group\n[e]\ngroup_reporting\n";
    assert_eq!(
        shape(text),
        [of("a", 0, 0, 0), of("b", 0, 0, 0), of("c", 0, 0, 1), of("d", 1, 0, 2), of("e", 1, 0, 2)]
    );
}

#[test]
fn each_filename_is_one_target() {
    let (_, plan) = planned("[a]\nfilename=/x:/y\n[b]\nfilename=/y\nnumjobs=2\n[c]\n[d]\n", &[0]);
    assert_eq!(plan.targets, [Some("/x".to_owned()), Some("/y".to_owned()), None]);
    let used: Vec<Vec<usize>> = plan.threads.iter().map(|t| t.targets.clone()).collect();
    assert_eq!(used, [vec![0, 1], vec![1], vec![1], vec![2], vec![2]]);
    assert_eq!(
        plan.threads.iter().map(|t| (t.number, t.subjob)).collect::<Vec<_>>(),
        [(1, 0), (2, 0), (3, 1), (4, 0), (5, 0)]
    );
    assert_eq!((plan.stages, plan.reports), (1, 5));
}

#[test]
fn cpus_allowed_policy_maps_missing_cpus() {
    let text = "[a]\nnumjobs=3\ncpus_allowed=0-1\n[b]\nnumjobs=3\ncpus_allowed=4-5,7\ncpus_allowed_policy=split\n[c]\n";
    let (_, all) = planned(text, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let cpus: Vec<&[u32]> = all.threads.iter().map(|t| t.cpus.as_slice()).collect();
    // Threads 4, 5 and 6 of the run: by number, as in fio.
    assert_eq!(cpus, [&[0, 1][..], &[0, 1], &[0, 1], &[4], &[5], &[7], &[]]);
    assert!(all.warnings.is_empty());
    let (_, two) = planned(text, &[0, 1]);
    let cpus: Vec<&[u32]> = two.threads.iter().map(|t| t.cpus.as_slice()).collect();
    assert_eq!(cpus, [&[0, 1][..], &[0, 1], &[0, 1], &[0], &[1], &[1], &[]]);
    assert_eq!(
        two.warnings,
        ["cpus_allowed names CPUs that do not exist here: 4-5,7; mapped round-robin to 0-1"]
    );
    assert_eq!(planned("[a]\ncpus_allowed=9\n", &[]).1.threads[0].cpus, Vec::<u32>::new());
}

#[test]
fn post_003_has_32_threads() {
    let text = include_str!("../../../../jobs/post-003.fio");
    let (jobs, plan) = planned(text, &[0, 1]);
    assert_eq!((jobs.len(), plan.threads.len(), plan.targets.len(), plan.reports), (4, 32, 4, 1));
    let (_, big) = planned(text, &(0..32).collect::<Vec<_>>());
    let cpus: Vec<u32> = big.threads.iter().flat_map(|t| t.cpus.clone()).collect();
    assert_eq!(cpus, (0..32).collect::<Vec<_>>());
    assert_eq!(plan.warnings.len(), 1);
}

#[test]
fn overwritten_verified_blocks_are_warned_of() {
    let warned = |text: &str| {
        let warnings = planned(text, &[0]).1.warnings;
        assert!(
            warnings.iter().all(|warning| warning.contains("offset_increment=")),
            "{warnings:?}"
        );
        !warnings.is_empty()
    };
    let both = "[global]\nrw=randwrite\nsize=1m\nverify=crc32c\nfilename=/x\n";
    assert!(warned(&format!("{both}[a]\nnumjobs=2\n")));
    assert!(warned(&format!("{both}[a]\n[b]\noffset=1020k\n")));
    assert!(
        warned(&format!("{both}[a]\nrw=randread\n[b]\n")),
        "a block may be read while it is written"
    );
    assert!(warned(&format!("{both}[a]\n[b]\nverify=0\n")), "whether or not the writer verifies");
    // Blocks or a file of its own each, one after the other, without a writer, without `verify`.
    assert!(!warned(&format!("{both}[a]\nnumjobs=2\noffset_increment=1m\n")));
    assert!(!warned(&format!("{both}[a]\n[b]\noffset=1m\n")));
    assert!(!warned(&format!("{both}[a]\n[b]\nfilename=/y\n")));
    assert!(!warned(&format!("{both}[a]\n[b]\nstonewall\n")));
    assert!(!warned(&format!("{both}[a]\nnumjobs=2\nrw=randread\n")));
    assert!(!warned(&format!("{both}[a]\nnumjobs=2\nverify_only=1\n")));
    assert!(!warned("[a]\nrw=randwrite\nsize=1m\nnumjobs=2\nfilename=/x\n"));
}
