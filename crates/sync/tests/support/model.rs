//! Shared by the loom models. A model reports a lost wake-up as a value rather than by deadlock:
//! loom's panic in a deadlock cannot be unwound, and the mutants must be caught.

#[cfg(test)]
mod queue;

use std::sync::atomic::AtomicU64 as Counter;
use std::sync::atomic::Ordering::Relaxed;

use crate::{Arc, Condvar, Mutex, lock};
pub use loom::model as check;
#[cfg(test)]
pub(crate) use queue::{Omit, Queue};

/// Eventfds, and the threads that block on them. Signals are sticky, as those of an eventfd, and a
/// thread may block on several eventfds.
pub struct EventFds {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    signalled: Vec<bool>,
    /// Threads that neither block nor have ended: they may still signal.
    running: usize,
    /// What each blocked thread waits for.
    blocked: Vec<&'static [usize]>,
    lost: bool,
}

/// All threads that have not ended are blocked, so none can signal.
#[derive(Debug)]
pub struct LostWakeUp;

impl EventFds {
    /// Eventfds for a number of threads, each of which calls [`EventFds::end`].
    pub fn new(fds: usize, threads: usize) -> Arc<EventFds> {
        let state = State {
            signalled: vec![false; fds],
            running: threads,
            blocked: Vec::new(),
            lost: false,
        };
        Arc::new(EventFds { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Ends the sleep of the thread that blocks on this eventfd, or, if it is awake, its next
    /// sleep.
    pub fn signal(&self, fd: usize) {
        lock(&self.state).signalled[fd] = true;
        self.changed.notify_all();
    }

    /// Sleeps until one of `fds` is signalled, and resets all of `fds`.
    ///
    /// # Errors
    ///
    /// No thread is left that could signal one of them.
    pub fn block(&self, fds: &'static [usize]) -> Result<(), LostWakeUp> {
        let mut state = lock(&self.state);
        state.running -= 1;
        state.blocked.push(fds);
        self.check(&mut state);
        while !state.lost && !fds.iter().any(|&fd| state.signalled[fd]) {
            state = self.changed.wait(state).unwrap();
        }
        let at = state.blocked.iter().position(|waits| *waits == fds).unwrap();
        state.blocked.swap_remove(at);
        state.running += 1;
        fds.iter().for_each(|&fd| state.signalled[fd] = false);
        if state.lost { Err(LostWakeUp) } else { Ok(()) }
    }

    /// For a thread that ends: it signals no more.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.running -= 1;
        self.check(&mut state);
    }

    fn check(&self, state: &mut State) {
        let wakes = |fds: &&'static [usize]| fds.iter().any(|&fd| state.signalled[fd]);
        if state.running == 0 && !state.blocked.is_empty() && !state.blocked.iter().any(wakes) {
            state.lost = true;
            self.changed.notify_all();
        }
    }
}

/// Runs every interleaving of `model` with at most `preemptions` preemptions
/// (`LOOM_MAX_PREEMPTIONS` overrides it), and counts those in which it answers false.
fn failures(preemptions: usize, model: impl Fn() -> bool + Send + Sync + 'static) -> u64 {
    let failures: &'static Counter = Box::leak(Box::default());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || {
        if !model() {
            failures.fetch_add(1, Relaxed);
        }
    });
    failures.load(Relaxed)
}

/// The model holds in every interleaving.
pub fn holds(preemptions: usize, model: impl Fn() -> bool + Send + Sync + 'static) {
    assert_eq!(failures(preemptions, model), 0, "interleavings that fail");
}

/// A mutant: some interleaving must fail.
pub fn fails(preemptions: usize, model: impl Fn() -> bool + Send + Sync + 'static) {
    assert_ne!(failures(preemptions, model), 0, "the mutants passed: the model proves nothing");
}
