//! How a thread goes to sleep without losing a wake-up: arm, check, block.

use crate::atomic::{AtomicBool, Ordering, fence};

/// A flag between a sleeper (a thread that is about to sleep) and its wakers (threads or devices
/// that publish data for it). A disarmed flag means that the sleeper is awake and needs no signal.
/// Each side writes its own word, fences, and reads the other side's word, so at least one side
/// sees the other's write:
///
/// ```text
///   sleeper:  arm (store armed; fence)        check the data   none: block
///   waker:    publish the data (release)      should_wake (fence; read armed)   armed: signal
/// ```
///
/// If a fence is missing, each side may read before its own write is visible (store buffering), and
/// the wake-up is lost. The negative tests remove the fences, and loom finds the lost wake-up.
///
/// A signal may come when the sleeper is awake again. It is then spurious, and costs one empty
/// poll. A signal (an eventfd, an unpark) must be sticky: if it comes before the sleeper blocks, it
/// still ends that sleep.
#[derive(Debug, Default)]
pub struct WakeFlag {
    armed: AtomicBool,
}

impl WakeFlag {
    /// A disarmed flag.
    pub fn new() -> WakeFlag {
        WakeFlag { armed: AtomicBool::new(false) }
    }

    /// Sleeper: asks for signals. Data that was published before without a signal is visible to the
    /// check that follows.
    #[inline]
    pub fn arm(&self) {
        self.set_armed();
        fence(Ordering::SeqCst);
    }

    /// Sleeper: suppresses signals while it polls. A signal that is being sent may still arrive.
    #[inline]
    pub fn disarm(&self) {
        // Relaxed: if a waker sees this late, the cost is a spurious signal.
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Whether the sleeper asks for signals now.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Waker, after publishing: whether to signal. The flag stays armed, so each call while it is
    /// armed returns true: one message per CQE, as MSI-X without coalescing.
    #[inline]
    pub fn should_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_armed()
    }

    /// Waker, after publishing: whether to signal. If so, disarms the flag: of any number of
    /// wakers, one signals per sleep.
    #[inline]
    pub fn claim_wake(&self) -> bool {
        // Not a swap: only the waker that signals writes, so the cache line stays shared among the
        // other wakers.
        self.should_wake()
            && self
                .armed
                .compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// [`WakeFlag::arm`] without its fence, for a negative test.
    pub(crate) fn set_armed(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }
}

/// The operations of a thread that is about to sleep on a queue. Each method is one step;
/// [`sleep::arm`], [`sleep::check`] and [`sleep::wake`] call the methods in order. The library's
/// threads, its drain threads (each reaps a queue for the threads that share it) and the loom
/// models share this order.
///
/// | step | must come | otherwise |
/// | --- | --- | --- |
/// | arm the own flag | before the role is taken | a thread that names this one its successor finds the flag disarmed, and sends no signal |
/// | take the notification role | before the notification is unmasked | this thread changes a mask that another thread owns |
/// | unmask the notification | before the check | an entry that arrives in between sends no message |
/// | check | last | entries that arrived before the steps above are never found |
pub trait SleepSteps {
    /// Identifies a thread in the notification role.
    type Thread;

    /// The thread's own flag.
    fn flag(&self) -> &WakeFlag;

    /// Takes the notification role if the thread sleeps on a shared queue, or else releases the
    /// role. Returns the new owner to wake, if the release has named one.
    fn register(&mut self) -> Option<Self::Thread>;

    /// Unmasks the queue's notification, if this thread owns it.
    fn unmask(&mut self);

    /// Wakes another thread, if it sleeps.
    fn notify(&self, thread: Self::Thread);

    /// Whether arming found the bit of a posted interrupt. Returns true once for each bit.
    fn was_posted(&mut self) -> bool;

    /// Whether the queue has an entry that no message will announce.
    fn has_entry(&mut self) -> bool;

    /// Whether another thread has left completions, or a finished operation, for this one.
    fn has_completions(&mut self) -> bool;

    /// Whether another thread requests something of this one, such as a mode change.
    fn is_wanted(&mut self) -> bool;

    /// Masks the queue's notification, if the policy masks while awake and this thread owns the
    /// notification.
    fn mask(&mut self);
}

/// The steps of [`SleepSteps`] in order: arm, check, (block,) wake.
pub mod sleep {
    use super::SleepSteps;

    /// Arms: from now on a thread or device that publishes something for this thread signals it.
    /// Call [`check`] next.
    #[inline]
    pub fn arm(me: &mut impl SleepSteps) {
        // In the order of the table of `SleepSteps`.
        me.flag().arm();
        let successor = me.register();
        me.unmask();
        // Last: the successor may run at once, and must find the notification unmasked.
        if let Some(successor) = successor {
            me.notify(successor);
        }
    }

    /// Checks, between arming and blocking: returns whether there is a reason not to block. Call
    /// [`wake`] afterwards, whether the thread has blocked or not.
    #[inline]
    pub fn check(me: &mut impl SleepSteps) -> bool {
        // No short-circuit between the first three: some return true only once, and some record for
        // the policy what they found.
        let posted = me.was_posted();
        let entry = me.has_entry();
        let delivered = me.has_completions();
        posted | entry | delivered || me.is_wanted()
    }

    /// For a thread that is awake again: disarms its flag and masks the notification.
    #[inline]
    pub fn wake(me: &mut impl SleepSteps) {
        // The own flag first: other threads' `claim_wake` then returns false, which saves a signal.
        me.flag().disarm();
        me.mask();
    }
}

#[cfg(test)]
#[path = "../tests/unit/wake_flag.rs"]
mod flag_tests;
#[cfg(test)]
#[path = "../tests/unit/sleep.rs"]
mod sleep_tests;
