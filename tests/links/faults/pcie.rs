//! Drives on the bus that go wrong, or have less than was asked for; and what QEMU counts of one.
//! In a guest, by `tests/pcie.sh`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use reap::{Device, Group, Instant, IoError, LocalQueue, Mode, Nanos, Request};

use super::{Written, eventually};
use crate::happened::{happened, is_told};
use crate::place::options;
use crate::table::watched;
use crate::witnesses::mark;
use crate::work::{Job, drain, submit};

fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is to be set: tests/pcie.sh does that"))
}

/// The PCI address of a drive that vfio-pci has.
fn drive() -> String {
    told("REAP_TEST_DRIVE")
}

/// Switches a function's memory and bus master off behind everybody's back, as if it were pulled
/// out: it neither answers nor reaches memory. Its registers read as zeroes then, which is QEMU's
/// way, where hardware has all ones.
fn pull(bdf: &str) {
    let config = fs::OpenOptions::new()
        .write(true)
        .open(format!("/sys/bus/pci/devices/{bdf}/config"))
        .unwrap();
    config.write_all_at(&[0, 0], 4).unwrap();
}

#[test]
#[ignore = "takes a drive away: tests/pcie.sh runs it in a guest"]
fn removed_drive_fails_requests() {
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
        let (bdf, mut written) = (drive(), Written::default());
        let device = Device::open_with(&format!("pcie:{bdf}"), &options(1).mode(mode)).unwrap();
        let queue = device.queue().unwrap();
        written.write_until(&queue, "a drive that was pulled out", move || pull(&bdf));
        assert!(
            written.errors.iter().all(|why| *why == IoError::DeviceLost),
            "{mode}: {:?}",
            written.errors
        );
        // Nothing hangs afterwards either, and the device is let go of.
        written.errors.clear();
        written.write(&queue, [0].into_iter(), 0);
        assert!(
            !written.errors.is_empty()
                && written.errors.iter().all(|why| *why == IoError::DeviceLost),
            "{:?}",
            written.errors
        );
        assert!(
            device.health().dead.is_some() && device.in_flight() == 0,
            "{mode}: {:?}",
            device.health()
        );
        drop((queue, device));
        // VFIO resets it when it is let go of: it is as if it had been put in again.
        let device = Device::open_with(&format!("pcie:{}", drive()), &options(1)).unwrap();
        Job::of(1).run(&device.local_queue().unwrap());
    }
}

#[test]
#[ignore = "needs a drive on the bus: tests/pcie.sh runs it in a guest"]
fn resets_under_load_lose_nothing() {
    let device = Device::open_with(&format!("pcie:{}", drive()), &options(2)).unwrap();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    watched("resets under load", || {
        thread::scope(|scope| {
            let (device, stop, rounds) = (&device, &stop, &rounds);
            let work = |owner| {
                move || {
                    let queue = device.local_queue().unwrap();
                    let job = |generation| Job { generation, ..Job::of(owner) };
                    for generation in (1..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        job(generation).run(&queue);
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            scope.spawn(work(0));
            scope.spawn(work(1));
            for resets in 1..=5 {
                device.reset();
                eventually("there is no reset", || device.health().resets >= resets);
                // One that is asked for while another is under way is that one.
                let before = rounds.load(Ordering::Relaxed);
                eventually("nothing goes on after it", || {
                    rounds.load(Ordering::Relaxed) >= before + 4
                });
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    let health = device.health();
    assert_eq!((health.dead, health.aborts, device.counters().leaked_bytes), (None, 0, 0));
}

/// A drive that takes longer for each request than the host waits: aborted, or reset, and never a
/// hang.
#[test]
#[ignore = "needs a slow drive on the bus: tests/pcie.sh runs it in a guest"]
fn slow_drive_is_aborted_or_reset() {
    let timeout = Nanos::from_millis(500);
    let device = Device::open_with(
        &format!("pcie:{}", told("REAP_TEST_SLOW")),
        &options(1).timeout(timeout.into()),
    )
    .unwrap();
    let queue = device.local_queue().unwrap();
    let ended = watched("a slow drive", || {
        submit(
            &queue,
            (0..4)
                .map(|n| Request::read(&queue.namespaces()[0], 8 * n, queue.buffer(4096).unwrap())),
        );
        drain(&queue)
    });
    let health = device.health();
    println!("{:?}, {health:?}", ended.iter().map(|done| done.result).collect::<Vec<_>>());
    // What QEMU makes of a request that it is to cancel is its affair; each ends once, and nothing
    // of them is left.
    assert_eq!((ended.len(), device.in_flight(), device.counters().leaked_bytes), (4, 0, 0));
    assert!(health.aborts > 0 && health.dead.is_none(), "{health:?}");
}

/// Two queue pairs and three vectors, where three queues of two lanes are asked for.
#[test]
#[ignore = "needs a drive of few queues: tests/pcie.sh runs it in a guest"]
fn scarce_vectors_are_shared() {
    let few = format!("pcie:{}", told("REAP_TEST_FEW"));
    for (uri, queues, notes) in [
        (few.clone(), 1, vec![]),
        (
            few.clone(),
            3,
            vec![
                "have no poll queue",
                "4 interrupt vectors are wanted for 3 queues and the admin queue, and 3 are available",
            ],
        ),
        (
            format!("{few}?vectors=1"),
            1,
            vec![
                "2 interrupt vectors are wanted for 1 queues and the admin queue, and 1 are available",
            ],
        ),
    ] {
        let device = Device::open_with(&uri, &options(queues).mode(Mode::POLL)).unwrap();
        let said = happened(&device);
        for note in &notes {
            assert!(is_told(&device, note), "{uri}: {said:?} does not say: {note}");
        }
        assert_eq!(said.len(), notes.len(), "{uri}: {said:?}");
        thread::scope(|scope| {
            for owner in 0..queues as u64 {
                let device = &device;
                scope.spawn(move || {
                    watched("shared queues", || Job::of(owner).run(&device.local_queue().unwrap()))
                });
            }
        });
    }
}

/// What is counted here, for `tests/pcie.sh` to hold against QEMU's trace: it shows the marks,
/// which another controller is asked for.
#[test]
#[ignore = "counts on a drive that nobody else uses: tests/pcie.sh runs it in a guest"]
fn qemu_counts_the_same_doorbells() {
    let disk = told("REAP_TEST_MARK");
    for (mode, number, shadow) in [
        (Mode::POLL, 1000, "no"),
        (Mode::INTERRUPT, 2000, "no"),
        (Mode::IRQ_POLL, 3000, "no"),
        (Mode::ADAPTIVE, 4000, "no"),
        (Mode::POLL, 5000, "yes"),
        (Mode::INTERRUPT, 6000, "yes"),
    ] {
        let device =
            Device::open_with(&format!("pcie:{}?shadow={shadow}", drive()), &options(1).mode(mode))
                .unwrap();
        let queue = device.local_queue().unwrap();
        let (before, registers) = (queue.hardware_counters(), device.counters().doorbell_registers);
        mark(&disk, number);
        watched("counted requests", || Job { requests: 500, ..Job::of(1) }.run(&queue));
        // The last message is on its way until then.
        thread::sleep(std::time::Duration::from_millis(50));
        mark(&disk, number + 1);
        let after = queue.hardware_counters();
        assert_eq!(after.finished - before.finished, 1000, "{mode}");
        let of = |count: fn(&reap::HardwareCounters) -> u64| count(&after) - count(&before);
        let registers =
            device.counters().doorbell_registers.map(|now| now - registers.unwrap_or(0));
        assert_eq!(
            registers.is_some(),
            shadow == "yes",
            "QEMU's drive offers to read doorbells in memory"
        );
        if let Some(registers) = registers {
            println!(
                "kept: {number} {registers} {} by {mode}",
                of(|it| it.sq_doorbells + it.cq_doorbells)
            );
            continue;
        }
        println!(
            "counted: {number} {} {} {} by {mode}",
            of(|it| it.sq_doorbells),
            of(|it| it.cq_doorbells),
            of(|it| it.messages)
        );
    }
}

/// QEMU's drive has SGLs: data of more than two pages are named by one, and by none where nobody
/// wants them. Each block is verified.
#[test]
#[ignore = "counts on a drive that nobody else uses: tests/pcie.sh runs it in a guest"]
fn long_data_are_named_by_sgls() {
    let disk = told("REAP_TEST_MARK");
    for (sgl, number) in [("yes", 7000), ("no", 8000)] {
        let device =
            Device::open_with(&format!("pcie:{}?sgl={sgl}", drive()), &options(1)).unwrap();
        let queue = device.local_queue().unwrap();
        let before = queue.hardware_counters().finished;
        mark(&disk, number);
        let job = Job {
            requests: 20,
            bytes: 64 << 10,
            depth: 8,
            generation: number.into(),
            ..Job::of(1)
        };
        watched("long requests", || job.run(&queue));
        mark(&disk, number + 1);
        let commands = queue.hardware_counters().finished - before;
        println!("named: {number} {} of {commands}", if sgl == "yes" { commands } else { 0 });
    }
}

/// One request to each of some queues of a group.
fn read_on(queues: &[&LocalQueue]) {
    for queue in queues {
        submit(queue, [Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap())]);
    }
}

/// What has been reaped of all queues.
fn reap_all(queues: &[LocalQueue]) -> usize {
    let mut out = Vec::with_capacity(64);
    queues.iter().for_each(|queue| _ = queue.reap(&mut out));
    assert!(out.iter().all(|done| done.result.is_ok()), "{out:?}");
    out.len()
}

/// The eventfd is that of the group's first queue. Whoever waits, for the group or for one queue
/// alone, is told, whatever mode the first queue alone is in; and each has its own eventfd again in
/// another mode. (The limit is for the failure.)
#[test]
#[ignore = "needs a drive on the bus: tests/pcie.sh runs it in a guest"]
fn posted_group_has_one_eventfd() {
    let device = Device::open_with(
        &format!("pcie:{}", drive()),
        &options(3).mode(Mode::POSTED).timeout(std::time::Duration::from_secs(600)),
    )
    .unwrap();
    let group = Group::new((0..3).map(|_| device.local_queue().unwrap()).collect()).unwrap();
    let [first, second, third] = group.queues() else { unreachable!("three were joined") };
    let limit = || Some(Instant::now() + std::time::Duration::from_secs(60));
    let messages = || [first, second, third].map(|queue| queue.hardware_counters().messages);
    let round = |wanted: &[&LocalQueue]| {
        read_on(wanted);
        assert_eq!(group.wait(wanted.len(), limit()).unwrap(), wanted.len());
        assert_eq!(reap_all(group.queues()), wanted.len());
    };
    // The first wait adopts the mode: from then on all messages are the first eventfd's.
    round(&[first, second, third]);
    let before = messages();
    for n in 0..60 {
        round([&[third][..], &[second, third], &[first, second, third]][n % 3]);
    }
    eventually("no message is counted for all", || messages()[0] > before[0]);
    assert_eq!(messages()[1..], before[1..], "queues of a group have eventfds of their own");
    for n in 0..60 {
        let alone = [third, first, second][n % 3];
        read_on(&[alone]);
        assert_eq!(alone.wait(1, limit()).unwrap(), 1, "waited for alone, round {n}");
        assert_eq!(reap_all(group.queues()), 1);
    }
    for mode in Mode::ALL {
        first.set_mode(mode);
        for n in 0..10 {
            round([&[third][..], &[first, third]][n % 2]);
        }
    }
    group.queues().iter().for_each(|queue| queue.set_mode(Mode::INTERRUPT));
    round(&[first, second, third]);
    let before = messages();
    round(&[second]);
    round(&[third]);
    eventually("a message is not counted for its own queue", || {
        messages()[1] > before[1] && messages()[2] > before[2]
    });
    drop(group);
    Job::of(1).run(&device.local_queue().unwrap());
}
