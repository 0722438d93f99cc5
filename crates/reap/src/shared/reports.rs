//! How others wake the housekeeping thread, and what queues report of their controller.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::ProtocolViolation;
use units::Nanos;

use super::events::{EventKind, EventSource, Events};
use crate::wake::Wake;

/// Wakes the housekeeping thread. Each holder of one keeps that thread alive.
pub(crate) struct Kick {
    news: AtomicBool,
    wake: Wake,
}

impl Kick {
    /// # Errors
    /// The system has no eventfd left.
    pub(crate) fn new() -> io::Result<Kick> {
        Ok(Kick { news: AtomicBool::new(false), wake: Wake::new()? })
    }

    /// There is something to do that no vector tells of.
    pub(crate) fn kick(&self) {
        self.news.store(true, Release);
        self.wake.tell();
    }

    /// The housekeeping thread: what was told until now is about to be looked at.
    pub(crate) fn clear(&self) {
        self.news.swap(false, AcqRel);
    }

    /// The housekeeping thread, before it sleeps: whether it need not.
    pub(crate) fn arm(&self) -> bool {
        self.wake.arm();
        self.news.load(Acquire)
    }

    /// The housekeeping thread is awake.
    pub(crate) fn mask(&self) {
        self.wake.mask();
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// What the queues of one controller report to the thread that looks after it. It keeps no device open.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<Reports>);

struct Reports {
    kick: Arc<Kick>,
    /// A moderated queue that was idle is not any more.
    stirred: AtomicBool,
    /// Requests that the kernel was asked to cancel.
    cancelled: AtomicU32,
    violations: Mutex<Vec<ProtocolViolation>>,
    source: EventSource,
}

impl Reporter {
    pub(super) fn new(kick: Arc<Kick>, source: EventSource) -> Reporter {
        Reporter(Arc::new(Reports {
            kick,
            stirred: AtomicBool::new(false),
            cancelled: AtomicU32::new(0),
            violations: Mutex::default(),
            source,
        }))
    }

    /// The housekeeping thread is to look.
    pub(crate) fn kick(&self) {
        self.0.kick.kick();
    }

    /// Something has completed on a moderated queue that was idle.
    #[cold]
    pub(crate) fn stirred(&self) {
        self.0.stirred.store(true, Release);
        self.kick();
    }

    /// Whether [`Reporter::stirred`] was called since this was last asked.
    pub(crate) fn take_stirred(&self) -> bool {
        self.0.stirred.swap(false, Acquire)
    }

    /// Requests of queue `queue` have no answer after `timeout`, and the kernel was asked to cancel them.
    #[cold]
    pub(crate) fn cancelled(&self, late: u32, queue: u16, timeout: Nanos) {
        self.0.cancelled.fetch_add(late, AcqRel);
        self.push(EventKind::TimedOut { queue, requests: late, after: timeout });
        self.kick();
    }

    /// How many since this was last asked.
    pub(crate) fn take_cancelled(&self) -> u32 {
        self.0.cancelled.swap(0, AcqRel)
    }

    /// The controller broke the protocol on some queue.
    #[cold]
    pub(crate) fn violated(&self, violation: ProtocolViolation) {
        self.violations().push(violation);
        self.kick();
    }

    /// Something that the device's users may want to know.
    pub(crate) fn push(&self, what: EventKind) {
        self.0.source.push(what);
    }

    /// A receiver of such things.
    pub(crate) fn events(&self) -> Events {
        self.0.source.receiver()
    }

    /// Violations that were reported and not yet dealt with.
    pub(crate) fn violations(&self) -> MutexGuard<'_, Vec<ProtocolViolation>> {
        self.0.violations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
