//! A hardware queue, which several threads may share: the queue pairs, the software queues that
//! post to them (*users*), and the notification role, which says which thread sleeps on the
//! interrupt.
//!
//! ```text
//!   users[0] ─┐                         ┌─► role owner ─ epoll: vector + own wake-up
//!   users[1] ─┼─► pair (interrupt queue)┤
//!   users[2] ─┘   polled (poll queue)   └─► others ───── epoll: own wake-up
//!
//!   completion reaped by A for B:  B's inbox (push) → B's notice flag → B's wake-up, if armed
//!   tags returned by A:            wait list → notice to each waiter
//! ```
//!
//! Memory ordering: the inbox has a lock. The notice flag is a release store, and `Wake::notify`
//! has the SeqCst fence of invariant 1 between that store and its test whether the thread sleeps.

use std::sync::Arc;

use completion::WEIGHT;
use driver::Completed;
use nvme::Vector;
use sync::{NotificationRole, TagWaitList, WaiterId};

use super::drain::Drain;
use super::queue_shared::QueueShared;
use super::reports::Reporter;
use crate::counters::DeviceCounters;
use crate::request::Token;
use crate::transport::{Pair, RingPair};

/// A hardware queue, shared by its threads.
pub(crate) struct HwQueue {
    /// The interrupt queue. Transports whose vectors can be masked have no other pair.
    pub pair: RingPair,
    /// The poll queue (IEN = 0).
    pub polled: Option<RingPair>,
    /// The software queues that post to this queue, one for each thread.
    pub users: Box<[Arc<QueueShared>]>,
    /// Which thread sleeps on the vector. Used only if [`HwQueue::is_shared`].
    pub role: NotificationRole,
    /// Where protocol violations are reported.
    pub reporter: Reporter,
    /// The drain thread, for users in the mode `threaded`.
    pub drain: Drain,
    /// Software queues that wait for a tag.
    pub waiters: TagWaitList,
}

/// Maximum number of polls of a pair by [`HwQueue::reap_for_owners`], so that its caller gets to
/// other work (invariant 2).
const MAX_POLLS: usize = 4;

/// Maximum number of users of one hardware queue: a token has 8 bits for the user.
pub(crate) const MAX_USERS: usize = 256;

impl HwQueue {
    /// A hardware queue whose pairs have been created.
    ///
    /// # Errors
    /// The system has no eventfd left.
    pub(crate) fn new(
        pair: RingPair,
        polled: Option<RingPair>,
        users: Box<[Arc<QueueShared>]>,
        reporter: Reporter,
    ) -> std::io::Result<HwQueue> {
        // One id more than users: for the drain thread.
        let role = NotificationRole::new(users.len() + 1);
        Ok(HwQueue {
            pair,
            polled,
            users,
            role,
            reporter,
            drain: Drain::new()?,
            waiters: TagWaitList::new(),
        })
    }

    /// The pairs, with doorbells and vector.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &RingPair> {
        std::iter::once(&self.pair).chain(&self.polled)
    }

    /// The pairs, as the crate `driver` has them.
    pub(crate) fn queue_pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs().map(RingPair::queue_pair)
    }

    /// Number of tags of all pairs, which is the maximum number of commands in flight.
    pub(crate) fn tags(&self) -> u32 {
        self.pairs().map(RingPair::tags).sum()
    }

    /// For the housekeeping thread, which waits for no lock: rings the doorbells of the pairs,
    /// except those to which a thread is posting, which rings the doorbell itself. Returns the
    /// number of commands announced.
    pub(crate) fn try_commit(&self) -> u32 {
        self.pairs().map(RingPair::try_commit).sum()
    }

    /// Whether a CQE is visible. Takes no lock and makes no system call.
    #[inline(always)] // Called for each plan.
    pub(crate) fn pending(&self) -> bool {
        self.pair.pending() || self.polled.as_ref().is_some_and(RingPair::pending)
    }

    /// The queue's part of the device's counters. `is_counted`: whether the messages of a vector
    /// have been counted already.
    pub(crate) fn device_counters(
        &self,
        mut is_counted: impl FnMut(Vector) -> bool,
    ) -> DeviceCounters {
        let each =
            |pair: &RingPair| pair.device_counters(pair.notifies() && !is_counted(pair.vector()));
        self.pairs().map(each).fold(DeviceCounters::default(), DeviceCounters::and)
    }

    /// Has the threads of all its users poll.
    pub(crate) fn notice_all(&self) {
        self.users.iter().for_each(|user| user.notice());
    }

    /// Whether several software queues post to this queue.
    #[inline]
    pub(crate) fn has_several_users(&self) -> bool {
        self.users.len() > 1
    }

    /// Whether a thread may reap another thread's completions.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.has_several_users() || self.drain.is_running()
    }

    /// Wakes the software queues that wait for a tag, after tags may have been returned. Call this
    /// without holding a lock.
    #[inline]
    pub(crate) fn tags_returned(&self) {
        self.waiters.returned(|user| self.users[usize::from(user)].notice());
    }

    /// For the drain thread and the housekeeping thread: reaps, and delivers to the users' inboxes.
    /// Each poll takes at most as many completions as fit `taken`.
    pub(crate) fn reap_for_owners(&self, taken: &mut Vec<Completed>) {
        for pair in self.pairs() {
            let mut left = false;
            for _ in 0..MAX_POLLS {
                taken.clear();
                let reaped = pair.try_reap_more(WEIGHT, taken);
                left = reaped.as_ref().is_some_and(|reaped| reaped.more);
                // The lock is held: its holder reaps, and checks once more after the release.
                let Some(reaped) = reaped else { break };
                if let Some(violation) = reaped.violation {
                    self.reporter.violated(*violation);
                }
                if !taken.is_empty() {
                    self.deliver(None, taken);
                    self.tags_returned();
                }
                if !left {
                    break;
                }
            }
            if left {
                // The polls are used up, CQEs are left, and perhaps no further message comes for
                // them.
                self.wake_owner();
            }
        }
    }

    /// Wakes the thread that sleeps on the vector: it may have been notified of the CQEs that are
    /// left, found the CQ lock held, and gone back to sleep.
    #[cold]
    fn wake_owner(&self) {
        if !self.is_shared() {
            self.notice_all();
        } else if let Some(owner) = self.role.owner() {
            self.wake_waiter(owner);
        }
    }

    /// Delivers completions to the inboxes of their users, except those of user `except`, and wakes
    /// their threads.
    #[inline(never)] // Keeps its stack frame out of polls of a queue that is not shared.
    pub(crate) fn deliver(&self, except: Option<u8>, taken: &[Completed]) {
        // A bit for each user that gets completions: its thread is woken once, after all its
        // completions are in the inbox.
        let mut left = [0u64; MAX_USERS / 64];
        for completed in taken {
            let owner = Token(completed.token).soft();
            if Some(owner) != except {
                self.deliver_one(completed);
                left[usize::from(owner) / 64] |= 1 << (owner % 64);
            }
        }
        for (owner, user) in self.users.iter().enumerate() {
            if left[owner / 64] >> (owner % 64) & 1 == 1 {
                user.notice();
            }
        }
    }

    /// Pushes a completion into the inbox of its user. The caller wakes the thread.
    pub(crate) fn deliver_one(&self, completed: &Completed) {
        let owner = Token(completed.token).soft();
        if let Some(user) = self.users.get(usize::from(owner))
            && user.inbox.push(*completed).is_err()
        {
            // Cannot happen: a completion has had a tag, and the inbox has a place for each tag.
            debug_assert!(false, "an inbox is as large as the queue has tags");
            tracing::error!(
                queue = self.pair.id().0,
                owner,
                "an inbox overflowed; a request will time out"
            );
        }
    }

    /// The drain thread's id in the notification role: the first number after those of the users.
    pub(crate) fn drain_id(&self) -> WaiterId {
        WaiterId(self.users.len() as u32)
    }

    /// Wakes a thread that is registered in the notification role, and has it poll.
    pub(crate) fn wake_waiter(&self, waiter: WaiterId) {
        match self.users.get(waiter.0 as usize) {
            Some(user) => user.notice(),
            None => self.drain.wake.notify(),
        }
    }
}

#[cfg(test)]
mod tests;
