//! Commands and completions as bytes (`wire=stream`): a socket takes a part of them, and gives them in pieces. And law 7: no thread
//! that stops leaves a debt. What each link has to do is tested over bytes too, in `links/`, `driving.rs` and `modes.rs`.

use std::cell::Cell;
use std::fs;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use reap::{DebtHabits, Device, EmbeddedOptions, FaultPlan, Faults, Group, Mode, Nanos, OpenOptions, Queue, Request, Wire};

const BLOCK: usize = 512;

/// A lawful wait is over long before; a broken one never is.
const WATCHDOG: Duration = Duration::from_secs(60);

fn open(wire: &str, options: OpenOptions) -> Device {
    Device::open_with(&format!("mem:64M?profile=optane&wire={wire}"), &options.pool_bytes(64 << 20)).unwrap()
}

/// Runs a test with the socket's own cutting, and with crumbs.
fn both(test: impl Fn(&dyn Fn(OpenOptions) -> Device)) {
    for wire in ["stream", "trickle"] {
        println!("with `wire={wire}`");
        test(&|options| open(wire, options));
    }
}

/// Writes its number to `n` blocks of its own and reads them back, `depth` at a time.
fn work(queue: &Queue, owner: u8, n: u64, depth: usize) {
    let ns = queue.namespaces()[0];
    let base = u64::from(owner) * 8192;
    for write in [true, false] {
        let (mut next, mut finished, mut out) = (0, 0, Vec::with_capacity(depth));
        while finished < n {
            let room = depth.saturating_sub(queue.in_flight() as usize).min((n - next) as usize);
            let batch = (next..next + room as u64).map(|i| {
                let mut buf = queue.buffer(BLOCK).unwrap();
                buf.fill(if write { owner ^ i as u8 } else { 0 });
                let request = if write { Request::write(&ns, base + i, buf) } else { Request::read(&ns, base + i, buf) };
                request.tag(i)
            });
            queue.submit(batch).map_err(|(why, _)| why).unwrap();
            next += room as u64;
            queue.wait(1, None).unwrap();
            queue.reap(&mut out);
            for done in out.drain(..) {
                done.result.unwrap();
                let buf = done.buf.unwrap();
                assert!(write || buf.iter().all(|&b| b == owner ^ done.tag as u8), "block {} of {owner}", done.tag);
                finished += 1;
            }
        }
    }
    assert_eq!((queue.in_flight(), queue.finished()), (0, 0));
}

/// So many reads, which nobody waits for yet.
fn begin(queue: &Queue, n: u64) {
    let ns = queue.namespaces()[0];
    let batch = (0..n).map(|i| Request::read(&ns, i, queue.buffer(BLOCK).unwrap()));
    queue.submit(batch).map_err(|(why, _)| why).unwrap();
}

fn assert_well(device: &Device, what: &str) {
    let (health, leaked) = (device.health(), device.counters().leaked_bytes);
    assert_eq!((health.aborts, health.resets, leaked), (0, 0, 0), "{what}: a lost wake-up or a debt ends in an abort: {health:?}");
}

/// What the tests below are worth: with crumbs a socket takes a part of a commit, and each completion comes in pieces.
#[test]
fn a_commit_of_several_commands_is_sent_in_parts() {
    let device = open("trickle", OpenOptions::default());
    let queue = device.queue().unwrap();
    for _ in 0..50 {
        // With nobody at the other end, who may well be as fast as the sender.
        let held = device.embedded().unwrap().hold_wire().unwrap();
        begin(&queue, 32);
        drop(held);
        assert_eq!(queue.wait(32, None).unwrap(), 32);
        queue.reap_all();
    }
    let wire = device.embedded().unwrap().wire().unwrap();
    assert!(wire.sends >= 50 && wire.partial >= 50, "{wire:?}");
    // Looks that brought something are counted in their place, and are more than entries where these come in pieces.
    assert!(!device.counts_messages() && device.counters().messages > 0);
    assert_well(&device, "crumbs");
}

trait ReapAll {
    fn reap_all(&self);
}

impl ReapAll for Queue {
    fn reap_all(&self) {
        let mut out = Vec::with_capacity(64);
        while self.reap(&mut out) > 0 {
            out.drain(..).for_each(|done| done.result.unwrap());
        }
    }
}

#[test]
fn a_group_takes_turns() {
    both(|open| {
        for mode in Mode::ALL {
            let several = open(OpenOptions::new().software_queues(2).hardware_queues(2).mode(mode));
            let shared = open(OpenOptions::new().software_queues(2).hardware_queues(1).mode(mode));
            let rings = Device::open("mem:64M?profile=optane").unwrap();
            let queues = [&several, &several, &shared, &rings].map(|device| device.queue().unwrap()).into();
            let group = Group::new(queues).unwrap();
            for _ in 0..10 {
                group.queues().iter().for_each(|queue| begin(queue, 40));
                assert_eq!(group.wait(160, None).unwrap(), 160, "{mode}");
                group.queues().iter().for_each(Queue::reap_all);
            }
            assert_well(&several, &mode.to_string());
            assert_well(&shared, &mode.to_string());
        }
    });
}

#[test]
fn loops_share_a_hardware_queue_with_threads() {
    both(|open| {
        for mode in [Mode::INTERRUPT, Mode::THREADED, Mode::IRQ_POLL, Mode::ADAPTIVE] {
            let device = open(OpenOptions::new().software_queues(3).hardware_queues(1).mode(mode));
            thread::scope(|scope| {
                let (looping, working) = (device.queue().unwrap(), [device.queue().unwrap(), device.queue().unwrap()]);
                for (owner, queue) in (1..).zip(working) {
                    scope.spawn(move || work(&queue, owner, 100, 16));
                }
                scope.spawn(move || {
                    let poller = hw::Poller::new().unwrap();
                    poller.add(&looping, 0).unwrap();
                    for _ in 0..10 {
                        begin(&looping, 24);
                        while looping.finished() < 24 {
                            if !looping.turn(8).more {
                                let due = looping.next_deadline().map(|due| reap::Nanos::from(due - reap::Instant::now()));
                                poller.wait(due, &mut Vec::new()).unwrap();
                            }
                        }
                        looping.leave_loop();
                        looping.reap_all();
                    }
                });
            });
            assert_well(&device, &mode.to_string());
        }
    });
}

/// The same with the relay held: a part of a command is at the other end, the next is in the socket, the rest with the host.
#[test]
fn a_reset_finds_commands_cut_in_two() {
    both(|open| {
        let device = open(OpenOptions::default());
        let queue = device.queue().unwrap();
        for _ in 0..5 {
            let held = device.embedded().unwrap().hold_wire().unwrap();
            begin(&queue, 200);
            let resets = device.health().resets;
            device.reset();
            until("the reset", || device.health().resets > resets);
            drop(held);
            assert_eq!(queue.wait(200, None).unwrap(), 200);
            queue.reap_all();
        }
        work(&queue, 1, 100, 16);
        assert!(device.health().dead.is_none());
    });
}

#[test]
fn a_queue_that_is_dropped_with_requests_in_flight_can_be_taken_again() {
    both(|open| {
        let device = open(OpenOptions::default());
        for _ in 0..10 {
            // More than there are tags.
            begin(&device.queue().unwrap(), 300);
        }
        work(&device.queue().unwrap(), 1, 100, 8);
        drop(device.queue().unwrap());
        until("what was left", || device.in_flight() == 0);
        assert_well(&device, "dropped");
    });
}

#[test]
fn a_stream_lacks_nothing_that_others_lack() {
    let parse = |what: &str| format!("mem:64M?{what}").parse::<reap::DeviceUri>();
    assert_eq!(parse("wire=trickle").unwrap().wire, Wire::Trickle);
    assert_eq!(parse("masks=no&wire=rings").unwrap().wire, Wire::Rings);
    for wrong in ["wire=stream&masks=no", "wire=trickle&reaper=owner"] {
        assert!(parse(wrong).unwrap_err().to_string().contains("any thread may read it"), "{wrong}");
    }
    assert!(parse("wire=tcp").unwrap_err().to_string().contains("`rings`, `stream` or `trickle`"));
}

#[test]
fn it_goes_with_few_vectors_late_properties_and_several_paths() {
    for what in ["&vectors=1", "&vectors=2", "&properties=late", "&queues=1"] {
        let options = OpenOptions::new().software_queues(3).hardware_queues(3).pool_bytes(64 << 20);
        let device = Device::open_with(&format!("mem:64M?profile=optane&wire=trickle{what}"), &options).unwrap();
        thread::scope(|scope| {
            for owner in 1..=3 {
                let queue = device.queue().unwrap();
                scope.spawn(move || work(&queue, owner, 100, 16));
            }
        });
        assert_well(&device, what);
    }
    let device = Device::open("multipath:?path=mem:64M%3Fwire=trickle&path=mem:64M%3Fwire=stream").unwrap();
    work(&device.queue().unwrap(), 1, 200, 24);
}

// Law 7. The relay is held while something is submitted, so that the socket is full and the rest unsent. Then it goes on.

/// Waits for something that happens by itself.
fn until(what: &str, happens: impl Fn() -> bool) {
    assert!(happens_within(WATCHDOG, happens), "{what} does not happen");
}

fn happens_within(limit: Duration, happens: impl Fn() -> bool) -> bool {
    let since = Instant::now();
    while !happens() {
        if since.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// How long a broken habit is watched: what it leaves undone is never done, however long.
const BROKEN: Duration = Duration::from_millis(200);

const LAWFUL: DebtHabits = DebtHabits { sleepers_wait: true, debtors_ring: true, leavers_hand_on: true, housekeeping_sends: true };

/// Commands that are submitted: far more than the socket takes.
const MANY: u64 = 40;

/// A device whose controller answers nothing until it is told to go on. So nobody wakes because of an answer, and sends the rest by
/// chance.
struct Silent {
    device: Device,
    faults: Faults,
    debts: DebtHabits,
}

impl Silent {
    fn new(debts: DebtHabits, (software, hardware): (usize, usize), mode: Mode) -> Silent {
        let faults = Faults::new(FaultPlan::new());
        let embedded = EmbeddedOptions {
            debts,
            faults: Some(faults.clone()),
            ready_timeout: Some(std::time::Duration::from_secs(60)),
            ..EmbeddedOptions::default()
        };
        // Nothing is given up before the test is over, and nobody reminds the controller of anything.
        let timeout = Nanos::from_secs(300);
        let options =
            OpenOptions::new().software_queues(software).hardware_queues(hardware).mode(mode).timeout(timeout.into()).embedded(embedded);
        let device = Device::open_with("mem:64M?profile=optane&wire=trickle", &options).unwrap();
        faults.hang();
        Silent { device, faults, debts }
    }

    fn hold(&self) -> reap::HeldWire {
        self.device.embedded().unwrap().hold_wire().unwrap()
    }

    /// Whether so many commands arrive at the controller's end, and no more are left anywhere.
    fn arrive(&self, commands: u64) -> bool {
        let limit = if self.debts == LAWFUL { WATCHDOG } else { BROKEN };
        happens_within(limit, || self.device.embedded().unwrap().wire().unwrap().commands == commands)
    }
}

/// The calling thread, for [`sleeps`].
fn this_thread() -> String {
    format!("/proc/{}/stat", fs::read_link("/proc/thread-self").unwrap().display())
}

/// Waits until a thread has gone to sleep, and not for a lock: it stays asleep.
fn until_it_sleeps(thread: &str) {
    let sleeps = || fs::read_to_string(thread).unwrap().rsplit(')').next().unwrap().trim_start().starts_with('S');
    until("the sleep", || {
        (0..5).all(|_| {
            thread::sleep(Duration::from_millis(2));
            sleeps()
        })
    });
}

/// A thread that sleeps later than another has posted sees the debt by itself, so that what is broken may not show: once has to do.
const TRIES: usize = 10;

/// What each scenario needs of the habits, as a list of those that break it.
fn is_caught(scenario: impl Fn(DebtHabits) -> bool, breaking: &[DebtHabits]) {
    assert!(scenario(LAWFUL), "a debt was left by lawful threads");
    for broken in breaking {
        assert!((0..TRIES).any(|_| !scenario(*broken)), "not caught: {broken:?}");
    }
}

const NO_SLEEPER_WAITS: DebtHabits = DebtHabits { sleepers_wait: false, ..LAWFUL };
const NO_DEBTOR_RINGS: DebtHabits = DebtHabits { debtors_ring: false, ..LAWFUL };
const NO_LEAVER_HANDS_ON: DebtHabits = DebtHabits { leavers_hand_on: false, ..LAWFUL };
const HOUSEKEEPING_SENDS_NOTHING: DebtHabits = DebtHabits { housekeeping_sends: false, ..LAWFUL };

/// Runs `drives` on a thread of its own until it sleeps with the relay held, and says whether what it has posted arrives then.
fn sleeper(silent: &Silent, queue: Queue, drives: impl FnOnce(&Queue) + Send) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    let held = silent.hold();
    thread::scope(|scope| {
        scope.spawn(move || {
            tell.send(this_thread()).unwrap();
            drives(&queue);
        });
        until_it_sleeps(&told.recv().unwrap());
        drop(held);
        let arrived = silent.arrive(MANY);
        silent.faults.go_on();
        arrived
    })
}

/// Futures are announced as their thread goes to wait: it goes back to nobody before it sleeps.
fn wait_for_futures(queue: &Queue) {
    let ns = queue.namespaces()[0];
    let mut reads: Vec<_> = (0..MANY).map(|n| Box::pin(queue.read(&ns, n, queue.buffer(BLOCK).unwrap()))).collect();
    let all = std::future::poll_fn(|context| {
        reads.retain_mut(|read| read.as_mut().poll(context).is_pending());
        if reads.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    queue.block_on(all).unwrap();
}

#[test]
fn a_thread_alone_sleeps_until_its_lane_takes_bytes() {
    let scenario = |debts| {
        let silent = Silent::new(debts, (1, 1), Mode::INTERRUPT);
        sleeper(&silent, silent.device.queue().unwrap(), wait_for_futures)
    };
    is_caught(scenario, &[NO_SLEEPER_WAITS]);
}

#[test]
fn a_drain_thread_sees_to_what_its_submitters_left() {
    // What there is before the drain thread sleeps for the first time, it sees by itself. So it has time, and each time twice as much.
    let time = Cell::new(Duration::from_millis(1));
    let scenario = |debts| {
        let silent = Silent::new(debts, (1, 1), Mode::THREADED);
        let queue = silent.device.queue().unwrap();
        thread::sleep(time.replace(time.get() * 2));
        sleeper(&silent, queue, wait_for_futures)
    };
    is_caught(scenario, &[NO_SLEEPER_WAITS, NO_DEBTOR_RINGS]);
}

#[test]
fn every_mode_sleeps_spins_or_naps_until_its_lane_takes_bytes() {
    for mode in Mode::ALL {
        let silent = Silent::new(LAWFUL, (1, 1), mode);
        let (queue, held) = (silent.device.queue().unwrap(), silent.hold());
        thread::scope(|scope| {
            scope.spawn(move || wait_for_futures(&queue));
            until("a debt", || silent.device.embedded().unwrap().wire().unwrap().partial > 0);
            thread::sleep(Duration::from_millis(5));
            drop(held);
            assert!(silent.arrive(MANY), "{mode}");
            silent.faults.go_on();
        });
        assert_well(&silent.device, &mode.to_string());
    }
}

/// One thread sleeps with the role of looking, and owes nothing; another submits, and goes back to its caller for good.
#[test]
fn a_thread_that_stops_rings_the_one_that_sleeps_on_the_lane() {
    let scenario = |debts| {
        let silent = Silent::new(debts, (2, 1), Mode::INTERRUPT);
        let (sleeping, leaving) = (silent.device.queue().unwrap(), silent.device.queue().unwrap());
        let (tell, told) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                tell.send(this_thread()).unwrap();
                begin(&sleeping, 1);
                sleeping.wait(1, None).unwrap();
            });
            let sleeper = told.recv().unwrap();
            until("its command", || silent.device.embedded().unwrap().wire().unwrap().commands == 1);
            until_it_sleeps(&sleeper);
            let held = silent.hold();
            begin(&leaving, MANY);
            drop(held);
            let arrived = silent.arrive(1 + MANY);
            silent.faults.go_on();
            arrived
        })
    };
    is_caught(scenario, &[NO_DEBTOR_RINGS, NO_SLEEPER_WAITS]);
}

/// The thread that was told goes back to its caller before the socket takes anything.
#[test]
fn the_debt_goes_with_the_thread_that_has_it() {
    let scenario = |debts| {
        let silent = Silent::new(debts, (2, 1), Mode::INTERRUPT);
        let (sleeping, leaving) = (silent.device.queue().unwrap(), silent.device.queue().unwrap());
        let held = silent.hold();
        begin(&sleeping, MANY);
        thread::scope(|scope| {
            // Sleeps with the role; and the other is told.
            scope.spawn(|| {
                let sleeping = sleeping;
                sleeping.wait_or_idle(1, Some(reap::Instant::now() + std::time::Duration::from_millis(50))).unwrap();
                // Kept until the test is over: nothing is looked at any more.
                std::mem::forget(sleeping);
            });
            scope.spawn(|| {
                let leaving = leaving;
                begin(&leaving, 1);
                leaving.wait_or_idle(1, Some(reap::Instant::now() + std::time::Duration::from_millis(20))).unwrap();
                std::mem::forget(leaving);
            });
        });
        drop(held);
        let arrived = silent.arrive(1 + MANY);
        silent.faults.go_on();
        arrived
    };
    is_caught(scenario, &[NO_LEAVER_HANDS_ON, HOUSEKEEPING_SENDS_NOTHING]);
}

#[test]
fn what_a_thread_leaves_that_goes_back_to_its_caller_is_sent() {
    let scenario = |debts| {
        let silent = Silent::new(debts, (1, 1), Mode::INTERRUPT);
        let (queue, held) = (silent.device.queue().unwrap(), silent.hold());
        begin(&queue, MANY);
        drop(held);
        let arrived = silent.arrive(MANY);
        silent.faults.go_on();
        queue.wait(MANY as usize, None).unwrap();
        arrived
    };
    is_caught(scenario, &[NO_LEAVER_HANDS_ON, HOUSEKEEPING_SENDS_NOTHING]);
    // The same of futures that are only announced, of an iterator that panics, and of a queue that is dropped.
    let others: [fn(Queue); 3] = [
        |queue| {
            let ns = queue.namespaces()[0];
            (0..MANY).for_each(|n| drop(queue.read(&ns, n, queue.buffer(BLOCK).unwrap())));
            queue.commit();
            std::mem::forget(queue);
        },
        |queue| {
            let ns = queue.namespaces()[0];
            let requests = (0..=MANY).map(|n| {
                assert!(n < MANY, "on purpose");
                Request::read(&ns, n, queue.buffer(BLOCK).unwrap())
            });
            let submit = std::panic::AssertUnwindSafe(|| queue.submit(requests).is_ok());
            assert!(std::panic::catch_unwind(submit).is_err());
            std::mem::forget(queue);
        },
        |queue| begin(&queue, MANY),
    ];
    for goes in others {
        let silent = Silent::new(LAWFUL, (1, 1), Mode::INTERRUPT);
        let (queue, held) = (silent.device.queue().unwrap(), silent.hold());
        goes(queue);
        drop(held);
        assert!(silent.arrive(MANY));
    }
}

/// A loop of the application's waits for the queue's descriptor, and what is submitted between two turns is unsent.
#[test]
fn a_foreign_loop_is_told_when_its_lane_takes_bytes() {
    let scenario = |(debts, software): (DebtHabits, usize)| {
        let silent = Silent::new(debts, (software, 1), Mode::INTERRUPT);
        let (queue, held) = (silent.device.queue().unwrap(), silent.hold());
        let poller = hw::Poller::new().unwrap();
        poller.add(&queue, 0).unwrap();
        let over = AtomicBool::new(false);
        let (tell, told) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                while queue.turn(64).more {}
                begin(&queue, MANY);
                tell.send(this_thread()).unwrap();
                while !over.load(Ordering::Acquire) {
                    let mut events = Vec::new();
                    poller.wait(Some(Nanos::from_millis(20)), &mut events).unwrap();
                    // It keeps to what it was told: only the descriptor has it come back.
                    while !events.is_empty() && queue.turn(64).more {
                        queue.reap_all();
                    }
                }
                while queue.in_flight() > 0 {
                    queue.turn(64);
                }
                queue.reap_all();
            });
            until_it_sleeps(&told.recv().unwrap());
            drop(held);
            let arrived = silent.arrive(MANY);
            silent.faults.go_on();
            over.store(true, Ordering::Release);
            arrived
        })
    };
    for software in [1, 2] {
        is_caught(|debts| scenario((debts, software)), &[NO_SLEEPER_WAITS, NO_DEBTOR_RINGS]);
    }
}

/// A queue of the group owes whose thread sleeps for another.
#[test]
fn a_group_sleeps_until_any_of_its_lanes_takes_bytes() {
    let scenario = |debts| {
        let silent = Silent::new(debts, (2, 2), Mode::INTERRUPT);
        let group = Group::new(vec![silent.device.queue().unwrap(), silent.device.queue().unwrap()]).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let held = silent.hold();
        thread::scope(|scope| {
            scope.spawn(move || {
                tell.send(this_thread()).unwrap();
                // Not announced before the thread waits.
                let [first, second] = group.queues() else { unreachable!() };
                begin(first, 1);
                let ns = second.namespaces()[0];
                (0..MANY - 1).for_each(|n| drop(second.read(&ns, n, second.buffer(BLOCK).unwrap())));
                group.wait(1, None).unwrap();
            });
            until_it_sleeps(&told.recv().unwrap());
            drop(held);
            let arrived = silent.arrive(MANY);
            silent.faults.go_on();
            arrived
        })
    };
    is_caught(scenario, &[NO_SLEEPER_WAITS]);
}
