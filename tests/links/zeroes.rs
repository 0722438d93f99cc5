//! Write Zeroes and Deallocate: what is named reads as it is promised, and nothing beside it has
//! changed.

use std::ops::Range;

use reap::{Device, IoError, Mode, Namespace, Queue, Refused, Request};

use super::place::{Place, options};
use super::table::{Feature, everywhere, skipped};
use super::work::{differs, drain, fill, submit};

/// What blocks read as that were deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Zeroes,
    /// As they did, as zeroes, or as ones, each for itself.
    Anything,
}

/// What the link promises: docs/kernel.md, docs/pcie.md.
fn promise(place: &Place) -> Promise {
    let is_device =
        (place.is_kernel() || place.is_on_bus()) && place.file.is_none() || place.looped.is_some();
    if is_device { Promise::Anything } else { Promise::Zeroes }
}

type Make = fn(&Namespace, u64, u64) -> Request;

const ZEROES: [Make; 4] = [
    Request::write_zeroes,
    |ns, lba, blocks| Request::write_zeroes(ns, lba, blocks).keep_allocated(),
    |ns, lba, blocks| Request::write_zeroes(ns, lba, blocks).fua(),
    |ns, lba, blocks| Request::write_zeroes(ns, lba, blocks).keep_allocated().fua(),
];

/// Blocks from `base` on that were written, some of which were zeroed or deallocated since.
struct Area {
    base: u64,
    blocks: u64,
    generation: u64,
}

impl Area {
    fn write(&self, queue: &Queue) {
        let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
        let mut buf = queue.buffer(self.blocks as usize * block).unwrap();
        fill(&mut buf, self.base, block, self.generation);
        queue.block_on(queue.write(&ns, self.base, buf)).unwrap().0.unwrap();
    }

    /// Blocks of `cleared`, counted from `base`, are as promised, and all others as they were
    /// written.
    fn check(&self, queue: &Queue, cleared: &[Range<u64>], promise: Promise) {
        let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
        let mut buf = queue.buffer(self.blocks as usize * block).unwrap();
        buf.fill(0xee);
        let (result, buf) = queue.block_on(queue.read(&ns, self.base, buf)).unwrap();
        result.unwrap();
        for (n, found) in (0..).zip(buf.chunks(block)) {
            let is_written = differs(found, self.base + n, block, self.generation).is_none();
            let is_all = |byte: u8| found.iter().all(|&is| is == byte);
            let right = match cleared.iter().any(|range| range.contains(&n)) {
                false => is_written,
                true if promise == Promise::Anything => is_written || is_all(0) || is_all(0xff),
                true => is_all(0),
            };
            assert!(right, "block {n} of {cleared:?} at {}: {:02x?}…", self.base, &found[..8]);
        }
    }
}

/// Whether the device deallocates; all that tests make for themselves do.
fn deallocates(place: &Place, device: &Device) -> bool {
    let does = device.namespaces()[0].supports_deallocate().is_some();
    if !does {
        assert!(place.is_kernel() && place.file.is_none(), "{} does not deallocate", place.uri(""));
        skipped(format_args!("on {}: it neither discards nor has Write Zeroes", place.uri("")));
    }
    does
}

fn one(queue: &Queue, request: Request) -> Result<(), IoError> {
    queue.submit([request]).map_err(|(why, _)| why)?;
    drain(queue).remove(0).result
}

#[test]
fn zeroes_are_read_in_every_mode() {
    everywhere(&[], |place| {
        for (generation, mode) in (1..).zip(Mode::ALL) {
            let device = place.open(1, mode);
            place.on_each_kind(&device, |queue, kind| {
                let (ns, area) = (
                    queue.namespaces()[0],
                    Area { base: 1001 + 512 * kind as u64, blocks: 64, generation },
                );
                assert!(ns.supports_write_zeroes().is_some());
                area.write(queue);
                let before = queue.hardware_counters().finished;
                let ranges: Vec<_> = (0..4).map(|n| 1 + 15 * n..9 + 16 * n).collect();
                let zeroes = ranges
                    .iter()
                    .zip(ZEROES)
                    .map(|(at, make)| make(&ns, area.base + at.start, at.end - at.start));
                // Reads elsewhere and a Flush keep them company.
                let others = (0..4)
                    .map(|n| Request::read(&ns, n * 8, queue.buffer(4096).unwrap()))
                    .chain([Request::flush(&ns)]);
                submit(queue, zeroes.chain(others).zip(0..).map(|(request, tag)| request.tag(tag)));
                let mut done = drain(queue);
                done.sort_by_key(|done| done.tag);
                assert!(
                    done.iter().all(|done| done.result.is_ok())
                        && done.iter().map(|done| done.tag).eq(0..9),
                    "{mode}: {done:?}"
                );
                assert!(done[..4].iter().all(|done| done.buf.is_none()));
                assert_eq!(
                    queue.hardware_counters().finished - before,
                    9,
                    "{mode}: each is counted once, however many steps it takes"
                );
                area.check(queue, &ranges, Promise::Zeroes);
            });
            assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0), "{mode}");
        }
    });
}

#[test]
fn deallocated_blocks_read_as_promised() {
    everywhere(&[], |place| {
        for (generation, mode) in (100..).zip(Mode::ALL) {
            let device = place.open(1, mode);
            if !deallocates(place, &device) {
                return;
            }
            place.on_each_kind(&device, |queue, kind| {
                // Pieces that devices can give back, and such as they cannot.
                let (ns, area) = (
                    queue.namespaces()[0],
                    Area { base: 1024 + 512 * kind as u64, blocks: 128, generation },
                );
                area.write(queue);
                let ranges = [1..2, 8..24, 29..61, 64..128];
                submit(
                    queue,
                    ranges.iter().map(|at| {
                        Request::deallocate(&ns, area.base + at.start, at.end - at.start)
                    }),
                );
                let done = drain(queue);
                assert!(
                    done.len() == 4
                        && done.iter().all(|done| done.result.is_ok() && done.buf.is_some()),
                    "{mode}: {done:?}"
                );
                area.check(queue, &ranges, promise(place));
                // It can be written again.
                area.write(queue);
                area.check(queue, &[], Promise::Zeroes);
            });
            assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0), "{mode}");
        }
    });
}

/// Blocks beside each other, some of them in one page of the cache, written and zeroed in turns.
#[test]
fn zeroes_spare_neighbouring_blocks() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        let area = Area { base: 80, blocks: 32, generation: 5 };
        area.write(&queue);
        for n in 0..15 {
            let at = 2 * n + 1;
            one(&queue, ZEROES[n as usize % 4](&ns, area.base + at, 1)).unwrap();
            Area { base: area.base + at + 1, blocks: 1, ..area }.write(&queue);
            let zeroed: Vec<_> = (0..=n).map(|n| 2 * n + 1..2 * n + 2).collect();
            area.check(&queue, &zeroed, Promise::Zeroes);
        }
    });
}

#[test]
fn durable_zeroes_survive_reopening() {
    everywhere(&[Feature::Keeping], |place| {
        let areas = [(Mode::INTERRUPT, 160), (Mode::POLL, 240), (Mode::ADAPTIVE, 320)].map(
            |(mode, base)| {
                let area = Area { base, blocks: 64, generation: base };
                let device = place.open(1, mode);
                let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
                area.write(&queue);
                one(&queue, Request::write_zeroes(&ns, base + 8, 48).fua()).unwrap();
                area
            },
        );
        let device = place.open(1, Mode::INTERRUPT);
        let queue = device.local_queue().unwrap();
        areas
            .iter()
            .for_each(|area| area.check(&queue, std::slice::from_ref(&(8..56)), Promise::Zeroes));
    });
}

#[test]
fn zeroes_outside_are_refused() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        let area = Area { base: ns.blocks() - 16, blocks: 16, generation: 3 };
        area.write(&queue);
        let makes: &[Make] = if deallocates(place, &device) {
            &[Request::write_zeroes, Request::deallocate]
        } else {
            &ZEROES[..1]
        };
        for make in makes {
            assert_eq!(one(&queue, make(&ns, 0, 0)), Err(Refused::NoBlocks.into()));
            for (lba, blocks) in [(ns.blocks(), 1), (ns.blocks() - 1, 2), (u64::MAX, u64::MAX)] {
                let refused = one(&queue, make(&ns, lba, blocks));
                assert!(
                    matches!(refused, Err(IoError::Refused(Refused::OutOfRange { .. }))),
                    "{refused:?}"
                );
            }
        }
        area.check(&queue, &[], Promise::Zeroes);
    });
}

#[test]
fn read_only_device_zeroes_nothing() {
    everywhere(&[Feature::ReadOnly, Feature::Keeping], |place| {
        let area = Area { base: 0, blocks: 64, generation: 9 };
        area.write(&place.open(1, Mode::INTERRUPT).local_queue().unwrap());
        let device = place.try_open("readonly=yes", options(1)).unwrap();
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        let deallocate = deallocates(place, &device).then_some(Request::deallocate as Make);
        for make in ZEROES.into_iter().chain(deallocate) {
            // EROFS (errno(3)).
            assert_eq!(one(&queue, make(&ns, 8, 16)).unwrap_err().errno(), 30);
        }
        area.check(&queue, &[], Promise::Zeroes);
    });
}

#[test]
fn both_queue_kinds_send_zeroes() {
    everywhere(&[], |place| {
        let device = place.open_with(options(2).depth(4));
        let work = |queue: &Queue, base: u64| {
            let (ns, area) = (queue.namespaces()[0], Area { base, blocks: 256, generation: base });
            area.write(queue);
            let ranges: Vec<_> = (0..60).map(|n| 4 * n..4 * n + 2).collect();
            submit(
                queue,
                ranges
                    .iter()
                    .zip(ZEROES.iter().cycle())
                    .map(|(at, make)| make(&ns, base + at.start, 2)),
            );
            assert!(drain(queue).iter().all(|done| done.result.is_ok()));
            area.check(queue, &ranges, Promise::Zeroes);
        };
        let other = device.queue().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| work(&{ other }, 0));
            work(&device.local_queue().unwrap(), 512);
        });
    });
}

/// The list comes back with the completion.
#[test]
fn one_command_deallocates_several_ranges() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let ns = device.namespaces()[0];
        if !deallocates(place, &device) {
            return;
        }
        if ns.max_ranges() == 1 {
            assert!(
                place.is_kernel() || place.is_on_bus(),
                "{} takes no list of ranges",
                place.uri("")
            );
            let two =
                Request::deallocate_ranges(&ns, &[0..8, 16..24], device.buffer(4096).unwrap());
            let (why, _) = device.local_queue().unwrap().submit([two]).unwrap_err();
            assert_eq!(why, Refused::TooManyRanges { ranges: 2, most: 1 });
            return;
        }
        place.on_each_kind(&device, |queue, kind| {
            let area = Area { base: 1001 + 512 * kind as u64, blocks: 64, generation: 77 };
            area.write(queue);
            let cleared: Vec<_> = (0..8).map(|n| 1 + 8 * n..4 + 8 * n).collect();
            let ranges: Vec<_> = cleared
                .iter()
                .map(|range| area.base + range.start..area.base + range.end)
                .collect();
            let before = queue.hardware_counters().finished;
            submit(queue, [Request::deallocate_ranges(&ns, &ranges, queue.buffer(4096).unwrap())]);
            let done = drain(queue).remove(0);
            assert_eq!((done.result, done.buf.map(|buf| buf.len())), (Ok(()), Some(4096)));
            assert_eq!(queue.hardware_counters().finished - before, 1);
            area.check(queue, &cleared, promise(place));
        });
        assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0));
    });
}
