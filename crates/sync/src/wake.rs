//! How a thread goes to sleep without losing a wake-up: arm, check, block.

use crate::atomic::{AtomicBool, Ordering, fence};

/// A flag between a sleeper and an announcer. Each writes its own word, fences, and reads the
/// other's, so at least one of them sees the other:
///
/// ```text
///   sleeper:   arm (store armed; fence)   check the data   none: block
///   announcer: publish the data (release)   should_wake (fence; read armed)   armed: signal
/// ```
///
/// Without both fences each side may read before its own write is visible (store buffering), and
/// the wake-up is lost. The negative tests remove the fences, and loom finds the lost wake-up.
///
/// A signal may find the sleeper awake again. It is then spurious, and costs one empty poll. The
/// signal itself (an eventfd, an unpark) must be sticky: given before the sleeper blocks, it still
/// ends that sleep.
#[derive(Debug, Default)]
pub struct WakeFlag {
    armed: AtomicBool,
}

impl WakeFlag {
    /// A masked flag.
    pub fn new() -> WakeFlag {
        WakeFlag { armed: AtomicBool::new(false) }
    }

    /// Sleeper: allows signals. What was published before without a signal is visible to the check
    /// that follows.
    #[inline]
    pub fn arm(&self) {
        self.set_armed();
        fence(Ordering::SeqCst);
    }

    /// Sleeper: suppresses signals while it polls. One that is being sent may still arrive.
    #[inline]
    pub fn mask(&self) {
        // Relaxed: a late mask costs a spurious signal at most.
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Whether signals are allowed now.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Announcer, after publishing: whether to signal. The flag stays armed, so each announcement
    /// is a signal of its own: one message per CQE, as MSI-X without coalescing.
    #[inline]
    pub fn should_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_armed()
    }

    /// Announcer, after publishing: whether to signal. Masks the flag if so: one signal per sleep,
    /// for any number of announcers.
    #[inline]
    pub fn claim_wake(&self) -> bool {
        // Not a swap: only the announcer that signals writes, so the cache line stays shared among
        // the others.
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
/// [`sleep::arm`], [`sleep::check`] and [`sleep::wake`] call them in order. The library's threads,
/// its drain threads and the loom models share this order.
///
/// | step | must come | otherwise |
/// | --- | --- | --- |
/// | own flag | before the role | a thread that names this one its successor finds the flag masked |
/// | notification role | before the notification | the thread changes a mask that another thread owns |
/// | notification | before the check | an entry that arrives in between sends no message |
/// | check | last | what arrived before the steps above was not announced to this thread |
pub trait SleepSteps {
    /// Identifies a thread in the notification role.
    type Thread;

    /// The thread's own flag.
    fn flag(&self) -> &WakeFlag;

    /// Takes the notification role if the thread sleeps on a shared queue, and releases it if not.
    /// Returns the thread to wake, if any.
    fn register(&mut self) -> Option<Self::Thread>;

    /// Unmasks the queue's notification, if this thread owns it.
    fn allow(&mut self);

    /// Wakes another thread, if it sleeps.
    fn notify(&self, thread: Self::Thread);

    /// Whether arming found a posted message. Reported once.
    fn was_posted(&mut self) -> bool;

    /// Whether the queue has an entry that no message will announce.
    fn has_entry(&mut self) -> bool;

    /// Whether another thread has left completions, or a finished operation, for this one.
    fn has_completions(&mut self) -> bool;

    /// Whether another thread has requested something of this one.
    fn is_wanted(&mut self) -> bool;

    /// Masks the notification, if the policy does and this thread owns it.
    fn mask(&mut self);
}

/// Arm, check, wake: the order of [`SleepSteps`].
pub mod sleep {
    use super::SleepSteps;

    /// From now on a thread or device that has something for this thread signals it. [`check`]
    /// follows.
    #[inline]
    pub fn arm(me: &mut impl SleepSteps) {
        // The order is the table's in `SleepSteps`.
        me.flag().arm();
        let successor = me.register();
        me.allow();
        // Last: the successor may run at once, and must find the notification unmasked.
        if let Some(successor) = successor {
            me.notify(successor);
        }
    }

    /// Between arming and blocking: whether there is a reason not to block. [`wake`] follows in any
    /// case.
    #[inline]
    pub fn check(me: &mut impl SleepSteps) -> bool {
        // No short-circuit: some checks report once, and some record for the policy what they saw.
        let posted = me.was_posted();
        let entry = me.has_entry();
        let mail = me.has_completions();
        posted | entry | mail || me.is_wanted()
    }

    /// Awake again: masks what was armed.
    #[inline]
    pub fn wake(me: &mut impl SleepSteps) {
        // Own flag first: another thread's claim then fails without a signal.
        me.flag().mask();
        me.mask();
    }
}

#[cfg(test)]
#[path = "../tests/unit/wake_flag.rs"]
mod flag_tests;
#[cfg(test)]
#[path = "../tests/unit/sleep.rs"]
mod sleep_tests;
