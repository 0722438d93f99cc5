//! What other threads may touch of a queue that belongs to one thread.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use completion::Mode;
use hw::DmaBuf;
use sync::ModeCell;
use units::Nanos;

use crate::counters::{DeviceCounters, HardwareCounters};
use crate::error::QueueError;
use crate::link::TransportCounts;
use crate::wake::Wake;

/// What other threads may touch of a queue: how it is asked for something, and what it has counted.
pub(crate) struct QueueShared {
    /// From 1; the lowest that no other queue of the device has.
    pub id: u16,
    /// The mode of the kernel's own that its rings are made for, if they are.
    pub made_for: Option<Mode>,
    /// The completion mode that was asked for, and the one in force.
    pub mode: ModeCell<Mode>,
    /// Armed while the queue's thread sleeps.
    pub wake: Arc<Wake>,
    /// Requests that are not finished.
    open: AtomicU32,
    /// Its thread is gone, and something is still open.
    orphaned: AtomicBool,
    /// When a request may be late; [`Nanos::MAX`]: nothing is in flight.
    late_at: AtomicU64,
    /// Nothing is posted again from now on.
    fails_pending: AtomicBool,
    pub counts: Arc<TransportCounts>,
}

impl QueueShared {
    /// # Errors
    /// The system has no eventfd left.
    pub(crate) fn new(id: u16, mode: Mode) -> std::io::Result<QueueShared> {
        Ok(QueueShared {
            id,
            made_for: mode.is_the_kernels().then_some(mode),
            mode: ModeCell::new(mode),
            wake: Arc::new(Wake::new()?),
            open: AtomicU32::new(0),
            orphaned: AtomicBool::new(false),
            late_at: AtomicU64::new(u64::MAX),
            fails_pending: AtomicBool::new(false),
            counts: Arc::default(),
        })
    }

    /// The queue's thread: how many requests are open.
    #[inline]
    pub(crate) fn set_open(&self, open: u32) {
        self.open.store(open, Relaxed);
    }

    /// The queue's thread: when a request may be late.
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

    /// From now on nothing is posted again.
    pub(crate) fn fail_pending(&self) {
        self.fails_pending.store(true, Relaxed);
        self.wake.tell();
    }

    /// Whether nothing is to be posted again.
    #[inline]
    pub(crate) fn fails_pending(&self) -> bool {
        self.fails_pending.load(Relaxed)
    }

    /// What was published, as a part of its device.
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

    /// The same of the queue alone.
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

/// A queue without a thread, which is still polled until nothing of it is open.
pub(crate) trait Orphan: Send {
    /// Polls it. What is to run or to be dropped where the application's code may run: wakers of futures, and memory.
    fn turn(&mut self, now: Nanos) -> (Vec<Waker>, Vec<DmaBuf>);

    /// What it shares with its device.
    fn shared(&self) -> &Arc<QueueShared>;

    /// Has the next turn cancel everything.
    fn cancel_all(&mut self);

    /// Fails everything that is open, and leaks its buffers. The same to run or to be dropped as of a turn; no turn may follow.
    fn lose_all(&mut self) -> (Vec<Waker>, Vec<DmaBuf>);
}

/// The queues of a file or a block device.
pub(crate) struct FileQueues {
    inner: Mutex<(Vec<Arc<QueueShared>>, DeviceCounters)>,
    most: usize,
}

impl FileQueues {
    /// None yet, and `most` at once.
    pub(crate) fn new(most: usize) -> FileQueues {
        FileQueues { inner: Mutex::default(), most }
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Arc<QueueShared>>, DeviceCounters)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that there are now.
    pub(crate) fn all(&self) -> Vec<Arc<QueueShared>> {
        self.lock().0.clone()
    }

    /// Another one, in the `mode` of this moment: whoever changes the mode of the device afterwards finds the queue. [`FileQueues::remove`]
    /// follows.
    ///
    /// # Errors
    /// There are as many as may be; or the system has no eventfd left.
    pub(crate) fn add(&self, mode: impl FnOnce() -> Mode) -> Result<Arc<QueueShared>, QueueError> {
        let (queues, _) = &mut *self.lock();
        // What a thread has left in flight keeps no other from a queue: as many may be left as there may be users.
        let left = queues.iter().filter(|queue| queue.orphaned.load(Relaxed)).count();
        let id = (1..=u16::MAX).find(|&id| queues.iter().all(|queue| queue.id != id));
        let Some(id) = id.filter(|_| queues.len() - left < self.most && left <= self.most) else {
            return Err(QueueError::AllTaken { queues: self.most });
        };
        let queue = QueueShared::new(id, mode()).map_err(|source| QueueError::System { what: "wake-up descriptor", source })?;
        queues.push(Arc::new(queue));
        Ok(queues[queues.len() - 1].clone())
    }

    /// It has no thread any more, and something is still open.
    pub(crate) fn orphaned(&self, queue: &QueueShared) {
        queue.orphaned.store(true, Relaxed);
    }

    /// It is gone, and nothing of it is open.
    pub(crate) fn remove(&self, queue: &Arc<QueueShared>) {
        let (queues, past) = &mut *self.lock();
        queues.retain(|other| !Arc::ptr_eq(other, queue));
        *past = past.and(queue.device_counters());
    }

    /// What all have counted, those that are gone included.
    pub(crate) fn counters(&self) -> DeviceCounters {
        let (queues, past) = &*self.lock();
        queues.iter().map(|queue| queue.device_counters()).fold(*past, DeviceCounters::and)
    }
}
