//! Nanoseconds for one choose + start + end of a path, by policy: `cargo bench -p reap-nvme --bench path_choice`. Half a minute.
//!
//! Every cell is measured in every round, so that whatever else the machine does meets them all. A figure is the median over
//! rounds, of the first thread. `paths` counts instructions of whole I/Os.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use reap::Nanos;
use reap::paths::{Distances, PathSet, Paths, Place, Policy, Shape, Token};
use units::{Class, Op};

/// Heading, paths, hardware queues of each path, threads that submit at the same time.
const CELLS: [(&str, u8, u16, u16); 7] = [
    ("1 queue", 2, 1, 1),
    ("16", 2, 16, 1),
    ("64", 2, 64, 1),
    ("128", 2, 128, 1),
    ("16 paths × 128", 16, 128, 1),
    ("2 threads, 1", 2, 1, 2),
    ("2 threads, 64", 2, 64, 2),
];
const ROUNDS: usize = 15;
/// Requests in flight on each thread.
const IN_FLIGHT: usize = 32;
/// Requests that are measured in a round.
const REQUESTS: usize = 20_000;
/// What `latency` learns from: as long as a fast drive takes.
const LATENCY: Nanos = Nanos::from_micros(10);

/// A thread that keeps some requests in flight, in a queue and on a CPU of its own.
struct Submitter<'a> {
    paths: &'a Paths,
    place: Place,
    in_flight: [Option<Token>; IN_FLIGHT],
    clock: u64,
}

impl<'a> Submitter<'a> {
    fn new(paths: &'a Paths, n: u16, cpus: &[usize]) -> Submitter<'a> {
        // Where the CPU cannot be had, the thread runs where it may.
        cpus.get(usize::from(n)).map(|&cpu| hw::pin(cpu));
        Submitter { paths, place: paths.place(n, n, 0, 0), in_flight: [None; IN_FLIGHT], clock: 0 }
    }

    /// Requests, each of which takes the place of the oldest one in flight.
    #[inline(never)]
    fn submit(&mut self, times: usize) {
        let (class, usable) = (Class::new(Op::Read, 4096), PathSet::below(self.paths.shape().paths.into()));
        for _ in 0..times {
            self.clock += 1;
            let now = Nanos(self.clock * 100);
            let oldest = &mut self.in_flight[self.clock as usize % IN_FLIGHT];
            if let Some(token) = oldest.take() {
                self.paths.end(token, &mut self.place, LATENCY, now, &mut ());
            }
            let path = self.paths.choose(black_box(usable), &mut self.place, class, now, &mut ());
            *oldest = path.map(|path| self.paths.start(path, &mut self.place, class, now, &mut ()));
        }
    }

    /// Everything comes back, the place too.
    fn drain(&mut self) {
        for token in self.in_flight.iter_mut().filter_map(Option::take) {
            self.paths.abandon(token, &self.place, &mut ());
        }
        self.paths.leave(&mut self.place);
    }
}

fn measure(paths: &Paths, threads: u16, cpus: &[usize]) -> f64 {
    let (together, over) = (Barrier::new(threads.into()), AtomicBool::new(false));
    thread::scope(|scope| {
        for n in 1..threads {
            let (together, over) = (&together, &over);
            scope.spawn(move || {
                let mut submitter = Submitter::new(paths, n, cpus);
                together.wait();
                while !over.load(Relaxed) {
                    submitter.submit(16);
                }
                submitter.drain();
            });
        }
        let first = scope.spawn(|| {
            let mut submitter = Submitter::new(paths, 0, cpus);
            together.wait();
            submitter.submit(REQUESTS / 8);
            let before = hw::now();
            submitter.submit(REQUESTS);
            let spent = hw::now() - before;
            over.store(true, Relaxed);
            submitter.drain();
            spent.0 as f64 / REQUESTS as f64
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
        let cells = CELLS.map(|(_, paths, queues, threads)| {
            let shape = Shape { paths, queues, cpus: 128, namespaces: 1, distances: Distances::default() };
            (Paths::new(shape, policy).expect("a shape within the limits"), threads)
        });
        let mut measured = vec![Vec::new(); cells.len()];
        for _ in 0..ROUNDS {
            for ((paths, threads), all) in cells.iter().zip(&mut measured) {
                all.push(measure(paths, *threads, &cpus));
            }
        }
        print!("{:<24}", policy.name());
        for mut all in measured {
            all.sort_by(f64::total_cmp);
            print!("{:>16.1}", all[all.len() / 2]);
        }
        println!();
    }
}
