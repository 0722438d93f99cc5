//! A hardware queue: one queue pair of the controller, its vector, and the software queues that share it.
//!
//! What the threads of an N:1 queue have in common is here and nowhere else: the inboxes, the line of those who wait
//! for a tag, and the role of sleeping on the vector (law 6).

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

use completion::{Batch, Mode};
use driver::{Completed, QueuePair};
use handover::sync::{Mutex, MutexGuard, lock};
use handover::{Bell, Inbox, LookRole, ModeCell};
use hw::{CqRing, EventFd, SqRing};
use nvme::Vector;
use units::Nanos;

use crate::book::{Claim, Poster, Requests};
use crate::control::Reporter;
use crate::drain::Drain;
use crate::error::Refused;
use crate::executor;
use crate::link::Link;
use crate::moderation::Said;
use crate::prp_table::PrpTable;
use crate::request::{How, Outcome, Request, Token};

/// A queue pair over the embedded link's rings.
pub(crate) type Pair = QueuePair<SqRing, CqRing>;

/// One queue pair and everything that its threads share.
pub(crate) struct HwQueue {
    pub pair: Pair,
    pub vector: Vector,
    pub link: Arc<Link>,
    pub prp: Arc<PrpTable>,
    pub softs: Box<[Arc<Soft>]>,
    /// Who sleeps on the vector; only asked where several software queues share the pair.
    pub role: LookRole,
    /// Whether the vector is this queue's alone, so that it may be masked.
    pub maskable: bool,
    /// Told of protocol violations.
    pub reporter: Reporter,
    /// The thread that drains it for software queues in `threaded`.
    pub drain: Drain,
    /// Armed while the housekeeping thread has stopped moderating because nothing completes.
    pub idle: Bell,
    /// The controller is given up: nothing is posted any more.
    dead: AtomicBool,
    line: Line,
}

/// What [`HwQueue::submit`] did.
pub(crate) struct Submitted {
    /// What was posted, for the policy.
    pub batch: Batch,
    /// The place of the last request that was entered.
    pub last: u32,
    /// The first request that cannot be carried out. Those before it are entered, those after it were not looked at.
    pub refused: Option<Box<(Refused, Request)>>,
}

/// What other threads may touch of a software queue.
pub(crate) struct Soft {
    /// The open requests. Locked once per batch by the queue's own thread, and by whoever serves the line.
    requests: Mutex<Requests>,
    /// Requests that are not finished, those of them that somebody waits for, and finished ones that nobody has reaped:
    /// as the book says, to be read without its lock.
    open: AtomicU32,
    urgent: AtomicU32,
    done: AtomicU32,
    /// Entries of this queue that another thread took off the CQ.
    pub inbox: Inbox<Outcome>,
    /// The completion mode that was asked for, and the one in force.
    pub mode: ModeCell<Mode>,
    /// What the policy allows the controller to hold back, and what of it the controller does.
    pub holds: Said,
    pub held: Said,
    /// Armed while the queue's thread sleeps, for everything that is not its vector.
    pub bell: Bell,
    /// What the bell signals.
    pub wake: EventFd,
}

/// Software queues that wait for a tag, first come, first served.
#[derive(Default)]
struct Line {
    /// Armed while somebody waits. Returning tags is the telling side.
    bell: Bell,
    order: Mutex<VecDeque<u8>>,
}

/// Most software queues of one hardware queue: what 8 bits of a token name.
pub(crate) const MOST_SOFT: usize = 256;

impl Soft {
    /// Software queue `index` of its hardware queue, with room for `tags` parts in flight.
    pub(crate) fn new(index: u8, tags: u32, mode: Mode) -> std::io::Result<Soft> {
        Ok(Soft {
            requests: Mutex::new(Requests::new(index)),
            open: AtomicU32::new(0),
            urgent: AtomicU32::new(0),
            done: AtomicU32::new(0),
            inbox: Inbox::new(tags as usize),
            mode: ModeCell::new(mode),
            holds: Said::default(),
            held: Said::default(),
            bell: Bell::new(),
            wake: EventFd::new()?,
        })
    }

    /// The open requests.
    #[inline]
    pub(crate) fn requests(&self) -> Book<'_> {
        Book { soft: self, requests: lock(&self.requests) }
    }

    /// Requests that are not finished.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// Of these, the ones that somebody waits for.
    #[inline]
    pub(crate) fn urgent(&self) -> u32 {
        self.urgent.load(Relaxed)
    }

    /// Finished requests that can be reaped.
    #[inline]
    pub(crate) fn done(&self) -> u32 {
        self.done.load(Relaxed)
    }

    /// Whether another mode is asked for than the one in force.
    #[inline]
    pub(crate) fn mode_asked(&self) -> bool {
        !self.mode.settled()
    }

    /// Wakes the queue's thread if it sleeps. What it is to see has been stored before.
    #[inline]
    pub(crate) fn tell(&self) {
        if self.bell.ring_once() {
            self.wake.signal();
        }
    }
}

/// The open requests of a software queue, locked. What is counted of them is published when it is dropped.
pub(crate) struct Book<'a> {
    soft: &'a Soft,
    requests: MutexGuard<'a, Requests>,
}

impl Deref for Book<'_> {
    type Target = Requests;
    #[inline]
    fn deref(&self) -> &Requests {
        &self.requests
    }
}

impl DerefMut for Book<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Requests {
        &mut self.requests
    }
}

impl Drop for Book<'_> {
    #[inline]
    fn drop(&mut self) {
        self.soft.open.store(self.requests.open(), Relaxed);
        self.soft.urgent.store(self.requests.urgent(), Relaxed);
        self.soft.done.store(self.requests.done(), Relaxed);
    }
}

impl HwQueue {
    /// A hardware queue whose pair has been created.
    pub(crate) fn new(
        pair: Pair,
        (vector, maskable): (Vector, bool),
        link: Arc<Link>,
        prp: Arc<PrpTable>,
        softs: Box<[Arc<Soft>]>,
        reporter: Reporter,
    ) -> std::io::Result<HwQueue> {
        // Room for the drain thread as well.
        let role = LookRole::new(softs.len() + 1);
        Ok(HwQueue {
            pair,
            vector,
            link,
            prp,
            softs,
            role,
            maskable,
            reporter,
            drain: Drain::new()?,
            idle: Bell::new(),
            dead: AtomicBool::new(false),
            line: Line::default(),
        })
    }

    /// The controller is given up: what waits fails, and whatever is still to come.
    pub(crate) fn fail(&self) {
        self.dead.store(true, Release);
        let mut wakers = Vec::new();
        for soft in &self.softs {
            let mut requests = soft.requests();
            requests.fail_waiting(hw::now());
            requests.take_ended(&mut wakers);
            drop(requests);
            soft.tell();
        }
        executor::wake_all(wakers);
    }

    /// The controller is back: requests are posted again.
    pub(crate) fn revive(&self) {
        self.dead.store(false, Release);
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
    /// the doorbell. What cannot be posted waits; whoever waits for a tag stands in line. All have the same `claim`.
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
        check: impl Fn(&Request) -> Result<(), Refused>,
    ) -> Submitted {
        let breaks = BreaksOff { queue: self, me, now, book };
        let submitted = self.enter(me, breaks.book, now, (commit, claim), requests, check);
        std::mem::forget(breaks);
        submitted
    }

    /// [`HwQueue::submit`], to its end. A function of its own, so that the book is known to be nobody else's meanwhile: it saves
    /// four instructions a request.
    #[inline(always)]
    fn enter(
        &self,
        me: u8,
        book: &mut Requests,
        now: Nanos,
        (commit, claim): (bool, Claim),
        requests: impl IntoIterator<Item = Request>,
        check: impl Fn(&Request) -> Result<(), Refused>,
    ) -> Submitted {
        let mut submitted = Submitted { batch: Batch::default(), last: 0, refused: None };
        let poster = Poster { prp: &self.prp, now, most: self.most() };
        let (posted, urgent) = (book.posted(), book.urgent());
        let mut sq = if self.may_post(me) { Some(self.pair.lock_sq()) } else { None };
        // How many may be posted, as far as the book knows; and how many of those have been, which it is then told.
        let (mut room, mut done) = (if sq.is_some() { book.room(&poster) } else { 0 }, 0);
        let mut requests = requests.into_iter();
        loop {
            // Before there is a request: nothing that may fail lies between taking one and entering it, so it is taken
            // apart on the way instead of being laid down.
            let vacant = book.vacant();
            let Some(request) = requests.next() else { break };
            if let Err(why) = check(&request) {
                submitted.refused = Some(refusal(why, request));
                break;
            }
            let Some(at) = vacant else {
                submitted.refused = Some(refusal(Refused::TooMany, request));
                break;
            };
            submitted.last = at;
            if let Some((sqe, token)) = book.enter(at, request, claim, &poster)
                && done < room
                && let Some(sq) = &mut sq
                && sq.post(sqe, token.0, now).is_ok()
            {
                done += 1;
                continue;
            }
            book.posted_whole(std::mem::take(&mut done));
            book.enter_parts(at, &poster, &mut |sqe, token| sq.as_mut().is_some_and(|sq| sq.post(sqe, token.0, now).is_ok()));
            room = if sq.is_some() { book.room(&poster) } else { 0 };
        }
        book.posted_whole(done);
        let tried = match sq {
            Some(mut sq) => {
                if commit {
                    sq.commit(self.link.doorbells());
                }
                true
            }
            None => false,
        };
        let (commands, urgent) = (book.posted() - posted, book.urgent() - urgent);
        if book.is_waiting() {
            self.leave_waiting(me, book, now, tried);
        }
        submitted.batch = Batch { commands, urgent: urgent.min(commands), in_flight: book.open(), class: book.class(submitted.last) };
        submitted
    }

    /// Whether `me` may post at once: nobody stands in line before it, and the controller is not given up.
    #[inline]
    fn may_post(&self, me: u8) -> bool {
        !self.dead.load(Acquire) && (!self.line.bell.is_armed() || self.may_go_first(me))
    }

    /// Something in the book could not be posted.
    #[cold]
    fn leave_waiting(&self, me: u8, book: &mut Requests, now: Nanos, tried: bool) {
        if self.dead.load(Acquire) {
            book.fail_waiting(now);
        } else if !tried {
            self.join_line(me);
            // Whoever served the line may have masked its bell before this joined: `serve_own` is owed in any case.
            self.line.bell.arm();
        } else if book.waits_for_a_tag(self.most()) {
            // No tag was left: waits, and looks again, because a tag may have come back before the wait was known.
            self.join_line(me);
            self.line.bell.arm();
            self.post_waiting(book, now);
        }
    }

    /// Posts what waits in the book of software queue `me`, and rings the doorbell. As for [`HwQueue::submit`].
    #[cold]
    pub(crate) fn post_again(&self, me: u8, book: &mut Requests, now: Nanos) {
        let first = self.may_post(me);
        if first {
            self.post_waiting(book, now);
        }
        if book.is_waiting() {
            self.leave_waiting(me, book, now, first);
        }
    }

    fn post_waiting(&self, book: &mut Requests, now: Nanos) {
        let poster = Poster { prp: &self.prp, now, most: self.most() };
        let mut sq = self.pair.lock_sq();
        book.post_waiting(&poster, &mut |sqe, token| sq.post(sqe, token.0, now).is_ok());
        sq.commit(self.link.doorbells());
    }

    /// Most parts in flight of one software queue: what its inbox holds.
    fn most(&self) -> u32 {
        self.pair.sizes().tags
    }

    /// Rings the doorbell if anything was posted. How many commands that announced.
    #[inline]
    pub(crate) fn commit(&self) -> u32 {
        self.pair.lock_sq().commit(self.link.doorbells())
    }

    /// Whether the line's first is `me`, or nobody.
    #[cold]
    fn may_go_first(&self, me: u8) -> bool {
        lock(&self.line.order).front().is_none_or(|&first| first == me)
    }

    #[cold]
    fn join_line(&self, me: u8) {
        let mut order = lock(&self.line.order);
        if !order.contains(&me) {
            order.push_back(me);
        }
    }

    /// Tags came back, or may have: lets those who wait for one post, in order. Call without any lock.
    #[inline]
    pub(crate) fn serve_line(&self, now: Nanos) {
        if self.line.bell.rings() {
            self.serve(now);
        }
    }

    /// After a post, without any lock: whoever stands in line although there are tags posts now. One who left the line's
    /// head by posting himself would otherwise hold the others up until something completes.
    #[inline]
    pub(crate) fn serve_own(&self, now: Nanos) {
        if self.line.bell.is_armed() {
            self.serve(now);
        }
    }

    #[cold]
    fn serve(&self, now: Nanos) {
        loop {
            let Some(&first) = lock(&self.line.order).front() else {
                self.line.bell.mask();
                // Somebody may have joined since; then the bell has to be armed.
                if !lock(&self.line.order).is_empty() {
                    self.line.bell.arm();
                    continue;
                }
                return;
            };
            let Some(soft) = self.softs.get(usize::from(first)) else { return };
            let mut requests = soft.requests();
            self.post_waiting(&mut requests, now);
            if requests.waits_for_a_tag(self.most()) {
                return;
            }
            let mut order = lock(&self.line.order);
            if order.front() == Some(&first) {
                order.pop_front();
            }
        }
    }

    /// Hands entries that belong to other software queues than `me`, if that is one, to their owners, and wakes those that sleep.
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
            tracing::error!(queue = self.pair.id().0, owner, "an inbox overflowed; a request will time out");
        }
    }

    /// Arms the vector: allows messages, and, where they are posted, the next notification. The caller looks afterwards.
    #[inline]
    pub(crate) fn arm_vector(&self) {
        self.link.vectors().arm(self.vector);
    }

    /// Masks the vector.
    #[inline]
    pub(crate) fn mask_vector(&self) {
        if let Some(bell) = self.link.vectors().bell(self.vector) {
            bell.mask();
        }
    }
}

/// Dropped where the caller's iterator panics, in the middle of a batch and after the lock on its ring.
struct BreaksOff<'a> {
    queue: &'a HwQueue,
    me: u8,
    now: Nanos,
    book: &'a mut Requests,
}

impl Drop for BreaksOff<'_> {
    #[cold]
    fn drop(&mut self) {
        self.book.recount();
        self.queue.commit();
        if self.book.is_waiting() {
            self.queue.leave_waiting(self.me, self.book, self.now, true);
        }
    }
}

/// Apart from the data path, and small on it.
#[cold]
fn refusal(why: Refused, request: Request) -> Box<(Refused, Request)> {
    Box::new((why, request))
}

impl Outcome {
    #[inline]
    pub(crate) fn answered(completed: &Completed) -> Outcome {
        Outcome { token: Token(completed.token), posted_at: completed.posted_at, how: How::Answered(completed.status) }
    }
}
