//! What is written is what is read.

use std::thread;

use reap::{Mode, Request};

use super::place::{Kind, options};
use super::table::{Feature, everywhere};
use super::work::{Job, differs, fill};

#[test]
fn every_mode_moves_data() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            let device = place.open(3, mode);
            thread::scope(|scope| {
                let device = &device;
                let queue = device.queue().unwrap();
                scope.spawn(move || Job::of(1).run(&queue));
                for (owner, fused) in [(2, false), (3, true)] {
                    scope.spawn(move || {
                        Job { fused, ..Job::of(owner) }.run(&device.local_queue().unwrap())
                    });
                }
            });
            let (health, counters) = (device.health(), device.counters());
            assert_eq!(
                (health.resets, health.aborts, counters.leaked_bytes),
                (0, 0, 0),
                "{mode}: {health:?}"
            );
        }
    });
}

#[test]
fn every_size_at_every_block() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        place.on_each_kind(&device, |queue, kind| {
            let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
            let mib = 1 << 20;
            let mut sizes = vec![
                block,
                2 * block,
                7 * block,
                4096,
                12_288,
                65_536,
                mib - block,
                mib,
                mib + block,
                3 * mib,
            ];
            sizes.dedup();
            for (g, bytes) in (kind as u64 * 100..).zip(sizes) {
                let last = ns.blocks() - (bytes / block) as u64;
                for lba in [0, 1, 7, last / 2 + 3, last] {
                    let mut buf = queue.buffer(bytes).unwrap();
                    fill(&mut buf, lba, block, g);
                    let (result, mut buf) = queue.block_on(queue.write(&ns, lba, buf)).unwrap();
                    result.unwrap_or_else(|e| panic!("{e}: writing {bytes} bytes at block {lba}"));
                    assert_eq!(differs(&buf, lba, block, g), None, "what was written is as it was");
                    buf.fill(0);
                    let (result, buf) = queue.block_on(queue.read(&ns, lba, buf)).unwrap();
                    result.unwrap_or_else(|e| panic!("{e}: reading {bytes} bytes at block {lba}"));
                    assert_eq!(differs(&buf, lba, block, g), None, "{bytes} bytes at block {lba}");
                }
            }
        });
    });
}

/// Parts of one request come back in any order, and many requests wait for tags.
#[test]
fn large_requests_are_split() {
    everywhere(&[], |place| {
        let device = place.open_with(options(1).depth(4));
        place.on_each_kind(&device, |queue, kind| {
            let generation = 7 + kind as u64;
            Job { requests: 3, bytes: (1 << 20) + 4096, depth: 3, generation, ..Job::of(1) }
                .run(queue);
            Job { requests: 120, bytes: 4096, depth: 64, generation, ..Job::of(3) }.run(queue);
        });
    });
}

/// A part of the buffer alone takes part.
#[test]
fn requests_shorter_than_their_buffer() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        let block = ns.block_bytes() as usize;
        let mut whole = device.buffer(4 * block).unwrap();
        fill(&mut whole, 40, block, 1);
        let (result, mut buf) = queue.block_on(queue.write(&ns, 40, whole)).unwrap();
        result.unwrap();
        buf.fill(0xee);
        let done =
            queue.block_on(queue.start(Request::read(&ns, 40, buf).bytes(block as u32))).unwrap();
        done.result.unwrap();
        let buf = done.buf.unwrap();
        assert_eq!(differs(&buf[..block], 40, block, 1), None);
        assert!(
            buf[block..].iter().all(|&byte| byte == 0xee),
            "what was not asked for was written to"
        );
    });
}

/// FUA by itself, and plain writes with a Flush behind them.
#[test]
fn durable_data_survive_reopening() {
    everywhere(&[Feature::Keeping], |place| {
        for (g, mode) in (1..).zip([Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE]) {
            let device = place.open(1, mode);
            place.on_each_kind(&device, |queue, kind| {
                let (ns, block) =
                    (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
                for (at, fua) in [(16, true), (64, false)] {
                    let lba = at + 100 * kind as u64;
                    let mut buf = queue.buffer(8192).unwrap();
                    fill(&mut buf, lba, block, g);
                    let write = Request::write(&ns, lba, buf);
                    let done =
                        queue.block_on(queue.start(if fua { write.fua() } else { write })).unwrap();
                    done.result.unwrap();
                }
                queue.block_on(queue.flush(&ns)).unwrap().unwrap();
            });
            drop(device);
            let device = place.open(1, mode);
            let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
            let kinds = [Kind::Sent, Kind::Kept];
            for lba in kinds.into_iter().flat_map(|kind| [16, 64].map(|at| at + 100 * kind as u64))
            {
                let (result, buf) =
                    queue.block_on(queue.read(&ns, lba, device.buffer(8192).unwrap())).unwrap();
                result.unwrap();
                assert_eq!(differs(&buf, lba, ns.block_bytes() as usize, g), None, "{mode}");
            }
        }
    });
}

/// Everything at once: reads, writes, FUA and Flush in one batch, with a buffer carried along.
#[test]
fn a_batch_mixes_all_there_is() {
    everywhere(&[], |place| {
        for mode in Mode::ALL {
            let device = place.open(1, mode);
            let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
            let per = 4096 / u64::from(ns.block_bytes());
            let buf = || device.buffer(4096).unwrap();
            let batch = (0..40).map(|n| match n % 4 {
                0 => Request::read(&ns, n * per, buf()),
                1 => Request::write(&ns, n * per, buf()),
                2 => Request::write(&ns, n * per, buf()).fua().urgent(),
                _ => Request::flush(&ns).carrying(buf()),
            });
            super::work::submit(&queue, batch.zip(0..).map(|(request, tag)| request.tag(tag)));
            let mut done = super::work::drain(&queue);
            done.sort_by_key(|done| done.tag);
            assert!(
                done.iter().all(|done| done.result.is_ok() && done.buf.is_some()),
                "{mode}: {done:?}"
            );
            assert!(done.iter().map(|done| done.tag).eq(0..40), "{mode}: each once");
        }
    });
}
