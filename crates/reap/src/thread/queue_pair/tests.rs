use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Wake};
use std::time::Duration;

use super::*;
use crate::transport::UringQueue;
use crate::{Device, Group, OpenOptions, Queue};

/// A device on a file of 1 MiB. `None`: this kernel, or file system, has no io_uring for it.
fn open(options: &OpenOptions) -> Option<(Device, tempfile::NamedTempFile)> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    match Device::open_with(&format!("kernel:{}", file.path().display()), options) {
        Ok(device) => Some((device, file)),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

fn pair(queue: &Queue) -> &QueuePair<UringQueue> {
    queue.path_queues()[0].file()
}

fn read(queue: &Queue, lba: u64) -> Request {
    Request::read(&queue.namespaces()[0], lba, queue.buffer(4096).unwrap())
}

fn submit(queue: &Queue, requests: u64) {
    queue.submit((0..requests).map(|lba| read(queue, lba))).map_err(|(why, _)| why).unwrap();
}

fn reap(queue: &Queue) -> usize {
    let mut done = Vec::with_capacity(64);
    while queue.reap(&mut done) > 0 {}
    assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
    done.len()
}

/// Requests are submitted by the wait that follows, or by `commit`; at once in a mode that polls
/// after each commit.
#[test]
fn deferred_submission_is_one_call() {
    let Some((device, _file)) = open(&OpenOptions::new().mode(Mode::INTERRUPT)) else { return };
    let queue = device.local_queue().unwrap();
    let calls = || pair(&queue).shared.counts.system_calls.get();
    for requests in [1, 2, 16] {
        let before = calls();
        queue.post((0..requests).map(|lba| read(&queue, lba))).map_err(|(why, _)| why).unwrap();
        assert_eq!(calls(), before, "nothing is announced yet");
        assert_eq!(queue.wait(requests as usize, None).unwrap(), requests as usize);
        // One more, once, for the SQEs of the wake-up.
        assert!(calls() - before <= 2, "{requests}: {} calls", calls() - before);
        reap(&queue);
    }
    queue.post([read(&queue, 0)]).map_err(|(why, _)| why).unwrap();
    let before = calls();
    queue.commit();
    assert_eq!(calls(), before + 1);
    assert_eq!(queue.wait(1, None).unwrap(), 1);
    reap(&queue);
    queue.set_mode(Mode::INTERRUPT.with_submit_check().unwrap());
    queue.wait(0, None).unwrap();
    submit(&queue, 1);
    queue.wait(1, None).unwrap();
    reap(&queue);
    let before = calls();
    queue.post([read(&queue, 0)]).map_err(|(why, _)| why).unwrap();
    assert!(calls() > before);
    queue.wait(1, None).unwrap();
}

/// A sleep waits for several completions if none of them has a waiter of its own.
#[test]
fn waits_count_wanted_completions() {
    let Some((device, _file)) = open(&OpenOptions::new().mode(Mode::INTERRUPT).depth(64)) else {
        return;
    };
    let queue = device.local_queue().unwrap();
    let wants = |wanted: u32| {
        let mut inner = pair(&queue).inner.borrow_mut();
        inner.wanted = wanted;
        inner.wants(true)
    };
    // Requests that are not driven stay open.
    let post = |requests: u64, urgent: bool| {
        let read = |lba| if urgent { read(&queue, lba).urgent() } else { read(&queue, lba) };
        queue.post((0..requests).map(read)).map_err(|(why, _)| why).unwrap();
    };
    let finish = || {
        let open = queue.in_flight() as usize;
        queue.wait(queue.finished() + open, None).unwrap();
        reap(&queue);
    };
    post(10, false);
    assert_eq!([0, 1, 8, 64].map(wants), [0, 0, 8, 10]);
    assert_eq!(pair(&queue).inner.borrow().wants(false), 0, "it sleeps with other queues");
    post(1, true);
    assert_eq!([0, 1, 8, 64].map(wants), [0; 4], "somebody waits for one of them");
    finish();
    let future = queue.read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    post(10, false);
    assert_eq!([0, 1, 8, 64].map(wants), [0; 4], "one of them is a future's");
    queue.block_on(future).unwrap().0.unwrap();
    finish();
    post(70, false);
    assert_eq!([0, 1, 8, 64].map(wants), [0; 4], "some wait for room");
    finish();
    post(10, false);
    assert_eq!([0, 1, 8, 64].map(wants), [0, 0, 8, 10]);
    finish();
}

/// More requests than the ring has room for are posted as others finish, each once.
#[test]
fn requests_beyond_depth_finish() {
    let Some((device, _file)) = open(&OpenOptions::new().mode(Mode::INTERRUPT).depth(4)) else {
        return;
    };
    let queue = device.queue().unwrap();
    submit(&queue, 50);
    assert_eq!(pair(&queue).inner.borrow().requests.posted(), 4);
    assert_eq!(queue.wait(50, None).unwrap(), 50);
    assert_eq!((reap(&queue), queue.in_flight(), device.in_flight()), (50, 0, 0));
}

/// The iterator of a `submit` cannot use its queue. If it panics, the requests that it has yielded
/// are submitted.
#[test]
fn iterators_cannot_use_their_queue() {
    let Some((device, _file)) = open(&OpenOptions::new().mode(Mode::INTERRUPT)) else { return };
    let queue = device.queue().unwrap();
    let refused = Cell::new(false);
    let requests = (0..2).map(|lba| {
        assert!(
            queue.wait(1, None).is_err()
                && queue.reap(&mut Vec::new()) == 0
                && queue.poll_events(1).more
        );
        assert!(queue.block_on(queue.flush(&queue.namespaces()[0])).is_err());
        // Everything else works.
        queue.set_spin(Spin::Yields);
        queue.set_mode(Mode::INTERRUPT);
        queue.set_next_due(None);
        queue.count_wakeups();
        queue.commit();
        queue.leave_loop();
        drop(queue.prepare(queue.buffer(4096).unwrap()));
        assert_eq!(
            (queue.mode(), queue.next_deadline(), queue.adaptive_state()),
            (Mode::INTERRUPT, None, None)
        );
        assert_eq!(
            (queue.finished(), queue.take_counters().entries, queue.wakeups().completions.max),
            (0, 0, 0)
        );
        assert!(
            queue.hardware_counters().finished <= 8
                && queue.in_flight() <= 2
                && queue.next_due().is_none()
        );
        let inside = queue.submit([read(&queue, 0)]);
        refused.set(matches!(inside, Err((Refused::InsideSubmit, _))));
        read(&queue, lba)
    });
    queue.submit(requests).map_err(|(why, _)| why).unwrap();
    assert!(refused.get());
    assert_eq!(queue.wait(2, None).unwrap(), 2);
    assert_eq!(reap(&queue), 2);
    let panics =
        (0..4).map(|lba| if lba < 3 { read(&queue, lba) } else { panic!("as the test wants") });
    assert!(catch_unwind(AssertUnwindSafe(|| queue.submit(panics).is_ok())).is_err());
    assert_eq!(queue.wait(3, None).unwrap(), 3);
    assert_eq!(reap(&queue), 3);
}

/// A late request is cancelled by the queue's thread, once, and the health says so. (The mutant
/// never publishes when a request is late.)
#[test]
fn late_requests_are_cancelled_once() {
    let timeout = Nanos::from_secs(5);
    let Some((device, _file)) =
        open(&OpenOptions::new().mode(Mode::INTERRUPT).timeout(timeout.into()))
    else {
        return;
    };
    for queue in [device.queue().unwrap(), device.queue().unwrap()] {
        let began = hw::now();
        queue.post([read(&queue, 0), read(&queue, 8)]).map_err(|(why, _)| why).unwrap();
        let shared = pair(&queue).shared.clone();
        assert!((began + timeout..hw::now() + timeout).contains(&shared.late_at()));
        let aborts = device.health().aborts;
        let plan = |at| _ = pair(&queue).inner.borrow_mut().plan(at, Nanos::MAX, true);
        plan(began);
        assert!(shared.late_at() >= began + timeout, "nothing is late yet");
        plan(hw::now() + timeout + timeout);
        assert_eq!(shared.late_at(), Nanos::MAX, "all are cancelled");
        plan(hw::now() + timeout + timeout);
        assert_eq!(queue.wait(2, None).unwrap(), 2);
        let limit = hw::now() + Nanos::from_secs(60);
        while device.health().aborts < aborts + 2 {
            assert!(hw::now() < limit, "{:?}", device.health());
            std::thread::yield_now();
        }
        assert_eq!(device.health().aborts, aborts + 2);
        let mut events = device.events();
        let mut told = std::iter::from_fn(|| events.try_next()).map(|event| event.kind);
        assert!(told.any(|what| matches!(what, crate::EventKind::TimedOut { requests: 2, .. })));
        // What was cancelled before it ran has failed; what was not is read.
        queue.reap(&mut Vec::with_capacity(2));
    }
}

/// A thread that sleeps without a time-out is woken when a request of its queue is late.
#[test]
fn sleeping_owners_are_woken_when_late() {
    let Some((device, _file)) = open(&OpenOptions::new().timeout(Duration::from_millis(20))) else {
        return;
    };
    let queue = device.queue().unwrap();
    let shared = pair(&queue).shared.clone();
    // Open and late, as the housekeeping thread sees it.
    shared.set_open(1);
    shared.set_late_at(hw::now());
    shared.wake.arm();
    let limit = hw::now() + Nanos::from_secs(60);
    while shared.wake.flag().is_armed() {
        assert!(hw::now() < limit, "it sleeps for good");
        std::thread::sleep(Duration::from_millis(1));
    }
    shared.set_open(0);
}

/// Requests in flight when a queue is dropped finish: buffers return, and futures are woken.
#[test]
fn dropped_queues_finish_their_requests() {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    for bound in [false, true] {
        let Some((device, _file)) = open(&OpenOptions::new().mode(Mode::INTERRUPT).depth(4)) else {
            return;
        };
        let (sent, local);
        let queue: &Queue = if bound {
            local = Some(device.local_queue().unwrap());
            sent = None;
            local.as_ref().unwrap()
        } else {
            sent = Some(device.queue().unwrap());
            local = None;
            sent.as_ref().unwrap()
        };
        let woken = Arc::new(Count(AtomicU32::new(0)));
        let mut future =
            Box::pin(queue.read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap()));
        let waker = woken.clone().into();
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        queue.post((0..20).map(|lba| read(queue, lba))).map_err(|(why, _)| why).unwrap();
        drop((sent, local));
        let limit = hw::now() + Nanos::from_secs(60);
        while device.in_flight() > 0 || woken.0.load(SeqCst) == 0 {
            assert!(hw::now() < limit, "{} are left", device.in_flight());
            std::thread::yield_now();
        }
        assert!(matches!(
            future.as_mut().poll(&mut Context::from_waker(&waker)),
            std::task::Poll::Ready((Ok(()), _))
        ));
        assert_eq!(device.counters().leaked_bytes, 0);
        // The queue is free again, under its number.
        assert_eq!(device.queue().unwrap().hardware_queue(), 0);
    }
}

/// Requests without a completion fail when the device closes, and their buffers are leaked: the
/// kernel may still write to them.
#[test]
fn unanswered_requests_leak_their_buffers() {
    let Some((device, _file)) = open(&OpenOptions::new().mode(Mode::INTERRUPT)) else { return };
    let queue = device.queue().unwrap();
    queue.post((0..3).map(|lba| read(&queue, lba))).map_err(|(why, _)| why).unwrap();
    let future = queue.read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    {
        let mut inner = pair(&queue).inner.borrow_mut();
        inner.requests.unclaim_all();
        let (wakers, memory) = inner.lose_all();
        assert!(wakers.is_empty() && memory.is_empty());
        assert_eq!(inner.requests.open(), 0);
    }
    let mut future = Box::pin(future);
    let done = future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(
        matches!(done, std::task::Poll::Ready((Err(crate::IoError::DeviceLost), _))),
        "{done:?}"
    );
    assert_eq!(device.counters().leaked_bytes, 4 * 4096);
}

/// A thread that sleeps in its ring needs no eventfd; one that sleeps with other queues is woken by
/// it.
#[test]
fn eventfd_wakes_other_sleepers() {
    let Some((device, _file)) = open(&OpenOptions::new().mode(Mode::INTERRUPT)) else { return };
    let queues = vec![device.local_queue().unwrap(), device.local_queue().unwrap()];
    assert!(queues.iter().all(|queue| pair(queue).inner.borrow().transport.eventfd().is_none()));
    let group = Group::new(queues).unwrap();
    for _ in 0..20 {
        group.queues().iter().for_each(|queue| submit(queue, 2));
        assert_eq!(group.wait(4, None).unwrap(), 4);
        assert_eq!(group.queues().iter().map(|queue| reap(queue)).sum::<usize>(), 4);
    }
    let counted = |queue: &Queue| {
        pair(queue).inner.borrow().transport.eventfd().and_then(|event| event.count().ok())
    };
    assert!(group.queues().iter().all(|queue| counted(queue) > Some(0)));
}

/// The mode in force on a ring that was not made for the requested one.
#[test]
fn modes_fall_back_on_files() {
    let Some((device, _file)) = open(&OpenOptions::new().mode(Mode::COALESCE)) else { return };
    let queue = device.local_queue().unwrap();
    assert_eq!((queue.mode(), device.health().coalescing_refused), (Mode::INTERRUPT, true));
    for mode in Mode::KERNELS.into_iter().chain([Mode::DIM, Mode::VIC]) {
        queue.set_mode(mode);
        submit(&queue, 1);
        queue.wait(1, None).unwrap();
        assert_eq!((reap(&queue), queue.mode()), (1, Mode::INTERRUPT), "{mode}");
    }
    queue.set_mode(Mode::POLL);
    submit(&queue, 1);
    queue.wait(1, None).unwrap();
    assert_eq!((reap(&queue), queue.mode()), (1, Mode::POLL));
    let Ok(polled) = device.local_queue_in(Mode::KERNEL_SQPOLL) else { return };
    polled.set_mode(Mode::POLL);
    submit(&polled, 3);
    polled.wait(3, None).unwrap();
    assert_eq!((reap(&polled), polled.mode()), (3, Mode::KERNEL_SQPOLL));
}
