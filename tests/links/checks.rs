//! Compare, Verify and Write Uncorrectable: where there are such commands they do what they say,
//! and elsewhere they are refused before anything is sent.

use reap::{Device, IoError, Mode, Namespace, Queue, Refused, Request};

use super::place::Place;
use super::table::{everywhere, skipped};
use super::work::{drain, fill, submit};

/// Whether the device has Compare, and Verify. Files and block devices have neither, controllers of
/// Reap's own have both, and QEMU's have Compare, by commands that pass through as well.
fn checks(place: &Place, device: &Device) -> (bool, bool) {
    let ns = device.namespaces()[0];
    let has = (ns.supports_compare().is_some(), ns.supports_verify().is_some());
    let passes = place.uri("").contains("/dev/ng");
    if has != (true, true) {
        assert!(
            place.is_kernel() || place.is_on_bus(),
            "{} has Compare and Verify: {has:?}",
            place.uri("")
        );
        if place.is_on_bus() || passes {
            skipped(format_args!("on {}: Compare and Verify are {has:?}", place.uri("")));
        }
    }
    assert!(has.0 || !passes, "{} has no Compare", place.uri(""));
    has
}

/// A Compare of blocks with what was written to them, but for one byte.
fn compare(
    queue: &Queue,
    (lba, blocks): (u64, u64),
    generation: u64,
    wrong: Option<usize>,
) -> Request {
    let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
    let mut buf = queue.buffer(blocks as usize * block).unwrap();
    fill(&mut buf, lba, block, generation);
    if let Some(at) = wrong {
        buf[at] ^= 1;
    }
    Request::compare(&ns, lba, buf)
}

fn write(queue: &Queue, (lba, blocks): (u64, u64), generation: u64) {
    let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
    let mut buf = queue.buffer(blocks as usize * block).unwrap();
    fill(&mut buf, lba, block, generation);
    queue.block_on(queue.write(&ns, lba, buf)).unwrap().0.unwrap();
}

#[test]
fn compare_and_verify_every_mode() {
    everywhere(&[], |place| {
        for (generation, mode) in (200..).zip(Mode::ALL) {
            let device = place.open(1, mode);
            let (compares, verifies) = checks(place, &device);
            if !compares {
                return;
            }
            place.on_each_kind(&device, |queue, kind| {
                let (ns, area) = (queue.namespaces()[0], (1001 + 512 * kind as u64, 64));
                let bytes = 64 * ns.block_bytes() as usize;
                write(queue, area, generation);
                let before = queue.hardware_counters().finished;
                let wrong = [None, Some(0), Some(bytes - 1), None, Some(bytes / 2)];
                let compares = wrong.map(|at| compare(queue, area, generation, at));
                // Reads and Verifies keep them company.
                let read = Request::read(&ns, area.0, queue.buffer(4096).unwrap());
                let others = [Some(read), verifies.then(|| Request::verify(&ns, area.0, area.1))];
                submit(
                    queue,
                    compares
                        .into_iter()
                        .chain(others.into_iter().flatten())
                        .zip(0..)
                        .map(|(request, tag)| request.tag(tag)),
                );
                let mut done = drain(queue);
                done.sort_by_key(|done| done.tag);
                let all = 6 + usize::from(verifies);
                assert_eq!(done.len(), all, "{mode}");
                for (done, at) in done.iter().zip(wrong) {
                    let told = done.result.is_err_and(|why| why.is_miscompare());
                    assert_eq!(
                        (told, done.result.is_ok()),
                        (at.is_some(), at.is_none()),
                        "{mode}: {at:?}, {:?}",
                        done.result
                    );
                    assert_eq!(
                        done.buf.as_ref().map(|buf| buf.len()),
                        Some(bytes),
                        "{mode}: the buffer comes back"
                    );
                }
                assert!(
                    done[5..].iter().all(|done| done.result.is_ok()),
                    "{mode}: {:?}",
                    &done[5..]
                );
                assert!(
                    done[6..].iter().all(|done| done.buf.is_none()),
                    "{mode}: {:?}",
                    &done[6..]
                );
                assert!(queue.hardware_counters().finished - before >= all as u64, "{mode}");
            });
            assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0), "{mode}");
        }
    });
}

/// Of a request that is more than one command the last block counts as the first does.
#[test]
fn long_ones_are_split() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (compares, _) = checks(place, &device);
        if !compares {
            return;
        }
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        let blocks = u64::from(ns.supports_compare().unwrap().min(2048)) + 3;
        let last = (blocks * u64::from(ns.block_bytes())) as usize - 1;
        write(&queue, (5, blocks), 11);
        for (wrong, expected) in
            [(None, true), (Some(last), false), (Some(0), false), (Some(last / 2), false)]
        {
            submit(&queue, [compare(&queue, (5, blocks), 11, wrong)]);
            let done = drain(&queue).remove(0);
            assert_eq!(done.result.is_ok(), expected, "{wrong:?}: {:?}", done.result);
            assert!(
                expected || done.result.is_err_and(|why| why.is_miscompare()),
                "{wrong:?}: {:?}",
                done.result
            );
        }
        let Some(most) = ns.supports_verify().map(u64::from) else { return };
        submit(&queue, [Request::verify(&ns, 0, (4 * most + 1).min(ns.blocks()))]);
        assert_eq!(drain(&queue).remove(0).result, Ok(()));
    });
}

#[test]
fn checks_outside_are_refused() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (compares, verifies) = checks(place, &device);
        if !compares {
            return;
        }
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        let refused = |request| queue.submit([request]).map_err(|(why, _)| why).unwrap_err();
        let compare =
            |lba, bytes| Request::compare(&ns, lba, queue.buffer(4096).unwrap()).bytes(bytes);
        let mut outside = vec![compare(ns.blocks(), 4096)];
        if verifies {
            assert_eq!(refused(Request::verify(&ns, 0, 0)), Refused::NoBlocks);
            outside.extend([
                Request::verify(&ns, ns.blocks() - 1, 2),
                Request::verify(&ns, u64::MAX, 1),
            ]);
        }
        for request in outside {
            let why = refused(request);
            assert!(matches!(why, Refused::OutOfRange { .. }), "{why}");
        }
        for bytes in [0, 1, 8192] {
            let why = refused(compare(0, bytes));
            assert!(matches!(why, Refused::Length { .. }), "{why}");
        }
        assert_eq!(queue.in_flight(), 0);
    });
}

/// As many as are made unreadable cannot be read, on queues of either kind, and their neighbours
/// can.
#[test]
fn uncorrectable_until_written() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let ns = device.namespaces()[0];
        if ns.supports_write_uncorrectable().is_none() {
            assert!(
                place.is_kernel() || place.is_on_bus(),
                "{} has no Write Uncorrectable",
                place.uri("")
            );
            return;
        }
        place.on_each_kind(&device, |queue, kind| {
            let first = 3001 + 512 * kind as u64;
            write(queue, (first, 64), 300);
            submit(queue, [Request::write_uncorrectable(&ns, first + 8, 8)]);
            assert_eq!(drain(queue).remove(0).result, Ok(()));
            let reads = |queue: &Queue| -> Vec<bool> {
                let read = |at| {
                    Request::read(&ns, first + at, queue.buffer(ns.block_bytes() as usize).unwrap())
                        .tag(at)
                };
                submit(queue, (0..24).map(read));
                let mut done = drain(queue);
                done.sort_by_key(|done| done.tag);
                done.iter().map(|done| done.result.is_ok()).collect()
            };
            assert_eq!(reads(queue), (0..24).map(|at| !(8..16).contains(&at)).collect::<Vec<_>>());
            write(queue, (first, 64), 301);
            assert_eq!(reads(queue), [true; 24]);
        });
    });
}

/// The kernel has no such requests of files and block devices.
#[test]
fn unsupported_checks_are_refused() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        write(&queue, (16, 8), 1);
        let makes: [fn(&Queue, &Namespace) -> Request; 3] = [
            |queue, _| compare(queue, (16, 8), 2, None),
            |_, ns| Request::verify(ns, 16, 8),
            |_, ns| Request::write_uncorrectable(ns, 16, 8),
        ];
        let has = [ns.supports_compare(), ns.supports_verify(), ns.supports_write_uncorrectable()]
            .map(|most| most.is_some());
        for (make, _) in makes.into_iter().zip(has).filter(|(_, has)| !has) {
            let (why, request) = queue.submit([make(&queue, &ns)]).unwrap_err();
            assert!(
                matches!(why, Refused::Unsupported { nsid, .. } if nsid == ns.nsid().0),
                "{why}"
            );
            assert_eq!(
                (IoError::from(why).errno(), why.to_string().contains("supports_")),
                (95, true),
                "{why}"
            );
            drop(request);
        }
        let (result, buf) = queue
            .block_on(queue.read(&ns, 16, queue.buffer(8 * ns.block_bytes() as usize).unwrap()))
            .unwrap();
        result.unwrap();
        assert_eq!(super::work::differs(&buf, 16, ns.block_bytes() as usize, 1), None);
    });
}
