//! A hardware queue: one queue pair of the controller, its vector, and the software queues that share it.
//!
//! What the threads of an N:1 queue have in common is here and nowhere else: the inboxes, the line of those who wait for a tag, and
//! the role of sleeping on the vector (law 6). While the application's code runs only the book of its own software queue is locked.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

use completion::{Batch, Route, WEIGHT};
use driver::{Completed, Reaped};
use nvme::Vector;
use sync::{NotificationRole, Progress, TagWaitList, TagWaiters, WaiterId, WakeFlag};
use units::Nanos;

use super::book::{Claim, Failure, Requests};
use super::drain::Drain;
use super::reports::Reporter;
use super::soft::{Book, Soft};
use crate::counters::DeviceCounters;
use crate::error::Refused;
use crate::link::{Pair, Part, Post, RingLane, RingPosting};
use crate::request::{How, Outcome, Request, Token};

/// One queue pair and everything that its threads share.
pub(crate) struct HwQueue {
    /// The lane that notifies: the only one where notifications can be masked.
    pub lane: RingLane,
    /// A lane whose completions are only looked for.
    pub polled: Option<RingLane>,
    /// Most parts in flight of one software queue.
    most: u32,
    pub softs: Box<[Arc<Soft>]>,
    /// Who sleeps on the vector; only asked where several software queues share the pair.
    pub role: NotificationRole,
    /// Told of protocol violations.
    pub reporter: Reporter,
    /// The thread that drains it for software queues in `threaded`.
    pub drain: Drain,
    /// Armed while the housekeeping thread has stopped moderating because nothing completes.
    pub idle: WakeFlag,
    /// This many entries the controller holds back before a message on its vector, as it has confirmed.
    held: AtomicU32,
    /// The controller is given up: nothing is posted any more.
    dead: AtomicBool,
    line: TagWaitList,
}

/// What [`HwQueue::submit`] did.
pub(crate) struct Submitted {
    /// What was posted, for the policy; of no class ([`Requests::last_class`] has it).
    pub batch: Batch,
    /// The first request that cannot be carried out. Those before it are entered, those after it were not looked at.
    pub refused: Option<Box<(Refused, Request)>>,
}

/// Whether a lock on the data path is waited for.
#[derive(Clone, Copy, Debug)]
enum Patience {
    Waits,
    Tries,
}

impl Patience {
    fn lock(self, lane: &RingLane) -> Option<RingPosting<'_, true>> {
        match self {
            Patience::Waits => Some(lane.lock::<true>()),
            Patience::Tries => lane.try_lock(),
        }
    }
}

/// Rounds in which entries are taken for others, so that who does it comes to something else (law 2).
const ROUNDS: usize = 4;

/// Most software queues of one hardware queue: what 8 bits of a token name.
pub(crate) const MOST_SOFT: usize = 256;

impl HwQueue {
    /// A hardware queue whose pair has been created.
    ///
    /// # Errors
    /// The system has no eventfd left.
    pub(crate) fn new(lane: RingLane, polled: Option<RingLane>, softs: Box<[Arc<Soft>]>, reporter: Reporter) -> std::io::Result<HwQueue> {
        // Room for the drain thread as well.
        let role = NotificationRole::new(softs.len() + 1);
        let (drain, idle, line) = (Drain::new()?, WakeFlag::new(), TagWaitList::default());
        let dead = AtomicBool::new(false);
        let most = lane.tags() + polled.as_ref().map_or(0, RingLane::tags);
        let held = AtomicU32::new(0);
        Ok(HwQueue { lane, polled, most, softs, role, reporter, drain, idle, held, dead, line })
    }

    /// The controller has confirmed that it holds this many entries back.
    pub(crate) fn holds_back(&self, entries: u32) {
        self.held.store(entries, Relaxed);
    }

    /// This many entries are held back before a message.
    #[inline]
    pub(crate) fn held_back(&self) -> u32 {
        self.held.load(Relaxed)
    }

    /// Its lanes.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &RingLane> {
        std::iter::once(&self.lane).chain(&self.polled)
    }

    /// Its queue pairs, where a controller carries out its commands.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.lanes().map(RingLane::pair)
    }

    /// Where parts of this book go.
    #[inline]
    fn lane_of(&self, book: &Requests) -> &RingLane {
        match &self.polled {
            Some(polled) if book.route == Route::Poll => polled,
            _ => &self.lane,
        }
    }

    /// Announces what was posted.
    #[inline(never)] // On the data path only a batch of futures needs it.
    pub(crate) fn commit(&self) {
        self.lanes().for_each(|lane| _ = lane.commit());
    }

    /// The same for the housekeeping thread, which waits for nobody. How many commands that were.
    pub(crate) fn try_commit(&self) -> u32 {
        self.lanes().map(RingLane::try_commit).sum()
    }

    /// Whether a completion waits, without a lock and without a system call.
    #[inline(always)] // Asked for each plan.
    pub(crate) fn hint(&self) -> bool {
        self.lane.hint() || self.polled.as_ref().is_some_and(RingLane::hint)
    }

    /// Takes as many completions as `out` has places. `None`: another thread does, and looks once more afterwards.
    #[inline]
    pub(crate) fn try_reap(&self, out: &mut [Completed]) -> Option<Reaped> {
        match &self.polled {
            None => self.lane.try_reap(out),
            Some(polled) => reap_both(&self.lane, polled, out),
        }
    }

    /// What has been counted of it, as a part of its device. `is_counted`: the messages of a vector are, by another queue.
    pub(crate) fn counted(&self, mut is_counted: impl FnMut(Vector) -> bool) -> DeviceCounters {
        let each = |lane: &RingLane| lane.device_counters(lane.notifies() && !is_counted(lane.vector()));
        self.lanes().map(each).fold(DeviceCounters::default(), DeviceCounters::and)
    }

    /// The controller is given up: what waits fails, and whatever is still to come, as soon as the queues' threads look.
    pub(crate) fn fail(&self) {
        self.dead.store(true, Release);
        self.softs.iter().for_each(|soft| soft.tell());
    }

    /// The controller is back: requests are posted again.
    pub(crate) fn revive(&self) {
        self.dead.store(false, Release);
    }

    /// Whether the controller is given up.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Acquire)
    }

    /// Whether several software queues share it.
    #[inline]
    pub(crate) fn serves_several(&self) -> bool {
        self.softs.len() > 1
    }

    /// Whether one thread may take another's entries.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.serves_several() || self.drain.shares()
    }

    /// Enters `requests` into the book of software queue `me`, posts as many as there are tags, and, if `commit`, rings
    /// the doorbell. What cannot be posted waits; a queue that waits for a tag stands in line. All have the same `claim`.
    ///
    /// Once the book is unlocked the caller owes [`HwQueue::serve_own`]. Where the iterator panics, the requests before that are on
    /// their way as if it had ended.
    #[inline]
    pub(crate) fn submit(
        &self,
        me: u8,
        book: &mut Requests,
        now: Nanos,
        (commit, claim): (bool, Claim),
        requests: impl IntoIterator<Item = Request>,
        (check, route): (impl Fn(Request) -> (Result<(), Refused>, Request), impl FnOnce(&Batch) -> Route),
    ) -> Submitted {
        let urgent = book.urgent();
        let breaks = BreaksOff { queue: self, me, now, book };
        let refused = enter(breaks.book, now, claim, requests, check);
        std::mem::forget(breaks);
        let urgent = book.urgent() - urgent;
        if self.polled.is_some() {
            book.route = route(&Batch { urgent, in_flight: book.open(), ..Batch::default() });
        }
        let commands = self.post(me, book, (claim == Claim::Batch && urgent == 0, commit), now);
        let urgent = urgent.min(commands);
        Submitted { batch: Batch { commands, urgent, in_flight: book.open(), class: None }, refused }
    }

    /// Posts what has been entered into the book of `me`, `plain` requests or not. How many commands that were.
    #[inline(never)] // Beside what enters requests, its loop would have fewer registers.
    fn post(&self, me: u8, book: &mut Requests, (plain, commit): (bool, bool), now: Nanos) -> u32 {
        let first = self.may_post(me);
        let posted = if first {
            let how = (plain, commit, self.most());
            match self.lane_of(book) {
                lane if lane.has_sgls() => post_aside(|| lane.lock::<true>(), book, how, now),
                lane => post_on(lane.lock::<false>(), book, how, now),
            }
        } else {
            book.post_entered(&mut NotNow, plain, now, 0)
        };
        if book.is_waiting() {
            self.leave_waiting(me, book, now, first);
        }
        posted
    }

    /// Whether `me` may post at once: nobody stands in line before it, and the controller is not given up.
    #[inline]
    fn may_post(&self, me: u8) -> bool {
        !self.is_dead() && self.line.may_post(me)
    }

    /// Something in the book could not be posted.
    #[cold]
    fn leave_waiting(&self, me: u8, book: &mut Requests, now: Nanos, tried: bool) {
        if self.is_dead() {
            book.fail_waiting(Failure::DeviceLost, now);
        } else if !tried || book.waits_for_a_tag(self.most()) {
            // A tag may have come back before the wait was known: the caller serves the line, once the book is unlocked.
            self.line.join(me);
        }
    }

    /// Posts what waits in the book of software queue `me`, and rings the doorbell. Once the book is unlocked the caller owes
    /// [`HwQueue::serve_line`].
    #[cold]
    pub(crate) fn post_again(&self, me: u8, book: &mut Requests, now: Nanos) {
        let first = self.may_post(me);
        if first {
            self.post_waiting(book, now, Patience::Waits);
        }
        if book.is_waiting() {
            self.leave_waiting(me, book, now, first);
        }
    }

    /// Posts what waits in a book. False: some thread posts at this moment, and that is not waited for.
    fn post_waiting(&self, book: &mut Requests, now: Nanos, patience: Patience) -> bool {
        let Some(mut posting) = patience.lock(self.lane_of(book)) else { return false };
        book.post_waiting(&mut posting, now, self.most());
        posting.commit();
        true
    }

    /// Most parts in flight of one software queue: what its inbox holds.
    #[inline]
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Tags came back, or may have: lets those who wait for one post, in order. Call without any lock.
    #[inline]
    pub(crate) fn serve_line(&self, now: Nanos) {
        if self.line.must_serve() {
            self.serve(now);
        }
    }

    /// Somebody stands in line. Of what it needs nothing is laid down where nobody does.
    #[cold]
    #[inline(never)]
    fn serve(&self, now: Nanos) {
        self.line.unlocked(&InLine { queue: self, now, patience: Patience::Waits });
    }

    /// The same for the housekeeping thread, which waits for nobody. False: it has to come again.
    pub(crate) fn try_serve_line(&self, now: Nanos) -> bool {
        let served = self.line.returned(&InLine { queue: self, now, patience: Patience::Tries });
        served.unwrap_or(true)
    }

    /// After the queue's own book was locked, without any lock: posts for the queues that stand in line although there are tags.
    #[inline]
    pub(crate) fn serve_own(&self, now: Nanos) {
        if self.line.has_waiters() {
            self.serve(now);
        }
    }

    /// What waits in the book of `me` is posted when the line is served.
    pub(crate) fn join_line(&self, me: u8) {
        self.line.join(me);
    }

    /// Takes what there is, in a few rounds as much at a time as `taken` has room for, and hands it to its owners. For a thread that is none of them.
    /// A lock that is busy is none of its business: the holder looks once more. The line is to be served afterwards.
    pub(crate) fn take_for_owners(&self, taken: &mut Vec<Completed>) {
        for lane in self.lanes() {
            let mut left = false;
            for _ in 0..ROUNDS {
                taken.clear();
                let reaped = lane.try_reap_more(WEIGHT, taken);
                left = reaped.as_ref().is_some_and(|reaped| reaped.more);
                let Some(reaped) = reaped else { break };
                if let Some(violation) = reaped.violation {
                    self.reporter.violated(*violation);
                }
                if !taken.is_empty() {
                    self.hand_out(None, taken);
                }
                if !left {
                    break;
                }
            }
            if left {
                self.tell_of_entries();
            }
        }
    }

    /// Somebody stops looking while entries are there. The thread that sleeps on the queue may have found the lock held, and has been
    /// told of them for the last time (law 6).
    #[cold]
    fn tell_of_entries(&self) {
        if !self.is_shared() {
            self.softs.iter().for_each(|soft| soft.tell());
        } else if let Some(owner) = self.role.owner() {
            self.tell_sleeper(owner);
        }
    }

    /// Hands entries that belong to other software queues than `me`, if that is one, to their owners, and wakes those that sleep.
    #[inline(never)] // What it needs of the stack, a look at a queue of one thread does without.
    pub(crate) fn hand_out(&self, me: Option<u8>, taken: &[Completed]) {
        let mut told = [0u64; MOST_SOFT / 64];
        for completed in taken {
            let outcome = Outcome::answered(completed);
            let owner = outcome.token.soft();
            if Some(owner) != me {
                self.give(owner, outcome);
                told[usize::from(owner) / 64] |= 1 << (owner % 64);
            }
        }
        for (owner, soft) in self.softs.iter().enumerate() {
            if told[owner / 64] >> (owner % 64) & 1 == 1 {
                soft.tell();
            }
        }
    }

    /// Puts an outcome into its owner's inbox. Every part in flight has a place there, so that it always fits.
    pub(crate) fn give(&self, owner: u8, outcome: Outcome) {
        if let Some(soft) = self.softs.get(usize::from(owner))
            && soft.inbox.push(outcome).is_err()
        {
            debug_assert!(false, "an inbox is as large as the queue has tags");
            tracing::error!(queue = self.lane.id().0, owner, "an inbox overflowed; a request will time out");
        }
    }

    /// The drain thread's number in the look role: after all the software queues'.
    pub(crate) fn drain_id(&self) -> WaiterId {
        WaiterId(self.softs.len() as u32)
    }

    /// Wakes a thread that the look role knows.
    pub(crate) fn tell_sleeper(&self, sleeper: WaiterId) {
        self.softs.get(sleeper.0 as usize).map_or(&self.drain.wake, |soft| &*soft.wake).tell();
    }
}

/// The software queues of a hardware queue, to be served in line.
struct InLine<'a> {
    queue: &'a HwQueue,
    now: Nanos,
    patience: Patience,
}

impl<'q> TagWaiters for InLine<'q> {
    type Book<'a>
        = Book<'a>
    where
        Self: 'a;
    type Place = &'q RingLane;

    fn try_book(&self, me: u8) -> Option<Book<'_>> {
        self.queue.softs.get(usize::from(me))?.try_requests()
    }

    fn post(&self, book: &mut Book<'_>) -> Progress<&'q RingLane> {
        let lane = self.queue.lane_of(book);
        if !self.queue.post_waiting(book, self.now, self.patience) {
            Progress::PutOff
        } else if book.waits_for_a_tag(self.queue.most()) {
            Progress::Some(lane)
        } else {
            Progress::All(lane)
        }
    }

    fn served(&self, me: u8, lane: &&RingLane) {
        if !lane.notifies() {
            // Its thread may sleep, and no notification tells of these.
            self.queue.softs.get(usize::from(me)).into_iter().for_each(|soft| soft.tell());
        }
    }

    fn is_exhausted(&self, lane: &&RingLane) -> Option<bool> {
        Some(self.patience.lock(lane)?.is_exhausted())
    }
}

/// A look at both lanes, each with half of the places, so that neither starves the other: what they have found together.
#[inline(never)]
fn reap_both(lane: &RingLane, polled: &RingLane, out: &mut [Completed]) -> Option<Reaped> {
    let half = out.len().div_ceil(2);
    let first = out.get_mut(..half).and_then(|places| lane.try_reap(places));
    let taken = first.as_ref().map_or(0, |first| first.found as usize);
    let places = out.get_mut(taken..).filter(|places| !places.is_empty());
    let Some(second) = places.and_then(|places| polled.try_reap(places)) else { return first };
    let Some(first) = first else { return Some(second) };
    Some(Reaped {
        found: first.found + second.found,
        budget_used_up: first.budget_used_up || second.budget_used_up,
        more: first.more || second.more,
        violation: first.violation.or(second.violation),
    })
}

/// Posts what has been entered into `book`, `plain` requests or not, as far as there are tags for `most`, and announces it if it
/// is to `commit`.
#[inline(always)]
fn post_on(mut posting: impl Post, book: &mut Requests, (plain, commit, most): (bool, bool, u32), now: Nanos) -> u32 {
    let posted = book.post_entered(&mut posting, plain, now, most);
    if commit {
        posting.commit();
    }
    posted
}

/// The same by SGLs, out of the way of the other lanes' instructions.
#[cold]
#[inline(never)]
fn post_aside<P: Post>(lock: impl FnOnce() -> P, book: &mut Requests, how: (bool, bool, u32), now: Nanos) -> u32 {
    post_on(lock(), book, how, now)
}

/// Dropped where the caller's iterator panics, in the middle of a batch.
struct BreaksOff<'a> {
    queue: &'a HwQueue,
    me: u8,
    now: Nanos,
    book: &'a mut Requests,
}

impl Drop for BreaksOff<'_> {
    #[cold]
    fn drop(&mut self) {
        self.queue.post(self.me, self.book, (false, true), self.now);
    }
}

/// Nothing is posted: others stand in line, or the controller is given up.
struct NotNow;

impl Post for NotNow {
    fn post(&mut self, _: &Part<'_>, _: Token, _: Nanos) -> bool {
        false
    }

    fn post_other(&mut self, _: &Part<'_>, _: Token, _: Nanos) -> bool {
        false
    }

    fn commit(&mut self) -> u32 {
        0
    }
}

impl Outcome {
    #[inline]
    pub(crate) fn answered(completed: &Completed) -> Outcome {
        Outcome { token: Token(completed.token), posted_at: completed.posted_at, how: How::of(completed) }
    }
}

/// Enters what the application's iterator yields, until one is refused. A function of its own, so that the book is known to be
/// nobody else's meanwhile: it saves four instructions a request.
#[inline(always)]
fn enter(
    book: &mut Requests,
    now: Nanos,
    claim: Claim,
    requests: impl IntoIterator<Item = Request>,
    check: impl Fn(Request) -> (Result<(), Refused>, Request),
) -> Option<Box<(Refused, Request)>> {
    book.begin();
    for request in requests {
        let (checked, request) = check(request);
        if let Err(why) = checked {
            return Some(refusal(why, request));
        }
        // A request is taken apart on its way into the book, and laid down only where that has to grow.
        if let Err(request) = book.enter(request, claim, now)
            && let Some(request) = book.enter_growing(request, claim, now)
        {
            return Some(refusal(Refused::TooMany, request));
        }
    }
    None
}

/// Apart from the data path, and small on it.
#[cold]
fn refusal(why: Refused, request: Request) -> Box<(Refused, Request)> {
    Box::new((why, request))
}
