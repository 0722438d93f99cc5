//! Paths that fail, recover, change ANA state, stop responding and delay commands, in virtual time.
//! Written data are read back, so a write that a lost controller carries out late is detected.

use driver::multipath::Link;
use driver::paths::Policy;
use emu::{Change, Loss, Script};
use nvme::AnaState;
use workload::{Amount, ErrorCode};

use super::invariants::judged;
use super::*;
use crate::ablation::{Ablation, NO_ABLATION};

/// Retries writes on another path although the lost controller may still carry them out.
const RETRIES_AT_ONCE: Ablation = Ablation { delays_write_retry: false, ..NO_ABLATION };

/// Bytes that each thread overwrites repeatedly.
const REGION: u64 = 64 << 10;
/// When all paths work again.
const WELL: Nanos = Nanos::from_millis(900);

/// An event of a path.
fn any_change() -> impl Strategy<Value = Change> {
    let states = [AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED, AnaState::INACCESSIBLE];
    prop_oneof![
        3 => Just(Change::Lost(Loss::Gone)),
        1 => Just(Change::Lost(Loss::Frozen)),
        3 => Just(Change::Back),
        2 => prop::sample::select(states.to_vec()).prop_map(|state| Change::Ana { group: None, state }),
        1 => (0u64..8_000_000).prop_map(|delay| Change::Delay(Nanos(delay))),
        2 => Just(Change::Hold(Some(units::Op::Write))),
        1 => Just(Change::Hold(None)),
        2 => Just(Change::Release),
    ]
}

/// Random events of two to four paths, until all work again.
fn any_script(paths: usize) -> impl Strategy<Value = Script> {
    prop::collection::vec((0u64..10_000_000, 0..paths, any_change()), 1..16).prop_map(
        move |steps| {
            let next = |(script, at): (Script, Nanos), (after, path, change)| {
                (script.with(at + Nanos(after), path, change), at + Nanos(after))
            };
            let (script, _) = steps.into_iter().fold((Script::default(), Nanos::ZERO), next);
            let well = [
                Change::Back,
                Change::Release,
                Change::Delay(Nanos::ZERO),
                Change::Ana { group: None, state: AnaState::OPTIMIZED },
            ];
            (0..paths).fold(script, |script, path| {
                well.into_iter().fold(script, |script, change| script.with(WELL, path, change))
            })
        },
    )
}

/// A random machine whose threads write and read back over paths with any events.
fn any_paths() -> impl Strategy<Value = Scenario> {
    (2usize..5)
        .prop_flat_map(|paths| {
            (any_machine(), any_script(paths), prop::sample::select(Policy::ALL.to_vec()), 1u32..4)
        })
        .prop_map(|(mut scenario, script, policy, keep_alive)| {
            let paths = script.steps.iter().map(|step| step.path + 1).max().unwrap_or(1);
            let first = DeviceSpec { bytes: 1 << 20, ..scenario.devices[0].clone() };
            scenario.devices = (0..paths)
                .map(|n| DeviceSpec { name: format!("path{n}"), ..first.clone() })
                .collect();
            // No moderator and no hidden coalescing: one source of faults at a time.
            for profile in scenario.devices.iter_mut().map(|device| &mut device.config.profile) {
                (profile.hidden, profile.moves_data) = (Hidden::default(), true);
            }
            let spec = &mut scenario.jobs[0];
            let job = &mut spec.job;
            job.filenames = scenario.devices.iter().map(|device| device.name.clone()).collect();
            job.pattern.direction = workload::Direction::Write;
            (job.random_map, job.number_ios, job.io_size, job.loops) = (true, None, None, 40);
            (job.size, job.offset_increment) = (Some(Amount::Bytes(REGION)), Amount::Bytes(REGION));
            job.verify = Some(workload::Verify { fatal: true, ..workload::Verify::default() });
            // Slow enough for events to happen in flight.
            job.rate = workload::PerOp::all(Some(workload::Rate::Iops(10_000)));
            let multipath = Multipath::over(paths as u8, policy);
            let keep_alive = Nanos::from_millis(u64::from(keep_alive) * 100);
            spec.paths = Some(Multipath { keep_alive, ..multipath });
            Scenario {
                script,
                recovery: Some(Multipath::recovery(keep_alive)),
                limit: Nanos::from_secs(60),
                ..scenario
            }
        })
}

/// Every request ended once, none in error, no read returned overwritten data, and the paths
/// are all up.
fn judge(_: &Scenario, outcome: &Outcome) -> Result<(), String> {
    if let Some(failure) = outcome.failure.filter(|failure| failure.code == ErrorCode::EILSEQ) {
        return Err(format!("a ghost write: {failure}"));
    }
    let issued = outcome.stats.read.issued + outcome.stats.write.issued;
    if (outcome.counts.completed, outcome.counts.failed, outcome.counts.lost, outcome.failure)
        != (issued, 0, 0, None)
    {
        let Outcome { counts: Counts { completed, failed, lost, .. }, failure, failover, .. } =
            outcome;
        return Err(format!(
            "{issued} issued, {completed} completed, {failed} failed, {lost} lost, {failure:?}, {failover:?}"
        ));
    }
    let by_paths: u64 = outcome.paths.iter().map(|path| path.ios - path.failed).sum();
    if by_paths != issued {
        return Err(format!("{issued} requests, {by_paths} carried out: {:?}", outcome.paths));
    }
    Ok(())
}

/// The message of a failing scenario contains its seed and parameters.
#[test]
fn path_faults_lose_no_request() {
    judged(300, NO_ABLATION, any_paths(), judge).unwrap();
}

#[test]
fn early_write_resend_is_caught() {
    let message = judged(2_000, RETRIES_AT_ONCE, any_paths(), judge)
        .expect_err("no seed finds a ghost write");
    assert!(message.contains("ghost write"), "{message}");
}

#[test]
#[ignore = "a soak of some minutes: docs/testing.md"]
fn ten_thousand_machines_with_paths() {
    judged(10_000, NO_ABLATION, any_paths(), judge).unwrap();
}

fn two_paths(job: workload::Job, script: &str) -> Scenario {
    let mut scenario = Scenario::new(Mode::INTERRUPT, Profile::optane(), job);
    scenario.devices =
        ["near", "far"].map(|name| DeviceSpec::new(name, Profile::optane())).to_vec();
    scenario.jobs[0].job.filenames = vec!["near".into(), "far".into()];
    let multipath =
        Multipath { keep_alive: Nanos::from_millis(100), ..Multipath::over(2, Policy::Latency) };
    scenario.jobs[0].paths = Some(multipath);
    Scenario {
        script: script.parse().unwrap(),
        recovery: Some(Multipath::recovery(multipath.keep_alive)),
        ..scenario
    }
}

/// Reads use another path within 10 ms of the failure; the path is used again after it has
/// recovered.
#[test]
fn reads_leave_lost_paths_at_once() {
    let lost = two_paths(closed_loop(16, 60_000), "at 20ms path 0 lost; at 60ms path 0 back");
    let outcome = lost.run().unwrap();
    assert_eq!(
        (outcome.counts.completed, outcome.counts.failed, outcome.counts.lost),
        (60_000, 0, 0)
    );
    let [near, far] = &outcome.paths[..] else { panic!("{:?}", outcome.paths) };
    assert!(
        (1..=16).contains(&near.failed) && far.failed == 0 && near.ios > 10_000,
        "{near:?} {far:?}"
    );
    assert_eq!(
        (near.status.link, outcome.failover.failed_over, outcome.failover.held),
        (Link::Live, near.failed, 0)
    );
    assert!(outcome.failover.longest_stall <= Nanos::from_millis(11), "{:?}", outcome.failover);
    let never = Scenario { script: "at 20ms path 0 lost".parse().unwrap(), ..lost }.run().unwrap();
    assert!(never.paths[0].ios < near.ios && never.paths[0].status.link == Link::Lost);
}

/// Writes wait until the lost controller has certainly stopped: two keep-alive time-outs, or its
/// reset.
#[test]
fn writes_wait_for_the_lost_controller() {
    let mut job = closed_loop(16, 30_000);
    job.pattern.direction = workload::Direction::Write;
    let away = two_paths(job.clone(), "at 20ms path 0 lost").run().unwrap();
    assert!(away.failover.held > 0 && away.counts.completed == 30_000, "{:?}", away.failover);
    assert!(
        (Nanos::from_millis(200)..Nanos::from_millis(201)).contains(&away.failover.longest_hold),
        "{:?}",
        away.failover
    );
    let back = two_paths(job, "at 20ms path 0 lost; at 70ms path 0 back").run().unwrap();
    assert!(
        (Nanos::from_millis(40)..Nanos::from_millis(62)).contains(&back.failover.longest_hold),
        "{:?}",
        back.failover
    );
}

/// The worst case, scripted: writes are delayed inside the controller, the path is lost, then they
/// are carried out.
#[test]
fn verification_finds_ghost_writes() {
    let mut job = closed_loop(8, 0);
    job.pattern.direction = workload::Direction::Write;
    (job.random_map, job.number_ios, job.io_size, job.loops) = (true, None, None, 100);
    (job.size, job.rate) =
        (Some(Amount::Bytes(REGION)), workload::PerOp::all(Some(workload::Rate::Iops(10_000))));
    job.verify = Some(workload::Verify { fatal: true, ..workload::Verify::default() });
    let at = |release: u64| {
        format!(
            "at 5ms path 0 hold writes; at 7ms path 0 lost; at {release}us path 0 release; at 80ms path 0 back"
        )
    };
    let ghost = |release: u64| {
        let mut scenario = two_paths(job.clone(), &at(release));
        scenario.devices.iter_mut().for_each(|device| device.bytes = 1 << 20);
        judge(&scenario, &scenario.run().unwrap()).unwrap();
        judge(&scenario, &scenario.run_with(RETRIES_AT_ONCE).unwrap())
    };
    // Whether a late write is read back depends on the job's progress.
    let found: Vec<_> = (30_000..60_000).step_by(1_100).map(ghost).collect();
    assert!(
        found.iter().flat_map(|found| found.as_ref().err()).any(|why| why.contains("ghost write")),
        "{found:?}"
    );
}

/// An ANA change is reported by an event: requests leave the path without an error, and return.
#[test]
fn ana_states_are_followed() {
    let script = "at 10ms path 0 ana non-optimized; at 30ms path 0 ana inaccessible; at 40ms path 1 ana non-optimized";
    let outcome = two_paths(closed_loop(8, 50_000), script).run().unwrap();
    assert_eq!((outcome.counts.completed, outcome.counts.failed), (50_000, 0));
    let [near, far] = &outcome.paths[..] else { panic!("{:?}", outcome.paths) };
    assert_eq!(
        (near.status.ana, far.status.ana),
        (AnaState::INACCESSIBLE, AnaState::NON_OPTIMIZED)
    );
    assert!(near.ios < far.ios && near.failed == 0, "{near:?} {far:?}");
}

/// Without a path requests wait, up to the limits of number and time.
#[test]
fn waiting_for_paths_is_bounded() {
    let none = |script: &str, limit, timeout| {
        let mut scenario = two_paths(closed_loop(16, 20_000), script);
        if let Some(paths) = &mut scenario.jobs[0].paths {
            (paths.failover.no_path_limit, paths.failover.no_path_timeout) = (limit, timeout);
        }
        scenario.run().unwrap()
    };
    let gone = "at 5ms path 0 lost; at 5ms path 1 lost; at 300ms path 1 back";
    let waited = none(gone, usize::MAX, Nanos::from_secs(30));
    assert_eq!((waited.counts.completed, waited.counts.failed), (20_000, 0));
    assert!(waited.failover.longest_stall > Nanos::from_millis(280), "{:?}", waited.failover);
    let limited = none(gone, 4, Nanos::from_secs(30));
    assert!(limited.counts.failed > 0 && limited.failure.is_some(), "{:?}", limited.failover);
    let impatient = none(gone, usize::MAX, Nanos::from_millis(50));
    assert!(
        impatient.counts.failed > 0 && impatient.elapsed < Nanos::from_millis(100),
        "{:?}",
        impatient.failover
    );
}

#[test]
fn mismatched_scripts_are_refused() {
    let base = || two_paths(closed_loop(4, 10), "at 1ms path 0 lost");
    let one = JobSpec::new(workload::Job { filenames: vec!["far".into()], ..closed_loop(1, 1) });
    let plain = Scenario { jobs: vec![base().jobs[0].clone(), one], ..base() };
    let third = Scenario { script: "at 1ms path 2 lost".parse().unwrap(), ..base() };
    let unwatched = Scenario { recovery: None, ..base() };
    let mut twice = base();
    twice.jobs[0].job.filenames = vec![twice.devices[0].name.clone(); 2];
    for scenario in [plain, third, unwatched, twice] {
        assert!(matches!(scenario.run(), Err(SimError::Unfit(_))), "{:?}", scenario.run());
    }
}
