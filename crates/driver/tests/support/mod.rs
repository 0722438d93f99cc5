//! Rings, doorbells and the device side of them in plain memory, for this crate's tests.

#[cfg(not(loom))]
pub mod controller;
#[cfg(not(loom))]
pub mod host;
#[cfg(not(loom))]
pub mod wire;
pub mod words;

use std::sync::Arc;

use nvme::{CqSlots, Cqe, Doorbells, QueueId, RingIndex, SqSlots, Sqe, Status};

use crate::{QueuePair, QueueSizes};
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicU32, AtomicU64};

#[derive(Clone, Debug)]
pub struct Slots<const WORDS: usize>(Arc<[[AtomicU64; WORDS]]>);

pub type MemSq = Slots<8>;
pub type MemCq = Slots<2>;
pub type Pair = QueuePair<MemSq, MemCq>;

impl<const WORDS: usize> Slots<WORDS> {
    pub fn new(entries: u32) -> Self {
        Slots((0..entries).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect())
    }
}

impl SqSlots for MemSq {
    fn store(&self, slot: u32, sqe: &Sqe) {
        for (word, value) in self.0[slot as usize].iter().zip(sqe.to_words()) {
            word.store(value, Relaxed);
        }
    }

    fn load(&self, slot: u32) -> Sqe {
        Sqe::from_words(std::array::from_fn(|i| self.0[slot as usize][i].load(Relaxed)))
    }
}

impl CqSlots for MemCq {
    fn store(&self, slot: u32, cqe: &Cqe) {
        let [low, high] = cqe.to_words();
        self.0[slot as usize][0].store(low, Relaxed);
        self.0[slot as usize][1].store(high, Release);
    }

    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        let high = self.0[slot as usize][1].load(Acquire);
        (Cqe::phase_of(high) == phase)
            .then(|| Cqe::from_words([self.0[slot as usize][0].load(Relaxed), high]))
    }

    fn is_new(&self, slot: u32, phase: bool) -> bool {
        Cqe::phase_of(self.0[slot as usize][1].load(Acquire)) == phase
    }
}

/// Tails and heads of a few queues.
#[derive(Clone, Debug)]
pub struct MemDoorbells(Arc<[[AtomicU32; 2]]>);

impl MemDoorbells {
    pub fn new(queues: u16) -> MemDoorbells {
        MemDoorbells((0..=queues).map(|_| Default::default()).collect())
    }
}

impl Doorbells for MemDoorbells {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.0[usize::from(queue.0)][0].store(tail, Release);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.0[usize::from(queue.0)][1].store(head, Release);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.0[usize::from(queue.0)][0].load(Acquire)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.0[usize::from(queue.0)][1].load(Acquire)
    }
}

/// The device side of a queue pair. It does what a test says, right or wrong.
#[derive(Debug)]
pub struct Far {
    id: QueueId,
    sq: MemSq,
    cq: MemCq,
    doorbells: MemDoorbells,
    fetch: RingIndex,
    post: RingIndex,
}

impl Far {
    pub fn new(
        id: QueueId,
        sizes: QueueSizes,
        sq: MemSq,
        cq: MemCq,
        doorbells: MemDoorbells,
    ) -> Far {
        Far {
            id,
            sq,
            cq,
            doorbells,
            fetch: RingIndex::new(sizes.sq_entries),
            post: RingIndex::new(sizes.cq_entries),
        }
    }

    /// The next command that the doorbell has announced.
    pub fn fetch(&mut self) -> Option<Sqe> {
        let waiting = self
            .fetch
            .available(self.doorbells.sq_tail(self.id))
            .expect("the host's tail lies in the ring");
        (waiting > 0).then(|| {
            let sqe = SqSlots::load(&self.sq, self.fetch.slot());
            self.fetch.advance();
            sqe
        })
    }

    /// Applies a controller reset.
    pub fn reset(&mut self) {
        self.fetch = RingIndex::new(self.sq.0.len() as u32);
        self.post = RingIndex::new(self.cq.0.len() as u32);
        self.doorbells.ring_sq(self.id, 0);
        self.doorbells.ring_cq(self.id, 0);
    }

    /// A correct completion entry for a command.
    pub fn entry(&self, cid: u16) -> Cqe {
        Cqe { cid, sq_id: self.id.0, sq_head: self.fetch.slot() as u16, ..Cqe::default() }
    }

    /// Whether an entry fits.
    #[cfg(not(loom))]
    pub fn has_room(&self) -> bool {
        self.post.room(self.doorbells.cq_head(self.id)) > 0
    }

    /// Posts an entry; panics if that overruns the queue.
    pub fn post(&mut self, cqe: Cqe, status: Status) {
        assert!(self.post.room(self.doorbells.cq_head(self.id)) > 0, "completion queue overrun");
        CqSlots::store(&self.cq, self.post.slot(), &cqe.with_status(status, self.post.phase()));
        self.post.advance();
    }

    /// Completes a command with success.
    pub fn complete(&mut self, cid: u16) {
        self.post(self.entry(cid), Status::SUCCESS);
    }
}

/// A queue pair with id 1, host and device side, and its doorbells.
pub fn pair(sizes: QueueSizes) -> (Pair, Far, MemDoorbells) {
    let (sq, cq, doorbells, id) = (
        Slots::new(sizes.sq_entries),
        Slots::new(sizes.cq_entries),
        MemDoorbells::new(1),
        QueueId(1),
    );
    let device = Far::new(id, sizes, sq.clone(), cq.clone(), doorbells.clone());
    (QueuePair::new(id, sizes, sq, cq).expect("legal sizes"), device, doorbells)
}
