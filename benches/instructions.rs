//! Instructions per I/O of the library's polled path, counted by callgrind: `cargo bench -p
//! reap-nvme --bench instructions`.
//!
//! One thread; the embedded device is stepped by hand between batches, outside what is counted.
//! Needs valgrind.

mod callgrind;

use std::process::ExitCode;

use reap::{
    Completion, Device, DmaBuf, Instant, ManualStepper, Mode, Namespace, OpenOptions, Queue,
    Request,
};

/// Batches that are counted.
const BATCHES: usize = 2000;

/// Mode, batch size, bytes per read. What `adaptive` costs is its difference to `poll`.
const CASES: [(Mode, usize, u32); 10] = [
    (Mode::POLL, 32, 512),
    (Mode::POLL, 32, 4096),
    (Mode::POLL, 1, 512),
    (Mode::POLL, 8, 512),
    (Mode::POLL, 128, 512),
    (Mode::POLL, 32, 65536),
    (Mode::ADAPTIVE, 1, 512),
    (Mode::ADAPTIVE, 8, 512),
    (Mode::ADAPTIVE, 32, 512),
    (Mode::ADAPTIVE, 128, 512),
];

fn main() -> ExitCode {
    match callgrind::case() {
        Some(case) => {
            let (mode, depth, bytes) = CASES[case % CASES.len()];
            run(mode, depth, bytes);
            ExitCode::SUCCESS
        }
        None => count(),
    }
}

/// Runs every case of this program under callgrind and prints what it counted.
fn count() -> ExitCode {
    println!(
        "{:<8} {:>5} {:>7} {:>8} {:>8} {:>8}",
        "mode", "batch", "bytes", "submit", "reap", "total"
    );
    for (n, (mode, depth, bytes)) in CASES.iter().enumerate() {
        let [submit, reap] =
            ["counted_submit", "counted_reap"].map(|function| callgrind::count(n, function));
        let (Some(submit), Some(reap)) = (submit, reap) else {
            return callgrind::missing();
        };
        let per_io = |count: u64| count as f64 / (BATCHES * depth) as f64;
        println!(
            "{mode:<8} {depth:>5} {bytes:>7} {:>8.1} {:>8.1} {:>8.1}",
            per_io(submit),
            per_io(reap),
            per_io(submit + reap)
        );
    }
    ExitCode::SUCCESS
}

fn run(mode: Mode, depth: usize, bytes: u32) {
    let options = OpenOptions::new().mode(mode);
    let device =
        Device::open_with("mem:64M?profile=null", &options).expect("the embedded device opens");
    let mut free: Vec<_> =
        (0..depth).map(|_| device.buffer(bytes as usize).expect("a buffer")).collect();
    let (queue, hand, ns) = (
        device.queue().expect("a queue"),
        device.embedded().expect("an embedded controller").manual_step(),
        device.namespaces()[0],
    );
    let mut done = Vec::with_capacity(depth);
    for _ in 0..BATCHES {
        batch(&queue, &hand, &ns, &mut free, &mut done);
    }
}

fn batch(
    queue: &Queue,
    hand: &ManualStepper,
    ns: &Namespace,
    free: &mut Vec<DmaBuf>,
    done: &mut Vec<Completion>,
) {
    let depth = free.len();
    let now = Instant::now();
    counted_submit(queue, ns, free, now);
    while hand.step() {}
    while done.len() < depth {
        counted_reap(queue, depth - done.len(), done);
    }
    free.extend(done.drain(..).filter_map(|completion| completion.buf));
}

#[inline(never)]
fn counted_submit(queue: &Queue, ns: &Namespace, free: &mut Vec<DmaBuf>, now: Instant) {
    let requests = free.drain(..).zip(0..).map(|(buf, n)| Request::read(ns, n * 128, buf));
    queue.submit_at(now, requests).map_err(|(why, _)| why).expect("requests are in range");
}

#[inline(never)]
fn counted_reap(queue: &Queue, min: usize, done: &mut Vec<Completion>) {
    queue.wait(min, None).expect("outside block_on");
    queue.reap(done);
}
