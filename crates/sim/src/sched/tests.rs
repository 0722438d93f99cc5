use super::*;

const SCHEDULER: Scheduler = Scheduler {
    slice: Nanos(3_000),
    wakeup_granularity: Nanos(1_000),
    tick: Nanos(0),
    rt_runtime: Nanos(950_000),
    rt_period: Nanos(1_000_000),
};

fn share(vruntime: u64) -> SchedEntity {
    SchedEntity { vruntime: Nanos(vruntime), fifo: false }
}

fn fifo(vruntime: u64) -> SchedEntity {
    SchedEntity { vruntime: Nanos(vruntime), fifo: true }
}

#[test]
fn least_served_thread_runs_next() {
    let mut ready = RunQueue::default();
    for (task, vruntime) in [(1, 50), (2, 20), (3, 20)] {
        ready.enqueue(task, &mut share(vruntime), false, &SCHEDULER);
    }
    ready.enqueue(9, &mut fifo(99), true, &SCHEDULER);
    let order: Vec<_> = std::iter::from_fn(|| ready.pick_next(false)).collect();
    assert_eq!(order, [9, 2, 3, 1]);
}

#[test]
fn interrupt_threads_run_in_wake_order() {
    let mut ready = RunQueue::default();
    for (task, had) in [(7, 900), (8, 1), (9, 5)] {
        ready.enqueue(task, &mut fifo(had), true, &SCHEDULER);
    }
    let front = ready.pick_next(false);
    assert_eq!(front, Some(7));
    // Preempted without having slept, it runs next again.
    ready.enqueue(7, &mut fifo(901), false, &SCHEDULER);
    let order: Vec<_> = std::iter::from_fn(|| ready.pick_next(false)).collect();
    assert_eq!(order, [7, 8, 9]);
}

#[test]
fn throttled_interrupt_threads_run_last() {
    let mut ready = RunQueue::default();
    ready.enqueue(9, &mut fifo(0), true, &SCHEDULER);
    ready.enqueue(1, &mut share(50), false, &SCHEDULER);
    assert_eq!((ready.has_fifo(), ready.has_fair()), (true, true));
    assert_eq!(
        (ready.pick_next(true), ready.pick_next(true), ready.pick_next(true)),
        (Some(1), Some(9), None)
    );
    assert!(!RunQueue::preempts(&fifo(0), &share(0), true, &SCHEDULER));
}

#[test]
fn a_quota_is_for_a_period() {
    let mut quota = RtQuota::default();
    let now = Nanos(10_000_000);
    assert_eq!(quota.remaining(now, &SCHEDULER), Nanos(950_000));
    quota.charge(now + Nanos(600_000), Nanos(600_000), &SCHEDULER);
    assert_eq!(quota.remaining(now + Nanos(600_000), &SCHEDULER), Nanos(350_000));
    quota.charge(now + Nanos(980_000), Nanos(380_000), &SCHEDULER);
    assert_eq!(quota.remaining(now + Nanos(980_000), &SCHEDULER), Nanos::ZERO);
    assert_eq!(quota.ends(), now + Nanos(1_000_000));
    assert_eq!(quota.remaining(now + Nanos(1_000_000), &SCHEDULER), Nanos(950_000));
    let unlimited = Scheduler { rt_runtime: Nanos(1_000_000), ..SCHEDULER };
    assert_eq!(quota.remaining(now, &unlimited), Nanos::MAX);
}

#[test]
fn sleep_credit_is_one_slice() {
    let mut ready = RunQueue::default();
    ready.enqueue(1, &mut share(100_000), false, &SCHEDULER);
    ready.pick_next(false);
    let mut id = share(0);
    ready.enqueue(2, &mut id, true, &SCHEDULER);
    assert_eq!(id.vruntime, Nanos(97_000));
}

#[test]
fn wakeup_preemption_needs_clear_lag() {
    assert!(RunQueue::preempts(&share(0), &share(1_001), false, &SCHEDULER));
    assert!(!RunQueue::preempts(&share(0), &share(1_000), false, &SCHEDULER));
    assert!(RunQueue::preempts(&fifo(0), &share(0), false, &SCHEDULER));
    assert!(!RunQueue::preempts(&share(0), &fifo(0), false, &SCHEDULER));
    assert!(!RunQueue::preempts(&fifo(0), &fifo(0), false, &SCHEDULER));
}
