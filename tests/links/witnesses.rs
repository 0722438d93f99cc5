//! What others count of the same I/O: the kernel its interrupts and its disk's requests, the
//! scheduler a thread's sleeps. In a guest, by `tests/links.sh`, which has QEMU's trace and `reap
//! trace` as two more: nobody else uses the device there.

use std::fs::{self, File};

use hw::passthrough::identify;
use nvme::Nsid;
use nvme::admin::{Identify, cns};
use nvme::prp::Dptr;
use reap::{Device, Mode, Queue, Request};

use super::place::options;
use super::table::watched;
use super::work::{Job, drain, submit};

/// This many of each kind.
const REQUESTS: u64 = 1000;

/// The device's URI, and its disk: `nvme0n1`.
fn device() -> (String, String) {
    let uri = std::env::var("REAP_TEST_DEVICE").expect("REAP_TEST_DEVICE names a device");
    let name = uri.rsplit('/').next().unwrap().to_owned();
    let disk = name.strip_prefix("ng").map_or(name.clone(), |rest| format!("nvme{rest}"));
    (uri, disk)
}

/// An Identify of a namespace that there is not: QEMU's trace shows the number, and so where a
/// stretch of it begins or ends.
pub fn mark(disk: &str, number: u32) {
    let character = File::open(format!("/dev/{}", disk.replacen("nvme", "ng", 1))).unwrap();
    _ = identify(&character, &Identify::new(cns::NAMESPACE, Nsid(number), Dptr::NONE));
}

/// Interrupts of the I/O queues of the disk's controller.
fn interrupts(disk: &str) -> u64 {
    let queue = format!("{}q", disk.split_at(disk.rfind('n').unwrap()).0);
    let text = fs::read_to_string("/proc/interrupts").unwrap();
    let of_io = |line: &&str| {
        line.split_whitespace()
            .last()
            .and_then(|name| name.strip_prefix(&queue))
            .is_some_and(|n| n != "0")
    };
    let counts = |line: &str| -> u64 {
        line.split_whitespace().skip(1).map_while(|count| count.parse::<u64>().ok()).sum()
    };
    text.lines().filter(of_io).map(counts).sum()
}

/// Reads and writes that the disk has completed (Documentation/ABI/stable/sysfs-block, stat).
fn completed(disk: &str) -> u64 {
    let text = fs::read_to_string(format!("/sys/block/{disk}/stat")).unwrap();
    let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
    fields[0] + fields[4]
}

/// Reads every second block of 4 KiB: the kernel makes one request of neighbours.
fn reads(queue: &Queue, depth: u64) {
    let ns = queue.namespaces()[0];
    let per = 8192 / u64::from(ns.block_bytes());
    for begin in (0..REQUESTS).step_by(depth as usize) {
        let batch = begin..REQUESTS.min(begin + depth);
        submit(queue, batch.map(|n| Request::read(&ns, n * per, queue.buffer(4096).unwrap())));
        drain(queue).into_iter().for_each(|done| done.result.unwrap());
    }
}

fn agree(what: &str, ours: u64, theirs: u64) {
    println!("counted: {what}: {ours} here, {theirs} there");
    assert!(
        ours > 0 && ours.abs_diff(theirs) * 50 <= ours.max(theirs),
        "{what}: {ours} and {theirs} are more than 2 % apart"
    );
}

/// Whether the running kernel is this one or newer.
fn kernel_has(major: u32, minor: u32) -> bool {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = text.split(['.', '-', '+', '\n']).map_while(|part| part.parse::<u32>().ok());
    let version = (parts.next().unwrap(), parts.next().unwrap());
    version >= (major, minor)
}

/// `interrupt` beside it shows that the witness sees interrupts. Of the kernel's own modes both are
/// there, but for the hybrid one before Linux 6.13 and where commands pass through.
#[test]
#[ignore = "counts on a device that nobody else uses: tests/links.sh runs it in a guest"]
fn polled_requests_take_no_interrupt() {
    let (uri, disk) = device();
    for (mode, number) in [
        (Mode::POLL, 1000),
        (Mode::INTERRUPT, 2000),
        (Mode::KERNEL_IOPOLL, 3000),
        (Mode::KERNEL_HYBRID_IOPOLL, 3000),
    ] {
        let begins = if mode.is_the_kernels() { Mode::INTERRUPT } else { mode };
        let device = Device::open_with(&uri, &options(2).mode(begins)).unwrap();
        if let Some(why) = device.unsupported_reason(mode) {
            println!("counted: {why}");
            let passes = uri.contains("/dev/ng");
            assert!(mode == Mode::KERNEL_HYBRID_IOPOLL && (passes || !kernel_has(6, 13)), "{why}");
            continue;
        }
        let queue = device.local_queue_in(mode).unwrap();
        assert_eq!(queue.mode(), mode);
        let before = (interrupts(&disk), queue.hardware_counters().finished);
        mark(&disk, number);
        watched("counted requests", || Job { requests: REQUESTS, ..Job::of(1) }.run(&queue));
        mark(&disk, number + 1);
        let (taken, finished) =
            (interrupts(&disk) - before.0, queue.hardware_counters().finished - before.1);
        println!("counted: {mode} on {uri}: {finished} commands, {taken} interrupts");
        assert_eq!(finished, 2 * REQUESTS);
        assert_eq!(taken > 0, mode == Mode::INTERRUPT, "{mode}: {taken} interrupts");
    }
}

#[test]
#[ignore = "counts on a device that nobody else uses: tests/links.sh runs it in a guest"]
fn kernel_counts_the_same_requests() {
    let (uri, disk) = device();
    let mut all = 0;
    for (mode, depth) in [(Mode::INTERRUPT, 1), (Mode::INTERRUPT, 16), (Mode::POLL, 16)] {
        let device = Device::open_with(&uri, &options(1).mode(mode)).unwrap();
        let queue = device.local_queue().unwrap();
        let before = completed(&disk);
        watched("counted requests", || reads(&queue, depth));
        agree(&format!("requests, {mode} at depth {depth}"), REQUESTS, completed(&disk) - before);
        all += REQUESTS;
    }
    println!("counted: all: {all}");
}

/// Five milliseconds for each request, so that no completion comes before the thread sleeps: then
/// it need not.
#[test]
#[ignore = "needs a slow device: tests/links.sh runs it in a guest"]
fn scheduler_counts_the_same_sleeps() {
    let (uri, _) = device();
    let device = Device::open_with(&uri, &options(2)).unwrap();
    for (what, queue) in
        [("sent", &device.queue().unwrap()), ("kept", &*device.local_queue().unwrap())]
    {
        let before = (queue.counters().sleeps, hw::thread_usage().sleeps);
        watched("slow requests", || {
            for lba in 0..REQUESTS / 4 {
                let read = queue.read(&queue.namespaces()[0], lba, queue.buffer(4096).unwrap());
                queue.block_on(read).unwrap().0.unwrap();
            }
        });
        let slept = (queue.counters().sleeps - before.0, hw::thread_usage().sleeps - before.1);
        agree(
            &format!("sleeps for {} requests, on a queue that is {what}", REQUESTS / 4),
            slept.0,
            slept.1,
        );
    }
}
