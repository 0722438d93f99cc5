//! The users of a hardware queue's *drain thread*, which in the mode `threaded` reaps for the
//! threads that share the queue. The first user starts the thread, the last one joins it. The
//! thread's code is in `thread/drain_thread.rs`.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use hw::ThreadCpuClock;
use units::Nanos;

use crate::wake::Wake;

/// The drain thread of a hardware queue, if it runs, and its users.
pub(crate) struct Drain {
    /// Locked while the thread is started or joined, so that there are never two drain threads. The
    /// drain thread must not take this lock, because the thread that joins it holds the lock.
    thread: Mutex<Option<JoinHandle<()>>>,
    state: Mutex<DrainUsers>,
    /// The drain thread runs. The hardware queue is then shared: completions may be reaped by
    /// another thread than their owner, and a thread must own the notification role to sleep on the
    /// vector.
    running: AtomicBool,
    pub wake: Wake,
    /// CPU time of drain threads that have ended.
    spent: AtomicU64,
}

#[derive(Default)]
struct DrainUsers {
    /// Number of software queues in `threaded`.
    users: u32,
    clock: Option<ThreadCpuClock>,
}

impl Drain {
    /// # Errors
    /// The system has no eventfd left.
    pub(crate) fn new() -> std::io::Result<Drain> {
        let (running, wake) = (AtomicBool::new(false), Wake::new()?);
        Ok(Drain {
            thread: Mutex::default(),
            state: Mutex::default(),
            running,
            wake,
            spent: AtomicU64::new(0),
        })
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, DrainUsers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the drain thread runs.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Acquire)
    }

    /// CPU time of the drain threads so far.
    pub(crate) fn cpu(&self) -> Nanos {
        let state = self.state();
        let running = state.clock.and_then(ThreadCpuClock::read).unwrap_or_default();
        Nanos(self.spent.load(Acquire)) + running
    }

    /// A software queue enters `threaded`. The first one calls `begin` to start the thread.
    ///
    /// # Errors
    /// `begin` has failed; nothing has changed.
    pub(crate) fn acquire(
        &self,
        begin: impl FnOnce() -> std::io::Result<JoinHandle<()>>,
    ) -> std::io::Result<()> {
        let mut thread = self.thread();
        self.state().users += 1;
        if thread.is_none() {
            // Set before the thread starts: if `is_shared` were false, the drain thread would not
            // take the role, arm nothing, and sleep for ever.
            self.running.store(true, Release);
            *thread = Some(begin().inspect_err(|_| {
                self.state().users -= 1;
                self.running.store(false, Release);
            })?);
        }
        Ok(())
    }

    /// A software queue leaves `threaded`. The last one joins the thread; after that all
    /// completions that the thread has reaped are in the inboxes. Call this without holding a lock.
    pub(crate) fn release(&self) {
        let mut thread = self.thread();
        let mut state = self.state();
        state.users = state.users.saturating_sub(1);
        let last = state.users == 0;
        // The drain thread takes this lock to see that it has no user.
        drop(state);
        if !last {
            return;
        }
        self.wake.notify();
        if let Some(thread) = thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a drain thread has panicked");
        }
        self.running.store(false, Release);
    }

    /// Called by the drain thread as it starts: its CPU clock can be opened only there.
    pub(crate) fn started(&self) {
        self.state().clock = ThreadCpuClock::of_current().ok();
    }

    /// Whether some software queue is in `threaded`.
    pub(crate) fn has_users(&self) -> bool {
        self.state().users > 0
    }

    /// Called by the drain thread: if there is no user, adds the thread's CPU time to the sum and
    /// returns true. No user can come after that, because [`Drain::release`] holds the lock that
    /// [`Drain::acquire`] needs until the thread has ended.
    pub(crate) fn finish_if_unused(&self) -> bool {
        let mut state = self.state();
        let unused = state.users == 0;
        if unused {
            // Both are changed under the lock that `cpu` takes, so that no time is counted twice.
            state.clock = None;
            self.spent.fetch_add(hw::thread_cpu().0, AcqRel);
        }
        unused
    }
}

#[cfg(test)]
mod tests;
