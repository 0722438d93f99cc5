//! Futures on one thread: `block_on` drives the queue while it waits.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let device = reap::Device::open("mem:1G?profile=optane")?;
    let queue = device.queue()?;
    let ns = device.namespaces()[0];

    let mut buf = device.buffer(4096)?;
    let lba = 8; // in blocks of the namespace
    buf.fill(0x5a);
    let buf = queue.block_on(async {
        let (result, buf) = queue.write(&ns, lba, buf).await;
        result?;
        queue.flush(&ns).await?;
        let (result, buf) = queue.read(&ns, lba, buf).await;
        result.map(|()| buf)
    })??; // the first `?`: the queue's error; the second: the I/O's
    println!("read back {} bytes of {:#04x}", buf.len(), buf[0]);
    Ok(())
}
