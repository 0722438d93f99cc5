//! What `queue-depth` loses where its counter of requests in flight is split, as the post on
//! queue-depth path selection proposes (by namespace, hardware queue or CPU), in virtual time:
//! `cargo bench -p reap-nvme --bench split_counter`. Some seconds.
//!
//! Eight threads, a CPU each, send requests at random times (Poisson) over two paths; each path is a
//! queue with several servers. In a closed loop nothing is lost: each completion makes room on its
//! path, in whichever counter, and the next request goes there. Threads that share a counter share a
//! [`Selector`]: one for all, two (by namespace), four (by hardware queue), or one each (by CPU,
//! which is how Reap counts). A figure is the mean latency, or p99, ÷ that with one counter: the
//! median of the seeds, and their range.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use reap::Nanos;
use reap::paths::{Distances, Paths, Policy, Selector, Token};
use units::{Class, Op};

const THREADS: usize = 8;
const REQUESTS: usize = 200_000;
const SEEDS: u64 = 9;
/// Heading, and how many threads share a counter.
const COUNTERS: [(&str, usize); 4] =
    [("controller", 8), ("namespace", 4), ("hardware queue", 2), ("CPU", 1)];

/// A path: requests that it executes at the same time, their mean time in µs, and the time to the
/// controller and back in µs.
type Path = (usize, f64, f64);
const NEAR: Path = (16, 80.0, 10.0);
const CASES: [(&str, [Path; 2]); 4] = [
    ("equal", [NEAR, NEAR]),
    ("a third of the servers", [NEAR, (5, 80.0, 10.0)]),
    ("three times the service time", [NEAR, (16, 240.0, 10.0)]),
    ("200 µs farther", [NEAR, (16, 80.0, 210.0)]),
];

/// Mean and p99 of the latency in nanoseconds, at this part of the rate that the paths can do.
fn run(paths: &[Path; 2], share: usize, load: f64, policy: Policy, seed: u64) -> [f64; 2] {
    let shared = Arc::new(Paths::new(2, Distances::default(), policy).expect("1 to 64 paths"));
    let mut selectors: Vec<Selector> =
        (0..THREADS / share).map(|n| Selector::new(shared.clone(), n)).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    // Exponential, of a uniform number above 0.
    let mut random = |mean: f64| {
        let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-uniform.ln() * mean) as u64
    };
    let rate: f64 = paths.iter().map(|path| path.0 as f64 / (path.1 * 1e3)).sum();
    let between = THREADS as f64 / (rate * load);
    let mut free: Vec<Vec<u64>> = paths.iter().map(|path| vec![0; path.0]).collect();
    let class = Class::new(Op::Read, 4096);
    // Events: when, and the request that completes; or, from REQUESTS on, the thread that sends.
    let mut events: BinaryHeap<Reverse<(u64, usize)>> =
        (0..THREADS).map(|thread| Reverse((random(between), REQUESTS + thread))).collect();
    let mut requests: Vec<(u64, Token, usize)> = Vec::with_capacity(REQUESTS);
    let mut latencies = Vec::with_capacity(REQUESTS);
    while let Some(Reverse((now, event))) = events.pop() {
        if let Some(&(began, token, thread)) = requests.get(event) {
            selectors[thread / share].end(token, Nanos(now - began), Nanos(now));
            latencies.push((now - began) as f64);
            continue;
        }
        if requests.len() == REQUESTS {
            continue;
        }
        let thread = event - REQUESTS;
        let selector = &mut selectors[thread / share];
        selector.begin(Nanos(now));
        let token = selector.send_next(shared.all(), class, Nanos(now)).expect("two paths");
        selector.commit(Nanos(now));
        let path = token.path().index();
        let (_, service, away) = paths[path];
        let way = (away * 500.0) as u64;
        let server = free[path].iter_mut().min().expect("a path has servers");
        *server = (*server).max(now + way) + random(service * 1e3);
        events.push(Reverse((*server + way, requests.len())));
        requests.push((now, token, thread));
        events.push(Reverse((now + random(between), event)));
    }
    latencies.sort_by(f64::total_cmp);
    let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
    [mean, latencies[latencies.len() * 99 / 100]]
}

fn main() {
    print!("{:<30} {:>5}", "second path", "load");
    COUNTERS[1..].iter().for_each(|(heading, _)| print!("{heading:>42}"));
    println!();
    for (case, paths) in &CASES {
        for load in [0.3, 0.6, 0.9] {
            print!("{case:<30} {:>3.0} %", load * 100.0);
            let seeds = |share| {
                (0..SEEDS).map(move |seed| run(paths, share, load, Policy::QueueDepth, seed))
            };
            let whole: Vec<[f64; 2]> = seeds(THREADS).collect();
            for &(_, share) in &COUNTERS[1..] {
                let split: Vec<[f64; 2]> = seeds(share).collect();
                let told = [0, 1].map(|n| {
                    let ratios = split.iter().zip(&whole).map(|(a, b)| a[n] / b[n]);
                    let mut of: Vec<f64> = ratios.collect();
                    of.sort_by(f64::total_cmp);
                    format!("{:.2} ({:.2}–{:.2})", of[of.len() / 2], of[0], of[of.len() - 1])
                });
                print!("{:>42}", told.join(", "));
            }
            println!();
        }
    }
}
