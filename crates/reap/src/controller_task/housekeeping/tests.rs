use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::*;
use crate::{Device, Request};

/// Time limit of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` on a thread of its own, so that the test fails if it hangs.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(PATIENCE).expect("it hangs, or has panicked")
}

/// A task whose first step waits for the test, and panics.
struct Panics {
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl DeviceTask for Panics {
    fn vector(&self) -> Option<&hw::EventFd> {
        None
    }

    fn refuse(&mut self, _: OpenError) {}

    fn step(&mut self, _: Nanos) -> TaskStatus {
        _ = self.begun.send(());
        _ = lock(&self.go).recv_timeout(PATIENCE);
        panic!("as the test says");
    }
}

/// A panic in one task ends its controller alone: the others, and one that is being opened, are
/// stepped on.
#[test]
fn task_panics_stay_isolated() {
    let before = Device::open("mem:1M?profile=null").unwrap();
    let ((begun, has_begun), (go, may_go)) = (channel(), channel());
    shared().unwrap().add(Box::new(Panics { begun, go: Mutex::new(may_go) }));
    has_begun.recv_timeout(PATIENCE).unwrap();
    let opening = thread::spawn(|| Device::open("mem:1M?profile=null"));
    thread::sleep(Duration::from_millis(20));
    go.send(()).unwrap();
    let meanwhile = in_time(move || opening.join().unwrap());
    for device in [before, meanwhile.unwrap(), Device::open("mem:1M?profile=null").unwrap()] {
        in_time(move || {
            let queue = device.queue().unwrap();
            let ns = device.namespaces()[0];
            device.reset();
            while device.health().resets == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            let (result, _) =
                queue.block_on(queue.read(&ns, 0, queue.buffer(4096).unwrap())).unwrap();
            result.unwrap();
        });
    }
}

/// A waker that blocks until the test releases it.
struct Blocks {
    called: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        _ = lock(&self.called).send(());
        _ = lock(&self.go).recv_timeout(PATIENCE);
    }
}

/// A future outlives its queue, and the housekeeping thread ends it. Its waker may block without
/// delaying other devices.
#[test]
fn blocking_wakers_delay_no_other_device() {
    let device = Device::open("mem:1M?profile=optane").unwrap();
    let queue = device.queue().unwrap();
    let mut future = Box::pin(queue.start(Request::flush(&device.namespaces()[0])));
    let ((called, is_called), (go, may_go)) = (channel(), channel());
    let waker =
        Waker::from(Arc::new(Blocks { called: Mutex::new(called), go: Mutex::new(may_go) }));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(queue);
    is_called.recv_timeout(PATIENCE).unwrap();
    in_time(|| drop(Device::open("mem:1M?profile=null").unwrap()));
    go.send(()).unwrap();
    assert!(
        matches!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(done) if done.result.is_ok())
    );
}

/// The owner of a region's memory: it blocks or panics when it is dropped, as the test says.
struct AtItsEnd(Option<Box<dyn FnOnce() + Send>>);

impl Drop for AtItsEnd {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|end| end());
    }
}

/// The housekeeping thread ends the last request that uses a region, and with it the memory. The
/// drop of the memory is the application's code: it may block or panic without harm to other
/// devices.
#[test]
fn blocking_memory_drops_delay_no_device() {
    let device = Device::open("mem:1M?profile=optane").unwrap();
    let ((ending, ends), (go, may_go)) = (channel(), channel::<()>());
    let blocks = move || {
        _ = ending.send(thread::current().name().map(str::to_owned));
        _ = may_go.recv_timeout(PATIENCE);
    };
    let (panicking, panics) = channel();
    let panics_at_its_end = move || {
        _ = panicking.send(thread::current().name().map(str::to_owned));
        panic!("as the test says");
    };
    for (end, ended_on) in [
        (Box::new(blocks) as Box<dyn FnOnce() + Send>, ends),
        (Box::new(panics_at_its_end), panics),
    ] {
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let region = device
            .register((hw::Pages::new(4096).unwrap(), AtItsEnd(Some(end))))
            .map_err(|(why, _)| why)
            .unwrap();
        let read = queue.read(&ns, 0, region.buffer(0..4096).unwrap());
        queue.commit();
        drop((read, region, queue));
        assert_ne!(ended_on.recv_timeout(PATIENCE).unwrap().as_deref(), Some("reap-housekeep"));
    }
    in_time(|| drop(Device::open("mem:1M?profile=null").unwrap()));
    go.send(()).unwrap();
    device.reset();
    in_time(move || {
        while device.health().resets == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
