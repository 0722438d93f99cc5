//! One cell of the bench: a policy over so many paths and queues, asked by so many threads.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use anyhow::{Context, Result};
use reap::Nanos;
use reap::paths::{Distances, PathSet, Paths, Place, Policy, Shape, Token};
use units::{Class, Op};

/// Paths to choose from.
const PATHS: [u8; 5] = [1, 2, 4, 8, 16];
/// Hardware queues of each path.
const QUEUES: [u16; 6] = [1, 4, 16, 32, 64, 128];
/// Requests in flight on each thread while the cost is measured.
pub const IN_FLIGHT: usize = 32;
/// How long one measurement takes, about.
const SPAN: Nanos = Nanos::from_micros(500);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub policy: Policy,
    pub paths: u8,
    pub queues: u16,
    pub threads: u8,
}

impl Cell {
    /// Every cell that a machine with `cpus` CPUs can show: two threads need a CPU each.
    pub fn all(cpus: usize) -> Vec<Cell> {
        let mut cells = Vec::new();
        for policy in Policy::ALL {
            for paths in PATHS {
                for queues in QUEUES {
                    let threads = 1..=2u8.min(cpus as u8);
                    cells.extend(threads.map(|threads| Cell { policy, paths, queues, threads }));
                }
            }
        }
        cells
    }

    /// Whether `other` is the same but for its threads.
    pub fn is_like(&self, other: &Cell) -> bool {
        (self.policy, self.paths, self.queues) == (other.policy, other.paths, other.queues)
    }

    /// A selector of the cell's shape.
    pub fn selector(&self) -> Result<Paths> {
        let shape = Shape { paths: self.paths, queues: self.queues, cpus: 128, namespaces: 1, distances: Distances::default() };
        Ok(Paths::new(shape, self.policy)?)
    }

    /// What is needed to measure it again and again.
    pub fn prepare(&self, cpus: &[usize]) -> Result<Bench> {
        let bench = Bench { cell: *self, selector: self.selector()?, cpus: cpus.to_vec(), rounds: 64 };
        // How often in the span; the sum over 128 queues of 16 paths takes a hundred times as long as others.
        let mut submitter = Submitter::new(&bench.selector, 0);
        let before = hw::now();
        submitter.submit(64);
        let one = ((hw::now() - before).0 / 64).max(5);
        submitter.drain();
        Ok(Bench { rounds: (SPAN.0 / one).clamp(64, 200_000) as usize, ..bench })
    }
}

/// A cell, ready to be measured.
pub struct Bench {
    cell: Cell,
    selector: Paths,
    cpus: Vec<usize>,
    rounds: usize,
}

impl Bench {
    /// Nanoseconds for one choose + start + end, on the first of the cell's threads.
    pub fn measure(&self) -> Result<f64> {
        let threads = usize::from(self.cell.threads);
        let (together, over) = (Barrier::new(threads), AtomicBool::new(false));
        let timed = thread::scope(|scope| {
            for n in 1..threads {
                let (together, over) = (&together, &over);
                let rival = move || {
                    self.settle(n);
                    let mut submitter = Submitter::new(&self.selector, n as u16);
                    together.wait();
                    while !over.load(Relaxed) {
                        submitter.submit(16);
                    }
                    submitter.drain();
                };
                thread::Builder::new().name(format!("reap-paths-{n}")).spawn_scoped(scope, rival).context("cannot start a thread")?;
            }
            let first = thread::Builder::new().name("reap-paths-0".into()).spawn_scoped(scope, || {
                self.settle(0);
                let mut submitter = Submitter::new(&self.selector, 0);
                together.wait();
                submitter.submit(self.rounds / 8);
                let before = hw::now();
                submitter.submit(self.rounds);
                let spent = hw::now() - before;
                over.store(true, Relaxed);
                submitter.drain();
                spent.0 as f64 / self.rounds as f64
            });
            // Should it not start, nobody may wait for it.
            let first = first.inspect_err(|_| over.store(true, Relaxed)).context("cannot start a thread")?;
            first.join().map_err(|_| anyhow::anyhow!("a thread of the bench panicked"))
        })?;
        debug_assert_eq!(self.selector.counted(), 0, "something is still counted");
        Ok(timed)
    }

    /// One CPU each; where one cannot be had the thread runs where it may.
    fn settle(&self, n: usize) {
        if let Some(&cpu) = self.cpus.get(n)
            && let Err(error) = hw::pin(cpu)
        {
            tracing::warn!(cpu, %error, "a thread of the bench is not pinned");
        }
    }
}

/// A thread that keeps some requests in flight, in a queue and on a CPU of its own.
pub struct Submitter<'a> {
    selector: &'a Paths,
    place: Place,
    usable: PathSet,
    in_flight: [Option<Token>; IN_FLIGHT],
    clock: u64,
}

/// What `latency` learns from: as long as a fast drive takes.
const LATENCY: Nanos = Nanos::from_micros(10);

impl<'a> Submitter<'a> {
    pub fn new(selector: &'a Paths, n: u16) -> Submitter<'a> {
        let usable = PathSet::below(selector.shape().paths.into());
        Submitter { selector, place: selector.place(n, n, 0, 0), usable, in_flight: [None; IN_FLIGHT], clock: 0 }
    }

    /// `times` requests, each of which takes the place of the oldest one in flight.
    #[inline(never)]
    pub fn submit(&mut self, times: usize) {
        let class = Class::new(Op::Read, 4096);
        let Submitter { selector, place, usable, in_flight, clock } = self;
        for _ in 0..times {
            *clock += 1;
            let now = Nanos(*clock * 100);
            let Some(oldest) = in_flight.get_mut(*clock as usize % IN_FLIGHT) else { return };
            if let Some(token) = oldest.take() {
                selector.end(token, place, LATENCY, now, &mut ());
            }
            let usable = black_box(*usable);
            *oldest = selector.choose(usable, place, class, now, &mut ()).map(|path| selector.start(path, place, class, now, &mut ()));
        }
    }

    /// Everything comes back, the place too.
    pub fn drain(&mut self) {
        for token in self.in_flight.iter_mut().filter_map(Option::take) {
            self.selector.abandon(token, &self.place, &mut ());
        }
        self.selector.leave(&mut self.place);
    }
}
