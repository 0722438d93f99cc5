//! Requests as futures. A future holds only a ticket ([`FutureStates`]); the request and its buffer
//! stay in the queue. So a future may be dropped or forgotten while the device uses the buffer.

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

/// A request under way. It may be sent to and awaited on any thread; the queue that it was
/// submitted to has to be driven, by whichever of the three ways. What it comes to is a
/// [`Completion`], or as much of that as the method that started it promises.
#[must_use = "the request is posted already, but its result and its buffer come back through the future"]
pub struct Pending<T = Completion> {
    tickets: Arc<FutureStates>,
    at: u32,
    /// It has been ready.
    taken: bool,
    /// Where an empty buffer comes from.
    pool: DmaPool,
    /// Of a command of the caller's own: dword 0 of its completion.
    dword: Option<Arc<AtomicU32>>,
    finish: fn(Completion, &DmaPool, u32) -> T,
}

/// A Read, a Write or a Compare under way: its result and its buffer. After [`IoError::DeviceLost`]
/// the buffer is an empty one, because the controller may still write to the other.
pub type IoFuture = Pending<(Result<(), IoError>, DmaBuf)>;

impl Pending {
    /// The request of ticket `at`, on a device whose buffers come from `pool`.
    pub(crate) fn new(tickets: Arc<FutureStates>, at: u32, pool: DmaPool) -> Pending {
        Pending { tickets, at, taken: false, pool, dword: None, finish: |done, _, _| done }
    }

    /// The same request, whose future is the result and the buffer.
    pub(crate) fn with_buffer(self) -> IoFuture {
        self.ends_in(None, |done, pool, _| (done.result, done.buf.unwrap_or_else(|| pool.empty())))
    }

    /// The result alone.
    pub(crate) fn without_buffer(self) -> Pending<Result<(), IoError>> {
        self.ends_in(None, |done, _, _| done.result)
    }

    /// Dword 0 of the completion, and the buffer.
    pub(crate) fn with_dword(
        self,
        dword: Arc<AtomicU32>,
    ) -> Pending<(Result<u32, IoError>, Option<DmaBuf>)> {
        self.ends_in(Some(dword), |done, _, dword| (done.result.map(|()| dword), done.buf))
    }

    fn ends_in<T>(
        mut self,
        dword: Option<Arc<AtomicU32>>,
        finish: fn(Completion, &DmaPool, u32) -> T,
    ) -> Pending<T> {
        // The ticket is the other future's from now on.
        let taken = std::mem::replace(&mut self.taken, true);
        Pending {
            tickets: self.tickets.clone(),
            at: self.at,
            taken,
            pool: self.pool.clone(),
            dword,
            finish,
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if self.taken {
            return Poll::Pending;
        }
        match self.tickets.poll(self.at, cx.waker().clone()) {
            Ok(completion) => {
                self.taken = true;
                // The queue's thread has stored it before it completed the ticket, under a lock.
                let dword = self.dword.as_ref().map_or(0, |dword| dword.load(Relaxed));
                Poll::Ready((self.finish)(completion, &self.pool, dword))
            }
            Err(_) => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if !self.taken {
            self.tickets.drop_one(self.at);
        }
    }
}
