//! What other threads may touch of a queue that belongs to one thread.

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

/// What other threads may touch of a queue: how it is asked for something, what they leave for it, and what it has counted.
pub(crate) struct QueueShared {
    /// Of a controller: its hardware queue's identifier. Of a file: the lowest, from 1, that no other queue of the file has.
    pub id: u16,
    /// The mode of the kernel's own that its rings are made for, if they are.
    pub made_for: Option<Mode>,
    /// The completion mode that was asked for, and the one in force.
    pub mode: ModeCell<Mode>,
    /// Armed while the queue's thread sleeps.
    pub wake: Arc<Wake>,
    /// Another thread has left something for this one: in the inbox, in `fails`, or a tag that it waits for.
    noticed: AtomicBool,
    /// Completions of this queue that another thread has reaped, or a reset has made.
    pub inbox: Inbox<Completed>,
    /// What becomes of requests that cannot be posted now: they wait, or [`QueueShared::FAIL_RETRIES`] and [`QueueShared::FAIL_ALL`].
    fails: AtomicU8,
    /// Requests that are not finished.
    open: AtomicU32,
    /// Requests of a queue whose thread is gone.
    left: Mutex<Option<Box<Requests>>>,
    /// Its thread is gone, and something is still open.
    orphaned: AtomicBool,
    /// When a request may be late; [`Nanos::MAX`]: nothing is in flight, or the controller's task looks for late requests.
    late_at: AtomicU64,
    /// For how many entries its policy would have messages held back, and for how many the controller holds them back.
    holds: AtomicU32,
    held: AtomicU32,
    /// Armed while the controller's moderator has stopped because nothing completes.
    pub idle: WakeFlag,
    pub counts: Arc<TransportCounts>,
}

impl QueueShared {
    /// Nothing is posted again, for good; what waits fails, until the controller is back.
    const FAIL_RETRIES: u8 = 1;
    const FAIL_ALL: u8 = 2;

    /// A queue that is named `id`, with room for `parts` completions that other threads reap.
    ///
    /// # Errors
    /// The system has no eventfd left.
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
            holds: AtomicU32::new(0),
            held: AtomicU32::new(0),
            idle: WakeFlag::new(),
            counts: Arc::default(),
        })
    }

    /// Another thread has left something for the queue's thread, which is woken if it sleeps.
    pub(crate) fn notice(&self) {
        self.noticed.store(true, Release);
        self.wake.tell();
    }

    /// The queue's thread: whether another one has left something. One load.
    #[inline]
    pub(crate) fn is_noticed(&self) -> bool {
        self.noticed.load(Acquire)
    }

    /// The queue's thread, before it takes what was left.
    pub(crate) fn take_notice(&self) {
        self.noticed.swap(false, AcqRel);
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
    pub(crate) fn fail_retries(&self) {
        self.fails.fetch_or(QueueShared::FAIL_RETRIES, Release);
        self.notice();
    }

    /// The controller is given up: what waits fails, and whatever is still to come.
    pub(crate) fn fail_all(&self) {
        self.fails.fetch_or(QueueShared::FAIL_ALL, Release);
        self.notice();
    }

    /// The controller is back: what waits is posted.
    pub(crate) fn revive(&self) {
        self.fails.fetch_and(!QueueShared::FAIL_ALL, Release);
        self.notice();
    }

    /// Whether nothing is to be posted again.
    pub(crate) fn fails_retries(&self) -> bool {
        self.fails.load(Acquire) & QueueShared::FAIL_RETRIES != 0
    }

    /// Whether the controller is given up.
    pub(crate) fn fails_all(&self) -> bool {
        self.fails.load(Acquire) & QueueShared::FAIL_ALL != 0
    }

    /// The queue's thread is gone, or another one takes its place: the requests that are left, for the next thread or the housekeeping thread.
    pub(crate) fn left(&self) -> MutexGuard<'_, Option<Box<Requests>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its thread is gone, or there is one again.
    pub(crate) fn set_orphaned(&self, orphaned: bool) {
        self.orphaned.store(orphaned, Release);
    }

    /// Whether its thread is gone, and something is still open.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Acquire)
    }

    /// For how many entries its policy would have messages held back; 0: for none.
    #[inline]
    pub(crate) fn holds(&self) -> u32 {
        self.holds.load(Relaxed)
    }

    /// Its policy asks for something else. Whether it was the first to ask for anything.
    pub(crate) fn asks_to_hold(&self, entries: u32) -> bool {
        self.holds.swap(entries, Relaxed) == 0
    }

    /// The controller has confirmed that it holds this many entries back before a message.
    pub(crate) fn set_held(&self, entries: u32) {
        self.held.store(entries, Relaxed);
    }

    /// This many entries are held back before a message.
    #[inline]
    pub(crate) fn held(&self) -> u32 {
        self.held.load(Relaxed)
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

    /// Another one, in the `mode` of this moment: a change of the device's mode that comes later finds the queue. [`FileQueues::remove`]
    /// follows.
    ///
    /// # Errors
    /// There are as many as may be; or the system has no eventfd left.
    pub(crate) fn add(&self, mode: impl FnOnce() -> Mode) -> Result<Arc<QueueShared>, QueueError> {
        let (queues, _) = &mut *self.lock();
        // What a thread has left in flight keeps no other from a queue: as many may be left as there may be users.
        let left = queues.iter().filter(|queue| queue.is_orphaned()).count();
        let id = (1..=u16::MAX).find(|&id| queues.iter().all(|queue| queue.id != id));
        let Some(id) = id.filter(|_| queues.len() - left < self.most && left <= self.most) else {
            return Err(QueueError::AllTaken { queues: self.most });
        };
        let queue = QueueShared::new(id, 0, mode()).map_err(|source| QueueError::System { what: "wake-up descriptor", source })?;
        queues.push(Arc::new(queue));
        Ok(queues[queues.len() - 1].clone())
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
