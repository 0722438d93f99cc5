use units::Op;

use super::*;
use crate::{Completion, Device, Nanos, OpenOptions, Request};

/// Two reads of 4 KiB and a write, by hand.
fn load(device: &Device) -> Vec<Completion> {
    let queue = device.queue().unwrap();
    let ns = device.namespaces()[0];
    let buf = || device.buffer(4096).unwrap();
    let requests = [Request::read(&ns, 8, buf()), Request::write(&ns, 16, buf()), Request::read(&ns, 24, buf())];
    queue.submit(requests).map_err(|(why, _)| why).unwrap();
    let mut found = Vec::with_capacity(3);
    while found.len() < 3 {
        queue.wait(1, None).unwrap();
        queue.reap(&mut found);
    }
    found
}

#[test]
fn every_command_is_stamped_once_and_the_stamps_fit_its_latency() {
    let (stamps, arrived) = Stamps::new();
    let options = OpenOptions::new()
        .embedded(crate::EmbeddedOptions { stamps: Some(stamps.clone()), ..crate::EmbeddedOptions::default() })
        .pool_bytes(64 << 20);
    let device = Device::open_with("mem:64M?profile=optane", &options).unwrap();
    load(&device);
    stamps.start();
    let found = load(&device);
    drop((device, stamps, options));
    let mut stamped: Vec<Stamp> = arrived.into_iter().flatten().collect();
    stamped.sort_by_key(|s| s.offset);
    let what: Vec<_> = stamped.iter().map(|s| (s.op, s.offset, s.bytes)).collect();
    assert_eq!(what, [(Op::Read, 8 * 512, 4096), (Op::Write, 16 * 512, 4096), (Op::Read, 24 * 512, 4096)], "nothing before the start");
    let last = found.iter().map(|c| c.completed_at).max().unwrap();
    for stamp in stamped {
        // The device reads the clock before it looks for commands, so what it fetches may be younger than that: only ends compare.
        assert!(stamp.fetched + stamp.queued + stamp.service + stamp.late <= last.nanos(), "{stamp:?}");
        assert!(stamp.service >= Nanos(8_000), "{stamp:?}");
    }
}
