//! The ways to drive a queue.

use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use reap::{
    Completion, Device, Group, LocalQueue, Mode, Nanos, Queue, QueueError, Reactor, Request,
};

use super::place::{Scratch, companion, options};
use super::table::everywhere;
use super::work::{begin, differs, fill};

#[test]
fn futures_of_one_queue_end_together() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            let device = place.open(1, mode);
            place.on_each_kind(&device, |queue, _| {
                let (ns, block) =
                    (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
                let per = 4096 / block as u64;
                let writes: Vec<_> = (0..24)
                    .map(|n| {
                        let mut buf = queue.buffer(4096).unwrap();
                        fill(&mut buf, n * per, block, 3);
                        queue.write(&ns, n * per, buf)
                    })
                    .collect();
                queue
                    .block_on(async {
                        // The last first: the others have ended meanwhile, or end later.
                        for (n, write) in writes.into_iter().enumerate().rev() {
                            let (result, buf) = write.await;
                            result.unwrap();
                            let (result, buf) = queue.read(&ns, n as u64 * per, buf).await;
                            result.unwrap();
                            assert_eq!(differs(&buf, n as u64 * per, block, 3), None, "{mode}");
                        }
                        queue.flush(&ns).await.unwrap();
                    })
                    .unwrap();
            });
        }
    });
}

fn rounds<Q: AsRef<Queue>>(group: &Group<Q>, mode: Mode) {
    let mut out = Vec::with_capacity(64);
    for round in 0..8 {
        let all = group.queues().iter().map(AsRef::as_ref);
        all.clone().for_each(|queue| begin(queue, 20));
        let posted = 20 * group.queues().len();
        // Some of them, and then the rest.
        assert!(group.wait(5, None).unwrap() >= 5);
        assert_eq!(group.wait(posted, None).unwrap(), posted, "{mode}, round {round}");
        all.for_each(|queue| _ = queue.reap(&mut out));
        assert_eq!(out.drain(..).filter(|done: &Completion| done.result.is_ok()).count(), posted);
    }
}

#[test]
fn group_takes_turns_over_devices() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            let (device, memory) = (place.open(2, mode), companion());
            let queues =
                vec![device.queue().unwrap(), memory.queue().unwrap(), device.queue().unwrap()];
            rounds(&Group::new(queues).unwrap(), mode);
            let queues = vec![
                device.local_queue().unwrap(),
                memory.local_queue().unwrap(),
                device.local_queue().unwrap(),
            ];
            let group: Group<LocalQueue> = Group::new(queues).unwrap();
            rounds(&group, mode);
        }
    });
}

/// Whatever is switched meanwhile, to and fro, nothing is lost and nothing comes twice.
fn files_of_a_group_change_their_modes<Q: AsRef<Queue>>(
    devices: &[Device],
    take: impl Fn(&Device) -> Q,
) {
    let group = Group::new(devices.iter().map(take).collect()).unwrap();
    for mode in Mode::ALL {
        group.queues().iter().for_each(|queue| queue.as_ref().set_mode(Mode::POSTED));
        rounds(&group, Mode::POSTED);
        for (from, to) in [(Mode::POSTED, mode), (mode, Mode::POSTED)] {
            for changed in 1..=group.queues().len() {
                let all = || group.queues().iter().map(AsRef::as_ref);
                all().for_each(|queue| queue.set_mode(from));
                all().for_each(|queue| begin(queue, 20));
                all().take(changed).for_each(|queue| queue.set_mode(to));
                // More of them there, and where the mode is another by then.
                all().for_each(|queue| begin(queue, 5));
                let posted = 25 * devices.len();
                assert_eq!(
                    group.wait(posted, None).unwrap(),
                    posted,
                    "from {from} to {to} of {changed}"
                );
                let mut out = Vec::with_capacity(posted);
                all().for_each(|queue| _ = queue.reap(&mut out));
                assert!(
                    out.len() == posted && out.iter().all(|done| done.result.is_ok()),
                    "from {from} to {to}: {out:?}"
                );
            }
        }
    }
}

/// Files of their own, and a device over each.
fn files(several: usize) -> Option<(Vec<Scratch>, Vec<Device>)> {
    let files: Vec<_> = (0..several).map(|_| Scratch::new("group", 4 << 20)).collect();
    let open = |file: &Scratch| Device::open_with(&file.uri(), &options(2).mode(Mode::POSTED));
    match files.iter().map(open).collect() {
        Ok(devices) => Some((files, devices)),
        Err(why) => {
            eprintln!("NOT TESTED: {why}");
            None
        }
    }
}

#[test]
fn group_files_switch_modes() {
    let Some((_files, devices)) = files(3) else { return };
    files_of_a_group_change_their_modes(&devices, |device| device.local_queue().unwrap());
    files_of_a_group_change_their_modes(&devices, |device| device.queue().unwrap());
}

/// Each can be driven by itself, in the group and after it, while requests of the others are out;
/// and be let go.
#[test]
fn group_files_keep_own_modes() {
    let Some((files, devices)) = files(3) else { return };
    for owned in [true, false] {
        let local: Vec<LocalQueue> =
            devices.iter().filter(|_| owned).map(|device| device.local_queue().unwrap()).collect();
        let sent: Vec<Queue> =
            devices.iter().filter(|_| !owned).map(|device| device.queue().unwrap()).collect();
        let queues: Vec<&Queue> = local.iter().map(AsRef::as_ref).chain(&sent).collect();
        for round in 0..20 {
            let group = Group::new(queues.clone()).unwrap();
            rounds_once(&group, 10);
            queues.iter().for_each(|queue| begin(queue, 10));
            let alone = queues[round % 3];
            if round % 2 == 0 {
                assert_eq!(alone.wait(10, None).unwrap(), 10);
            } else {
                while alone.finished() < 10 {
                    alone.poll_events(8);
                }
                alone.leave_loop();
            }
            if round % 4 < 2 {
                drop(group);
            }
            for queue in &queues {
                assert_eq!(queue.wait(10, None).unwrap(), 10, "round {round}, owned: {owned}");
                let mut out = Vec::with_capacity(10);
                assert_eq!(queue.reap(&mut out), 10);
                assert!(out.iter().all(|done| done.result.is_ok()), "{out:?}");
            }
        }
        // Two groups at once that have a queue in common.
        let (one, other) =
            (Group::new(queues[..2].to_vec()).unwrap(), Group::new(queues[1..].to_vec()).unwrap());
        for round in 0..6 {
            rounds_once(if round % 2 == 0 { &one } else { &other }, 10);
        }
        drop((one, other));
        // Another group of some of them, and queues that go with requests out.
        let group = Group::new(queues[..2].to_vec()).unwrap();
        rounds_once(&group, 10);
        queues.iter().for_each(|queue| begin(queue, 10));
        drop(group);
        drop((local, sent));
    }
    drop(devices);
    for file in &files {
        let since = std::time::Instant::now();
        while let Err(why) = Device::open_with(&file.uri(), &options(1)) {
            assert!(since.elapsed() < Duration::from_secs(60), "{why}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// This many requests on each queue of a group.
fn rounds_once<Q: AsRef<Queue>>(group: &Group<Q>, several: usize) {
    let posted = several * group.queues().len();
    group.queues().iter().for_each(|queue| begin(queue.as_ref(), several as u64));
    assert_eq!(group.wait(posted, None).unwrap(), posted);
    let mut out = Vec::with_capacity(posted);
    group.queues().iter().for_each(|queue| _ = queue.as_ref().reap(&mut out));
    assert!(out.len() == posted && out.iter().all(|done| done.result.is_ok()), "{out:?}");
}

#[test]
fn foreign_loop_polls_a_batch() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            let device = place.open(1, mode);
            place.on_each_kind(&device, |queue, _| {
                let poller = hw::Poller::new().unwrap();
                poller.add(queue, 0).unwrap();
                for _ in 0..3 {
                    begin(queue, 24);
                    while queue.finished() < 24 {
                        if !queue.poll_events(8).more {
                            // What is only looked for tells nobody: the queue says when to come.
                            let due = queue
                                .next_deadline()
                                .map(|due| reap::Nanos::from(due - reap::Instant::now()));
                            poller.wait(due, &mut Vec::new()).unwrap();
                        }
                    }
                    let mut out = Vec::with_capacity(24);
                    queue.reap(&mut out);
                    assert!(out.iter().all(|done| done.result.is_ok()), "{mode}: {out:?}");
                }
                queue.leave_loop();
                // And then the queue's own.
                begin(queue, 24);
                assert_eq!(queue.wait(24, None).unwrap(), 24, "{mode}");
                queue.reap(&mut Vec::with_capacity(24));
            });
        }
    });
}

/// A queue of this thread's, as the runtime wants it.
struct Lent<'a>(&'a Queue);

impl AsRawFd for Lent<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// One future under an async runtime, which sleeps on the queue's descriptor.
async fn turned(queue: &tokio::io::unix::AsyncFd<Lent<'_>>, request: Request) -> Completion {
    let mut pending = pin!(queue.get_ref().0.start(request));
    loop {
        if let Poll::Ready(done) = pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        if queue.get_ref().0.poll_events(64).more || queue.get_ref().0.in_flight() == 0 {
            continue;
        }
        let left = queue
            .get_ref()
            .0
            .next_deadline()
            .map_or(Nanos::MAX, |deadline| reap::Nanos::from(deadline - reap::Instant::now()));
        if let Ok(ready) =
            tokio::time::timeout(Duration::from_nanos(left.0), queue.readable()).await
        {
            ready.unwrap().clear_ready();
        }
    }
}

#[test]
#[expect(
    deprecated,
    reason = "the replacement is unsafe; the queue owns its descriptor for as long as it lives"
)]
fn an_async_runtime_turns_a_queue() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            let device = place.open(1, mode);
            place.on_each_kind(&device, |queue, _| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_io()
                    .enable_time()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let watched = tokio::io::unix::AsyncFd::new(Lent(queue)).unwrap();
                    let ns = queue.namespaces()[0];
                    for n in 0..25 {
                        turned(&watched, Request::write(&ns, n * 8, queue.buffer(4096).unwrap()))
                            .await
                            .result
                            .unwrap();
                    }
                    turned(&watched, Request::flush(&ns)).await.result.unwrap();
                });
            });
        }
    });
}

/// Futures that a reactor drives, awaited on a thread that has nothing to do with the device.
fn through(reactor: &Reactor, device: &Device) {
    let (main, ns) = (companion().queue().unwrap(), device.namespaces()[0]);
    let block = ns.block_bytes() as usize;
    main.block_on(async {
        let write = |n: u64| {
            let mut buf = device.buffer(4096).unwrap();
            fill(&mut buf, n * 8, block, 5);
            reactor.start_request(Request::write(&ns, n * 8, buf))
        };
        let begun: Vec<_> = (0..40).map(write).collect();
        for (n, write) in (0..).zip(begun) {
            let done = write.await;
            done.result.unwrap();
            let done = reactor.start_request(Request::read(&ns, n * 8, done.buf.unwrap())).await;
            done.result.unwrap();
            assert_eq!(differs(&done.buf.unwrap(), n * 8, block, 5), None);
        }
    })
    .unwrap();
}

#[test]
fn reactor_drives_its_own_queue() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            // The last reactor's thread ends by itself, and then lets go of the device.
            let device = place.open_when_free(&options(1).mode(mode));
            let reactor = Reactor::start(&device, None).unwrap();
            assert!(matches!(Reactor::start(&device, None), Err(QueueError::AllTaken { .. })));
            through(&reactor, &device);
        }
    });
}

#[test]
fn only_queue_is_taken_once() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let queue = device.queue().unwrap();
        assert!(
            matches!(device.queue(), Err(QueueError::AllTaken { queues: 1 })),
            "there is only one"
        );
        begin(&queue, 1);
        assert_eq!(queue.wait(1, None).unwrap(), 1);
    });
}

/// A ring that the kernel polls sends them by another beside it, which has room for fewer: 40 at
/// once are more than that.
#[test]
fn more_flushes_than_tags() {
    everywhere(&[], |place| {
        for mode in [Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE] {
            let device = place.open(1, mode);
            place.on_each_kind(&device, |queue, _| {
                let (ns, mut out) = (queue.namespaces()[0], Vec::with_capacity(40));
                queue.submit((0..40).map(|_| Request::flush(&ns))).unwrap();
                while out.len() < 40 {
                    queue.wait(1, None).unwrap();
                    queue.reap(&mut out);
                }
                assert!(out.iter().all(|done| done.result.is_ok()), "{mode}");
            });
        }
    });
}
