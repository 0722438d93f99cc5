//! The effort to be connected again: one at a time, until nobody wants a connection any more.

use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the thread that tries has in common with those that may stop it.
#[derive(Debug, Default)]
pub(super) struct Effort {
    state: Mutex<EffortState>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct EffortState {
    /// Nobody wants a connection any more.
    over: bool,
    running: bool,
    /// What is being tried: it is shut down when nobody wants it any more, so that no answer is waited for.
    tried: Option<UnixStream>,
}

impl Effort {
    fn state(&self) -> MutexGuard<'_, EffortState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to begin now: true once, until it has ended.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        !state.over && !std::mem::replace(&mut state.running, true)
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        (state.running, state.tried) = (false, None);
    }

    /// Whether somebody wants a connection: it stays so for as long as this is held.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted(self.state())
    }

    /// Waits. False: nobody wants a connection any more.
    pub(super) fn pause(&self, span: Duration) -> bool {
        let waited = self.over.wait_timeout_while(self.state(), span, |state| !state.over);
        !waited.unwrap_or_else(PoisonError::into_inner).0.over
    }

    /// This is tried next.
    pub(super) fn tries(&self, stream: &UnixStream) {
        let mut state = self.state();
        state.tried = stream.try_clone().ok();
        if state.over {
            state.stop();
        }
    }

    /// Nobody wants a connection any more.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.over = true;
        state.stop();
        self.over.notify_all();
    }
}

/// See [`Effort::wanted`].
pub(super) struct Wanted<'a>(MutexGuard<'a, EffortState>);

impl Wanted<'_> {
    pub(super) fn get(&self) -> bool {
        !self.0.over
    }
}

impl EffortState {
    fn stop(&mut self) {
        if let Some(stream) = self.tried.take() {
            _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}
