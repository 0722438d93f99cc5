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
use crate::error::{IoError, Refused};
use crate::request::{Completion, Request};

/// The future of a request. It may be sent to, and awaited on, any thread. Some thread has to drive
/// the queue that the request was submitted to.
#[must_use = "the request is posted already, but its result and its buffer come back through the future"]
pub struct Pending(PendingState);

enum PendingState {
    Open {
        tickets: Arc<FutureStates>,
        at: u32,
    },
    /// Boxed: a request is large, and refusals are rare.
    Refused(Box<Option<(Refused, Request)>>),
    /// The completion was returned.
    Taken,
}

impl Pending {
    /// The future of the request with ticket `at`.
    pub(crate) fn new(tickets: Arc<FutureStates>, at: u32) -> Pending {
        Pending(PendingState::Open { tickets, at })
    }

    pub(crate) fn refused(why: Refused, request: Request) -> Pending {
        Pending(PendingState::Refused(Box::new(Some((why, request)))))
    }
}

impl Future for Pending {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        let finished = match &mut self.0 {
            PendingState::Open { tickets, at } => tickets.poll(*at, cx.waker().clone()).ok(),
            PendingState::Refused(why) => why.take().map(|(why, request)| Completion::refused(why, request)),
            PendingState::Taken => None,
        };
        match finished {
            Some(completion) => {
                // Its ticket is free, so `drop` must not touch it.
                self.0 = PendingState::Taken;
                Poll::Ready(completion)
            }
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            PendingState::Open { .. } => "open",
            PendingState::Refused(_) => "refused",
            PendingState::Taken => "taken",
        };
        f.debug_tuple("Pending").field(&state).finish()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let PendingState::Open { tickets, at } = &self.0 {
            tickets.drop_one(*at);
        }
    }
}

/// The future of a Read or a Write: its result and its buffer. After [`IoError::DeviceLost`] the
/// buffer may be an empty one, because the controller may still write to the original, which is
/// leaked.
#[must_use = "the request is posted already, but its result and its buffer come back through the future"]
pub struct IoFuture {
    pending: Pending,
    pool: DmaPool,
}

impl IoFuture {
    pub(crate) fn new(pending: Pending, pool: DmaPool) -> IoFuture {
        IoFuture { pending, pool }
    }
}

impl fmt::Debug for IoFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoFuture").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl Future for IoFuture {
    type Output = (Result<(), IoError>, DmaBuf);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        Pin::new(&mut this.pending).poll(cx).map(|done| (done.result, done.buf.unwrap_or_else(|| this.pool.empty())))
    }
}

/// The future of Reads or Writes of several buffers: the first error in the order of the buffers,
/// and the buffers, each as of an [`IoFuture`].
#[must_use = "the requests are posted already, but their result and their buffers come back through the future"]
#[derive(Debug)]
pub struct VectoredFuture(Vec<Part>);

#[derive(Debug)]
enum Part {
    Open(IoFuture),
    Ended(Result<(), IoError>, DmaBuf),
}

impl VectoredFuture {
    pub(crate) fn new(parts: Vec<IoFuture>) -> VectoredFuture {
        VectoredFuture(parts.into_iter().map(Part::Open).collect())
    }

    /// The future of requests that were refused.
    pub(crate) fn refused(why: Refused, bufs: Vec<DmaBuf>) -> VectoredFuture {
        VectoredFuture(bufs.into_iter().map(|buf| Part::Ended(Err(why.into()), buf)).collect())
    }
}

impl Future for VectoredFuture {
    type Output = (Result<(), IoError>, Vec<DmaBuf>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut open = false;
        // All of them, even after one is pending: each has to register the waker.
        for part in &mut self.0 {
            let Part::Open(future) = part else { continue };
            match Pin::new(future).poll(cx) {
                Poll::Ready((result, buf)) => *part = Part::Ended(result, buf),
                Poll::Pending => open = true,
            }
        }
        if open {
            return Poll::Pending;
        }
        let (mut all, mut bufs) = (Ok(()), Vec::with_capacity(self.0.len()));
        for part in self.0.drain(..) {
            if let Part::Ended(result, buf) = part {
                all = all.and(result);
                bufs.push(buf);
            }
        }
        Poll::Ready((all, bufs))
    }
}

/// The future of an I/O command that the caller has built: dword 0 of its completion, and its
/// buffer, as of an [`IoFuture`].
#[must_use = "the command is posted already, but its result and its buffer come back through the future"]
#[derive(Debug)]
pub struct CommandFuture {
    pending: Pending,
    result: Arc<AtomicU32>,
}

impl CommandFuture {
    pub(crate) fn new(pending: Pending, result: Arc<AtomicU32>) -> CommandFuture {
        CommandFuture { pending, result }
    }
}

impl Future for CommandFuture {
    type Output = (Result<u32, IoError>, Option<DmaBuf>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Relaxed: the queue's thread stored it before it completed the ticket, and the ticket has
        // a lock.
        Pin::new(&mut this.pending).poll(cx).map(|done| (done.result.map(|()| this.result.load(Relaxed)), done.buf))
    }
}

/// The future of a request without data: a Flush, a Write Zeroes, a Deallocate, a Verify or a Write
/// Uncorrectable.
#[must_use = "the request is posted already, but its result comes back through the future"]
#[derive(Debug)]
pub struct FlushFuture(pub(crate) Pending);

impl Future for FlushFuture {
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|done| done.result)
    }
}
