//! A completion queue that several threads share: which thread polls it, and which thread its
//! notification wakes.

use std::collections::VecDeque;

use crate::atomic::{Ordering, fence};
use crate::{Mutex, MutexGuard, lock, try_lock};

/// The lock of a completion queue: tried, never waited for. The thread that holds it polls the
/// queue, so a thread that finds it held need not poll. But an entry that arrives between the
/// holder's last poll and the release could be missed by both:
///
/// ```text
///   holder:  poll: empty      release; fence      poll once more
///   device:                post; message
///   sleeper:                        wake; arm; fence; try: busy, so sleep
/// ```
///
/// Therefore [`try_poll`](PollLock::try_poll) checks once more after the release. The release and
/// the sleeper's try of the lock are one pair of store and load, the entry and the check another.
/// With a fence on each side (the sleeper's is in [`WakeFlag::arm`](crate::WakeFlag::arm)) at least
/// one of the two finds the entry.
#[derive(Debug, Default)]
pub struct PollLock<T>(Mutex<T>);

/// What [`PollLock::try_poll`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled<R> {
    /// What `poll` returned under the lock.
    pub found: R,
    /// An entry is pending after the release. The caller polls again. If it must leave instead (its
    /// budget is used up), it wakes the owner of the queue's [`NotificationRole`].
    pub more: bool,
}

impl<T> PollLock<T> {
    /// A lock around data that only the polling thread may touch.
    pub fn new(inner: T) -> PollLock<T> {
        PollLock(Mutex::new(inner))
    }

    /// Polls, unless another thread holds the lock (`None`). `poll` runs under the lock; `pending`
    /// is a check without it, and runs after the release.
    #[inline(always)] // What `poll` answers stays in registers.
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

    /// Takes the lock if it is free, for another purpose than a poll. After the release, fence and
    /// check for a pending entry.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        try_lock(&self.0)
    }

    /// Waits for the lock: for a reset, never on the data path. The check after the release is the
    /// caller's.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.0)
    }
}

/// A thread that may sleep on a shared queue: the number by which its [`WakeFlag`](crate::WakeFlag)
/// and eventfd are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u32);

/// Selects the thread that polls when the queue's notification comes. One queue has one vector, and
/// waking every thread that shares it for each message would cost more than the messages save. So
/// the threads that wait for completions of the queue agree on one *owner*. It alone blocks on the
/// vector, reaps for all, and leaves the others' entries in their [`Inbox`](crate::Inbox)es.
///
/// **Invariant**: while any thread is registered, exactly one registered thread is the owner.
/// Taking, registering and handing on are one atomic step each (under a lock held for a few
/// instructions, taken only to sleep or to leave). This resolves the races:
///
/// - *The owner leaves while another thread goes to sleep*: either the newcomer registers first,
///   and becomes the successor; or it comes second, and takes the role.
/// - *The successor is leaving itself*: it is the owner from the moment it is named, not from when
///   it wakes. If it leaves instead of sleeping, its own [`release`](NotificationRole::release)
///   hands the role on.
///
/// What a thread with commands in flight on the queue does:
///
/// ```text
///   before sleeping      own flag: arm
///                        role: try_take(me)
///                        if true: vector: arm, from now on; only this thread touches the mask
///                        check once more: own inbox; if owner, also the queue (try_poll; busy: skip it)
///                        block on the own eventfd; if owner, also on the vector's
///   awake, to poll on    nothing: it stays registered, or stays the owner
///   awake, to leave      role: release(me); if that returns a successor: wake it (claim_wake, signal)
/// ```
///
/// The own flag is armed *before* `try_take`, so that a thread that names this one its successor
/// finds the flag armed. A thread that is registered and awake must call `try_take` or `release`
/// before it does anything unbounded. The successor wakes, polls, and calls `try_take`, which now
/// returns true. Messages sent in between are not lost, because it arms and checks.
///
/// A thread that leaves with entries pending ([`Polled::more`]), registered or not, wakes the
/// [`owner`](NotificationRole::owner): the owner may have found the lock busy and gone back to
/// sleep. So an owner that is woken polls the queue, whatever its inbox says.
///
/// Spinning is polling, and needs no role. A nap does not: a thread that naps while it owns the
/// role keeps the others waiting until it wakes, so it releases the role first.
#[derive(Debug)]
pub struct NotificationRole(Mutex<Registered>);

#[derive(Debug)]
struct Registered {
    owner: Option<WaiterId>,
    /// The other registered threads, in the order of registration.
    others: VecDeque<WaiterId>,
}

impl NotificationRole {
    /// No thread is registered. Up to `sleepers` threads register without an allocation.
    pub fn new(sleepers: usize) -> NotificationRole {
        NotificationRole(Mutex::new(Registered {
            owner: None,
            others: VecDeque::with_capacity(sleepers),
        }))
    }

    /// Registers a thread that is about to sleep with commands in flight. Returns whether it owns
    /// the role: no other thread did, it did already, or it was named successor.
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

    /// Removes a thread that is awake and leaves. If it owned the role, the thread that has waited
    /// longest owns it now; the caller wakes that thread.
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
