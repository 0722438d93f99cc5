//! Several threads, a queue for each: `device.queue()` grants them as they are asked for.

use std::error::Error;
use std::thread;

use reap::{Device, IoError, Request};

const THREADS: u64 = 4;
const BATCHES: u64 = 100;
const DEPTH: usize = 16;

/// Reads in batches until it has had its share; how many that were.
fn work(device: &Device, thread: u64) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let queue = device.queue()?;
    let ns = device.namespaces()[0];
    let mut free = (0..DEPTH).map(|_| device.buffer(4096)).collect::<Result<Vec<_>, _>>()?;
    let mut done = Vec::with_capacity(DEPTH);
    for batch in 0..BATCHES {
        let first = (thread * BATCHES + batch) * DEPTH as u64;
        let requests = free.drain(..).zip(first..).map(|(buf, n)| Request::read(&ns, n * 8, buf));
        queue.submit(requests).map_err(|(why, _)| why)?;
        queue.wait(DEPTH, None)?;
        queue.reap(&mut done);
        free = done
            .drain(..)
            .map(|read| read.result.map(|()| read.buf))
            .collect::<Result<Vec<_>, IoError>>()?
            .into_iter()
            .flatten()
            .collect();
    }
    Ok(BATCHES * DEPTH as u64)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let device = Device::open("mem:1G?profile=optane")?;
    let counts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let device = &device;
                    move || work(device, thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let count: u64 = counts.into_iter().sum::<Result<_, _>>()?;
    println!("{count} reads on {THREADS} threads");
    Ok(())
}
