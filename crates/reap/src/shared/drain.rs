//! The drain thread of a hardware queue in `threaded`, or the place where one will be: what others know of it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use hw::ThreadCpuClock;
use units::Nanos;

use crate::wake::Wake;

/// The drain thread of a hardware queue, or the place where one will be.
pub(crate) struct Drain {
    /// Locked for as long as one begins or ends, so that there are never two. It does not lock this itself.
    thread: Mutex<Option<JoinHandle<()>>>,
    state: Mutex<State>,
    /// While there is one the queue's entries may be taken by another thread than their owner's, and going to sleep on it
    /// goes by the look role.
    shares: AtomicBool,
    pub wake: Wake,
    /// CPU time of threads that have ended.
    spent: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Software queues in the mode.
    users: u32,
    clock: Option<ThreadCpuClock>,
}

impl Drain {
    /// # Errors
    /// The system has no eventfd left.
    pub(crate) fn new() -> std::io::Result<Drain> {
        let (shares, wake) = (AtomicBool::new(false), Wake::new()?);
        Ok(Drain { thread: Mutex::default(), state: Mutex::default(), shares, wake, spent: AtomicU64::new(0) })
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a drain thread.
    #[inline]
    pub(crate) fn shares(&self) -> bool {
        self.shares.load(Acquire)
    }

    /// CPU time of the drain threads so far.
    pub(crate) fn cpu(&self) -> Nanos {
        let state = self.state();
        let running = state.clock.and_then(ThreadCpuClock::read).unwrap_or_default();
        Nanos(self.spent.load(Acquire)) + running
    }

    /// A software queue enters the mode. If it is the first, `begin` makes the thread.
    ///
    /// # Errors
    /// What `begin` says; nothing has changed.
    pub(crate) fn engage(&self, begin: impl FnOnce() -> std::io::Result<JoinHandle<()>>) -> std::io::Result<()> {
        let mut thread = self.thread();
        self.state().users += 1;
        if thread.is_none() {
            // Before it begins: a thread that finds itself alone takes no role, arms nothing, and sleeps for good.
            self.shares.store(true, Release);
            *thread = Some(begin().inspect_err(|_| {
                self.state().users -= 1;
                self.shares.store(false, Release);
            })?);
        }
        Ok(())
    }

    /// A software queue is in the mode no more. If it was the last one, the drain thread has ended afterwards; what it took is
    /// in the inboxes. Call without any lock.
    pub(crate) fn dismiss(&self) {
        let mut thread = self.thread();
        let mut state = self.state();
        state.users = state.users.saturating_sub(1);
        let last = state.users == 0;
        drop(state);
        if !last {
            return;
        }
        self.wake.tell();
        if let Some(thread) = thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a drain thread has panicked");
        }
        self.shares.store(false, Release);
    }

    /// The drain thread has begun.
    pub(crate) fn begun(&self) {
        self.state().clock = ThreadCpuClock::of_current().ok();
    }

    /// The drain thread: whether some software queue is in the mode.
    pub(crate) fn is_wanted(&self) -> bool {
        self.state().users > 0
    }

    /// The drain thread: whether no software queue is in the mode. Then none will be before the thread has ended.
    pub(crate) fn is_dismissed(&self) -> bool {
        let mut state = self.state();
        let dismissed = state.users == 0;
        if dismissed {
            state.clock = None;
            self.spent.fetch_add(hw::thread_cpu().0, AcqRel);
        }
        dismissed
    }
}

#[cfg(test)]
mod tests;
