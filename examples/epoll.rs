//! A foreign loop: the application's own epoll waits for the queue among its other descriptors.

use std::error::Error;

use reap::{Device, Instant, Request};
use rustix::event::{Timespec, epoll};

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open("mem:1G?profile=tlc")?;
    let queue = device.queue()?;
    let ns = device.namespaces()[0];

    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poller, &queue, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;

    let mut done = Vec::with_capacity(16);
    let (mut submitted, mut finished, mut events) = (0u64, 0, Vec::with_capacity(4));
    while finished < 1000 {
        let batch: Vec<_> = (0..16 - u64::from(queue.in_flight()))
            .map(|n| Ok(Request::read(&ns, (submitted + n) * 8, device.buffer(4096)?)))
            .collect::<Result<_, Box<dyn Error>>>()?;
        submitted += batch.len() as u64;
        queue.submit(batch).map_err(|(why, _)| why)?;

        // Look, and leave the queue armed. It neither blocks nor spins.
        if !queue.poll_events(64).more {
            // The descriptor tells of completions; what else is due comes by the clock.
            let left = queue.next_deadline().map(|deadline| deadline - Instant::now());
            let left = left.map(Timespec::try_from).transpose()?;
            events.clear();
            epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), left.as_ref())?;
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
