//! Nanoseconds to choose a path and count the request (the post's hooks "choose" and "start"), and
//! to count its completion ("end"), by policy: `cargo bench -p reap-nvme --bench path_choice`. Half a
//! minute.
//!
//! Every cell is measured in every round, so that whatever else the machine does meets them all. A
//! figure is the median over rounds, of the first thread. `paths` counts instructions of whole
//! I/Os.

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::thread;

use reap::Nanos;
use reap::paths::{Distances, PathSet, Paths, Policy, Selector, Token};
use units::{Class, Op};

/// Heading, paths, threads that submit at the same time, each with a selector of its own.
const CELLS: [(&str, usize, usize); 3] =
    [("2 paths", 2, 1), ("16 paths", 16, 1), ("2 threads", 2, 2)];
const ROUNDS: usize = 15;
/// Requests in flight on each thread.
const IN_FLIGHT: usize = 32;
/// Requests that are measured in a round.
const REQUESTS: usize = 20_000;
/// What `latency` learns from: as long as a fast drive takes.
const LATENCY: Nanos = Nanos::from_micros(10);

/// A thread that keeps some requests in flight, on a CPU of its own.
struct Submitter {
    selector: Selector,
    all: PathSet,
    in_flight: [Option<Token>; IN_FLIGHT],
    clock: u64,
}

impl Submitter {
    fn new(paths: &Arc<Paths>, n: usize, cpus: &[usize]) -> Submitter {
        // Where the CPU cannot be had, the thread runs where it may.
        cpus.get(n).map(|&cpu| hw::pin(cpu));
        Submitter {
            selector: Selector::new(paths.clone(), n),
            all: paths.all(),
            in_flight: [None; IN_FLIGHT],
            clock: 0,
        }
    }

    /// Sends this many requests in groups of [`IN_FLIGHT`], each of which then ends. Returns the time
    /// of choosing and of ending.
    #[inline(never)]
    fn submit(&mut self, times: usize) -> (Nanos, Nanos) {
        let class = Class::new(Op::Read, 4096);
        let (mut chosen, mut ended) = (Nanos::ZERO, Nanos::ZERO);
        for _ in 0..times / IN_FLIGHT {
            let before = hw::now();
            for token in &mut self.in_flight {
                self.clock += 1;
                let now = Nanos(self.clock * 100);
                self.selector.begin(now);
                *token = self.selector.send_next(black_box(self.all), class, now);
                self.selector.commit(now);
            }
            let between = hw::now();
            for token in &mut self.in_flight {
                if let Some(token) = token.take() {
                    self.selector.end(token, LATENCY, Nanos(self.clock * 100));
                }
            }
            (chosen, ended) = (chosen + (between - before), ended + (hw::now() - between));
        }
        (chosen, ended)
    }
}

/// Nanoseconds of a choice, and of an end.
fn measure(paths: &Arc<Paths>, threads: usize, cpus: &[usize]) -> (f64, f64) {
    let (together, over) = (Barrier::new(threads), AtomicBool::new(false));
    thread::scope(|scope| {
        for n in 1..threads {
            let (together, over) = (&together, &over);
            scope.spawn(move || {
                let mut submitter = Submitter::new(paths, n, cpus);
                together.wait();
                while !over.load(Relaxed) {
                    submitter.submit(IN_FLIGHT);
                }
            });
        }
        let first = scope.spawn(|| {
            let mut submitter = Submitter::new(paths, 0, cpus);
            together.wait();
            submitter.submit(REQUESTS / 8);
            let (chosen, ended) = submitter.submit(REQUESTS);
            over.store(true, Relaxed);
            (chosen.0 as f64 / REQUESTS as f64, ended.0 as f64 / REQUESTS as f64)
        });
        first.join().expect("the thread ends by itself")
    })
}

fn main() {
    let cpus = hw::allowed_cpus().expect("the CPUs of this process");
    print!("{:<24}", "policy");
    CELLS.iter().for_each(|(heading, ..)| print!("{heading:>16}"));
    println!();
    for policy in Policy::ALL {
        let cells = CELLS.map(|(_, paths, threads)| {
            (
                Arc::new(Paths::new(paths, Distances::default(), policy).expect("1 to 64 paths")),
                threads,
            )
        });
        let mut measured = vec![Vec::new(); cells.len()];
        for _ in 0..ROUNDS {
            for ((paths, threads), all) in cells.iter().zip(&mut measured) {
                all.push(measure(paths, *threads, &cpus));
            }
        }
        print!("{:<24}", policy.name());
        for all in measured {
            let median = |mut of: Vec<f64>| {
                of.sort_by(f64::total_cmp);
                of[of.len() / 2]
            };
            let (chosen, ended): (Vec<f64>, Vec<f64>) = all.into_iter().unzip();
            print!("{:>16}", format!("{:.1} + {:.1}", median(chosen), median(ended)));
        }
        println!();
    }
}
