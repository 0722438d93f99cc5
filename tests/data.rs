//! Whole-stack: what is written is what is read, on every kind of device, in every mode, however requests are split.

use reap::{Device, IoError, Mode, Nanos, OpenOptions, Queue, Refused, Request};

fn open(uri: &str, options: OpenOptions) -> Device {
    Device::open_with(uri, &OpenOptions { pool_bytes: 64 << 20, ..options }).unwrap_or_else(|e| panic!("{uri}: {e}"))
}

/// Byte `i` of the block at `lba`, generation `g`.
fn pattern(lba: u64, i: usize, g: u64) -> u8 {
    (lba.wrapping_mul(31) ^ i as u64 ^ g.wrapping_mul(0x9e37) >> 3) as u8
}

fn fill(buf: &mut [u8], lba: u64, block: usize, g: u64) {
    for (n, chunk) in buf.chunks_mut(block).enumerate() {
        chunk.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern(lba + n as u64, i, g));
    }
}

fn check(buf: &[u8], lba: u64, block: usize, g: u64) {
    for (n, chunk) in buf.chunks(block).enumerate() {
        for (i, &byte) in chunk.iter().enumerate() {
            assert_eq!(byte, pattern(lba + n as u64, i, g), "block {} byte {i}", lba + n as u64);
        }
    }
}

/// Writes and reads back `requests` requests of `bytes`, `depth` at a time, from a batch loop.
fn round_trip(queue: &Queue, bytes: usize, requests: u64, depth: usize) {
    let ns = queue.namespaces()[0];
    let block = ns.block_bytes() as usize;
    let per = (bytes / block) as u64;
    for write in [true, false] {
        let (mut next, mut out, mut bufs) = (0, Vec::with_capacity(depth), Vec::new());
        let mut finished = 0;
        while finished < requests {
            let mut batch = Vec::new();
            while (queue.in_flight() as usize + batch.len()) < depth && next < requests {
                let mut buf = bufs.pop().unwrap_or_else(|| queue.buffer(bytes).unwrap());
                let lba = next * per;
                let request = if write {
                    fill(&mut buf, lba, block, 1);
                    Request::write(&ns, lba, buf)
                } else {
                    buf.fill(0);
                    Request::read(&ns, lba, buf)
                };
                batch.push(request.tag(lba));
                next += 1;
            }
            queue.submit(reap::now(), batch).map_err(|(why, _)| why).unwrap();
            assert!(queue.wait(1, Nanos::MAX).unwrap() > 0, "nothing in flight, yet {finished} of {requests} done");
            queue.reap(&mut out);
            for done in out.drain(..) {
                done.result.unwrap();
                let buf = done.buf.unwrap();
                if !write {
                    check(&buf, done.tag, block, 1);
                }
                bufs.push(buf);
                finished += 1;
            }
        }
        assert_eq!(queue.in_flight(), 0);
    }
}

#[test]
fn every_mode_reads_what_it_wrote() {
    for mode in Mode::ALL {
        let device = open("mem:64M?profile=optane", OpenOptions { mode, ..OpenOptions::default() });
        let queue = device.queue().unwrap();
        round_trip(&queue, 4096, 500, 32);
        assert_eq!(queue.mode(), mode);
        let counters = queue.counters();
        assert!(counters.drain_max <= 64, "{mode}: a look took {} entries", counters.drain_max);
    }
}

#[test]
fn large_requests_are_split_and_come_back_whole() {
    let device = open("mem:256M?profile=optane&lba=4096", OpenOptions::default());
    let queue = device.queue().unwrap();
    round_trip(&queue, 3 << 20, 8, 3);
    round_trip(&queue, 4096, 8, 8);
}

#[test]
fn more_requests_than_tags_wait_their_turn() {
    let device = open("mem:64M?profile=optane", OpenOptions { depth: 4, ..OpenOptions::default() });
    let queue = device.queue().unwrap();
    round_trip(&queue, 512, 300, 64);
}

#[test]
fn a_file_keeps_what_was_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("file:{}?size=8M&profile=optane", dir.path().join("media").display());
    let device = open(&uri, OpenOptions::default());
    let queue = device.queue().unwrap();
    let ns = device.namespaces()[0];
    let mut buf = queue.buffer(8192).unwrap();
    fill(&mut buf, 16, 512, 9);
    queue.block_on(queue.write(&ns, 16, buf)).unwrap().0.unwrap();
    queue.block_on(queue.flush(&ns)).unwrap().unwrap();
    drop((queue, device));
    let device = open(&uri, OpenOptions::default());
    let queue = device.queue().unwrap();
    let ns = device.namespaces()[0];
    let (result, buf) = queue.block_on(queue.read(&ns, 16, queue.buffer(8192).unwrap())).unwrap();
    result.unwrap();
    check(&buf, 16, 512, 9);
}

#[test]
fn a_full_budget_fails_writes_and_nothing_else() {
    let device = open("mem:4T?profile=optane&alloc=1M", OpenOptions::default());
    let queue = device.queue().unwrap();
    let ns = device.namespaces()[0];
    let mut failed = 0;
    for n in 0..64u64 {
        let buf = queue.buffer(65536).unwrap();
        let (result, _) = queue.block_on(queue.write(&ns, n * (1 << 20), buf)).unwrap();
        failed += u32::from(matches!(result, Err(IoError::Status(_))));
    }
    assert!((47..=56).contains(&failed), "{failed} of 64 writes of 64 KiB failed on a budget of 1 MiB");
    let (result, buf) = queue.block_on(queue.read(&ns, ns.blocks() - 8, queue.buffer(4096).unwrap())).unwrap();
    result.unwrap();
    assert!(buf.iter().all(|&b| b == 0));
}

#[test]
fn several_namespaces_are_apart() {
    let device = open("mem:1M?namespaces=3", OpenOptions::default());
    let queue = device.queue().unwrap();
    assert_eq!(device.namespaces().len(), 3);
    for (g, ns) in (1..).zip(device.namespaces()) {
        let mut buf = queue.buffer(512).unwrap();
        fill(&mut buf, 0, 512, g);
        queue.block_on(queue.write(ns, 0, buf)).unwrap().0.unwrap();
    }
    for (g, ns) in (1..).zip(device.namespaces()) {
        let (result, buf) = queue.block_on(queue.read(ns, 0, queue.buffer(512).unwrap())).unwrap();
        result.unwrap();
        check(&buf, 0, 512, g);
    }
}

#[test]
fn buffers_of_another_device_are_refused() {
    let (a, b) = (open("mem:1M", OpenOptions::default()), open("mem:1M", OpenOptions::default()));
    let queue = a.queue().unwrap();
    let (result, buf) = queue.block_on(queue.read(&a.namespaces()[0], 0, b.buffer(512).unwrap())).unwrap();
    assert_eq!((result, buf.len()), (Err(IoError::Refused(Refused::ForeignBuffer)), 512));
}
