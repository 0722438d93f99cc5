//! What the threads of one hardware queue share: its queue pairs, the queues that post to them, and who owns the notification.
//!
//! A thread that finds another's completions leaves them in that queue's inbox ([`QueueShared`]); a thread that returns tags wakes those
//! that wait for one.

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

/// A hardware queue, and what its threads share.
pub(crate) struct HwQueue {
    /// The queue pair that notifies: the only one where notifications can be masked.
    pub pair: RingPair,
    /// A queue pair whose completions are only polled for.
    pub polled: Option<RingPair>,
    /// The queues that post to it, one for each thread.
    pub users: Box<[Arc<QueueShared>]>,
    /// Which thread sleeps on the vector; only asked where several share the pair.
    pub role: NotificationRole,
    /// Protocol violations are reported there.
    pub reporter: Reporter,
    /// The thread that drains it for queues in `threaded`.
    pub drain: Drain,
    /// Queues that have found no tag.
    pub waiters: TagWaitList,
}

/// Rounds in which entries are taken for other threads, so that the thread which does it comes to something else.
const ROUNDS: usize = 4;

/// Most queues of one hardware queue: what 8 bits of a token name.
pub(crate) const MOST_USERS: usize = 256;

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
        // Room for the drain thread as well.
        let role = NotificationRole::new(users.len() + 1);
        Ok(HwQueue { pair, polled, users, role, reporter, drain: Drain::new()?, waiters: TagWaitList::new() })
    }

    /// Its queue pairs, with what their threads need of them.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &RingPair> {
        std::iter::once(&self.pair).chain(&self.polled)
    }

    /// Its queue pairs, where a controller carries out its commands.
    pub(crate) fn queue_pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs().map(RingPair::queue_pair)
    }

    /// Commands that all pairs have room for.
    pub(crate) fn tags(&self) -> u32 {
        self.pairs().map(RingPair::tags).sum()
    }

    /// Announces what was posted, for the housekeeping thread, which waits for no lock. How many commands that were.
    pub(crate) fn try_commit(&self) -> u32 {
        self.pairs().map(RingPair::try_commit).sum()
    }

    /// Whether a completion waits, without a lock and without a system call.
    #[inline(always)] // Asked for each plan.
    pub(crate) fn pending(&self) -> bool {
        self.pair.pending() || self.polled.as_ref().is_some_and(RingPair::pending)
    }

    /// What has been counted of it, as a part of its device. `is_counted`: the messages of a vector are, by another queue.
    pub(crate) fn counted(&self, mut is_counted: impl FnMut(Vector) -> bool) -> DeviceCounters {
        let each = |pair: &RingPair| pair.device_counters(pair.notifies() && !is_counted(pair.vector()));
        self.pairs().map(each).fold(DeviceCounters::default(), DeviceCounters::and)
    }

    /// The threads of all its queues have something to look at.
    pub(crate) fn notice_all(&self) {
        self.users.iter().for_each(|user| user.notice());
    }

    /// Whether several queues post to it.
    #[inline]
    pub(crate) fn serves_several(&self) -> bool {
        self.users.len() > 1
    }

    /// Whether one thread may take another's entries.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.serves_several() || self.drain.shares()
    }

    /// Tags came back, or may have. Call without any lock.
    #[inline]
    pub(crate) fn tags_returned(&self) {
        self.waiters.returned(|user| self.users[usize::from(user)].notice());
    }

    /// Takes what there is, in a few rounds as much at a time as `taken` has room for, and hands it to its owners. For a thread that is none
    /// of them. A lock that is busy is left alone: its holder polls once more.
    pub(crate) fn take_for_owners(&self, taken: &mut Vec<Completed>) {
        for pair in self.pairs() {
            let mut left = false;
            for _ in 0..ROUNDS {
                taken.clear();
                let reaped = pair.try_reap_more(WEIGHT, taken);
                left = reaped.as_ref().is_some_and(|reaped| reaped.more);
                let Some(reaped) = reaped else { break };
                if let Some(violation) = reaped.violation {
                    self.reporter.violated(*violation);
                }
                if !taken.is_empty() {
                    self.hand_out(None, taken);
                    self.tags_returned();
                }
                if !left {
                    break;
                }
            }
            if left {
                self.notice_sleeper();
            }
        }
    }

    /// A thread stops polling while entries are there. The thread that sleeps on the queue may have found the lock held after its last
    /// message.
    #[cold]
    fn notice_sleeper(&self) {
        if !self.is_shared() {
            self.notice_all();
        } else if let Some(owner) = self.role.owner() {
            self.tell_sleeper(owner);
        }
    }

    /// Hands entries that belong to other queues than `me`, if that is one, to their owners, and wakes those that sleep.
    #[inline(never)] // What it needs of the stack, a poll of a queue of one thread does without.
    pub(crate) fn hand_out(&self, me: Option<u8>, taken: &[Completed]) {
        let mut left = [0u64; MOST_USERS / 64];
        for completed in taken {
            let owner = Token(completed.token).soft();
            if Some(owner) != me {
                self.give(completed);
                left[usize::from(owner) / 64] |= 1 << (owner % 64);
            }
        }
        for (owner, user) in self.users.iter().enumerate() {
            if left[owner / 64] >> (owner % 64) & 1 == 1 {
                user.notice();
            }
        }
    }

    /// Leaves a completion in its owner's inbox. Every part in flight has a place there, so that it always fits.
    pub(crate) fn give(&self, completed: &Completed) {
        let owner = Token(completed.token).soft();
        if let Some(user) = self.users.get(usize::from(owner))
            && user.inbox.push(*completed).is_err()
        {
            debug_assert!(false, "an inbox is as large as the queue has tags");
            tracing::error!(queue = self.pair.id().0, owner, "an inbox overflowed; a request will time out");
        }
    }

    /// The drain thread's number in the role: after all the queues'.
    pub(crate) fn drain_id(&self) -> WaiterId {
        WaiterId(self.users.len() as u32)
    }

    /// Wakes a thread that the role knows, and has it poll.
    pub(crate) fn tell_sleeper(&self, sleeper: WaiterId) {
        match self.users.get(sleeper.0 as usize) {
            Some(user) => user.notice(),
            None => self.drain.wake.tell(),
        }
    }
}

#[cfg(test)]
mod tests;
