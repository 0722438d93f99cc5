//! What a policy is given: commands in flight, completions, the cost of sleeps. The tests step the
//! device.

use completion::{DelayExponent, Mode, Plan, Spin};
use hw::now;
use units::Nanos;

use super::{manual_stepping, open, pair, poll_while_planned, request, submit};
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

/// A poll after a submission is made, and counted, only if a completion is visible.
#[test]
fn submission_polls_visible_completions() {
    let _lock = manual_stepping();
    let mode = Mode::INTERRUPT.with_submit_check().unwrap();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 1, 1, mode);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().manual_step());
    let checks = || (queue.counters().submit_checks, queue.counters().polls, queue.finished());
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

/// Requests that wait for a tag fail at the next poll once the controller is given up: no
/// completion returns a tag.
#[test]
fn dead_controllers_fail_pending_requests() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=3", 1, 1, Mode::INTERRUPT);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().manual_step());
    submit(queue, 5);
    assert_eq!((pair(queue).poll(u32::MAX).0, queue.finished()), (0, 0));
    pair(queue).shared.fail_all();
    assert_eq!((pair(queue).poll(u32::MAX).0, queue.in_flight(), queue.finished()), (0, 2, 3));
    // Later requests fail at once if there is no tag, and the descriptor of a foreign loop becomes
    // readable.
    let turned = queue.poll_events(32);
    assert!(turned.found == 0 && turned.more && pair(queue).shared.wake.flag().is_armed());
    submit(queue, 2);
    assert_eq!((queue.in_flight(), queue.finished()), (2, 5));
    assert!(!pair(queue).shared.wake.flag().is_armed());
    queue.leave_loop();
    pair(queue).shared.revive();
    drop(hand);
    assert_eq!(queue.wait(7, None).unwrap(), 7);
}

/// A policy gets the latencies of its own queue's requests, whichever thread reaps them, and no
/// others.
#[test]
fn policy_learns_own_requests_only() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=tlc&queues=1", 2, 1, Mode::HYBRID_MEAN);
    let hand = device.embedded().unwrap().manual_step();
    let naps = |queue: &Queue| {
        queue.set_spin(Spin::Spins);
        // One clock read for all, so that a delay of this thread does not count as the device's.
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
    // The second queue reaps the first's completion, and its policy does not get it.
    assert_eq!(pair(second).poll(u32::MAX).0, 1);
    assert!(!naps(second));
    drop(hand);
    assert_eq!((first.wait(2, None).unwrap(), second.wait(1, None).unwrap()), (2, 1));
}

/// A policy with another price begins with a poll, as after a change of mode.
#[test]
fn new_price_makes_new_policy() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 1, 1, Mode::ADAPTIVE);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().manual_step());
    let looks = || matches!(pair(queue).plan(now(), Nanos::MAX), Plan::Poll { .. });
    submit(queue, 1);
    poll_while_planned(pair(queue));
    assert!(!looks());
    queue.set_mode(Mode::adaptive(DelayExponent::DEFAULT));
    assert!(!looks(), "it is the price that it had");
    queue.set_mode(Mode::adaptive(DelayExponent::per_mille(1_000)));
    assert!(looks());
    drop(hand);
    assert_eq!(queue.wait(1, None).unwrap(), 1);
}
