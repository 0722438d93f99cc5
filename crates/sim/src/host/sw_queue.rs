//! A software queue: what one thread has of a hardware queue. Unlike blk-mq's it holds no requests:
//! it is the number of the hardware queue that the thread posts to, and the policy that decides how
//! the thread finds its completions there.

use completion::{AdaptiveState, Decisions, Mode, Notification, SleepCosts, Waiter};
use sync::WaiterId;

use crate::ablation::Ablation;
use crate::hw_queue::HwQueue;
use crate::sched::TaskId;

/// A software queue of one thread.
#[derive(Debug)]
pub(crate) struct SwQueue {
    /// Number of the hardware queue.
    pub(crate) queue: usize,
    /// The thread's number and the number of this software queue among the thread's. Two software
    /// queues of a thread may share a hardware queue, so the thread alone does not identify the
    /// owner of a notification.
    id: WaiterId,
    /// Policy and plan. A plan to poll remains until the queue has been polled.
    pub(crate) waiter: Waiter<Ablation>,
    /// What the machine's sleeps cost, for policies.
    cycle: SleepCosts,
    /// The last poll stopped before the completion queue was empty. The owner of the notification
    /// is then woken once, to reap the rest.
    pub(crate) left_entries: bool,
    /// A requested mode that is not in force yet.
    pub(crate) wanted: Option<Mode>,
    /// Since the last poll the thread has slept, or the application has computed.
    pub(crate) slept: bool,
    /// The thread was woken by the signal of this queue's eventfd.
    pub(crate) signalled: bool,
    /// Commands of this software queue that are in flight.
    pub(crate) mine: u32,
    /// Decisions of the policies of earlier modes.
    decided: Option<Decisions>,
}

/// Bits of a [`WaiterId`] for the number of a thread's software queue: 256 on each of 64 devices.
const SW_QUEUE_BITS: u32 = 14;

/// The thread of a software queue that owns a notification.
pub(crate) fn thread_of(id: WaiterId) -> TaskId {
    (id.0 >> SW_QUEUE_BITS) as TaskId
}

/// Implements [`Notification`] (the interrupt of a hardware queue, and its owner) for the
/// [`Waiter`] of a software queue or of a drain. A drain reaps a queue in an interrupt handler, a
/// softirq or an interrupt thread, for the threads that submitted.
pub(crate) struct NotificationOf<'a> {
    queue: &'a HwQueue,
    /// Of a software queue: its id in the queue's `role`, which says who owns the notification, and
    /// [`SwQueue::left_entries`]. `None`: a drain, which does not share the notification.
    sw_queue: Option<(WaiterId, &'a mut bool)>,
    /// How many times the notification was masked.
    pub(crate) masked: u64,
}

impl SwQueue {
    pub(crate) fn new(
        queue: usize,
        task: TaskId,
        n: usize,
        mode: Mode,
        cycle: SleepCosts,
        ablation: Ablation,
    ) -> SwQueue {
        SwQueue {
            queue,
            id: WaiterId((task as u32) << SW_QUEUE_BITS | n as u32),
            waiter: Waiter::new(mode, &cycle, ablation),
            cycle,
            left_entries: false,
            wanted: None,
            slept: false,
            signalled: false,
            mine: 0,
            decided: None,
        }
    }

    /// The waiter, and the notification of the hardware queue for it to act on.
    pub(crate) fn bind<'a>(
        &'a mut self,
        queue: &'a HwQueue,
    ) -> (&'a mut Waiter<Ablation>, NotificationOf<'a>) {
        let SwQueue { waiter, id, left_entries, .. } = self;
        (waiter, NotificationOf { queue, sw_queue: Some((*id, left_entries)), masked: 0 })
    }

    /// Switches to the requested mode, between two batches. Commands stay in flight.
    pub(crate) fn adopt(&mut self, queue: &HwQueue) {
        if let Some(mode) = self.wanted.take() {
            // The totals include what the old policy has decided.
            self.decided = self.decisions();
            let cycle = self.cycle;
            let (waiter, mut notification) = self.bind(queue);
            waiter.adopt(mode, &cycle);
            waiter.settle(&mut notification);
        }
    }

    /// Counts of the decisions of its policies so far; `None` if no policy counts them.
    pub(crate) fn decisions(&self) -> Option<Decisions> {
        let mut all = self.decided;
        if let Some(state) = self.waiter.policy.state() {
            all.get_or_insert_default().add(&state.decisions);
        }
        all
    }

    /// The action of `adaptive` in force, and its reason; `None` for other policies.
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

impl<'a> NotificationOf<'a> {
    pub(crate) fn of_drain(queue: &'a HwQueue) -> NotificationOf<'a> {
        NotificationOf { queue, sw_queue: None, masked: 0 }
    }
}

impl Notification for NotificationOf<'_> {
    type Thread = TaskId;

    fn is_shared(&self) -> bool {
        self.queue.shared && self.sw_queue.is_some()
    }

    fn has_own_vector(&self) -> bool {
        // Alone on the interrupt vector: threads may share the completion queue all the same.
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
        self.sw_queue.as_ref().is_some_and(|(id, _)| self.queue.role.try_take(*id))
    }

    fn has_role(&self) -> bool {
        self.sw_queue.as_ref().is_some_and(|(id, _)| self.queue.role.owner() == Some(*id))
    }

    fn release_role(&mut self) -> Option<TaskId> {
        self.sw_queue.as_ref().and_then(|(id, _)| self.queue.role.release(*id)).map(thread_of)
    }

    fn other_owner(&mut self) -> Option<TaskId> {
        let (id, left_entries) = self.sw_queue.as_mut()?;
        let owner =
            std::mem::take(*left_entries).then(|| self.queue.role.owner().map(thread_of))??;
        Some(owner).filter(|&owner| owner != thread_of(*id))
    }
}
