//! Faults of the bus and the controller in virtual time: each request ends exactly once, completed
//! or failed, and the run ends.

use completion::Preset;
use driver::RecoveryConfig;
use emu::{Fault, FaultPlan};
use nvme::Status;
use proptest::test_runner::{Config as Runs, TestCaseError, TestRunner};
use workload::ErrorCode;

use super::*;

fn recovery() -> RecoveryConfig {
    RecoveryConfig {
        command_timeout: Nanos::from_millis(20),
        grace: Nanos::from_millis(10),
        attempts: 3,
        health_interval: Nanos::from_millis(5),
        lost_timeout: Nanos::ZERO,
    }
}

fn with_faults(mode: Mode, faults: FaultPlan) -> Scenario {
    with_faults_on(mode, faults, closed_loop(16, 2_000))
}

fn with_faults_on(mode: Mode, faults: FaultPlan, job: workload::Job) -> Scenario {
    let mut scenario = Scenario::new(mode, Profile::optane(), job);
    scenario.devices[0].faults = faults;
    Scenario { recovery: Some(recovery()), limit: Nanos::from_secs(60), ..scenario }
}

/// Every issued request ended once, and no data were corrupted.
fn judge(outcome: &Outcome) -> Result<(), String> {
    let issued = outcome.stats.read.issued + outcome.stats.write.issued;
    let ended = outcome.counts.completed + outcome.counts.failed + outcome.counts.lost;
    if issued != ended {
        return Err(format!("{issued} requests issued, {ended} ended"));
    }
    match outcome.failure {
        Some(failure) if failure.code == ErrorCode::EILSEQ => Err(format!("wrong data: {failure}")),
        None if outcome.counts.failed + outcome.counts.lost > 0 => {
            Err("a request failed without a report".into())
        }
        _ => Ok(()),
    }
}

fn run(scenario: &Scenario) -> Outcome {
    let outcome = scenario.run().unwrap_or_else(|error| panic!("{}: {error}", scenario.mode));
    judge(&outcome).unwrap_or_else(|error| panic!("{}: {error}", scenario.mode));
    assert_eq!(outcome.injected.len(), 1, "{}: {:?}", scenario.mode, outcome.injected);
    outcome
}

#[test]
fn timeout_finds_lost_interrupt() {
    for mode in Mode::ALL {
        // The last message: no later one hides that it was lost.
        let scenario =
            with_faults_on(mode, FaultPlan::new().at(99, Fault::LoseMessage), closed_loop(1, 100));
        let outcome = run(&scenario);
        assert_eq!(
            (outcome.counts.completed, outcome.resets, outcome.aborts),
            (100, 0, 0),
            "{mode}"
        );
        // These modes spin or nap; `adaptive` sleeps for a device as slow as this one.
        let looks = matches!(
            mode.preset(),
            Preset::HybridMean | Preset::HybridMin | Preset::Suspend | Preset::Poll
        );
        assert_eq!(outcome.missed_notifications, u64::from(!looks), "{mode}");
    }
}

/// The same without recovery: a thread that sleeps for that message never wakes, and the simulator
/// reports a standstill.
#[test]
fn without_recovery_lost_interrupt_stalls() {
    for name in ["interrupt", "irq-poll"] {
        let faults = FaultPlan::new().at(99, Fault::LoseMessage);
        let scenario =
            Scenario { recovery: None, ..with_faults_on(mode(name), faults, closed_loop(1, 100)) };
        assert!(matches!(
            scenario.run(),
            Err(SimError::Standstill(Moment { in_flight: 1, pending: 1, .. }))
        ));
    }
}

#[test]
fn late_and_doubled_messages_are_harmless() {
    for fault in [Fault::DelayMessage(Nanos::from_micros(700)), Fault::DoubleMessage] {
        for mode in Mode::ALL {
            let outcome = run(&with_faults(mode, FaultPlan::new().at(77, fault)));
            assert_eq!(
                (outcome.counts.completed, outcome.resets, outcome.aborts),
                (2_000, 0, 0),
                "{mode}"
            );
        }
    }
}

#[test]
fn protocol_violation_resets_and_repeats() {
    for fault in [Fault::StaleCid, Fault::UnknownCid, Fault::DoubleEntry, Fault::Fatal] {
        for mode in Mode::ALL {
            let scenario = with_faults(mode, FaultPlan::new().at(500, fault));
            let outcome = run(&scenario);
            assert_eq!((outcome.counts.completed, outcome.resets), (2_000, 1), "{mode}: {fault:?}");
        }
    }
    let unwatched = Scenario {
        recovery: None,
        ..with_faults(Mode::POLL, FaultPlan::new().at(500, Fault::UnknownCid))
    };
    assert!(matches!(unwatched.run(), Err(SimError::Violation(_))));
}

#[test]
fn missing_command_is_aborted_or_repeated() {
    for fault in [Fault::SwallowCommand, Fault::SwallowEntry, Fault::WrongPhase] {
        for mode in Mode::ALL {
            let outcome = run(&with_faults(mode, FaultPlan::new().at(500, fault)));
            assert_eq!(outcome.counts.completed, 2_000, "{mode}: {fault:?}");
            assert!(outcome.aborts + outcome.resets >= 1, "{mode}: {fault:?}");
            assert!(outcome.elapsed >= recovery().command_timeout, "{mode}: {fault:?}");
        }
    }
}

#[test]
fn statuses_fail_or_retry() {
    for mode in Mode::ALL {
        let medium = run(&with_faults(
            mode,
            FaultPlan::new().at(500, Fault::Status(Status::UNRECOVERED_READ_ERROR)),
        ));
        assert_eq!(
            (medium.counts.failed, medium.failure.map(|f| f.code)),
            (1, Some(ErrorCode::EIO)),
            "{mode}"
        );
        let circumstance = run(&with_faults(
            mode,
            FaultPlan::new().at(500, Fault::Status(Status::COMMAND_INTERRUPTED)),
        ));
        assert_eq!(
            (circumstance.counts.completed, circumstance.counts.bad_statuses, circumstance.failure),
            (2_000, 1, None),
            "{mode}"
        );
    }
}

/// Four CPUs on two nodes whose threads share the two queues of each of two drives, which have one
/// vector each. The first drive's bus is at fault.
fn server(mode: Mode, host: HostStack, posted: bool, faults: FaultPlan) -> Scenario {
    let mut job = closed_loop(8, 300);
    (job.numjobs, job.filenames) = (4, vec!["disk0".into(), "disk1".into()]);
    let base = with_faults_on(mode, FaultPlan::new(), job);
    let drive = |name: &str, faults| {
        let mut drive =
            DeviceSpec { faults, ..DeviceSpec::new(name, Profile::optane()).with_queues(2) };
        drive.config.vectors = 2;
        drive
    };
    let devices = vec![drive("disk0", faults), drive("disk1", FaultPlan::new())];
    Scenario { machine: Machine { posted, ..Machine::new(4, 2) }, host, devices, ..base }
}

/// Every mode, either host, vectors one by one or posted.
fn servers() -> impl Iterator<Item = (Mode, HostStack, bool)> {
    let hosts = [
        (HostStack::User, false),
        (HostStack::User, true),
        (HostStack::Kernel, false),
        (HostStack::Kernel, true),
    ];
    Mode::ALL.into_iter().flat_map(move |mode| hosts.map(|(host, posted)| (mode, host, posted)))
}

#[test]
fn misrouted_interrupts_cost_no_reset() {
    for fault in
        [Fault::LoseMessage, Fault::DelayMessage(Nanos::from_micros(700)), Fault::DoubleMessage]
    {
        for (mode, host, posted) in servers() {
            let outcome = run(&server(mode, host, posted, FaultPlan::new().at(77, fault)));
            assert_eq!(
                (outcome.counts.completed, outcome.resets, outcome.aborts),
                (1_200, 0, 0),
                "{mode} {host:?} {posted}: {fault:?}"
            );
        }
    }
}

#[test]
fn only_the_faulty_drive_resets() {
    for fault in [Fault::StaleCid, Fault::UnknownCid, Fault::DoubleEntry, Fault::Fatal] {
        for (mode, host, posted) in servers() {
            let outcome = run(&server(mode, host, posted, FaultPlan::new().at(300, fault)));
            assert_eq!(
                (outcome.counts.completed, outcome.resets),
                (1_200, 1),
                "{mode} {host:?} {posted}: {fault:?}"
            );
        }
    }
    let unwatched = Scenario {
        recovery: None,
        ..server(Mode::POLL, HostStack::User, false, FaultPlan::new().at(300, Fault::UnknownCid))
    };
    assert!(matches!(unwatched.run(), Err(SimError::Violation(_))));
}

#[test]
fn silent_drive_is_aborted_or_reset() {
    for fault in [Fault::SwallowCommand, Fault::SwallowEntry, Fault::WrongPhase] {
        for (mode, host, posted) in servers() {
            let outcome = run(&server(mode, host, posted, FaultPlan::new().at(300, fault)));
            assert_eq!(outcome.counts.completed, 1_200, "{mode} {host:?} {posted}: {fault:?}");
            assert!(outcome.aborts + outcome.resets >= 1, "{mode} {host:?} {posted}: {fault:?}");
            let unwatched = Scenario {
                recovery: None,
                ..server(mode, host, posted, FaultPlan::new().at(300, fault))
            };
            let stuck = Scenario { limit: Nanos::from_secs(1), ..unwatched }.run();
            assert!(
                matches!(
                    stuck,
                    Err(SimError::Standstill(_) | SimError::TooLong(_) | SimError::Violation(_))
                ),
                "{stuck:?}"
            );
        }
    }
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::LoseMessage),
        (1u64..50_000_000).prop_map(|n| Fault::DelayMessage(Nanos(n))),
        Just(Fault::DoubleMessage),
        Just(Fault::StaleCid),
        Just(Fault::UnknownCid),
        Just(Fault::DoubleEntry),
        Just(Fault::WrongPhase),
        (0u16..0x7ff).prop_map(|n| Fault::Status(Status(n))),
        Just(Fault::SwallowEntry),
        Just(Fault::SwallowCommand),
        Just(Fault::Fatal),
    ]
}

/// Scripted and random faults, with or without the admin queue.
fn any_faults() -> impl Strategy<Value = FaultPlan> {
    let scripted = prop::collection::vec((0u64..400, any_fault()), 0..4);
    let chances = prop::collection::vec((1u32..20_000, any_fault()), 0..3);
    let late = prop::option::weighted(0.3, 1u64..30_000).prop_map(|late| Nanos(late.unwrap_or(0)));
    (scripted, chances, any::<u64>(), any::<bool>(), late).prop_map(
        |(scripted, chances, seed, admin_too, late)| {
            let plan = scripted.into_iter().fold(
                FaultPlan::new().with_seed(seed).with_late_doorbells(late, seed),
                |plan, (n, fault)| plan.at(n, fault),
            );
            let plan =
                chances.into_iter().fold(plan, |plan, (ppm, fault)| plan.with_chance(ppm, fault));
            if admin_too { plan.admin_too() } else { plan }
        },
    )
}

/// Under any faults at any time, each request ends exactly once, in success or a typed error, and
/// the run ends.
fn ends_once(
    mut scenario: Scenario,
    faults: &[FaultPlan],
    writes: bool,
) -> Result<(), TestCaseError> {
    (scenario.recovery, scenario.limit) = (Some(recovery()), Nanos::from_secs(600));
    for (device, faults) in scenario.devices.iter_mut().zip(faults) {
        device.faults = faults.clone();
    }
    let job = &mut scenario.jobs[0].job;
    if writes {
        scenario.devices.iter_mut().for_each(|device| device.config.profile.moves_data = true);
        // Each thread has its own blocks.
        (job.size, job.offset_increment) =
            (Some(workload::Amount::Bytes(64 << 10)), workload::Amount::Bytes(64 << 10));
        job.pattern.direction = workload::Direction::Write;
        job.random_map = true;
        job.verify = Some(workload::Verify { fatal: true, ..workload::Verify::default() });
    }
    match scenario.run() {
        Ok(outcome) => judge(&outcome).map_err(TestCaseError::fail),
        // Faults may prevent bring-up; that must be reported as well.
        Err(SimError::BringUp(_)) => Ok(()),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

pub(super) fn whatever_goes_wrong(cases: u32, scenarios: impl Strategy<Value = Scenario>) {
    let mut runner = TestRunner::new(Runs {
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Runs::with_cases(cases)
    });
    let faults = prop::collection::vec(any_faults(), 2);
    runner
        .run(&(scenarios, faults, any::<bool>()), |(scenario, faults, writes)| {
            ends_once(scenario, &faults, writes)
        })
        .unwrap();
}

#[test]
fn faults_end_requests_once() {
    whatever_goes_wrong(1_500, any_scenario());
}

/// The same where threads on several CPUs share queues, devices share CPUs, and vectors are shared
/// or posted.
#[test]
fn faulty_machines_end_requests_once() {
    whatever_goes_wrong(400, any_machine());
}

/// `cargo test --release -p reap-sim --lib -- --ignored ten_thousand`.
#[test]
#[ignore = "a soak: docs/testing.md"]
fn ten_thousand_faulty_machines() {
    whatever_goes_wrong(10_000, any_machine());
}
