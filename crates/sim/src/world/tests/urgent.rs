//! Interrupts of a command that is waited for are never coalesced.

use completion::{Decisions, DelayExponent};
use proptest::test_runner::{Config as Runs, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::*;
use crate::ablation::{Ablation, NO_ABLATION};

/// Does not report to the policies that a command is waited for.
const IGNORES_URGENT: Ablation = Ablation { reports_urgent: false, ..NO_ABLATION };

fn decisions(scenario: &Scenario, ablation: Ablation) -> Decisions {
    let outcome =
        scenario.run_with(ablation).unwrap_or_else(|error| panic!("{}: {error}", scenario.mode));
    outcome.decisions.expect("adaptive counts what it decides")
}

/// `adaptive` with exponent 0 (CPU time only), with an urgent or a normal job.
fn patient(urgent: bool, depth: u32, profile: Profile) -> Scenario {
    let job = workload::Job { urgent, ..closed_loop(depth, 5_000) };
    Scenario::new(Mode::adaptive(DelayExponent::CPU_ALONE), profile, job)
}

#[test]
fn adaptive_delays_unwaited_commands() {
    for depth in [8, 32] {
        for profile in [Profile::optane(), Profile::tlc()] {
            let gathers = decisions(&patient(false, depth, profile.clone()), NO_ABLATION);
            let urgent = decisions(&patient(true, depth, profile), NO_ABLATION);
            assert!(
                gathers.gathered > 0 && gathers.tried > 0 && urgent.tried > 0,
                "{depth}: {gathers:?} {urgent:?}"
            );
            assert_eq!(urgent.gathered, 0, "{depth}: {urgent:?}");
        }
    }
}

/// On random drives and machines, with mode switches in flight.
fn none_is_held_back(cases: u32, ablation: Ablation) -> Result<(), String> {
    let config =
        Runs { failure_persistence: None, max_shrink_iters: 50, ..Runs::with_cases(cases) };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let property = |(mut scenario, user): (Scenario, bool)| {
        scenario.mode = Mode::adaptive(DelayExponent::CPU_ALONE);
        scenario.host = if user { HostStack::User } else { scenario.host };
        scenario.jobs[0].job.urgent = true;
        let outcome =
            scenario.run_with(ablation).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let gathered = outcome.decisions.map_or(0, |decisions| decisions.gathered);
        if gathered > 0 {
            Err(TestCaseError::fail(format!("{gathered} gathering naps")))
        } else {
            Ok(())
        }
    };
    runner.run(&(any_machine(), any::<bool>()), property).map_err(|error| error.to_string())
}

#[test]
fn urgent_commands_are_never_held_back() {
    none_is_held_back(300, NO_ABLATION).unwrap();
    let message = none_is_held_back(300, IGNORES_URGENT)
        .expect_err("no seed finds the executor that keeps it to itself");
    assert!(message.contains("gathering naps"), "{message}");
}
