//! A lane whose commands and completions travel as bytes: a queue pair of the host's own, of which the submission queue is what is to
//! be sent, and the completion queue what has been received.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use driver::{Completed, Counters, QueueSizes, Reaped, SqGuard};
use handover::sync::{Mutex, MutexGuard, lock, try_lock};
use handover::{Debt, LookLock};
use hw::{Birth, CqRing, SqRing};
use nvme::{Consumer, CqSlots, Cqe, Doorbells, Producer, QueueId, SqSlots, Sqe, Vector};
use units::{Nanos, Op};

use super::entries::Entries;
use super::habits::DebtHabits;
use crate::link::embedded::{Line, LineHeld, Relay, words};
use crate::link::part::{Part, Post};
use crate::link::ring::{Between, Held, Pair, PrpTable, RingLink, Rings, Tended, command, other_command};
use crate::request::Token;

/// Bytes of the entries.
const SQE: usize = 1 << Sqe::SIZE_LOG2;
const CQE: usize = 1 << Cqe::SIZE_LOG2;

/// Most completions of a look that is to say only whether there are any.
const RUN: u32 = 64;

/// What is received at a time.
const RECEIVED: usize = 64 * CQE;

/// A queue pair of the host's own, and the socket.
pub(crate) struct StreamLane {
    pair: Pair,
    sq: SqRing,
    cq: CqRing,
    marks: Marks,
    link: Arc<RingLink>,
    prp: Arc<PrpTable>,
    line: Arc<Line>,
    birth: Birth,
    vector: Vector,
    sending: Mutex<Sending>,
    receiving: LookLock<Receiving>,
    debt: Debt,
    /// Nobody sleeps on the lane, and the thread that went left the debt to the housekeeping thread.
    left: AtomicBool,
    habits: DebtHabits,
    /// Looks at the socket that brought something.
    arrivals: AtomicU64,
}

/// The doorbells of the host's own pair: how far each side has come.
#[derive(Default)]
struct Marks {
    tail: AtomicU32,
    head: AtomicU32,
}

impl Doorbells for Marks {
    #[inline]
    fn ring_sq(&self, _: QueueId, tail: u32) {
        self.tail.store(tail, Release);
    }

    #[inline]
    fn ring_cq(&self, _: QueueId, head: u32) {
        self.head.store(head, Release);
    }

    fn sq_tail(&self, _: QueueId) -> u32 {
        self.tail.load(Acquire)
    }

    fn cq_head(&self, _: QueueId) -> u32 {
        self.head.load(Acquire)
    }
}

/// What is to be sent.
struct Sending {
    commands: Consumer,
    /// Commands that are not sent yet, and how much of them is.
    bytes: Vec<u8>,
    sent: usize,
    open: bool,
}

/// What has been received.
struct Receiving {
    completions: Producer,
    entries: Entries<CQE>,
    open: bool,
}

impl Sending {
    fn new(sizes: QueueSizes, open: bool) -> Sending {
        let bytes = Vec::with_capacity(sizes.sq_entries as usize * SQE);
        Sending { commands: Consumer::new(sizes.sq_entries), bytes, sent: 0, open }
    }
}

impl Receiving {
    fn new(sizes: QueueSizes, open: bool) -> Receiving {
        Receiving { completions: Producer::new(sizes.cq_entries), entries: Entries::default(), open }
    }
}

impl StreamLane {
    /// A lane to the queue `id` that the controller has created over `rings`. `None`: the pool has no room for the host's own rings.
    ///
    /// # Errors
    /// The system has no socket left.
    pub(crate) fn new(
        (id, sizes): (QueueId, QueueSizes),
        rings: &Rings,
        vector: Vector,
        (link, relay): (Arc<RingLink>, &Relay),
        prp: Arc<PrpTable>,
    ) -> io::Result<Option<StreamLane>> {
        let own = Rings::new(&link, sizes).ok();
        let made = own.and_then(|own| Some((own.pair(&link, id, sizes)?, own.slots(&link, sizes)?, rings.slots(&link, sizes)?)));
        let Some((pair, (sq, cq), theirs)) = made else { return Ok(None) };
        let line = relay.join((id, vector), theirs, (sizes.sq_entries, sizes.cq_entries))?;
        Ok(Some(StreamLane {
            pair,
            sq,
            cq,
            marks: Marks::default(),
            prp,
            line,
            birth: Birth::here(),
            vector,
            sending: Mutex::new(Sending::new(sizes, true)),
            receiving: LookLock::new(Receiving::new(sizes, true)),
            debt: Debt::new(),
            left: AtomicBool::new(false),
            habits: relay.habits(),
            arrivals: AtomicU64::new(0),
            link,
        }))
    }

    /// Which process made it.
    pub(crate) fn birth(&self) -> Birth {
        self.birth
    }

    /// Waits for the submission side.
    pub(crate) fn lock(&self) -> StreamPosting<'_> {
        StreamPosting { sq: self.pair.lock_sq(), sending: lock(&self.sending), lane: self }
    }

    /// The submission side, if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<StreamPosting<'_>> {
        Some(StreamPosting { sq: self.pair.try_lock_sq()?, sending: try_lock(&self.sending)?, lane: self })
    }

    /// Announces what was posted, and sends as much as the socket takes. How many commands were announced.
    pub(crate) fn commit(&self) -> u32 {
        self.lock().commit()
    }

    /// Sends what is announced, as far as the socket takes it, and notes what is left.
    fn send(&self, sending: &mut Sending) {
        if !sending.open {
            return;
        }
        let more = sending.commands.available(self.marks.tail.load(Acquire)).unwrap_or(0);
        if more > 0 && sending.sent > 0 {
            sending.bytes.drain(..std::mem::take(&mut sending.sent));
        }
        for _ in 0..more {
            let sqe = self.sq.load(sending.commands.slot());
            sqe.to_words().iter().for_each(|word| sending.bytes.extend(word.to_le_bytes()));
            sending.commands.advance();
        }
        if sending.bytes.is_empty() {
            return;
        }
        sending.sent += self.line.host.send(&sending.bytes[sending.sent..]);
        let left = sending.sent < sending.bytes.len();
        if !left {
            (sending.sent, _) = (0, sending.bytes.clear());
        }
        self.debt.note(left);
        self.line.sends.fetch_add(u64::from(more > 0), Relaxed);
        self.line.partial.fetch_add(u64::from(more > 0 && left), Relaxed);
    }

    /// What is unsent.
    pub(crate) fn debt(&self) -> &Debt {
        &self.debt
    }

    /// How threads see to what is unsent.
    pub(crate) fn habits(&self) -> DebtHabits {
        self.habits
    }

    /// Sends what is unsent, as far as the socket takes it, if anything is. It waits for no lock: the thread that is sending at this moment
    /// notes what is left, and sees to that before it stops.
    #[inline]
    pub(crate) fn settle(&self) {
        if self.debt.owes()
            && let Some(mut sending) = try_lock(&self.sending)
        {
            self.send(&mut sending);
        }
    }

    /// Nobody sleeps on the lane: its debt is the housekeeping thread's, which is to be told.
    pub(crate) fn leave_debt(&self) {
        self.left.store(true, Release);
    }

    /// The housekeeping thread: whether it was left a debt since it last asked.
    pub(crate) fn take_debt(&self) -> bool {
        self.left.load(Acquire) && self.left.swap(false, AcqRel)
    }

    /// Whether a completion has been received that nobody has taken.
    #[inline]
    pub(crate) fn hint(&self) -> bool {
        self.pair.pending()
    }

    /// The same, and if there is none a look at the socket.
    #[cold] // A socket costs more than a call, and memory that both sides share must not pay for it.
    pub(crate) fn pending(&self) -> bool {
        self.settle();
        self.pair.pending()
            || self.receiving.try_look(|receiving| self.receive(receiving, RUN), || self.is_unread()).is_some_and(|looked| looked.more)
    }

    /// Receives at most `budget` completions into the queue.
    fn receive(&self, receiving: &mut Receiving, budget: u32) {
        let Receiving { completions, entries, open } = receiving;
        if !*open {
            return;
        }
        let (mut left, mut any, mut bytes) = (budget, false, [0; RECEIVED]);
        loop {
            // What is not taken yet must not be overwritten, whatever the other end sends.
            let room = completions.room(self.marks.head.load(Acquire)).min(left) as usize * CQE;
            let Some(places) = bytes.get_mut(..room.saturating_sub(entries.have()).min(RECEIVED)).filter(|places| !places.is_empty())
            else {
                break;
            };
            let received = self.line.host.recv(places);
            entries.take(&places[..received.bytes], |entry| {
                let cqe = Cqe::from_words(words(&entry));
                // The phase is the other end's, of a ring that is not this one.
                self.cq.store(completions.slot(), &cqe.with_status(cqe.status(), completions.phase()));
                completions.advance();
                left -= 1;
            });
            any |= received.bytes > 0;
            if received.drained {
                break;
            }
        }
        self.arrivals.fetch_add(u64::from(any), Relaxed);
    }

    /// Takes as many completions as `out` has places. `None`: another thread does, and looks once more afterwards.
    #[cold]
    #[inline(never)]
    pub(crate) fn try_reap(&self, out: &mut [Completed]) -> Option<Reaped> {
        self.look(out.len() as u32, || self.pair.try_reap_into(&self.marks, out))
    }

    /// The same, for at most `budget` completions, appended to `out` as far as it has room.
    pub(crate) fn try_reap_more(&self, budget: u32, out: &mut Vec<Completed>) -> Option<Reaped> {
        self.look(budget, || self.pair.try_reap(&self.marks, budget, out))
    }

    fn look(&self, budget: u32, reap: impl FnOnce() -> Option<Reaped>) -> Option<Reaped> {
        self.settle();
        // One lock around both: a thread that finds it held goes to sleep, and whatever it has left behind is this thread's.
        let receive_and_reap = |receiving: &mut Receiving| {
            self.receive(receiving, budget.max(1));
            reap()
        };
        let looked = self.receiving.try_look(receive_and_reap, || self.is_unread())?;
        let reaped = looked.found?;
        Some(Reaped { more: reaped.more || looked.more, ..reaped })
    }

    /// Whether a completion waits that nobody takes, in the queue or in the socket, which tells of it only once. Of a pair that takes
    /// nothing any more nobody has to know.
    fn is_unread(&self) -> bool {
        self.pair.pending() || !self.pair.is_stopped() && self.line.host.is_readable()
    }

    /// What a thread that sleeps on it waits for.
    pub(crate) fn wait_on(&self) -> BorrowedFd<'_> {
        self.line.host.as_fd()
    }

    /// Whether its completions tell a thread that waits: they come as bytes, which a descriptor tells of.
    pub(crate) fn notifies(&self) -> bool {
        true
    }

    /// The vector that the controller raises at the other end.
    pub(crate) fn vector(&self) -> Vector {
        self.vector
    }

    /// Looks at the socket that brought something: all that can be told of its messages.
    pub(crate) fn messages(&self) -> u64 {
        self.arrivals.load(Relaxed)
    }

    /// The queue that it is at the controller.
    pub(crate) fn id(&self) -> QueueId {
        self.pair.id()
    }

    /// Commands that it has room for.
    pub(crate) fn tags(&self) -> u32 {
        self.pair.sizes().tags
    }

    /// Commands announced and not yet taken.
    pub(crate) fn in_flight(&self) -> u32 {
        self.pair.in_flight()
    }

    /// What has been counted.
    pub(crate) fn counters(&self) -> Counters {
        self.pair.counters()
    }
}

impl Tended for StreamLane {
    fn pair(&self) -> &Pair {
        &self.pair
    }

    fn try_exclusive(&self) -> Option<Held<'_>> {
        let sides = self.pair.try_exclusive()?;
        let (sending, receiving) = (try_lock(&self.sending)?, self.receiving.try_lock()?);
        let between = StreamHeld { lane: self, sending, receiving, line: self.line.try_lock()? };
        Some(Held::new(sides, Some(Box::new(between))))
    }
}

/// A stream that nothing is sent over.
struct StreamHeld<'a> {
    lane: &'a StreamLane,
    sending: MutexGuard<'a, Sending>,
    receiving: MutexGuard<'a, Receiving>,
    line: LineHeld<'a>,
}

impl StreamHeld<'_> {
    fn restart(&mut self, open: bool) {
        let sizes = self.lane.pair.sizes();
        *self.sending = Sending::new(sizes, open);
        *self.receiving = Receiving::new(sizes, open);
        self.lane.marks.tail.store(0, Release);
        self.lane.marks.head.store(0, Release);
        self.lane.debt.note(false);
        self.line.empty(open);
    }
}

impl Between for StreamHeld<'_> {
    /// A command of which a part is sent is never whole at the other end, which is emptied before anything else is sent.
    fn close(&mut self) {
        self.sending.bytes.clear();
        (self.sending.sent, self.sending.open) = (0, false);
        self.lane.debt.note(false);
    }

    fn empty(&mut self) {
        self.restart(false);
    }

    fn reopen(&mut self) {
        self.restart(true);
        self.lane.link.end().and_then(|end| end.relay()).into_iter().for_each(Relay::tell);
    }
}

/// A lane's submission side, locked.
pub(crate) struct StreamPosting<'a> {
    sq: SqGuard<'a, SqRing, CqRing>,
    sending: MutexGuard<'a, Sending>,
    lane: &'a StreamLane,
}

impl StreamPosting<'_> {
    /// Whether there is no room for another command now, or the lane is closed.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.sq.exhausted()
    }
}

impl Post for StreamPosting<'_> {
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        self.sq.post(command(part, &self.lane.prp, self.lane.link.sgls()), token.0, now).is_ok()
    }

    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        // A lock, which others do without.
        let frees = part.op == Op::WriteZeroes && self.lane.link.frees_zeroes(part.nsid);
        self.sq.post(other_command(part, &self.lane.prp, self.lane.link.sgls(), frees), token.0, now).is_ok()
    }

    fn commit(&mut self) -> u32 {
        let commands = self.sq.commit(&self.lane.marks);
        self.lane.send(&mut self.sending);
        commands
    }
}
