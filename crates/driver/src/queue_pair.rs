//! One submission queue and its completion queue: posting, the doorbells, reaping.
//!
//! The two rings have a lock each, so that a thread that submits never waits for one that reaps. [`QueuePair::pending`]
//! looks at the completion queue without either.

use nvme::{Cid, CqSlots, Cqe, Doorbells, QueueId, RingIndex, SqSlots, Sqe, Status};
use units::Nanos;

use crate::command_table::{CommandTable, CompletionError, Finisher};
use crate::tags::{Returner, Tags, Taker};
use crate::{Command, Expired, NoTag, ProtocolViolation, QueueSizeError};
use sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sync::atomic::{AtomicU64, fence};
use sync::{Mutex, MutexGuard, PollLock, Polled, lock, try_lock};

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Entries of the submission queue, 2 to 65,536.
    pub sq_entries: u32,
    /// Entries of the completion queue, 2 to 65,536.
    pub cq_entries: u32,
    /// Most commands in flight: at most one less than the entries of either ring, so that neither can overrun, and at most
    /// [`QueueSizes::MOST_TAGS`].
    pub tags: u32,
}

impl QueueSizes {
    /// Most tags of a queue pair: what 12 of the 16 bits of a CID tell apart. The other 4 count generations, so that an answer that
    /// comes once more is known for stale while the tag's next fifteen commands come and go.
    pub const MOST_TAGS: u32 = (1 << 12) - 1;
}

/// A queue pair over ring memory `S` and `C`. Shared by reference among all who submit and reap.
#[derive(Debug)]
pub struct QueuePair<S, C> {
    id: QueueId,
    sizes: QueueSizes,
    /// SQID and SQHD of its entries, as the specification lays them out in one double word (Base 4.2.1), if SQHD is 0.
    sqid_word: u32,
    sq: S,
    cq: C,
    tags: Tags,
    commands: CommandTable,
    sq_side: Mutex<SqSide>,
    cq_side: PollLock<CqSide>,
    /// What the doorbell has announced since the queue was made; written under the SQ lock.
    announced: AtomicU64,
    /// What has been reaped, or abandoned, since then; written under the CQ lock.
    finished: AtomicU64,
    /// Where a lockless look looks: the slot in bits 31:0, the phase in bit 32, [`STOPPED`] in bit 33.
    poll_position: AtomicU64,
    sq_doorbells: Counter,
    cq_doorbells: Counter,
    empty_looks: Counter,
    bad_heads: Counter,
}

/// Nothing more is taken from this queue: a violation was seen, or it is closed.
const STOPPED: u64 = 1 << 33;

#[derive(Debug)]
struct SqSide {
    producer: RingIndex,
    taker: Taker,
    /// The tail that was last announced.
    announced: u32,
    closed: bool,
}

#[derive(Debug)]
struct CqSide {
    consumer: RingIndex,
    finisher: Finisher,
    returner: Returner,
    /// Took a [`ProtocolViolation`]: where the ring stands is no longer known.
    stopped: bool,
}

/// A completed command, as the controller ended it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// What it was posted with.
    pub token: u64,
    /// Its identifier.
    pub cid: Cid,
    /// How it ended.
    pub status: Status,
    /// DW0 of the entry, by command.
    pub result: u32,
    /// When it was posted.
    pub posted_at: Nanos,
}

/// What one reap saw. Of two words, so that it comes back in registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Entries taken.
    pub found: u32,
    /// It ended because the budget, or the room in `out`, did.
    pub budget_used_up: bool,
    /// After the lock was released there was an entry: somebody has to look again (law 6).
    pub more: bool,
    /// The controller broke the protocol: reset it. Reported once; from then on this queue yields nothing.
    pub violation: Option<Box<ProtocolViolation>>,
}

impl<S: SqSlots, C: CqSlots> QueuePair<S, C> {
    /// A queue pair over ring memory whose completion entries are all of phase 0 (zeroed).
    pub fn new(id: QueueId, sizes: QueueSizes, sq: S, cq: C) -> Result<QueuePair<S, C>, QueueSizeError> {
        sizes.check(id)?;
        let (tags, taker, returner) = Tags::new(sizes.tags);
        let (commands, finisher) = CommandTable::new(sizes.tags);
        let consumer = RingIndex::new(sizes.cq_entries);
        Ok(QueuePair {
            id,
            sizes,
            sqid_word: u32::from(id.0) << 16,
            sq,
            cq,
            tags,
            commands,
            poll_position: AtomicU64::new(position_word(&consumer)),
            sq_side: Mutex::new(SqSide { producer: RingIndex::new(sizes.sq_entries), taker, announced: 0, closed: false }),
            cq_side: PollLock::new(CqSide { consumer, finisher, returner, stopped: false }),
            announced: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            sq_doorbells: Counter::default(),
            cq_doorbells: Counter::default(),
            empty_looks: Counter::default(),
            bad_heads: Counter::default(),
        })
    }

    /// Its identifier; submission and completion queue have the same.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Its sizes.
    pub fn sizes(&self) -> QueueSizes {
        self.sizes
    }

    /// Waits for the submission side.
    #[inline]
    pub fn lock_sq(&self) -> SqGuard<'_, S, C> {
        SqGuard { pair: self, side: lock(&self.sq_side) }
    }

    /// The submission side, if nobody has it: for a thread that must not wait for those who submit.
    pub fn try_lock_sq(&self) -> Option<SqGuard<'_, S, C>> {
        Some(SqGuard { pair: self, side: try_lock(&self.sq_side)? })
    }

    /// Whether an entry waits in the completion queue, without a lock. May be true although another thread has just
    /// taken the entry; false only if there was none, or the queue is stopped.
    #[inline]
    pub fn pending(&self) -> bool {
        // Relaxed: a stale slot is one that was taken since, and it still has the phase that was looked for.
        let position = self.poll_position.load(Relaxed);
        position & STOPPED == 0 && self.cq.is_new(position as u32, position >> 32 & 1 == 1)
    }

    /// Whether it takes nothing more: after a violation of the protocol, and while it is closed.
    pub fn is_stopped(&self) -> bool {
        self.poll_position.load(Relaxed) & STOPPED != 0
    }

    /// Takes as many entries as `out` has places, its budget, into the first [`Reaped::found`] of them. `None`: another thread is
    /// reaping, and looks once more after it has released the lock.
    #[inline(never)] // One call for all of a look under the lock, and little to carry back.
    pub fn try_reap_into(&self, doorbells: &impl Doorbells, out: &mut [Completed]) -> Option<Reaped> {
        let Polled { found, more } = self.cq_side.try_poll(|side| self.reap_locked(side, doorbells, out), || self.pending())?;
        Some(Reaped { more, ..found })
    }

    /// The same, for at most `budget` entries, appended to `out` as far as it has room without growing.
    pub fn try_reap(&self, doorbells: &impl Doorbells, budget: u32, out: &mut Vec<Completed>) -> Option<Reaped> {
        self.append(budget, out, |places| self.try_reap_into(doorbells, places))
    }

    /// The same, waiting for the lock.
    pub fn reap(&self, doorbells: &impl Doorbells, budget: u32, out: &mut Vec<Completed>) -> Reaped {
        let reap = |places: &mut [Completed]| {
            let found = self.reap_locked(&mut self.cq_side.lock(), doorbells, places);
            fence(SeqCst);
            Some(Reaped { more: self.pending(), ..found })
        };
        self.append(budget, out, reap).unwrap_or_default()
    }

    /// Lets `reap` append at most `budget` entries to `out`, which does not grow.
    fn append(&self, budget: u32, out: &mut Vec<Completed>, reap: impl FnOnce(&mut [Completed]) -> Option<Reaped>) -> Option<Reaped> {
        let (before, budget) = (out.len(), budget.min((out.capacity() - out.len()).try_into().unwrap_or(u32::MAX)));
        // One more than are in flight is enough to see an entry that nobody asked for.
        out.resize(before + budget.min(self.in_flight() + 1) as usize, Completed::default());
        let reaped = out.get_mut(before..).and_then(reap);
        out.truncate(before + reaped.as_ref().map_or(0, |reaped| reaped.found as usize));
        reaped.map(|reaped| Reaped { budget_used_up: reaped.found == budget, ..reaped })
    }

    #[inline(always)] // Once on the data path: its answer stays in registers.
    fn reap_locked(&self, side: &mut CqSide, doorbells: &impl Doorbells, out: &mut [Completed]) -> Reaped {
        let mut reaped = Reaped::default();
        if side.stopped {
            return reaped;
        }
        let finished = self.finished.load(Relaxed);
        let (found, violation) = self.reap_entries(side, finished, out);
        (reaped.found, reaped.violation) = (found as u32, violation);
        reaped.budget_used_up = found == out.len();
        side.stopped = reaped.violation.is_some();
        if found > 0 {
            self.finished.store(finished + found as u64, Release);
            doorbells.ring_cq(self.id, side.consumer.slot());
            self.cq_doorbells.add(1);
            // After the doorbell: a command posted under one of these tags finds room in the completion queue.
            side.returner.flush(&self.tags);
        } else {
            self.empty_looks.add(1);
        }
        self.poll_position.store(position_word(&side.consumer) | if side.stopped { STOPPED } else { 0 }, Release);
        reaped
    }

    /// Takes entries into `out` until it is full; and no more than are in flight, so that a controller that posts for ever is not
    /// listened to for ever. How many, and what was wrong with the next.
    #[inline(always)]
    fn reap_entries(&self, side: &mut CqSide, finished: u64, out: &mut [Completed]) -> (usize, Option<Box<ProtocolViolation>>) {
        let mut in_flight = (self.announced.load(Relaxed) - finished) as usize;
        if in_flight == 0 {
            if !self.is_new(side) {
                return (0, None);
            }
            // The entry was stored after the announcement of its command: that is visible now, if there was one.
            in_flight = (self.announced.load(Acquire) - finished) as usize;
            if in_flight == 0 {
                return (0, Some(self.unannounced(side)));
            }
        }
        let most = in_flight.min(out.len());
        let mut taken = 0;
        while taken < most {
            // As far as the ring's end, where the phase changes.
            let run = (most - taken).min((self.sizes.cq_entries - side.consumer.slot()) as usize);
            let Some(run) = out.get_mut(taken..taken + run) else { break };
            let found = self.reap_run(side, run);
            taken += found;
            if let Some(place) = run.get_mut(found) {
                if !self.is_new(side) {
                    break;
                }
                match self.reap_slow(side) {
                    Ok(completed) => *place = completed,
                    Err(seen) => return (taken, Some(seen)),
                }
                taken += 1;
            }
        }
        (taken, None)
    }

    #[inline]
    fn is_new(&self, side: &CqSide) -> bool {
        self.cq.is_new(side.consumer.slot(), side.consumer.phase())
    }

    /// Takes entries from consecutive slots until `out` is full, or one is empty or odd: wrong, or of a command that is
    /// being aborted. How many there were. This is the loop that every completion passes through: it calls nothing, and reads
    /// what it needs where that is, because it has no registers for more than a batch of one needs as well.
    #[inline(always)] // Once on the data path.
    fn reap_run(&self, side: &mut CqSide, out: &mut [Completed]) -> usize {
        let (first, phase) = (side.consumer.slot(), side.consumer.phase());
        let (finisher, mut back) = (&mut side.finisher, side.returner.batch(&self.tags));
        let taken = self.cq.load_run(first, phase, out, |cqe, place| {
            // SQID is this queue's, and SQHD lies in it: both in one comparison.
            if (u32::from(cqe.sq_id) << 16 | u32::from(cqe.sq_head)) ^ self.sqid_word >= self.sizes.sq_entries {
                return false;
            }
            let Some((command, tag)) = self.commands.in_flight(cqe.cid()) else { return false };
            let (token, posted_at) = command.token_and_time();
            *place = Completed { token, cid: cqe.cid(), status: cqe.status(), result: cqe.result, posted_at };
            command.end(cqe.cid(), finisher);
            back.add(tag);
            true
        });
        side.returner.end(back);
        side.consumer.advance_by(taken);
        taken as usize
    }

    /// Takes an entry of a command that is being aborted, or says what is wrong with it.
    #[cold]
    #[inline(never)]
    fn reap_slow(&self, side: &mut CqSide) -> Result<Completed, Box<ProtocolViolation>> {
        let queue = self.id;
        let cqe = self.cq.load(side.consumer.slot(), side.consumer.phase()).unwrap_or_default();
        let (named, cid, head) = (cqe.sq_id, cqe.cid, cqe.sq_head);
        if named != queue.0 {
            return Err(ProtocolViolation::WrongQueue { queue, cid, named }.into());
        }
        if u32::from(head) >= self.sizes.sq_entries {
            // Real controllers report such heads, and Linux does not read them. Room in the submission queue comes from the tags.
            self.bad_heads.add(1);
        }
        let (Command { cid, token, posted_at }, tag) =
            self.commands.complete_slow(&mut side.finisher, cqe.cid()).map_err(|refused| match refused {
                CompletionError::Unknown { last } => ProtocolViolation::UnknownCommand { queue, cid, last },
                CompletionError::Duplicate => ProtocolViolation::Doubled { queue, cid: cqe.cid() },
            })?;
        if let Some(tag) = tag {
            side.returner.add(&self.tags, tag);
        }
        side.consumer.advance_by(1);
        Ok(Completed { token, cid, status: cqe.status(), result: cqe.result, posted_at })
    }

    #[cold]
    #[inline(never)]
    fn unannounced(&self, side: &CqSide) -> Box<ProtocolViolation> {
        let cqe = self.cq.load(side.consumer.slot(), side.consumer.phase()).unwrap_or_default();
        Box::new(ProtocolViolation::Unannounced { queue: self.id, cid: cqe.cid })
    }

    /// Commands announced and not yet reaped.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        // In this order, so that the difference is never negative.
        let finished = self.finished.load(Acquire);
        (self.announced.load(Acquire) - finished) as u32
    }

    /// The commands posted `timeout` or longer before `now`, appended to `out`; takes no lock.
    pub fn expired(&self, now: Nanos, timeout: Nanos, out: &mut Vec<Expired>) {
        self.commands.expired(now, timeout, out);
    }

    /// What has been counted since the queue was made.
    pub fn counters(&self) -> Counters {
        Counters {
            announced: self.announced.load(Relaxed),
            finished: self.finished.load(Relaxed),
            sq_doorbells: self.sq_doorbells.get(),
            cq_doorbells: self.cq_doorbells.get(),
            empty_looks: self.empty_looks.get(),
            bad_heads: self.bad_heads.get(),
        }
    }
}

/// The submission side of a queue pair, locked.
#[derive(Debug)]
pub struct SqGuard<'a, S, C> {
    pair: &'a QueuePair<S, C>,
    side: MutexGuard<'a, SqSide>,
}

impl<S: SqSlots, C: CqSlots> SqGuard<'_, S, C> {
    /// Stores a command, under a CID of its own, where the next [`SqGuard::commit`] announces it.
    #[inline(always)] // Built in registers, the entry is written once, into the ring.
    pub fn post(&mut self, mut sqe: Sqe, token: u64, now: Nanos) -> Result<Cid, NoTag> {
        let (pair, side) = (self.pair, &mut *self.side);
        // A closed queue knows of no free tag.
        let tag = match side.taker.take_known(&pair.tags) {
            Some(tag) => tag,
            None if side.closed => return Err(NoTag),
            None => side.taker.take(&pair.tags).ok_or(NoTag)?,
        };
        let cid = pair.commands.begin(tag, token, now);
        sqe.cid = cid.0;
        let slot = side.producer.slot();
        side.producer.advance();
        pair.sq.store(slot, &sqe);
        Ok(cid)
    }

    /// Rings the doorbell if anything was posted since it was last rung. Returns how many commands that announced.
    #[inline(always)] // Once on the data path.
    pub fn commit(&mut self, doorbells: &impl Doorbells) -> u32 {
        let posted = self.posted();
        if posted == 0 || self.side.closed {
            return 0;
        }
        self.side.announced = self.side.producer.slot();
        let announced = &self.pair.announced;
        announced.store(announced.load(Relaxed) + u64::from(posted), Release);
        doorbells.ring_sq(self.pair.id, self.side.producer.slot());
        self.pair.sq_doorbells.add(1);
        posted
    }

    /// Whether there is no tag for another command now: `Taker::exhausted` says how to wait for one.
    pub fn exhausted(&self) -> bool {
        self.side.closed || self.side.taker.exhausted(&self.pair.tags)
    }

    /// Commands stored and not yet announced.
    #[inline]
    pub fn posted(&self) -> u32 {
        let (tail, announced) = (self.side.producer.slot(), self.side.announced);
        if tail >= announced { tail - announced } else { tail + self.pair.sizes.sq_entries - announced }
    }
}

impl QueueSizes {
    fn check(self, id: QueueId) -> Result<(), QueueSizeError> {
        for (ring, entries) in [("submission queue", self.sq_entries), ("completion queue", self.cq_entries)] {
            if !(2..=65_536).contains(&entries) {
                return Err(QueueSizeError::Ring { id, ring, entries });
            }
        }
        let most = (self.sq_entries.min(self.cq_entries) - 1).min(QueueSizes::MOST_TAGS);
        if !(1..=most).contains(&self.tags) {
            return Err(QueueSizeError::Tags { id, tags: self.tags, most });
        }
        Ok(())
    }
}

fn position_word(consumer: &RingIndex) -> u64 {
    u64::from(consumer.slot()) | u64::from(consumer.phase()) << 32
}

/// A queue pair with both locks held: nobody posts and nobody reaps. Once it is let go, ask [`QueuePair::look_again`].
#[derive(Debug)]
pub struct Exclusive<'a, S, C> {
    pair: &'a QueuePair<S, C>,
    sq: MutexGuard<'a, SqSide>,
    cq: MutexGuard<'a, CqSide>,
}

impl<S: SqSlots, C: CqSlots> QueuePair<S, C> {
    /// Waits for both sides.
    pub fn exclusive(&self) -> Exclusive<'_, S, C> {
        let sq = lock(&self.sq_side);
        Exclusive { pair: self, sq, cq: self.cq_side.lock() }
    }

    /// Both sides, if nobody has either: for a thread that must not wait for those who submit and reap.
    pub fn try_exclusive(&self) -> Option<Exclusive<'_, S, C>> {
        let sq = try_lock(&self.sq_side)?;
        Some(Exclusive { pair: self, sq, cq: self.cq_side.try_lock()? })
    }

    /// After [`Exclusive`]: whether an entry is pending. A thread may have found the lock busy, and gone to sleep.
    pub fn look_again(&self) -> bool {
        fence(SeqCst);
        self.pending()
    }
}

impl<S: SqSlots, C: CqSlots> Exclusive<'_, S, C> {
    /// Reserves the CID of `command`, for which an Abort is about to be posted, until both have completed. False: the
    /// command has completed meanwhile.
    pub fn begin_abort(&mut self, command: &Command) -> bool {
        self.pair.commands.begin_abort(&mut self.cq.finisher, command)
    }

    /// The Abort for `cid` has completed, whatever it says.
    pub fn end_abort(&mut self, cid: Cid) {
        // Under the lock, so that a reset cannot free the same tag in between.
        if let Some(tag) = self.pair.commands.end_abort(&mut self.cq.finisher, cid) {
            self.cq.returner.add(&self.pair.tags, tag);
            self.cq.returner.flush(&self.pair.tags);
        }
    }

    /// Stops posting: from now on [`SqGuard::post`] answers [`NoTag`] and no doorbell is rung. Reaping goes on.
    pub fn close(&mut self) {
        self.sq.closed = true;
        self.sq.taker.forget();
    }

    /// Ends every command without an answer, returns what they were posted with, and empties both rings, the completion
    /// entries back at phase 0. The queue stays closed until [`Exclusive::reopen`]. Only after the controller has
    /// provably stopped (CSTS.RDY = 0) may anybody touch the commands' buffers, or the rings be given to it again.
    pub fn abandon(&mut self) -> Vec<Command> {
        let (pair, sq, cq) = (self.pair, &mut *self.sq, &mut *self.cq);
        (sq.closed, cq.stopped) = (true, true);
        pair.poll_position.store(STOPPED, Release);
        let mut abandoned = Vec::new();
        pair.commands.abandon(&mut cq.finisher, |command| abandoned.push(command));
        sq.taker.reset(&mut cq.returner, &pair.tags);
        sq.taker.forget();
        sq.announced = 0;
        sq.producer = RingIndex::new(pair.sizes.sq_entries);
        cq.consumer = RingIndex::new(pair.sizes.cq_entries);
        for slot in 0..pair.sizes.cq_entries {
            pair.cq.store(slot, &Cqe::default());
        }
        pair.finished.store(pair.announced.load(Relaxed), Release);
        abandoned
    }

    /// Opens it again after [`Exclusive::abandon`]: for the admin queue before the controller is enabled, for an I/O queue
    /// once it has been created again.
    pub fn reopen(&mut self) {
        (self.sq.closed, self.cq.stopped) = (false, false);
        self.pair.poll_position.store(position_word(&self.cq.consumer), Release);
    }
}

/// What a queue pair has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands announced by the SQ doorbell.
    pub announced: u64,
    /// Commands reaped or abandoned.
    pub finished: u64,
    /// Writes to the SQ doorbell.
    pub sq_doorbells: u64,
    /// Writes to the CQ doorbell: looks under the CQ lock that found something.
    pub cq_doorbells: u64,
    /// Looks under the CQ lock that found nothing.
    pub empty_looks: u64,
    /// Completions whose SQ Head Pointer lies outside of the queue: a fault of the controller's without consequences.
    pub bad_heads: u64,
}

/// Plain addition: the holder of the lock is the only writer.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    #[inline]
    fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/exclusive_models.rs"]
mod exclusive_models;
#[cfg(all(test, loom))]
#[path = "../tests/unit/queue_pair_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
