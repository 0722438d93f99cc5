//! Arm, check, block: how a thread goes to sleep without missing what it sleeps for.

use crate::atomic::{AtomicBool, Ordering, fence};

/// One side is about to sleep, the other has something to announce. Each writes its own word, fences, and reads the
/// other's, so at least one of them sees the other:
///
/// ```text
///   sleeper:   arm (store armed; fence)   check the data   nothing there: block
///   announcer: publish the data (release)   should_wake (fence; read armed)   armed: signal
/// ```
///
/// Without both fences each side may read before its own write is visible (store buffering), and the wake-up is lost:
/// the models take the fences away and loom finds it.
///
/// A signal may find the sleeper awake again; it is then spurious, and the sleeper polls once for nothing. The signal
/// itself (an eventfd, an unpark) must be sticky: given before the sleeper blocks, it still ends that sleep.
#[derive(Debug, Default)]
pub struct WakeFlag {
    armed: AtomicBool,
}

impl WakeFlag {
    /// Masked.
    pub fn new() -> WakeFlag {
        WakeFlag { armed: AtomicBool::new(false) }
    }

    /// Sleeper: allows the other side to signal. What was published before without a signal is visible to the check that follows.
    #[inline]
    pub fn arm(&self) {
        self.set_armed();
        fence(Ordering::SeqCst);
    }

    /// Sleeper: forbids signals while it polls. One that is on its way may still come.
    #[inline]
    pub fn mask(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Whether signals are allowed now.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Announcer, after publishing: whether to signal. The flag stays armed, so each announcement is a signal of its own:
    /// one message per CQE, as MSI-X without coalescing.
    #[inline]
    pub fn should_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_armed()
    }

    /// Announcer, after publishing: whether to signal, masking the flag if so. One signal per sleep, however many announcers there are.
    #[inline]
    pub fn claim_wake(&self) -> bool {
        // Not a swap: of several announcers only the one that signals writes, so that the cache line stays shared.
        self.should_wake() && self.armed.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// [`WakeFlag::arm`] without its fence: for a mutant.
    pub(crate) fn set_armed(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }
}

/// What a thread has of a queue that it is about to sleep on. Each method is one step; [`sleep::arm`], [`sleep::check`] and
/// [`sleep::wake`] are their order. The library's threads and drain threads take the steps there, and so do the models.
///
/// | step | must come | or else |
/// | --- | --- | --- |
/// | own flag | before the role | a thread that names this one its successor finds the flag masked |
/// | notification role | before the notification | the thread touches a mask that is another's |
/// | notification | before the check | an entry that came in between has sent no message |
/// | check | last | what came before the steps above was announced to no thread |
pub trait SleepSteps {
    /// Names a thread to the notification role.
    type Thread;

    /// The thread's own flag.
    fn flag(&self) -> &WakeFlag;

    /// Takes the notification role, if the thread sleeps on a queue that it shares, or hands it on, if not: the thread to be woken.
    fn register(&mut self) -> Option<Self::Thread>;

    /// Allows the queue's notification, where that is masked and this thread's.
    fn allow(&mut self);

    /// Wakes another thread, if it sleeps.
    fn tell(&self, thread: Self::Thread);

    /// Whether arming found a posted message. Reported once.
    fn was_posted(&mut self) -> bool;

    /// Whether the queue has an entry that no message announces.
    fn has_entry(&mut self) -> bool;

    /// Whether another thread has left, or ended, something for this one.
    fn has_mail(&mut self) -> bool;

    /// Whether another thread wants something of this one.
    fn is_wanted(&mut self) -> bool;

    /// Forbids the notification, where the policy does and it is this thread's.
    fn mask(&mut self);
}

/// Arm, check, wake: the steps of a thread that goes to sleep on a queue, in their order.
pub mod sleep {
    use super::SleepSteps;

    /// From now on a thread or device that has something for this one signals it. [`check`] follows.
    #[inline]
    pub fn arm(me: &mut impl SleepSteps) {
        me.flag().arm();
        let successor = me.register();
        me.allow();
        if let Some(successor) = successor {
            me.tell(successor);
        }
    }

    /// Between arming and blocking: whether there is a reason not to block. [`wake`] follows in any case.
    #[inline]
    pub fn check(me: &mut impl SleepSteps) -> bool {
        // Each is asked in any case: some report once, and some note for the policy what they have seen.
        let posted = me.was_posted();
        let entry = me.has_entry();
        let mail = me.has_mail();
        posted | entry | mail || me.is_wanted()
    }

    /// Awake again: what was armed is masked.
    #[inline]
    pub fn wake(me: &mut impl SleepSteps) {
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
