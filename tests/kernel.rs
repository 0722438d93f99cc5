//! Files of this machine's own, through the kernel.

use std::path::PathBuf;
use std::thread;

use reap::{Device, Group, IoError, Mode, Nanos, OpenOptions, Queue, Request};

const BLOCK: usize = 4096;

/// A file of the test's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id())))
    }

    fn open(&self, queues: usize, mode: Mode) -> Device {
        let options = OpenOptions { software_queues: queues, mode, depth: 16, pool_bytes: 16 << 20, ..OpenOptions::default() };
        Device::open_with(&format!("kernel:{}?size=16M&lba=4096", self.0.display()), &options).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Writes its number to `n` blocks of its own and reads them back, `depth` at a time: more than there are tags.
fn work(queue: &Queue, owner: u8, n: u64, depth: usize, fused: bool) {
    let (ns, base) = (queue.namespaces()[0], u64::from(owner) * 512);
    for write in [true, false] {
        let (mut next, mut finished, mut out) = (0, 0, Vec::with_capacity(depth));
        while finished < n {
            let room = depth.saturating_sub(queue.in_flight() as usize).min((n - next) as usize);
            let batch = (next..next + room as u64).map(|i| {
                let mut buf = queue.buffer(BLOCK).unwrap();
                buf.fill(if write { owner ^ i as u8 } else { 0 });
                let request = if write { Request::write(&ns, base + i, buf) } else { Request::read(&ns, base + i, buf) };
                request.tag(i)
            });
            let submitted = if fused { queue.post(reap::now(), batch) } else { queue.submit(reap::now(), batch) };
            submitted.map_err(|(why, _)| why).unwrap();
            next += room as u64;
            queue.wait(1, Nanos::MAX).unwrap();
            queue.reap(&mut out);
            for done in out.drain(..) {
                done.result.unwrap();
                assert!(write || done.buf.unwrap().iter().all(|&b| b == owner ^ done.tag as u8), "block {} of {owner}", done.tag);
                finished += 1;
            }
        }
    }
    assert_eq!((queue.in_flight(), queue.finished()), (0, 0));
}

#[test]
fn every_mode_moves_data_on_queues_of_either_kind() {
    let file = Scratch::new("modes");
    for mode in Mode::ALL {
        let device = file.open(2, mode);
        thread::scope(|scope| {
            let (queue, device) = (device.queue().unwrap(), &device);
            scope.spawn(move || work(&queue, 1, 100, 24, false));
            scope.spawn(move || work(&device.local_queue().unwrap(), 2, 100, 24, true));
        });
        let (health, counters) = (device.health(), device.counters());
        assert_eq!((health.aborts, counters.leaked_bytes), (0, 0), "{mode}: {health:?}");
        assert!(counters.system_calls.unwrap() > 0, "{mode}: {counters:?}");
        println!("{mode}: {counters:?}");
    }
}

#[test]
fn a_group_drives_several_files() {
    let files = [Scratch::new("group-a"), Scratch::new("group-b")];
    for mode in Mode::ALL {
        let devices = files.each_ref().map(|file| file.open(1, mode));
        let memory = Device::open("mem:16M?profile=optane").unwrap();
        let queues = vec![devices[0].queue().unwrap(), devices[1].queue().unwrap(), memory.queue().unwrap()];
        let group = Group::new(queues).unwrap();
        for _ in 0..10 {
            for queue in group.queues() {
                let ns = queue.namespaces()[0];
                let batch = (0..20).map(|i| Request::write(&ns, i, queue.buffer(BLOCK).unwrap()));
                queue.submit(reap::now(), batch).map_err(|(why, _)| why).unwrap();
            }
            assert_eq!(group.wait(60, Nanos::MAX).unwrap(), 60, "{mode}");
            group.queues().iter().for_each(|queue| _ = queue.reap(&mut Vec::with_capacity(64)));
        }
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_and_not_a_hang() {
    let file = Scratch::new("shrinks");
    let device = file.open(1, Mode::INTERRUPT);
    let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
    std::fs::OpenOptions::new().write(true).open(&file.0).unwrap().set_len(8 << 20).unwrap();
    assert_eq!(device.current(&ns).blocks(), 2048);
    let (result, buf) = queue.block_on(queue.read(&ns, 3000, device.buffer(BLOCK).unwrap())).unwrap();
    assert_eq!(result, Err(IoError::System(5)));
    let (result, _) = queue.block_on(queue.read(&ns, 10, buf)).unwrap();
    result.unwrap();
    queue.block_on(queue.flush(&ns)).unwrap().unwrap();
}
