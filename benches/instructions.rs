//! Instructions per I/O of the library's polled path, counted by callgrind: `cargo bench -p
//! reap-nvme --bench instructions`.
//!
//! One thread; the embedded device is stepped by hand between batches, outside what is counted. The
//! last cases are `tcp://` to a target on another thread, which has the time to answer a batch.
//! Needs valgrind.

mod callgrind;

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use reap::serve::{ServeEvent, open_tcp};
use reap::{
    Completion, Device, DmaBuf, Instant, Mode, MultipathUri, Namespace, OpenOptions, Queue, Request,
};

/// Batches that are counted; over TCP, fewer.
const BATCHES: usize = 2000;
const TCP_BATCHES: usize = 200;

/// The number of cases without `tcp://`.
const EMBEDDED: usize = 10;

/// Mode, batch size, bytes per read. What `adaptive` costs is its difference to `poll`.
const CASES: [(Mode, usize, u32); 14] = [
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
    (Mode::POLL, 1, 4096),
    (Mode::POLL, 32, 4096),
    (Mode::INTERRUPT, 1, 4096),
    (Mode::INTERRUPT, 32, 4096),
];

fn batches(case: usize) -> usize {
    if case < EMBEDDED { BATCHES } else { TCP_BATCHES }
}

fn main() -> ExitCode {
    match callgrind::case() {
        Some(case) => {
            let (mode, depth, bytes) = CASES[case % CASES.len()];
            if case < EMBEDDED {
                run(mode, depth, bytes)
            } else {
                run_tcp(mode, depth, bytes)
            }
            ExitCode::SUCCESS
        }
        None => count(),
    }
}

/// Runs every case of this program under callgrind and prints what it counted.
fn count() -> ExitCode {
    println!(
        "{:<8} {:<9} {:>5} {:>7} {:>8} {:>8} {:>8}",
        "link", "mode", "batch", "bytes", "submit", "reap", "total"
    );
    for (n, (mode, depth, bytes)) in CASES.iter().enumerate() {
        let [submit, reap] =
            ["counted_submit", "counted_reap"].map(|function| callgrind::count(n, function));
        let (Some(submit), Some(reap)) = (submit, reap) else {
            return callgrind::missing();
        };
        let per_io = |count: u64| count as f64 / (batches(n) * depth) as f64;
        let link = if n < EMBEDDED { "embedded" } else { "tcp" };
        println!(
            "{link:<8} {mode:<9} {depth:>5} {bytes:>7} {:>8.1} {:>8.1} {:>8.1}",
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
    let hand = device.embedded().expect("an embedded controller").manual_step();
    run_batches(&device, depth, bytes, BATCHES, || while hand.step() {});
}

/// The target's thread is counted apart: it runs none of the functions that are counted.
fn run_tcp(mode: Mode, depth: usize, bytes: u32) {
    let uri = MultipathUri::repeated("mem:64M?profile=null", 1).expect("a device");
    let (heard, events) = mpsc::channel();
    std::thread::spawn(move || {
        let at = "127.0.0.1:0".parse().expect("an address");
        let mut server = open_tcp(&uri, &[at], Vec::new(), None).expect("the target listens");
        let (stopped, _stop) = std::os::unix::net::UnixStream::pair().expect("a socket");
        server.run(&stopped, &mut |event| _ = heard.send(event)).expect("the target runs");
    });
    let uri = events.iter().find_map(|event| match event {
        ServeEvent::ListeningTcp { address, nqn, .. } => Some(format!("tcp://{address}/{nqn}")),
        _ => None,
    });
    let options = OpenOptions::new().mode(mode).hardware_queues(1);
    let device = Device::open_with(&uri.expect("it listens"), &options).expect("it connects");
    let answer = || std::thread::sleep(Duration::from_millis(10));
    run_batches(&device, depth, bytes, TCP_BATCHES, answer);
}

/// `answer` has the device carry a batch out.
fn run_batches(device: &Device, depth: usize, bytes: u32, batches: usize, answer: impl Fn()) {
    let mut free: Vec<_> =
        (0..depth).map(|_| device.buffer(bytes as usize).expect("a buffer")).collect();
    let (queue, ns) = (device.queue().expect("a queue"), device.namespaces()[0]);
    let mut done = Vec::with_capacity(depth);
    for _ in 0..batches {
        counted_submit(&queue, &ns, &mut free, Instant::now());
        answer();
        while done.len() < depth {
            counted_reap(&queue, depth - done.len(), &mut done);
        }
        free.extend(done.drain(..).filter_map(|completion| completion.buf));
    }
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
