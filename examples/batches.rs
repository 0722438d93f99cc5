//! Without async: submit a batch, wait, reap with a budget. Random reads at queue depth 32 for one
//! second.

use std::error::Error;
use std::time::Duration;

use reap::{Device, Instant, Mode, OpenOptions, Request};

const DEPTH: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mode = Mode::ADAPTIVE;
    let device = Device::open_with("mem:1G?profile=optane", &OpenOptions::new().mode(mode))?;
    let queue = device.queue()?;
    let ns = device.namespaces()[0];

    let mut free: Vec<_> = (0..DEPTH).map(|_| device.buffer(4096)).collect::<Result<_, _>>()?;
    let mut done = Vec::with_capacity(DEPTH);
    let (end, mut count, mut lba) = (Instant::now() + Duration::from_secs(1), 0u64, 1u64);
    while Instant::now() < end {
        let batch = free.drain(..).map(|buf| {
            lba =
                lba.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Request::read(&ns, (lba >> 33) % (ns.blocks() / 8) * 8, buf)
        });
        queue.submit(batch).map_err(|(why, _)| why)?;
        queue.wait(1, None)?;
        queue.reap(&mut done);
        for completion in done.drain(..) {
            completion.result?;
            free.extend(completion.buf);
            count += 1;
        }
    }
    println!("{mode}: {count} reads in a second; {:?}", queue.counters());
    Ok(())
}
