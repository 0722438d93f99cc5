//! A completion queue that several threads use: who polls it, and which of them its notification wakes.

use std::collections::VecDeque;

use crate::atomic::{Ordering, fence};
use crate::{Mutex, MutexGuard, lock, try_lock};

/// The lock of a completion queue: tried, never waited for. The thread that holds it polls the queue, so one that finds it held need not
/// poll. But an entry that arrives between the holder's last poll and the release is then seen by neither:
///
/// ```text
///   holder:  poll: nothing     release; fence      poll once more
///   device:                post; message
///   sleeper:                        wake; arm; fence; try: busy, so sleep
/// ```
///
/// Therefore [`try_poll`](PollLock::try_poll) checks once more after the release. The release and the sleeper's try of
/// the lock are one pair of store and load, the entry and the check another; with a fence on each side (the sleeper's is
/// in [`WakeFlag::arm`](crate::WakeFlag::arm)) at least one of the two finds the entry.
#[derive(Debug, Default)]
pub struct PollLock<T>(Mutex<T>);

/// What [`PollLock::try_poll`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled<R> {
    /// What was found under the lock.
    pub found: R,
    /// Something is pending after the release. The caller polls again, or, if it may not (its budget is used up and it
    /// leaves), wakes the owner of the queue's [`NotificationRole`].
    pub more: bool,
}

impl<T> PollLock<T> {
    /// A lock around what only the thread that polls may touch.
    pub fn new(inner: T) -> PollLock<T> {
        PollLock(Mutex::new(inner))
    }

    /// Polls, unless another thread does (`None`). `poll` runs under the lock; `pending` is a check without it, and runs
    /// after the release.
    #[inline(always)] // What `poll` answers stays in registers.
    pub fn try_poll<R>(&self, poll: impl FnOnce(&mut T) -> R, pending: impl FnOnce() -> bool) -> Option<Polled<R>> {
        let found = self.try_release(poll)?;
        fence(Ordering::SeqCst);
        Some(Polled { found, more: pending() })
    }

    /// [`PollLock::try_poll`] without what follows the release: for mutants.
    #[inline(always)] // As `try_poll`.
    pub(crate) fn try_release<R>(&self, poll: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut guard = try_lock(&self.0)?;
        Some(poll(&mut guard))
    }

    /// The lock, if it is free, for other purposes than a poll. Afterwards fence, and check whether an entry is pending.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        try_lock(&self.0)
    }

    /// Waits for the lock: not for the data path, but for a reset, say. The check after the release is the caller's.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.0)
    }
}

/// A thread that may sleep on a shared queue, by a number that its [`WakeFlag`](crate::WakeFlag) and eventfd are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u32);

/// The role of polling when the queue's notification comes: one queue has one vector, and waking every thread that
/// shares it for every message would cost more than the messages save. So the threads that wait for completions of the
/// queue agree on one *owner*: it alone blocks on the vector, reaps for all, and leaves the others' entries in their
/// [`Inbox`](crate::Inbox)es.
///
/// **Invariant**: while any thread is registered, exactly one registered thread is the owner. Taking, registering and
/// handing on are one step each (a lock of a few instructions; it is only ever taken to go to sleep or to leave), which
/// settles the races:
/// - *The owner leaves while another thread goes to sleep*: either the newcomer registers first, and becomes the successor;
///   or it comes second, and takes the role.
/// - *The successor is leaving itself*: it is the owner from the moment it is named, not from when it wakes. If it
///   leaves instead of sleeping, its own [`release`](NotificationRole::release) hands the role on.
///
/// What a thread with commands in flight on the queue does:
///
/// ```text
///   before sleeping      own flag: arm
///                        role: try_take(me)
///                        if true: vector: arm, from now on; it alone touches the mask
///                        check once more: own inbox; if owner, also the queue (PollLock::try_poll; busy: skip it)
///                        block on the own eventfd; if owner, also on the vector's
///   awake, to poll on    nothing: it stays registered, or stays the owner
///   awake, to leave      role: release(me); if that names a successor: wake it (claim_wake, signal)
/// ```
///
/// The own flag is armed *before* `try_take`, so that the thread that names this one its successor finds the flag armed. A thread
/// that is registered and awake must come to one of the two calls before it does anything unbounded. The successor wakes,
/// polls, and comes to `try_take`, which is now true; messages sent meanwhile are not lost, because it arms and checks.
///
/// A thread that leaves with entries pending ([`Polled::more`]), registered or not, wakes
/// the [`owner`](NotificationRole::owner): that may have found the lock busy and gone back to sleep. So an owner
/// that is woken polls the queue, whatever its inbox says.
///
/// Spinning is polling, and needs no role. A nap is neither: a thread that naps while it owns the role keeps the others waiting
/// until it wakes, so it releases first.
#[derive(Debug)]
pub struct NotificationRole(Mutex<Registered>);

#[derive(Debug)]
struct Registered {
    owner: Option<WaiterId>,
    /// The others, in the order in which they came.
    others: VecDeque<WaiterId>,
}

impl NotificationRole {
    /// No thread is registered. Up to `sleepers` threads register without an allocation.
    pub fn new(sleepers: usize) -> NotificationRole {
        NotificationRole(Mutex::new(Registered { owner: None, others: VecDeque::with_capacity(sleepers) }))
    }

    /// Registers a thread that is about to sleep with commands in flight. Whether it owns the role: because no thread did,
    /// because it did already, or because it was named successor meanwhile.
    pub fn try_take(&self, me: WaiterId) -> bool {
        let mut registered = lock(&self.0);
        match registered.owner {
            None => registered.owner = Some(me),
            Some(owner) if owner == me => {}
            Some(_) => {
                if !registered.others.contains(&me) {
                    registered.others.push_back(me);
                }
                return false;
            }
        }
        true
    }

    /// Removes a thread: it is awake, and leaves. If it owned the role, the thread that has waited longest owns it
    /// now; the caller wakes it.
    pub fn release(&self, me: WaiterId) -> Option<WaiterId> {
        let mut registered = lock(&self.0);
        if registered.owner != Some(me) {
            registered.others.retain(|other| *other != me);
            return None;
        }
        registered.owner = registered.others.pop_front();
        registered.owner
    }

    /// Who owns the role.
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
