//! Whole-stack: several controllers as one device. Whatever happens to a path, the application sees
//! neither an error nor a wrong byte.
//!
//! `REAP_PATH_KILLS=200 cargo test --release -p reap-nvme --test stack killed -- --nocapture` kills
//! a path as often, and says how long the longest stall was.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{open, wait_for_path};
use crate::happened::happened;
use crate::work::drain;
use reap::paths::Policy;
use reap::{Change, Device, EventKind, Loss, Mode, Nanos, OpenOptions, PathLink, Queue, Request};

/// Two paths that nothing watches.
const TWO: &str = "multipath:?path=mem:64M?profile=null&path=mem:64M?profile=null&keep_alive=0s";

/// Where paths are watched, for so long. A Keep Alive that is late because this machine keeps a
/// thread from its CPU loses a path as well: no test may count how often that happens.
const WATCHED: &str = "keep_alive=2s";

/// Byte `i` of the block at `lba` in its generation `g`.
fn pattern(lba: u64, i: usize, g: u64) -> u8 {
    (lba.wrapping_mul(31) ^ i as u64 ^ g.wrapping_mul(0x9e37)) as u8
}

fn write(ns: &reap::Namespace, queue: &Queue, lba: u64, g: u64) -> Request {
    let mut buf = queue.buffer(4096).unwrap();
    buf.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern(lba, i, g));
    Request::write(ns, lba, buf)
}

fn is(buf: &[u8], lba: u64, g: u64) -> bool {
    buf.iter().enumerate().all(|(i, &byte)| byte == pattern(lba, i, g))
}

/// What is in flight, over all paths.
fn in_flight(device: &Device) -> u64 {
    device.paths().iter().map(|path| path.in_flight).sum()
}

/// Waits for all that is in flight.
/// Writes and reads back `blocks` blocks of 4 KiB, `depth` at a time.
fn round_trip(queue: &Queue, blocks: u64, depth: u64, g: u64) {
    let ns = queue.namespaces()[0];
    for begin in (0..blocks).step_by(depth as usize) {
        let lbas = (begin..blocks.min(begin + depth)).map(|n| n * 8);
        queue
            .submit(lbas.clone().map(|lba| write(&ns, queue, lba, g).tag(lba)))
            .map_err(|(why, _)| why)
            .unwrap();
        for done in drain(queue) {
            done.result.unwrap();
        }
        queue
            .submit(lbas.map(|lba| Request::read(&ns, lba, queue.buffer(4096).unwrap()).tag(lba)))
            .map_err(|(why, _)| why)
            .unwrap();
        for done in drain(queue) {
            done.result.unwrap();
            assert!(is(&done.buf.unwrap(), done.tag, g), "block {}", done.tag);
        }
    }
}

#[test]
fn data_survive_every_policy_and_mode() {
    for mode in [Mode::INTERRUPT, Mode::POLL, "irq-poll".parse().unwrap()] {
        let device = open(TWO, OpenOptions::new().mode(mode));
        let queue = device.queue().unwrap();
        for (g, policy) in (0..).zip(Policy::ALL) {
            device.set_path_policy(policy);
            assert_eq!(device.path_policy(), Some(policy));
            round_trip(&queue, 64, 16, g);
        }
        assert_eq!(in_flight(&device), 0, "something is still counted");
        let paths = device.paths();
        assert!(
            paths.iter().all(|path| path.ios > 0 && path.failed == 0 && path.in_flight == 0),
            "{paths:?}"
        );
        assert!(paths.iter().all(|path| path.status.link == PathLink::Live), "{paths:?}");
    }
}

/// One path is driven without the others' event loop: by batches, futures, a group and a loop of
/// the application's own.
#[test]
fn one_path_serves_alone() {
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE] {
        let device = open("multipath:?path=mem:64M?profile=optane", OpenOptions::new().mode(mode));
        let queue = device.queue().unwrap();
        let ns = queue.namespaces()[0];
        round_trip(&queue, 64, 16, 1);
        for lba in (0..64).step_by(8) {
            let (result, buf) =
                queue.block_on(queue.read(&ns, lba, queue.buffer(4096).unwrap())).unwrap();
            assert!(result.is_ok() && is(&buf, lba, 1), "in {mode}");
        }
        let late = reap::Instant::now() + Duration::from_millis(5);
        assert_eq!(queue.wait(1, Some(late)).unwrap(), 0, "nothing is in flight");
        queue
            .submit([Request::read(&ns, 0, queue.buffer(4096).unwrap())])
            .map_err(|(why, _)| why)
            .unwrap();
        while queue.finished() == 0 {
            queue.poll_events(8);
        }
        queue.leave_loop();
        let group = reap::Group::new(vec![queue]).unwrap();
        let queue = &group.queues()[0];
        queue
            .submit([Request::read(&ns, 8, queue.buffer(4096).unwrap())])
            .map_err(|(why, _)| why)
            .unwrap();
        assert_eq!(group.wait(2, None).unwrap(), 2, "in {mode}");
        assert!(drain(queue).iter().all(|done| done.result.is_ok()));
        assert_eq!(in_flight(&device), 0);
    }
}

#[test]
fn futures_and_flushes_over_paths() {
    let device = open(TWO, OpenOptions::default());
    let queue = device.queue().unwrap();
    let ns = device.namespaces()[0];
    let read_back = async {
        let (written, buf) = queue.write(&ns, 8, device.buffer(4096).unwrap()).await;
        written.unwrap();
        queue.flush(&ns).await.unwrap();
        let (read, _) = queue.read(&ns, 8, buf).await;
        read
    };
    queue.block_on(read_back).unwrap().unwrap();
    // One that is dropped, and one that outlives its queue.
    drop(queue.read(&ns, 0, device.buffer(4096).unwrap()));
    let late = queue.read(&ns, 0, device.buffer(4096).unwrap());
    drop(queue);
    let other = device_queue(&device);
    other.block_on(late).unwrap().0.unwrap();
}

thread_local! {
    /// The queue that [`UsesTheQueue`] uses.
    static QUEUE: RefCell<Option<Rc<Queue>>> = const { RefCell::new(None) };
}

/// Memory whose end is code of the application's: it submits a request. Says whether that was
/// accepted.
struct UsesTheQueue(mpsc::Sender<bool>);

impl Drop for UsesTheQueue {
    fn drop(&mut self) {
        let queue = QUEUE.with(|queue| queue.borrow().clone());
        let read =
            |queue: &Queue| Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
        self.0.send(queue.is_some_and(|queue| queue.submit([read(&queue)]).is_ok())).unwrap();
    }
}

/// The future is dropped while its request is on its way, so that nobody claims the memory: it ends
/// where nothing is locked.
#[test]
fn unclaimed_memory_drops_outside_the_queue() {
    let device = open(TWO, OpenOptions::default());
    let queue = Rc::new(device.queue().unwrap());
    QUEUE.set(Some(queue.clone()));
    let ((tell, told), pages) = (mpsc::channel(), reap::Pages::new(1 << 16).unwrap());
    let region = device.register((pages, UsesTheQueue(tell))).map_err(|(why, _)| why).unwrap();
    let buffer = region.buffer(0..4096).unwrap();
    drop(region);
    drop(queue.read(&queue.namespaces()[0], 0, buffer));
    let ended = drain(&queue);
    assert_eq!(told.try_recv(), Ok(true), "it was dropped while the queue was locked");
    assert!(ended.len() == 1 && ended[0].result.is_ok(), "{ended:?}");
    QUEUE.take();
}

/// A controller that hangs is found by its Keep Alive, long before any command's time-out; it is
/// lost from then on, and reads go another way although its reset has yet to fail.
#[test]
fn hung_path_is_left_and_reused() {
    let device = open(
        &format!("{TWO_QUIET}&policy=numa&{WATCHED}"),
        OpenOptions::new().timeout(std::time::Duration::from_secs(3600)),
    );
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let read = |queue: &Queue| {
        queue
            .submit([Request::read(&ns, 0, queue.buffer(4096).unwrap())])
            .map_err(|(why, _)| why)
            .unwrap();
        drain(queue).remove(0).result.unwrap();
    };
    read(&queue);
    wait_for_path(&device, 0, PathLink::Live);
    device.embedded().unwrap().change_path(0, Change::Lost(Loss::Frozen)).unwrap();
    read(&queue);
    let paths = device.paths();
    assert!(
        paths[0].status.link == PathLink::Lost && paths[0].failed >= 1 && paths[1].ios >= 1,
        "{paths:?}"
    );
    assert!(device.failover().failed_over >= 1);
    device.embedded().unwrap().change_path(0, Change::Back).unwrap();
    let limit = reap::Instant::now() + Duration::from_secs(60);
    while device.paths()[0].ios == paths[0].ios {
        assert!(
            reap::Instant::now() < limit,
            "it is the nearest, and is not used again: {:?}",
            device.paths()
        );
        read(&queue);
    }
}

/// What a foreign loop would have waited for in `wait` comes in `turn`, and at the deadline that it
/// was given.
#[test]
fn foreign_loop_stops_waiting_for_paths() {
    let device =
        open(&format!("{TWO_QUIET}&{WATCHED}&no_path_timeout=50ms"), OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    (0..2).for_each(|path| {
        device.embedded().unwrap().change_path(path, Change::Lost(Loss::Gone)).unwrap()
    });
    (0..2).for_each(|path| wait_for_path(&device, path, PathLink::Lost));
    queue
        .submit([Request::read(&ns, 0, queue.buffer(4096).unwrap())])
        .map_err(|(why, _)| why)
        .unwrap();
    let poller = hw::Poller::new().unwrap();
    poller.add(&queue, 0).unwrap();
    let (mut turns, mut events) = (0, Vec::new());
    while queue.finished() == 0 {
        turns += 1;
        assert!(turns < 1_000, "the deadline passes, and nothing comes of it");
        if !queue.poll_events(64).more {
            let timeout = queue
                .next_deadline()
                .map(|deadline| reap::Nanos::from(deadline - reap::Instant::now()));
            poller.wait(timeout, &mut events).unwrap();
        }
    }
    let mut out = Vec::new();
    queue.reap(&mut out);
    let failed = out[0].result.unwrap_err().to_string();
    assert!(failed.contains("no path was usable"), "{failed}");
}

/// One waits for a path, and its thread sleeps until the other says that nobody waits any longer.
#[test]
fn zero_patience_fails_at_once() {
    let device =
        open(&format!("{TWO_QUIET}&{WATCHED}&no_path_timeout=3600s"), OpenOptions::default());
    let ns = device.namespaces()[0];
    (0..2).for_each(|path| {
        device.embedded().unwrap().change_path(path, Change::Lost(Loss::Gone)).unwrap()
    });
    (0..2).for_each(|path| wait_for_path(&device, path, PathLink::Lost));
    let read = |queue: &Queue| {
        queue
            .submit([Request::read(&ns, 0, queue.buffer(4096).unwrap())])
            .map_err(|(why, _)| why)
            .unwrap();
        drain(queue).remove(0).result.unwrap_err().to_string()
    };
    let queue = device.queue().unwrap();
    let (failed, queue) = std::thread::scope(|scope| {
        let waits = scope.spawn(|| (read(&queue), queue));
        // Long enough for it to sleep by then, as a rule; it ends whether it does or not.
        std::thread::sleep(Duration::from_millis(20));
        device.fail_pending();
        waits.join().unwrap()
    });
    assert!(failed.contains("no path was usable"), "{failed}");
    assert!(read(&queue).contains("no path was usable"), "nor does a later one wait");
}

/// A write goes into a controller that holds it, and is then lost with it. The host ends that
/// write, and a later one to the same block; only then the controller lets go, and may come back.
/// What the block holds in the end, and in between.
fn held_write(parameters: &str, back_first: bool) -> (Device, impl Fn(&Device) -> u64) {
    // A path that is back before the later write is sent holds that as well, until it is late. The
    // first is not late before it is lost.
    let options =
        OpenOptions::new().timeout(Duration::from_secs(if back_first { 6 } else { 3600 }));
    let device = open(&format!("{TWO_QUIET}&policy=numa&{parameters}"), options);
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let submit = |request| queue.submit([request]).map_err(|(why, _)| why).unwrap();
    device.embedded().unwrap().change_path(0, Change::Hold(Some(units::Op::Write))).unwrap();
    let read = || {
        submit(Request::read(&ns, 8, queue.buffer(4096).unwrap()).tag(1));
        queue.wait(1, None).unwrap();
        let mut answered = Vec::with_capacity(1);
        queue.reap(&mut answered);
        assert_eq!(answered[0].tag, 1, "the write was not held");
    };
    // This drive answers in a later step than it fetches in: by then it knows that it is to hold
    // writes.
    read();
    submit(write(&ns, &queue, 0, 1));
    // Commands are fetched in order: once this is answered, the write is inside.
    read();
    device.embedded().unwrap().change_path(0, Change::Lost(Loss::Gone)).unwrap();
    wait_for_path(&device, 0, PathLink::Lost);
    if back_first {
        device.embedded().unwrap().change_path(0, Change::Back).unwrap();
    }
    drain(&queue).remove(0).result.unwrap();
    submit(write(&ns, &queue, 0, 2));
    drain(&queue).remove(0).result.unwrap();
    device.embedded().unwrap().change_path(0, Change::Release).unwrap();
    let generation = move |device: &Device| {
        queue
            .submit([Request::read(&ns, 0, device.buffer(4096).unwrap())])
            .map_err(|(why, _)| why)
            .unwrap();
        let done = drain(&queue).remove(0);
        done.result.unwrap();
        let buf = done.buf.unwrap();
        (0..3).find(|&g| is(&buf, 0, g)).expect("one of the writes, and not a mix")
    };
    (device, generation)
}

const TWO_QUIET: &str = "multipath:?path=mem:64M?profile=optane&path=mem:64M?profile=optane";

/// No ghost writes, through the whole library: the later data stand, whether the controller is gone
/// until its keep-alive has run out, or comes back and is reset.
#[test]
fn held_write_never_overwrites_later_data() {
    for (parameters, back_first) in [(WATCHED, false), ("keep_alive=0s", true)] {
        let (device, generation) = held_write(parameters, back_first);
        assert_eq!(generation(&device), 2, "{parameters}");
        if !back_first {
            device.embedded().unwrap().change_path(0, Change::Back).unwrap();
        }
        wait_for_path(&device, 0, PathLink::Live);
        assert_eq!(generation(&device), 2, "{parameters}: once the path is back");
        let failover = device.failover();
        assert!(failover.held >= 1 && failover.longest_hold > Nanos::ZERO, "{failover:?}");
    }
}

/// The twin that does not wait: what it wrote later is undone.
#[test]
fn negative_early_resend_undoes_write() {
    let (device, generation) = held_write("keep_alive=0s&unsafe_fast_failover", false);
    let limit = reap::Instant::now() + std::time::Duration::from_secs(60);
    while generation(&device) != 1 {
        assert!(reap::Instant::now() < limit, "the twin passed: the test proves nothing");
    }
    assert_eq!(device.failover().unsafe_resends, 1);
}

/// `numa` takes the path whose controller is said to be on this CPU's node; a node that is not
/// there is refused.
#[test]
fn nearest_path_is_taken() {
    let device = open(
        "multipath:?path=mem:64M&path=mem:64M?node=0&policy=numa&keep_alive=0s",
        OpenOptions::default(),
    );
    round_trip(&device.queue().unwrap(), 8, 4, 1);
    let ios: Vec<u64> = device.paths().iter().map(|path| path.ios).collect();
    // The machine that this runs on may have more nodes, of which all are nearer than nowhere.
    assert_eq!(ios, [0, 16]);
    let error = Device::open("multipath:?path=mem:64M&path=mem:64M?node=4000")
        .err()
        .map(|e| e.to_string())
        .unwrap_or_default();
    assert!(error.contains("there is no memory node 4000 here"), "{error}");
}

/// Paths whose URIs name different media are refused, and each field in which they differ is named
/// with both values.
#[test]
fn different_media_are_refused_by_field() {
    let refused = |other: &str| {
        Device::open(&format!("multipath:?path=mem:64M&path={other}"))
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    for (other, told) in [
        (
            "mem:32M",
            "path 1 (`mem:32M`) leads to another namespace than path 0 (`mem:64M`): size is 32M, and 64M on path 0",
        ),
        ("mem:64M?lba=4096", ": `lba` is 4096, and 512 on path 0"),
        ("mem:64M?namespaces=3", ": `namespaces` is 3, and 1 on path 0"),
        ("mem:64M?alloc=1M", ": `alloc` is 1M, and not given on path 0"),
        ("mem:32M?lba=4096", ": size is 32M, and 64M on path 0; `lba` is 4096, and 512 on path 0"),
        ("file:/no/such", ": medium is the file /no/such, and memory (`mem:`) on path 0"),
    ] {
        let error = refused(other);
        assert!(error.contains(told), "{error}");
    }
    assert_eq!(
        refused("mem:65536K?profile=null%26queues=2"),
        "",
        "what is a controller's own may differ"
    );
    let error = Device::open("multipath:?path=mem:64M&path=mem:64M&nsid=3")
        .err()
        .map(|e| e.to_string())
        .unwrap_or_default();
    assert!(error.contains("path 0 (`mem:64M`) does not lead to namespace 3: it has 1"), "{error}");
}

fn resize(device: &Device, path: usize, blocks: u64) {
    device
        .embedded()
        .unwrap()
        .change_path(path, Change::Resize { nsid: nvme::Nsid(1), blocks })
        .unwrap();
}

/// Waits until the device's namespace has this many blocks, and each path is used or not.
fn wait_for_size(device: &Device, blocks: u64, fits: [bool; 2]) -> reap::Namespace {
    let limit = reap::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let (now, seen) = (
            device.current(&device.namespaces()[0]),
            device.paths().iter().map(|path| path.status.fits).collect::<Vec<_>>(),
        );
        if now.blocks() == blocks && seen == fits {
            return now;
        }
        assert!(reap::Instant::now() < limit, "{} blocks, {seen:?}", now.blocks());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A namespace shrinks and grows, on one controller and then on the other. The path whose
/// controller has not heard of it is not used; what is beyond the new end fails with the
/// controller's status, or is refused with a newer handle.
#[test]
fn resized_namespace_gets_new_size() {
    let device = open(&format!("{TWO}&policy=round-robin"), OpenOptions::default());
    let (queue, old) = (device.queue().unwrap(), device.namespaces()[0]);
    let last = |ns: &reap::Namespace| ns.blocks() - 8;
    let sent = || device.paths().iter().map(|path| path.ios).collect::<Vec<_>>();
    let all = old.blocks();
    resize(&device, 0, all / 2);
    let half = wait_for_size(&device, all / 2, [true, false]);
    round_trip(&queue, 8, 4, 1);
    let before = sent();
    round_trip(&queue, 8, 4, 2);
    assert_eq!(
        (sent()[0] - before[0], sent()[1] - before[1]),
        (16, 0),
        "a path of the old size is used"
    );
    // The old handle knows nothing: the controller does.
    let read = |ns: &reap::Namespace, lba| {
        queue.block_on(queue.read(ns, lba, queue.buffer(4096).unwrap())).unwrap().0
    };
    let failed = read(&old, last(&old));
    assert!(
        matches!(failed, Err(reap::IoError::Status(status)) if status.kind() == nvme::Status::LBA_OUT_OF_RANGE),
        "{failed:?}"
    );
    assert!(matches!(read(&half, last(&old)), Err(reap::IoError::Refused(_))));
    assert_eq!(read(&half, last(&half)), Ok(()));
    resize(&device, 1, all / 2);
    wait_for_size(&device, all / 2, [true, true]);
    // It grows, seen first by the other controller.
    resize(&device, 1, all);
    let whole = wait_for_size(&device, all, [false, true]);
    assert_eq!(read(&whole, last(&whole)), Ok(()));
    resize(&device, 0, all);
    wait_for_size(&device, all, [true, true]);
    round_trip(&queue, 8, 4, 3);
    // Detached from one controller it is where it was on the other.
    resize(&device, 0, 0);
    wait_for_size(&device, all, [false, true]);
    round_trip(&queue, 8, 4, 4);
    let events = happened(&device);
    let grown = EventKind::Resized { nsid: nvme::Nsid(1), before: all / 2, blocks: all };
    assert_eq!(events.iter().filter(|event| **event == grown).count(), 2, "{events:?}");
}

/// A path that was away while the namespace was resized is used again only when its controller has
/// heard of it.
#[test]
fn path_with_old_size_stays_unused() {
    let device = open(TWO, OpenOptions::default());
    let all = device.namespaces()[0].blocks();
    device.embedded().unwrap().change_path(1, Change::Lost(Loss::Gone)).unwrap();
    wait_for_path(&device, 1, PathLink::Lost);
    resize(&device, 0, all / 2);
    wait_for_size(&device, all / 2, [true, false]);
    device.embedded().unwrap().change_path(1, Change::Back).unwrap();
    wait_for_path(&device, 1, PathLink::Live);
    wait_for_size(&device, all / 2, [true, false]);
    resize(&device, 1, all / 2);
    wait_for_size(&device, all / 2, [true, true]);
}

/// Writes to both paths, takes one away and back, and flushes. `how`: what happened to its
/// controller meanwhile.
fn flush_after(how: Change) -> (Result<(), reap::IoError>, Vec<EventKind>) {
    // A file has a volatile cache, memory has none.
    let file = std::env::temp_dir().join(format!("reap-multipath-{}", std::process::id()));
    let path = format!("path=file:{}?size=1M%26profile=null", file.display());
    let device = open(
        &format!("multipath:?{path}&{path}&policy=round-robin&keep_alive=0s"),
        OpenOptions::default(),
    );
    std::fs::remove_file(&file).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let away_and_back = |how| {
        device.embedded().unwrap().change_path(1, how).unwrap();
        wait_for_path(&device, 1, PathLink::Lost);
        device.embedded().unwrap().change_path(1, Change::Back).unwrap();
        wait_for_path(&device, 1, PathLink::Live);
    };
    // A path comes back once its health log has been read: what it says of power is known from here
    // on.
    away_and_back(Change::Lost(Loss::Gone));
    queue.submit((0..8).map(|n| write(&ns, &queue, n * 8, 1))).map_err(|(why, _)| why).unwrap();
    drain(&queue);
    away_and_back(how);
    let flushed = queue.block_on(queue.flush(&ns)).unwrap();
    assert_eq!(queue.block_on(queue.flush(&ns)).unwrap(), flushed, "once lost, always lost");
    (flushed, happened(&device))
}

/// A controller that lost its power with writes in its volatile cache cannot flush them, and says
/// nothing of it but in its health log. A Flush that succeeded would be a lie. The twin loses the
/// path alone: there nothing is lost, and the Flush succeeds.
#[test]
fn lost_cached_writes_fail_the_flush() {
    let (flushed, events) = flush_after(Change::PowerLost);
    let told = flushed.map_err(|e| e.to_string()).unwrap_err();
    assert!(told.contains("path 1"), "{told}");
    assert!(
        events.iter().any(|event| event.to_string().contains("has lost its power")),
        "{events:?}"
    );
    let (flushed, events) = flush_after(Change::Lost(Loss::Gone));
    assert_eq!(flushed, Ok(()), "{events:?}");
}

/// A thread that drops a queue gives up its requests in flight: they are not counted any more, and
/// no path seems busy for ever.
#[test]
fn dropped_queue_leaves_no_count() {
    let device = open(
        "multipath:?path=mem:64M?profile=tlc&path=mem:64M?profile=tlc&keep_alive=0s",
        OpenOptions::default(),
    );
    for policy in Policy::ALL {
        device.set_path_policy(policy);
        let queue = device_queue(&device);
        let ns = device.namespaces()[0];
        let requests = (0..32).map(|n| Request::read(&ns, n * 8, queue.buffer(4096).unwrap()));
        queue.submit(requests).map_err(|(why, _)| why).unwrap();
        drop(queue);
        assert_eq!(in_flight(&device), 0, "{policy}");
        assert!(
            device.paths().iter().all(|path| path.in_flight == 0),
            "{policy}: {:?}",
            device.paths()
        );
    }
}

/// A software queue as soon as there is one: one that futures have outlived is given back when they
/// are done.
fn device_queue(device: &Device) -> Queue {
    for _ in 0..6000 {
        match device.queue() {
            Ok(queue) => return queue,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("the queue was not given back");
}

/// Keeps requests in flight on blocks whose generations it knows, and checks every read.
struct Load<'a> {
    queue: &'a Queue,
    generations: Vec<u64>,
    /// Blocks with a request in flight.
    busy: Vec<bool>,
    random: u64,
    longest: Nanos,
    ended: u64,
}

impl<'a> Load<'a> {
    fn new(queue: &'a Queue, blocks: usize, seed: u64) -> Load<'a> {
        Load {
            queue,
            generations: vec![0; blocks],
            busy: vec![false; blocks],
            random: seed | 1,
            longest: Nanos::ZERO,
            ended: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// One round: fills up to `depth` requests in flight, waits for some, and checks them.
    fn step(&mut self, depth: u32) {
        let ns = self.queue.namespaces()[0];
        let mut batch = Vec::new();
        while self.queue.in_flight() + (batch.len() as u32) < depth {
            let at = self.draw(self.generations.len() as u64) as usize;
            if std::mem::replace(&mut self.busy[at], true) {
                continue;
            }
            let lba = at as u64 * 8;
            let writes = self.generations[at] == 0 || self.draw(2) == 0;
            let request = if writes {
                self.generations[at] += 1;
                write(&ns, self.queue, lba, self.generations[at])
            } else {
                Request::read(&ns, lba, self.queue.buffer(4096).unwrap())
            };
            batch.push(request.tag(at as u64 | u64::from(writes) << 32));
        }
        if self.draw(64) == 0 {
            batch.push(Request::flush(&ns).tag(u64::MAX));
        }
        self.queue.submit(batch).map_err(|(why, _)| why).unwrap();
        self.queue
            .wait(1, Some(reap::Instant::now() + std::time::Duration::from_millis(20)))
            .unwrap();
        self.check();
    }

    fn check(&mut self) {
        let mut out = Vec::with_capacity(256);
        self.queue.reap(&mut out);
        for done in out {
            self.ended += 1;
            self.longest = self.longest.max((done.completed_at - done.submitted_at).into());
            if let Err(error) = done.result {
                panic!("an I/O error reached the application: {error}");
            }
            if done.tag == u64::MAX {
                continue;
            }
            let at = done.tag as u32 as usize;
            self.busy[at] = false;
            let wrote = done.tag >> 32 == 1;
            let buf = done.buf.expect("the buffer comes back");
            assert!(
                wrote || is(&buf, at as u64 * 8, self.generations[at]),
                "block {at} is not what was written last"
            );
        }
    }

    fn finish(&mut self) {
        while self.queue.in_flight() > 0 || self.queue.finished() > 0 {
            self.queue.wait(1, None).unwrap();
            self.check();
        }
    }

    /// Everything that was ever written is there.
    fn read_all(&mut self) {
        let ns = self.queue.namespaces()[0];
        for at in 0..self.generations.len() {
            if self.generations[at] > 0 {
                self.busy[at] = true;
                let request = Request::read(&ns, at as u64 * 8, self.queue.buffer(4096).unwrap());
                self.queue.submit([request.tag(at as u64)]).map_err(|(why, _)| why).unwrap();
                self.finish();
            }
        }
    }
}

fn kills() -> u64 {
    std::env::var("REAP_PATH_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

/// Goal of the project: paths are killed and returned at random moments under verified load. No I/O
/// error reaches the application, no byte is wrong, and the longest stall is told.
#[test]
fn killed_paths_lose_nothing() {
    let device = open(
        &format!("{TWO_QUIET}&policy=latency&{WATCHED}"),
        OpenOptions::new().mode(Mode::INTERRUPT),
    );
    let queue = device.queue().unwrap();
    let mut load = Load::new(&queue, 512, 0x5eed);
    let (kills, mut seen) = (kills(), 0);
    for kill in 0..kills {
        let (path, frozen) = (load.draw(2) as usize, load.draw(4) == 0);
        let loss = if frozen { Loss::Frozen } else { Loss::Gone };
        let before = reap::Instant::now() + std::time::Duration::from_nanos(load.draw(20_000_000));
        while reap::Instant::now() < before {
            load.step(16);
        }
        device.embedded().unwrap().change_path(path, Change::Lost(loss)).unwrap();
        let back = reap::Instant::now()
            + std::time::Duration::from_nanos(load.draw(if kill % 8 == 7 {
                400_000_000
            } else {
                40_000_000
            }));
        // One that nobody has missed yet may come back as if nothing had been; every other one that
        // is pulled out is missed first.
        let (missed, mut lost) = (!frozen && kill % 2 == 0, false);
        let limit = back + std::time::Duration::from_secs(60);
        while reap::Instant::now() < back || missed && !lost {
            assert!(
                reap::Instant::now() < limit,
                "path {path} is not missed: {:?}",
                device.paths()
            );
            load.step(16);
            lost |= device.paths()[path].status.link == PathLink::Lost;
        }
        seen += u32::from(lost);
        device.embedded().unwrap().change_path(path, Change::Back).unwrap();
        // Until it is used again: one path is always up.
        let limit = reap::Instant::now() + std::time::Duration::from_secs(60);
        while device.paths()[path].status.link != PathLink::Live {
            assert!(
                reap::Instant::now() < limit,
                "path {path} does not come back: {:?}",
                device.paths()
            );
            load.step(16);
        }
    }
    load.finish();
    load.read_all();
    let failover = device.failover();
    println!(
        "{kills} kills, {} requests: longest request {}, longest stall {}, {} sent again, {} writes held (longest {})",
        load.ended,
        load.longest,
        failover.longest_stall,
        failover.failed_over,
        failover.held,
        failover.longest_hold
    );
    assert_eq!(in_flight(&device), 0, "something is still counted");
    assert_eq!(device.counters().leaked_bytes, 0, "buffers were leaked");
    // A path that is lost comes back by a reset, and only so.
    assert!(
        seen > 0 && device.health().resets >= seen,
        "{seen} losses were seen: {:?}",
        device.health()
    );
}
