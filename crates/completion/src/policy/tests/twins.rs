//! Policies that are broken in one way each, and the law that notices.

use super::*;

/// A policy of `mode` whose answers are tampered with.
struct Twin {
    good: Policy,
    masks: bool,
    tamper: fn(Nanos, &Seen, Plan) -> Plan,
}

impl Decides for Twin {
    fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        self.good.submitted(now, batch)
    }
    fn completed(&mut self, done: &[Done]) {
        self.good.completed(done);
    }
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        let plan = self.good.next(now, seen);
        (self.tamper)(now, seen, plan)
    }
    fn masks(&self) -> bool {
        self.masks
    }
}

fn twin(mode: Mode, tamper: fn(Nanos, &Seen, Plan) -> Plan) -> Twin {
    let good = Policy::new(mode);
    Twin { masks: good.masks(), good, tamper }
}

/// Asserts that a law notices this tampering in every mode, and that the message says what was wrong.
fn caught(law: fn(&mut Twin, &[laws::Event]) -> Result<(), String>, says: &str, tamper: fn(Nanos, &Seen, Plan) -> Plan) {
    for mode in Mode::ALL {
        let verdict = holds(laws::any_events(), |events| law(&mut twin(mode, tamper), &events));
        let message = verdict.expect_err(&format!("{mode}: the law does not notice"));
        assert!(message.contains(says), "{mode}: {message}");
    }
}

/// The same for the law that everything is found.
fn caught_in_the_world(mode: Mode, says: &str, tamper: fn(Nanos, &Seen, Plan) -> Plan) {
    let verdict = holds(world::any_submissions(), |s| world::run(&s, |_| twin(mode, tamper)));
    let message = verdict.expect_err(&format!("{mode}: the world does not notice"));
    assert!(message.contains(says), "{mode}: {message}");
}

#[test]
fn a_look_without_a_budget_is_caught() {
    caught(laws::bounded, "budget 0", |_, _, plan| if matches!(plan, Plan::Look { .. }) { Plan::Look { budget: 0 } } else { plan });
    caught(
        laws::bounded,
        "budget 4294967295",
        |_, _, plan| {
            if matches!(plan, Plan::Look { .. }) { Plan::Look { budget: u32::MAX } } else { plan }
        },
    );
}

#[test]
fn resting_with_commands_in_flight_is_caught() {
    caught(laws::progress, "rests", |_, seen, plan| if seen.found == 0 { Plan::Rest } else { plan });
    caught_in_the_world(Mode::INTERRUPT, "rests", |_, seen, plan| if seen.found == 0 { Plan::Rest } else { plan });
}

#[test]
fn waiting_unarmed_without_end_is_caught() {
    let endless = |_, seen: &Seen, plan| if seen.in_flight > 3 { Plan::Nap { until: Nanos::MAX } } else { plan };
    caught(laws::progress, "waits unarmed until never", endless);
    caught_in_the_world(Mode::HYBRID_MEAN, "waits for ever", endless);
}

#[test]
fn a_wait_that_has_passed_is_caught() {
    caught(laws::progress, "which has passed", |now, seen, plan| if seen.in_flight > 0 { Plan::Spin { until: now } } else { plan });
}

#[test]
fn sleeping_on_a_pending_entry_is_caught() {
    let deaf = |_, seen: &Seen, plan| if seen.pending { Plan::sleep(Nanos::MAX) } else { plan };
    caught(laws::looks_when_it_should, "pending", deaf);
    caught_in_the_world(Mode::IRQ_POLL, "round and round", deaf);
}

#[test]
fn looking_all_the_time_is_caught() {
    let eager = |_, seen: &Seen, plan| if seen.in_flight > 0 { Plan::Look { budget: 1 } } else { plan };
    caught(laws::looks_when_it_should, "nothing is known", eager);
    caught_in_the_world(Mode::INTERRUPT, "round and round", eager);
}

#[test]
fn leaving_a_queue_unarmed_is_caught() {
    let spinner = |now, seen: &Seen, plan| match plan {
        Plan::Sleep { .. } if seen.leaving => Plan::Spin { until: now + Nanos(1) },
        _ => plan,
    };
    caught(laws::leaves_armed, "leaves with", spinner);
    caught_in_the_world(Mode::POLL, "leaves with", spinner);
}

#[test]
fn a_poller_that_completes_after_its_whole_weight_is_caught() {
    let hasty = |_, seen: &Seen, plan| match plan {
        Plan::Look { .. } if seen.budget_used_up => Plan::sleep(Nanos::MAX),
        _ => plan,
    };
    let stubborn = |_, seen: &Seen, plan| match plan {
        Plan::Sleep { .. } if seen.found > 0 => Plan::Spin { until: Nanos::MAX },
        _ => plan,
    };
    let light = |_, _: &Seen, plan| if matches!(plan, Plan::Look { .. }) { Plan::Look { budget: 32 } } else { plan };
    for tamper in [hasty, stubborn, light] {
        let verdict = holds(laws::any_events(), |events| laws::irq_poll_contract(&mut twin(Mode::IRQ_POLL, tamper), &events));
        assert!(verdict.is_err());
    }
    let unmasked = |events: Vec<laws::Event>| {
        let mut twin = Twin { masks: false, ..twin(Mode::IRQ_POLL, |_, _, plan| plan) };
        laws::irq_poll_contract(&mut twin, &events)
    };
    assert!(holds(laws::any_events(), unmasked).is_err());
}
