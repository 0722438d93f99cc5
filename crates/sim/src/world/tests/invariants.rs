//! The invariants over the whole stack in virtual time, each with a negative test: an executor
//! without the step that keeps it.

use std::sync::atomic::AtomicBool;

use proptest::test_runner::{Config as Runs, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::masks::unmasked;
use super::*;
use completion::SleepStep;
use emu::PendingBit;

use crate::ablation::{Ablation, NO_ABLATION};
use crate::host::Context;

/// Does not poll between arming and blocking.
pub(super) const SKIPS_RECHECK: Ablation =
    Ablation { sleep: &[SleepStep::Arm, SleepStep::Block], ..NO_ABLATION };
/// Arms after the poll: what is posted in between is lost.
pub(super) const POLLS_BEFORE_ARMING: Ablation =
    Ablation { sleep: &[SleepStep::Check, SleepStep::Arm, SleepStep::Block], ..NO_ABLATION };
/// Polls and does not arm.
pub(super) const SKIPS_ARMING: Ablation =
    Ablation { sleep: &[SleepStep::Check, SleepStep::Block], ..NO_ABLATION };
/// Does not poll after unmasking: what was posted under the mask has sent no message.
const SKIPS_POLL_AFTER_SWITCH: Ablation = Ablation { polls_after_switch: false, ..NO_ABLATION };
/// Treats a notification as armed that it has masked.
pub(super) const SKIPS_REARMING: Ablation = Ablation { rearms_after_mask: false, ..NO_ABLATION };
/// Leaves entries behind when it releases a queue's lock, although another party found it held.
const SKIPS_POLL_ON_RELEASE: Ablation = Ablation { polls_on_release: false, ..NO_ABLATION };
/// Clears the outstanding bit of posted interrupts and does not exchange the bits once more.
const SKIPS_LAST_EXCHANGE: Ablation = Ablation { posted_polls_again: false, ..NO_ABLATION };
/// Ignores a notification if the poll before it found the lock held.
const KEEPS_LOCK_BUSY: Ablation = Ablation { clears_lock_busy: false, ..NO_ABLATION };
/// Stops waiting on a shared queue and keeps its notification role.
pub(super) const SKIPS_HANDOFF: Ablation = Ablation { hands_off_role: false, ..NO_ABLATION };

/// The same without Pending bits: masked messages are lost. With Pending bits unmasking sends them,
/// so an executor without the poll is notified anyway.
fn without_late_cqes(scenario: Scenario) -> Scenario {
    let mut devices = scenario.devices;
    devices.iter_mut().for_each(|device| device.config.pending = PendingBit::Absent);
    Scenario { devices, ..scenario }
}

/// The invariants of any run.
fn judge(scenario: &Scenario, outcome: &Outcome) -> Result<(), String> {
    let asked =
        scenario.jobs[0].job.number_ios.unwrap_or(0) * u64::from(scenario.jobs[0].job.numjobs);
    if (outcome.counts.completed, outcome.counts.failed, outcome.counts.lost, outcome.failure)
        != (asked, 0, 0, None)
    {
        return Err(format!("{asked} requests: {outcome:?}"));
    }
    let modes = || scenario.switches.iter().map(|&(_, mode)| mode).chain([scenario.mode]);
    // A kernel's hard interrupt reaps without a limit: that is why irq_poll has a softirq.
    let unbounded = modes().any(|mode| Context::of(mode, scenario.host) == Context::Hard);
    if !unbounded && outcome.counts.entries_per_drain_max > completion::PollLimits::DEFAULT.budget {
        return Err(format!("{} entries in one drain", outcome.counts.entries_per_drain_max));
    }
    let hidden = scenario.devices.iter().any(|device| device.config.profile.hidden.is_on());
    let honest = !hidden && modes().all(|mode| mode.moderation().is_none());
    let told = (outcome.messages, outcome.suppressed, outcome.silent);
    if honest && told.0 + told.1 + told.2 != asked {
        return Err(format!(
            "{} messages, {} held back and {} in silence for {asked} entries",
            told.0, told.1, told.2
        ));
    }
    let masks = scenario.devices.iter().all(|device| device.masks);
    if if masks { told.2 > 0 } else { told.1 > 0 } {
        return Err(format!("{} messages held back, {} commands in silence", told.1, told.2));
    }
    // A switch of mode, or a lock that was found held, causes polls without a message.
    let kicks = scenario.switches.len() as u64
        * scenario.devices.iter().map(|device| u64::from(device.queues)).sum::<u64>();
    if outcome.all_cpus.interrupts > outcome.messages + kicks + outcome.counts.busy_looks {
        return Err(format!(
            "{} interrupts for {} messages",
            outcome.all_cpus.interrupts, outcome.messages
        ));
    }
    for (n, cpu) in outcome.cpus.iter().enumerate() {
        if cpu.hard + cpu.soft + cpu.thread + cpu.idle != outcome.elapsed {
            return Err(format!(
                "CPU {n}'s time is not accounted for: {cpu:?} of {}",
                outcome.elapsed
            ));
        }
    }
    if outcome.sq_doorbells > asked
        || outcome.cq_doorbells
            > (outcome.counts.polls - outcome.counts.empty_polls) * if masks { 1 } else { 2 }
    {
        return Err("more doorbells than batches".into());
    }
    Ok(())
}

pub(super) fn holds(
    cases: u32,
    ablation: Ablation,
    scenarios: impl Strategy<Value = Scenario>,
) -> Result<(), String> {
    judged(cases, ablation, scenarios, judge)
}

/// Whether runs of executors with these ablation pass `judge`.
pub(super) fn judged(
    cases: u32,
    ablation: Ablation,
    scenarios: impl Strategy<Value = Scenario>,
    judge: impl Fn(&Scenario, &Outcome) -> Result<(), String>,
) -> Result<(), String> {
    let config =
        Runs { failure_persistence: None, max_shrink_iters: 200, ..Runs::with_cases(cases) };
    // The invariants are checked on new cases in each run, the mutants on fixed ones, so that each
    // is caught reliably.
    let mut runner = if ablation == NO_ABLATION {
        TestRunner::new(config)
    } else {
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    };
    let property = |scenario: Scenario| {
        let outcome =
            scenario.run_with(ablation).map_err(|error| TestCaseError::fail(error.to_string()))?;
        judge(&scenario, &outcome).map_err(TestCaseError::fail)
    };
    runner.run(&scenarios, property).map_err(|error| error.to_string())
}

/// Each command completes exactly once, no wake-up is lost and no drain exceeds its budget, in any
/// mode, and with mode switches at any time.
#[test]
fn every_run_keeps_invariants() {
    holds(2_000, NO_ABLATION, any_scenario()).unwrap();
}

/// The same on whole machines.
#[test]
fn every_machine_keeps_invariants() {
    holds(400, NO_ABLATION, any_machine()).unwrap();
}

/// Where threads share queues and vectors, a thread that stops polling has another one poll.
#[test]
fn mutant_machines_are_caught() {
    let caught = |result: Result<(), String>, ablation| {
        let message = result.expect_err(&format!("no seed finds {ablation:?}"));
        assert!(message.contains("standstill") || message.contains("not done"), "{message}");
    };
    // Slow polls: many entries are posted while a lock is held.
    let slow = |mut scenario: Scenario| {
        scenario.machine.costs.library.reap = SLOW_LOOK.library.reap;
        without_late_cqes(scenario)
    };
    for ablation in [SKIPS_POLL_ON_RELEASE, SKIPS_HANDOFF] {
        caught(holds(3_000, ablation, any_machine().prop_map(slow)), ablation);
    }
    holds(200, NO_ABLATION, any_burst()).unwrap();
    caught(holds(3_000, SKIPS_LAST_EXCHANGE, any_burst()), SKIPS_LAST_EXCHANGE);
}

/// 10,000 of each: `cargo test --release -p reap-sim --lib -- --ignored ten_thousand`.
#[test]
#[ignore = "a soak of half a minute: docs/testing.md"]
fn ten_thousand_machines_keep_invariants() {
    holds(10_000, NO_ABLATION, any_scenario()).unwrap();
    holds(10_000, NO_ABLATION, any_machine()).unwrap();
    holds(2_000, NO_ABLATION, any_burst()).unwrap();
}

/// The same runs without the check after arming, with it before arming, or without arming, once or
/// always, come to a standstill for some seed.
#[test]
fn mutant_executors_are_caught() {
    for ablation in [SKIPS_RECHECK, POLLS_BEFORE_ARMING, SKIPS_ARMING, SKIPS_REARMING] {
        let message = holds(3_000, ablation, any_scenario().prop_map(without_late_cqes))
            .expect_err(&format!("no seed finds {ablation:?}"));
        // Where a hog or a moderator keeps running, the time limit ends the run instead.
        assert!(message.contains("standstill") || message.contains("not done"), "{message}");
        assert!(message.contains("seed"), "{message}");
    }
}

/// Threads share a hardware queue and poll it themselves. One takes its last entry, and while it
/// still holds the lock another thread's last entry is posted: its owner wakes, finds the lock
/// held, and sleeps. The first thread needs nothing more, and must wake it for the remaining entry.
#[test]
fn leftover_entries_notify_the_owner() {
    let slow = LibraryCosts { reap: Nanos(20_000), ..Costs::BARE_METAL.library };
    let run = |seed, ablation, masks: bool| {
        let job = workload::Job { numjobs: 2, ..closed_loop(2, 2) };
        let profile = Profile {
            read: Service { jitter: Nanos(60_000), ..Profile::optane().read },
            ..Profile::optane()
        };
        let base = Scenario::new(Mode::INTERRUPT, profile, job)
            .with_costs(Costs { library: slow, ..Costs::BARE_METAL });
        let scenario =
            Scenario { machine: Machine { cpus: 2, ..base.machine.clone() }, seed, ..base };
        if masks { scenario } else { unmasked(scenario) }.run_with(ablation)
    };
    for masks in [true, false] {
        assert!((0..200).all(|seed| {
            run(seed, NO_ABLATION, masks).is_ok_and(|outcome| outcome.counts.completed == 4)
        }));
        assert!((0..200).any(|seed| matches!(
            run(seed, SKIPS_POLL_ON_RELEASE, masks),
            Err(SimError::Standstill(Moment { in_flight: 1.., .. }))
        )));
    }
}

/// A switch from a mode whose thread polls to one that reaps in the interrupt unmasks the vector:
/// entries posted under the mask have sent no message, and these eight are the last ones.
#[test]
fn unmasking_switch_checks_again() {
    let run = |(seed, instant), ablation| {
        let mut job = closed_loop(8, 8);
        job.complete_min = 8;
        let switches = vec![(Nanos(instant), Mode::INTERRUPT)];
        // A slow poll, so that the last entry is posted during one.
        let slow = LibraryCosts { reap: Nanos(3_000), ..Costs::BARE_METAL.library };
        let base = Scenario::new(Mode::POLL, Profile::optane(), job)
            .with_costs(Costs { library: slow, ..Costs::BARE_METAL });
        without_late_cqes(Scenario { switches, seed, host: HostStack::Kernel, ..base })
            .run_with(ablation)
    };
    let cases = || {
        (0..40).flat_map(|seed| (10_000..26_000).step_by(400).map(move |instant| (seed, instant)))
    };
    assert!(
        cases()
            .all(|case| run(case, NO_ABLATION).is_ok_and(|outcome| outcome.counts.completed == 8))
    );
    let lost = |case| {
        matches!(
            run(case, SKIPS_POLL_AFTER_SWITCH),
            Err(SimError::Standstill(Moment { mode: Mode::INTERRUPT, .. }))
        )
    };
    assert!(cases().any(lost));
}

/// Only modes that mask depend on the poll: a vector that is never masked has sent every message.
#[test]
fn standstill_names_the_mode() {
    // The thread waits for all eight, so that no later message hides a lost one.
    let job = workload::Job { complete_min: 8, ..closed_loop(8, 5_000) };
    let base = |mode| Scenario::new(mode, Profile::optane(), job.clone()).with_costs(SLOW_MASK);
    let run =
        |mode, seed| without_late_cqes(Scenario { seed, ..base(mode) }).run_with(SKIPS_RECHECK);
    let standstill = |seed| {
        matches!(
            run(Mode::IRQ_POLL, seed),
            Err(SimError::Standstill(Moment { mode: Mode::IRQ_POLL, in_flight: 1.., .. }))
        )
    };
    assert!((0..8).any(standstill));
    assert!((0..8).all(|seed| run(Mode::INTERRUPT, seed).is_ok()));
}

/// A Pending bit records a masked message, so an executor without the poll is notified anyway, and
/// its mutants run without Pending bits. With them each unmasking interrupts, although the entries
/// have been taken.
#[test]
fn pending_bits_report_masked_interrupts() {
    let run = |pending, ablation, seed| {
        let mut scenario = Scenario {
            seed,
            ..Scenario::new(Mode::IRQ_POLL, Profile::optane(), closed_loop(8, 5_000))
        }
        .with_costs(SLOW_MASK);
        scenario.devices[0].config.pending = pending;
        scenario.run_with(ablation)
    };
    for seed in 0..8 {
        assert!(
            run(PendingBit::Cleared, SKIPS_RECHECK, seed)
                .is_ok_and(|outcome| outcome.counts.completed == 5_000),
            "seed {seed}"
        );
        let [absent, cleared, kept] = [PendingBit::Absent, PendingBit::Cleared, PendingBit::Kept]
            .map(|pending| run(pending, NO_ABLATION, seed).unwrap());
        assert!(
            absent.all_cpus.interrupts <= cleared.all_cpus.interrupts
                && cleared.all_cpus.interrupts < kept.all_cpus.interrupts,
            "{absent:?} {cleared:?} {kept:?}"
        );
        for outcome in [&absent, &cleared, &kept] {
            assert_eq!(
                (outcome.counts.completed, outcome.messages + outcome.suppressed),
                (5_000, 5_000)
            );
        }
    }
}

#[test]
fn same_seed_same_run() {
    let run = |seed| {
        let scenario = Scenario {
            seed,
            ..Scenario::new(Mode::IRQ_POLL, Profile::tlc(), open_loop(100_000, 5_000))
        };
        format!("{:?}", scenario.run().unwrap())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Reads return what was written, in every mode, with requests larger than the device's limit.
#[test]
fn data_survive_splitting_and_switching() {
    let verify = workload::Verify { fatal: true, ..workload::Verify::default() };
    for (n, mode) in Mode::ALL.into_iter().enumerate() {
        let mut job = closed_loop(16, 100);
        job.pattern.direction = workload::Direction::Write;
        (job.verify, job.random_map) = (Some(verify.clone()), true);
        job.block = workload::PerOp::all(workload::BlockSizes::fixed(64 << 10));
        let mut scenario = Scenario::new(mode, Profile::optane(), job);
        let config = &mut scenario.devices[0].config;
        (config.max_transfer, config.boundary) = (16 << 10, 24 << 10);
        let next = |step| Mode::ALL[(n + step) % Mode::ALL.len()];
        scenario.switches = vec![(Nanos(300_000), next(1)), (Nanos(500_000), next(3))];
        let outcome = scenario.run().unwrap();
        assert_eq!(
            (outcome.counts.completed, outcome.failure),
            (200, None),
            "{mode}: 100 writes, read back"
        );
        assert!(
            outcome.sq_doorbells < 300,
            "four or more commands per request, one doorbell per batch"
        );
    }
}

#[test]
fn inconsistent_scenario_is_refused() {
    let base = || Scenario::new(Mode::POLL, Profile::null(), closed_loop(4, 10));
    let changed = |change: fn(&mut Scenario)| {
        let mut scenario = base();
        change(&mut scenario);
        scenario
    };
    let small = changed(|s| s.devices[0].bytes = 2_048);
    assert!(matches!(small.run(), Err(SimError::JobError(_))), "{:?}", small.run());
    let long = changed(|s| s.limit = Nanos(10));
    assert!(matches!(long.run(), Err(SimError::TooLong(_))));
    let unfit = [
        changed(|s| s.devices[0].bytes = 100),
        changed(|s| s.jobs[0].queues = 0),
        changed(|s| s.jobs[0].queues = 300),
        changed(|s| s.devices[0].config.vectors = 1),
        changed(|s| s.jobs[0].job = closed_loop(0, 10)),
        changed(|s| s.jobs[0].job = closed_loop(1 << 20, 10)),
        changed(|s| {
            s.jobs[0].job.block = workload::PerOp::all(workload::BlockSizes::fixed(2 << 20))
        }),
        changed(|s| s.machine.cpus = 257),
        changed(|s| s.machine.nodes = 2),
        changed(|s| s.machine.hogs = vec![1]),
    ];
    for scenario in unfit {
        assert!(matches!(scenario.run(), Err(SimError::Unfit(_))), "{scenario:?}");
    }
}

/// Threads that share a queue with few tags poll after each commit. The interrupt thread finds the
/// lock held by a thread that has reaped everything; before it sleeps again the next commands
/// complete. The thread that held the lock has ended and all others wait for a tag, so only the
/// notification can cause the next poll.
#[test]
fn contended_lock_loses_no_notification() {
    let run = |seed, ablation| {
        let job = workload::Job { batch_submit: 16, numjobs: 4, ..closed_loop(17, 1_000) };
        let profile = Profile { hidden: Hidden::default(), ..Profile::cloud() };
        let base = Scenario::new(mode("threaded+submit-check"), profile, job).with_costs(SLOW_MASK);
        let affinity = Affinity::Cpus(vec![1, 0]);
        let devices = vec![DeviceSpec { tags: 8, affinity, ..base.devices[0].clone() }];
        let machine = Machine { cpus: 7, nodes: 3, ..base.machine.clone() };
        Scenario { machine, host: HostStack::Kernel, devices, seed, ..base }.run_with(ablation)
    };
    assert!(
        (0..100)
            .all(|seed| run(seed, NO_ABLATION)
                .is_ok_and(|outcome| outcome.counts.completed == 4_000))
    );
    assert!((0..100).any(|seed| matches!(
        run(seed, KEEPS_LOCK_BUSY),
        Err(SimError::Standstill(Moment { in_flight: 1.., .. }))
    )));
}

/// The flag is read before each event; a run that is not stopped is unchanged.
#[test]
fn caller_flag_stops_a_run() {
    let scenario = Scenario::new(Mode::INTERRUPT, Profile::optane(), closed_loop(4, 100));
    let stopped = scenario.run_unless(&AtomicBool::new(true));
    assert!(
        matches!(stopped, Err(SimError::Stopped(Moment { at, seed, .. })) if at < Nanos::from_micros(100) && seed == scenario.seed),
        "{stopped:?}"
    );
    let whole = scenario.run_unless(&AtomicBool::new(false)).unwrap();
    assert_eq!((whole.counts.completed, whole.iops()), (100, scenario.run().unwrap().iops()));
}
