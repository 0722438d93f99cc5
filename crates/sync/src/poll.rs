//! A completion queue that several threads share: which thread polls it, and which thread its
//! notification wakes.

use std::collections::VecDeque;

use crate::atomic::{Ordering, fence};
use crate::{Mutex, MutexGuard, lock, try_lock};

/// The lock of a completion queue. Threads try the lock, and do not wait for it. The thread that
/// holds the lock polls the queue, so a thread that finds it held need not poll. But both could
/// miss an entry that arrives between the holder's last poll and the release:
///
/// ```text
///   holder:  poll: empty      release; fence      poll once more
///   device:                post; message
///   sleeper:                        wake; arm; fence; try: busy, so sleep
/// ```
///
/// Therefore [`try_poll`](PollLock::try_poll) checks for an entry once more after the release.
/// There are two pairs of a store and a load: the release and the sleeper's try of the lock; the
/// entry and the check after the release. With a fence on each side (the sleeper's is in
/// [`WakeFlag::arm`](crate::WakeFlag::arm)) the holder or the sleeper finds the entry.
#[derive(Debug, Default)]
pub struct PollLock<T>(Mutex<T>);

/// What [`PollLock::try_poll`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled<R> {
    /// What `poll` returned under the lock.
    pub found: R,
    /// An entry is pending after the release. The caller polls again, or, if it has used up its
    /// budget and stops, wakes the owner of the queue's [`NotificationRole`].
    pub more: bool,
}

impl<T> PollLock<T> {
    /// A lock around data that only the polling thread may touch.
    pub fn new(inner: T) -> PollLock<T> {
        PollLock(Mutex::new(inner))
    }

    /// Calls `poll` under the lock, releases the lock, and then calls `pending`, which checks
    /// whether an entry is pending. `None`: another thread holds the lock, and nothing was called.
    #[inline(always)] // The result of `poll` stays in registers.
    pub fn try_poll<R>(
        &self,
        poll: impl FnOnce(&mut T) -> R,
        pending: impl FnOnce() -> bool,
    ) -> Option<Polled<R>> {
        let found = self.try_release(poll)?;
        // Orders the release before the check; see the diagram above.
        fence(Ordering::SeqCst);
        Some(Polled { found, more: pending() })
    }

    /// [`PollLock::try_poll`] without the check after the release, for negative tests.
    #[inline(always)] // As `try_poll`.
    pub(crate) fn try_release<R>(&self, poll: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut guard = try_lock(&self.0)?;
        Some(poll(&mut guard))
    }

    /// Takes the lock if it is free, for another purpose than a poll. After releasing it the caller
    /// must fence and check for a pending entry.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        try_lock(&self.0)
    }

    /// Waits for the lock: for a reset, never on the data path. After releasing it the caller must
    /// check for a pending entry.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.0)
    }
}

/// Number of a thread that may sleep on a shared queue. The callers find the thread's
/// [`WakeFlag`](crate::WakeFlag) and eventfd by this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u32);

/// Selects the thread that polls when the queue's interrupt (its *notification*) comes. One queue
/// has one vector, and waking every thread that shares the queue for each message would cost too
/// much. So the threads that wait for completions of the queue agree on one *owner* of the
/// notification. The owner alone blocks on the vector, reaps for all threads, and puts other
/// threads' entries in their [`Inbox`](crate::Inbox)es. A thread *leaves* when it stops waiting for
/// completions of the queue.
///
/// **Invariant**: while any thread is registered, exactly one registered thread is the owner.
/// Taking the role, registering and naming a successor are one atomic step each (under a lock that
/// is held for a few instructions, and taken only to sleep or to leave). This resolves the races:
///
/// - *The owner leaves while another thread goes to sleep*: if the other thread registers before
///   the owner's release, it becomes the successor; if it registers after it, it takes the role.
/// - *The successor is leaving itself*: it is the owner from the moment when it is named, even
///   before it wakes. If it leaves instead of sleeping, its own
///   [`release`](NotificationRole::release) names the next successor.
///
/// What a thread with commands in flight on the queue does:
///
/// ```text
///   before sleeping      arm the thread's own WakeFlag
///                        try_take(me)
///                        if true (owner): arm the vector; only the owner changes the vector's mask
///                        check once more: own inbox; if owner, also the queue (try_poll; skipped if the lock is held)
///                        block on the own eventfd; if owner, also on the vector's
///   awake, polls on      no call: the thread stays registered, or stays the owner
///   awake, leaves        release(me); if that returns a successor: wake it (claim_wake, signal)
/// ```
///
/// The own flag is armed *before* `try_take`, so that a thread that names this one its successor
/// finds the flag armed. A thread that is registered and awake must call `try_take` or `release`
/// before it does anything unbounded. The successor wakes, polls, and calls `try_take`, which now
/// returns true. Messages sent in between are not lost, because the successor arms the vector and
/// checks the queue.
///
/// A thread that leaves with entries pending ([`Polled::more`]), registered or not, wakes the
/// [`owner`](NotificationRole::owner): the owner may have found the lock held and gone back to
/// sleep. So an owner that is woken polls the queue even if its inbox has entries.
///
/// A thread that spins polls, and needs no role. A thread that naps does not poll: if it kept the
/// role, the other threads would wait until it wakes. So it releases the role before a nap.
#[derive(Debug)]
pub struct NotificationRole(Mutex<Registered>);

#[derive(Debug)]
struct Registered {
    owner: Option<WaiterId>,
    /// The other registered threads, in the order of registration.
    others: VecDeque<WaiterId>,
}

impl NotificationRole {
    /// A role without registered threads. Up to `sleepers` threads can register without an
    /// allocation.
    pub fn new(sleepers: usize) -> NotificationRole {
        NotificationRole(Mutex::new(Registered {
            owner: None,
            others: VecDeque::with_capacity(sleepers),
        }))
    }

    /// Registers a thread that is about to sleep with commands in flight. Returns whether the
    /// thread owns the role: because no thread did, because it did already, or because it was named
    /// successor.
    pub fn try_take(&self, me: WaiterId) -> bool {
        let mut registered = lock(&self.0);
        match registered.owner {
            None => registered.owner = Some(me),
            Some(owner) if owner == me => {}
            Some(_) => {
                // A thread may wake and sleep many times without leaving: register it once.
                if !registered.others.contains(&me) {
                    registered.others.push_back(me);
                }
                return false;
            }
        }
        true
    }

    /// Removes a thread that is awake and leaves. If it owned the role, the thread that has been
    /// registered longest becomes the owner and is returned; the caller wakes that thread.
    pub fn release(&self, me: WaiterId) -> Option<WaiterId> {
        let mut registered = lock(&self.0);
        if registered.owner != Some(me) {
            registered.others.retain(|other| *other != me);
            return None;
        }
        registered.owner = registered.others.pop_front();
        registered.owner
    }

    /// The owner of the role.
    pub fn owner(&self) -> Option<WaiterId> {
        lock(&self.0).owner
    }
}

#[cfg(test)]
#[path = "../tests/unit/poll_lock.rs"]
mod lock_tests;
#[cfg(test)]
#[path = "../tests/unit/notification_role.rs"]
mod role_tests;
