//! `posted`: rounds per notification, and the target of messages. The tests step the device.

use completion::{Mode, Notification};
use hw::now;
use sync::MAX_ROUNDS;
use units::Nanos;

use super::manual_stepping;
use super::sharing::{hardware, pair};
use crate::thread::event_loop::LoopQueue;
use crate::transport::{ManualStepper, QueueTransport};
use crate::{Device, Group, OpenOptions, Queue, Request};

const URI: &str = "mem:1M?profile=null&queues=2&vectors=3";

fn open(mode: Mode) -> Device {
    Device::open_with(
        URI,
        &OpenOptions {
            software_queues: Some(2),
            hardware_queues: Some(2),
            mode,
            ..OpenOptions::default()
        },
    )
    .unwrap()
}

/// Switches the queue to another mode.
fn adopt(queue: &Queue, mode: Mode) {
    pair(queue).shared.mode.request(mode);
    pair(queue).plan(now(), Nanos::MAX);
    assert_eq!(pair(queue).mode(), mode);
}

fn arm(queue: &Queue) {
    pair(queue).inner.borrow_mut().transport.arm();
}

/// Whether arming has found a message.
fn found(queue: &Queue) -> bool {
    pair(queue).inner.borrow_mut().transport.found_when_armed()
}

/// A request whose CQE and message have come.
fn message(queue: &Queue, hand: &ManualStepper) {
    queue
        .submit([Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap())])
        .map_err(|(why, _)| why)
        .unwrap();
    while hand.step() {}
}

/// After a wake-up: whether the notification was for this queue.
fn was_notified(queue: &Queue) -> bool {
    let reported = pair(queue).drain_events().unwrap();
    pair(queue).transport().was_notified() || reported
}

/// Arming finds posted messages. For MAX_ROUNDS rounds the notification stays outstanding, and
/// messages send none.
#[test]
fn notification_covers_several_rounds() {
    let _lock = manual_stepping();
    for (mode, messages_of_a_notification) in [(Mode::POSTED, MAX_ROUNDS), (Mode::INTERRUPT, 1)] {
        let device = open(mode);
        let (queue, hand) = (device.queue().unwrap(), device.embedded().unwrap().manual_step());
        let (hardware, posts) = (hardware(&queue), mode == Mode::POSTED);
        assert_eq!(pair(&queue).transport().posted_msi.is_on(), posts);
        arm(&queue);
        _ = found(&queue);
        let before = hardware.pair.notifications();
        for n in 0..4 * MAX_ROUNDS {
            message(&queue, &hand);
            assert_eq!(
                hardware.pair.notifications() - before,
                u64::from(n / messages_of_a_notification + 1),
                "message {n} in {mode}"
            );
            arm(&queue);
            assert_eq!(found(&queue), posts, "message {n} in {mode}");
        }
        // Without a message there is no further round, and the next message notifies.
        for _ in 0..2 {
            arm(&queue);
            assert!(!found(&queue) && !pair(&queue).transport().was_notified(), "{mode}");
        }
        message(&queue, &hand);
        assert_eq!(pair(&queue).transport().was_notified(), posts, "{mode}");
        assert!(!pair(&queue).transport().was_notified(), "it was reported already");
        drop(hand);
        assert_eq!(
            queue.wait(4 * MAX_ROUNDS as usize + 1, None).unwrap(),
            4 * MAX_ROUNDS as usize + 1
        );
    }
}

/// A queue without a group has its own vector as the target, also after it has left `posted`.
#[test]
fn posted_mode_posts_messages() {
    let _lock = manual_stepping();
    let device = open(Mode::INTERRUPT);
    let (queue, hand) = (device.queue().unwrap(), device.embedded().unwrap().manual_step());
    for mode in [Mode::INTERRUPT, Mode::POSTED, Mode::POSTED, Mode::INTERRUPT, Mode::POSTED] {
        adopt(&queue, mode);
        assert_eq!(pair(&queue).transport().posted_msi.is_on(), mode == Mode::POSTED);
        assert!(!pair(&queue).transport().posted_msi.has_foreign_target());
        arm(&queue);
        let bit = |queue: &Queue| hardware(queue).pair.take_posted(hardware(queue).pair.vector());
        _ = bit(&queue);
        message(&queue, &hand);
        assert_eq!(bit(&queue), mode == Mode::POSTED, "{mode}");
        assert!(pair(&queue).drain_events().unwrap(), "{mode}: its own poller reports it");
        pair(&queue).poll(u32::MAX);
    }
}

/// In a group the first queue's vector is the target of all; each queue finds only its own
/// messages. A queue that is taken after the group is gone is notified by its own vector.
#[test]
fn target_vector_notifies_each_queue() {
    let _lock = manual_stepping();
    let device = open(Mode::POSTED);
    {
        let group = Group::new((0..2).map(|_| device.queue().unwrap()).collect()).unwrap();
        let hand = device.embedded().unwrap().manual_step();
        let [home, other] = group.queues() else { unreachable!("two were joined") };
        assert!(
            !pair(home).transport().posted_msi.has_foreign_target()
                && pair(other).transport().posted_msi.has_foreign_target()
        );
        for (queue, quiet) in [(home, other), (other, home)] {
            [home, other].into_iter().for_each(arm);
            [home, other].iter().for_each(|queue| _ = was_notified(queue));
            message(queue, &hand);
            assert!(!pair(other).drain_events().unwrap(), "what its poller reports is another's");
            assert!(pair(queue).transport().was_notified());
            assert!(!pair(quiet).transport().was_notified());
            pair(queue).poll(u32::MAX);
        }
        // In a mode that does not post each has its own eventfd.
        adopt(other, Mode::INTERRUPT);
        assert!(!pair(other).transport().posted_msi.has_foreign_target());
        message(other, &hand);
        assert!(was_notified(other));
        pair(other).poll(u32::MAX);
        adopt(other, Mode::POSTED);
        assert!(pair(other).transport().posted_msi.has_foreign_target());
    }
    let queues = [(); 2].map(|()| device.local_queue_in(Mode::INTERRUPT).unwrap());
    let hand = device.embedded().unwrap().manual_step();
    for queue in &queues {
        // The earlier signal of its own vector is still there.
        _ = was_notified(queue);
        message(queue, &hand);
        assert!(was_notified(queue), "its own vector tells it");
        assert_eq!(pair(queue).poll(u32::MAX).0, 1);
    }
}
