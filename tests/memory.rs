//! Whole-stack: memory that the application owns. Requests carry ranges of it, and whatever is
//! dropped or forgotten, in whichever order, it is freed once, and never while the device may write
//! to it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use reap::{
    Device, DmaBuf, EmbeddedOptions, FaultPlan, Faults, IoError, IoFuture, Mode, Namespace,
    OpenOptions, Pages, Queue, RangeError, Refused, Region, RegisterError, Request,
};

const MEM: &str = "mem:64M?profile=optane";
const PATHS: &str =
    "multipath:?path=mem:64M?profile=optane&path=mem:64M?profile=optane&keep_alive=0s";
const MIB: usize = 1 << 20;

/// One test at a time: some stop the device thread of all.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(uri: &str) -> Device {
    Device::open_with(uri, &OpenOptions::new().pool_bytes(8 << 20))
        .unwrap_or_else(|e| panic!("{uri}: {e}"))
}

/// Pages that count when they are freed.
type Tracked = (Pages, Count);

#[derive(Debug)]
struct Count(Arc<AtomicU32>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn register(device: &Device, bytes: usize) -> (Region<Tracked>, Arc<AtomicU32>) {
    let freed = Arc::new(AtomicU32::new(0));
    let region = device
        .register((Pages::new(bytes).unwrap(), Count(freed.clone())))
        .map_err(|(why, _)| why)
        .unwrap();
    (region, freed)
}

/// Byte `i` of what stands at `lba`.
fn pattern(lba: u64, i: usize) -> u8 {
    (lba.wrapping_mul(31) ^ (i as u64).wrapping_mul(0x9e37_79b9) >> 8) as u8
}

fn fill(buf: &mut [u8], lba: u64) {
    buf.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern(lba, i));
}

fn is_filled(buf: &[u8], lba: u64) -> bool {
    buf.iter().enumerate().all(|(i, &byte)| byte == pattern(lba, i))
}

/// Writes a range of a region, and reads it into another.
fn round_trip(
    queue: &Queue,
    ns: &Namespace,
    region: &Region<impl Sized + reap::Memory>,
    from: Range<usize>,
    into: Range<usize>,
) {
    let lba = from.start as u64 / 512;
    let mut buf = region.buffer(from.clone()).unwrap();
    fill(&mut buf, lba);
    let (result, buf) = queue.block_on(queue.write(ns, lba, buf)).unwrap();
    result.unwrap();
    assert!(is_filled(&buf, lba), "{from:?}: the device has written to what it was to read");
    let mut other = region.buffer(into.clone()).unwrap();
    other.fill(0);
    let (result, other) = queue.block_on(queue.read(ns, lba, other)).unwrap();
    result.unwrap();
    assert_eq!(other.len(), into.len());
    assert!(is_filled(&other, lba), "{from:?} came back otherwise in {into:?}");
}

#[test]
fn requests_carry_ranges_of_any_kind() {
    let _alone = alone();
    for uri in [MEM, PATHS] {
        let device = open(uri);
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let (region, freed) = register(&device, 32 * MIB);
        // One block, a page, one that crosses pages, lists that begin anywhere, and more than one
        // command takes.
        for len in [512, 4096, 8192, 12288, 65536, MIB - 512, MIB, 3 * MIB] {
            for start in [0, 512, 4096 - 512, MIB - 4096, 2 * MIB + 1536] {
                round_trip(
                    &queue,
                    &ns,
                    &region,
                    start..start + len,
                    16 * MIB + 2560..16 * MIB + 2560 + len,
                );
            }
        }
        drop(region);
        assert_eq!(freed.load(Ordering::Relaxed), 1, "{uri}");
    }
}

#[test]
fn every_mode_reads_into_registered_memory() {
    let _alone = alone();
    let device = open(MEM);
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let (region, _) = register(&device, MIB);
    for mode in Mode::ALL {
        queue.set_mode(mode);
        round_trip(&queue, &ns, &region, 0..65536, 65536..131_072);
    }
}

#[test]
fn registering_while_queues_are_busy() {
    let _alone = alone();
    let device = open(MEM);
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let mut free: Vec<DmaBuf> = (0..32).map(|_| queue.buffer(32 << 10).unwrap()).collect();
    let mut done = Vec::with_capacity(64);
    let mut regions = Vec::new();
    for round in 0..200 {
        let requests = free.drain(..).zip(0..).map(|(buf, n)| Request::read(&ns, n * 64, buf));
        queue.submit(requests).map_err(|(why, _)| why).unwrap();
        // Regions come and go while their neighbours are read into.
        let (region, freed) = register(&device, 64 << 10);
        let bufs = [0, 32 << 10].map(|at| region.buffer(at..at + (32 << 10)).unwrap());
        queue.submit(bufs.map(|buf| Request::read(&ns, 0, buf))).map_err(|(why, _)| why).unwrap();
        regions.push((region.base(), freed));
        drop(region);
        assert_eq!(queue.wait(34, None), Ok(34), "round {round}");
        queue.reap(&mut done);
        let own = |buf: &DmaBuf| buf.addr() < regions[0].0;
        for completion in done.drain(..) {
            completion.result.unwrap();
            free.extend(completion.buf.filter(own));
        }
        assert!(
            regions.iter().all(|(_, freed)| freed.load(Ordering::Relaxed) == 1),
            "round {round}"
        );
    }
}

#[test]
fn other_devices_memory_is_refused() {
    let _alone = alone();
    for uri in [MEM, PATHS] {
        let (device, other) = (open(uri), open(uri));
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let (region, _) = register(&other, 4096);
        let request = Request::read(&ns, 0, region.buffer(0..4096).unwrap());
        let (why, request) = queue.submit([request]).unwrap_err();
        assert_eq!(why, Refused::ForeignBuffer);
        assert_eq!(
            why.to_string(),
            "this device cannot access the buffer; allocate one with `Device::buffer`, or use memory registered with `Device::register`"
        );
        // It is still a range of its region.
        assert!(matches!(region.buffer(512..1024), Err(RangeError::Taken { start: 0, end: 4096 })));
        drop(request);
        assert!(region.into_owner().is_ok());
    }
}

#[test]
fn owner_gets_idle_memory_back() {
    let _alone = alone();
    let device = open(MEM);
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let (region, freed) = register(&device, 8192);
    let mut buf = region.buffer(4096..8192).unwrap();
    fill(&mut buf, 9);
    let write = queue.write(&ns, 9, buf);
    let region = region.into_owner().expect_err("a request has some of it");
    let (result, buf) = queue.block_on(write).unwrap();
    result.unwrap();
    let region = region.into_owner().expect_err("a buffer is held");
    drop(buf);
    let (pages, count) = region.into_owner().expect("nothing is out");
    assert!(is_filled(&pages[4096..], 9));
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    // And may give it to another.
    drop((queue, device));
    let other = open(PATHS);
    let region = other.register((pages, count)).map_err(|(why, _)| why).unwrap();
    assert!(is_filled(&region.buffer(4096..8192).unwrap(), 9));
}

#[test]
fn unregistrable_memory_is_returned() {
    let _alone = alone();
    let device = open(MEM);
    // Nothing of it is touched.
    let (why, pages) = device.register(Pages::new((1 << 40) + 1).unwrap()).unwrap_err();
    assert!(matches!(why, RegisterError::Shape { .. }), "{why}");
    assert_eq!(pages.len(), (1 << 40) + 4096);
}

/// What an application has, in the order of [`Orders`].
struct Things {
    device: Option<Device>,
    queue: Option<Queue>,
    region: Option<Region<Tracked>>,
    held: Option<DmaBuf>,
    futures: Option<[IoFuture; 2]>,
}

impl Things {
    /// Two requests are posted, a third range is held.
    fn new(device: Device) -> (Things, Arc<AtomicU32>) {
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let (region, freed) = register(&device, 64 << 10);
        let [a, b, held] =
            [0, 20 << 10, 40 << 10].map(|at| region.buffer(at..at + (20 << 10)).unwrap());
        let futures = [queue.write(&ns, 0, a), queue.read(&ns, 64, b)];
        queue.commit();
        let (device, queue, region) = (Some(device), Some(queue), Some(region));
        (Things { device, queue, region, held: Some(held), futures: Some(futures) }, freed)
    }

    /// Lets one of them go.
    fn drop(&mut self, thing: usize, forget: bool) {
        match thing {
            0 => drop(self.device.take()),
            1 => drop(self.queue.take()),
            2 => drop(self.region.take()),
            3 => drop(self.held.take()),
            _ if forget => self.futures.take().into_iter().for_each(std::mem::forget),
            _ => drop(self.futures.take()),
        }
    }
}

/// All orders of five things.
fn orders() -> Vec<[usize; 5]> {
    let mut all = vec![];
    for n in 0..120 {
        let (mut left, mut n) = (vec![0, 1, 2, 3, 4], n);
        all.push([5, 4, 3, 2, 1].map(|choices| {
            let thing = left.remove(n % choices);
            n /= choices;
            thing
        }));
    }
    all
}

/// Waits for an event that comes in its time.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_drops_once_and_last() {
    let _alone = alone();
    let orders = orders();
    let all = orders
        .iter()
        .map(|order| (MEM, order))
        .chain(orders.iter().step_by(7).map(|order| (PATHS, order)));
    for (uri, order) in all {
        let device = open(uri);
        // From here on no command is carried out before the hand is taken away.
        let hand = device.embedded().unwrap().manual_step();
        _ = hand.step();
        let (mut things, freed) = Things::new(device);
        for &thing in order {
            things.drop(thing, false);
            assert_eq!(
                freed.load(Ordering::Relaxed),
                0,
                "{uri}, {order:?}: freed after {thing}, with requests on their way"
            );
        }
        drop(hand);
        eventually(&format!("{uri}, {order:?}: never freed"), || {
            freed.load(Ordering::Relaxed) == 1
        });
    }
}

#[test]
fn forgotten_futures_keep_their_memory() {
    let _alone = alone();
    for uri in [MEM, PATHS] {
        for order in orders().iter().filter(|order| order[0] == 4).step_by(5) {
            let device = open(uri);
            let (mut things, freed) = Things::new(device);
            things.drop(4, true);
            // The requests are carried out all the same.
            let (device, queue) = (things.device.as_ref().unwrap(), things.queue.as_ref().unwrap());
            while device.in_flight() > 0 {
                _ = queue.poll_events(16);
            }
            order[1..].iter().for_each(|&thing| things.drop(thing, false));
            assert_eq!(freed.load(Ordering::Relaxed), 0, "{uri}, {order:?}");
        }
    }
}

#[test]
fn lost_device_keeps_its_memory() {
    let _alone = alone();
    let faults = Faults::new(FaultPlan::new());
    let options = OpenOptions::new()
        .timeout(std::time::Duration::from_millis(60))
        .embedded(EmbeddedOptions {
            faults: Some(faults.clone()),
            ready_timeout: Some(std::time::Duration::from_secs(6)),
            ..EmbeddedOptions::default()
        })
        .pool_bytes(8 << 20);
    let device = Device::open_with(MEM, &options).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let (region, freed) = register(&device, 64 << 10);
    // While it is stepped by hand none of its steps is under way.
    let hand = device.embedded().unwrap().manual_step();
    _ = hand.step();
    faults.hang();
    let reads =
        [0, 32 << 10].map(|at| queue.read(&ns, 0, region.buffer(at..at + (32 << 10)).unwrap()));
    queue.commit();
    drop(hand);
    for read in reads {
        let (result, buf) = queue.block_on(read).unwrap();
        assert_eq!((result, buf.len()), (Err(IoError::DeviceLost), 0));
    }
    assert!(device.counters().leaked_bytes >= 64 << 10);
    let region = region.into_owner().expect_err("the controller may still write to it");
    drop((device, queue, region));
    assert_eq!(freed.load(Ordering::Relaxed), 0);
}
