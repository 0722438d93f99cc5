//! Faults around the data path: under foreign loops and futures, for queues that nobody has any
//! more, while modes switch, and on the admin queue.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use reap::{
    Device, EmbeddedOptions, Fault, FaultPlan, Faults, IoError, Mode, Nanos, OpenError,
    OpenOptions, Request,
};

use crate::load::{BLOCK, LONG, Load, PATIENT, SOON, Watchdog, modes, open, open_to_lose};

/// The load notices what it is there for: on a device that does not copy it finds blocks that hold
/// something else.
#[test]
fn the_load_notices_wrong_data() {
    let device = Device::open("mem:1M?profile=null").unwrap();
    let queue = device.queue().unwrap();
    let noticed = thread::spawn(move || _ = Load::new(&queue, 0).run(500, 16)).join();
    let what = noticed.expect_err("it has noticed nothing");
    assert!(what.downcast_ref::<String>().is_some_and(|what| what.contains("holds")));
}

#[test]
#[expect(
    deprecated,
    reason = "the replacement is unsafe; the queue owns its descriptor for as long as it lives"
)]
fn foreign_loop_sees_timeouts_and_resets() {
    let _watchdog = Watchdog::new("a foreign loop");
    for mode in modes() {
        let plan = FaultPlan::new()
            .at(10, Fault::LoseMessage)
            .at(30, Fault::SwallowCommand)
            .at(60, Fault::Fatal);
        let (device, faults) = open(plan, mode, 1, SOON);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let queue = tokio::io::unix::AsyncFd::new(device.queue().unwrap()).unwrap();
            let ns = device.namespaces()[0];
            for n in 0..100u64 {
                let mut write = pin!(queue.get_ref().write(&ns, n, device.buffer(BLOCK).unwrap()));
                let result = loop {
                    if let Poll::Ready((result, _)) =
                        write.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                    {
                        break result;
                    }
                    if !queue.get_ref().poll_events(64).more && queue.get_ref().in_flight() > 0 {
                        queue.readable().await.unwrap().clear_ready();
                    }
                };
                assert_eq!(result, Ok(()), "{mode}, write {n}");
            }
        });
        // Nobody sleeps between `turn` and its end in `poll`, but messages are sent all the same.
        // One reset more if this machine stalls for longer than a time-out.
        assert!(
            faults.injected().len() == 3 && device.health().resets >= 2,
            "{mode}: {:?}",
            device.health()
        );
    }
}

#[test]
fn dropped_queue_survives_resets() {
    let _watchdog = Watchdog::new("dropped queues");
    for fault in [Fault::Fatal, Fault::UnknownCid, Fault::SwallowCommand] {
        let (device, _faults) =
            open(FaultPlan::new().at(5, fault).at(30, fault), Mode::INTERRUPT, 1, SOON);
        let ns = device.namespaces()[0];
        for _ in 0..2 {
            let queue = device.queue().unwrap();
            let batch = (0..24).map(|n| Request::read(&ns, n, queue.buffer(BLOCK).unwrap()));
            queue.submit(batch).map_err(|(why, _)| why).unwrap();
            std::mem::forget(queue.read(&ns, 0, queue.buffer(BLOCK).unwrap()));
        }
        let queue = device.queue().unwrap();
        assert_eq!(Load::new(&queue, 1).run(200, 16).good, 200, "{fault:?}");
        // A queue that is taken again has the requests that its last owner left.
        while queue.in_flight() > 0 {
            queue
                .wait_or_idle(
                    usize::MAX,
                    Some(reap::Instant::now() + std::time::Duration::from_millis(100)),
                )
                .unwrap();
        }
        assert!(
            device.health().resets >= 1 && device.counters().leaked_bytes == 0,
            "{fault:?}: {:?}",
            device.health()
        );
    }
}

/// The commands that it has submitted have completed meanwhile, and nobody took them; the one that
/// it has started was never announced. Neither is the controller's fault.
#[test]
fn computing_thread_causes_no_reset() {
    thread::scope(|scope| {
        for mode in modes() {
            scope.spawn(move || {
                let _watchdog = Watchdog::new(&format!("a thread that computes, {mode}"));
                let (device, _faults) = open(FaultPlan::new(), mode, 1, PATIENT);
                let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
                let batch = (0..8).map(|n| Request::read(&ns, n, queue.buffer(BLOCK).unwrap()));
                queue.submit(batch).map_err(|(why, _)| why).unwrap();
                let started = queue.read(&ns, 0, queue.buffer(BLOCK).unwrap());
                // Past the time-out, and past the grace after it.
                thread::sleep(Duration::from_secs(13));
                let health = device.health();
                // A controller has a tenth of a second for what is announced at its time-out: a
                // stalled thread of its own may cost Aborts.
                assert_eq!(health.resets, 0, "{mode}: {health:?}");
                assert_eq!(queue.block_on(started).unwrap().0, Ok(()), "{mode}");
                assert_eq!(queue.wait(8, None), Ok(8), "{mode}");
            });
        }
    });
}

/// A waker is its caller's code. The thread that calls this one looks after every device of the
/// process.
#[test]
fn panicking_waker_spares_other_threads() {
    struct Panics(mpsc::Sender<()>);
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
            panic!("on purpose");
        }
    }
    let _watchdog = Watchdog::new("a waker that panics");
    let (device, _faults) = open(FaultPlan::new(), Mode::INTERRUPT, 1, LONG);
    let (queue, (woken, was_woken)) = (device.queue().unwrap(), mpsc::channel());
    let mut read = pin!(queue.read(&device.namespaces()[0], 0, queue.buffer(BLOCK).unwrap()));
    assert!(
        read.as_mut()
            .poll(&mut Context::from_waker(&Waker::from(Arc::new(Panics(woken)))))
            .is_pending()
    );
    drop(queue);
    was_woken.recv().unwrap();
    let (other, _faults) = open(FaultPlan::new(), Mode::INTERRUPT, 1, LONG);
    let queue = other.queue().unwrap();
    assert_eq!(
        queue
            .block_on(queue.read(&other.namespaces()[0], 0, queue.buffer(BLOCK).unwrap()))
            .unwrap()
            .0,
        Ok(())
    );
}

/// The thread that looks after a dropped queue tells its next owner of the entries that it finds.
#[test]
fn retaken_queue_gets_others_completions() {
    let _watchdog = Watchdog::new("a queue taken again");
    let (device, _faults) = open(FaultPlan::new(), Mode::INTERRUPT, 1, SOON);
    let ns = device.namespaces()[0];
    for owner in 1..100 {
        let queue = device.queue().unwrap();
        assert_eq!(Load::new(&queue, owner).run(100, 1).bad, []);
        let batch = (0..30).map(|n| Request::read(&ns, n, queue.buffer(BLOCK).unwrap()));
        queue.submit(batch).map_err(|(why, _)| why).unwrap();
    }
}

#[test]
fn modes_switch_while_the_controller_fails() {
    let _watchdog = Watchdog::new("mode switches among faults");
    let plan = FaultPlan::new()
        .with_chance(3_000, Fault::Fatal)
        .with_chance(2_000, Fault::DoubleEntry)
        .with_chance(20_000, Fault::LoseMessage);
    let (device, faults) = open(plan, Mode::INTERRUPT, 3, SOON);
    thread::scope(|scope| {
        let load = |owner| {
            let queue = device.queue().unwrap();
            scope.spawn(move || {
                let mut load = Load::new(&queue, owner);
                load.run(700, 16);
                assert!(
                    load.ended.bad.iter().all(|&e| e == IoError::TimedOut),
                    "{:?}",
                    load.ended.bad
                );
            })
        };
        let threads = [0, 1, 2].map(load);
        for mode in Mode::ALL.into_iter().cycle() {
            if threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                break;
            }
            device.set_mode(mode);
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(device.health().resets > 0 && !faults.injected().is_empty());
}

/// Chances of everything, the admin queue included. Silence is rarer: while a controller comes up
/// each costs ten seconds.
fn storm(seed: u64, ppm: u32) -> FaultPlan {
    let message =
        [Fault::LoseMessage, Fault::DelayMessage(Nanos::from_millis(1)), Fault::DoubleMessage];
    let entry = [
        Fault::StaleCid,
        Fault::UnknownCid,
        Fault::DoubleEntry,
        Fault::Fatal,
        Fault::Status(nvme::Status::INTERNAL_ERROR),
    ];
    let silent = [Fault::WrongPhase, Fault::SwallowEntry, Fault::SwallowCommand];
    let plan = FaultPlan::new().with_seed(seed).admin_too();
    let plan = message.iter().chain(&entry).fold(plan, |plan, &fault| plan.with_chance(ppm, fault));
    silent.iter().fold(plan, |plan, &fault| plan.with_chance(ppm / 4, fault))
}

/// Recovery itself meets faults: it may fail, but neither hang nor lose count.
#[test]
fn admin_queue_faults_stay_bounded() {
    thread::scope(|scope| {
        for (seed, mode) in (0..3).flat_map(|seed| modes().map(|mode| (seed, mode))) {
            scope.spawn(move || {
                let _watchdog = Watchdog::new(&format!("admin faults, {mode}, seed {seed}"));
                let (device, faults) = open_to_lose(FaultPlan::new(), mode, 1, SOON);
                faults.set(storm(seed, 2_000 + 8_000 * (seed as u32 % 2)));
                let queue = device.queue().unwrap();
                let mut load = Load::new(&queue, 0);
                load.run(400, 16);
                let (ended, health) = (&load.ended, device.health());
                println!(
                    "{mode}, seed {seed}: {} good, {} bad, {} resets, {:?}",
                    ended.good,
                    ended.bad.len(),
                    health.resets,
                    health.dead
                );
                assert_eq!(ended.good + ended.bad.len() as u64, 400);
                assert!(
                    health.dead.is_some() || !ended.bad.contains(&IoError::DeviceLost),
                    "{health:?}"
                );
            });
        }
    });
}

#[test]
fn opening_and_closing_under_faults() {
    let (opened, refused) = thread::scope(|scope| {
        let open = |seed| {
            scope.spawn(move || {
                let _watchdog = Watchdog::new(&format!("opening, seed {seed}"));
                let options = OpenOptions::new()
                    .timeout(std::time::Duration::from_millis(60))
                    .pool_bytes(16 << 20)
                    .embedded(EmbeddedOptions {
                        faults: Some(Faults::new(storm(seed, 8_000))),
                        ..EmbeddedOptions::default()
                    });
                match Device::open_with("mem:1M?profile=null", &options) {
                    Ok(_device) => true,
                    Err(OpenError::Bringup(error)) => {
                        println!("seed {seed}: {error}");
                        false
                    }
                    Err(other) => panic!("seed {seed}: {other}"),
                }
            })
        };
        let threads: Vec<_> = (0..24).map(open).collect();
        let (opened, refused): (Vec<_>, Vec<_>) =
            threads.into_iter().map(|thread| thread.join().unwrap()).partition(|&opened| opened);
        (opened.len(), refused.len())
    });
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
}
