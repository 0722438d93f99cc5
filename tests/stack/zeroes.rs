//! Whole-stack: Write Zeroes and Deallocate, on every kind of device, however long they are,
//! through resets and over paths.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use crate::common::{open, wait_for_path};
use reap::{
    Change, Device, EmbeddedOptions, IoError, Loss, Mode, Namespace, OpenOptions, PathLink, Queue,
    Refused, Request,
};

fn run<F: Future<Output = Result<(), IoError>>>(queue: &Queue, future: F) -> Result<(), IoError> {
    queue.block_on(future).unwrap()
}

/// Writes `byte` to blocks.
fn write(queue: &Queue, ns: &Namespace, lba: u64, blocks: u64, byte: u8) {
    let mut buf = queue.buffer((blocks * u64::from(ns.block_bytes())) as usize).unwrap();
    buf.fill(byte);
    queue.block_on(queue.write(ns, lba, buf)).unwrap().0.unwrap();
}

/// What blocks hold.
fn read(queue: &Queue, ns: &Namespace, lba: u64, blocks: u64) -> Vec<u8> {
    let mut buf = queue.buffer((blocks * u64::from(ns.block_bytes())) as usize).unwrap();
    buf.fill(0xee);
    let (result, buf) = queue.block_on(queue.read(ns, lba, buf)).unwrap();
    result.unwrap();
    buf.to_vec()
}

type Make = fn(&Namespace, u64, u64) -> Request;
const BOTH: [Make; 2] = [Request::write_zeroes, Request::deallocate];

/// Submits one request and waits for it.
fn one(queue: &Queue, request: Request) -> Result<(), IoError> {
    queue.submit([request]).map_err(|(why, _)| why)?;
    queue.wait(1, None).unwrap();
    let mut out = Vec::with_capacity(1);
    queue.reap(&mut out);
    out.remove(0).result
}

/// Ranges of all lengths, at all places, become zeroes, and nothing beside them does.
fn zeroes_what_it_names(device: &Device) {
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    // A megabyte, and five of them, which is more than one Write Zeroes of this controller covers.
    let step = (1 << 20) / u64::from(ns.block_bytes());
    (0..6).for_each(|at| write(&queue, &ns, at * step, step, 5));
    let modes = ["interrupt", "poll", "adaptive"].into_iter().cycle();
    let ranges =
        [(0, 1), (7, 8), (8, 8), (1, step - 2), (3, step + 1), (9, 5 * step), (0, 6 * step)];
    for (((lba, blocks), make), mode) in
        ranges.into_iter().flat_map(|range| BOTH.map(|make| (range, make))).zip(modes)
    {
        queue.set_mode(mode.parse::<Mode>().unwrap());
        one(&queue, make(&ns, lba, blocks)).unwrap();
        for at in 0..=(lba + blocks) / step {
            let found = read(&queue, &ns, at * step, step);
            let zeroed = |block: usize| (lba..lba + blocks).contains(&(at * step + block as u64));
            let is_right = |(n, block): (usize, &[u8])| {
                block.iter().all(|&byte| byte == if zeroed(n) || at > 5 { 0 } else { 5 })
            };
            let right = found.chunks(ns.block_bytes() as usize).enumerate().all(is_right);
            assert!(right, "{mode}: {blocks} blocks at {lba}, megabyte {at}");
            if at < 6 {
                write(&queue, &ns, at * step, step, 5);
            }
        }
    }
}

#[test]
fn on_memory() {
    zeroes_what_it_names(&open("mem:64M?profile=optane&lba=512", OpenOptions::default()));
    zeroes_what_it_names(&open("mem:64M?profile=cloud&lba=4096", OpenOptions::new().depth(4)));
    zeroes_what_it_names(&open("mem:64M?profile=optane&masks=no", OpenOptions::default()));
}

#[test]
fn on_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("medium");
    let uri = format!("file:{}?size=64M&lba=512", path.display());
    zeroes_what_it_names(&open(&uri, OpenOptions::default()));
    let device = open(&uri, OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    (0..64).for_each(|at| write(&queue, &ns, at * 2048, 2048, 5));
    run(&queue, queue.flush(&ns)).unwrap();
    let full = std::fs::metadata(&path).unwrap().blocks();
    one(&queue, Request::deallocate(&ns, 0, ns.blocks())).unwrap();
    run(&queue, queue.flush(&ns)).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 64 << 20);
    // A file system without holes is a sound one, too.
    assert!(meta.blocks() < full || meta.blocks() * 512 >= 64 << 20, "{} of {full}", meta.blocks());
}

#[test]
fn over_paths() {
    zeroes_what_it_names(&open(
        "multipath:?path=mem:64M?profile=optane&path=mem:64M?profile=optane",
        OpenOptions::default(),
    ));
}

/// A device that may take less memory than it shows: what is deallocated can be written elsewhere,
/// time and again.
#[test]
fn memory_is_given_back() {
    let device = open("mem:1G?profile=optane&alloc=8M", OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    for round in 0..6u64 {
        let base = round * 20_000;
        (0..8).for_each(|at| write(&queue, &ns, base + at * 2048, 2048, 5));
        let full = queue
            .block_on(queue.write(&ns, ns.blocks() - 2048, queue.buffer(1 << 20).unwrap()))
            .unwrap()
            .0;
        assert!(matches!(full, Err(IoError::Status(_))), "{full:?}");
        match round % 2 {
            0 => one(&queue, Request::deallocate(&ns, 0, ns.blocks())).unwrap(),
            _ => one(&queue, Request::write_zeroes(&ns, 0, ns.blocks())).unwrap(),
        }
    }
    // Zeroes that keep their room, and so none for others.
    (0..8).for_each(|at| write(&queue, &ns, at * 2048, 2048, 5));
    one(&queue, Request::write_zeroes(&ns, 0, ns.blocks()).keep_allocated().fua()).unwrap();
    assert_eq!(read(&queue, &ns, 0, 2048), vec![0; 1 << 20]);
    assert!(one(&queue, Request::write(&ns, 1 << 20, queue.buffer(4096).unwrap())).is_err());
}

#[test]
fn what_cannot_be_is_refused() {
    for uri in ["mem:8M?profile=optane", "multipath:?path=mem:8M&path=mem:8M"] {
        let device = open(uri, OpenOptions::default());
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        assert!(ns.supports_write_zeroes().is_some() && ns.supports_deallocate().is_some());
        for make in BOTH {
            for (lba, blocks) in
                [(ns.blocks(), 1), (0, ns.blocks() + 1), (u64::MAX, u64::MAX), (1, ns.blocks())]
            {
                let refused = one(&queue, make(&ns, lba, blocks));
                assert!(
                    matches!(refused, Err(IoError::Refused(Refused::OutOfRange { .. }))),
                    "{refused:?}"
                );
            }
            assert_eq!(one(&queue, make(&ns, 0, 0)), Err(Refused::NoBlocks.into()));
        }
        assert_eq!(queue.in_flight(), 0);
    }
}

#[test]
fn unsupported_zeroes_are_never_sent() {
    for uri in ["mem:8M?profile=optane", "multipath:?path=mem:8M&path=mem:8M"] {
        let embedded = EmbeddedOptions {
            no_write_zeroes: true,
            no_deallocate: true,
            ..EmbeddedOptions::default()
        };
        let device = open(uri, OpenOptions::new().embedded(embedded));
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        assert_eq!((ns.supports_write_zeroes(), ns.supports_deallocate()), (None, None));
        let refused = one(&queue, Request::write_zeroes(&ns, 0, 8)).unwrap_err();
        assert!(
            matches!(
                refused,
                IoError::Refused(Refused::Unsupported { op: units::Op::WriteZeroes, nsid: 1 })
            ),
            "{refused}"
        );
        assert_eq!((refused.errno(), refused.to_string().contains("Write Zeroes")), (95, true));
        let refused = one(&queue, Request::deallocate(&ns, 0, 8)).unwrap_err();
        assert!(
            matches!(
                refused,
                IoError::Refused(Refused::Unsupported { op: units::Op::Deallocate, .. })
            ),
            "{refused}"
        );
        write(&queue, &ns, 0, 8, 5);
    }
}

/// Many in flight, with writes and reads between them, while the controller is reset: all end well,
/// and lists come back.
#[test]
fn reset_sends_zeroes_again() {
    let device = open("mem:64M?profile=tlc&thread=own", OpenOptions::new().depth(16));
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    (0..64).for_each(|at| write(&queue, &ns, at * 1024, 1024, 5));
    let leaked = device.counters().leaked_bytes;
    for round in 0..4u64 {
        let dataless =
            (0..40).map(|n| BOTH[n as usize % 2](&ns, n * 1024 + round * 256, 256).tag(n));
        let reads =
            (0..40).map(|n| Request::read(&ns, n * 1024, queue.buffer(512).unwrap()).tag(100 + n));
        // Its thread rests until the reset is begun, so that it takes back all of them.
        let resting = device.embedded().unwrap().manual_step();
        queue.submit(dataless.chain(reads)).map_err(|(why, _)| why).unwrap();
        device.reset();
        let limit = reap::Instant::now() + Duration::from_secs(60);
        while u64::from(device.health().resets) <= round {
            assert!(reap::Instant::now() < limit, "the reset is not begun");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(resting);
        let mut out = Vec::with_capacity(80);
        while out.len() < 80 {
            queue.wait(80 - out.len(), None).unwrap();
            queue.reap(&mut out);
        }
        for done in &out {
            assert_eq!(done.result, Ok(()), "{}", done.tag);
            // The list of a Deallocate; a Write Zeroes has none.
            assert_eq!(done.buf.is_some(), done.tag >= 100 || done.tag % 2 == 1, "{}", done.tag);
        }
    }
    assert_eq!(device.health().resets, 4);
    (0..40).for_each(|at| assert_eq!(read(&queue, &ns, at * 1024, 1024), vec![0; 512 << 10]));
    (40..64).for_each(|at| assert_eq!(read(&queue, &ns, at * 1024, 1024), vec![5; 512 << 10]));
    assert_eq!(device.counters().leaked_bytes, leaked);
}

/// A carried buffer comes back, and holds the list of a Deallocate that has room in it.
#[test]
fn a_carried_buffer_comes_back() {
    let device = open("mem:64M?profile=optane", OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    for make in BOTH {
        let carried = device.buffer(4096).unwrap();
        let addr = carried.as_ptr();
        queue.submit([make(&ns, 3, 1000).carrying(carried)]).map_err(|(why, _)| why).unwrap();
        queue.wait(1, None).unwrap();
        let mut out = Vec::with_capacity(1);
        queue.reap(&mut out);
        assert_eq!((out[0].result, out[0].buf.as_ref().unwrap().as_ptr()), (Ok(()), addr));
    }
}

/// A controller holds zeroes, and is lost with them. They are sent again by the other path, once
/// the first cannot carry them out any more; data written after that stand.
#[test]
fn held_zeroes_never_overwrite_later_data() {
    for (make, op) in BOTH.into_iter().zip([units::Op::WriteZeroes, units::Op::Deallocate]) {
        // So long that no Keep Alive is late before the path is lost.
        let paths = "multipath:?path=mem:64M?profile=optane&path=mem:64M?profile=optane&policy=numa&keep_alive=2s";
        let device = open(paths, OpenOptions::default());
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let change = |change| device.embedded().unwrap().change_path(0, change).unwrap();
        write(&queue, &ns, 0, 64, 5);
        change(Change::Hold(Some(op)));
        read(&queue, &ns, 0, 8);
        queue.submit([make(&ns, 0, 64)]).map_err(|(why, _)| why).unwrap();
        // Commands are fetched in order: once this is answered, the other is inside.
        assert_eq!(read(&queue, &ns, 0, 1), vec![5; 512]);
        assert_eq!(queue.in_flight(), 1);
        change(Change::Lost(Loss::Gone));
        wait_for_path(&device, 0, PathLink::Lost);
        queue.wait(1, None).unwrap();
        let mut out = Vec::with_capacity(1);
        queue.reap(&mut out);
        assert_eq!(out[0].result, Ok(()));
        assert_eq!(read(&queue, &ns, 0, 64), vec![0; 64 * 512]);
        write(&queue, &ns, 0, 64, 7);
        change(Change::Release);
        read(&queue, &ns, 100, 8);
        assert_eq!(read(&queue, &ns, 0, 64), vec![7; 64 * 512], "{op:?}");
        assert!(device.failover().held > 0 && device.failover().failed_over > 0);
    }
}
