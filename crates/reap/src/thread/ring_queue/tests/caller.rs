//! Calls of a queue's owner: submit, reap, set the mode, counters. The tests step the device.

use std::cell::Cell;
use std::time::Duration;

use completion::{Mode, Notification, Plan};
use hw::now;
use units::Nanos;

use super::{manual_stepping, open, pair, request, submit};
use crate::thread::event_loop::{LoopQueue, Slept};
use crate::{Instant, Refused};

/// `reap` fills the free capacity of the vector, and moves one completion if there is none.
#[test]
fn reaping_respects_the_room() {
    let (_device, queues) = open("mem:1M?profile=null", 1, 1, Mode::INTERRUPT);
    let (queue, mut done) = (&queues[0], Vec::with_capacity(4));
    let room = done.capacity();
    submit(queue, 12);
    assert_eq!(queue.wait(12, None).unwrap(), 12);
    let mut reap = |kept: usize, moved: usize| {
        done.truncate(kept);
        assert_eq!((queue.reap(&mut done), done.len()), (moved, kept + moved));
    };
    reap(0, room);
    reap(room - 1, 1);
    reap(2, room - 2);
    // Without room a vector grows by one.
    reap(room, 1);
    let each = Cell::new(0);
    let left = queue.finished();
    assert!(left > 0);
    pair(queue).reap_each(|done| each.set(each.get() + usize::from(done.result.is_ok())));
    assert_eq!((each.get(), queue.finished()), (left, 0));
}

/// An iterator that calls its own queue is refused or ignored, and does not block.
#[test]
fn an_iterator_cannot_use_its_queue() {
    let (_device, queues) = open("mem:1M?profile=null", 1, 1, Mode::INTERRUPT);
    let queue = &queues[0];
    submit(queue, 2);
    assert_eq!(queue.wait(2, None).unwrap(), 2);
    let inside = (0..2).map(|lba| {
        assert_eq!(queue.reap(&mut Vec::new()), 0);
        let refused = queue
            .submit([request(queue, lba)])
            .err()
            .map(|(why, request)| (why, request.into_buffer().is_some()));
        assert!(matches!(refused, Some((Refused::InsideSubmit, true))), "{refused:?}");
        // An empty batch: nothing is refused.
        assert!(queue.submit([]).is_ok());
        assert!(queue.wait(1, None).is_err() && pair(queue).is_submitting());
        request(queue, lba)
    });
    queue.submit(inside).map_err(|(why, _)| why).unwrap();
    assert!(!pair(queue).is_submitting());
    assert_eq!(queue.wait(4, None).unwrap(), 4);
    assert_eq!(queue.reap(&mut Vec::with_capacity(4)), 4);
}

/// The doorbell is rung at once although the caller waits next: only io_uring can submit in its
/// sleep.
#[test]
fn posting_rings_the_doorbell() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null", 1, 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    queues[0].post([request(&queues[0], 0)]).map_err(|(why, _)| why).unwrap();
    assert_eq!(pair(&queues[0]).transport().hardware().pair.in_flight(), 1);
    drop(hand);
    assert_eq!(queues[0].wait(1, None).unwrap(), 1);
}

/// Commands posted without a doorbell on one pair are announced before a batch goes to the other
/// pair.
#[test]
fn commit_covers_the_other_pair() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=2&masks=no", 1, 1, Mode::POLL);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().manual_step());
    let hardware = pair(queue).transport().hardware().clone();
    let polled = hardware.polled.as_ref().expect("masks=no has a second pair");
    // In a foreign loop all commands go to the interrupt queue.
    pair(queue).inner.borrow_mut().in_loop = true;
    let future = queue.read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    pair(queue).inner.borrow_mut().in_loop = false;
    assert_eq!((hardware.pair.in_flight(), polled.in_flight()), (0, 0));
    submit(queue, 1);
    assert_eq!((hardware.pair.in_flight(), polled.in_flight()), (1, 1));
    drop(hand);
    queue.block_on(future).unwrap().0.unwrap();
    assert_eq!(queue.wait(1, None).unwrap(), 1);
}

/// A mode that polls after a submission does not after an empty batch.
#[test]
fn empty_batches_do_not_commit() {
    let _lock = manual_stepping();
    let (device, queues) =
        open("mem:1M?profile=null", 1, 1, Mode::INTERRUPT.with_submit_check().unwrap());
    let (queue, hand) = (&queues[0], device.embedded().unwrap().manual_step());
    submit(queue, 1);
    while hand.step() {}
    assert!(queue.submit([]).is_ok());
    assert_eq!((queue.counters().submit_checks, queue.finished()), (0, 0));
    submit(queue, 1);
    assert_eq!((queue.counters().submit_checks, queue.finished()), (1, 1));
    drop(hand);
    assert_eq!(queue.wait(2, None).unwrap(), 2);
}

#[test]
fn caller_hints_reach_the_policy() {
    let (device, queues) = open("mem:1M?profile=null&queues=2", 2, 2, Mode::ADAPTIVE);
    let queue = &queues[0];
    assert_eq!(queue.next_due(), None);
    let due = Instant::now() + Duration::from_secs(1);
    queue.set_next_due(Some(due));
    assert_eq!(queue.next_due(), Some(due));
    assert_eq!(pair(queue).inner.borrow().waiter.seen.next_due, Some(due.nanos()));
    let [first, second] = [0, 1].map(|n: usize| pair(&queues[n]).hardware_queue());
    assert_eq!((first.min(second), first.max(second)), (0, 1));
    // A mode that the ring was not made for is replaced by another, with an event.
    let kernels = Mode::KERNELS[0];
    let said = || {
        let mut events = device.events();
        let of_modes =
            |event: &crate::Event| matches!(event.kind, crate::EventKind::ModeUnavailable { .. });
        std::iter::from_fn(|| events.try_next())
            .filter(of_modes)
            .map(|event| event.to_string())
            .collect::<Vec<_>>()
    };
    pair(queue).set_mode(Mode::POLL);
    pair(queue).set_mode(kernels);
    let limit = now() + Nanos::from_secs(60);
    while said().is_empty() {
        assert!(now() < limit, "nothing was said");
        std::thread::yield_now();
    }
    assert_eq!(
        said(),
        [format!(
            "queue {} is in `interrupt`: its ring was not made for `{kernels}`",
            pair(queue).hardware_queue()
        )]
    );
}

#[test]
fn queues_report_their_settings() {
    for mode in Mode::ALL.into_iter().chain([Mode::INTERRUPT.with_submit_check().unwrap()]) {
        let (_device, queues) = open("mem:1M?profile=null", 1, 1, mode);
        let queue = &queues[0];

        assert_eq!(pair(queue).adaptive_state().is_some(), mode == Mode::ADAPTIVE, "{mode}");
        submit(queue, 3);
        assert_eq!(queue.wait(3, None).unwrap(), 3);
        let counted = pair(queue).hardware_counters();
        assert!(counted.finished == 3 && counted.sq_doorbells == 1, "{mode}: {counted:?}");
    }
    assert!(Mode::INTERRUPT_CHECKED.facts().submit_check && !Mode::INTERRUPT.facts().submit_check);
}

/// Histograms of wake-ups begin with `count_wakeups`.
#[test]
fn wakeup_histograms_are_opt_in() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null", 1, 1, Mode::INTERRUPT);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().manual_step());
    let mut wakes = |entries: u64| {
        submit(queue, entries);
        while hand.step() {}
        pair(queue).arm();
        let notified = pair(queue).drain_events().unwrap();
        pair(queue).woken(&Slept {
            found: false,
            nap: false,
            notified,
            woke_at: now(),
            until: Nanos::MAX,
            cycle: None,
        });
        assert_eq!(u64::from(pair(queue).poll(u32::MAX).0), entries);
    };
    wakes(1);
    assert_eq!(pair(queue).wakeups().delay.counts.iter().sum::<u64>(), 0);
    pair(queue).count_wakeups();
    [3, 2, 1].into_iter().for_each(&mut wakes);
    let wakeups = pair(queue).wakeups();
    assert_eq!((wakeups.delay.counts.iter().sum::<u64>(), wakeups.completions.max), (3, 3));
}

/// In a mode that masks, no messages are sent while the thread is awake, whichever mode the queue
/// had before.
#[test]
fn masking_modes_silence_awake_threads() {
    let _lock = manual_stepping();
    for (begins, mode, sent) in [
        (Mode::INTERRUPT, Mode::POLL, 0),
        (Mode::POLL, Mode::POLL, 0),
        (Mode::POLL, Mode::INTERRUPT, 3),
    ] {
        let (device, queues) = open("mem:1M?profile=null", 1, 1, begins);
        let (queue, hand) = (&queues[0], device.embedded().unwrap().manual_step());
        let hardware = pair(queue).transport().hardware().clone();
        pair(queue).shared.mode.request(mode);
        _ = pair(queue).plan(now(), Nanos::MAX);
        let before = hardware.pair.notifications();
        for _ in 0..3 {
            submit(queue, 1);
            while hand.step() {}
            pair(queue).poll(u32::MAX);
        }
        assert_eq!(hardware.pair.notifications() - before, sent, "{mode} after {begins}");
    }
}

/// A thread that leaves CQEs behind wakes the owner of the notification, and no other thread.
#[test]
fn leftover_entries_wake_their_owner() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 2, 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let pairs = [0, 1].map(|n: usize| pair(&queues[n]));
    for queue in &queues {
        submit(queue, 1);
    }
    assert!(matches!(pairs[0].plan(now(), Nanos::MAX), Plan::Sleep { .. }));
    pairs[0].arm();
    assert_eq!(pairs.map(|pair| pair.transport().has_role()), [true, false]);
    assert_eq!(
        pairs.map(|pair| pair.inner.borrow_mut().transport.other_owner().is_some()),
        [false, true]
    );
    while hand.step() {}
    assert!(pairs[1].poll_ready());
    assert!(pairs[0].shared.wake.flag().is_armed());
    pairs[1].leave();
    assert!(!pairs[0].shared.wake.flag().is_armed(), "the owner was not woken");
    // A thread that wakes without having got the role is not the owner.
    pairs[1].woken(&Slept {
        found: false,
        nap: false,
        notified: false,
        woke_at: now(),
        until: Nanos::MAX,
        cycle: None,
    });
    assert!(!pairs[1].inner.borrow().waiter.owner);
    drop(hand);
    for queue in &queues {
        assert_eq!(queue.wait(1, None).unwrap(), 1);
    }
}
