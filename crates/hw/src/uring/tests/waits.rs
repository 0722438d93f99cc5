use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::{Poller, now};

#[test]
fn multishot_polls_until_cancelled() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let event = EventFd::new().unwrap();
        let kept = whole.keep(&event);
        whole.push(Entry::poll(kept, true).user_data(5));
        whole.submit(0);
        assert_eq!(whole.take(), []);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let ringing = scope.spawn(|| event.signal());
                whole.submit(1);
                ringing.join().unwrap();
                let cqes = whole.take();
                assert_eq!(
                    (cqes.len(), cqes[0].user_data, cqes[0].result & i32::from(libc::POLLIN)),
                    (1, 5, libc::POLLIN.into())
                );
                assert!(cqes[0].more());
            }
        });
        whole.push(Entry::cancel(5).user_data(6));
        assert_eq!(whole.results(2), [(5, -libc::ECANCELED), (6, 0)]);
        assert_eq!(whole.result(Entry::cancel(5)), -libc::ENOENT);
    }
}

/// Eventfds that a ring polls, with their place in `events` as user data.
fn polled(whole: &mut Whole, count: u64) -> Vec<EventFd> {
    let events: Vec<EventFd> = (0..count).map(|_| EventFd::new().unwrap()).collect();
    for (n, event) in (0..).zip(&events) {
        let kept = whole.keep(event);
        whole.push(Entry::poll(kept, false).user_data(n));
    }
    whole.submit(0);
    events
}

fn wait(n: u32, timeout: Nanos) -> Enter {
    Enter { wait_for: n, timeout: Some(timeout), ..Enter::default() }
}

#[test]
fn waits_end_by_count_or_timeout() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let events = polled(&mut whole, 3);
        let begun = now();
        assert_eq!(whole.ring.enter(wait(1, Nanos(2_000_000))).unwrap(), 0);
        assert!(now().0 - begun.0 >= 2_000_000);
        events[0].signal();
        events[2].signal();
        whole.ring.enter(wait(2, Nanos::MAX)).unwrap();
        assert_eq!(whole.ring.ready(), 2);
        // Completions that can be popped already count.
        whole.ring.enter(wait(3, Nanos(2_000_000))).unwrap();
        assert_eq!(
            (whole.ring.cq_state(), whole.ring.ready()),
            (CqState::Entries, 2),
            "{options:?}"
        );
        whole.ring.enter(wait(2, Nanos::MAX)).unwrap();
        events[1].signal();
        whole.ring.enter(wait(3, Nanos(60 * SECOND.0))).unwrap();
        let mut seen: Vec<u64> = whole.take().iter().map(|cqe| cqe.user_data).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
        assert_eq!((whole.ring.cq_state(), whole.ring.ready()), (CqState::None, 0));
    }
}

#[test]
fn min_wait_takes_the_first() {
    if !features().is_some_and(|features| features.min_wait) {
        return eprintln!("NOT TESTED: the kernel has no min_wait (6.12)");
    }
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let events = polled(&mut whole, 2);
        events[0].signal();
        let min_wait = Some(Nanos(3_000_000));
        let begun = now();
        whole.ring.enter(Enter { min_wait, ..wait(2, Nanos(60 * SECOND.0)) }).unwrap();
        assert!(now().0 - begun.0 >= 3_000_000, "{options:?}");
        assert_eq!(whole.take().len(), 1, "{options:?}");
        // No completion in the minimum time: the wait ends with the first.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::sleep_until(Nanos(now().0 + 6_000_000));
                events[1].signal();
            });
            whole.ring.enter(Enter { min_wait, ..wait(2, Nanos(60 * SECOND.0)) }).unwrap();
            assert_eq!(whole.take().len(), 1, "{options:?}");
        });
        // No completion at all: the time-out, counted from the start of the wait.
        let begun = now();
        whole.ring.enter(Enter { min_wait, ..wait(2, Nanos(5_000_000)) }).unwrap();
        assert!(now().0 - begun.0 >= 5_000_000 && whole.ring.ready() == 0, "{options:?}");
        // Without a time-out the wait continues, however late the first completion is.
        let events = polled(&mut whole, 2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::sleep_until(Nanos(now().0 + 6_000_000));
                events[1].signal();
            });
            whole.ring.enter(Enter { min_wait, ..wait(2, Nanos::MAX) }).unwrap();
            assert_eq!(whole.take().len(), 1, "{options:?}");
        });
    }
}

#[test]
fn signals_end_a_wait() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and no other test uses this signal.
    unsafe { libc::signal(libc::SIGURG, nothing as *const () as libc::sighandler_t) };
    for options in kinds() {
        let whole = Whole::new(&options);
        // SAFETY: it names the calling thread.
        let waiter = unsafe { libc::pthread_self() };
        let (over, begun) = (AtomicBool::new(false), now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the thread lives until this scope has ended.
                    unsafe { libc::pthread_kill(waiter, libc::SIGURG) };
                    std::thread::yield_now();
                }
            });
            let entered = whole.ring.enter(wait(1, Nanos(60 * SECOND.0)));
            over.store(true, Ordering::Relaxed);
            assert_eq!(entered.unwrap(), 0, "{options:?}");
            assert!(now() - begun < Nanos(60 * SECOND.0), "{options:?}");
        });
    }
}

#[test]
fn task_work_shows_without_enter() {
    for options in kinds().into_iter().filter(|options| options.owner) {
        let mut whole = Whole::new(&options);
        let events = polled(&mut whole, 1);
        assert_eq!(whole.ring.cq_state(), CqState::None);
        let enters = whole.ring.enters();
        events[0].signal();
        assert_eq!(whole.ring.cq_state(), CqState::TaskWork);
        // poll(2) on the descriptor sees it too.
        assert_eq!(
            poll(&mut [PollFd::new(&whole.ring, PollFlags::IN)], Some(&Default::default())),
            Ok(1)
        );
        // Submitting alone does not run task work.
        whole.push(Entry::nop());
        let submit = whole.sq.unsubmitted();
        assert_eq!(whole.ring.enter(Enter { submit, ..Enter::default() }).unwrap(), 1);
        assert_eq!(whole.take().len(), 1);
        assert_eq!(whole.ring.cq_state(), CqState::TaskWork);
        whole.ring.enter(Enter { run_tasks: true, ..Enter::default() }).unwrap();
        assert_eq!((whole.ring.cq_state(), whole.ring.enters()), (CqState::Entries, enters + 2));
        assert_eq!(whole.take().len(), 1);
        assert_eq!(whole.ring.cq_state(), CqState::None);
    }
}

/// `poller` reports `key` once for each of several completions. The caller holds the result to keep
/// the last one from completing.
#[must_use]
fn wakes(whole: &mut Whole, poller: &Poller, key: u64, what: &str) -> impl Sized + use<> {
    // No eventfd: the kernel (6.18) defers the signal of one from within another's, and does so
    // only once.
    let (reader, writer) = std::io::pipe().unwrap();
    let kept = whole.keep(&reader);
    whole.push(Entry::poll(kept, true));
    whole.submit(0);
    let mut keys = Vec::new();
    poller.wait(Some(Nanos::ZERO), &mut keys).unwrap();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let writing = scope.spawn(|| {
                crate::sleep_until(Nanos(now().0 + 1_000_000));
                (&writer).write_all(&[1]).unwrap();
            });
            let limit = now().0 + 60 * SECOND.0;
            poller.wait(Some(Nanos::ZERO), &mut keys).unwrap();
            // Task work for a sleeping thread ends its sleep like a signal.
            while keys.is_empty() && now().0 < limit {
                poller.wait(Some(SECOND), &mut keys).unwrap();
            }
            assert_eq!(keys, [key], "{what}, turn {n}: {:?}", whole.ring.cq_state());
            writing.join().unwrap();
            whole.ring.enter(Enter { run_tasks: true, ..Enter::default() }).unwrap();
            assert_eq!(whole.take().len(), 1, "{what}");
            // Completions posted by the enter itself may be reported once more.
            poller.wait(Some(Nanos::ZERO), &mut keys).unwrap();
            poller.wait(Some(Nanos::ZERO), &mut keys).unwrap();
            assert_eq!(keys, [], "{what}");
        }
    });
    writer
}

#[test]
fn epoll_wakes_for_shared_rings() {
    for options in kinds() {
        if options.owner {
            continue;
        }
        let (mut whole, poller) = (Whole::new(&options), Poller::new().unwrap());
        poller.add(&whole.ring, 8).unwrap();
        let _writer = wakes(&mut whole, &poller, 8, &format!("{options:?}"));
    }
}

#[test]
fn epoll_wakes_by_ring_eventfd() {
    for options in kinds() {
        let (mut whole, poller, event) =
            (Whole::new(&options), Poller::new().unwrap(), EventFd::new().unwrap());
        whole.ring.notify(&event).unwrap();
        poller.add(&event, 9).unwrap();
        let _writer = wakes(&mut whole, &poller, 9, &format!("{options:?}"));
        assert!(event.drain() >= 4);
    }
}
