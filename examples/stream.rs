//! A stream of completions: the first mebibyte, 32 reads at a time, each taken as it ends.

use std::error::Error;

use futures_util::stream::{self, StreamExt};

fn main() -> Result<(), Box<dyn Error>> {
    let device = reap::Device::open("mem:1G?profile=optane")?;
    let queue = device.queue()?;
    let ns = device.namespaces()[0];
    let per = 4096 / u64::from(ns.block_bytes());

    let bytes = queue.block_on(async {
        let reads = stream::iter(0..256).map(|n| {
            let buf = queue.buffer(4096);
            let queue = &queue;
            async move {
                let (result, buf) = queue.read(&ns, n * per, buf?).await;
                result?;
                Ok::<_, Box<dyn Error>>(buf)
            }
        });
        let mut answers = reads.buffer_unordered(32);
        let mut bytes = 0;
        while let Some(buf) = answers.next().await {
            bytes += buf?.len();
        }
        Ok::<_, Box<dyn Error>>(bytes)
    })??;
    println!("read {bytes} bytes");
    Ok(())
}
