//! What stands between an embedded controller and a host that sends bytes (`wire=stream`): a thread that puts the commands which come
//! over sockets into the controller's submission queues, and sends their completions back.
//!
//! To the controller it is the host: it has the rings and the vectors. To the host it is the controller's port.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

use handover::sync::{Mutex, MutexGuard, lock, try_lock};
use hw::{CqRing, Interest, Poller, SqRing, Vectors};
use nvme::{Consumer, CqSlots, Cqe, Doorbells, Producer, QueueId, SqSlots, Sqe, Vector};

use super::bells::Bells;
use crate::link::stream::{DebtHabits, Entries, Socket};
use crate::uri::Wire;
use crate::wake::Wake;

/// Bytes of the entries.
const SQE: usize = 1 << Sqe::SIZE_LOG2;
const CQE: usize = 1 << Cqe::SIZE_LOG2;

/// Most completions that wait to be sent: more are left in the controller's queue.
const WAITING: usize = 64 * CQE;

/// What is received at a time.
const RECEIVED: usize = 1024;

/// The relay of one controller.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    wire: Wire,
    habits: DebtHabits,
}

struct Shared {
    vectors: Arc<Vectors>,
    bells: Bells,
    poller: Poller,
    wake: Wake,
    lines: Mutex<Vec<Arc<Line>>>,
    /// There is a new line, or an old one goes on.
    news: AtomicBool,
    /// So many want it to leave everything where it is.
    held: AtomicU32,
    ended: AtomicBool,
}

/// What has been counted of commands that travel as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WireCounters {
    /// Sends of the host's that were given a command or more.
    pub sends: u64,
    /// Of these, those after which something was left that the socket did not take: debts.
    pub partial: u64,
    /// Commands that have arrived whole at the other end.
    pub commands: u64,
}

/// While it lives the relay neither receives nor sends, so that what the host sends fills the sockets, and stays there.
pub struct HeldWire(Arc<Shared>);

impl fmt::Debug for HeldWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldWire").finish_non_exhaustive()
    }
}

impl Drop for HeldWire {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Release);
        self.0.tell();
    }
}

impl Relay {
    /// A relay without queues, and its thread.
    pub(super) fn new(wire: Wire, habits: DebtHabits, bells: &Bells, vectors: &Arc<Vectors>) -> io::Result<Relay> {
        let (poller, wake) = (Poller::new()?, Wake::new()?);
        poller.add(&wake, 0)?;
        let (lines, news, held, ended) = (Mutex::new(Vec::new()), AtomicBool::new(false), AtomicU32::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { vectors: vectors.clone(), bells: bells.clone(), poller, wake, lines, news, held, ended });
        let relaying = shared.clone();
        std::thread::Builder::new().name("reap-relay".into()).spawn(move || {
            hw::roam();
            relaying.run();
        })?;
        Ok(Relay { shared, wire, habits })
    }

    /// How the host's threads see to what is unsent.
    pub(in crate::link) fn habits(&self) -> DebtHabits {
        self.habits
    }

    /// Takes on a queue that the controller has created over these rings, which are empty: the line to it. `sizes`: the rings' entries.
    ///
    /// # Errors
    /// The system has no socket left.
    pub(in crate::link) fn join(
        &self,
        (id, vector): (QueueId, Vector),
        (sq, cq): (SqRing, CqRing),
        sizes: (u32, u32),
    ) -> io::Result<Arc<Line>> {
        let (host, relay) = Socket::pair(self.wire)?;
        let (shared, state) = (&self.shared, Mutex::new(State::new(sizes, true)));
        let (sends, partial, commands) = Default::default();
        let line = Arc::new(Line { host, relay, id, vector, sq, cq, sizes, state, sends, partial, commands });
        shared.poller.add_for(&line.relay, 1, Interest { read: true, write: true })?;
        let mut lines = lock(&shared.lines);
        if let Some(eventfd) = shared.vectors.eventfd(vector).filter(|_| lines.iter().all(|line| line.vector != vector)) {
            shared.poller.add(eventfd, 1)?;
        }
        lines.push(line.clone());
        drop(lines);
        shared.tell();
        Ok(line)
    }

    /// From now on, until it is dropped, nothing passes.
    pub(crate) fn hold(&self) -> HeldWire {
        self.shared.held.fetch_add(1, Release);
        // Whatever passes at this moment has passed afterwards.
        lock(&self.shared.lines).iter().for_each(|line| drop(lock(&line.state)));
        HeldWire(self.shared.clone())
    }

    /// What has been counted, over all queues.
    pub(crate) fn counters(&self) -> WireCounters {
        let lines = lock(&self.shared.lines);
        let sum = |of: fn(&Line) -> &AtomicU64| lines.iter().map(|line| of(line).load(Relaxed)).sum();
        WireCounters { sends: sum(|line| &line.sends), partial: sum(|line| &line.partial), commands: sum(|line| &line.commands) }
    }

    /// A line goes on.
    pub(in crate::link) fn tell(&self) {
        self.shared.tell();
    }

    /// The host is gone.
    pub(super) fn end(&self) {
        self.shared.ended.store(true, Release);
        self.shared.tell();
    }
}

impl Shared {
    fn tell(&self) {
        self.news.store(true, Release);
        self.wake.tell();
    }

    fn run(&self) {
        let (mut lines, mut events) = (Vec::new(), Vec::new());
        while !self.ended.load(Acquire) {
            if self.news.swap(false, Acquire) {
                lines.clone_from(&*lock(&self.lines));
            }
            if self.pass(&lines) {
                continue;
            }
            // Law 1: arm, look, block.
            self.wake.arm();
            self.each_vector(&lines, |vector| self.bells.unmask(&self.vectors, vector));
            if !self.pass(&lines)
                && !self.news.load(Acquire)
                && let Err(error) = self.poller.wait(None, &mut events)
            {
                tracing::error!(%error, "a relay cannot sleep");
            }
            self.wake.mask();
            self.each_vector(&lines, |vector| self.vectors.bell(vector).into_iter().for_each(handover::Bell::mask));
        }
    }

    /// The vectors that are the relay's. The first is the admin queue's, whose host is another, and stays armed.
    fn each_vector(&self, lines: &[Arc<Line>], each: impl Fn(Vector)) {
        lines.iter().map(|line| line.vector).filter(|vector| vector.0 > 0).for_each(each);
    }

    /// Passes on what has come. Whether there was anything.
    fn pass(&self, lines: &[Arc<Line>]) -> bool {
        let mut any = false;
        for line in lines {
            let mut state = lock(&line.state);
            // Asked under the lock, so that the thread that holds the relay knows when it does.
            if self.held.load(Acquire) == 0 && state.open {
                any |= line.receive(&mut state, &self.bells) | line.collect(&mut state, &self.bells) | line.send(&mut state);
            }
        }
        any
    }
}

/// One queue's way, from the host's socket to the controller's rings.
pub(in crate::link) struct Line {
    /// The host's end.
    pub host: Socket,
    relay: Socket,
    id: QueueId,
    vector: Vector,
    sq: SqRing,
    cq: CqRing,
    sizes: (u32, u32),
    state: Mutex<State>,
    /// What the host counts.
    pub sends: AtomicU64,
    pub partial: AtomicU64,
    commands: AtomicU64,
}

struct State {
    sq: Producer,
    cq: Consumer,
    /// How far the controller has fetched, as its completions say.
    fetched: u32,
    commands: Entries<SQE>,
    /// Completions that are not sent yet, and how much of them is.
    completions: Vec<u8>,
    sent: usize,
    /// The controller has the queue.
    open: bool,
}

impl State {
    fn new((sq_entries, cq_entries): (u32, u32), open: bool) -> State {
        let (sq, cq) = (Producer::new(sq_entries), Consumer::new(cq_entries));
        State { sq, cq, fetched: 0, commands: Entries::default(), completions: Vec::with_capacity(WAITING), sent: 0, open }
    }
}

impl Line {
    /// Bytes from the host, as far as the submission queue has room for what they may be.
    fn receive(&self, state: &mut State, bells: &Bells) -> bool {
        let room = (state.sq.room(state.fetched) as usize * SQE).saturating_sub(state.commands.have()).min(RECEIVED);
        if room == 0 {
            return false;
        }
        let mut bytes = [0; RECEIVED];
        let received = self.relay.recv(&mut bytes[..room]).bytes;
        let before = state.sq.slot();
        let sq = &mut state.sq;
        state.commands.take(&bytes[..received], |entry| {
            self.sq.store(sq.slot(), &Sqe::from_words(words(&entry)));
            sq.advance();
            self.commands.fetch_add(1, Relaxed);
        });
        if sq.slot() != before {
            bells.ring_sq(self.id, sq.slot());
        }
        received > 0
    }

    /// Completions from the controller, as far as there is room for them to wait in.
    fn collect(&self, state: &mut State, bells: &Bells) -> bool {
        let before = state.cq.slot();
        while state.completions.len() + CQE <= WAITING
            && let Some(cqe) = self.cq.load(state.cq.slot(), state.cq.phase())
        {
            state.cq.advance();
            if u32::from(cqe.sq_head) < self.sizes.0 {
                state.fetched = cqe.sq_head.into();
            }
            cqe.to_words().iter().for_each(|word| state.completions.extend(word.to_le_bytes()));
        }
        let collected = state.cq.slot() != before;
        if collected {
            bells.ring_cq(self.id, state.cq.slot());
        }
        collected
    }

    fn send(&self, state: &mut State) -> bool {
        let sent = self.relay.send(&state.completions[state.sent..]);
        state.sent += sent;
        if state.sent == state.completions.len() {
            (state.sent, _) = (0, state.completions.clear());
        }
        sent > 0
    }

    /// Keeps the relay from it; `None`: it is at work on it at this moment.
    pub(in crate::link) fn try_lock(&self) -> Option<LineHeld<'_>> {
        Some(LineHeld { line: self, state: try_lock(&self.state)? })
    }
}

/// A line that nothing passes over.
pub(in crate::link) struct LineHeld<'a> {
    line: &'a Line,
    state: MutexGuard<'a, State>,
}

impl LineHeld<'_> {
    /// The controller has stopped: both rings are empty, and nothing is under way, in either direction. `open`: it has its queues again.
    pub(in crate::link) fn empty(&mut self, open: bool) {
        *self.state = State::new(self.line.sizes, open);
        (0..self.line.sizes.1).for_each(|slot| self.line.cq.store(slot, &Cqe::default()));
        self.line.relay.discard();
        self.line.host.discard();
    }
}

/// The words of an entry, as they travel.
pub(in crate::link) fn words<const BYTES: usize, const WORDS: usize>(entry: &[u8; BYTES]) -> [u64; WORDS] {
    let (words, _) = entry.as_chunks::<8>();
    std::array::from_fn(|n| words.get(n).map_or(0, |word| u64::from_le_bytes(*word)))
}
