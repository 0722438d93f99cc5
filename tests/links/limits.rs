//! What is refused, what fails, and devices that grow and shrink.

use std::thread;
use std::time::{Duration, Instant};

use reap::{IoError, Mode, Refused, Request};

use super::place::{BYTES, companion, options};
use super::table::{Feature, everywhere};
use super::work::{Job, differs, drain, fill, submit};

#[test]
fn oversized_request_ends_the_batch() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        place.on_each_kind(&device, |queue, _| {
            let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes());
            let (blocks, elsewhere) = (ns.blocks(), companion());
            let buf = |blocks: u32| queue.buffer((blocks * block) as usize).unwrap();
            let wrong = [
                (
                    Request::read(&ns, blocks, buf(1)),
                    Refused::OutOfRange { lba: blocks, end: blocks + 1, blocks },
                ),
                (
                    Request::write(&ns, blocks - 1, buf(2)),
                    Refused::OutOfRange { lba: blocks - 1, end: blocks + 1, blocks },
                ),
                (
                    Request::write(&ns, u64::MAX, buf(1)),
                    Refused::OutOfRange { lba: u64::MAX, end: u64::MAX, blocks },
                ),
                (
                    Request::read(&ns, 0, buf(1)).bytes(block - 1),
                    Refused::Length { bytes: block - 1, block, buffer: block as usize },
                ),
                (
                    Request::read(&ns, 0, buf(1)).bytes(2 * block),
                    Refused::Length { bytes: 2 * block, block, buffer: block as usize },
                ),
                (
                    Request::read(&ns, 0, buf(1)).bytes(0),
                    Refused::Length { bytes: 0, block, buffer: block as usize },
                ),
                (Request::read(&elsewhere.namespaces()[0], 0, buf(8)), Refused::NoNamespace(1)),
                (Request::read(&ns, 0, elsewhere.buffer(4096).unwrap()), Refused::ForeignBuffer),
            ];
            for (request, expected) in wrong {
                let good = [Request::read(&ns, 0, buf(1)), Request::read(&ns, 1, buf(1))];
                let (why, back) = queue.submit(good.into_iter().chain([request])).unwrap_err();
                assert_eq!(why, expected);
                assert!(back.into_buffer().is_some(), "{why}: the buffer comes back");
                let done = drain(queue);
                assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 2, "{why}");
            }
            let (result, buf) = queue.block_on(queue.read(&ns, blocks, buf(1))).unwrap();
            assert!(matches!(result, Err(IoError::Refused(Refused::OutOfRange { .. }))));
            assert_eq!(buf.len(), block as usize, "a future's comes back too");
        });
    });
}

#[test]
fn read_only_device_refuses_writes() {
    everywhere(&[Feature::ReadOnly, Feature::Keeping], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        Job::of(1).pass(&device.local_queue().unwrap(), true);
        drop(device);
        let device = place.try_open("readonly=yes", options(1)).unwrap();
        place.on_each_kind(&device, |queue, _| {
            let ns = queue.namespaces()[0];
            for lba in [0, ns.blocks() / 4] {
                let (result, _) =
                    queue.block_on(queue.write(&ns, lba, queue.buffer(4096).unwrap())).unwrap();
                // EROFS (errno(3)).
                assert_eq!(result.unwrap_err().errno(), 30);
            }
            Job::of(1).pass(queue, false);
        });
        // Readers share it; a writer is kept out.
        assert!(place.try_open("readonly=yes", options(1)).is_ok());
    });
}

/// Growth is seen by a handle that asks; a handle that does not keeps its size.
#[test]
fn grown_device_has_more_blocks() {
    everywhere(&[Feature::Resizing], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        place.resize(2 * BYTES);
        let grown = device.current(&ns);
        assert_eq!(
            (grown.blocks(), ns.blocks()),
            (2 * ns.blocks(), device.namespaces()[0].blocks())
        );
        let (lba, block) = (grown.blocks() - 8, ns.block_bytes() as usize);
        let buf = || device.buffer(8 * block).unwrap();
        let (why, _) = queue.submit([Request::read(&ns, lba, buf())]).unwrap_err();
        assert!(matches!(why, Refused::OutOfRange { .. }), "{why}");
        let mut written = buf();
        fill(&mut written, lba, block, 4);
        let (result, _) = queue.block_on(queue.write(&grown, lba, written)).unwrap();
        result.unwrap();
        let (result, read) = queue.block_on(queue.read(&grown, lba, buf())).unwrap();
        result.unwrap();
        assert_eq!(differs(&read, lba, block, 4), None);
    });
}

/// In the middle of a stream of requests the second half goes: what is asked of it fails; the first
/// half is as it was.
#[test]
fn shrunk_device_fails_requests() {
    everywhere(&[Feature::Resizing], |place| {
        for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
            place.resize(BYTES);
            let device = place.open(1, mode);
            let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
            Job::of(0).pass(&queue, true);
            let (mut begun, mut failed) = (0, 0);
            let since = Instant::now();
            while failed == 0 {
                assert!(
                    since.elapsed() < Duration::from_secs(60),
                    "{mode}: reads beyond the end never fail"
                );
                submit(
                    &queue,
                    (0..24).map(|n| {
                        Request::read(&ns, ns.blocks() - 8 - 8 * n, device.buffer(4096).unwrap())
                    }),
                );
                if begun == 2 {
                    place.resize(BYTES / 2);
                }
                begun += 1;
                for done in drain(&queue) {
                    if let Err(why) = done.result {
                        assert!(matches!(why, IoError::System(_) | IoError::Truncated), "{why:?}");
                        failed += 1;
                    }
                }
                thread::yield_now();
            }
            assert_eq!(device.current(&ns).blocks(), ns.blocks() / 2);
            Job::of(0).pass(&queue, false);
            // What a file has lost was acknowledged.
            let flushed = queue.block_on(queue.flush(&ns)).unwrap();
            assert!(matches!(flushed, Ok(()) | Err(IoError::Truncated)), "{flushed:?}");
            assert_eq!(device.counters().leaked_bytes, 0);
        }
    });
}
