//! The wait state of one software queue: the policy's last plan, the input of the next one, and
//! what this thread knows of the hardware queue's mask and notification role.
//!
//! It does no I/O: it calls [`Notification`], which the engine implements with vectors, eventfds
//! and a `NotificationRole` shared by threads, and the simulator with the same in virtual time. The
//! simulator therefore tests the state machine that the engine runs.
//!
//! ```text
//!   Waiter::next                      the next plan
//!   Waiter::begin_poll                before a poll
//!   Waiter::register                  before a sleep: take or release the notification role
//!   Waiter::arm, recheck              crate::SLEEP orders them over several queues
//!   (block)
//!   Waiter::wakes, mask_or_keep       after the sleep
//!   Waiter::leave                     before the thread does anything else than poll
//! ```

use crate::policy::work_is_known;
use crate::{
    Ablation, Mode, ModePolicy, Nanos, NoAblation, Plan, Policy, Rule, Seen, SleepCosts, Woke,
};

/// A hardware queue's interrupt and its notification role, from one software queue's point of view.
/// Of the threads that share a hardware queue, the one that has the role arms the interrupt and
/// sleeps on it.
pub trait Notification {
    /// How the notification role identifies a thread.
    type Thread;

    /// Whether other threads may take this queue's entries: then only the thread that has the
    /// notification role may arm and mask.
    fn is_shared(&self) -> bool;

    /// Whether the vector serves this hardware queue alone. Otherwise masking it could lose a
    /// wake-up of another queue.
    fn has_own_vector(&self) -> bool;

    /// Whether only the first of several messages is delivered until the notification is armed
    /// again (one-shot).
    #[inline]
    fn is_one_shot(&self) -> bool {
        false
    }

    /// Unmasks. Loads that follow in program order are ordered after it.
    fn arm(&mut self);

    /// Masks. Where another queue shares the notification, or the vector cannot be masked, messages
    /// are left unread instead.
    fn mask(&mut self);

    /// Whether an entry is posted that this thread can take.
    fn pending(&mut self) -> bool;

    /// Registers the thread for the notification role. Returns whether it now has the role.
    fn take_role(&mut self) -> bool;

    /// Whether the thread has the notification role.
    fn has_role(&self) -> bool;

    /// Releases the notification role. Returns the registered thread that it passes to, if any.
    fn release_role(&mut self) -> Option<Self::Thread>;

    /// The thread that has the notification role, if that is another thread.
    fn other_owner(&mut self) -> Option<Self::Thread>;
}

/// Shortest and longest nap that replaces a sleep while commands are on a poll queue. Each nap
/// lasts as long as the wait so far, so that a wait takes a logarithmic number of naps and a
/// completion is found at most one wait length late. The shortest is the timer of `suspend`; the
/// longest is the limit of NAPI's IRQ suspension and of `adaptive`'s gathering naps.
const SILENT_NAP: (Nanos, Nanos) = (Nanos::from_micros(20), Nanos::from_millis(1));

/// The wait state of one software queue.
#[derive(Debug)]
pub struct Waiter<H = NoAblation> {
    /// The policy.
    pub policy: ModePolicy,
    /// Input of the policy's next plan.
    pub seen: Seen,
    /// The plan under way.
    pub plan: Plan,
    /// Another thread, such as a drain thread, reaps this queue: this one uses neither the
    /// notification nor its role, and blocks until completions arrive in its inbox.
    pub others_look: bool,
    /// This thread may arm and mask the notification: the queue is not shared, or the thread has
    /// the notification role.
    pub owner: bool,
    /// The thread is registered for the notification role.
    registered: bool,
    /// The notification has stayed armed since before the last sleep, so that each entry since has
    /// sent its message.
    kept_armed: bool,
    /// Whether it may stay armed (`keep_armed` of the last [`Plan::Sleep`]).
    keep_armed: bool,
    /// Commands on a poll queue, whose completions send no message; and when the thread began to
    /// nap for them.
    silent: u32,
    silent_since: Option<Nanos>,
    ablation: H,
}

impl<H: Ablation> Waiter<H> {
    /// The state of a new queue in this mode: nothing in flight, and the notification not yet
    /// owned.
    pub fn new(mode: Mode, machine: &SleepCosts, ablation: H) -> Waiter<H> {
        Waiter {
            policy: ModePolicy::new(mode, machine, None),
            seen: Seen::default(),
            plan: Plan::Idle,
            others_look: false,
            owner: false,
            registered: false,
            kept_armed: false,
            keep_armed: false,
            silent: 0,
            silent_since: None,
            ablation,
        }
    }

    /// Switches to another mode, between two batches. The new policy has no record of the commands
    /// in flight, and keeps what an earlier `adaptive` has measured. Its first input is a wake-up,
    /// so that it polls: entries posted under a mask that the switch removes have sent no message.
    /// [`Waiter::settle`] must follow.
    pub fn adopt(&mut self, mode: Mode, machine: &SleepCosts) {
        let earlier =
            std::mem::replace(&mut self.policy, ModePolicy::new(Mode::INTERRUPT, machine, None));
        self.policy = ModePolicy::new(mode, machine, Some(earlier));
        self.keep_armed = false;
        if self.ablation.keeps(Rule::PollAfterSwitch) {
            self.woken(Woke::OTHER);
        }
    }

    /// Sets the mask that the new policy starts with, after [`Waiter::adopt`]: masked while the
    /// thread is awake if [`crate::Facts::masks`] is set, else armed.
    pub fn settle(&mut self, n: &mut impl Notification) {
        self.kept_armed = false;
        // A vector that serves several queues is never masked: that would lose the others'
        // wake-ups.
        if !self.policy.facts().masks || !n.has_own_vector() {
            n.arm();
        } else if self.owner {
            n.mask();
        }
    }

    /// Sets the number of commands on a poll queue, whose completions send no message. While there
    /// are any, a sleep becomes a nap.
    #[inline]
    pub fn set_silent(&mut self, commands: u32) {
        self.silent = commands;
        if commands == 0 {
            self.silent_since = None;
        }
    }

    /// Commands on a poll queue.
    #[inline]
    pub fn silent(&self) -> u32 {
        self.silent
    }

    /// The next plan, given [`Waiter::seen`]. Masks a notification that has stayed armed, unless
    /// the plan permits it to stay so.
    #[inline]
    pub fn next(&mut self, now: Nanos, n: &mut impl Notification) -> Plan {
        let mut plan = self.policy.next(now, &self.seen);
        if let Plan::Sleep { at_least, keep_armed, .. } = &mut plan {
            // The caller cannot continue with fewer completions, whatever the policy needs.
            *at_least = self.seen.wants.max(*at_least);
            self.keep_armed = *keep_armed;
        }
        if self.silent > 0 {
            plan = self.unnotified(now, plan);
        }
        // These report one step only: a second call without a step in between must not count them
        // again.
        (self.seen.found, self.seen.cycle) = (0, None);
        self.plan = plan;
        if self.kept_armed && !self.may_stay_armed(self.seen.in_flight) {
            self.kept_armed = !self.ablation.keeps(Rule::RearmAfterMask);
            n.mask();
        }
        plan
    }

    /// The fast path of [`Waiter::next`]: the plan if work is known and the mode always answers
    /// that with the same poll. Reads nothing else of [`Waiter::seen`].
    #[inline(always)] // So that callers see at compile time that the plan is `Poll`.
    pub fn cached(&mut self) -> Option<Plan> {
        // A notification that has stayed armed may have to be masked, which only `next` does.
        let budget = self.policy.poll.filter(|_| !self.kept_armed && work_is_known(&self.seen))?;
        self.plan = Plan::Poll { budget };
        Some(Plan::Poll { budget })
    }

    /// Whether the notification may stay armed while the thread is awake and carries out its plan.
    fn may_stay_armed(&self, in_flight: u32) -> bool {
        self.keep_armed
            && in_flight <= 1
            && !matches!(self.plan, Plan::Spin { .. } | Plan::Nap { .. })
    }

    /// Replaces a sleep by a nap while commands are on a poll queue: their completions send no
    /// message, so the sleep might never end.
    #[cold]
    fn unnotified(&mut self, now: Nanos, plan: Plan) -> Plan {
        // Naps grow with the time since the last completion.
        if self.seen.found > 0 {
            self.silent_since = None;
        }
        // An extended nap ends at the first message, which a poll queue does not send.
        let until = match plan {
            Plan::Sleep { until, .. } => until,
            Plan::Nap { until, .. } => return Plan::nap(until),
            _ => return plan,
        };
        if !self.ablation.keeps(Rule::NapOnPollQueue) {
            return plan;
        }
        let (shortest, longest) = SILENT_NAP;
        let waited = now - *self.silent_since.get_or_insert(now);
        Plan::nap(until.min(now + waited.clamp(shortest, longest)).max(now + Nanos(1)))
    }

    /// Starts a poll: resets [`Waiter::seen`], except for what a poll does not determine. Returns
    /// whether the thread has slept since the last poll.
    #[inline]
    pub fn begin_poll(&mut self) -> bool {
        let slept = self.seen.woke.is_some();
        let Seen { cpu_wanted, next_due, .. } = self.seen;
        self.seen = Seen { cpu_wanted, next_due, ..Seen::default() };
        slept
    }

    /// Records that a lockless check has found an entry. Also clears `lock_busy`: the lock was held
    /// at an earlier poll, so it is worth trying again.
    #[inline]
    pub fn found_something(&mut self) {
        (self.seen.pending, self.seen.lock_busy) = (true, false);
    }

    /// Records a wake-up, or has the next plan poll as after one.
    #[inline]
    pub fn woken(&mut self, woke: Woke) {
        (self.seen.woke, self.seen.lock_busy) = (Some(woke), false);
    }

    /// Call before blocking. The first thread to sleep on a shared queue gets the notification
    /// role; a thread that does not sleep on it, which includes one that naps, releases it, because
    /// another thread that sleeps may need it. Returns the thread to wake, as [`Waiter::leave`].
    #[must_use = "the thread that is named has to be woken"]
    pub fn register<N: Notification>(&mut self, n: &mut N) -> Option<N::Thread> {
        if !matches!(self.plan, Plan::Sleep { .. }) {
            return self.leave(n);
        }
        // A drain thread reaps the entries and wakes this one, so no role is needed.
        if n.is_shared() && !self.others_look {
            self.owner = n.take_role();
            self.registered = true;
        }
        None
    }

    /// Whether the plan is to sleep on a notification that this thread may arm and that is not
    /// armed yet.
    #[inline]
    fn sleeps_on_it(&self) -> bool {
        matches!(self.plan, Plan::Sleep { .. })
            && !self.others_look
            && self.owner
            && !self.kept_armed
    }

    /// Whether entries may have been posted without a message, so that arming must be followed by a
    /// check. Not where the notification is never masked: every entry has sent its message, and an
    /// eventfd keeps its count. On a shared queue the check is always needed: when the message
    /// arrived, another thread may have held the CQ lock.
    #[inline]
    fn may_miss(&self, n: &impl Notification) -> bool {
        self.policy.facts().masks || n.is_shared()
    }

    /// Unmasks the notification if the plan is to sleep on it and it is masked or one-shot. Returns
    /// whether it did.
    pub fn arm(&mut self, n: &mut impl Notification) -> bool {
        let arms = self.sleeps_on_it() && (self.may_miss(n) || n.is_one_shot());
        if arms {
            n.arm();
        }
        arms
    }

    /// The check between arming and blocking: whether an entry is posted. `None` where no check is
    /// needed.
    pub fn recheck(&mut self, n: &mut impl Notification) -> Option<bool> {
        if !(self.sleeps_on_it() && self.may_miss(n)) {
            return None;
        }
        let pending = n.pending();
        if pending {
            self.found_something();
        }
        Some(pending)
    }

    /// Call after a sleep: another thread may have passed the notification role to this one.
    pub fn wakes(&mut self, n: &impl Notification) {
        if n.is_shared() {
            self.owner = n.has_role();
        }
    }

    /// Call after a sleep, with the number of commands in flight: masks the notification if
    /// [`crate::Facts::masks`] is set and this thread may, unless it may stay armed.
    pub fn mask_or_keep(&mut self, in_flight: u32, n: &mut impl Notification) {
        if !self.policy.facts().masks || !self.owner || self.others_look {
            return;
        }
        // Only a plan to sleep has armed the notification.
        let armed = self.kept_armed || matches!(self.plan, Plan::Sleep { .. });
        // Others mask a shared notification, so it cannot be known to have stayed armed.
        self.kept_armed =
            armed && !n.is_shared() && n.has_own_vector() && self.may_stay_armed(in_flight);
        if !self.kept_armed {
            n.mask();
        }
    }

    /// Call before the thread does anything else than poll: releases the notification role of a
    /// shared queue. Returns the thread to wake: the next to have the role, or, if entries remain,
    /// the one that has it.
    #[inline]
    #[must_use = "the thread that is named has to be woken"]
    pub fn leave<N: Notification>(&mut self, n: &mut N) -> Option<N::Thread> {
        if !n.is_shared() {
            return None;
        }
        let mut heir = None;
        if self.registered && self.ablation.keeps(Rule::HandOffRole) {
            (self.registered, self.owner) = (false, false);
            heir = n.release_role();
        }
        // One wake-up is enough: the thread that gets the role polls once it is woken.
        heir.or_else(|| self.owner_to_wake(n))
    }

    /// Call when the thread stops polling although entries remain. Returns the thread that has the
    /// notification role, which must be woken: it may have found the CQ lock held by this thread,
    /// and gone to sleep.
    #[inline]
    #[must_use = "the thread that is named has to be woken"]
    pub fn owner_to_wake<N: Notification>(&mut self, n: &mut N) -> Option<N::Thread> {
        let tells = n.is_shared() && self.seen.pending && self.ablation.keeps(Rule::NotifyOwner);
        if tells { n.other_owner() } else { None }
    }
}

#[cfg(test)]
mod tests;
