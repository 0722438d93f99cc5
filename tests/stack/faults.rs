//! Whole-stack: what the embedded controller does wrong never costs more than time. Every request
//! ends exactly once, no read sees anything but what was written, and nothing hangs: a watchdog
//! ends the process if something does.

mod around;
mod left;
mod lost;

use std::thread;
use std::time::Duration;

use crate::load::{Ended, LONG, Load, PATIENT, Watchdog, modes, open, run, run_for};
use nvme::Status;
use reap::{Fault, FaultPlan, IoError, Nanos};

/// The faults at these occasions.
fn at(occasions: &[u64], fault: Fault) -> FaultPlan {
    occasions.iter().fold(FaultPlan::new(), |plan, &n| plan.at(n, fault))
}

fn good(ended: &[Ended], requests: u64) {
    for thread in ended {
        assert_eq!(
            (thread.good, thread.bad.as_slice(), thread.kept_buffers),
            (requests, &[][..], 0)
        );
    }
}

/// The fault strikes a few times; every request comes to a good end all the same. Returns resets
/// and aborts.
fn survive(plan: &FaultPlan, least_resets: u32) {
    survive_at(16, plan, least_resets);
}

/// The same with that many requests of each thread in flight.
fn survive_at(depth: usize, plan: &FaultPlan, least_resets: u32) {
    for (mode, threads) in modes().into_iter().flat_map(|mode| [(mode, 1), (mode, 3)]) {
        let (device, faults, ended) =
            run(plan.clone(), mode, threads, (600 / threads as u64, depth));
        good(&ended, 600 / threads as u64);
        let (health, injected) = (device.health(), faults.injected().len());
        println!(
            "{mode}, {threads} threads: {injected} faults, {} resets, {} aborts, {:?}",
            health.resets, health.aborts, health.last_reset
        );
        assert!(injected > 0, "{mode}: the fault has not happened");
        assert!(health.resets >= least_resets && health.dead.is_none(), "{mode}: {health:?}");
        assert_eq!(device.counters().leaked_bytes, 0);
    }
}

#[test]
fn lost_interrupts_cost_one_timeout() {
    survive(&FaultPlan::new().with_chance(10_000, Fault::LoseMessage), 0);
}

/// With one request in flight no later message makes up for a lost one: in `interrupt` nobody looks
/// until the time-out, at which the entry is found where it was, and nothing is aborted.
#[test]
fn timeout_finds_uninterrupted_completion() {
    thread::scope(|scope| {
        for (mode, lost) in modes().into_iter().flat_map(|mode| [(mode, 10), (mode, 20)]) {
            scope.spawn(move || {
                let (device, faults, ended) =
                    run_for(at(&[lost], Fault::LoseMessage), mode, 1, (100, 1), PATIENT);
                good(&ended, 100);
                let health = device.health();
                println!(
                    "{mode}, message {lost}: {} faults, {} aborts",
                    faults.injected().len(),
                    health.aborts
                );
                assert_eq!(
                    (health.aborts, health.resets, health.last_reset),
                    (0, 0, None),
                    "{mode}"
                );
            });
        }
    });
}

#[test]
fn late_and_double_interrupts_are_harmless() {
    let late = Fault::DelayMessage(Nanos::from_millis(2));
    survive(
        &FaultPlan::new().with_chance(50_000, late).with_chance(50_000, Fault::DoubleMessage),
        0,
    );
}

/// More resets than a request is posted again for: a thread that is kept from its CPU meets them
/// all with one request.
#[test]
fn requested_resets_fail_no_request() {
    const RESETS: u32 = 6;
    let swallowed: Vec<_> = (0..RESETS.into()).collect();
    for mode in modes() {
        let _watchdog = Watchdog::new("a request that meets many resets");
        let (device, faults) = open(at(&swallowed, Fault::SwallowCommand), mode, 1, LONG);
        let queue = device.queue().unwrap();
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let mut load = Load::new(&queue, 1);
                load.run(1, 1);
                load.ended
            });
            let until = |happened: &dyn Fn() -> bool| {
                while !happened() && !thread.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
            };
            for reset in 0..RESETS {
                until(&|| faults.injected().len() > reset as usize);
                device.reset();
                until(&|| device.health().resets > reset);
            }
            good(&[thread.join().unwrap()], 1);
        });
        assert_eq!((device.health().aborts, device.health().resets), (0, RESETS), "{mode}");
    }
}

#[test]
fn stale_cid_leads_to_reset() {
    survive(&at(&[150, 400], Fault::StaleCid), 1);
}

#[test]
fn unknown_cid_leads_to_reset() {
    survive(&at(&[150, 400], Fault::UnknownCid), 1);
}

#[test]
fn duplicate_entry_leads_to_reset() {
    // Less than the queue of 32 holds: the second entry needs room.
    survive_at(8, &at(&[150, 400], Fault::DoubleEntry), 1);
}

#[test]
fn wrong_phase_leads_to_reset() {
    survive(&at(&[250], Fault::WrongPhase), 1);
}

#[test]
fn missing_entry_leads_to_reset() {
    survive(&at(&[250], Fault::SwallowEntry), 1);
}

#[test]
fn missing_command_aborts_then_resets() {
    survive(&at(&[250], Fault::SwallowCommand), 1);
}

#[test]
fn a_fatal_controller_is_reset() {
    survive(&at(&[100, 350], Fault::Fatal), 1);
}

#[test]
fn bad_status_stays_with_its_request() {
    for status in [
        Status::INTERNAL_ERROR.with_dnr(),
        Status::UNRECOVERED_READ_ERROR,
        Status::COMMAND_INTERRUPTED.with_dnr(),
    ] {
        for mode in modes() {
            let (device, faults, ended) = run_for(
                FaultPlan::new().with_chance(30_000, Fault::Status(status)),
                mode,
                1,
                (600, 16),
                LONG,
            );
            let bad = &ended[0].bad;
            assert!(
                !bad.is_empty() && bad.iter().all(|&error| error == IoError::Status(status)),
                "{mode}: {bad:?}"
            );
            // As often as it was said: nothing was posted again.
            assert_eq!((bad.len(), ended[0].kept_buffers), (faults.injected().len(), 0));
            assert_eq!(device.health().resets, 0);
        }
    }
}

#[test]
fn retryable_status_is_retried() {
    for mode in modes() {
        let plan = at(&[10, 11, 12, 200, 201], Fault::Status(Status::COMMAND_INTERRUPTED));
        let (_, faults, ended) = run_for(plan, mode, 1, (600, 16), LONG);
        good(&ended, 600);
        assert_eq!(faults.injected().len(), 5);
    }
}

/// Everything at once, seeded: requests may run out of retries, and nothing worse.
#[test]
fn many_faults_corrupt_no_data() {
    for (seed, mode) in (0..4).flat_map(|seed| modes().map(|mode| (seed, mode))) {
        let message =
            [Fault::LoseMessage, Fault::DelayMessage(Nanos::from_millis(1)), Fault::DoubleMessage];
        let entry = [
            Fault::StaleCid,
            Fault::UnknownCid,
            Fault::DoubleEntry,
            Fault::WrongPhase,
            Fault::SwallowEntry,
            Fault::Fatal,
        ];
        let plan = message
            .iter()
            .fold(FaultPlan::new().with_seed(seed), |plan, &fault| plan.with_chance(5_000, fault));
        let plan = entry.iter().fold(plan, |plan, &fault| plan.with_chance(700, fault));
        let plan = plan
            .with_chance(20_000, Fault::Status(Status::COMMAND_INTERRUPTED))
            .with_chance(500, Fault::SwallowCommand);
        let (device, faults, ended) = run(plan, mode, 2, (400, 16));
        for thread in &ended {
            assert_eq!(thread.good + thread.bad.len() as u64, 400, "seed {seed}, {mode}");
            let expected = |e: &IoError| {
                *e == IoError::TimedOut || *e == IoError::Status(Status::COMMAND_INTERRUPTED)
            };
            assert!(thread.bad.iter().all(expected), "seed {seed}, {mode}: {:?}", thread.bad);
        }
        assert!(!faults.injected().is_empty());
        assert_eq!((device.health().dead, device.counters().leaked_bytes), (None, 0));
    }
}
