//! A queue pair: one submission queue and its completion queue, their doorbells, tags and command
//! table.
//!
//! The two sides have a lock each, so a thread that submits never waits for one that reaps. Tags
//! and counters travel between them without a lock:
//!
//! ```text
//!   SQ lock   post: take a tag, fill its command slot, store the SQE
//!             commit: announced += posted (release), ring the SQ doorbell
//!   device    consumes SQEs, posts CQEs
//!   CQ lock   reap: load CQEs by phase tag, end their commands, finished += taken,
//!             ring the CQ doorbell, return the tags (release)
//!   no lock   pending: is the next CQE new?   in_flight   expired
//! ```

use nvme::{Cid, CqSlots, Cqe, Doorbells, QueueId, RingIndex, SqSlots, Sqe, Status};
use units::Nanos;

use crate::command_table::{CommandTable, CompletionError, Finisher};
use crate::tags::{Returner, Tags, Taker};
use crate::{Expired, NoTag, OutstandingCommand, ProtocolViolation, QueueSizeError};
use sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sync::atomic::{AtomicU64, fence};
use sync::{Mutex, MutexGuard, PollLock, Polled, lock, try_lock};

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Entries of the submission queue, 2 to 65,536.
    pub sq_entries: u32,
    /// Entries of the completion queue, 2 to 65,536.
    pub cq_entries: u32,
    /// Maximum commands in flight: at most one less than the entries of either ring, so that
    /// neither ring overruns, and at most [`QueueSizes::MAX_TAGS`].
    pub tags: u32,
}

impl QueueSizes {
    /// Maximum tags of a queue pair: 12 of the 16 bits of a CID. The other 4 count generations, so
    /// a repeated completion is recognised as stale while the tag's next fifteen commands come and
    /// go.
    pub const MAX_TAGS: u32 = (1 << 12) - 1;
}

/// A queue pair over ring memory `S` and `C`. Shared by reference between the threads that submit
/// and reap.
#[derive(Debug)]
pub struct QueuePair<S, C> {
    id: QueueId,
    sizes: QueueSizes,
    /// SQID and SQHD of this queue's CQEs as one double word (Base 4.2.1), with SQHD = 0.
    sqid_word: u32,
    sq: S,
    cq: C,
    tags: Tags,
    commands: CommandTable,
    sq_side: Mutex<SqSide>,
    cq_side: PollLock<CqSide>,
    /// Commands announced by the SQ doorbell since creation; written under the SQ lock.
    announced: AtomicU64,
    /// Commands reaped or abandoned since creation; written under the CQ lock.
    finished: AtomicU64,
    /// The next CQE, for a check without the lock: its slot in bits 31:0, its phase in bit 32,
    /// [`STOPPED`] in bit 33.
    poll_position: AtomicU64,
    sq_doorbells: Counter,
    cq_doorbells: Counter,
    empty_polls: Counter,
    bad_heads: Counter,
}

/// The queue takes no entries: a violation was seen, or it is closed.
const STOPPED: u64 = 1 << 33;

#[derive(Debug)]
struct SqSide {
    producer: RingIndex,
    taker: Taker,
    /// The tail last written to the doorbell.
    announced: u32,
    closed: bool,
}

#[derive(Debug)]
struct CqSide {
    consumer: RingIndex,
    finisher: Finisher,
    returner: Returner,
    /// A [`ProtocolViolation`] was seen, or the queue was abandoned: the ring's position is no
    /// longer known.
    stopped: bool,
}

/// A completed command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The token that it was posted with.
    pub token: u64,
    /// Its identifier.
    pub cid: Cid,
    /// Its status.
    pub status: Status,
    /// DW0 of the entry; its meaning depends on the command.
    pub result: u32,
    /// When it was posted.
    pub posted_at: Nanos,
}

/// Result of one reap. Two words, so that it is returned in registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Entries taken.
    pub found: u32,
    /// Reaping ended because the budget, or the capacity of `out`, was used up.
    pub budget_used_up: bool,
    /// An entry was pending after the lock was released: some thread must poll again, or a
    /// completion is missed.
    pub more: bool,
    /// The controller broke the protocol and must be reset. Reported once; from then on this queue
    /// takes no entries.
    pub violation: Option<Box<ProtocolViolation>>,
}

impl<S: SqSlots, C: CqSlots> QueuePair<S, C> {
    /// Creates a queue pair. The completion entries must all have phase 0 (zeroed memory).
    pub fn new(
        id: QueueId,
        sizes: QueueSizes,
        sq: S,
        cq: C,
    ) -> Result<QueuePair<S, C>, QueueSizeError> {
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
            sq_side: Mutex::new(SqSide {
                producer: RingIndex::new(sizes.sq_entries),
                taker,
                announced: 0,
                closed: false,
            }),
            cq_side: PollLock::new(CqSide { consumer, finisher, returner, stopped: false }),
            announced: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            sq_doorbells: Counter::default(),
            cq_doorbells: Counter::default(),
            empty_polls: Counter::default(),
            bad_heads: Counter::default(),
        })
    }

    /// Its identifier: SQ and CQ have the same.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Its sizes.
    pub fn sizes(&self) -> QueueSizes {
        self.sizes
    }

    /// Locks the submission side.
    #[inline]
    pub fn lock_sq(&self) -> SqGuard<'_, S, C> {
        SqGuard { pair: self, side: lock(&self.sq_side) }
    }

    /// Locks the submission side if it is free, for a thread that must not wait.
    pub fn try_lock_sq(&self) -> Option<SqGuard<'_, S, C>> {
        Some(SqGuard { pair: self, side: try_lock(&self.sq_side)? })
    }

    /// Whether the next completion entry is new, without a lock. True may be outdated: another
    /// thread may just have taken the entry. False is exact, unless the queue is stopped.
    #[inline]
    pub fn pending(&self) -> bool {
        // Relaxed: a stale position is a slot that was taken since, and still has the phase tested.
        let position = self.poll_position.load(Relaxed);
        position & STOPPED == 0 && self.cq.is_new(position as u32, position >> 32 & 1 == 1)
    }

    /// Whether the queue takes no entries: after a protocol violation, and while it is closed.
    pub fn is_stopped(&self) -> bool {
        self.poll_position.load(Relaxed) & STOPPED != 0
    }

    /// Reaps up to `out.len()` entries into the first [`Reaped::found`] slots of `out`. `None`:
    /// another thread is reaping, and checks once more after it has released the lock.
    #[inline(never)] // One call for all of a look under the lock, and little to carry back.
    pub fn try_reap_into(
        &self,
        doorbells: &impl Doorbells,
        out: &mut [Completed],
    ) -> Option<Reaped> {
        let Polled { found, more } = self
            .cq_side
            .try_poll(|side| self.reap_locked(side, doorbells, out), || self.pending())?;
        Some(Reaped { more, ..found })
    }

    /// As [`QueuePair::try_reap_into`], for at most `budget` entries, which are appended to `out`
    /// within its capacity.
    pub fn try_reap(
        &self,
        doorbells: &impl Doorbells,
        budget: u32,
        out: &mut Vec<Completed>,
    ) -> Option<Reaped> {
        self.append(budget, out, |places| self.try_reap_into(doorbells, places))
    }

    /// As [`QueuePair::try_reap`], but waits for the lock.
    pub fn reap(
        &self,
        doorbells: &impl Doorbells,
        budget: u32,
        out: &mut Vec<Completed>,
    ) -> Reaped {
        let reap = |places: &mut [Completed]| {
            let found = self.reap_locked(&mut self.cq_side.lock(), doorbells, places);
            // Orders the release of the lock before the check, as `PollLock::try_poll` does.
            fence(SeqCst);
            Some(Reaped { more: self.pending(), ..found })
        };
        self.append(budget, out, reap).unwrap_or_default()
    }

    /// Lets `reap` append at most `budget` entries to `out`, which does not grow.
    fn append(
        &self,
        budget: u32,
        out: &mut Vec<Completed>,
        reap: impl FnOnce(&mut [Completed]) -> Option<Reaped>,
    ) -> Option<Reaped> {
        let (before, budget) =
            (out.len(), budget.min((out.capacity() - out.len()).try_into().unwrap_or(u32::MAX)));
        // One slot more than commands in flight is enough to see an entry without a command.
        out.resize(before + budget.min(self.in_flight() + 1) as usize, Completed::default());
        let reaped = out.get_mut(before..).and_then(reap);
        out.truncate(before + reaped.as_ref().map_or(0, |reaped| reaped.found as usize));
        reaped.map(|reaped| Reaped { budget_used_up: reaped.found == budget, ..reaped })
    }

    #[inline(always)] // Once on the data path: its answer stays in registers.
    fn reap_locked(
        &self,
        side: &mut CqSide,
        doorbells: &impl Doorbells,
        out: &mut [Completed],
    ) -> Reaped {
        let mut reaped = Reaped::default();
        if side.stopped {
            return reaped;
        }
        let finished = self.finished.load(Relaxed);
        let (found, violation) = self.reap_entries(side, finished, out);
        (reaped.found, reaped.violation) = (found as u32, violation);
        reaped.budget_used_up = found == out.len();
        // After a violation no entry can be trusted, nor the ring's position.
        side.stopped = reaped.violation.is_some();
        if found > 0 {
            // Plain store: the CQ lock makes this the only writer.
            self.finished.store(finished + found as u64, Release);
            doorbells.ring_cq(self.id, side.consumer.slot());
            self.cq_doorbells.add(1);
            // After the doorbell: a command posted under one of these tags finds room in the
            // completion queue.
            side.returner.flush(&self.tags);
        } else {
            self.empty_polls.add(1);
        }
        // The position is updated last: until now a check without the lock sees the old slot, and
        // at worst causes an unnecessary poll.
        self.poll_position
            .store(position_word(&side.consumer) | if side.stopped { STOPPED } else { 0 }, Release);
        reaped
    }

    /// Reaps entries until `out` is full, but at most as many as there are commands in flight: a
    /// controller that posts endlessly must not keep this thread here. Returns the number of
    /// entries, and the violation, if any, in the entry after them.
    #[inline(always)]
    fn reap_entries(
        &self,
        side: &mut CqSide,
        finished: u64,
        out: &mut [Completed],
    ) -> (usize, Option<Box<ProtocolViolation>>) {
        let mut in_flight = (self.announced.load(Relaxed) - finished) as usize;
        if in_flight == 0 {
            if !self.is_new(side) {
                return (0, None);
            }
            // The CQE was posted after its command was announced: if there was one, this load sees
            // it.
            in_flight = (self.announced.load(Acquire) - finished) as usize;
            // There is a CQE without a command: the controller broke the protocol.
            if in_flight == 0 {
                return (0, Some(self.unannounced(side)));
            }
        }
        let max = in_flight.min(out.len());
        let mut taken = 0;
        while taken < max {
            // A run goes at most to the end of the ring, where the phase changes.
            let run = (max - taken).min((self.sizes.cq_entries - side.consumer.slot()) as usize);
            let Some(run) = out.get_mut(taken..taken + run) else { break };
            let found = self.reap_run(side, run);
            taken += found;
            if let Some(place) = run.get_mut(found) {
                // The run ended at an empty slot, the usual case, or at an entry of the slow path.
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

    /// Reaps entries from consecutive slots until `out` is full, or a slot is empty or needs
    /// [`QueuePair::reap_slow`]. Returns the number. Every completion passes through this loop. It
    /// makes no calls and keeps few values, because a batch of one has no registers to spare.
    #[inline(always)] // Once on the data path.
    fn reap_run(&self, side: &mut CqSide, out: &mut [Completed]) -> usize {
        let (first, phase) = (side.consumer.slot(), side.consumer.phase());
        let (finisher, mut back) = (&mut side.finisher, side.returner.batch(&self.tags));
        let taken = self.cq.load_run(first, phase, out, |cqe, place| {
            // One comparison for two checks: SQID is this queue's, and SQHD is within the queue.
            if (u32::from(cqe.sq_id) << 16 | u32::from(cqe.sq_head)) ^ self.sqid_word
                >= self.sizes.sq_entries
            {
                return false;
            }
            // Checked before anything of the entry is used: the CID comes from the device.
            let Some((command, tag)) = self.commands.in_flight(cqe.cid()) else { return false };
            let (token, posted_at) = command.token_and_time();
            *place = Completed {
                token,
                cid: cqe.cid(),
                status: cqe.status(),
                result: cqe.result,
                posted_at,
            };
            command.end(cqe.cid(), finisher);
            back.add(tag);
            true
        });
        side.returner.end(back);
        side.consumer.advance_by(taken);
        taken as usize
    }

    /// Reaps an entry that the fast path does not handle: its command is being aborted, its SQHD is
    /// invalid, or it is a violation.
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
            // Real controllers report such heads, and Linux ignores SQHD too. Tags, not SQHD, make
            // sure that the submission queue has room.
            self.bad_heads.add(1);
        }
        let (OutstandingCommand { cid, token, posted_at }, tag) = self
            .commands
            .complete_slow(&mut side.finisher, cqe.cid())
            .map_err(|refused| match refused {
                CompletionError::Unknown { last } => {
                    ProtocolViolation::UnknownCommand { queue, cid, last }
                }
                CompletionError::Duplicate => {
                    ProtocolViolation::Duplicate { queue, cid: cqe.cid() }
                }
            })?;
        // Without a tag the Abort still reserves the CID; `Exclusive::end_abort` returns the tag.
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
        // `finished` is loaded first: otherwise the difference could be negative.
        let finished = self.finished.load(Acquire);
        (self.announced.load(Acquire) - finished) as u32
    }

    /// Appends the commands posted `timeout` or longer before `now` to `out`; takes no lock.
    pub fn expired(&self, now: Nanos, timeout: Nanos, out: &mut Vec<Expired>) {
        self.commands.expired(now, timeout, out);
    }

    /// Counters since creation.
    pub fn counters(&self) -> QueuePairCounters {
        QueuePairCounters {
            announced: self.announced.load(Relaxed),
            finished: self.finished.load(Relaxed),
            sq_doorbells: self.sq_doorbells.get(),
            cq_doorbells: self.cq_doorbells.get(),
            empty_polls: self.empty_polls.get(),
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
    /// Stores a command under a new CID in the next slot. [`SqGuard::commit`] announces it.
    #[inline(always)] // Built in registers, the entry is written once, into the ring.
    pub fn post(&mut self, mut sqe: Sqe, token: u64, now: Nanos) -> Result<Cid, NoTag> {
        let (pair, side) = (self.pair, &mut *self.side);
        // `close` makes the taker forget its free tags, so the usual path need not test `closed`.
        let tag = match side.taker.take_known(&pair.tags) {
            Some(tag) => tag,
            None if side.closed => return Err(NoTag),
            None => side.taker.take(&pair.tags).ok_or(NoTag)?,
        };
        let cid = pair.commands.begin(tag, token, now);
        sqe.cid = cid.0;
        // The next slot is always free: there are fewer tags than slots.
        let slot = side.producer.slot();
        side.producer.advance();
        pair.sq.store(slot, &sqe);
        Ok(cid)
    }

    /// Rings the doorbell if anything was posted since the last ring. Returns the number of
    /// commands announced.
    #[inline(always)] // Once on the data path.
    pub fn commit(&mut self, doorbells: &impl Doorbells) -> u32 {
        let posted = self.posted();
        if posted == 0 || self.side.closed {
            return 0;
        }
        self.side.announced = self.side.producer.slot();
        let announced = &self.pair.announced;
        // Commands are counted before the doorbell is rung: a reaper must not see a CQE whose
        // command was not counted.
        announced.store(announced.load(Relaxed) + u64::from(posted), Release);
        doorbells.ring_sq(self.pair.id, self.side.producer.slot());
        self.pair.sq_doorbells.add(1);
        posted
    }

    /// Whether there is no tag for another command now. See `Taker::exhausted` for how to wait for
    /// one.
    pub fn exhausted(&self) -> bool {
        self.side.closed || self.side.taker.exhausted(&self.pair.tags)
    }

    /// Commands stored and not yet announced.
    #[inline]
    pub fn posted(&self) -> u32 {
        let (tail, announced) = (self.side.producer.slot(), self.side.announced);
        // The tail has wrapped at the end of the ring otherwise.
        if tail >= announced {
            tail - announced
        } else {
            tail + self.pair.sizes.sq_entries - announced
        }
    }
}

impl QueueSizes {
    fn check(self, id: QueueId) -> Result<(), QueueSizeError> {
        for (ring, entries) in
            [("submission queue", self.sq_entries), ("completion queue", self.cq_entries)]
        {
            if !(2..=65_536).contains(&entries) {
                return Err(QueueSizeError::Ring { id, ring, entries });
            }
        }
        let max = (self.sq_entries.min(self.cq_entries) - 1).min(QueueSizes::MAX_TAGS);
        if !(1..=max).contains(&self.tags) {
            return Err(QueueSizeError::Tags { id, tags: self.tags, max });
        }
        Ok(())
    }
}

fn position_word(consumer: &RingIndex) -> u64 {
    u64::from(consumer.slot()) | u64::from(consumer.phase()) << 32
}

/// A queue pair with both locks held: no thread posts or reaps. After dropping it, call
/// [`QueuePair::recheck_pending`].
#[derive(Debug)]
pub struct Exclusive<'a, S, C> {
    pair: &'a QueuePair<S, C>,
    sq: MutexGuard<'a, SqSide>,
    cq: MutexGuard<'a, CqSide>,
}

impl<S: SqSlots, C: CqSlots> QueuePair<S, C> {
    /// Locks both sides.
    pub fn exclusive(&self) -> Exclusive<'_, S, C> {
        // SQ before CQ, as in `try_exclusive`: one lock order.
        let sq = lock(&self.sq_side);
        Exclusive { pair: self, sq, cq: self.cq_side.lock() }
    }

    /// Locks both sides if both are free, for a thread that must not wait.
    pub fn try_exclusive(&self) -> Option<Exclusive<'_, S, C>> {
        let sq = try_lock(&self.sq_side)?;
        Some(Exclusive { pair: self, sq, cq: self.cq_side.try_lock()? })
    }

    /// Whether an entry is pending, to be called after an [`Exclusive`] was dropped: a thread may
    /// have found the CQ lock held, and gone to sleep.
    pub fn recheck_pending(&self) -> bool {
        fence(SeqCst);
        self.pending()
    }
}

impl<S: SqSlots, C: CqSlots> Exclusive<'_, S, C> {
    /// Reserves the CID of `command`, for which an Abort is about to be posted, until the command
    /// and the Abort have completed. Returns false if the command has completed.
    pub fn begin_abort(&mut self, command: &OutstandingCommand) -> bool {
        self.pair.commands.begin_abort(&mut self.cq.finisher, command)
    }

    /// The Abort for `cid` has completed, with any status.
    pub fn end_abort(&mut self, cid: Cid) {
        // The lock is held, so a reset cannot free the same tag at the same time.
        if let Some(tag) = self.pair.commands.end_abort(&mut self.cq.finisher, cid) {
            self.cq.returner.add(&self.pair.tags, tag);
            self.cq.returner.flush(&self.pair.tags);
        }
    }

    /// Stops posting: [`SqGuard::post`] now returns [`NoTag`], and no doorbell is rung. Reaping
    /// goes on.
    pub fn close(&mut self) {
        self.sq.closed = true;
        self.sq.taker.forget();
    }

    /// Ends every command without a completion and returns them. Empties both rings; the completion
    /// entries get phase 0. The queue stays closed until [`Exclusive::reopen`].
    ///
    /// The caller must not reuse the commands' buffers or the rings before the controller has
    /// provably stopped (CSTS.RDY = 0).
    pub fn abandon(&mut self) -> Vec<OutstandingCommand> {
        let (pair, sq, cq) = (self.pair, &mut *self.sq, &mut *self.cq);
        (sq.closed, cq.stopped) = (true, true);
        // The position is changed before the slots: from here on a check without the lock finds no
        // entry.
        pair.poll_position.store(STOPPED, Release);
        let mut abandoned = Vec::new();
        pair.commands.abandon(&mut cq.finisher, |command| abandoned.push(command));
        // All tags become free again. The taker then forgets them, so that `post` still returns
        // `NoTag`.
        sq.taker.reset(&mut cq.returner, &pair.tags);
        sq.taker.forget();
        sq.announced = 0;
        sq.producer = RingIndex::new(pair.sizes.sq_entries);
        cq.consumer = RingIndex::new(pair.sizes.cq_entries);
        // A recreated queue starts with phase 1, so old entries must not look new.
        for slot in 0..pair.sizes.cq_entries {
            pair.cq.store(slot, &Cqe::default());
        }
        // `finished` never decreases: threads without a lock compute `in_flight` from both counts.
        pair.finished.store(pair.announced.load(Relaxed), Release);
        abandoned
    }

    /// Reopens the queue after [`Exclusive::abandon`]: the admin queue before the controller is
    /// enabled, an I/O queue once it has been created again.
    pub fn reopen(&mut self) {
        (self.sq.closed, self.cq.stopped) = (false, false);
        self.pair.poll_position.store(position_word(&self.cq.consumer), Release);
    }
}

/// Counters of a queue pair since creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePairCounters {
    /// Commands announced by the SQ doorbell.
    pub announced: u64,
    /// Commands reaped or abandoned.
    pub finished: u64,
    /// Writes to the SQ doorbell.
    pub sq_doorbells: u64,
    /// Writes to the CQ doorbell: one for each poll under the CQ lock that found entries.
    pub cq_doorbells: u64,
    /// Empty polls: polls under the CQ lock that found no entry.
    pub empty_polls: u64,
    /// Completions whose SQ Head Pointer is outside the queue: a controller fault without
    /// consequences.
    pub bad_heads: u64,
}

/// A counter with one writer, the holder of the lock: no locked instruction.
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
