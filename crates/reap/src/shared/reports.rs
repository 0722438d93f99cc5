//! Waking the housekeeping thread ([`Kick`]), and what queues report to their controller's task
//! ([`Reporter`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::ProtocolViolation;
use units::Nanos;

use super::events::{EventKind, EventSource, Events};
use crate::wake::Wake;

/// Wakes the housekeeping thread. The thread runs as long as any device has a clone of the `Arc`.
pub(crate) struct Kick {
    /// Set by each kick, cleared before the tasks are stepped.
    pending: AtomicBool,
    wake: Wake,
}

impl Kick {
    /// # Errors
    /// The system has no eventfd left.
    pub(crate) fn new() -> io::Result<Kick> {
        Ok(Kick { pending: AtomicBool::new(false), wake: Wake::new()? })
    }

    /// Has the housekeeping thread step its tasks.
    pub(crate) fn kick(&self) {
        // The flag is set before the wake-up: a thread that is about to sleep sees the flag, or is
        // woken (invariant 1).
        self.pending.store(true, Release);
        self.wake.notify();
    }

    /// The housekeeping thread, before it steps its tasks: clears the pending kicks.
    pub(crate) fn clear(&self) {
        // A swap acquires what the kicks that it clears have published.
        self.pending.swap(false, AcqRel);
    }

    /// The housekeeping thread, before it sleeps: arms the wake-up. Returns whether a kick is
    /// pending.
    pub(crate) fn arm(&self) -> bool {
        self.wake.arm();
        self.pending.load(Acquire)
    }

    /// The housekeeping thread, after a sleep: disarms the wake-up, since no signal is needed while
    /// the thread runs.
    pub(crate) fn disarm(&self) {
        self.wake.disarm();
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// The handle by which the queues of one controller report to its task. It does not keep the device
/// open.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<Reports>);

struct Reports {
    kick: Arc<Kick>,
    /// A queue with Interrupt Coalescing that was idle has completions again, or its policy
    /// requests coalescing.
    queue_active: AtomicBool,
    /// Number of requests that the kernel was asked to cancel.
    cancelled: AtomicU32,
    violations: Mutex<Vec<ProtocolViolation>>,
    source: EventSource,
}

impl Reporter {
    pub(super) fn new(kick: Arc<Kick>, source: EventSource) -> Reporter {
        Reporter(Arc::new(Reports {
            kick,
            queue_active: AtomicBool::new(false),
            cancelled: AtomicU32::new(0),
            violations: Mutex::default(),
            source,
        }))
    }

    /// Has the housekeeping thread step its tasks.
    pub(crate) fn kick(&self) {
        self.0.kick.kick();
    }

    /// A queue with Interrupt Coalescing that was idle has completions again, or its policy
    /// requests coalescing.
    #[cold]
    pub(crate) fn queue_active(&self) {
        self.0.queue_active.store(true, Release);
        self.kick();
    }

    /// Whether [`Reporter::queue_active`] was called since the last call.
    pub(crate) fn take_queue_active(&self) -> bool {
        self.0.queue_active.swap(false, Acquire)
    }

    /// `late` requests of queue `queue` exceeded `timeout`, and the kernel was asked to cancel
    /// them.
    #[cold]
    pub(crate) fn cancelled(&self, late: u32, queue: u16, timeout: Nanos) {
        self.0.cancelled.fetch_add(late, AcqRel);
        self.push(EventKind::TimedOut { queue, requests: late, after: timeout });
        self.kick();
    }

    /// Number of cancelled requests since the last call.
    pub(crate) fn take_cancelled(&self) -> u32 {
        self.0.cancelled.swap(0, AcqRel)
    }

    /// The controller has violated the protocol on some queue: a reset follows.
    #[cold]
    pub(crate) fn violated(&self, violation: ProtocolViolation) {
        self.violations().push(violation);
        self.kick();
    }

    /// Adds an event to the device's log.
    pub(crate) fn push(&self, what: EventKind) {
        self.0.source.push(what);
    }

    /// A receiver of the device's events.
    pub(crate) fn events(&self) -> Events {
        self.0.source.receiver()
    }

    /// Violations that the task has not handled yet.
    pub(crate) fn violations(&self) -> MutexGuard<'_, Vec<ProtocolViolation>> {
        self.0.violations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
