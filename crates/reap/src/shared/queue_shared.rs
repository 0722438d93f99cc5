//! The part of a queue that other threads may use. A queue belongs to one thread. Another thread
//! that has something for the queue stores it here, sets the notice flag, and wakes the queue's
//! thread if that sleeps. So the data path needs to test only one flag.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use completion::Mode;
use driver::Completed;
use hw::DmaBuf;
use sync::{Inbox, ModeCell, WakeFlag};
use units::Nanos;

use super::requests::Requests;
use crate::counters::{DeviceCounters, HardwareCounters};
use crate::error::QueueError;
use crate::transport::TransportCounts;
use crate::wake::Wake;

/// The shared part of a queue.
pub(crate) struct QueueShared {
    /// For a controller: the identifier of the hardware queue. For a file: a number from 1, which
    /// no other queue of the file has.
    pub id: u16,
    /// The kernel's own mode (IOPOLL, SQPOLL) that the ring was made for, if any.
    pub made_for: Option<Mode>,
    /// The requested mode and the mode in force.
    pub mode: ModeCell<Mode>,
    /// Armed while the queue's thread sleeps.
    pub wake: Arc<Wake>,
    /// Another thread has left something: in the inbox, in `fails`, or a tag that the queue waits
    /// for.
    noticed: AtomicBool,
    /// Completions of this queue that another thread has reaped, or that a reset has made.
    pub inbox: Inbox<Completed>,
    /// Bits [`QueueShared::FAIL_RETRIES`] and [`QueueShared::FAIL_ALL`]. If neither is set,
    /// requests that cannot be posted wait.
    fails: AtomicU8,
    /// Number of requests that are not finished.
    open: AtomicU32,
    /// The requests of a queue whose thread is gone.
    left: Mutex<Option<Box<Requests>>>,
    /// The thread is gone, and requests are still open.
    orphaned: AtomicBool,
    /// When the next request exceeds its time-out. [`Nanos::MAX`]: nothing is in flight, or the
    /// controller's task finds late requests by itself.
    late_at: AtomicU64,
    /// Armed while the controller's task has stopped adjusting coalescing, because nothing
    /// completes. The queue's thread then kicks the task at the next completion.
    pub idle: WakeFlag,
    pub counts: Arc<TransportCounts>,
}

impl QueueShared {
    /// Requests are not retried any more.
    const FAIL_RETRIES: u8 = 1;
    /// The controller is given up, or its path is lost: requests that wait fail, until the path is
    /// live again.
    const FAIL_ALL: u8 = 2;

    /// Queue `id`, with an inbox for `parts` completions.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new(id: u16, parts: u32, mode: Mode) -> std::io::Result<QueueShared> {
        Ok(QueueShared {
            id,
            made_for: mode.is_the_kernels().then_some(mode),
            mode: ModeCell::new(mode),
            wake: Arc::new(Wake::new()?),
            noticed: AtomicBool::new(false),
            inbox: Inbox::new(parts as usize),
            fails: AtomicU8::new(0),
            open: AtomicU32::new(0),
            left: Mutex::new(None),
            orphaned: AtomicBool::new(false),
            late_at: AtomicU64::new(u64::MAX),
            idle: WakeFlag::new(),
            counts: Arc::default(),
        })
    }

    /// Any thread, after it has left something: sets the notice flag, and wakes the queue's thread
    /// if it sleeps.
    pub(crate) fn notice(&self) {
        // Release: what was left is visible to the thread that sees the flag. `Wake::notify` has a
        // SeqCst fence before it tests whether the thread sleeps (invariant 1).
        self.noticed.store(true, Release);
        self.wake.notify();
    }

    /// The queue's thread: whether the notice flag is set. One load.
    #[inline]
    pub(crate) fn is_noticed(&self) -> bool {
        self.noticed.load(Acquire)
    }

    /// The queue's thread, before it takes what was left: clears the notice flag.
    pub(crate) fn take_notice(&self) {
        // A swap, not a store: it also acquires what was left by a notice that came after the load.
        self.noticed.swap(false, AcqRel);
    }

    /// The queue's thread: sets the number of open requests.
    #[inline]
    pub(crate) fn set_open(&self, open: u32) {
        // Relaxed: readers use it as an estimate, or know from elsewhere that the thread is gone.
        self.open.store(open, Relaxed);
    }

    /// The queue's thread: sets when the next request exceeds its time-out.
    pub(crate) fn set_late_at(&self, at: Nanos) {
        self.late_at.store(at.0, Relaxed);
    }

    /// When the next request exceeds its time-out.
    pub(crate) fn late_at(&self) -> Nanos {
        Nanos(self.late_at.load(Relaxed))
    }

    /// Number of requests that are not finished.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// From now on no request is retried.
    pub(crate) fn fail_retries(&self) {
        self.fails.fetch_or(QueueShared::FAIL_RETRIES, Release);
        self.notice();
    }

    /// The controller is given up, or its path is lost: from now on requests that wait fail.
    pub(crate) fn fail_all(&self) {
        self.fails.fetch_or(QueueShared::FAIL_ALL, Release);
        self.notice();
    }

    /// The path is live again: ends [`QueueShared::fail_all`].
    pub(crate) fn revive(&self) {
        // FAIL_RETRIES stays set, because the application has requested it.
        self.fails.fetch_and(!QueueShared::FAIL_ALL, Release);
        self.notice();
    }

    /// Whether requests are not retried.
    pub(crate) fn fails_retries(&self) -> bool {
        self.fails.load(Acquire) & QueueShared::FAIL_RETRIES != 0
    }

    /// Whether the controller is given up.
    pub(crate) fn fails_all(&self) -> bool {
        self.fails.load(Acquire) & QueueShared::FAIL_ALL != 0
    }

    /// The requests that the queue's last thread has left, for the next thread or the housekeeping
    /// thread.
    pub(crate) fn left(&self) -> MutexGuard<'_, Option<Box<Requests>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether requests are open without a thread.
    pub(crate) fn set_orphaned(&self, orphaned: bool) {
        self.orphaned.store(orphaned, Release);
    }

    /// Whether the thread is gone and requests are still open.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Acquire)
    }

    /// The queue's part of the device's counters.
    pub(crate) fn device_counters(&self) -> DeviceCounters {
        DeviceCounters {
            messages: self.counts.notified.get(),
            notifications: self.counts.notified.get(),
            sq_doorbells: self.counts.submits.get(),
            cq_doorbells: self.counts.takes.get(),
            system_calls: Some(self.counts.system_calls.get()),
            ..DeviceCounters::default()
        }
    }

    /// The counters of its ring.
    pub(crate) fn hardware_counters(&self) -> HardwareCounters {
        let finished = self.counts.reaped.get();
        HardwareCounters {
            finished,
            sq_doorbells: self.counts.submits.get(),
            cq_doorbells: self.counts.takes.get(),
            messages: self.counts.notified.get(),
            vector_finished: finished,
            ..HardwareCounters::default()
        }
    }
}

/// A queue of a file whose thread is gone. The housekeeping thread polls it until no request is
/// open.
pub(crate) trait Orphan: Send {
    /// Polls the queue. Returns the wakers of finished futures, and registered memory. Waking and
    /// dropping run the application's code, so the caller does them on another thread.
    fn poll_orphan(&mut self, now: Nanos) -> (Vec<Waker>, Vec<DmaBuf>);

    /// The queue's shared part.
    fn shared(&self) -> &Arc<QueueShared>;

    /// Has the next poll cancel all requests.
    fn cancel_all(&mut self);

    /// Fails all open requests, and leaks their buffers. Returns the same as
    /// [`Orphan::poll_orphan`], which must not be called again.
    fn lose_all(&mut self) -> (Vec<Waker>, Vec<DmaBuf>);
}

/// The queues of a file or a block device.
pub(crate) struct FileQueues {
    inner: Mutex<(Vec<Arc<QueueShared>>, DeviceCounters)>,
    max: usize,
}

impl FileQueues {
    /// An empty list, for at most `max` queues at once.
    pub(crate) fn new(max: usize) -> FileQueues {
        FileQueues { inner: Mutex::default(), max }
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Arc<QueueShared>>, DeviceCounters)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All queues.
    pub(crate) fn all(&self) -> Vec<Arc<QueueShared>> {
        self.lock().0.clone()
    }

    /// Adds a queue. `mode` is called under the lock, so that a later change of the device's mode
    /// finds the queue in the list. Must be followed by [`FileQueues::remove`].
    ///
    /// # Errors
    /// All queues are taken, or the process has no descriptor left.
    pub(crate) fn add(&self, mode: impl FnOnce() -> Mode) -> Result<Arc<QueueShared>, QueueError> {
        let (queues, _) = &mut *self.lock();
        // Queues without a thread do not count towards the limit, because a thread must get a queue
        // even if another thread has left requests in flight. They have a limit of their own, `max`
        // as well.
        let left = queues.iter().filter(|queue| queue.is_orphaned()).count();
        let id = (1..=u16::MAX).find(|&id| queues.iter().all(|queue| queue.id != id));
        let Some(id) = id.filter(|_| queues.len() - left < self.max && left <= self.max) else {
            return Err(QueueError::AllTaken { queues: self.max });
        };
        let queue = QueueShared::new(id, 0, mode())
            .map_err(|source| QueueError::System { what: "wake-up descriptor", source })?;
        queues.push(Arc::new(queue));
        Ok(queues[queues.len() - 1].clone())
    }

    /// Removes a queue without open requests.
    pub(crate) fn remove(&self, queue: &Arc<QueueShared>) {
        let (queues, past) = &mut *self.lock();
        queues.retain(|other| !Arc::ptr_eq(other, queue));
        // The device's counters include those of queues that are gone.
        *past = past.and(queue.device_counters());
    }

    /// The sum of the counters of all queues, present and past.
    pub(crate) fn counters(&self) -> DeviceCounters {
        let (queues, past) = &*self.lock();
        queues.iter().map(|queue| queue.device_counters()).fold(*past, DeviceCounters::and)
    }
}
