//! Whole-stack: hardware queues that threads share, mode switches, resets. What every link has to
//! do is in `links/`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::work::Job;
use reap::{Device, Instant, Mode, OpenOptions, Queue, QueueError};

/// `n` blocks of its own, `depth` at a time.
fn work(queue: &Queue, owner: u64, n: u64, depth: usize) {
    Job { owner, requests: n, bytes: 512, depth, fused: false, generation: n }.run(queue);
}

fn open(options: OpenOptions) -> Device {
    open_without("", options)
}

fn open_without(what: &str, options: OpenOptions) -> Device {
    Device::open_with(&format!("mem:64M?profile=optane{what}"), &options.pool_bytes(64 << 20))
        .unwrap()
}

/// Runs a test on devices that lack what some links lack: a mask; a mask, and queue pairs for poll
/// queues; a vector for each queue; properties that answer at once; rings that both sides reach, so
/// that commands are sent as bytes.
fn everywhere(test: impl Fn(&dyn Fn(OpenOptions) -> Device)) {
    for lack in ["", "&masks=no", "&masks=no&queues=1", "&masks=no&vectors=2", "&properties=late"] {
        println!("with `{lack}`");
        test(&|options| open_without(lack, options));
    }
}

#[test]
fn threads_share_one_hardware_queue() {
    everywhere(|open| {
        for mode in Mode::ALL {
            let device =
                open(OpenOptions::new().software_queues(4).hardware_queues(1).depth(16).mode(mode));
            std::thread::scope(|scope| {
                for owner in 0..4 {
                    let queue = device.queue().unwrap();
                    scope.spawn(move || work(&queue, owner, 150, 8));
                }
            });
            let counters = device.counters();
            assert!(
                counters.sq_doorbells > 0 && counters.leaked_bytes == 0,
                "{mode}: {counters:?}"
            );
        }
    });
}

#[test]
fn modes_switch_under_load() {
    everywhere(|open| {
        let device = open(OpenOptions::new().software_queues(3).hardware_queues(2));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..=3)
                .map(|owner| {
                    let queue = device.queue().unwrap();
                    scope.spawn(move || (0..3).for_each(|_| work(&queue, owner, 500, 16)))
                })
                .collect();
            scope.spawn(|| {
                for mode in Mode::ALL.into_iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    device.set_mode(mode);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|end| end.unwrap());
        });
        let health = device.health();
        assert_eq!(
            (health.aborts, health.resets),
            (0, 0),
            "a lost wake-up ends in an abort: {health:?}"
        );
    });
}

#[test]
fn nested_block_on_is_refused() {
    let device = open(OpenOptions::new().software_queues(2).hardware_queues(1));
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    queue
        .block_on(async {
            assert!(other.block_on(async {}).is_err());
            assert!(other.wait(1, None).is_err());
        })
        .unwrap();
    assert!(other.block_on(async {}).is_ok());
}

/// Says that it is over where a thread panics, too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn reset_under_load_loses_nothing() {
    everywhere(|open| {
        for mode in [Mode::INTERRUPT, Mode::POLL] {
            let device = open(OpenOptions::new().software_queues(2).hardware_queues(1).mode(mode));
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for owner in 1..=2 {
                    let (queue, over) = (device.queue().unwrap(), &over);
                    scope.spawn(move || {
                        let _over = SetOnDrop(over);
                        while !over.load(Ordering::Relaxed) {
                            work(&queue, owner, 500, 16);
                        }
                    });
                }
                for resets in 1..=5 {
                    std::thread::sleep(std::time::Duration::from_millis(4));
                    // Asked again, because one that is asked for while another is under way is
                    // none. The work goes on as long.
                    while device.health().resets < resets && !over.load(Ordering::Relaxed) {
                        device.reset();
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                }
                over.store(true, Ordering::Relaxed);
            });
            let health = device.health();
            assert!(health.resets >= 5 && health.dead.is_none(), "{health:?}");
        }
    });
}

#[test]
fn early_mode_request_is_kept() {
    everywhere(|open| {
        for (opened, asked) in [(Mode::POLL, Mode::INTERRUPT), (Mode::INTERRUPT, Mode::IRQ_POLL)] {
            let device = open(OpenOptions::new().mode(opened));
            device.set_mode(asked);
            let queue = device.queue().unwrap();
            assert_eq!(queue.mode(), asked);
            work(&queue, 1, 100, 8);
            queue.set_mode(opened);
            work(&queue, 1, 100, 8);
            drop(queue);
            let again = device.queue().unwrap();
            assert_eq!(again.mode(), asked);
            work(&again, 1, 100, 8);
        }
    });
}

/// The second comes while the thread is at work on the first, and finds its bell masked, or armed.
#[test]
fn foreign_loop_sees_mode_switches() {
    let device = open(OpenOptions::default());
    let queue = device.queue().unwrap();
    let (in_force, over) = (AtomicU64::new(queue.mode().into()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The queue is this thread's alone.
            let queue = queue;
            let (poller, mut events) = (hw::Poller::new().unwrap(), Vec::new());
            poller.add(&queue, 0).unwrap();
            loop {
                while queue.poll_events(64).more {}
                in_force.store(queue.mode().into(), Ordering::Release);
                // After the turn: the last mode may have been adopted by that, and there is no
                // signal for it then.
                if over.load(Ordering::Acquire) {
                    break;
                }
                poller.wait(None, &mut events).unwrap();
            }
        });
        let is_adopted = |round: u32| {
            device.set_mode(Mode::POLL);
            (0..round % 997).for_each(|_| std::hint::spin_loop());
            device.set_mode(Mode::INTERRUPT);
            let since = std::time::Instant::now();
            while in_force.load(Ordering::Acquire) != u64::from(Mode::INTERRUPT)
                && since.elapsed().as_secs() < 60
            {
                std::thread::yield_now();
            }
            in_force.load(Ordering::Acquire) == u64::from(Mode::INTERRUPT)
        };
        // As many rounds as there is time for: where others want the CPU each takes as long as
        // their turns.
        let enough = std::time::Instant::now() + Duration::from_secs(10);
        let missed = (0..100_000)
            .take_while(|_| std::time::Instant::now() < enough)
            .find(|&round| !is_adopted(round));
        over.store(true, Ordering::Release);
        device.set_mode(Mode::POLL);
        assert_eq!(missed, None, "the mode of this round was adopted by nobody");
    });
}

/// Writes blocks that no other owner has, and reads them back.
fn round_trips(queue: &Queue, owner: u64) {
    let ns = queue.namespaces()[0];
    for lba in owner * 40..owner * 40 + 40 {
        let mut buf = queue.buffer(512).unwrap();
        buf.fill(lba as u8);
        let (written, mut buf) = queue.block_on(queue.write(&ns, lba, buf)).unwrap();
        buf.fill(0);
        let (read, buf) = queue.block_on(queue.read(&ns, lba, buf)).unwrap();
        assert_eq!((written, read, buf[0], buf[511]), (Ok(()), Ok(()), lba as u8, lba as u8));
    }
}

/// A device that was opened with nothing said of queues grants one to each thread that asks, as far
/// as its controller has them.
#[test]
fn each_thread_gets_a_queue() {
    for (uri, least) in [
        ("mem:64M?profile=optane", 8),
        ("mem:64M?profile=optane&queues=3", 3),
        ("mem:64M?profile=optane&queues=1", 1),
    ] {
        let device = Device::open(uri).unwrap();
        let granted = device.description().hardware_queues;
        assert!(granted >= least, "{uri}: {granted}");
        let queues: Vec<_> = (0..granted).map(|_| device.queue().unwrap()).collect();
        let why = device.queue().map(|_| ()).expect_err("all are taken");
        assert!(
            matches!(why, QueueError::AllTaken { queues } if queues == granted),
            "{uri}: {why}"
        );
        assert!(
            why.to_string().contains(&granted.to_string())
                && why.to_string().contains("software_queues"),
            "{why}"
        );
        std::thread::scope(|scope| {
            for (queue, owner) in queues.into_iter().zip(0..) {
                scope.spawn(move || round_trips(&queue, owner));
            }
        });
        // What threads have given back others have.
        work(&device.queue().unwrap(), 1, 40, 8);
    }
}

/// More threads than the controller has queues share them, where they are asked for.
#[test]
fn extra_threads_share_hardware_queues() {
    let options = OpenOptions::new().software_queues(5);
    let device = Device::open_with("mem:64M?profile=optane&queues=2", &options).unwrap();
    let queues: Vec<_> = (0..5).map(|_| device.queue().unwrap()).collect();
    assert_eq!(device.description().hardware_queues, 2);
    std::thread::scope(|scope| {
        for (queue, owner) in queues.into_iter().zip(0..) {
            scope.spawn(move || round_trips(&queue, owner));
        }
    });
}

/// Without a limit a wait returns once nothing is in flight; with one it stays, and says by its
/// name when it does not.
#[test]
fn waits_end_at_limit_or_idle() {
    let device = Device::open("mem:64M?profile=optane").unwrap();
    let queue = device.queue().unwrap();
    let limit = Instant::now() + Duration::from_millis(20);
    assert_eq!(
        (queue.wait(1, None), queue.wait_or_idle(1, Some(limit + Duration::from_secs(3600)))),
        (Ok(0), Ok(0))
    );
    assert_eq!(queue.wait(1, Some(limit)), Ok(0));
    assert!(Instant::now() >= limit);
}
