//! A software queue as its thread sees it: the hardware queue that it posts to, and the policy that says when to look.

use completion::{Cause, Decisions, Mode, Plan, Policy, Seen, Tuning, Woke};
use handover::SleeperId;
use units::Nanos;

use super::TaskId;
use crate::arming::Armed;
use crate::hw_queue::HwQueue;

/// A software queue of one thread.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its hardware queue.
    pub(crate) queue: usize,
    /// Its thread and its number there: two of one thread may have the same hardware queue.
    sleeper: SleeperId,
    pub(crate) policy: Policy,
    tuning: Tuning,
    /// What the policy answered last. A plan to look stands until the queue has had its turn.
    pub(crate) plan: Plan,
    /// What the policy is told next.
    pub(crate) seen: Seen,
    /// When its last look released the lock, an entry was there that it had not taken. Its policy may have been told since, and
    /// have nothing in flight to look for.
    pub(crate) leaves_some: bool,
    /// The mode that was asked for and not yet adopted.
    pub(crate) wanted: Option<Mode>,
    /// The thread has slept, or was away, since the last look.
    pub(crate) slept: bool,
    /// Commands of this thread that are out on it.
    pub(crate) mine: u32,
    /// The thread owns the hardware queue's notification, which others share.
    pub(crate) owner: bool,
    /// The notification has been armed since before the thread slept last: every entry since has sent its message.
    kept: bool,
    /// What policies decided that have been replaced.
    decided: Option<Decisions>,
}

/// Lanes of one thread: 256 on each of 64 devices.
const LANE_BITS: u32 = 14;

/// The thread of a lane that owns a notification.
pub(crate) fn thread_of(sleeper: SleeperId) -> TaskId {
    (sleeper.0 >> LANE_BITS) as TaskId
}

/// A lane and its hardware queue, to be armed.
pub(crate) struct Bound<'a> {
    pub(crate) lane: &'a mut Lane,
    pub(crate) queue: &'a HwQueue,
}

impl Lane {
    pub(crate) fn new(queue: usize, task: TaskId, n: usize, mode: Mode, tuning: Tuning) -> Lane {
        Lane {
            queue,
            sleeper: SleeperId((task as u32) << LANE_BITS | n as u32),
            policy: Policy::with(mode, &tuning),
            tuning,
            plan: Plan::Rest,
            seen: Seen::default(),
            leaves_some: false,
            wanted: None,
            slept: false,
            mine: 0,
            owner: false,
            kept: false,
            decided: None,
        }
    }

    /// Between two batches: takes over the mode that was asked for. Commands stay in flight; the new policy never heard
    /// of them. The notification is set as it wants it, and then there is a look (unless this is the broken twin), as
    /// after any arming: what was posted under the mask has sent no message.
    pub(crate) fn adopt(&mut self, queue: &HwQueue, looks: bool) {
        if let Some(mode) = self.wanted.take() {
            self.decided = self.decisions();
            self.policy = Policy::with(mode, &self.tuning);
            self.settle(queue);
            if looks {
                self.seen.woke = Some(Woke { cause: Cause::Other, late: Nanos::ZERO });
            }
        }
    }

    /// What its policies have decided, if they count it.
    pub(crate) fn decisions(&self) -> Option<Decisions> {
        let mut all = self.decided;
        if let Some(decisions) = self.policy.decisions() {
            all.get_or_insert_default().add(decisions);
        }
        all
    }

    /// Commands in flight that this thread waits for.
    pub(crate) fn in_flight(&self, queue: &HwQueue) -> u32 {
        if queue.shared { self.mine } else { queue.pair.in_flight() }
    }

    /// The thread is awake: masks the notification, unless the policy leaves it alone or it is another thread's. Whether
    /// it did.
    pub(crate) fn mask(&mut self, queue: &HwQueue) -> bool {
        let masks = self.policy.masks() && (self.owner || !queue.shared);
        if masks {
            queue.mask();
            self.kept = false;
        }
        masks
    }

    /// The same after a sleep, but that the notification is kept armed if the policy is content with it.
    pub(crate) fn mask_or_keep(&mut self, queue: &HwQueue) -> bool {
        let armed = self.kept || matches!(self.plan, Plan::Sleep { .. });
        let alone = armed && !queue.shared && !queue.vector_shared;
        self.kept = alone && self.policy.stays_armed(self.plan, self.in_flight(queue));
        !self.kept && self.mask(queue)
    }

    /// It has a plan: masks a notification that was kept armed, unless it may stay so. Whether it did; and it `knows` of it, but
    /// for the broken twin.
    pub(crate) fn mask_if_kept(&mut self, queue: &HwQueue, knows: bool) -> bool {
        let masked = self.kept && !self.policy.stays_armed(self.plan, self.in_flight(queue)) && self.mask(queue);
        self.kept |= masked && !knows;
        masked
    }

    pub(crate) fn settle(&mut self, queue: &HwQueue) {
        if !self.mask(queue) {
            queue.arm();
        }
    }

    /// Before it sleeps on a shared queue: whoever comes first owns its notification.
    pub(crate) fn register(&mut self, queue: &HwQueue) {
        if queue.shared && matches!(self.plan, Plan::Sleep { .. }) {
            self.owner = queue.role.try_take(self.sleeper);
        }
    }

    /// The thread is back on the CPU: the heir of a notification finds itself the owner.
    pub(crate) fn inherit(&mut self, queue: &HwQueue) {
        self.owner = queue.shared && queue.role.owner() == Some(self.sleeper);
    }

    /// Before it does anything else than look: hands the notification on. The heir, to be woken.
    pub(crate) fn leave(&mut self, queue: &HwQueue) -> Option<TaskId> {
        if !queue.shared {
            return None;
        }
        self.owner = false;
        queue.role.release(self.sleeper).map(thread_of)
    }

    /// Goes away from a shared queue on which its last look has left an entry: the owner of its notification, to be woken,
    /// because it may have found the lock held. Told once.
    pub(crate) fn left_behind(&mut self, queue: &HwQueue) -> Option<TaskId> {
        let known = std::mem::take(&mut self.leaves_some) && queue.shared;
        let owner = if known { queue.role.owner().map(thread_of) } else { None };
        owner.filter(|&owner| owner != thread_of(self.sleeper))
    }

    /// Whether the queue's signal is this thread's to follow.
    pub(crate) fn is_signalled(&self, queue: &HwQueue) -> bool {
        queue.signals > 0 && (self.owner || !queue.shared)
    }
}

impl Armed for Bound<'_> {
    /// On a shared queue every mode looks: another thread may have held the lock when the message was followed.
    fn is_to_arm(&self) -> bool {
        let masked = self.lane.policy.masks() || self.queue.shared;
        matches!(self.lane.plan, Plan::Sleep { .. }) && masked && !self.lane.kept && (self.lane.owner || !self.queue.shared)
    }

    fn arm(&self) {
        self.queue.arm();
    }

    fn look(&mut self) -> bool {
        self.lane.seen.pending = self.queue.look_once_more();
        self.lane.seen.pending
    }
}
