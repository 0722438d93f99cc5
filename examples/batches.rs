//! Without async: submit a batch, wait, reap with a budget. Random reads at queue depth 32 for one second.

use std::error::Error;

use reap::{Device, Mode, Nanos, OpenOptions, Request};

const DEPTH: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mode: Mode = std::env::args().nth(1).as_deref().unwrap_or("interrupt").parse()?;
    let device = Device::open_with("mem:1G?profile=optane", &OpenOptions { mode, ..OpenOptions::default() })?;
    let queue = device.queue()?;
    let ns = device.namespaces()[0];

    let mut free: Vec<_> = (0..DEPTH).map(|_| device.buffer(4096)).collect::<Result<_, _>>()?;
    let mut done = Vec::with_capacity(DEPTH);
    let (start, mut now, mut count, mut lba) = (reap::now(), reap::now(), 0u64, 1u64);
    while now < start + Nanos::from_secs(1) {
        let batch = free.drain(..).map(|buf| {
            lba = lba.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Request::read(&ns, (lba >> 33) % (ns.blocks() / 8) * 8, buf)
        });
        queue.submit(now, batch).map_err(|(why, _)| why)?;
        queue.wait(1, Nanos::MAX)?;
        queue.reap(&mut done);
        for completion in done.drain(..) {
            completion.result?;
            now = completion.completed_at;
            free.extend(completion.buf);
            count += 1;
        }
    }
    println!("{mode}: {count} reads in a second; {:?}", queue.counters());
    Ok(())
}
