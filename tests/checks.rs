//! Whole-stack: Compare and Verify over paths, on media and through faults and resets; and a controller that has neither.

use std::time::Duration;

use reap::{Device, EmbeddedOptions, Fault, FaultPlan, Faults, IoError, Namespace, OpenOptions, Queue, Refused, Request, Status};

fn open(uri: &str, options: OpenOptions) -> Device {
    Device::open_with(uri, &options.pool_bytes(64 << 20)).unwrap_or_else(|e| panic!("{uri}: {e}"))
}

fn write(queue: &Queue, ns: &Namespace, lba: u64, byte: u8) {
    let mut buf = queue.buffer(4096).unwrap();
    buf.fill(byte);
    queue.block_on(queue.write(ns, lba, buf)).unwrap().0.unwrap();
}

fn compare(queue: &Queue, ns: &Namespace, lba: u64, byte: u8) -> Result<(), IoError> {
    let mut buf = queue.buffer(4096).unwrap();
    buf.fill(byte);
    let (result, buf) = queue.block_on(queue.compare(ns, lba, buf)).unwrap();
    assert!(buf.iter().all(|&is| is == byte), "the buffer comes back as it was");
    result
}

/// A miscompare is the request's end on whichever path, and no reason to leave it.
#[test]
fn over_paths_and_on_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("file:{}?size=8M", dir.path().join("medium").display());
    // A busy machine keeps a controller's host away for longer than a second.
    for uri in ["multipath:?path=mem:8M?profile=optane&path=mem:8M?profile=optane&keep_alive=0s", &file] {
        let device = open(uri, OpenOptions::default());
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        for lba in (0..64).step_by(8) {
            write(&queue, &ns, lba, 5);
            assert_eq!(compare(&queue, &ns, lba, 5), Ok(()), "{uri}");
            let why = compare(&queue, &ns, lba, 6).unwrap_err();
            assert!(why.is_miscompare() && why.to_string().contains("Compare Failure"), "{uri}: {why}");
        }
        queue.block_on(queue.verify(&ns, 0, ns.blocks())).unwrap().unwrap();
        assert_eq!(device.health().resets, 0);
    }
}

/// One that is lost inside is aborted or posted again, and ends once.
#[test]
fn faults_and_resets_end_in_the_result() {
    let faults = Faults::new(FaultPlan::new());
    let embedded = EmbeddedOptions { faults: Some(faults.clone()), ..EmbeddedOptions::default() };
    let device = open("mem:8M?profile=optane", OpenOptions::new().embedded(embedded).timeout(Duration::from_millis(200)));
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    write(&queue, &ns, 0, 5);
    let media = Status::UNRECOVERED_READ_ERROR.with_dnr();
    faults.set(FaultPlan::new().at(0, Fault::Status(media)));
    assert_eq!(queue.block_on(queue.verify(&ns, 0, 8)).unwrap(), Err(IoError::Status(media)));
    for fault in [Fault::SwallowEntry, Fault::SwallowCommand, Fault::Fatal] {
        for byte in [5, 6] {
            faults.set(FaultPlan::new().at(0, fault));
            let result = compare(&queue, &ns, 0, byte);
            let right = match result {
                Ok(()) => byte == 5,
                Err(IoError::TimedOut) => true,
                Err(why) => byte == 6 && why.is_miscompare(),
            };
            assert!(right, "{fault:?}, {byte}: {result:?}");
            assert!(!faults.injected().is_empty(), "{fault:?}");
        }
    }
    faults.set(FaultPlan::new());
    assert_eq!((compare(&queue, &ns, 0, 5), device.counters().leaked_bytes), (Ok(()), 0));
    // What resets take back is compared again.
    let mut out = Vec::with_capacity(64);
    for _ in 0..4 {
        let requests = (0..40).map(|n| {
            let mut buf = queue.buffer(4096).unwrap();
            buf.fill(5 + (n % 2) as u8);
            if n % 4 < 2 { Request::compare(&ns, 0, buf).tag(n) } else { Request::verify(&ns, 0, 8).tag(n) }
        });
        queue.submit(requests).map_err(|(why, _)| why).unwrap();
        device.reset();
        while out.len() < 40 {
            queue.wait(1, None).unwrap();
            queue.reap(&mut out);
        }
        for done in out.drain(..) {
            let result = done.result.map_err(|why| why.is_miscompare());
            assert_eq!(result, if done.tag % 4 == 1 { Err(true) } else { Ok(()) }, "{}", done.tag);
        }
    }
}

#[test]
fn a_controller_without_them_is_not_asked() {
    for uri in ["mem:8M?profile=optane", "multipath:?path=mem:8M&path=mem:8M&keep_alive=0s"] {
        let embedded = EmbeddedOptions { no_checks: true, ..EmbeddedOptions::default() };
        let device = open(uri, OpenOptions::new().embedded(embedded));
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        assert_eq!((ns.supports_compare(), ns.supports_verify()), (false, None));
        assert_eq!(compare(&queue, &ns, 0, 0), Err(Refused::Unsupported { op: units::Op::Compare, nsid: 1 }.into()));
        let refused = queue.block_on(queue.verify(&ns, 0, 8)).unwrap();
        assert_eq!(refused, Err(Refused::Unsupported { op: units::Op::Verify, nsid: 1 }.into()));
        assert!(ns.supports_write_zeroes().is_some());
    }
}
