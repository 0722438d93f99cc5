//! Whole-stack: Compare, Verify and Write Uncorrectable where controllers lack them, are reset, are
//! lost, and have media that cannot be read.

use std::time::Duration;

use crate::common::open;
use reap::{
    Change, EmbeddedOptions, IoError, Loss, Namespace, OpenOptions, PathLink, Queue, Reactor,
    Refused, Request,
};

const PATHS: &str =
    "multipath:?path=mem:64M?profile=optane&path=mem:64M?profile=optane&policy=numa&keep_alive=2s";

fn filled(queue: &Queue, ns: &Namespace, blocks: u64, byte: u8) -> reap::DmaBuf {
    let mut buf = queue.buffer((blocks * u64::from(ns.block_bytes())) as usize).unwrap();
    buf.fill(byte);
    buf
}

fn write(queue: &Queue, ns: &Namespace, lba: u64, blocks: u64, byte: u8) {
    queue.block_on(queue.write(ns, lba, filled(queue, ns, blocks, byte))).unwrap().0.unwrap();
}

fn compare(queue: &Queue, ns: &Namespace, lba: u64, blocks: u64, byte: u8) -> Result<(), IoError> {
    queue
        .block_on(queue.start(Request::compare(ns, lba, filled(queue, ns, blocks, byte))))
        .unwrap()
        .result
}

fn drain(queue: &Queue, count: usize) -> Vec<reap::Completion> {
    let mut out = Vec::with_capacity(count);
    while out.len() < count {
        queue.wait(count - out.len(), None).unwrap();
        queue.reap(&mut out);
    }
    out
}

#[test]
fn unsupported_commands_are_never_sent() {
    for uri in ["mem:8M?profile=optane", "multipath:?path=mem:8M&path=mem:8M"] {
        let embedded = EmbeddedOptions { no_checks: true, ..EmbeddedOptions::default() };
        let device = open(uri, OpenOptions::new().embedded(embedded));
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        assert_eq!((ns.supports_compare(), ns.supports_verify()), (None, None));
        let refused = compare(&queue, &ns, 0, 8, 0).unwrap_err();
        assert!(
            matches!(
                refused,
                IoError::Refused(Refused::Unsupported { op: units::Op::Compare, nsid: 1 })
            ),
            "{refused}"
        );
        assert!(
            refused.to_string().contains("support Compare") && !refused.is_miscompare(),
            "{refused}"
        );
        let refused =
            queue.block_on(queue.start(Request::verify(&ns, 0, 8))).unwrap().result.unwrap_err();
        assert!(
            matches!(refused, IoError::Refused(Refused::Unsupported { op: units::Op::Verify, .. })),
            "{refused}"
        );
        write(&queue, &ns, 0, 8, 5);
    }
}

#[test]
fn paths_and_reactors_pass_them_on() {
    let device = open(PATHS, OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    assert!(ns.supports_compare().is_some() && ns.supports_verify().is_some());
    write(&queue, &ns, 0, 64, 5);
    assert_eq!(compare(&queue, &ns, 0, 64, 5), Ok(()));
    let why = compare(&queue, &ns, 8, 64, 5).unwrap_err();
    assert!(why.is_miscompare(), "{why}");
    assert_eq!(
        queue.block_on(queue.start(Request::verify(&ns, 0, ns.blocks()))).unwrap().result,
        Ok(())
    );
    let reactor = Reactor::start(&device, None).unwrap();
    let other = device.queue().unwrap();
    let done = other
        .block_on(reactor.start_request(Request::compare(&ns, 0, filled(&other, &ns, 8, 4))))
        .unwrap();
    assert_eq!(
        (done.result.map_err(|why| why.is_miscompare()), done.buf.unwrap().len()),
        (Err(true), 8 * 512)
    );
    assert_eq!(
        other.block_on(reactor.start_request(Request::verify(&ns, 0, 8))).unwrap().result,
        Ok(())
    );
    // A path that answers so is no worse for it.
    assert!(device.paths().iter().all(|path| path.status.link == PathLink::Live));
    assert_eq!(device.failover().retried, 0);
}

/// Many in flight when the controller is reset: each tells the truth all the same.
#[test]
fn reset_sends_checks_again() {
    let device = open("mem:64M?profile=tlc&thread=own", OpenOptions::new().depth(16));
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    (0..40).for_each(|at| write(&queue, &ns, at * 8, 8, at as u8));
    // Its thread rests until the reset is begun, so that it takes back all of them.
    let resting = device.embedded().unwrap().manual_step();
    let compares = (0..40).map(|n| {
        Request::compare(&ns, n * 8, filled(&queue, &ns, 8, n as u8 + u8::from(n % 4 == 0))).tag(n)
    });
    let verifies = (40..50).map(|n| Request::verify(&ns, n, 64).tag(n));
    queue.submit(compares.chain(verifies)).map_err(|(why, _)| why).unwrap();
    device.reset();
    let limit = reap::Instant::now() + Duration::from_secs(60);
    while device.health().resets == 0 {
        assert!(reap::Instant::now() < limit, "the reset is not begun");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(resting);
    for done in drain(&queue, 50) {
        let differs = done.tag < 40 && done.tag % 4 == 0;
        assert_eq!(
            done.result.map_err(|why| why.is_miscompare()),
            if differs { Err(true) } else { Ok(()) },
            "{}",
            done.tag
        );
        assert_eq!(done.buf.is_some(), done.tag < 40);
    }
    assert_eq!(device.counters().leaked_bytes, 0);
}

/// A path is lost with a Compare and a Verify inside: the other path answers both, and at once,
/// since neither changes a block.
#[test]
fn another_path_answers_held_commands() {
    for (byte, op) in [(5, units::Op::Compare), (6, units::Op::Compare), (0, units::Op::Verify)] {
        let device = open(PATHS, OpenOptions::default());
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let change = |change| device.embedded().unwrap().change_path(0, change).unwrap();
        write(&queue, &ns, 0, 64, 5);
        change(Change::Hold(Some(op)));
        // The device's thread hears of changes between commands.
        write(&queue, &ns, 2000, 1, 5);
        let request = match op {
            units::Op::Compare => Request::compare(&ns, 0, filled(&queue, &ns, 64, byte)),
            _ => Request::verify(&ns, 0, 64),
        };
        // Commands are fetched in order: once the Write is answered, the other is inside.
        queue.submit([request]).map_err(|(why, _)| why).unwrap();
        write(&queue, &ns, 1000, 1, 5);
        assert_eq!(queue.in_flight(), 1);
        change(Change::Lost(Loss::Gone));
        let done = drain(&queue, 1).remove(0);
        assert_eq!(
            done.result.map_err(|why| why.is_miscompare()),
            if byte == 6 { Err(true) } else { Ok(()) },
            "{op:?}"
        );
        assert!(
            device.failover().failed_over > 0 && device.failover().held == 0,
            "{:?}",
            device.failover()
        );
    }
}

/// What is lost on one path is lost on the other: it is the medium that lacks it.
#[test]
fn uncorrectable_blocks_fail_on_every_path() {
    for uri in ["mem:64M?profile=optane", PATHS] {
        let device = open(uri, OpenOptions::default());
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let most = u64::from(ns.supports_write_uncorrectable().unwrap());
        write(&queue, &ns, 0, 64, 5);
        assert_eq!(
            queue
                .block_on(queue.start(Request::write_uncorrectable(&ns, 8, most + 8)))
                .unwrap()
                .result,
            Ok(()),
            "{uri}: in two parts"
        );
        for path in 0..device.paths().len().max(1) {
            if path > 0 {
                device.embedded().unwrap().change_path(path - 1, Change::Lost(Loss::Gone)).unwrap();
            }
            let verify =
                |lba| queue.block_on(queue.start(Request::verify(&ns, lba, 1))).unwrap().result;
            for (lba, good) in [(7, true), (8, false), (most + 15, false), (most + 16, true)] {
                let said = verify(lba).map_err(
                    |why| matches!(why, IoError::Status(status) if status.code_type() == 2),
                );
                assert_eq!(
                    said,
                    if good { Ok(()) } else { Err(true) },
                    "{uri}, path {path}, block {lba}"
                );
            }
        }
        write(&queue, &ns, 8, 8, 6);
        assert_eq!(compare(&queue, &ns, 8, 8, 6), Ok(()), "{uri}");
        let reactor = Reactor::start(&device, None).unwrap();
        let other = device.queue().unwrap();
        assert_eq!(
            other
                .block_on(reactor.start_request(Request::write_uncorrectable(&ns, 9, 1)))
                .unwrap()
                .result,
            Ok(())
        );
        assert!(compare(&other, &ns, 8, 8, 6).is_err_and(|why| !why.is_miscompare()), "{uri}");
    }
    let embedded = EmbeddedOptions { no_uncorrectable: true, ..EmbeddedOptions::default() };
    let device = open("mem:8M", OpenOptions::new().embedded(embedded));
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    assert_eq!(ns.supports_write_uncorrectable(), None);
    let refused = queue
        .block_on(queue.start(Request::write_uncorrectable(&ns, 0, 8)))
        .unwrap()
        .result
        .unwrap_err();
    assert!(
        refused.to_string().contains("does not support Write Uncorrectable")
            && !refused.to_string().contains("instead"),
        "{refused}"
    );
}

/// A file that has become shorter under the controller cannot be read to its end.
#[test]
fn verify_finds_unreadable_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("medium");
    let device = open(&format!("file:{}?size=16M&lba=512", path.display()), OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    write(&queue, &ns, 0, 64, 5);
    assert_eq!(
        queue.block_on(queue.start(Request::verify(&ns, 0, ns.blocks()))).unwrap().result,
        Ok(())
    );
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let why = queue
        .block_on(queue.start(Request::verify(&ns, 0, ns.blocks())))
        .unwrap()
        .result
        .unwrap_err();
    assert!(
        matches!(why, IoError::Status(status) if status.code_type() == 2) && !why.is_miscompare(),
        "{why}"
    );
    assert_eq!(queue.block_on(queue.start(Request::verify(&ns, 0, 2048))).unwrap().result, Ok(()));
    assert_eq!(compare(&queue, &ns, 0, 64, 5), Ok(()));
}
