//! A foreign loop: tokio's `AsyncFd` waits for the queue, futures are awaited by tokio tasks.

use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use reap::{Device, Queue};
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// Turns the queue whenever it has something to do: its descriptor says so, or its time has come.
async fn drive(queue: Rc<AsyncFd<Queue>>) -> std::io::Result<()> {
    loop {
        while queue.get_ref().turn(64).more {
            tokio::task::yield_now().await;
        }
        let left = queue.get_ref().next_deadline().map_or(Duration::MAX, |deadline| Duration::from_nanos((deadline - reap::now()).0));
        if let Ok(ready) = timeout(left, queue.readable()).await {
            ready?.clear_ready();
        }
    }
}

#[expect(deprecated, reason = "tokio's replacement is unsafe; the queue owns its descriptor for as long as it lives")]
fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open("mem:1G?profile=optane")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let queue = Rc::new(AsyncFd::new(device.queue()?)?);
        tokio::task::spawn_local(drive(queue.clone()));
        let ns = device.namespaces()[0];
        let mut buf = device.buffer(4096)?;
        for n in 0..1000 {
            let read = queue.get_ref().read(&ns, n * 8, buf);
            // The doorbell: the task that drives the queue may be asleep.
            queue.get_ref().commit();
            let (result, back) = read.await;
            result?;
            buf = back;
        }
        println!("1000 reads under tokio; {:?}", queue.get_ref().counters());
        Ok(())
    })
}
