use super::*;

/// Each guard keeps the device thread at rest, whatever becomes of the others.
#[test]
fn the_thread_rests_until_the_last_guard_is_gone() {
    let runner = Arc::new(Runner::new(None).unwrap());
    assert!(!runner.is_by_hand());
    let (first, second) = (ByHand::new(&runner), ByHand::new(&runner));
    drop(first);
    assert!(runner.is_by_hand(), "the second guard lives");
    drop(second);
    assert!(!runner.is_by_hand());
}

/// A controller that asks for a thread of its own is not kept waiting by another's.
#[test]
fn a_thread_of_ones_own_steps_nobody_elses_controller() {
    struct Counts(Arc<AtomicU32>);
    impl Stepper for Counts {
        fn step(&mut self, _: Nanos) -> Step {
            self.0.fetch_add(1, Relaxed);
            Step { worked: true, next: None }
        }
    }
    let runners = [Runner::own().unwrap(), Runner::own().unwrap()];
    let steps = runners.each_ref().map(|runner| {
        let steps = Arc::new(AtomicU32::new(0));
        runner.attach(Box::new(Counts(steps.clone())), Arc::new(Attachment::new(1, None)));
        steps
    });
    let (resting, limit) = (ByHand::new(&runners[0]), hw::now() + Nanos::from_secs(60));
    let (first, second) = (steps[0].load(Relaxed), steps[1].load(Relaxed));
    while steps[1].load(Relaxed) == second {
        assert!(hw::now() < limit, "the second does not run while the first rests");
        thread::yield_now();
    }
    assert_eq!(steps[0].load(Relaxed), first);
    assert!(resting.step() && steps[0].load(Relaxed) == first + 1);
}
