//! A hardware queue: one queue pair of the controller, its vector, and the software queues that share it.
//!
//! What the threads of an N:1 queue have in common is here and nowhere else: the inboxes, the line of those who wait
//! for a tag, and the role of sleeping on the vector (law 6).

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard};

use completion::{Batch, Mode};
use driver::{Completed, QueuePair};
use handover::{Bell, Inbox, LookRole, ModeCell};
use hw::{CqRing, EventFd, SqRing};
use nvme::Vector;
use units::Nanos;

use crate::control::Reporter;
use crate::link::Link;
use crate::prp_table::PrpTable;
use crate::request::{How, Outcome, Poster, Requests, Token};

/// A queue pair over the embedded link's rings.
pub(crate) type Pair = QueuePair<SqRing, CqRing>;

/// One queue pair and everything that its threads share.
pub(crate) struct HwQueue {
    pub pair: Pair,
    pub vector: Vector,
    pub link: Arc<Link>,
    pub prp: Arc<PrpTable>,
    pub softs: Box<[Soft]>,
    /// Who sleeps on the vector; only asked where several software queues share the pair.
    pub role: LookRole,
    /// Whether the vector is this queue's alone, so that it may be masked.
    pub maskable: bool,
    /// Told of protocol violations.
    pub reporter: Reporter,
    /// The controller is given up: nothing is posted any more.
    dead: AtomicBool,
    line: Line,
}

/// What other threads may touch of a software queue.
pub(crate) struct Soft {
    /// The open requests. Locked once per batch by the queue's own thread, and by whoever serves the line.
    requests: Mutex<Requests>,
    /// Entries of this queue that another thread took off the CQ.
    pub inbox: Inbox<Outcome>,
    /// The completion mode that was asked for, and the one in force.
    pub mode: ModeCell<Mode>,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics half-way through a change under these locks.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Soft {
    /// Software queue `index` of its hardware queue, with room for `tags` parts in flight.
    pub(crate) fn new(index: u8, tags: u32, mode: Mode) -> std::io::Result<Soft> {
        Ok(Soft {
            requests: Mutex::new(Requests::new(index)),
            inbox: Inbox::new(tags as usize),
            mode: ModeCell::new(mode),
            bell: Bell::new(),
            wake: EventFd::new()?,
        })
    }

    /// The open requests.
    #[inline]
    pub(crate) fn requests(&self) -> MutexGuard<'_, Requests> {
        lock(&self.requests)
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

impl HwQueue {
    /// A hardware queue whose pair has been created.
    pub(crate) fn new(
        pair: Pair,
        (vector, maskable): (Vector, bool),
        link: Arc<Link>,
        prp: Arc<PrpTable>,
        softs: Box<[Soft]>,
        reporter: Reporter,
    ) -> HwQueue {
        let role = LookRole::new(softs.len());
        HwQueue { pair, vector, link, prp, softs, role, maskable, reporter, dead: AtomicBool::new(false), line: Line::default() }
    }

    /// The controller is given up: what waits fails, and whatever is still to come.
    pub(crate) fn fail(&self) {
        self.dead.store(true, Release);
        let mut wakers = Vec::new();
        for soft in &self.softs {
            let mut requests = soft.requests();
            requests.fail_waiting();
            requests.take_ended(&mut wakers);
            drop(requests);
            soft.tell();
        }
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether one thread may take another's entries.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.softs.len() > 1
    }

    /// Posts what waits in `requests`, the book of software queue `me`, without committing. Goes to the end of the line
    /// if others wait already or no tag is left. Once `requests` is unlocked the caller owes [`HwQueue::serve_own`].
    #[inline]
    pub(crate) fn post(&self, me: u8, requests: &mut Requests, now: Nanos) -> Batch {
        if self.dead.load(Acquire) {
            requests.fail_waiting();
            return Batch { in_flight: requests.open(), ..Batch::default() };
        }
        if self.line.bell.is_armed() && !self.may_go_first(me) {
            return self.join_line(me, requests);
        }
        let batch = self.post_now(requests, now);
        if requests.waits_for_a_tag(self.most()) {
            self.wait_in_line(me, requests, now);
        }
        batch
    }

    #[inline]
    fn post_now(&self, requests: &mut Requests, now: Nanos) -> Batch {
        let poster = Poster { prp: &self.prp, most: self.most() };
        let mut sq = self.pair.lock_sq();
        requests.post(&poster, |sqe, token| sq.post(sqe, token.0, now).is_ok())
    }

    /// Most parts in flight of one software queue: what its inbox holds.
    fn most(&self) -> u32 {
        self.pair.sizes().tags
    }

    /// Rings the doorbell if anything was posted.
    #[inline]
    pub(crate) fn commit(&self) {
        self.pair.lock_sq().commit(self.link.doorbells());
    }

    /// Whether the line's first is `me`, or nobody.
    #[cold]
    fn may_go_first(&self, me: u8) -> bool {
        lock(&self.line.order).front().is_none_or(|&first| first == me)
    }

    #[cold]
    fn join_line(&self, me: u8, requests: &Requests) -> Batch {
        let mut order = lock(&self.line.order);
        if !order.contains(&me) {
            order.push_back(me);
        }
        Batch { in_flight: requests.open(), ..Batch::default() }
    }

    /// No tag was left: waits, and looks again, because a tag may have come back before the wait was known.
    #[cold]
    fn wait_in_line(&self, me: u8, requests: &mut Requests, now: Nanos) {
        self.join_line(me, requests);
        self.line.bell.arm();
        self.post_now(requests, now);
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
            self.post_now(&mut requests, now);
            self.commit();
            if requests.waits_for_a_tag(self.most()) {
                return;
            }
            let mut order = lock(&self.line.order);
            if order.front() == Some(&first) {
                order.pop_front();
            }
        }
    }

    /// Hands entries that belong to other software queues than `me` to their owners, and wakes those that sleep.
    pub(crate) fn hand_out(&self, me: u8, taken: &[Completed]) {
        let mut told = [0u64; MOST_SOFT / 64];
        for completed in taken {
            let outcome = Outcome::answered(completed);
            let owner = outcome.token.soft();
            if owner != me {
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

    /// Arms the vector: allows messages. The caller looks afterwards.
    #[inline]
    pub(crate) fn arm_vector(&self) {
        if let Some(bell) = self.link.vectors().bell(self.vector) {
            bell.arm();
        }
    }

    /// Masks the vector.
    #[inline]
    pub(crate) fn mask_vector(&self) {
        if let Some(bell) = self.link.vectors().bell(self.vector) {
            bell.mask();
        }
    }
}

impl Outcome {
    #[inline]
    pub(crate) fn answered(completed: &Completed) -> Outcome {
        Outcome { token: Token(completed.token), posted_at: completed.posted_at, how: How::Answered(completed.status) }
    }
}
