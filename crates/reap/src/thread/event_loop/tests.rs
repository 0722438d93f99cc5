use std::cell::Cell;

use super::*;

#[test]
fn only_real_sleeps_are_measured() {
    let bell = hw::EventFd::new().unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&bell, 0).unwrap();
    let mut events = Vec::new();
    let mut wait = |timeout| {
        let measured = SleepCpu::begin();
        poller.wait(Some(timeout), &mut events).unwrap();
        measured.end()
    };
    bell.signal();
    assert_eq!(wait(Nanos::from_millis(1_000)), None, "told before it could sleep");
    let before = hw::thread_cpu();
    let cpu = wait(Nanos::from_millis(1)).unwrap();
    assert!(cpu > Nanos::ZERO && cpu <= hw::thread_cpu() - before);
}

/// A queue with scripted plans and polls, which records the calls.
struct Scripted {
    plans: RefCell<Vec<Plan>>,
    in_flight: u32,
    /// In how many looks while spinning it finds something; each other look finds that many
    /// entries.
    spins_until: Cell<u32>,
    found: u32,
    /// What its look before a sleep finds, whether the place is woken when it sleeps, and by the
    /// first queue's poller, and whether its own poller has its notification to report.
    met: bool,
    blocks: Option<bool>,
    reports: bool,
    yields: bool,
    weighs: bool,
    /// Sleeps whose CPU time was measured.
    measured: Cell<u32>,
    notes: RefCell<Vec<String>>,
}

const LATER: Nanos = Nanos(u64::MAX - 1);

/// A key of the poller that is no queue's.
const WOKEN: u64 = u64::MAX;

impl Scripted {
    fn new(plans: &[Plan]) -> Scripted {
        Scripted {
            plans: RefCell::new(plans.iter().rev().copied().collect()),
            in_flight: 1,
            spins_until: Cell::new(u32::MAX),
            found: 1,
            met: false,
            blocks: Some(true),
            reports: true,
            yields: false,
            weighs: false,
            measured: Cell::new(0),
            notes: RefCell::default(),
        }
    }

    fn note(&self, note: impl Into<String>) {
        self.notes.borrow_mut().push(note.into());
    }

    /// The calls, after `leave`.
    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.take();
        assert_eq!(notes.pop().as_deref(), Some("leave"));
        notes
    }

    fn is_done(&self) -> bool {
        self.plans.borrow().is_empty()
    }
}

impl LoopQueue for Scripted {
    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn plan(&self, _: Nanos, _: Nanos) -> Plan {
        self.plans.borrow_mut().pop().unwrap_or(Plan::Idle)
    }

    fn poll(&self, budget: u32) -> (u32, Option<Nanos>) {
        self.note(format!("look {budget}"));
        (self.found, None)
    }

    fn spin_started(&self) {
        self.note("spins");
    }

    fn poll_ready(&self) -> bool {
        let left = self.spins_until.get();
        self.spins_until.set(left.saturating_sub(1));
        left == 0
    }

    fn spin_ended(&self, _: Nanos) {
        self.note("in vain");
    }

    fn limits(&self) -> PollLimits {
        PollLimits::DEFAULT
    }

    fn yields_cpu(&self) -> bool {
        self.yields
    }

    fn arm(&self) {
        self.note("arm");
    }

    fn check_before_sleep(&self) -> bool {
        self.note("look once more");
        self.met
    }

    fn measures_sleeps(&self) -> bool {
        self.weighs
    }

    fn drain_events(&self) -> io::Result<bool> {
        Ok(self.reports)
    }

    fn woken(&self, slept: &Slept) {
        let Slept { found, nap, notified, cycle, .. } = *slept;
        self.measured.set(self.measured.get() + u32::from(cycle.is_some()));
        let why = [(found, " found"), (nap, " nap"), (notified, " notified")];
        self.note(
            why.into_iter()
                .filter(|(is, _)| *is)
                .fold("woken".to_owned(), |all, (_, why)| all + why),
        );
    }

    fn leave(&self) {
        self.note("leave");
    }
}

fn drive(queues: &[&Scripted], until: Nanos, for_others: bool) -> LoopEnd {
    let (place, signal) = (EventLoop::new().unwrap(), hw::EventFd::new().unwrap());
    if let Some(notified) = queues[0].blocks {
        signal.signal();
        place.poller().add(&signal, if notified { 0 } else { WOKEN }).unwrap();
    }
    place
        .drive(queues, hw::now(), until, for_others, || queues.iter().all(|queue| queue.is_done()))
        .unwrap()
}

/// A poll with the largest budget.
fn whole_look() -> String {
    format!("look {WEIGHT}")
}

fn sleep() -> Plan {
    Plan::sleep(Nanos::MAX)
}

#[test]
fn sleep_arms_polls_and_blocks() {
    let told = Scripted::new(&[sleep()]);
    assert_eq!(drive(&[&told], Nanos::MAX, false), LoopEnd::Enough);
    // It is done as soon as the plan is made, so that the caller's own look after arming finds
    // that.
    assert_eq!(told.notes(), ["arm", "look once more", "woken found"]);

    // Its poller may have reported something else than its notification.
    for (blocks, reports, woken) in [
        (Some(true), true, "woken notified"),
        (Some(true), false, "woken"),
        (Some(false), true, "woken"),
    ] {
        let queue =
            Scripted { blocks, reports, ..Scripted::new(&[sleep(), Plan::Poll { budget: 7 }]) };
        assert_eq!(drive(&[&queue], Nanos::MAX, false), LoopEnd::Enough);
        assert_eq!(queue.notes(), ["arm", "look once more", woken, "look 7"]);
    }
    let met = Scripted { met: true, ..Scripted::new(&[sleep(), Plan::Poll { budget: u32::MAX }]) };
    assert_eq!(drive(&[&met], Nanos::MAX, false), LoopEnd::Enough);
    assert_eq!(met.notes(), ["arm", "look once more", "woken found", &whole_look()]);
}

#[test]
fn sleeps_end_at_their_deadline() {
    for (plan, woken) in
        [(sleep(), "woken"), (Plan::nap(LATER), "woken nap"), (Plan::sleep(LATER), "woken")]
    {
        let queue =
            Scripted { blocks: Some(false), ..Scripted::new(&[plan, Plan::Poll { budget: 1 }]) };
        assert_eq!(drive(&[&queue], hw::now() + Nanos::from_secs(100), false), LoopEnd::Enough);
        assert_eq!(queue.notes(), ["arm", "look once more", woken, "look 1"]);
    }
    // Nothing wakes it earlier.
    let slept = || {
        let queue =
            Scripted { blocks: None, ..Scripted::new(&[sleep(), Plan::Poll { budget: 1 }]) };
        assert_eq!(drive(&[&queue], hw::now() + Nanos::from_millis(2), false), LoopEnd::Deadline);
        queue.notes()
    };
    // On a busy machine the instant may have come before the thread could sleep, which is no sleep.
    let notes = std::iter::repeat_with(slept).find(|notes| !notes.is_empty()).unwrap();
    assert_eq!(notes, ["arm", "look once more", "woken"]);
}

#[test]
fn queues_sleep_in_one_poller() {
    let bell = hw::EventFd::new().unwrap();
    let place = EventLoop::new().unwrap();
    place.poller().add(&bell, 1).unwrap();
    // The third queue's key is reported too, but its own poller has no notification.
    let other = hw::EventFd::new().unwrap();
    place.poller().add(&other, 2).unwrap();
    other.signal();
    let [first, second, third] = [true, true, false]
        .map(|reports| Scripted { reports, ..Scripted::new(&[sleep(), Plan::Idle]) });
    bell.signal();
    let queues = [&first, &second, &third];
    let enough = Cell::new(3);
    place
        .drive(&queues, hw::now(), Nanos::MAX, false, || enough.replace(enough.get() - 1) == 1)
        .unwrap();
    // Only the second queue's key was reported, so only its poller is read.
    for (queue, woken) in [(&first, "woken"), (&second, "woken notified"), (&third, "woken")] {
        assert_eq!(queue.notes(), ["arm", "look once more", woken]);
    }
    // One that finds something keeps all awake.
    let [first, second] = [false, true]
        .map(|met| Scripted { met, ..Scripted::new(&[sleep(), Plan::Poll { budget: 3 }]) });
    assert_eq!(drive(&[&first, &second], Nanos::MAX, false), LoopEnd::Enough);
    for queue in [&first, &second] {
        assert_eq!(queue.notes(), ["arm", "look once more", "woken found", "look 3"]);
    }
}

#[test]
fn weighed_sleeps_are_sampled() {
    for weighs in [false, true] {
        let (place, queue) =
            (EventLoop::new().unwrap(), Scripted { weighs, blocks: None, ..Scripted::new(&[]) });
        let sleep = || {
            place
                .drive(&[&queue], hw::now(), hw::now() + Nanos::from_millis(1), true, || false)
                .unwrap();
            queue.measured.get() > 0
        };
        // On a busy machine the instant may have come before the thread could sleep, which is no
        // sleep.
        let most = if weighs { 100 * MEASURED_SLEEPS } else { 2 * MEASURED_SLEEPS };
        assert_eq!(
            (0..most).find(|_| sleep()).map(|n| (n + 1) % MEASURED_SLEEPS),
            weighs.then_some(0)
        );
    }
}

#[test]
fn spins_end_found_or_empty() {
    let finds = Scripted {
        spins_until: Cell::new(20),
        ..Scripted::new(&[Plan::Spin { until: LATER }, Plan::Idle])
    };
    assert_eq!(drive(&[&finds], Nanos::MAX, false), LoopEnd::Idle);
    assert_eq!(finds.notes(), ["spins", &whole_look()]);

    for yields in [false, true] {
        let vain = Scripted {
            yields,
            ..Scripted::new(&[Plan::Spin { until: hw::now() + Nanos::from_millis(1) }, Plan::Idle])
        };
        let place = EventLoop::new().unwrap();
        assert_eq!(
            place.drive(&[&vain], hw::now(), Nanos::MAX, false, || false).unwrap(),
            LoopEnd::Idle
        );
        assert_eq!(vain.notes(), ["spins", "in vain"]);
    }
    // `enough` is true.
    let enough = Scripted::new(&[Plan::Spin { until: LATER }]);
    assert_eq!(drive(&[&enough], Nanos::MAX, false), LoopEnd::Enough);
    assert_eq!(enough.notes(), ["spins", "in vain"]);

    // Of several queues only the one that found something polls, if it was spinning.
    let spin = Plan::Spin { until: LATER };
    let [quiet, finds] = [u32::MAX, 3]
        .map(|n| Scripted { spins_until: Cell::new(n), ..Scripted::new(&[spin, Plan::Idle]) });
    let sleeps = Scripted { spins_until: Cell::new(3), ..Scripted::new(&[sleep(), Plan::Idle]) };
    assert_eq!(drive(&[&quiet, &finds, &sleeps], Nanos::MAX, false), LoopEnd::Idle);
    assert_eq!(
        (quiet.notes(), sleeps.notes()),
        (vec!["spins".to_owned()], vec!["spins".to_owned()])
    );
    assert_eq!(finds.notes(), ["spins", &whole_look()]);
}

#[test]
fn waits_need_a_possible_event() {
    let (spin, soon) = (Plan::Spin { until: LATER }, || hw::now() + Nanos::from_millis(2));
    let idle = |in_flight| Scripted { in_flight, ..Scripted::new(&[spin, sleep()]) };
    // A spin to the caller's deadline with nothing in flight.
    let [none, one] = [0, 1].map(idle);
    assert_eq!(
        (drive(&[&none], hw::now() + Nanos::from_secs(100), false), none.notes()),
        (LoopEnd::Idle, vec![])
    );
    assert_eq!(drive(&[&one], soon(), false), LoopEnd::Deadline);
    let (none, one) = (idle(0), idle(1));
    assert_eq!(
        drive(&[&none, &one], soon(), false),
        LoopEnd::Deadline,
        "one of two has something in flight"
    );
    assert_eq!(
        drive(&[&idle(0)], soon(), true),
        LoopEnd::Deadline,
        "others may do what the caller waits for"
    );
    let endless =
        Scripted { in_flight: 0, ..Scripted::new(&[Plan::Spin { until: soon() }, Plan::Idle]) };
    assert_eq!(drive(&[&endless], Nanos::MAX, false), LoopEnd::Idle);
    assert_eq!(endless.notes(), ["spins", "in vain"], "without a limit a spin is one");

    let rests = Scripted::new(&[Plan::Idle, Plan::Idle]);
    assert_eq!((drive(&[&rests], Nanos::MAX, false), rests.notes()), (LoopEnd::Idle, vec![]));
    let rests =
        Scripted { blocks: Some(false), ..Scripted::new(&[Plan::Idle, Plan::Poll { budget: 1 }]) };
    assert_eq!(drive(&[&rests], Nanos::MAX, true), LoopEnd::Enough);
    assert_eq!(rests.notes(), ["arm", "look once more", "woken", "look 1"]);
    let late = Scripted::new(&[sleep()]);
    assert_eq!((drive(&[&late], hw::now(), true), late.notes()), (LoopEnd::Deadline, vec![]));
}

#[test]
fn drain_reports_the_asked_key() {
    let (place, bell) = (EventLoop::new().unwrap(), hw::EventFd::new().unwrap());
    place.poller().add(&bell, WOKEN).unwrap();
    assert!(!place.drain(WOKEN).unwrap());
    bell.signal();
    assert!(!place.drain(0).unwrap());
    bell.signal();
    assert!(place.drain(WOKEN).unwrap());
    bell.signal();
    let _driven = place.state.borrow_mut();
    assert!(!place.drain(WOKEN).unwrap(), "the thread that drives takes the events");
}

#[test]
fn wakeup_causes_are_classified() {
    let (early, at, late) = (Nanos(10), Nanos(20), Nanos(26));
    assert_eq!(cause(true, late, at), Woke::NOTIFIED);
    assert_eq!(cause(false, early, at), Woke::OTHER);
    assert_eq!(cause(false, at, at), Woke { cause: Cause::Timer, late: Nanos::ZERO });
    assert_eq!(cause(false, late, at), Woke { cause: Cause::Timer, late: Nanos(6) });
}

#[test]
fn slices_keep_the_order() {
    for count in [0, 1, 2, STACK_QUEUES - 1, STACK_QUEUES, STACK_QUEUES + 5] {
        let queues: Vec<_> =
            (0..count).map(|n| Scripted { in_flight: n as u32, ..Scripted::new(&[]) }).collect();
        let lent = together(queues.iter(), |queues| {
            queues.iter().map(|queue| queue.in_flight()).collect::<Vec<_>>()
        });
        assert_eq!(lent, (0..count as u32).collect::<Vec<_>>());
    }
}
