//! Requests as futures. A future holds only a *ticket*, an index in the queue's table of future
//! states ([`FutureStates`]); the request and its buffer stay in the queue. So a future may be
//! dropped or forgotten while the device uses the buffer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use hw::{DmaBuf, DmaPool};

use super::future_states::FutureStates;
use crate::error::IoError;
use crate::request::Completion;

/// The future of a submitted request. It may be sent to and awaited on any thread. Until then
/// the queue that the request was submitted to has to be driven: by
/// [`Queue::block_on`](crate::Queue::block_on), by
/// [`Queue::poll_events`](crate::Queue::poll_events), or by a [`Reactor`](crate::Reactor). The
/// output is a [`Completion`], or the part of it that the submitting method returns.
#[must_use = "the request is posted already, but its result and its buffer come back through the future"]
pub struct Pending<T = Completion> {
    states: Arc<FutureStates>,
    ticket: u32,
    /// The ticket is no longer this future's: the output was returned, or another future has the
    /// ticket.
    done: bool,
    /// Makes the empty buffer that is returned if the device is lost.
    pool: DmaPool,
    /// For a command that the caller built: dword 0 of its completion.
    dword: Option<Arc<AtomicU32>>,
    /// Makes the output from the completion.
    finish: fn(Completion, &DmaPool, u32) -> T,
}

/// The future of a Read, a Write or a Compare, with its result and its buffer. After
/// [`IoError::DeviceLost`] an empty buffer is returned, because the controller may still write to
/// the original one.
pub type IoFuture = Pending<(Result<(), IoError>, DmaBuf)>;

impl Pending {
    /// The future with `ticket`, for a request on a device whose buffers come from `pool`.
    pub(crate) fn new(states: Arc<FutureStates>, ticket: u32, pool: DmaPool) -> Pending {
        let finish = |completion, _: &DmaPool, _| completion;
        Pending { states, ticket, done: false, pool, dword: None, finish }
    }

    /// The same future, with the result and the buffer as output.
    pub(crate) fn with_buffer(self) -> IoFuture {
        self.map_output(None, |completion, pool, _| {
            (completion.result, completion.buf.unwrap_or_else(|| pool.empty()))
        })
    }

    /// The same future, with the result alone as output.
    pub(crate) fn without_buffer(self) -> Pending<Result<(), IoError>> {
        self.map_output(None, |completion, _, _| completion.result)
    }

    /// The same future, with dword 0 of the completion and the buffer as output.
    pub(crate) fn with_dword(
        self,
        dword: Arc<AtomicU32>,
    ) -> Pending<(Result<u32, IoError>, Option<DmaBuf>)> {
        self.map_output(Some(dword), |completion, _, dword| {
            (completion.result.map(|()| dword), completion.buf)
        })
    }

    fn map_output<T>(
        mut self,
        dword: Option<Arc<AtomicU32>>,
        finish: fn(Completion, &DmaPool, u32) -> T,
    ) -> Pending<T> {
        // From now on the new future has the ticket.
        let done = std::mem::replace(&mut self.done, true);
        Pending {
            states: self.states.clone(),
            ticket: self.ticket,
            done,
            pool: self.pool.clone(),
            dword,
            finish,
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if self.done {
            return Poll::Pending;
        }
        match self.states.poll(self.ticket, cx.waker().clone()) {
            Ok(completion) => {
                self.done = true;
                // Relaxed: the queue's thread stored the dword before it completed the ticket, and
                // the lock of the states orders both.
                let dword = self.dword.as_ref().map_or(0, |dword| dword.load(Relaxed));
                Poll::Ready((self.finish)(completion, &self.pool, dword))
            }
            Err(_) => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("done", &self.done).finish_non_exhaustive()
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if !self.done {
            self.states.drop_one(self.ticket);
        }
    }
}
