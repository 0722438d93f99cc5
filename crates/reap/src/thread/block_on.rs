//! `block_on`: runs one future on this thread, and drives the thread's queue while the future
//! waits. Calls that block do not nest: an inner one would keep the outer future from running.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::task::{Context, Poll, Wake, Waker};

use hw::DmaBuf;

use crate::error::{Refused, WouldDeadlock};
use crate::request::Request;
use crate::wake::Wake as Wakeup;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The thread is inside a blocking call while this exists.
pub(crate) struct BlockingCall(());

/// Enters a blocking call.
///
/// # Errors
/// The thread is inside one already.
pub(crate) fn enter() -> Result<BlockingCall, WouldDeadlock> {
    if INSIDE.replace(true) { Err(WouldDeadlock) } else { Ok(BlockingCall(())) }
}

impl Drop for BlockingCall {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// The waker of a software queue's thread.
pub(crate) struct Signal {
    signalled: AtomicBool,
    wake: Arc<Wakeup>,
}

impl Signal {
    pub(crate) fn new(wake: Arc<Wakeup>) -> Signal {
        Signal { signalled: AtomicBool::new(false), wake }
    }

    /// Whether the waker was called since [`Signal::clear`].
    pub(crate) fn is_signalled(&self) -> bool {
        self.signalled.load(Acquire)
    }

    /// Before the future is polled.
    pub(crate) fn clear(&self) {
        // A swap, not a store: it acquires what a waker that is cleared here has published.
        self.signalled.swap(false, AcqRel);
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The flag before the wake-up: a thread that this does not wake finds the flag in its
        // check.
        self.signalled.store(true, Release);
        self.wake.notify();
    }
}

/// Drops buffers in memory that the application has registered. Dropping them runs the
/// application's code.
pub(crate) fn drop_buffers(memory: Vec<DmaBuf>) {
    for buf in memory {
        // One that panics must not keep the others alive, nor unwind the library's thread.
        if catch_unwind(AssertUnwindSafe(|| drop(buf))).is_err() {
            tracing::error!("registered memory has panicked when it was dropped");
        }
    }
}

/// Runs `future` to completion. While it waits, `drive` drives the thread's queue until the signal
/// is set.
///
/// # Errors
/// The thread is inside a blocking call.
pub(crate) fn block_on<F: Future>(
    signal: &Arc<Signal>,
    future: F,
    drive: impl Fn(&Signal),
) -> Result<F::Output, WouldDeadlock> {
    let _inside = enter()?;
    let waker = Waker::from(signal.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        // Before the poll: a wake-up during it is seen by `drive`, and the future polled again.
        signal.clear();
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        drive(signal);
    }
}

/// Refuses a batch: returns its first request with the reason. An empty batch succeeds.
///
/// # Errors
/// `why`, with the first request.
#[cold]
pub(crate) fn refuse(
    why: Refused,
    requests: impl IntoIterator<Item = Request>,
) -> Result<(), (Refused, Request)> {
    requests.into_iter().next().map_or(Ok(()), |request| Err((why, request)))
}

#[cfg(test)]
mod tests;
