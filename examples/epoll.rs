//! A foreign loop: the application's own epoll waits for the queue among its other descriptors.

use std::error::Error;

use reap::{Device, Nanos, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open("mem:1G?profile=tlc")?;
    let queue = device.queue()?;
    let ns = device.namespaces()[0];

    // Any poller will do; this one is the library's own wrapper of epoll.
    let poller = hw::Poller::new()?;
    poller.add(&queue, 1)?;

    let mut done = Vec::with_capacity(16);
    let (mut submitted, mut finished, mut events) = (0u64, 0, Vec::new());
    while finished < 1000 {
        let batch: Vec<_> = (0..16 - u64::from(queue.in_flight()))
            .map(|n| Ok(Request::read(&ns, (submitted + n) * 8, device.buffer(4096)?)))
            .collect::<Result<_, Box<dyn Error>>>()?;
        submitted += batch.len() as u64;
        queue.submit(reap::now(), batch).map_err(|(why, _)| why)?;

        // Look, and leave the queue armed. It neither blocks nor spins.
        if !queue.turn(64).more {
            let timeout = queue.next_deadline().map(|deadline| deadline - reap::now());
            poller.wait(timeout.or(Some(Nanos::from_secs(1))), &mut events)?;
        }
        queue.reap(&mut done);
        for completion in done.drain(..) {
            completion.result?;
            finished += 1;
        }
    }
    println!("{finished} reads, {} looks found something", queue.counters().drains);
    Ok(())
}
