//! Devices whose vectors cannot be masked: each hardware queue has an interrupt queue and a poll
//! queue.

use super::faults::whatever_goes_wrong;
use super::invariants::{
    POLLS_BEFORE_ARMING, SKIPS_ARMING, SKIPS_HANDOFF, SKIPS_REARMING, SKIPS_RECHECK, holds,
};
use super::*;
use crate::ablation::{Ablation, NO_ABLATION};

/// Sleeps although commands are on the poll queue, whose completions send no message.
const SLEEPS_ON_POLL_QUEUE: Ablation = Ablation { naps_on_poll_queue: false, ..NO_ABLATION };

pub(super) fn unmasked(scenario: Scenario) -> Scenario {
    let devices = scenario.devices.into_iter().map(DeviceSpec::without_masks).collect();
    Scenario { devices, host: HostStack::User, ..scenario }
}

fn run(
    mode: Mode,
    job: workload::Job,
    switches: &[(u64, Mode)],
    ablation: Ablation,
) -> Result<Outcome, SimError> {
    let switches = switches.iter().map(|&(at, mode)| (Nanos(at), mode)).collect();
    Scenario { switches, ..unmasked(Scenario::new(mode, Profile::optane(), job)) }
        .run_with(ablation)
}

#[test]
fn commands_follow_their_mode() {
    for mode in Mode::ALL {
        let outcome = run(mode, closed_loop(8, 2_000), &[], NO_ABLATION)
            .unwrap_or_else(|error| panic!("{mode}: {error}"));
        assert_eq!((outcome.counts.completed, outcome.suppressed), (2_000, 0), "{mode}");
        let silent = match mode {
            Mode::POLL | Mode::HYBRID_MEAN | Mode::HYBRID_MIN => 2_000,
            Mode::ADAPTIVE => outcome.silent,
            _ => 0,
        };
        assert_eq!(outcome.silent, silent, "{mode}");
        if mode.moderation().is_none() {
            assert_eq!(outcome.messages, 2_000 - silent, "{mode}: every message is sent");
        }
    }
}

/// A mode that masks but uses the interrupt queue pays for interrupts that it does not need.
#[test]
fn unread_messages_cost_and_are_counted() {
    let job = || closed_loop(32, 20_000);
    let masked = Scenario::new(Mode::SUSPEND, Profile::optane(), job()).run().unwrap();
    let unread = run(Mode::SUSPEND, job(), &[], NO_ABLATION).unwrap();
    assert!(
        masked.suppressed > 19_000 && masked.all_cpus.hard < unread.all_cpus.hard,
        "{masked:?}"
    );
    assert_eq!((unread.messages, unread.suppressed), (20_000, 0));
    assert!(
        unread.all_cpus.interrupts > 10_000
            && unread.counts.wakeups < 2 * masked.counts.wakeups + 20_000,
        "{unread:?}"
    );
    // A napping thread does not read the eventfd, so messages do not wake it.
    assert!(
        unread.counts.timer_wakeups > unread.counts.wakeups * 9 / 10,
        "{} of {}",
        unread.counts.timer_wakeups,
        unread.counts.wakeups
    );
}

#[test]
fn adaptive_polls_more_than_interrupts() {
    let fast = unmasked(Scenario::new(Mode::ADAPTIVE, Profile::null(), closed_loop(8, 40_000)));
    let busy = fast.run().unwrap();
    assert!(busy.silent > 39_000, "{} of 40,000", busy.silent);
    // After its initial stretches of spinning.
    let idle = run(Mode::ADAPTIVE, open_loop(1_000, 2_000), &[], NO_ABLATION).unwrap();
    assert!(
        idle.silent < 200 && idle.messages > 1_700,
        "{} of 2,000, {} messages",
        idle.silent,
        idle.messages
    );
}

/// All eight commands are on the poll queue when the mode becomes one that sleeps, and no other
/// follows.
#[test]
fn polled_commands_survive_mode_switch() {
    let job = || workload::Job { complete_min: 8, ..closed_loop(8, 8) };
    for mode in Mode::ALL {
        let outcome = run(Mode::POLL, job(), &[(4_000, mode)], NO_ABLATION)
            .unwrap_or_else(|error| panic!("{mode}: {error}"));
        assert_eq!((outcome.counts.completed, outcome.silent), (8, 8), "{mode}");
        // At most twice as late, and found by a nap.
        assert!(outcome.elapsed < Nanos::from_micros(60), "{mode}: {}", outcome.elapsed);
        let sleeps = matches!(
            mode.to_string().trim_end_matches("+submit-check"),
            "interrupt" | "irq-poll" | "threaded" | "posted"
        );
        let mutant = run(Mode::POLL, job(), &[(4_000, mode)], SLEEPS_ON_POLL_QUEUE);
        assert!(
            !sleeps || matches!(mutant, Err(SimError::Standstill(Moment { in_flight: 1.., .. }))),
            "{mode}: {mutant:?}"
        );
    }
    // The reverse: commands stay on the interrupt queue and send their messages.
    let outcome = run(Mode::INTERRUPT, job(), &[(4_000, Mode::POLL)], NO_ABLATION).unwrap();
    assert_eq!((outcome.counts.completed, outcome.silent, outcome.messages), (8, 0, 8));
}

#[test]
fn mode_switch_drains_old_queue() {
    let switches =
        [(300_000, Mode::POLL), (600_000, Mode::IRQ_POLL), (1_200_000, Mode::HYBRID_MIN)];
    let outcome = run(Mode::INTERRUPT, closed_loop(128, 20_000), &switches, NO_ABLATION).unwrap();
    assert_eq!(
        (outcome.counts.completed, outcome.messages + outcome.silent, outcome.suppressed),
        (20_000, 20_000, 0)
    );
    assert!(
        outcome.messages > 500 && outcome.silent > 5_000,
        "{} {}",
        outcome.messages,
        outcome.silent
    );
}

#[test]
fn maskless_runs_keep_invariants() {
    holds(1_000, NO_ABLATION, any_scenario().prop_map(unmasked)).unwrap();
    holds(300, NO_ABLATION, any_machine().prop_map(unmasked)).unwrap();
    holds(100, NO_ABLATION, any_burst().prop_map(unmasked)).unwrap();
}

#[test]
fn maskless_mutants_are_caught() {
    let caught = |ablation, verdict: Result<(), String>| {
        let message = verdict.expect_err(&format!("no seed finds {ablation:?}"));
        assert!(message.contains("standstill") || message.contains("not done"), "{message}");
    };
    // A message with a delay longer than a poll arrives after the arming.
    let library = LibraryCosts { look: Nanos(4_000), ..Costs::BARE_METAL.library };
    let slow = move |scenario: Scenario| {
        unmasked(scenario).with_costs(Costs { library, ..Costs::BARE_METAL })
    };
    caught(POLLS_BEFORE_ARMING, holds(3_000, POLLS_BEFORE_ARMING, any_scenario().prop_map(slow)));
    for ablation in [SLEEPS_ON_POLL_QUEUE, SKIPS_RECHECK, SKIPS_ARMING, SKIPS_REARMING] {
        caught(ablation, holds(3_000, ablation, any_scenario().prop_map(unmasked)));
    }
    caught(SKIPS_HANDOFF, holds(3_000, SKIPS_HANDOFF, any_machine().prop_map(unmasked)));
}

#[test]
fn maskless_faults_end_requests_once() {
    whatever_goes_wrong(300, any_machine().prop_map(unmasked));
}

#[test]
fn a_kernel_always_masks() {
    let kernel = Scenario {
        host: HostStack::Kernel,
        ..unmasked(Scenario::new(Mode::POLL, Profile::null(), closed_loop(4, 10)))
    };
    assert!(matches!(kernel.run(), Err(SimError::Unfit(_))));
}
