use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::*;
use crate::{Device, Request};

/// What has not happened by then does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `work` comes to, on a thread of its own: one that never ends is left behind.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(PATIENCE).expect("it hangs, or has panicked")
}

/// A task whose first turn waits until it is told to panic.
struct Panics {
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl Task for Panics {
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

/// A controller whose controller task panics is one controller. The others are looked after, and so is one that is being opened at that moment.
#[test]
fn keeper_panics_stay_isolated() {
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
            let (result, _) = queue.block_on(queue.read(&ns, 0, queue.buffer(4096).unwrap())).unwrap();
            result.unwrap();
        });
    }
}

/// A waker that blocks until it is let go.
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

/// A future outlives its queue, and is ended by this thread. Its waker is the application's, and may take as long as it likes.
#[test]
fn blocking_wakers_delay_no_other_device() {
    let device = Device::open("mem:1M?profile=optane").unwrap();
    let queue = device.queue().unwrap();
    let mut future = Box::pin(queue.start(Request::flush(&device.namespaces()[0])));
    let ((called, is_called), (go, may_go)) = (channel(), channel());
    let waker = Waker::from(Arc::new(Blocks { called: Mutex::new(called), go: Mutex::new(may_go) }));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(queue);
    is_called.recv_timeout(PATIENCE).unwrap();
    in_time(|| drop(Device::open("mem:1M?profile=null").unwrap()));
    go.send(()).unwrap();
    assert!(matches!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(done) if done.result.is_ok()));
}

/// What is dropped after the memory of a region, and does as the test says.
struct AtItsEnd(Option<Box<dyn FnOnce() + Send>>);

impl Drop for AtItsEnd {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|end| end());
    }
}

/// A request that nobody claims is all that is left of a region, and its queue is gone: this thread ends it, and with it the memory. How
/// memory is given back is the application's code. It may take as long as it likes, and a panic is its own affair.
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
    for (end, ended_on) in [(Box::new(blocks) as Box<dyn FnOnce() + Send>, ends), (Box::new(panics_at_its_end), panics)] {
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let region = device.register((hw::Pages::new(4096).unwrap(), AtItsEnd(Some(end)))).map_err(|(why, _)| why).unwrap();
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
