//! `block_on`: runs one future on this thread and drives its queue while it waits.

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

/// While this lives the thread is inside a call that blocks.
pub(crate) struct Inside(());

/// Enters a call that blocks; an error if the thread is inside one, whose futures could then not go on.
pub(crate) fn enter() -> Result<Inside, WouldDeadlock> {
    if INSIDE.replace(true) { Err(WouldDeadlock) } else { Ok(Inside(())) }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Wakes the thread of a software queue.
pub(crate) struct Signal {
    told: AtomicBool,
    wake: Arc<Wakeup>,
}

impl Signal {
    pub(crate) fn new(wake: Arc<Wakeup>) -> Signal {
        Signal { told: AtomicBool::new(false), wake }
    }

    /// Whether somebody has woken the thread since [`Signal::clear`].
    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Acquire)
    }

    /// About to look at what others may tell of.
    pub(crate) fn clear(&self) {
        self.told.swap(false, AcqRel);
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.told.store(true, Release);
        self.wake.tell();
    }
}

/// Drops memory of an application's, whose end is the application's code. A panic of one is no other's.
pub(crate) fn let_go(memory: Vec<DmaBuf>) {
    for buf in memory {
        if catch_unwind(AssertUnwindSafe(|| drop(buf))).is_err() {
            tracing::error!("registered memory has panicked when it was dropped");
        }
    }
}

/// Runs `future` to its end. While it waits, `drive` drives the thread's queue until the signal is told.
pub(crate) fn block_on<F: Future>(signal: &Arc<Signal>, future: F, drive: impl Fn(&Signal)) -> Result<F::Output, WouldDeadlock> {
    let _inside = enter()?;
    let waker = Waker::from(signal.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        signal.clear();
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        drive(signal);
    }
}

/// A batch of which nothing is submitted.
#[cold]
pub(crate) fn refuse(why: Refused, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
    requests.into_iter().next().map_or(Ok(()), |request| Err((why, request)))
}

#[cfg(test)]
mod tests;
