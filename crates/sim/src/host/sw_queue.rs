//! A software queue of a thread: the hardware queue that it posts to, and the policy that decides
//! how its completions are found.

use completion::{AdaptiveState, Cycle, Decisions, Mode, Notification, Waiter};
use sync::WaiterId;

use crate::ablation::Ablation;
use crate::hw_queue::HwQueue;
use crate::sched::TaskId;

/// A software queue of one thread.
#[derive(Debug)]
pub(crate) struct SwQueue {
    /// The hardware queue.
    pub(crate) queue: usize,
    /// Thread and number of the software queue. Two of one thread may share a hardware queue.
    sleeper: WaiterId,
    /// Policy and plan. A plan to poll remains until the queue has been polled.
    pub(crate) waiter: Waiter<Ablation>,
    machine: Cycle,
    /// The last poll left an entry behind. The notification's owner is woken once for that.
    pub(crate) leaves_some: bool,
    /// A requested mode that is not in force yet.
    pub(crate) wanted: Option<Mode>,
    /// The thread has slept, or was away, since the last poll.
    pub(crate) slept: bool,
    /// The queue has signalled the thread, which reads the signal now.
    pub(crate) called: bool,
    /// Commands of this thread that are in flight on it.
    pub(crate) mine: u32,
    /// Decisions of policies that have been replaced.
    decided: Option<Decisions>,
}

/// Bits for the software queues of one thread: 256 on each of 64 devices.
const SW_QUEUE_BITS: u32 = 14;

/// The thread of a software queue that owns a notification.
pub(crate) fn thread_of(sleeper: WaiterId) -> TaskId {
    (sleeper.0 >> SW_QUEUE_BITS) as TaskId
}

/// A hardware queue as [`Notification`] for a waiter: that of a software queue, or of a drain.
pub(crate) struct Bound<'a> {
    queue: &'a HwQueue,
    /// The identity for the notification role, and whether entries were left behind. `None`: a
    /// drain, which shares the notification with no other.
    sw_queue: Option<(WaiterId, &'a mut bool)>,
    /// How often the notification was masked.
    pub(crate) masked: u64,
}

impl SwQueue {
    pub(crate) fn new(
        queue: usize,
        task: TaskId,
        n: usize,
        mode: Mode,
        machine: Cycle,
        ablation: Ablation,
    ) -> SwQueue {
        SwQueue {
            queue,
            sleeper: WaiterId((task as u32) << SW_QUEUE_BITS | n as u32),
            waiter: Waiter::new(mode, &machine, ablation),
            machine,
            leaves_some: false,
            wanted: None,
            slept: false,
            called: false,
            mine: 0,
            decided: None,
        }
    }

    /// The waiter, and the hardware queue that it acts on.
    pub(crate) fn bind<'a>(
        &'a mut self,
        queue: &'a HwQueue,
    ) -> (&'a mut Waiter<Ablation>, Bound<'a>) {
        let SwQueue { waiter, sleeper, leaves_some, .. } = self;
        (waiter, Bound { queue, sw_queue: Some((*sleeper, leaves_some)), masked: 0 })
    }

    /// Switches to the requested mode, between two batches. Commands stay in flight.
    pub(crate) fn adopt(&mut self, queue: &HwQueue) {
        if let Some(mode) = self.wanted.take() {
            // What the old policy decided still counts.
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
        if let Some(state) = self.waiter.policy.state() {
            all.get_or_insert_default().add(&state.decisions);
        }
        all
    }

    /// What its policy does, and why, if that is `adaptive`.
    pub(crate) fn state(&self) -> Option<AdaptiveState> {
        self.waiter.policy.state().copied()
    }

    /// Commands in flight that this thread waits for.
    pub(crate) fn in_flight(&self, queue: &HwQueue) -> u32 {
        if queue.shared { self.mine } else { queue.in_flight() }
    }

    /// Whether the queue's signal is for this thread.
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
        self.sw_queue
            .as_ref()
            .and_then(|(sleeper, _)| self.queue.role.release(*sleeper))
            .map(thread_of)
    }

    fn other_owner(&mut self) -> Option<TaskId> {
        let (sleeper, leaves_some) = self.sw_queue.as_mut()?;
        let owner =
            std::mem::take(*leaves_some).then(|| self.queue.role.owner().map(thread_of))??;
        Some(owner).filter(|&owner| owner != thread_of(*sleeper))
    }
}
