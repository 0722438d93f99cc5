//! The hardware queues of a device: all there from the start, or one made for each queue that is taken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use completion::Mode;
use nvme::QueueId;

use super::hw_queue::HwQueue;
use super::reports::Reporter;
use super::soft::Soft;
use crate::counters::DeviceCounters;
use crate::error::QueueError;
use crate::link::{KernelLink, Lane, Reaper, UringLane};

/// The hardware queues, and which software queues of theirs nobody has.
pub(crate) struct Roster {
    inner: Mutex<Inner>,
    /// Software queues that there may be.
    most: usize,
    /// They are made as they are taken.
    grows: bool,
}

struct Inner {
    /// What makes them, where they are not there from the start, until the device is closed.
    maker: Option<Maker>,
    queues: Vec<Arc<HwQueue>>,
    /// Hardware queue and place in it, in descending order.
    free: Vec<(usize, u8)>,
    /// What those have counted that are gone.
    past: DeviceCounters,
    /// Those that nobody has, and of which something is still open.
    left: Vec<Arc<HwQueue>>,
}

/// What a queue of a file is made of.
pub(crate) struct Maker {
    pub link: Arc<KernelLink>,
    /// Requests in flight on each.
    pub depth: u32,
    pub reporter: Reporter,
}

impl Roster {
    /// All that there will be; `free`: hardware queue and place in it, in descending order.
    pub(crate) fn fixed(queues: Vec<Arc<HwQueue>>, free: Vec<(usize, u8)>) -> Roster {
        let most = free.len();
        Roster {
            inner: Mutex::new(Inner { maker: None, queues, free, past: DeviceCounters::default(), left: Vec::new() }),
            most,
            grows: false,
        }
    }

    /// None yet, and `most` at once.
    pub(crate) fn growing(maker: Maker, most: usize) -> Roster {
        let inner = Inner { maker: Some(maker), queues: Vec::new(), free: Vec::new(), past: DeviceCounters::default(), left: Vec::new() };
        Roster { inner: Mutex::new(inner), most, grows: true }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether queues are made as they are taken.
    pub(crate) fn grows(&self) -> bool {
        self.grows
    }

    /// Those that there are now.
    pub(crate) fn all(&self) -> Vec<Arc<HwQueue>> {
        self.inner().queues.clone()
    }

    /// What those have counted that are gone.
    pub(crate) fn past(&self) -> DeviceCounters {
        self.inner().past
    }

    /// Takes a software queue for the calling thread: its hardware queue, and its place there.
    ///
    /// # Errors
    /// All of them are taken, or the system refuses another.
    pub(crate) fn take(&self, user: Reaper, mode: Mode) -> Result<(Arc<HwQueue>, u8), QueueError> {
        let mut inner = self.inner();
        if !self.grows {
            let (hardware, me) = inner.free.pop().ok_or(QueueError::AllTaken { queues: self.most })?;
            return Ok((inner.queues[hardware].clone(), me));
        }
        let all_taken = QueueError::AllTaken { queues: self.most };
        inner.retire();
        // What a thread has left in flight ends without it, and keeps no other from a queue: as many may be left as there may be users.
        let (had, left) = (inner.queues.len() - inner.left.len(), inner.left.len());
        let Some(maker) = inner.maker.as_ref().filter(|_| had < self.most && left <= self.most) else { return Err(all_taken) };
        let used = |id: u16| inner.queues.iter().any(|queue| queue.lane.id().0 == id);
        let id = (1..=u16::MAX).find(|&id| !used(id)).unwrap_or(u16::MAX);
        let queue = Arc::new(maker.make(QueueId(id), user, mode)?);
        inner.queues.push(queue.clone());
        Ok((queue, 0))
    }

    /// Nobody has the software queue any more.
    pub(crate) fn give_back(&self, queue: &Arc<HwQueue>, me: u8) {
        let mut inner = self.inner();
        if self.grows {
            inner.left.push(queue.clone());
            return inner.retire();
        }
        if let Some(hardware) = inner.queues.iter().position(|other| Arc::ptr_eq(other, queue)) {
            inner.free.push((hardware, me));
        }
    }

    /// Nobody uses the device any more: what is not in flight lets go of the file at once, so that it can be opened again.
    pub(crate) fn shut(&self) {
        self.inner().maker = None;
    }

    /// Those that there are, for as long as the guard lives: none of them goes meanwhile, and the device is not closed.
    pub(crate) fn present(&self) -> Present<'_> {
        Present(self.inner())
    }
}

/// The hardware queues of a device, locked.
pub(crate) struct Present<'a>(MutexGuard<'a, Inner>);

impl Present<'_> {
    /// The queues.
    pub(crate) fn queues(&self) -> &[Arc<HwQueue>] {
        &self.0.queues
    }

    /// Queues that were made for one thread, and that nobody has, go as soon as nothing of them is open.
    pub(crate) fn retire(&mut self) {
        self.0.retire();
    }

    /// One of them goes although something is open: the queue, and all that is in flight, stays as it is until the process ends.
    pub(crate) fn abandon(&mut self, queue: Arc<HwQueue>) {
        self.0.queues.retain(|other| !Arc::ptr_eq(other, &queue));
        self.0.left.retain(|other| !Arc::ptr_eq(other, &queue));
        std::mem::forget(queue);
    }
}

impl Inner {
    fn retire(&mut self) {
        let Inner { queues, past, left, .. } = self;
        left.retain(|queue| {
            let open = queue.softs.iter().any(|soft| soft.open() > 0);
            if !open {
                queues.retain(|other| !Arc::ptr_eq(other, queue));
                *past = past.and(queue.counted(|_| false));
            }
            open
        });
    }
}

impl Maker {
    fn make(&self, id: QueueId, user: Reaper, mode: Mode) -> Result<HwQueue, QueueError> {
        let system = |what| move |source| QueueError::System { what, source };
        let soft = Soft::new(0, 2 * self.depth, mode).map_err(system("wake-up descriptor"))?;
        if mode.is_the_kernels() {
            let lane = UringLane::kernels(&self.link, (id, self.depth), &soft.wake, user == Reaper::Owner, mode)?;
            let softs = Box::new([Arc::new(soft)]);
            return HwQueue::new(Lane::Uring(lane), None, softs, self.reporter.clone()).map_err(system("drain descriptor"));
        }
        let lane = UringLane::new(&self.link, id, self.depth, &soft.wake, user == Reaper::Owner)?;
        let polled = UringLane::polled(&self.link, id, self.depth, &soft.wake, user == Reaper::Owner);
        let softs = Box::new([Arc::new(soft)]);
        HwQueue::new(Lane::Uring(lane), polled.map(Lane::Uring), softs, self.reporter.clone()).map_err(system("drain descriptor"))
    }
}
