//! Who among the threads that share a queue is the one to be told.

use std::collections::VecDeque;

use crate::sync::{Mutex, lock};

/// A thread that may sleep on a shared queue, by a number that its [`Bell`](crate::Bell) and eventfd are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SleeperId(pub u32);

/// The role of looking when the queue's notification comes: one queue has one vector, and waking every thread that
/// shares it for every message would cost more than the messages save. So the threads that wait for completions of the
/// queue agree on one *owner*: it alone blocks on the vector, reaps for all, and leaves the others' entries in their
/// [`Inbox`](crate::Inbox)es.
///
/// **Invariant**: while any thread is registered, exactly one registered thread is the owner. Taking, registering and
/// handing on are one step each (a lock of a few instructions; it is only ever taken to go to sleep or to leave), which
/// settles the races:
/// - *The owner leaves while another thread goes to sleep*: either the newcomer registers first, and becomes the heir;
///   or it comes second, and takes the role.
/// - *The heir is leaving itself*: the heir is the owner from the moment it is named, not from when it wakes. If it
///   leaves instead of sleeping, its own [`release`](LookRole::release) hands the role on.
///
/// What a thread with commands in flight on the queue does:
///
/// ```text
///   before sleeping      own bell: arm
///                        role: try_take(me)
///                        if true: vector: arm, from now on; it alone touches the mask
///                        look once more: own inbox; if owner, also the queue (LookLock::try_look; busy: let it be)
///                        block on the own eventfd; if owner, also on the vector's
///   awake, to look on    nothing: it stays registered, or stays the owner
///   awake, to leave      role: release(me); if that names an heir: ring its bell (ring_once, signal)
/// ```
///
/// The own bell is armed *before* `try_take`, so that the thread that names this one its heir finds the bell armed. A thread
/// that is registered and awake must come to one of the two calls before it does anything unbounded. The heir wakes,
/// looks, and comes to `try_take`, which is now true; messages sent meanwhile are not lost, because it arms and looks.
///
/// A thread that leaves with entries pending ([`Looked::more`](crate::Looked::more)), be it registered or not, rings
/// [`owner`](LookRole::owner)'s bell: the owner may have tried the lock in vain and gone back to sleep. So an owner
/// whose own bell was rung looks at the queue, whatever its inbox says.
///
/// Spinning is looking, and needs no role. A nap is neither: a thread that naps while it owns the role keeps the others waiting
/// until it wakes, so it releases first.
#[derive(Debug)]
pub struct LookRole(Mutex<Registered>);

#[derive(Debug)]
struct Registered {
    owner: Option<SleeperId>,
    /// The others, in the order in which they came.
    others: VecDeque<SleeperId>,
}

impl LookRole {
    /// Nobody is registered. Up to `sleepers` threads register without an allocation.
    pub fn new(sleepers: usize) -> LookRole {
        LookRole(Mutex::new(Registered { owner: None, others: VecDeque::with_capacity(sleepers) }))
    }

    /// Registers a thread that is about to sleep with commands in flight. Whether it owns the role: because nobody did,
    /// because it did already, or because it was named heir meanwhile.
    pub fn try_take(&self, me: SleeperId) -> bool {
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

    /// Strikes a thread off: it is awake, and leaves. If it owned the role, the thread that has waited longest owns it
    /// now; the caller wakes it.
    pub fn release(&self, me: SleeperId) -> Option<SleeperId> {
        let mut registered = lock(&self.0);
        if registered.owner != Some(me) {
            registered.others.retain(|other| *other != me);
            return None;
        }
        registered.owner = registered.others.pop_front();
        registered.owner
    }

    /// Who owns the role.
    pub fn owner(&self) -> Option<SleeperId> {
        lock(&self.0).owner
    }
}

#[cfg(test)]
mod tests;
