//! Whole-stack: embedded media that are full, and namespaces beside each other. What is written is
//! what is read: see `links/`.

use crate::common::open;
use crate::work::{differs, fill};
use reap::{IoError, OpenOptions};

#[test]
fn exhausted_budget_fails_only_writes() {
    let device = open("mem:4T?profile=optane&alloc=1M", OpenOptions::default());
    let queue = device.queue().unwrap();
    let ns = device.namespaces()[0];
    let mut failed = 0;
    for n in 0..64u64 {
        let buf = queue.buffer(65536).unwrap();
        let (result, _) = queue.block_on(queue.write(&ns, n * (1 << 20), buf)).unwrap();
        failed += u32::from(matches!(result, Err(IoError::Status(_))));
    }
    assert!(
        (47..=56).contains(&failed),
        "{failed} of 64 writes of 64 KiB failed on a budget of 1 MiB"
    );
    let (result, buf) =
        queue.block_on(queue.read(&ns, ns.blocks() - 8, queue.buffer(4096).unwrap())).unwrap();
    result.unwrap();
    assert!(buf.iter().all(|&b| b == 0));
}

#[test]
fn namespaces_do_not_overlap() {
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
        assert_eq!(differs(&buf, 0, 512, g), None);
    }
}
