use std::any::Any;

use super::*;
use crate::{Mode, Policy};

/// Panics where it is told to, and remembers what it has learnt.
#[derive(Clone, Debug, Default)]
struct Fragile {
    panics_in: &'static str,
    learnt: u32,
}

impl Fragile {
    fn at(&self, place: &'static str) {
        assert!(self.panics_in != place, "in {place}");
    }
}

impl CustomPolicy for Fragile {
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        self.at("next");
        self.learnt += 1;
        if work_is_known(seen) { Plan::Look { budget: self.learnt } } else { Plan::Nap { until: now + Nanos(5_000) } }
    }
    fn submitted(&mut self, _: Nanos, _: &Batch) -> Check {
        self.at("submitted");
        Check::TryLook { budget: 7 }
    }
    fn completed(&mut self, _: &[Done]) {
        self.at("completed");
    }
    fn route(&self, _: Nanos, _: &Batch) -> Route {
        self.at("route");
        Route::Poll
    }
    fn holds(&self) -> u16 {
        self.at("holds");
        3
    }
    fn inherit(&mut self, earlier: &dyn Any) {
        self.at("inherit");
        self.learnt = earlier.downcast_ref::<Fragile>().map_or(0, |earlier| earlier.learnt);
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.at("drop");
    }
}

fn registered(name: &str, panics_in: &'static str) -> Mode {
    let facts = Facts::MASKED.checking().holding();
    Mode::register(name, facts, move |_| {
        assert!(panics_in != "make", "in make");
        Box::new(Fragile { panics_in, learnt: 0 })
    })
    .unwrap()
}

#[test]
fn wherever_a_policy_panics_its_queue_goes_on_in_interrupt() {
    for place in ["make", "next", "submitted", "completed", "route", "holds"] {
        let mode = registered(&format!("panics-in-{place}"), place);
        let mut policy = Policy::new(mode);
        let batch = Batch { commands: 1, in_flight: 1, ..Batch::default() };
        policy.route(Nanos(1), &batch);
        policy.submitted(Nanos(1), &batch);
        policy.completed(&[]);
        policy.holds();
        let plan = policy.next(Nanos(2), &Seen { in_flight: 1, ..Seen::default() });
        assert_eq!(plan, Plan::sleep(Nanos::MAX), "{place}");
        assert_eq!(policy.dismissed(), Some(&Breach::Panicked(format!("in {place}"))));
        assert_eq!(policy.mode(), Mode::INTERRUPT);
        // The notification is masked as before, until the queue has settled.
        assert!(policy.masks());
        assert_eq!((policy.route(Nanos(3), &batch), policy.submitted(Nanos(3), &batch), policy.holds()), (Route::Notify, Check::No, 0));
        let crate::Preset::Custom(id) = mode.preset() else { panic!("{mode}") };
        assert_eq!(id.dismissals(), Some((1, Breach::Panicked(format!("in {place}")))));
    }
}

#[test]
fn a_panic_as_it_goes_is_nobody_elses() {
    let policy = Policy::new(registered("panics-in-drop", "drop"));
    drop(policy);
}

#[test]
fn what_was_learnt_comes_back_with_the_mode_whatever_was_between() {
    let mode = registered("learns", "");
    let mut policy = Policy::new(mode);
    let look = Seen { in_flight: 1, pending: true, ..Seen::default() };
    (0..5).for_each(|_| _ = policy.next(Nanos(1), &look));
    for between in [Mode::ADAPTIVE, registered("between", ""), Mode::POLL, mode] {
        let earlier = std::mem::replace(&mut policy, Policy::new(between));
        policy.inherit(earlier);
    }
    assert_eq!(policy.next(Nanos(1), &look), Plan::Look { budget: 6 });
}

#[test]
fn a_policy_that_never_looks_is_overruled_and_then_dismissed() {
    #[derive(Clone, Debug)]
    struct Blind;
    impl CustomPolicy for Blind {
        fn next(&mut self, _: Nanos, _: &Seen) -> Plan {
            Plan::sleep(Nanos::MAX)
        }
    }
    let mut policy = Policy::new(Mode::register("blind", Facts::UNMASKED, |_| Box::new(Blind)).unwrap());
    let look = Seen { in_flight: 1, pending: true, ..Seen::default() };
    let nothing = Seen { in_flight: 1, ..Seen::default() };
    for n in 1..=PATIENCE {
        // As in a queue: between two messages it is asked what to do until the next.
        assert_eq!(policy.next(Nanos(1), &nothing), Plan::sleep(Nanos::MAX));
        assert_eq!(policy.next(Nanos(1), &look), Plan::Look { budget: WEIGHT });
        assert_eq!(policy.dismissed().is_some(), n == PATIENCE, "{n}");
    }
    assert_eq!(policy.dismissed(), Some(&Breach::NeverLooks));
}

/// Looks in between do not make its naps shorter; a wait that ends does.
#[test]
fn a_policy_that_naps_for_ever_is_dismissed() {
    #[derive(Clone, Debug)]
    struct Sleepyhead {
        good: bool,
    }
    impl CustomPolicy for Sleepyhead {
        fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
            match (work_is_known(seen), self.good && now.0.is_multiple_of(5)) {
                (true, _) => Plan::Look { budget: 1 },
                (false, true) => Plan::Nap { until: now + Nanos(1_000) },
                (false, false) => Plan::Nap { until: Nanos::MAX },
            }
        }
    }
    let look = Seen { in_flight: 1, pending: true, ..Seen::default() };
    let nothing = Seen { in_flight: 1, ..Seen::default() };
    for good in [false, true] {
        let mode = Mode::register(&format!("naps-{good}"), Facts::MASKED, move |_| Box::new(Sleepyhead { good })).unwrap();
        let mut policy = Policy::new(mode);
        for n in 1..=u64::from(ENDLESS) + 1 {
            policy.next(Nanos(n), &nothing);
            policy.next(Nanos(n), &look);
        }
        assert_eq!(policy.dismissed(), (!good).then_some(&Breach::NapsForEver), "{good}");
    }
}

/// Neither a loop of questions nor a wait without end: the answer's kind stays, its instant is the nearest that the contract allows.
#[test]
fn instants_gone_by_and_out_of_reach_are_bounded() {
    #[derive(Clone, Debug)]
    struct Says(Plan);
    impl CustomPolicy for Says {
        fn next(&mut self, _: Nanos, _: &Seen) -> Plan {
            self.0
        }
    }
    let now = Nanos::from_secs(5);
    let (soon, last) = (now + GONE_BY, now + LONGEST);
    let sleep = |until, at_least| Plan::Sleep { until, at_least };
    let cases = [
        (Plan::Spin { until: Nanos::ZERO }, Plan::Spin { until: soon }),
        (Plan::Spin { until: now }, Plan::Spin { until: soon }),
        (Plan::Spin { until: now + Nanos(1) }, Plan::Spin { until: now + Nanos(1) }),
        (Plan::Spin { until: Nanos::MAX }, Plan::Spin { until: last }),
        (Plan::Nap { until: now - Nanos(1) }, Plan::Nap { until: soon }),
        (Plan::Nap { until: Nanos::MAX }, Plan::Nap { until: last }),
        (sleep(Nanos::ZERO, 1), sleep(soon, 1)),
        (sleep(now, 9), sleep(soon, 3)),
        (sleep(Nanos::MAX, 0), sleep(Nanos::MAX, 1)),
    ];
    let seen = Seen { in_flight: 3, ..Seen::default() };
    for (n, (says, expected)) in cases.into_iter().enumerate() {
        let mode = Mode::register(&format!("says-{n}"), Facts::MASKED, move |_| Box::new(Says(says))).unwrap();
        let mut policy = Policy::new(mode);
        assert_eq!((policy.next(now, &seen), policy.dismissed()), (expected, None), "{says:?}");
    }
}

#[test]
fn a_name_is_good_once_and_facts_must_agree() {
    let register = |name: &str, facts| Mode::register(name, facts, |_| Box::new(Fragile::default()));
    let mode = register("own-name", Facts::UNMASKED.delivered(crate::Delivery::Posted)).unwrap();
    assert!(mode.is_custom() && !mode.masks() && mode.delivery() == crate::Delivery::Posted);
    assert_eq!((mode.to_string().parse(), Mode::try_from(u32::from(mode))), (Ok(mode), Ok(mode)));
    assert!("own-nme".parse::<Mode>().unwrap_err().to_string().contains("did you mean 'own-name'"));
    assert!(matches!("own-name+submit-check".parse::<Mode>(), Err(crate::ModeError::NoSubmitCheck { .. })));
    for name in ["own-name", "poll", "kernel-iopoll"] {
        assert!(register(name, Facts::MASKED).unwrap_err().to_string().contains("already"), "{name}");
    }
    for name in ["", "Big", "a b", "a@1", "1st", "a,b", "a+b", &"a".repeat(33)] {
        assert!(register(name, Facts::MASKED).unwrap_err().to_string().contains("no name"), "{name}");
    }
    let fault = register("contradicts", Facts::MASKED.delivered(crate::Delivery::Posted)).unwrap_err().to_string();
    assert!(fault.contains("Facts::UNMASKED"), "{fault}");
}
