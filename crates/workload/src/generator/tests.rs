//! The state machine, run against a device of memory that completes in any order, and judged by
//! laws.

use super::*;
use crate::job::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashSet};

mod laws;
mod likefio;
mod measured;
mod paced;
mod placed;
mod synced;
mod verified;

const TARGET: TargetSize = TargetSize { bytes: 1 << 20, block: 512, size_at_setup: None };

/// A device: memory, I/Os in flight, a clock that goes on with each step.
struct Device {
    memory: Vec<u8>,
    now: Nanos,
    flying: Vec<Io>,
    /// Carries writes out as it completes them, in any order: what it was sent.
    late: Option<Vec<Vec<u8>>>,
    rng: Xoshiro,
    /// How long a reap takes.
    service: Nanos,
    /// Hands in one more than asked for, where there is one.
    eager: bool,
    /// Acknowledges this write (counted from 0) without doing it.
    loses_write: Option<u64>,
    /// Fails this I/O (counted from 0).
    fails: Option<u64>,
    writes: u64,
    ios: u64,
}

type Xoshiro = rand_xoshiro::Xoshiro256PlusPlus;

impl Device {
    fn new() -> Device {
        Device {
            memory: vec![0; TARGET.bytes as usize],
            now: Nanos(1_000),
            flying: Vec::new(),
            late: None,
            rng: Xoshiro::seed_from_u64(1),
            service: Nanos(10_000),
            eager: false,
            loses_write: None,
            fails: None,
            writes: 0,
            ios: 0,
        }
    }

    fn range(io: &Io) -> std::ops::Range<usize> {
        io.offset as usize..io.offset as usize + io.len as usize
    }

    fn issue(&mut self, generator: &mut Generator, io: Io) {
        if io.op == Op::Write {
            let mut data = vec![0; io.len as usize];
            generator.fill(&io, &mut data);
            if let Some(late) = &mut self.late {
                late.push(data);
            } else if self.loses_write != Some(self.writes) {
                self.memory[Self::range(&io)].copy_from_slice(&data);
            }
            self.writes += 1;
        } else if let Some(late) = &mut self.late {
            late.push(Vec::new());
        }
        self.flying.push(io);
    }

    fn complete(&mut self, generator: &mut Generator) {
        if self.flying.is_empty() {
            return;
        }
        let index = (self.rng.next_u64() % self.flying.len() as u64) as usize;
        let io = self.flying.swap_remove(index);
        if let Some(data) =
            self.late.as_mut().map(|late| late.swap_remove(index)).filter(|data| !data.is_empty())
        {
            self.memory[Self::range(&io)].copy_from_slice(&data);
        }
        let result = if self.fails == Some(self.ios) { Err(ErrorCode::EIO) } else { Ok(()) };
        self.ios += 1;
        generator.completed(io.slot, self.now, result, &self.memory[Self::range(&io)]);
    }

    /// Runs a job to its end and tells `see` of each answer.
    fn run(&mut self, generator: &mut Generator, mut see: impl FnMut(Next, &Device)) {
        for _ in 0..5_000_000 {
            let next = generator.next(self.now);
            see(next, self);
            match next {
                Next::Issue(io) => self.issue(generator, io),
                Next::Commit => {
                    self.now += Nanos(100);
                    generator.committed(self.now);
                }
                Next::Reap { min } => {
                    self.now += self.service;
                    for _ in 0..min + u32::from(self.eager) {
                        self.complete(generator);
                    }
                }
                Next::Wait { until } => {
                    // Completions come while it waits.
                    self.now = Nanos((self.now.0 + 1).max(until.0));
                    self.complete(generator);
                }
                Next::Done => return,
            }
        }
        panic!("the job never ended");
    }
}

fn generator(job: &Job) -> Generator {
    Generator::new(job, ThreadId::default(), &[TARGET]).unwrap()
}

/// Runs a job; its generator at the end, and its I/Os.
fn run(job: &Job) -> (Generator, Vec<Io>) {
    run_on(&mut Device::new(), job)
}

fn run_on(device: &mut Device, job: &Job) -> (Generator, Vec<Io>) {
    let (mut generator, mut log) = (generator(job), Vec::new());
    device.run(&mut generator, |next, _| {
        if let Next::Issue(io) = next {
            log.push(io);
        }
    });
    (generator, log)
}

fn pattern(direction: Direction, random: bool) -> Pattern {
    Pattern { direction, random, step: i64::from(random) }
}
