//! Whole-stack: an iterator given to `Queue::submit` is the application's, and may take its time.
//! While it runs, nothing of the library's is held that anybody else waits for: not another device,
//! not the housekeeping thread, not another thread of the same hardware queue, not the iterator
//! itself.
//!
//! What has to happen has two minutes, so that a busy machine fails nothing; nothing is judged by
//! how long it took.

use std::collections::BTreeSet;
use std::io::Write;
use std::iter::from_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::open;
use crate::work::drain;
use reap::{Completion, Device, Health, Nanos, OpenOptions, PathLink, Queue, Request};

/// What has not happened by then does not happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time-out of the device whose iterator takes long.
const TIMEOUT: Nanos = Nanos::from_millis(100);

/// All devices of a process share a housekeeping thread: a test that fails must not make the others
/// fail.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(queue: &Queue, tag: u64) -> Request {
    Request::read(&queue.namespaces()[0], tag * 8, queue.buffer(4096).unwrap()).tag(tag)
}

/// What `work` comes to, on a thread of its own: one that never ends is left behind.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || _ = tell.send(work()));
    told.recv_timeout(PATIENCE).unwrap_or_else(|why| panic!("{what}: {why}"))
}

/// Waits for all that is in flight.
fn submit(queue: &Queue, requests: impl IntoIterator<Item = Request>) {
    queue.submit(requests).map_err(|(why, _)| why).unwrap();
}

/// A thread whose iterator has yielded one request, and yields no more and does not end before it
/// is let go.
struct Held {
    device: Device,
    since: reap::Instant,
    go: Sender<()>,
    thread: JoinHandle<Vec<Completion>>,
}

impl Held {
    fn on(device: Device) -> Held {
        let ((tell_inside, inside), (go, told)) = (mpsc::channel(), mpsc::channel::<()>());
        let queue = device.queue().unwrap();
        let thread = thread::spawn(move || {
            let mut first = Some(read(&queue, 0));
            let takes_long = from_fn(|| {
                first.take().or_else(|| {
                    tell_inside.send(()).unwrap();
                    // Where the test has failed it is let go too.
                    _ = told.recv();
                    None
                })
            });
            submit(&queue, takes_long.fuse());
            drain(&queue)
        });
        inside.recv_timeout(PATIENCE).unwrap();
        Held { device, since: reap::Instant::now(), go, thread }
    }

    /// So long that the request is overdue, however often the housekeeping thread looks.
    fn wait(&self, long: Nanos) {
        while reap::Instant::now() < self.since + long.into() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets the iterator end: the request has to end well. What has become of the device.
    fn end(self) -> Health {
        self.go.send(()).unwrap();
        let ended = self.thread.join().unwrap();
        assert_eq!(ended.len(), 1);
        ended.into_iter().for_each(|done| done.result.unwrap());
        // Two turns of the housekeeping thread at least: what it decides about the end it has
        // decided.
        drop(open("mem:16M", OpenOptions::default()));
        self.device.health()
    }
}

#[test]
fn slow_iterator_lets_devices_open() {
    let _alone = alone();
    let held = Held::on(open("mem:16M?profile=optane", OpenOptions::new().timeout(TIMEOUT.into())));
    held.wait(Nanos(3 * TIMEOUT.0));
    in_time("opening a device while another's iterator takes long", || {
        let device = open("mem:16M?profile=optane", OpenOptions::default());
        let queue = device.queue().unwrap();
        submit(&queue, (0..8).map(|tag| read(&queue, tag)));
        drain(&queue).into_iter().for_each(|done| done.result.unwrap());
    });
    held.end();
}

#[test]
fn slow_iterator_keeps_others_alive() {
    let _alone = alone();
    // Its controllers fail if the housekeeping thread is away for so long. A busy machine keeps no
    // thread away for as long as that.
    let other = open("multipath:?path=mem:16M&path=mem:16M&keep_alive=8s", OpenOptions::default());
    let (stop, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let held = Held::on(open("mem:16M?profile=optane", OpenOptions::new().timeout(TIMEOUT.into())));
    let (goes_on, held_back) = thread::scope(|scope| {
        let queue = other.queue().unwrap();
        let (stop, rounds) = (&stop, &rounds);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                submit(&queue, (0..4).map(|tag| read(&queue, tag)));
                drain(&queue).into_iter().for_each(|done| done.result.unwrap());
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        held.wait(Nanos::from_secs(10));
        // Two more, so that one of them has begun since.
        let (so_far, until) = (rounds.load(Ordering::Relaxed), Instant::now() + PATIENCE);
        let goes_on = || rounds.load(Ordering::Relaxed) >= so_far + 2;
        while !goes_on() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let ended = (goes_on(), held.end());
        stop.store(true, Ordering::Relaxed);
        ended
    });
    assert!(
        goes_on,
        "the other device stands still; the one whose iterator took long: {held_back:?}"
    );
    let health = other.health();
    assert_eq!((health.aborts, health.resets, health.last_reset, health.dead), (0, 0, None, None));
    assert!(
        other.paths().iter().all(|path| path.status.link == PathLink::Live),
        "{:?}",
        other.paths()
    );
    assert_eq!(other.failover(), reap::FailoverCounters::default());
}

#[test]
fn slow_iterator_causes_no_timeout() {
    let _alone = alone();
    // Slow enough to be at work when the housekeeping thread looks; far from its time-out.
    let mut profile = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    profile
        .write_all(b"read = { base_ns = 5_000_000 }\nwrite = { base_ns = 5_000_000 }\n")
        .unwrap();
    let uri = format!("mem:16M?profile={}", profile.path().display());
    let timeout = Nanos::from_secs(6);
    let held = Held::on(open(&uri, OpenOptions::new().timeout(timeout.into())));
    // Past the time-out, and the grace after it.
    held.wait(Nanos(5 * timeout.0 / 2));
    let health = held.end();
    // It has a tenth of a second for a command that is announced at its time-out: a stalled thread
    // of its own may cost an Abort.
    assert_eq!((health.resets, health.last_reset, health.dead), (0, None, None));
}

/// Two threads of one hardware queue.
fn sharing() -> [Queue; 2] {
    let options = OpenOptions::new().software_queues(2).hardware_queues(1).depth(32);
    let device = open("mem:16M?profile=optane", options);
    [device.queue().unwrap(), device.queue().unwrap()]
}

#[test]
fn iterators_may_wait_for_each_other() {
    let _alone = alone();
    let [(to_first, from_second), (to_second, from_first)] = [mpsc::channel(), mpsc::channel()];
    // Yields one request, waits until the other iterator has too, and yields another.
    let meets = |queue: Queue, tell: Sender<()>, told: Receiver<()>| {
        move || {
            let mut met = false;
            submit(
                &queue,
                (0..2).map(|tag| {
                    if tag == 1 {
                        _ = tell.send(());
                        met = told.recv_timeout(PATIENCE).is_ok();
                    }
                    read(&queue, tag)
                }),
            );
            (met, drain(&queue).into_iter().filter(|done| done.result.is_ok()).count())
        }
    };
    let [first, second] = sharing();
    let threads = [
        thread::spawn(meets(first, to_second, from_second)),
        thread::spawn(meets(second, to_first, from_first)),
    ];
    let met = threads.map(|thread| thread.join().unwrap());
    assert_eq!(
        met,
        [(true, 2); 2],
        "each: whether it has met the other, and how many of its requests ended well"
    );
}

#[test]
fn iterator_may_wait_for_a_completion() {
    let _alone = alone();
    let [first, second] = sharing();
    let ((tell_inside, inside), (tell_done, done)) = (mpsc::channel(), mpsc::channel());
    let waiter = thread::spawn(move || {
        let mut told = false;
        submit(
            &first,
            (0..2).map(|tag| {
                if tag == 1 {
                    _ = tell_inside.send(());
                    told = done.recv_timeout(PATIENCE).is_ok();
                }
                read(&first, tag)
            }),
        );
        (told, drain(&first).into_iter().filter(|done| done.result.is_ok()).count())
    });
    let other = thread::spawn(move || {
        inside.recv_timeout(PATIENCE).unwrap();
        submit(&second, [read(&second, 0)]);
        drain(&second).into_iter().for_each(|done| done.result.unwrap());
        _ = tell_done.send(());
    });
    other.join().unwrap();
    assert_eq!(
        waiter.join().unwrap(),
        (true, 2),
        "whether it was told, and how many of its requests ended well"
    );
}

/// A request is finished and not reaped, and the iterator of the next batch asks, reaps and submits
/// on its own queue. Each request ends once; one that is refused comes back.
fn uses_its_own_queue(uri: &'static str) {
    let (ended, refused) =
        in_time(&format!("{uri}: an iterator that uses its own queue"), move || {
            let device = open(uri, OpenOptions::default());
            let queue = device.queue().unwrap();
            submit(&queue, [read(&queue, 1)]);
            queue.wait(1, None).unwrap();
            assert_eq!((queue.in_flight(), queue.finished()), (0, 1));
            let (mut out, mut refused) = (Vec::with_capacity(8), Vec::new());
            let uses = (2..4).map(|tag| {
                assert!(queue.in_flight() as usize + queue.finished() <= 3);
                queue.reap(&mut out);
                if let Err((_, request)) = queue.submit([read(&queue, 10 + tag)]) {
                    refused.push(request.number());
                }
                read(&queue, tag)
            });
            submit(&queue, uses);
            out.append(&mut drain(&queue));
            assert!(out.iter().all(|done| done.result.is_ok()));
            (out.iter().map(|done| done.tag).collect::<Vec<_>>(), refused)
        });
    let all: BTreeSet<u64> = ended.iter().chain(&refused).copied().collect();
    assert_eq!(all, BTreeSet::from([1, 2, 3, 12, 13]), "ended {ended:?}, refused {refused:?}");
    assert_eq!(ended.len() + refused.len(), all.len(), "ended {ended:?}, refused {refused:?}");
    assert!(refused.is_empty() || refused == [12, 13], "refused now and then: {refused:?}");
}

#[test]
fn iterator_may_use_its_queue() {
    let _alone = alone();
    uses_its_own_queue("mem:16M?profile=optane");
}

#[test]
fn multipath_iterator_may_use_its_queue() {
    let _alone = alone();
    uses_its_own_queue("multipath:?path=mem:16M&path=mem:16M&keep_alive=0s");
}
