//! Under tokio, on several threads: a reactor drives the queue on a thread of its own, and any task
//! awaits what it starts.

use std::error::Error;

use reap::{Device, DmaBuf, IoError, Namespace, Reactor};

const TASKS: u64 = 8;
const READS: u64 = 1000;

/// Reads blocks that no other task reads; the buffer comes back with each result.
async fn reads(
    reactor: Reactor,
    ns: Namespace,
    task: u64,
    mut buf: DmaBuf,
) -> Result<u64, IoError> {
    for n in 0..READS {
        let (result, back) = reactor.read(&ns, (task * READS + n) * 8, buf).await;
        result?;
        buf = back;
    }
    Ok(READS)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open("mem:1G?profile=optane")?;
    let ns = device.namespaces()[0];
    let reactor = Reactor::start(&device, None)?;

    let mut buf = device.buffer(4096)?;
    buf.fill(0x5a);
    let (result, buf) = reactor.write(&ns, 0, buf).await;
    result?;
    reactor.flush(&ns).await?;
    drop(buf);

    let mut tasks = Vec::new();
    for task in 0..TASKS {
        tasks.push(tokio::spawn(reads(reactor.clone(), ns, task, device.buffer(4096)?)));
    }
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    println!("{count} reads by {TASKS} tasks");
    Ok(())
}
