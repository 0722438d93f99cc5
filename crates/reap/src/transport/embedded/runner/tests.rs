use super::*;

/// The device thread rests as long as any guard lives.
#[test]
fn device_thread_stops_for_guards() {
    let runner = Arc::new(Runner::new(None).unwrap());
    assert!(!runner.is_by_hand());
    let (first, second) = (ManualStepper::new(&runner), ManualStepper::new(&runner));
    drop(first);
    assert!(runner.is_by_hand(), "the second guard lives");
    drop(second);
    assert!(!runner.is_by_hand());
}

/// A controller with `thread=own` does not wait for another's step.
#[test]
fn own_thread_steps_one_controller() {
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
    let (resting, limit) = (ManualStepper::new(&runners[0]), hw::now() + Nanos::from_secs(60));
    let (first, second) = (steps[0].load(Relaxed), steps[1].load(Relaxed));
    while steps[1].load(Relaxed) == second {
        assert!(hw::now() < limit, "the second does not run while the first rests");
        thread::yield_now();
    }
    assert_eq!(steps[0].load(Relaxed), first);
    assert!(resting.step() && steps[0].load(Relaxed) == first + 1);
}

/// A controller whose messages the host tallies at once, whichever thread sends them: it reads the
/// tally, and writes one more. In between another controller's message may come, and is waited for
/// as long as the test says.
struct Tallied {
    tally: Arc<AtomicU32>,
    /// Messages under way.
    inside: Arc<AtomicU32>,
    atomically: bool,
    patience: Nanos,
    sent: bool,
}

impl Stepper for Tallied {
    fn step(&mut self, _: Nanos) -> Step {
        if std::mem::replace(&mut self.sent, true) {
            return Step { worked: false, next: None };
        }
        let read = self.tally.load(Acquire);
        self.inside.fetch_add(1, AcqRel);
        let until = hw::now() + self.patience;
        while self.inside.load(Acquire) < 2 && hw::now() < until {
            thread::yield_now();
        }
        match self.atomically {
            true => _ = self.tally.fetch_add(1, AcqRel),
            false => self.tally.store(read + 1, Release),
        }
        Step { worked: true, next: None }
    }
}

/// A broken host counts on two controllers taking turns, and so their messages. Controllers of one
/// thread do, however long a message takes, and hide the fault. Two that have threads of their own
/// show it.
#[test]
fn own_threads_step_concurrently() {
    for (own, atomically, tallied) in
        [(false, false, 2), (false, true, 2), (true, true, 2), (true, false, 1)]
    {
        let shared = Runner::own().unwrap();
        let runners = if own { [shared, Runner::own().unwrap()] } else { [shared.clone(), shared] };
        let (tally, inside) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        // With one thread the second message cannot come: a short wait is enough.
        let patience = if own { Nanos::from_secs(60) } else { Nanos::from_millis(20) };
        for runner in &runners {
            let stepper = Tallied {
                tally: tally.clone(),
                inside: inside.clone(),
                atomically,
                patience,
                sent: false,
            };
            runner.attach(Box::new(stepper), Arc::new(Attachment::new(1, None)));
        }
        let limit = hw::now() + Nanos::from_secs(60);
        while inside.load(Acquire) < 2 {
            assert!(hw::now() < limit, "a controller was not stepped");
            thread::yield_now();
        }
        // A resting thread has ended its step.
        runners.iter().for_each(|runner| drop(ManualStepper::new(runner)));
        assert_eq!(
            tally.load(Acquire),
            tallied,
            "threads of their own: {own}, an atomic step: {atomically}"
        );
    }
}
