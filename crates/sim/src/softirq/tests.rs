use super::*;

fn pollers() -> Pollers {
    let mut pollers = Pollers::new(Softirq { restarts: 1 });
    pollers.add(vec![0, 1]);
    pollers
}

/// One run that leaves a queue scheduled, so that ksoftirqd does the rest.
fn handed_over() -> Pollers {
    let mut pollers = pollers();
    pollers.schedule(0, 64, Nanos(0));
    assert!(pollers.is_raised());
    pollers.stage = PollStage::Turn;
    assert!(pollers.end_run(Nanos(10), false), "one restart, and no more");
    pollers.handed_over = true;
    assert!(!pollers.is_raised());
    pollers
}

#[test]
fn irq_exit_respects_waiting_ksoftirqd() {
    let mut pollers = handed_over();
    pollers.schedule(1, 64, Nanos(20));
    assert!(!pollers.is_raised());
}

#[test]
fn drained_softirq_leaves_ksoftirqd_idle() {
    let mut pollers = handed_over();
    pollers.stage = PollStage::Turn;
    pollers.plans.fill(Plan::Idle);
    assert!(!pollers.end_run(Nanos(30), false));
    assert_eq!(
        (pollers.stage, pollers.handed_over, pollers.is_raised()),
        (PollStage::Quiet, false, false)
    );
}
