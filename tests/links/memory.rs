//! Memory that the application owns takes part in requests of every link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use reap::{Device, Mode, Pages, RangeError, Refused, Region, RegisterError, Request};

use super::place::companion;
use super::table::everywhere;
use super::work::{differs, drain, fill, submit};

const MIB: usize = 1 << 20;

/// Counts when the memory beside it is freed.
struct Count(Arc<AtomicU32>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn register(device: &Device, bytes: usize) -> (Region<(Pages, Count)>, Arc<AtomicU32>) {
    let counted = |pages: Pages| {
        let freed = Arc::new(AtomicU32::new(0));
        device
            .register((pages, Count(freed.clone())))
            .map(|region| (region, freed))
            .map_err(|(why, _)| why)
    };
    match counted(Pages::new(bytes).unwrap()) {
        // Another process has the device.
        Err(RegisterError::NoFile) => counted(Pages::shared(bytes).unwrap()),
        registered => registered,
    }
    .unwrap()
}

#[test]
fn ranges_of_every_size_and_alignment() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (region, freed) = register(&device, 9 * MIB);
        place.on_each_kind(&device, |queue, _| {
            let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
            // A part of a page, a page, one that crosses pages, more than one command takes, and
            // one that crosses chunks of 4 MiB.
            for len in [block, 4096, 8192, 65_536, MIB - block, MIB + 4096] {
                for start in [0, 512, 4096 - 512, 4 * MIB - 4096, 4 * MIB - 512] {
                    let (lba, other) = (start as u64 / 512 % (ns.blocks() / 2), 6 * MIB + 2560);
                    let mut buf = region.buffer(start..start + len).unwrap();
                    fill(&mut buf, lba, block, len as u64);
                    let (result, _) = queue.block_on(queue.write(&ns, lba, buf)).unwrap();
                    result.unwrap_or_else(|e| panic!("{e}: {len} bytes at {start} of the region"));
                    let mut buf = region.buffer(other..other + len).unwrap();
                    buf.fill(0);
                    let (result, buf) = queue.block_on(queue.read(&ns, lba, buf)).unwrap();
                    result.unwrap();
                    assert_eq!(
                        differs(&buf, lba, block, len as u64),
                        None,
                        "{len} bytes at {start} of the region"
                    );
                }
            }
        });
        drop(device);
        assert_eq!(freed.load(Ordering::Relaxed), 0, "the region is still held");
        assert!(region.into_owner().is_ok());
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn every_mode_reads_into_registered_memory() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        // Registered by another thread than the queue's.
        let (region, _) =
            thread::scope(|scope| scope.spawn(|| register(&device, MIB)).join().unwrap());
        place.on_each_kind(&device, |queue, kind| {
            let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
            for (g, mode) in (kind as u64 * 32..).zip(Mode::ALL) {
                queue.set_mode(mode);
                let mut frames: Vec<_> =
                    (0..16).map(|n| region.buffer(n * 8192..(n + 1) * 8192).unwrap()).collect();
                let per = 8192 / block as u64;
                frames.iter_mut().zip(0..).for_each(|(frame, n)| fill(frame, n * per, block, g));
                submit(
                    queue,
                    frames
                        .into_iter()
                        .zip(0..)
                        .map(|(frame, n)| Request::write(&ns, n * per, frame)),
                );
                drain(queue).into_iter().for_each(|done| done.result.unwrap());
                let reads = (0..16).map(|n| region.buffer(n * 8192..(n + 1) * 8192).unwrap());
                submit(
                    queue,
                    reads
                        .zip(0..)
                        .map(|(frame, n)| Request::read(&ns, n * per, frame).tag(n * per)),
                );
                for done in drain(queue) {
                    done.result.unwrap();
                    assert_eq!(differs(&done.buf.unwrap(), done.tag, block, g), None, "{mode}");
                }
            }
        });
    });
}

#[test]
fn regions_change_under_load() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        place.on_each_kind(&device, |queue, _| {
            let ns = queue.namespaces()[0];
            let mut gone = Vec::new();
            for round in 0..20 {
                submit(
                    queue,
                    (0..12).map(|n| Request::read(&ns, n * 8, queue.buffer(16 << 10).unwrap())),
                );
                let (region, freed) = register(&device, 64 << 10);
                let parts = [0, 32 << 10].map(|at| region.buffer(at..at + (32 << 10)).unwrap());
                submit(queue, parts.map(|part| Request::read(&ns, 0, part)));
                drop(region);
                let done = drain(queue);
                assert_eq!(
                    done.iter().filter(|done| done.result.is_ok()).count(),
                    14,
                    "round {round}"
                );
                drop(done);
                gone.push(freed);
            }
            assert!(gone.iter().all(|freed| freed.load(Ordering::Relaxed) == 1), "{gone:?}");
        });
    });
}

#[test]
fn foreign_memory_is_refused_whole() {
    everywhere(&[], |place| {
        let (device, other) = (place.open(1, Mode::INTERRUPT), companion());
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        let (region, _) = register(&other, 8192);
        let (why, request) =
            queue.submit([Request::read(&ns, 0, region.buffer(0..4096).unwrap())]).unwrap_err();
        assert_eq!(why, Refused::ForeignBuffer);
        assert!(matches!(region.buffer(512..1024), Err(RangeError::Taken { start: 0, end: 4096 })));
        drop(request);
        assert!(region.into_owner().is_ok());
        assert_eq!(queue.wait(0, None).unwrap(), 0);
    });
}
