use super::*;

const SCHEDULER: Scheduler = Scheduler { slice: Nanos(3_000), wakeup_granularity: Nanos(1_000) };

fn share(vruntime: u64) -> Share {
    Share { vruntime: Nanos(vruntime), first: false }
}

#[test]
fn whoever_has_had_least_is_next_and_interrupt_threads_before_all() {
    let mut ready = Ready::default();
    for (task, vruntime) in [(1, 50), (2, 20), (3, 20)] {
        ready.add(task, &mut share(vruntime), false, &SCHEDULER);
    }
    ready.add(9, &mut Share { vruntime: Nanos(99), first: true }, false, &SCHEDULER);
    let order: Vec<_> = std::iter::from_fn(|| ready.take()).collect();
    assert_eq!(order, [9, 2, 3, 1]);
}

#[test]
fn sleeping_saves_no_more_than_a_slice() {
    let mut ready = Ready::default();
    ready.add(1, &mut share(100_000), false, &SCHEDULER);
    ready.take();
    let mut sleeper = share(0);
    ready.add(2, &mut sleeper, true, &SCHEDULER);
    assert_eq!(sleeper.vruntime, Nanos(97_000));
}

#[test]
fn a_waking_thread_preempts_only_who_has_had_clearly_more() {
    assert!(Ready::preempts(&share(0), &share(1_001), &SCHEDULER));
    assert!(!Ready::preempts(&share(0), &share(1_000), &SCHEDULER));
    let first = Share { vruntime: Nanos(0), first: true };
    assert!(Ready::preempts(&first, &share(0), &SCHEDULER));
    assert!(!Ready::preempts(&share(0), &first, &SCHEDULER));
}
