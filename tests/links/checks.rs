//! Compare and Verify: what differs is told, and what a link does not have is refused.

use reap::{Device, IoError, Mode, Queue, Refused, Request};

use super::place::Place;
use super::table::everywhere;
use super::work::{drain, fill, submit};

/// Whether the device has Compare, and Verify. The embedded controller has both, and a drive what it says: QEMU's has no Verify.
fn checks(place: &Place, device: &Device) -> (bool, bool) {
    let ns = device.namespaces()[0];
    let has = (ns.supports_compare(), ns.supports_verify().is_some());
    assert!(has == (true, true) || place.is_kernel() || place.is_on_bus(), "{} has {has:?}", place.uri(""));
    has
}

fn filled(queue: &Queue, lba: u64, blocks: u64, generation: u64) -> reap::DmaBuf {
    let block = queue.namespaces()[0].block_bytes() as usize;
    let mut buf = queue.buffer(blocks as usize * block).unwrap();
    fill(&mut buf, lba, block, generation);
    buf
}

#[test]
fn a_compare_tells_what_differs_in_every_mode() {
    everywhere(&[], |place| {
        for (generation, mode) in (1..).zip(Mode::ALL) {
            let device = place.open(1, mode);
            let (true, verifies) = checks(place, &device) else { continue };
            place.on_each_kind(&device, |queue, kind| {
                let (ns, base) = (queue.namespaces()[0], 1001 + 512 * kind as u64);
                queue.block_on(queue.write(&ns, base, filled(queue, base, 64, generation))).unwrap().0.unwrap();
                let before = queue.hardware_counters().finished;
                let compares = (0..6).map(|n| {
                    let mut buf = filled(queue, base + 8 * n, 8, generation);
                    if n % 2 == 1 {
                        let last = buf.len() - 1;
                        buf[last] ^= 0x80;
                    }
                    Request::compare(&ns, base + 8 * n, buf)
                });
                // Where there is none, Flushes stand in for them.
                let verify = |n| if verifies { Request::verify(&ns, base + n, 60) } else { Request::flush(&ns) };
                // Reads elsewhere and a Flush keep them company.
                let others = (0..2).map(|n| Request::read(&ns, n * 8, queue.buffer(4096).unwrap())).chain([Request::flush(&ns)]);
                submit(queue, compares.chain((0..2).map(verify)).chain(others).zip(0..).map(|(request, tag)| request.tag(tag)));
                let mut done = drain(queue);
                done.sort_by_key(|done| done.tag);
                for done in &done {
                    let differs = done.tag < 6 && done.tag % 2 == 1;
                    let right = done.result.map_or_else(|why| differs && why.is_miscompare() && why.errno() == 84, |()| !differs);
                    assert!(right, "{mode}, {kind:?}: {done:?}");
                    assert_eq!(done.buf.is_some(), done.tag < 6 || (8..10).contains(&done.tag), "{mode}: {done:?}");
                }
                assert_eq!(done.len(), 11);
                assert_eq!(queue.hardware_counters().finished - before, 11, "{mode}: each is one command");
                // Nothing has changed.
                let (result, _) = queue.block_on(queue.compare(&ns, base, filled(queue, base, 64, generation))).unwrap();
                assert_eq!(result, Ok(()), "{mode}, {kind:?}");
            });
            assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0), "{mode}");
        }
    });
}

/// More than one command takes: the parts end together, and one that differs is enough.
#[test]
fn long_ones_are_split() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::ADAPTIVE);
        let (true, verifies) = checks(place, &device) else { return };
        place.on_each_kind(&device, |queue, _| {
            let ns = queue.namespaces()[0];
            let blocks = (3 << 20) / u64::from(ns.block_bytes()) + 1;
            queue.block_on(queue.write(&ns, 3, filled(queue, 3, blocks, 9))).unwrap().0.unwrap();
            let before = queue.hardware_counters().finished;
            for at in [None, Some(0), Some(2 << 20), Some((3 << 20) + 1)] {
                let mut buf = filled(queue, 3, blocks, 9);
                at.into_iter().for_each(|at| buf[at] = !buf[at]);
                let (result, buf) = queue.block_on(queue.compare(&ns, 3, buf)).unwrap();
                assert_eq!(result.map_err(|why| why.is_miscompare()), at.map_or(Ok(()), |_| Err(true)), "{at:?}");
                assert_eq!(buf.len() as u64, blocks * u64::from(ns.block_bytes()), "it comes back");
            }
            assert!(queue.hardware_counters().finished - before > 4, "they are several commands");
            if verifies {
                queue.block_on(queue.verify(&ns, 0, ns.blocks())).unwrap().unwrap();
            }
        });
    });
}

#[test]
fn what_cannot_be_is_refused() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (compares, verifies) = checks(place, &device);
        place.on_each_kind(&device, |queue, _| {
            let ns = queue.namespaces()[0];
            let one = |request: Request| queue.submit([request]).map_err(|(why, _)| why);
            let compare = |lba| Request::compare(&ns, lba, queue.buffer(4096).unwrap());
            let lacks = |request: Request, op| {
                let refused = one(request).unwrap_err();
                assert_eq!(refused, Refused::Unsupported { op, nsid: ns.nsid().0 });
                assert_eq!((IoError::from(refused).errno(), refused.to_string().contains("and read instead")), (95, true), "{refused}");
            };
            if compares {
                assert!(matches!(one(compare(ns.blocks())), Err(Refused::OutOfRange { .. })));
                assert!(matches!(one(compare(0).bytes(100)), Err(Refused::Length { .. })));
            } else {
                lacks(compare(0), units::Op::Compare);
            }
            if verifies {
                assert!(matches!(one(Request::verify(&ns, ns.blocks(), 1)), Err(Refused::OutOfRange { .. })));
                assert!(matches!(one(Request::verify(&ns, u64::MAX, u64::MAX)), Err(Refused::OutOfRange { .. })));
                assert_eq!(one(Request::verify(&ns, 0, 0)), Err(Refused::NoBlocks));
            } else {
                lacks(Request::verify(&ns, 0, 1), units::Op::Verify);
            }
            assert_eq!(queue.in_flight(), 0);
        });
    });
}
