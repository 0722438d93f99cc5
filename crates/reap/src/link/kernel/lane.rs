//! A lane over an io_uring ring: one queue's way to a file or block device.
//!
//! One lock guards both sides of the ring. The queue's own thread posts and takes; others only try, and no lock is held while a
//! thread sleeps.

mod kinds;
mod state;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

use completion::Mode;
use driver::{Completed, Counters, Reaped, believable};
use hw::uring::{Enter, Hint, Options, Poll, Ring, RingError};
use hw::{Birth, EventFd, Lent};
use nvme::{QueueId, Vector};
use sync::{Mutex, MutexGuard, lock, try_lock};
use units::{Nanos, Op};

use self::state::{BELL, BELL_FILE, CANCEL, MOST_AT_ONCE, RUN, State, TARGET};
use super::buffers::{Buffers, PLACES, What};
use super::command::{Command, Rest};
use super::link::KernelLink;
use crate::error::QueueError;
use crate::link::{Owner, Part, Post};
use crate::request::{ERRNO, TRUNCATED, Token};
use crate::wake::Wake;

/// What the kernel says of a write to a descriptor that is open for reading, and what is meant (errno(3)).
const EBADF: u32 = 9;
const EROFS: u32 = 30;
/// What it says of a device that has gone, as it goes (EIO, ENXIO, EINVAL without a path, ENOSPC beyond a size of 0), and what is meant.
const GOING: [u32; 4] = [5, 6, 22, 28];
const ENODEV: u32 = 19;
/// What a read beyond the end of a file answers that has become shorter.
const EIO: u32 = 5;

/// Entries of the ring beside commands: bells and cancelling.
const BESIDE: u32 = 16;

/// A ring, and what is out on it.
pub(crate) struct UringLane {
    link: Arc<KernelLink>,
    ring: Ring,
    id: QueueId,
    tags: u32,
    /// The mode of the kernel's own that the ring was made for.
    made_for: Option<Mode>,
    /// The thread that alone may use it, where there is such a one.
    owner: Option<Owner>,
    state: Mutex<State>,
    /// The kernel polls the device for it: no completion notifies, and a look is a system call.
    polls: bool,
    /// Where a ring that is polled sends what it refuses: all but reads and writes.
    plain: Option<Box<UringLane>>,
    /// What tells a thread that sleeps elsewhere than in the ring.
    event: OnceLock<EventFd>,
    /// Commands posted, and taken: written under the lock of the ring, as all of these are but the last.
    announced: AtomicU64,
    finished: AtomicU64,
    /// Enters that submitted, takes that found something, takes that found nothing, and waits that ended with something.
    submits: AtomicU64,
    takes: AtomicU64,
    empty_looks: AtomicU64,
    wakeups: AtomicU64,
}

impl UringLane {
    /// A ring for `tags` requests at once. `wake` ends a sleep in it. With `owned` the calling thread is the only one that may use it.
    ///
    /// # Errors
    /// The kernel refuses the ring.
    pub(crate) fn new(link: &Arc<KernelLink>, id: QueueId, tags: u32, wake: &Wake, owned: bool) -> Result<UringLane, QueueError> {
        UringLane::make(link, (id, tags), wake, (owned, Poll::No))
    }

    fn make(link: &Arc<KernelLink>, (id, tags): (QueueId, u32), wake: &Wake, (owned, poll): (bool, Poll)) -> Result<UringLane, QueueError> {
        let polls = matches!(poll, Poll::Io | Poll::HybridIo);
        let refused = |e: &dyn std::fmt::Display| QueueError::Ring(e.to_string());
        let entries = (tags + BESIDE + MOST_AT_ONCE).next_power_of_two();
        let (owned, passthrough) = (owned && link.features().owner, link.target().passthrough());
        let options =
            Options { entries, cq_entries: 2 * entries, owner: owned, poll, big: passthrough.is_some(), files: 2, buffers: PLACES };
        let (ring, sq, cq) = Ring::new(&options).map_err(|e| refused(&e))?;
        match link.target().is_cached() && !link.target().facts().read_only {
            false => ring.register_file(TARGET, link.target().file()).map_err(|e| refused(&e))?,
            true => ring.register_file(TARGET, &link.target().opened_again().map_err(|e| refused(&e))?).map_err(|e| refused(&e))?,
        }
        let signal = wake.try_clone_signal().map_err(|e| refused(&e))?;
        ring.register_file(BELL_FILE, wake).map_err(|e| refused(&e))?;
        let commands = vec![Command::NONE; tags as usize].into();
        let free = (0..tags as u16).rev().collect();
        let left = if polls { Vec::new() } else { vec![BELL] };
        let mut state = State {
            sq,
            cq,
            taken: Box::default(),
            commands,
            free,
            buffers: Buffers::default(),
            signal,
            peal: None,
            peals: 0,
            passthrough,
            looked: None,
            left,
            durable: None,
            waiting: VecDeque::with_capacity(tags as usize),
            sized: false,
        };
        state.push_left();
        let lane = UringLane {
            link: link.clone(),
            ring,
            id,
            tags,
            made_for: None,
            owner: owned.then(Owner::default),
            state: Mutex::new(state),
            polls,
            plain: None,
            event: OnceLock::new(),
            announced: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            submits: AtomicU64::new(0),
            takes: AtomicU64::new(0),
            empty_looks: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
        };
        lane.submit(&mut lane.state()).map_err(|e| refused(&e))?;
        Ok(lane)
    }

    #[inline]
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Which process made it.
    pub(crate) fn birth(&self) -> Birth {
        self.ring.birth()
    }

    /// The thread that alone may use it, where there is such a one.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Waits while another thread has the ring.
    #[inline]
    pub(crate) fn lock(&self) -> UringPosting<'_> {
        UringPosting { state: self.state(), lane: self }
    }

    /// The same, if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<UringPosting<'_>> {
        Some(UringPosting { state: try_lock(&self.state)?, lane: self })
    }

    /// Has the ring know the memory of a buffer before a request names it.
    pub(crate) fn prepare(&self, lent: &Lent) {
        self.state().buffers.know(&self.ring, &self.link, lent);
    }

    /// Submits what was posted. How many commands that were.
    pub(crate) fn commit(&self) -> u32 {
        self.lock().commit()
    }

    /// Whether something may be there, without a system call.
    #[inline]
    pub(crate) fn hint(&self) -> bool {
        self.ring.hint() != Hint::None
    }

    /// The same for a thread that spins or goes to sleep. A ring that is polled shows nothing by itself: only a look tells.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.hint() || self.polls && self.in_flight() > 0
    }

    /// Whether its completions notify.
    pub(crate) fn notifies(&self) -> bool {
        !self.polls
    }

    /// Whether a sleep may be for several completions. A ring that is polled has no bell to end it.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        !self.polls
    }

    /// Whether there are completions to take, for a thread that has not submitted: what waits in the submitter's task that task alone
    /// brings.
    pub(crate) fn shows(&self) -> bool {
        self.ring.hint() == Hint::Entries
    }

    /// Takes as many completions as `out` has places.
    pub(crate) fn reap(&self, out: &mut [Completed]) -> Reaped {
        let reaped = self.reap_locked(&mut self.state(), out, true);
        self.explain(&mut out[..reaped.found as usize]);
        self.reap_plain(reaped, out, UringLane::reap_always)
    }

    fn reap_always(&self, out: &mut [Completed]) -> Option<Reaped> {
        Some(self.reap(out))
    }

    /// And what the ring beside one that is polled has.
    #[inline]
    fn reap_plain(&self, own: Reaped, out: &mut [Completed], reap: fn(&UringLane, &mut [Completed]) -> Option<Reaped>) -> Reaped {
        let waits = |plain: &&UringLane| plain.in_flight() > 0 && !own.budget_used_up;
        let Some(plain) = self.plain.as_deref().filter(waits) else { return own };
        let Some(theirs) = reap(plain, &mut out[own.found as usize..]) else { return own };
        Reaped { found: own.found + theirs.found, budget_used_up: theirs.budget_used_up, more: own.more || theirs.more, violation: None }
    }

    /// The same for a thread that has not submitted, if nobody else has the ring.
    fn try_reap(&self, out: &mut [Completed]) -> Option<Reaped> {
        let own = self.reap_locked(&mut *try_lock(&self.state)?, out, false);
        self.explain(&mut out[..own.found as usize]);
        Some(self.reap_plain(own, out, UringLane::try_reap))
    }

    /// The same, for at most `budget` completions, appended to `out` as far as it has room.
    pub(crate) fn try_reap_more(&self, budget: u32, out: &mut Vec<Completed>) -> Option<Reaped> {
        let (before, room) = (out.len(), (out.capacity() - out.len()).min(budget as usize));
        out.resize(before + room, Completed::default());
        let reaped = self.try_reap(&mut out[before..]);
        out.truncate(before + reaped.as_ref().map_or(0, |reaped| reaped.found as usize));
        reaped
    }

    #[inline(always)] // Once on the data path: its answer stays in registers.
    fn reap_locked(&self, state: &mut State, out: &mut [Completed], brings: bool) -> Reaped {
        // Only a look brings what is polled for. Any thread may look, unless the ring has an owner.
        let polls = self.polls && (brings || self.owner.is_none()) && self.in_flight() > 0;
        if polls || brings && self.ring.hint() == Hint::TaskWork {
            // Completions wait in this task, or for room: the only way to them is the kernel's, and takes along what is to be submitted.
            let submit = self.push(state);
            self.enter(Enter { submit, run_tasks: true, ..Enter::default() });
        }
        let mut found = 0;
        while found < out.len() {
            let run = RUN.min(out.len() - found);
            let taken = state.cq.take(&mut state.taken[..run]);
            for at in 0..taken {
                let cqe = state.taken[at];
                if let Some(completed) = state.end(&cqe, &self.link) {
                    out[found] = completed;
                    found += 1;
                }
            }
            if taken < run {
                break;
            }
        }
        if found > 0 {
            add(&self.finished, found as u64);
            add(&self.takes, 1);
        } else {
            add(&self.empty_looks, 1);
        }
        if !state.left.is_empty() || state.sq.unsubmitted() > 0 {
            self.settle(state);
        }
        Reaped {
            found: found as u32,
            budget_used_up: found == out.len(),
            more: if brings { self.hint() } else { self.shows() },
            violation: None,
        }
    }

    /// Without the lock of the ring: a device is asked, and may be slow to answer.
    #[inline]
    fn explain(&self, out: &mut [Completed]) {
        for completed in out.iter_mut().filter(|completed| completed.status == ERRNO) {
            completed.result = self.meant(completed.result);
            if completed.result == EIO && self.link.target().cut_to().is_some() {
                completed.status = TRUNCATED;
            }
        }
    }

    /// What is meant by an errno. A file that is open for reading alone says that its descriptor is bad; a device that goes says this or
    /// that.
    #[cold]
    fn meant(&self, errno: u32) -> u32 {
        match errno {
            EBADF if self.link.target().facts().read_only => EROFS,
            _ if GOING.contains(&errno) && self.link.target().is_gone() => ENODEV,
            _ => errno,
        }
    }

    /// Submits; what the kernel has no room for now goes with a later call.
    fn settle(&self, state: &mut State) {
        if let Err(error) = self.submit(state) {
            tracing::debug!(%error, "requests wait for the kernel");
        }
    }

    /// Pushes what was left. How many entries the next enter submits.
    #[inline]
    fn push(&self, state: &mut State) -> u32 {
        if !state.left.is_empty() {
            state.push_left();
        }
        // A thread of the kernel's may have consumed what was pushed.
        let (pushed, submit) = (state.sq.take_pushed(), state.sq.unsubmitted());
        if pushed > 0 || submit > 0 {
            add(&self.submits, 1);
            state.sized = false;
        }
        submit
    }

    /// Has the kernel take what was pushed.
    fn submit(&self, state: &mut State) -> Result<(), RingError> {
        let submit = self.push(state);
        if submit == 0 {
            return Ok(());
        }
        // Completions that wait in this task come with the same call, and not with one of their own.
        let run_tasks = self.ring.hint() == Hint::TaskWork;
        self.ring.enter(Enter { submit, run_tasks, ..Enter::default() }).map(drop)
    }

    /// Enters the kernel. False: it could not begin.
    fn enter(&self, enter: Enter) -> bool {
        match self.ring.enter(enter) {
            Ok(_) => true,
            // Completions have to be taken first: the look that follows does.
            Err(RingError::Busy) => false,
            Err(error) => {
                tracing::error!(%error, "a queue of a file cannot enter the kernel");
                false
            }
        }
    }

    /// Submits what was posted, and sleeps until `at_least` completions can be taken, or the queue's bell rings, or for `timeout`.
    /// Whether there is something to take.
    pub(crate) fn wait(&self, at_least: u32, timeout: Option<Nanos>) -> bool {
        let found = self.sleep(at_least, (None, timeout));
        self.wakeups.fetch_add(u64::from(found), Relaxed);
        found
    }

    /// The same for `timeout`, unless the bell rings, nothing is left to come, or the caller can go on, which needs this many
    /// completions (0: it does not say): no notification ends it.
    pub(crate) fn nap(&self, wants: u32, timeout: Option<Nanos>) {
        self.sleep(if wants > 0 { wants } else { u32::MAX }, (None, timeout));
    }

    /// Whether [`UringLane::doze`] can be had: the kernel has `min_wait`, and this ring takes notice of times.
    #[inline]
    pub(crate) fn dozes(&self) -> bool {
        !self.polls && self.link.features().min_wait
    }

    /// A nap for `nap` that goes on, if it has brought nothing, until the first completion, or for `timeout` in all. Whether there is
    /// something to take.
    pub(crate) fn doze(&self, wants: u32, nap: Nanos, timeout: Option<Nanos>) -> bool {
        let found = self.sleep(if wants > 0 { wants } else { u32::MAX }, (Some(nap), timeout));
        self.wakeups.fetch_add(u64::from(found), Relaxed);
        found
    }

    fn sleep(&self, at_least: u32, (min_wait, timeout): (Option<Nanos>, Option<Nanos>)) -> bool {
        let mut state = self.state();
        let wait_for = match at_least.min(self.in_flight()) {
            0 | 1 => 1,
            // What waits for its turn is not in the kernel, and goes when the one before it is taken.
            _ if !self.counts() || !state.waiting.is_empty() => 1,
            several => match state.pealed(several) {
                Some(most) => most,
                None => {
                    // The bell has rung already, and would not ring again.
                    self.settle(&mut state);
                    return false;
                }
            },
        };
        let submit = self.push(&mut state);
        drop(state);
        if submit == 0 && self.ring.ready() >= wait_for {
            // What it would wait for is there.
            return true;
        }
        let entered = self.enter(Enter { submit, wait_for, timeout, min_wait, ..Enter::default() });
        if !entered && timeout.is_none() {
            // It cannot sleep now; what it has to take first is there, or in a moment.
            std::thread::yield_now();
        }
        self.hint()
    }

    /// From now on completions signal a descriptor: the thread sleeps on several queues, or in a loop of its own.
    pub(crate) fn tell_by_event(&self) {
        if self.event.get().is_some() {
            return;
        }
        match EventFd::new()
            .map_err(|e| e.to_string())
            .and_then(|event| self.ring.notify(&event).map(|()| event).map_err(|e| e.to_string()))
        {
            Ok(event) => _ = self.event.set(event),
            Err(error) => tracing::error!(error, "completions of a file wake no event loop"),
        }
    }

    /// What a thread that sleeps elsewhere than in the ring waits for: [`UringLane::tell_by_event`].
    pub(crate) fn wait_on(&self) -> Option<&EventFd> {
        self.event.get()
    }

    /// Asks the kernel to cancel what was posted `timeout` or longer before `now`, once each, if nobody has the ring. How many that
    /// were. Where the ring has an owner, its next commit asks.
    pub(crate) fn try_cancel(&self, now: Nanos, timeout: Nanos) -> u32 {
        if self.polls {
            // What is polled for cannot be cancelled, and is never late for long.
            return self.plain.as_ref().map_or(0, |plain| plain.try_cancel(now, timeout));
        }
        let Some(mut state) = try_lock(&self.state) else { return 0 };
        let (before, mut cancelled) = (state.looked.replace(now), 0);
        for at in 0..state.commands.len() {
            let state = &mut *state;
            let command = &mut state.commands[at];
            if !command.open || command.cancelled {
                continue;
            }
            let since = *command.since.get_or_insert_with(|| believable(command.posted_at, before, now));
            if now >= since + timeout {
                command.cancelled = true;
                cancelled += 1;
                state.left.push(CANCEL | at as u64);
            }
        }
        if cancelled > 0 && self.owner.is_none() {
            self.settle(&mut state);
        }
        cancelled
    }

    /// Waits that ended with something to take: all that can be told of its messages.
    pub(crate) fn messages(&self) -> u64 {
        self.wakeups.load(Relaxed)
    }

    /// The queue that it is, from 1.
    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// It has no vector: the number tells it from other lanes.
    pub(crate) fn vector(&self) -> Vector {
        Vector(self.id.0)
    }

    /// Commands that it has room for.
    #[inline]
    pub(crate) fn tags(&self) -> u32 {
        self.tags
    }

    /// Commands posted and not yet taken.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        let finished = self.finished.load(Acquire);
        let own = (self.announced.load(Acquire) - finished) as u32;
        own + self.plain.as_ref().map_or(0, |plain| plain.in_flight())
    }

    /// What has been counted.
    pub(crate) fn counters(&self) -> Counters {
        let beside = self.plain.as_ref().map_or_else(Counters::default, |plain| plain.counters());
        Counters {
            announced: self.announced.load(Relaxed) + beside.announced,
            finished: self.finished.load(Relaxed) + beside.finished,
            sq_doorbells: self.submits.load(Relaxed) + beside.sq_doorbells,
            cq_doorbells: self.takes.load(Relaxed) + beside.cq_doorbells,
            empty_looks: self.empty_looks.load(Relaxed) + beside.empty_looks,
            ..Counters::default()
        }
    }

    /// System calls so far.
    pub(crate) fn enters(&self) -> u64 {
        let beside = self.plain.as_ref().map_or(0, |plain| plain.enters());
        self.ring.enters() + beside
    }
}

/// Counts: plain addition, because the holder of the ring's lock is the only writer.
#[inline]
fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Relaxed) + n, Release);
}

impl Drop for UringLane {
    fn drop(&mut self) {
        // The kernel closes a ring some time after its descriptor; the file is to be free at once.
        if let Err(error) = self.ring.unregister_file(TARGET) {
            tracing::debug!(%error, "a file stays open until its ring has gone");
        }
    }
}

/// A lane whose ring is locked for posting.
pub(crate) struct UringPosting<'a> {
    state: MutexGuard<'a, State>,
    lane: &'a UringLane,
}

impl UringPosting<'_> {
    /// Whether there is no room for another command now.
    pub(crate) fn is_exhausted(&self) -> bool {
        // What waits for room may be for the ring beside it.
        self.state.free.is_empty() || self.lane.plain.as_ref().is_some_and(|plain| plain.lock().is_exhausted())
    }

    /// Pushes what asks for a part, as command `at`.
    #[inline(always)] // Once for each request, from one place that matters.
    fn begin(&mut self, at: u16, part: &Part<'_>, what: What, (token, now): (Token, Nanos)) {
        let (state, lane) = (&mut *self.state, self.lane);
        let (target, changes) = (lane.link.target(), part.op != Op::Read);
        if changes && !state.sized {
            // Once for each batch: a system call.
            state.sized = !target.is_truncated();
        }
        let refused = changes && !state.sized;
        let durable = (part.fua || part.op == Op::Flush) && target.is_cached();
        let rest = match refused {
            true => Rest::Refused,
            false => what.rest(part, &mut state.buffers, &lane.ring, &lane.link),
        };
        let offset = part.lba * u64::from(lane.link.target().facts().lba_bytes);
        let command = Command::begun(token.0, now, part, offset, rest);
        state.commands[usize::from(at)] = command;
        if durable && state.durable.is_some() {
            state.waiting.push_back(at);
        } else {
            if durable {
                state.durable = Some(at);
            }
            if !state.push(at) {
                state.left.push(u64::from(at));
            }
        }
        add(&lane.announced, 1);
    }
}

impl Post for UringPosting<'_> {
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        let Some(at) = self.state.free.pop() else { return false };
        self.begin(at, part, What::Bytes(part.bytes as usize), (token, now));
        true
    }

    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        if part.op.moves_data() {
            // With Force Unit Access: a flag of the same entry.
            return self.post(part, token, now);
        }
        if let Some(plain) = &self.lane.plain {
            let mut posting = plain.lock();
            let posted = posting.post_other(part, token, now);
            posting.commit();
            return posted;
        }
        let Some(at) = self.state.free.pop() else { return false };
        let link = &self.lane.link;
        let what = match part.op {
            // A command that passes through brings its list.
            Op::Deallocate if self.state.passthrough.is_some() => What::Bytes(part.bytes as usize),
            Op::WriteZeroes | Op::Deallocate => {
                let (way, other) = link.ways().choose(part.op, part.keep);
                let bytes = u64::from(part.blocks) * u64::from(link.target().facts().lba_bytes);
                What::Rest(Rest::Range { bytes, way, other })
            }
            Op::Compare if self.state.passthrough.is_some() => What::Bytes(part.bytes as usize),
            Op::Compare | Op::Verify | Op::WriteUncorrectable => {
                What::Rest(Rest::Check { bytes: u64::from(part.blocks) * u64::from(link.target().facts().lba_bytes) })
            }
            Op::Read | Op::Write | Op::Flush => What::Rest(Rest::Sync),
        };
        self.begin(at, part, what, (token, now));
        true
    }

    fn commit(&mut self) -> u32 {
        let before = self.state.sq.unsubmitted();
        self.lane.settle(&mut self.state);
        before
    }
}

#[cfg(test)]
mod tests;
