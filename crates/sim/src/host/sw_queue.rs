//! A software queue as its thread sees it: the hardware queue that it posts to, and what waits for its completions.

use completion::{Cycle, Decisions, Mode, Notification, Waiter};
use sync::WaiterId;

use crate::habits::Habits;
use crate::hw_queue::HwQueue;
use crate::sched::TaskId;

/// A software queue of one thread.
#[derive(Debug)]
pub(crate) struct SwQueue {
    /// Its hardware queue.
    pub(crate) queue: usize,
    /// Its thread and its number there: two of one thread may have the same hardware queue.
    sleeper: WaiterId,
    /// When to look, and how to sleep. A plan to look stands until the queue has had its turn.
    pub(crate) waiter: Waiter<Habits>,
    machine: Cycle,
    /// When its last look released the lock, an entry was there that it had not taken: the owner of the notification is told once.
    pub(crate) leaves_some: bool,
    /// The mode that was asked for and not yet adopted.
    pub(crate) wanted: Option<Mode>,
    /// The thread has slept, or was away, since the last look.
    pub(crate) slept: bool,
    /// Its queue has signalled the thread, which reads that now.
    pub(crate) called: bool,
    /// Commands of this thread that are out on it.
    pub(crate) mine: u32,
    /// What policies decided that have been replaced.
    decided: Option<Decisions>,
}

/// Lanes of one thread: 256 on each of 64 devices.
const SW_QUEUE_BITS: u32 = 14;

/// The thread of a lane that owns a notification.
pub(crate) fn thread_of(sleeper: WaiterId) -> TaskId {
    (sleeper.0 >> SW_QUEUE_BITS) as TaskId
}

/// A hardware queue, as the waiter of a lane or of its drain meets it.
pub(crate) struct Bound<'a> {
    queue: &'a HwQueue,
    /// Who the waiter is to the look role, and whether it has left entries behind; of a drain nothing, as it shares the notification
    /// with no other.
    sw_queue: Option<(WaiterId, &'a mut bool)>,
    /// How often its notification was masked.
    pub(crate) masked: u64,
}

impl SwQueue {
    pub(crate) fn new(queue: usize, task: TaskId, n: usize, mode: Mode, machine: Cycle, habits: Habits) -> SwQueue {
        SwQueue {
            queue,
            sleeper: WaiterId((task as u32) << SW_QUEUE_BITS | n as u32),
            waiter: Waiter::new(mode, &machine, habits),
            machine,
            leaves_some: false,
            wanted: None,
            slept: false,
            called: false,
            mine: 0,
            decided: None,
        }
    }

    /// Its waiter, and what that acts on.
    pub(crate) fn bind<'a>(&'a mut self, queue: &'a HwQueue) -> (&'a mut Waiter<Habits>, Bound<'a>) {
        let SwQueue { waiter, sleeper, leaves_some, .. } = self;
        (waiter, Bound { queue, sw_queue: Some((*sleeper, leaves_some)), masked: 0 })
    }

    /// Between two batches: takes over the mode that was asked for. Commands stay in flight.
    pub(crate) fn adopt(&mut self, queue: &HwQueue) {
        if let Some(mode) = self.wanted.take() {
            self.decided = self.decisions();
            let machine = self.machine;
            let (waiter, mut bound) = self.bind(queue);
            waiter.adopt(mode, &machine);
            waiter.settle(&mut bound);
        }
    }

    /// What its policies have decided, if they count it.
    pub(crate) fn decisions(&self) -> Option<Decisions> {
        let mut all = self.decided;
        if let Some(decisions) = self.waiter.policy.decisions() {
            all.get_or_insert_default().add(decisions);
        }
        all
    }

    /// Commands in flight that this thread waits for.
    pub(crate) fn in_flight(&self, queue: &HwQueue) -> u32 {
        if queue.shared { self.mine } else { queue.in_flight() }
    }

    /// Whether the queue's signal is this thread's to follow.
    pub(crate) fn is_signalled(&self, queue: &HwQueue) -> bool {
        queue.signals() > 0 && self.waiter.owner
    }
}

impl<'a> Bound<'a> {
    pub(crate) fn of_drain(queue: &'a HwQueue) -> Bound<'a> {
        Bound { queue, sw_queue: None, masked: 0 }
    }
}

impl Notification for Bound<'_> {
    type Thread = TaskId;

    fn is_shared(&self) -> bool {
        self.queue.shared && self.sw_queue.is_some()
    }

    fn is_alone(&self) -> bool {
        !self.queue.vector_shared
    }

    fn arm(&mut self) {
        self.queue.arm();
    }

    fn mask(&mut self) {
        self.queue.mask();
        self.masked += 1;
    }

    fn pending(&mut self) -> bool {
        self.queue.recheck()
    }

    fn take_role(&mut self) -> bool {
        self.sw_queue.as_ref().is_some_and(|(sleeper, _)| self.queue.role.try_take(*sleeper))
    }

    fn has_role(&self) -> bool {
        self.sw_queue.as_ref().is_some_and(|(sleeper, _)| self.queue.role.owner() == Some(*sleeper))
    }

    fn release_role(&mut self) -> Option<TaskId> {
        self.sw_queue.as_ref().and_then(|(sleeper, _)| self.queue.role.release(*sleeper)).map(thread_of)
    }

    fn other_owner(&mut self) -> Option<TaskId> {
        let (sleeper, leaves_some) = self.sw_queue.as_mut()?;
        let owner = std::mem::take(*leaves_some).then(|| self.queue.role.owner().map(thread_of))??;
        Some(owner).filter(|&owner| owner != thread_of(*sleeper))
    }
}
