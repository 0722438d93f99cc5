//! Instructions per whole I/O by the number of paths, counted by callgrind: `cargo bench -p
//! reap-nvme --bench paths`.
//!
//! As `instructions`: one thread, polled, the embedded controllers stepped by hand outside what is
//! counted. What is counted is everything else: submit, choose, post, look, reap.

mod callgrind;

use std::process::ExitCode;

use reap::{
    Completion, Device, DmaBuf, ManualStepper, Mode, Namespace, OpenOptions, Queue, Request,
};

/// I/Os that are counted of each case.
const IOS: usize = 32_000;
/// Requests of a batch.
const BATCHES: [usize; 2] = [32, 128];

/// Name, and the device's URI.
fn cases() -> Vec<(String, String)> {
    let path = "path=mem:64M?profile=null";
    let mut cases = vec![("no multipath".to_owned(), "mem:64M?profile=null".to_owned())];
    for policy in ["round-robin", "queue-depth", "latency"] {
        for paths in [1, 2, 4] {
            let uri =
                format!("multipath:?{}&policy={policy}&keep_alive=0s", vec![path; paths].join("&"));
            cases.push((format!("{policy}, {paths}"), uri));
        }
    }
    cases
}

fn main() -> ExitCode {
    if let Some(case) = callgrind::case() {
        let cases = cases();
        run(&cases[case / BATCHES.len() % cases.len()].1, BATCHES[case % BATCHES.len()]);
        return ExitCode::SUCCESS;
    }
    println!("{:<28} {:>12} {:>12}", "policy, paths", "batch of 32", "of 128");
    for (n, (name, _)) in cases().iter().enumerate() {
        let [Some(small), Some(large)] =
            [0, 1].map(|batch| callgrind::count(n * BATCHES.len() + batch, "counted_io"))
        else {
            return callgrind::missing();
        };
        println!(
            "{name:<28} {:>12.1} {:>12.1}",
            small as f64 / IOS as f64,
            large as f64 / IOS as f64
        );
    }
    ExitCode::SUCCESS
}

fn run(uri: &str, depth: usize) {
    let options = OpenOptions::new().mode(Mode::POLL);
    let device = Device::open_with(uri, &options).expect("the embedded device opens");
    let mut free: Vec<_> = (0..depth).map(|_| device.buffer(512).expect("a buffer")).collect();
    let (queue, hand, ns) = (
        device.queue().expect("a queue"),
        device.embedded().expect("an embedded controller").manual_step(),
        device.namespaces()[0],
    );
    let mut done = Vec::with_capacity(depth);
    for _ in 0..IOS / depth {
        counted_io_submit(&queue, &ns, &mut free);
        while hand.step() {}
        while done.len() < depth {
            counted_io_reap(&queue, depth - done.len(), &mut done);
        }
        free.extend(done.drain(..).filter_map(|completion: Completion| completion.buf));
    }
    drop::<ManualStepper>(hand);
}

#[inline(never)]
fn counted_io_submit(queue: &Queue, ns: &Namespace, free: &mut Vec<DmaBuf>) {
    let requests = free.drain(..).zip(0..).map(|(buf, n)| Request::read(ns, n * 128, buf));
    queue.submit(requests).map_err(|(why, _)| why).expect("requests are in range");
}

#[inline(never)]
fn counted_io_reap(queue: &Queue, min: usize, done: &mut Vec<Completion>) {
    queue.wait(min, None).expect("outside block_on");
    queue.reap(done);
}
