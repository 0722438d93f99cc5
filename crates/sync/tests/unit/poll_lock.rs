#[cfg(not(loom))]
mod unit {
    use super::super::*;

    #[test]
    fn one_poller_reports_later_entries() {
        let lock = PollLock::new(7);
        let looked = lock.try_poll(
            |inner| {
                assert_eq!(lock.try_poll(|_| (), || false), None);
                *inner
            },
            || true,
        );
        assert_eq!(looked, Some(Polled { found: 7, more: true }));
        assert_eq!(*lock.lock(), 7);
        let held = lock.try_lock();
        assert!(held.is_some() && lock.try_lock().is_none());
    }

    #[test]
    fn panic_under_lock_is_survived() {
        let lock = PollLock::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lock.try_poll(|_| panic!("on purpose"), || false)
        }));
        assert!(panicked.is_err());
        assert!(lock.try_poll(|_| (), || false).is_some());
    }
}

/// One thread polls and leaves while the owner of the entry goes to sleep.
#[cfg(loom)]
mod models {
    use completion::Mode;

    use crate::model::{Omit, Queue, fails, holds};

    /// The sleeper is woken by its vector, which is never masked, so it does not check before it
    /// sleeps.
    fn try_lock_reap(omit: Omit) -> bool {
        Queue::run_single_threaded(Mode::INTERRUPT, &[0], true, omit)
    }

    #[test]
    fn passing_thread_leaves_no_entries() {
        holds(3, || try_lock_reap(Omit::Nothing));
    }

    #[test]
    fn missing_poll_after_release_is_caught() {
        fails(3, || try_lock_reap(Omit::LookAfterRelease));
    }

    #[test]
    fn missing_fence_after_release_is_caught() {
        fails(3, || try_lock_reap(Omit::FenceAfterRelease));
    }

    #[test]
    fn unwoken_entry_owner_is_caught() {
        fails(3, || try_lock_reap(Omit::WakeWhoseEntry));
    }

    #[test]
    fn masking_poller_polls_before_sleep() {
        holds(3, || Queue::run_single_threaded(Mode::IRQ_POLL, &[0], true, Omit::Nothing));
        fails(3, || Queue::run_single_threaded(Mode::IRQ_POLL, &[0], true, Omit::LookBeforeSleep));
    }
}
