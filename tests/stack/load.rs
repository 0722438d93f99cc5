//! The load under faults: what was acknowledged is remembered, every read is checked, every request
//! ends exactly once.

use std::collections::{HashMap, HashSet};
use std::process::abort;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use reap::{
    Completion, Device, DmaBuf, EmbeddedOptions, FaultPlan, Faults, IoError, Mode, Nanos,
    OpenOptions, Queue, Request,
};

/// Bytes of a block.
pub const BLOCK: usize = 512;

/// Blocks that one thread uses.
const BLOCKS: u64 = 256;

/// The modes that are looked at: one that sleeps, one that spins, one that masks and looks after
/// each commit.
pub fn modes() -> [Mode; 3] {
    ["interrupt", "poll", "irq-poll+submit-check"].map(|name| name.parse().expect("a mode"))
}

/// Ends the process if what it stands beside does not end in time: a hang must not look like a slow
/// test.
pub struct Watchdog(
    #[expect(dead_code, reason = "its end is what the thread waits for")] mpsc::Sender<()>,
);

impl Watchdog {
    pub fn new(what: &str) -> Watchdog {
        let (alive, ended) = mpsc::channel();
        let what = what.to_owned();
        thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(600)) == Err(mpsc::RecvTimeoutError::Timeout)
            {
                eprintln!("{what}: hangs");
                abort();
            }
        });
        Watchdog(alive)
    }
}

/// Where what is lost is to be found out soon.
pub const SOON: Nanos = Nanos::from_millis(60);

/// Where a time-out is needed, and one that a stalled thread provokes is told apart from it: longer
/// than a busy machine keeps a thread away.
pub const PATIENT: Nanos = Nanos::from_secs(6);

/// Where nothing is to be late: no machine keeps a thread away for so long.
pub const LONG: Nanos = Nanos::from_secs(60);

/// An embedded device with faults and one hardware queue for `threads` threads. Its controller has
/// a minute to stop or to come up: one whose thread is kept from its CPU for seconds is not given
/// up.
pub fn open(plan: FaultPlan, mode: Mode, threads: usize, timeout: Nanos) -> (Device, Faults) {
    open_within(Duration::from_secs(60), plan, mode, threads, timeout)
}

/// The same where the controller is to be lost, which takes as long as it has for stopping, and for
/// coming up first.
pub fn open_to_lose(
    plan: FaultPlan,
    mode: Mode,
    threads: usize,
    timeout: Nanos,
) -> (Device, Faults) {
    open_within(PATIENT.into(), plan, mode, threads, timeout)
}

fn open_within(
    ready: Duration,
    plan: FaultPlan,
    mode: Mode,
    threads: usize,
    timeout: Nanos,
) -> (Device, Faults) {
    let faults = Faults::new(plan);
    let options = OpenOptions::new()
        .software_queues(threads)
        .hardware_queues(1)
        .depth(32)
        .mode(mode)
        .timeout(timeout.into())
        .pool_bytes(16 << 20)
        .embedded(EmbeddedOptions {
            faults: Some(faults.clone()),
            ready_timeout: Some(ready),
            ..EmbeddedOptions::default()
        });
    let device = Device::open_with("mem:16M?profile=optane", &options)
        .expect("the device opens: its admin queue is spared");
    (device, faults)
}

/// How requests ended.
#[derive(Debug, Default)]
pub struct Ended {
    pub good: u64,
    pub bad: Vec<IoError>,
    /// Requests that came back without their buffer.
    pub kept_buffers: u64,
}

/// What a block may hold: all that was ever written to it and may have come through, the last one
/// acknowledged.
#[derive(Clone, Default)]
struct Block {
    may_hold: HashSet<u64>,
    in_use: bool,
}

/// Writes and reads at random.
pub struct Load<'a> {
    queue: &'a Queue,
    first: u64,
    blocks: Vec<Block>,
    /// Block and, for a write, what is written, by tag.
    open: HashMap<u64, (usize, Option<u64>)>,
    next: u64,
    rng: u64,
    pub ended: Ended,
}

impl<'a> Load<'a> {
    /// On the blocks of thread number `owner`.
    pub fn new(queue: &'a Queue, owner: u64) -> Load<'a> {
        let zero = Block { may_hold: HashSet::from([0]), in_use: false };
        let blocks = vec![zero; BLOCKS as usize];
        let (first, next) = (owner * BLOCKS, (owner + 1) << 32);
        Load {
            queue,
            first,
            blocks,
            open: HashMap::new(),
            next,
            rng: owner + 1,
            ended: Ended::default(),
        }
    }

    /// `requests` requests, at most `depth` at a time. Every one ends, or this does not.
    pub fn run(&mut self, requests: u64, depth: usize) -> &Ended {
        let mut out = Vec::with_capacity(depth);
        let mut left = requests;
        while left > 0 || !self.open.is_empty() {
            let room = (depth - self.open.len()).min(left as usize);
            let batch: Vec<_> = (0..room).map(|_| self.request()).collect();
            left -= room as u64;
            self.queue.submit(batch).expect("requests in order");
            let found = self.queue.wait(1, None).expect("not inside block_on");
            assert!(
                found > 0,
                "nothing is in flight, but {} requests have not ended",
                self.open.len()
            );
            self.queue.reap(&mut out);
            out.drain(..).for_each(|done| self.end(done));
        }
        assert_eq!(self.queue.finished(), 0);
        &self.ended
    }

    fn request(&mut self) -> Request {
        let block = loop {
            self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let block = (self.rng >> 33) as usize % self.blocks.len();
            if !self.blocks[block].in_use {
                break block;
            }
        };
        self.blocks[block].in_use = true;
        self.next += 1;
        let (tag, write) = (self.next, self.rng >> 60 < 8);
        let mut buf = self.queue.buffer(BLOCK).expect("the pool is large");
        fill(&mut buf, if write { tag } else { !tag });
        self.open.insert(tag, (block, write.then_some(tag)));
        let (ns, lba) = (self.queue.namespaces()[0], self.first + block as u64);
        if write {
            Request::write(&ns, lba, buf).tag(tag)
        } else {
            Request::read(&ns, lba, buf).tag(tag)
        }
    }

    fn end(&mut self, done: Completion) {
        let (at, written) = self.open.remove(&done.tag).expect("each request ends once");
        let block = &mut self.blocks[at];
        block.in_use = false;
        match (done.result, written) {
            (Ok(()), Some(value)) => block.may_hold = HashSet::from([value]),
            (Ok(()), None) => {
                let buf = done.buf.as_ref().expect("an answered request brings its buffer back");
                let value = value_of(buf);
                assert!(
                    value.is_some_and(|v| block.may_hold.contains(&v)),
                    "block {at} holds {value:x?}, not {:x?}",
                    block.may_hold
                );
            }
            // It may have been carried out.
            (Err(_), Some(value)) => _ = block.may_hold.insert(value),
            (Err(_), None) => {}
        }
        self.ended.kept_buffers += u64::from(done.buf.is_none());
        match done.result {
            Ok(()) => self.ended.good += 1,
            Err(error) => self.ended.bad.push(error),
        }
    }
}

fn fill(buf: &mut DmaBuf, value: u64) {
    buf.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
}

/// What the buffer is filled with, if it is one thing from end to end.
fn value_of(buf: &[u8]) -> Option<u64> {
    let first = buf.first_chunk()?;
    buf.chunks_exact(8).all(|word| word == first).then(|| u64::from_le_bytes(*first))
}

/// `requests` requests from each of `threads` threads, at most `depth` of each at a time, on one
/// hardware queue, with faults by `plan`.
pub fn run(
    plan: FaultPlan,
    mode: Mode,
    threads: usize,
    requests: (u64, usize),
) -> (Device, Faults, Vec<Ended>) {
    run_for(plan, mode, threads, requests, SOON)
}

/// `run` with a time-out of one's own.
pub fn run_for(
    plan: FaultPlan,
    mode: Mode,
    threads: usize,
    (requests, depth): (u64, usize),
    timeout: Nanos,
) -> (Device, Faults, Vec<Ended>) {
    let _watchdog = Watchdog::new(&format!("{mode}, {threads} threads, {plan:?}"));
    let (device, faults) = open(plan, mode, threads, timeout);
    let ended = thread::scope(|scope| {
        let start = |owner| {
            let queue = device.queue().expect("one for each thread");
            scope.spawn(move || {
                let mut load = Load::new(&queue, owner);
                load.run(requests, depth);
                load.ended
            })
        };
        let threads: Vec<_> = (0..threads as u64).map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("the thread has not panicked"))
            .collect()
    });
    (device, faults, ended)
}
