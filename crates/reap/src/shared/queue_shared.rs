//! The part of a queue that other threads may use. A queue belongs to one thread; another thread
//! that has something for it stores it here, sets the notice flag, and wakes the thread if it
//! sleeps. So the data path tests one flag, whatever has happened.

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
    /// For a controller: the identifier of the hardware queue. For a file: the lowest number from 1
    /// that no other queue of the file has.
    pub id: u16,
    /// The mode of the kernel's own (IOPOLL, SQPOLL) that the ring was made for, if any.
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
    /// Bits [`QueueShared::FAIL_RETRIES`] and [`QueueShared::FAIL_ALL`]. With neither set, requests
    /// that cannot be posted wait.
    fails: AtomicU8,
    /// Requests that are not finished.
    open: AtomicU32,
    /// The requests of a queue whose thread is gone.
    left: Mutex<Option<Box<Requests>>>,
    /// The thread is gone, and requests are still open.
    orphaned: AtomicBool,
    /// When a request may be late. [`Nanos::MAX`]: nothing is in flight, or the controller's task
    /// finds late requests by itself.
    late_at: AtomicU64,
    /// Armed while the controller's task does not adjust coalescing because nothing completes.
    pub idle: WakeFlag,
    pub counts: Arc<TransportCounts>,
}

impl QueueShared {
    /// Requests are not retried, ever again.
    const FAIL_RETRIES: u8 = 1;
    /// The controller is given up: requests that wait fail, until it is back (`multipath:`).
    const FAIL_ALL: u8 = 2;

    /// Queue `id`, with an inbox of `parts` places.
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
        // Release: what was left is visible to the thread that sees the flag. `tell` has a SeqCst
        // fence before it tests whether the thread sleeps (invariant 1).
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
        // A swap, not a store: it acquires what a notice that came since the load has published.
        self.noticed.swap(false, AcqRel);
    }

    /// The queue's thread: sets the number of open requests.
    #[inline]
    pub(crate) fn set_open(&self, open: u32) {
        // Relaxed: readers use it as an estimate, or know from elsewhere that the thread is gone.
        self.open.store(open, Relaxed);
    }

    /// The queue's thread: sets when a request may be late.
    pub(crate) fn set_late_at(&self, at: Nanos) {
        self.late_at.store(at.0, Relaxed);
    }

    /// When a request may be late.
    pub(crate) fn late_at(&self) -> Nanos {
        Nanos(self.late_at.load(Relaxed))
    }

    /// Requests that are not finished.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// From now on nothing is retried.
    pub(crate) fn fail_retries(&self) {
        self.fails.fetch_or(QueueShared::FAIL_RETRIES, Release);
        self.notice();
    }

    /// The controller is given up: requests that wait fail, now and later.
    pub(crate) fn fail_all(&self) {
        self.fails.fetch_or(QueueShared::FAIL_ALL, Release);
        self.notice();
    }

    /// The controller is back: requests that wait are posted.
    pub(crate) fn revive(&self) {
        // FAIL_RETRIES stays: the application has asked for it.
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

/// A queue without a thread, which the housekeeping thread polls until nothing is open.
pub(crate) trait Orphan: Send {
    /// Polls it. Returns the wakers of finished futures, and registered memory to drop. Both run
    /// the application's code, so the caller does that on another thread.
    fn poll_orphan(&mut self, now: Nanos) -> (Vec<Waker>, Vec<DmaBuf>);

    /// Its shared part.
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
    most: usize,
}

impl FileQueues {
    /// No queues yet; at most `most` at once.
    pub(crate) fn new(most: usize) -> FileQueues {
        FileQueues { inner: Mutex::default(), most }
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
        // Queues without a thread do not count towards the limit: a thread must get a queue
        // although another thread has left requests in flight. There may be as many of them again.
        let left = queues.iter().filter(|queue| queue.is_orphaned()).count();
        let id = (1..=u16::MAX).find(|&id| queues.iter().all(|queue| queue.id != id));
        let Some(id) = id.filter(|_| queues.len() - left < self.most && left <= self.most) else {
            return Err(QueueError::AllTaken { queues: self.most });
        };
        let queue = QueueShared::new(id, 0, mode())
            .map_err(|source| QueueError::System { what: "wake-up descriptor", source })?;
        queues.push(Arc::new(queue));
        Ok(queues[queues.len() - 1].clone())
    }

    /// Removes a queue of which nothing is open.
    pub(crate) fn remove(&self, queue: &Arc<QueueShared>) {
        let (queues, past) = &mut *self.lock();
        queues.retain(|other| !Arc::ptr_eq(other, queue));
        // The device's counters never go back.
        *past = past.and(queue.device_counters());
    }

    /// The sum of the counters of all queues, present and past.
    pub(crate) fn counters(&self) -> DeviceCounters {
        let (queues, past) = &*self.lock();
        queues.iter().map(|queue| queue.device_counters()).fold(*past, DeviceCounters::and)
    }
}
