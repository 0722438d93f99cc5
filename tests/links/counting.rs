//! Counters that add up.

use reap::{Device, Mode};

use super::place::{Served, options};
use super::table::{everywhere, watched};
use super::work::{Job, begin};

#[test]
fn commands_are_counted_once() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            let device = place.open(1, mode);
            place.on_each_kind(&device, |queue, kind| {
                let before = queue.hardware_counters();
                Job::of(1).run(queue);
                let after = queue.hardware_counters();
                let commands = 2 * Job::of(1).requests;
                assert_eq!(
                    after.finished - before.finished,
                    commands,
                    "{mode}, {kind:?}: {after:?}"
                );
                let bells = [
                    after.sq_doorbells - before.sq_doorbells,
                    after.cq_doorbells - before.cq_doorbells,
                ];
                assert!(
                    bells.iter().all(|bells| (1..=commands).contains(bells)),
                    "{mode}, {kind:?}: one for each batch: {bells:?}"
                );
                assert_eq!((queue.in_flight(), device.in_flight()), (0, 0), "{mode}");
            });
        }
    });
}

#[test]
fn thread_poll_counts_agree() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            let device = place.open(1, mode);
            place.on_each_kind(&device, |queue, kind| {
                Job::of(1).run(queue);
                let counters = queue.take_counters();
                let commands = 2 * Job::of(1).requests;
                // In `threaded` another thread takes them, except where the queue's own is the only
                // one that may.
                assert!(counters.entries <= commands, "{mode}, {kind:?}: {counters:?}");
                if [Mode::INTERRUPT, Mode::POLL, Mode::HYBRID_MEAN, Mode::ADAPTIVE].contains(&mode)
                {
                    assert_eq!(counters.entries, commands, "{mode}, {kind:?}: {counters:?}");
                }
                // A look finds entries, or what others have left for the queue's thread, or
                // nothing.
                assert_eq!(
                    counters.polls,
                    counters.drains + counters.empty_polls,
                    "{mode}, {kind:?}: {counters:?}"
                );
                assert!(
                    counters.drain_max <= 64 && u64::from(counters.drain_max) <= counters.entries,
                    "{mode}: {counters:?}"
                );
                assert_eq!(queue.take_counters().entries, 0, "they were taken");
            });
        }
    });
}

#[test]
fn device_counters_keep_closed_queues() {
    everywhere(&[], |place| {
        let device = place.open(2, Mode::INTERRUPT);
        assert_eq!(
            device.counters().system_calls.is_some(),
            place.is_kernel() && device.counters().system_calls.is_some()
        );
        let mut before = device.counters();
        for round in 0..6 {
            let queue = device.local_queue().unwrap();
            begin(&queue, 40);
            assert_eq!(queue.wait(40, None).unwrap(), 40);
            let with = device.counters();
            drop(queue);
            let after = device.counters();
            assert!(
                after.sq_doorbells >= with.sq_doorbells && with.sq_doorbells > before.sq_doorbells,
                "round {round}: {after:?}"
            );
            assert!(
                after.cq_doorbells >= with.cq_doorbells && with.cq_doorbells > before.cq_doorbells,
                "round {round}: {after:?}"
            );
            assert!(
                after.messages >= before.messages && after.notifications >= before.notifications,
                "round {round}: {after:?}"
            );
            if place.is_kernel() {
                assert!(
                    with.system_calls > before.system_calls
                        && after.system_calls >= with.system_calls,
                    "round {round}: {after:?}"
                );
            }
            assert_eq!(after.leaked_bytes, 0);
            before = after;
        }
    });
}

/// A controller of another process, to which a register is a message: few are where doorbells are
/// in memory. A reset ends that, and bring-up begins it again.
#[test]
fn shadow_doorbells_spare_registers() {
    let served = Served::new("mem:16M?profile=optane");
    for (said, kept) in [("", true), ("?shadow=no", false)] {
        let uri = format!("vfio-user:{}{said}", served.socket().display());
        let device = Device::open_with(&uri, &options(1).mode(Mode::INTERRUPT)).unwrap();
        let queue = device.local_queue().unwrap();
        for round in 0..3 {
            let before = device.counters();
            Job { requests: 500, depth: 8, ..Job::of(1) }.run(&queue);
            let after = device.counters();
            let sq = after.sq_doorbells - before.sq_doorbells;
            let cq = after.cq_doorbells - before.cq_doorbells;
            assert_eq!(after.doorbell_registers.is_some(), kept, "round {round}");
            if let Some(registers) = after.doorbell_registers {
                let registers = registers - before.doorbell_registers.unwrap_or(0);
                // Of the tails at most all. Of the heads one a lap of 17 entries, since nobody
                // waits for them.
                assert!(
                    (1..=sq + 1000 / 17 + 2).contains(&registers),
                    "round {round}: {registers} of {sq} and {cq}"
                );
            }
            let resets = device.health().resets;
            device.reset();
            watched("a reset", || {
                while device.health().resets == resets {
                    std::thread::yield_now()
                }
            });
        }
    }
}
