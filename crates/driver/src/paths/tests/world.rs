//! Paths in virtual time: each a queue with a number of servers, and a wire. Enough to compare
//! policies; their CPU cost is measured by the machine simulator.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use units::{Class, Nanos, Op};

use crate::paths::{Distances, PathSet, Paths, Policy, Selector, Token};

/// How long a server is busy with one request.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// Constant.
    Fixed(u64),
    /// Exponentially distributed, with this mean.
    Exponential(u64),
    /// Nine in ten take the first, one the second.
    Bimodal(u64, u64),
}

/// A path: a controller with `servers` that work at the same time, `wire` away.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub servers: usize,
    pub service: Service,
    pub wire: u64,
}

/// A closed loop over some paths: each of `queues` keeps `depth` requests in flight.
#[derive(Clone, Debug)]
pub struct World {
    pub paths: Vec<Model>,
    /// From a time on, a path is another.
    pub changes: Vec<(u64, usize, Model)>,
    pub queues: u16,
    pub depth: usize,
    /// Virtual time; what is finished in the first tenth is not measured.
    pub length: u64,
}

/// The result of a policy.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub iops: f64,
    pub p99: u64,
    pub by_path: Vec<u64>,
    /// The counts left when every request has completed.
    pub counted_at_end: u32,
}

/// xorshift64*: the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to 1, without 0.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

impl Service {
    fn draw(self, random: &mut Random) -> u64 {
        match self {
            Service::Fixed(ns) => ns,
            Service::Exponential(mean) => (-random.unit().ln() * mean as f64) as u64,
            Service::Bimodal(fast, slow) => {
                if random.unit() < 0.9 {
                    fast
                } else {
                    slow
                }
            }
        }
    }
}

/// A path's servers, by when each is free.
struct Station {
    model: Model,
    free: BinaryHeap<Reverse<u64>>,
}

impl Station {
    fn new(model: Model) -> Station {
        Station { model, free: (0..model.servers).map(|_| Reverse(0)).collect() }
    }

    /// When a request that is sent now is back.
    fn serve(&mut self, now: u64, random: &mut Random) -> u64 {
        let begin = self.free.pop().map_or(0, |Reverse(free)| free).max(now);
        let end = begin + self.model.service.draw(random);
        self.free.push(Reverse(end));
        end + self.model.wire
    }
}

struct Run {
    selectors: Vec<Selector>,
    stations: Vec<Station>,
    random: Random,
    /// Completions in transit: time, order sent, queue, time sent.
    answers: BinaryHeap<Reverse<(u64, u64, u16, u64)>>,
    tokens: Vec<Option<Token>>,
}

const READ_4K: (Op, u32) = (Op::Read, 4096);

impl Run {
    fn send(&mut self, queue: u16, now: u64) {
        let (selector, class) =
            (&mut self.selectors[usize::from(queue)], Class::new(READ_4K.0, READ_4K.1));
        selector.begin(Nanos(now));
        let token =
            selector.send_next(PathSet::below(self.stations.len()), class, Nanos(now)).unwrap();
        selector.commit(Nanos(now));
        let back = self.stations[token.path().index()].serve(now, &mut self.random);
        self.answers.push(Reverse((back, self.tokens.len() as u64, queue, now)));
        self.tokens.push(Some(token));
    }
}

impl World {
    /// The same world for every policy and seed.
    pub fn run(&self, policy: Policy, seed: u64) -> Outcome {
        let paths = self.paths.len();
        let distances = Distances(vec![(0..paths).map(|path| 10 + path as u8).collect()]);
        let shared = Arc::new(Paths::new(paths, distances, policy).unwrap());
        let selectors =
            (0..self.queues).map(|queue| Selector::new(shared.clone(), queue.into())).collect();
        let stations = self.paths.iter().map(|&model| Station::new(model)).collect();
        let mut run = Run {
            selectors,
            stations,
            random: Random(seed | 1),
            answers: BinaryHeap::new(),
            tokens: Vec::new(),
        };
        for queue in 0..self.queues {
            (0..self.depth).for_each(|_| run.send(queue, 0));
        }
        let (mut latencies, mut by_path) = (Vec::new(), vec![0; paths]);
        let mut changes = self.changes.iter().peekable();
        while let Some(Reverse((now, number, queue, sent))) = run.answers.pop() {
            while let Some((_, path, model)) = changes.next_if(|(at, ..)| *at <= now) {
                run.stations[*path] = Station::new(*model);
            }
            let token = run.tokens[number as usize].take().unwrap();
            run.selectors[usize::from(queue)].end(token, Nanos(now - sent), Nanos(now));
            if now >= self.length {
                continue;
            }
            if now >= self.length / 10 {
                latencies.push(now - sent);
                by_path[usize::from(token.path().0)] += 1;
            }
            run.send(queue, now);
        }
        latencies.sort_unstable();
        let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
        Outcome {
            iops: latencies.len() as f64 / (self.length as f64 * 0.9e-9),
            p99: at(0.99),
            by_path,
            counted_at_end: run.selectors.iter().flat_map(|selector| &selector.counts).sum(),
        }
    }
}
