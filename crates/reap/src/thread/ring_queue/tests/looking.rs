//! What a thread's side of a queue sees before it asks its policy, and what it takes note of. The device is stepped by hand.

use completion::{LatencyPrice, Mode, Plan, Spin};
use hw::now;
use units::Nanos;

use super::{by_hand, open, pair, poll_while_planned, request, submit};
use crate::Queue;
use crate::thread::event_loop::LoopQueue;

#[test]
fn policy_sees_caller_progress() {
    let (_device, queues) = open("mem:1M?profile=null", 1, 1, Mode::INTERRUPT);
    poll_while_planned(pair(&queues[0]));
    let next = |goes_on_at| {
        let mut inner = pair(&queues[0]).inner.borrow_mut();
        _ = inner.plan(now(), goes_on_at, true);
        inner.waiter.seen.goes_on_at
    };
    let at = now() + Nanos::from_secs(5);
    assert_eq!([at, Nanos::MAX].map(next), [Some(at), None]);
}

#[test]
fn coalescing_changes_are_forwarded_once() {
    let (_device, queues) = open("mem:1M?profile=null", 1, 1, Mode::INTERRUPT);
    let shared = &pair(&queues[0]).shared;
    assert_eq!(shared.wanted_coalescing(), 0);
    assert!(shared.set_wanted_coalescing(7) && !shared.set_wanted_coalescing(8));
    // It asks for nothing, whatever was asked for before.
    poll_while_planned(pair(&queues[0]));
    assert_eq!(shared.wanted_coalescing(), 0);
}

/// A look as a batch is submitted is one only where something has completed, and says so.
#[test]
fn submission_polls_visible_completions() {
    let _alone = by_hand();
    let mode = Mode::INTERRUPT.with_submit_check().unwrap();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 1, 1, mode);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().by_hand());
    let checks = || (queue.counters().submit_checks, queue.counters().looks, queue.finished());
    submit(queue, 1);
    assert_eq!(checks(), (0, 0, 0));
    while hand.step() {}
    submit(queue, 1);
    assert_eq!(checks(), (1, 1, 1));
    submit(queue, 1);
    assert_eq!(checks(), (1, 1, 1));
    while hand.step() {}
    submit(queue, 1);
    assert_eq!(checks(), (2, 2, 3));
    drop(hand);
    assert_eq!(queue.wait(4, None).unwrap(), 4);
}

/// A thread that polls at a controller that is given up fails what waits for a tag, since no completion will return one.
#[test]
fn dead_controllers_fail_pending_requests() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=3", 1, 1, Mode::INTERRUPT);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().by_hand());
    submit(queue, 5);
    assert_eq!((pair(queue).poll(u32::MAX).0, queue.finished()), (0, 0));
    pair(queue).shared.fail_all();
    assert_eq!((pair(queue).poll(u32::MAX).0, queue.in_flight(), queue.finished()), (0, 2, 3));
    // What is submitted afterwards fails at once if there is no tag, and a loop that waits for the descriptor comes back.
    let turned = queue.turn(32);
    assert!(turned.found == 0 && turned.more && pair(queue).shared.wake.flag().is_armed());
    submit(queue, 2);
    assert_eq!((queue.in_flight(), queue.finished()), (2, 5));
    assert!(!pair(queue).shared.wake.flag().is_armed());
    queue.leave_loop();
    pair(queue).shared.revive();
    drop(hand);
    assert_eq!(queue.wait(7, None).unwrap(), 7);
}

/// A policy learns from what its own queue's requests took, whichever thread takes the entries, and from nobody else's.
#[test]
fn policy_learns_own_requests_only() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=tlc&queues=1", 2, 1, Mode::HYBRID_MEAN);
    let hand = device.embedded().unwrap().by_hand();
    let naps = |queue: &Queue| {
        queue.set_spin(Spin::Spins);
        // By one clock read, so that no delay of this thread's is taken for the device's.
        let at = now();
        pair(queue).submit(at, false, [request(queue, 0)]).map_err(|(why, _)| why).unwrap();
        let naps = matches!(pair(queue).plan(at, Nanos::MAX), Plan::Nap { .. });
        let hardware = pair(queue).transport().hardware().clone();
        while hardware.pair.in_flight() > 0 && !hardware.pending() {
            hand.step();
        }
        naps
    };
    let [first, second] = &queues[..] else { unreachable!("two were taken") };
    assert!(!naps(first), "nothing is known yet");
    assert_eq!(pair(first).poll(u32::MAX).0, 1);
    assert!(naps(first));
    // The second queue takes the first's entry, and has learnt nothing from it.
    assert_eq!(pair(second).poll(u32::MAX).0, 1);
    assert!(!naps(second));
    drop(hand);
    assert_eq!((first.wait(2, None).unwrap(), second.wait(1, None).unwrap()), (2, 1));
}

/// With another price a policy begins anew, as with another mode: with a look.
#[test]
fn another_price_is_another_policy() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 1, 1, Mode::ADAPTIVE);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().by_hand());
    let looks = || matches!(pair(queue).plan(now(), Nanos::MAX), Plan::Look { .. });
    submit(queue, 1);
    poll_while_planned(pair(queue));
    assert!(!looks());
    queue.set_mode(Mode::adaptive(LatencyPrice::DEFAULT));
    assert!(!looks(), "it is the price that it had");
    queue.set_mode(Mode::adaptive(LatencyPrice::per_mille(3_000)));
    assert!(looks());
    drop(hand);
    assert_eq!(queue.wait(1, None).unwrap(), 1);
}
