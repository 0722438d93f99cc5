//! One software queue's side of looking and sleeping: what its policy said last, what the policy is
//! told next, and how the hardware queue's notification and look role stand as far as this thread
//! knows.
//!
//! Without I/O. What it does to the world is behind [`Notification`], which each executor has its
//! own of: vectors, eventfds and a `NotificationRole` shared by threads, or their likes in virtual
//! time. So the simulator tests the very machine that the engine runs.
//!
//! In the order of use: [`Waiter::next`] for a plan; [`Waiter::begin_look`] where that is to look;
//! [`Waiter::register`], [`Waiter::arm`] and [`Waiter::look_once_more`] on the way to sleep
//! ([`crate::fall_asleep`] has their order over several queues); [`Waiter::wakes`] and
//! [`Waiter::mask_or_keep`] on the way back; [`Waiter::leave`] before anything else than looking.

use units::Nanos;

use crate::policy::work_is_known;
use crate::{Cycle, Habits, KeepArmed, Lawful, Mode, ModePolicy, Plan, Policy, Rule, Seen, Woke};

/// A hardware queue's notification and its look role, as one software queue meets them.
pub trait Notification {
    /// Names a thread to the look role.
    type Thread;

    /// Other threads may take this one's entries: the notification is the owner's of the look role.
    fn is_shared(&self) -> bool;

    /// Its messages tell of this hardware queue alone, so that masking it is nobody else's lost
    /// wake-up.
    fn is_alone(&self) -> bool;

    /// It tells of the first of several messages alone, until it is armed again.
    #[inline]
    fn tells_once(&self) -> bool {
        false
    }

    /// Allows messages. What follows in program order is ordered after it.
    fn arm(&mut self);

    /// Forbids messages; where another queue has the same notification, or nothing can be masked,
    /// leaves them unread.
    fn mask(&mut self);

    /// Whether an entry is there for this thread to take.
    fn pending(&mut self) -> bool;

    /// Registers the thread with the look role. Whether it owns it now.
    fn take_role(&mut self) -> bool;

    /// Whether the thread owns the look role.
    fn has_role(&self) -> bool;

    /// Gives the look role back: its heir, if there is one.
    fn release_role(&mut self) -> Option<Self::Thread>;

    /// The owner of the look role, if that is another thread.
    fn other_owner(&mut self) -> Option<Self::Thread>;
}

/// A nap in place of a sleep lasts as long as the wait so far, from the first of these to the
/// second. So beyond the first what is out is found at most twice as late as if it were looked for
/// all the time, in as many naps as the wait has doublings. The shortest is the timer of `suspend`;
/// the longest is what NAPI's suspension, and `adaptive` for its gathering, let pass at most.
const SILENT_NAP: (Nanos, Nanos) = (Nanos::from_micros(20), Nanos::from_millis(1));

/// One software queue's side of waiting.
#[derive(Debug)]
pub struct Waiter<H = Lawful> {
    /// When to look.
    pub policy: ModePolicy,
    /// Input of the next plan.
    pub seen: Seen,
    /// What it answered last.
    pub plan: Plan,
    /// Others take the entries: this thread does without notification and look role, and blocks
    /// until it has received it.
    pub others_look: bool,
    /// The notification is this thread's: nobody shares the queue, or it owns the look role.
    pub owner: bool,
    /// For how many entries the device may hold messages back, as the policy said when it last
    /// planned to sleep.
    pub hold: u16,
    /// The look role knows of this thread.
    registered: bool,
    /// The notification has been armed since before the thread slept last: every entry since has
    /// sent its message.
    kept_armed: bool,
    /// When it may be, as the policy said when it last planned to sleep.
    keep_armed: KeepArmed,
    /// Commands are out of which no notification will tell; and since when it naps for them.
    silent: u32,
    silent_since: Option<Nanos>,
    habits: H,
}

impl<H: Habits> Waiter<H> {
    /// Of a queue in this mode of which its thread has seen nothing, and whose notification is not
    /// known to be its own.
    pub fn new(mode: Mode, machine: &Cycle, habits: H) -> Waiter<H> {
        Waiter {
            policy: ModePolicy::new(mode, machine, None),
            seen: Seen::default(),
            plan: Plan::Rest,
            others_look: false,
            owner: false,
            hold: 0,
            registered: false,
            kept_armed: false,
            keep_armed: KeepArmed::Never,
            silent: 0,
            silent_since: None,
            habits,
        }
    }

    /// Between two batches: goes on in another mode, whose policy has never heard of what is in
    /// flight, and inherits what the last one has learnt. What was posted under a mask that it
    /// takes off has sent no message, so it begins with a look. [`Waiter::settle`] follows.
    pub fn adopt(&mut self, mode: Mode, machine: &Cycle) {
        let earlier =
            std::mem::replace(&mut self.policy, ModePolicy::new(Mode::INTERRUPT, machine, None));
        self.policy = ModePolicy::new(mode, machine, Some(earlier));
        (self.hold, self.keep_armed) = (0, KeepArmed::Never);
        if self.habits.keeps(Rule::LookAfterSwitch) {
            self.woken(Woke::OTHER);
        }
    }

    /// A policy has been adopted: where it masks the notification is masked from now on while the
    /// thread is awake, and else armed.
    pub fn settle(&mut self, n: &mut impl Notification) {
        self.kept_armed = false;
        if !self.policy.facts().masks || !n.is_alone() {
            n.arm();
        } else if self.owner {
            n.mask();
        }
    }

    /// This many commands are out on a lane that cannot notify. While there are any, no plan is to
    /// sleep.
    #[inline]
    pub fn set_silent(&mut self, commands: u32) {
        self.silent = commands;
        if commands == 0 {
            self.silent_since = None;
        }
    }

    /// Commands that are out on a lane that cannot notify.
    #[inline]
    pub fn silent(&self) -> u32 {
        self.silent
    }

    /// What to do next, given what [`Waiter::seen`] says. A notification that was kept armed is
    /// masked, unless it may stay so.
    #[inline]
    pub fn next(&mut self, now: Nanos, n: &mut impl Notification) -> Plan {
        let mut plan = self.policy.next(now, &self.seen);
        if let Plan::Sleep { at_least, hold, keep_armed, .. } = &mut plan {
            *at_least = self.seen.wants.max(*at_least);
            (self.hold, self.keep_armed) = (*hold, *keep_armed);
        }
        if self.silent > 0 {
            plan = self.unnotified(now, plan);
        }
        // Told once.
        (self.seen.found, self.seen.met_at, self.seen.cycle) = (0, None, None);
        self.plan = plan;
        if self.kept_armed && !self.may_stay_armed(self.seen.in_flight) {
            self.kept_armed = !self.habits.keeps(Rule::RearmAfterMask);
            n.mask();
        }
        plan
    }

    /// The plan of [`Waiter::next`] where work is known, if the mode always has the same: the rest
    /// of [`Waiter::seen`] is not looked at.
    #[inline(always)] // What kind of plan it is, is known where this is called.
    pub fn cached(&mut self) -> Option<Plan> {
        let budget = self.policy.poll.filter(|_| !self.kept_armed && work_is_known(&self.seen))?;
        self.plan = Plan::Poll { budget };
        Some(Plan::Poll { budget })
    }

    /// Whether the notification may be armed while the thread is awake, or about to carry out its
    /// plan.
    fn may_stay_armed(&self, in_flight: u32) -> bool {
        let may = match self.keep_armed {
            KeepArmed::Never => false,
            KeepArmed::Alone => in_flight <= 1,
            KeepArmed::Always => true,
        };
        may && !matches!(self.plan, Plan::Spin { .. } | Plan::Nap { .. })
    }

    /// With commands out that no notification tells of, a sleep becomes a nap: what is found may be
    /// the last for ever otherwise.
    #[cold]
    fn unnotified(&mut self, now: Nanos, plan: Plan) -> Plan {
        if self.seen.found > 0 {
            self.silent_since = None;
        }
        let until = match plan {
            Plan::Sleep { until, .. } => until,
            Plan::Nap { until, .. } => return Plan::nap(until),
            _ => return plan,
        };
        if !self.habits.keeps(Rule::NapInSilence) {
            return plan;
        }
        let (shortest, longest) = SILENT_NAP;
        let waited = now - *self.silent_since.get_or_insert(now);
        Plan::nap(until.min(now + waited.clamp(shortest, longest)).max(now + Nanos(1)))
    }

    /// A look begins, which answers all that the policy would have been told but these. Whether the
    /// thread has slept since the last one, and whether an entry was known to be there.
    #[inline]
    pub fn begin_look(&mut self) -> (bool, bool) {
        let before = (self.seen.woke.is_some(), self.seen.pending);
        let Seen { cpu_wanted, next_due, .. } = self.seen;
        self.seen = Seen { cpu_wanted, next_due, ..Seen::default() };
        before
    }

    /// A lockless look has found something to take. The thread that held the lock at the last look
    /// has had its time.
    #[inline]
    pub fn found_something(&mut self) {
        (self.seen.pending, self.seen.lock_busy) = (true, false);
    }

    /// The thread has slept, or is to look as if it had.
    #[inline]
    pub fn woken(&mut self, woke: Woke) {
        (self.seen.woke, self.seen.lock_busy) = (Some(woke), false);
    }

    /// The thread stops looking: the first thread to sleep on a shared queue owns its notification,
    /// and a thread that does not sleep on it hands that on. A nap is no look: somebody who sleeps
    /// may need the role meanwhile. Who is to be told, as in [`Waiter::leave`].
    #[must_use = "the thread that is named has to be woken"]
    pub fn register<N: Notification>(&mut self, n: &mut N) -> Option<N::Thread> {
        if !matches!(self.plan, Plan::Sleep { .. }) {
            return self.leave(n);
        }
        if n.is_shared() && !self.others_look {
            self.owner = n.take_role();
            self.registered = true;
        }
        None
    }

    /// Whether the policy sleeps on a notification that is this thread's and not armed yet.
    #[inline]
    fn sleeps_on_it(&self) -> bool {
        matches!(self.plan, Plan::Sleep { .. })
            && !self.others_look
            && self.owner
            && !self.kept_armed
    }

    /// Whether messages may be missing, so that a look follows arming: not where the notification
    /// is never masked, because every entry has sent its message, and signals are sticky. On a
    /// shared queue every policy looks: another thread may have held the lock when the message was
    /// followed.
    #[inline]
    fn may_miss(&self, n: &impl Notification) -> bool {
        self.policy.facts().masks || n.is_shared()
    }

    /// Allows the notification, if the policy sleeps on one that is masked, or that tells once.
    /// Whether it did.
    pub fn arm(&mut self, n: &mut impl Notification) -> bool {
        let arms = self.sleeps_on_it() && (self.may_miss(n) || n.tells_once());
        if arms {
            n.arm();
        }
        arms
    }

    /// The look between arming and blocking, where it is needed: whether an entry is there.
    pub fn look_once_more(&mut self, n: &mut impl Notification) -> Option<bool> {
        if !(self.sleeps_on_it() && self.may_miss(n)) {
            return None;
        }
        let pending = n.pending();
        if pending {
            self.found_something();
        }
        Some(pending)
    }

    /// The thread is back: the heir of a shared queue's notification finds itself the owner.
    pub fn wakes(&mut self, n: &impl Notification) {
        if n.is_shared() {
            self.owner = n.has_role();
        }
    }

    /// Awake with this many in flight: masks the notification if that is the policy's way and it is
    /// this thread's, unless it may stay armed.
    pub fn mask_or_keep(&mut self, in_flight: u32, n: &mut impl Notification) {
        if !self.policy.facts().masks || !self.owner || self.others_look {
            return;
        }
        // A queue that was not to sleep has not armed its notification.
        let armed = self.kept_armed || matches!(self.plan, Plan::Sleep { .. });
        self.kept_armed = armed && !n.is_shared() && n.is_alone() && self.may_stay_armed(in_flight);
        if !self.kept_armed {
            n.mask();
        }
    }

    /// Before the thread does anything else than look: hands the notification of a shared queue on,
    /// or at least has its owner know of what it leaves behind. The thread that is to be woken.
    #[inline]
    #[must_use = "the thread that is named has to be woken"]
    pub fn leave<N: Notification>(&mut self, n: &mut N) -> Option<N::Thread> {
        if !n.is_shared() {
            return None;
        }
        let mut heir = None;
        if self.registered && self.habits.keeps(Rule::HandOn) {
            (self.registered, self.owner) = (false, false);
            heir = n.release_role();
        }
        heir.or_else(|| self.leaves_behind(n))
    }

    /// The thread goes away from entries that it knows of: the notification's owner is to be woken,
    /// because it may have found the lock held.
    #[inline]
    #[must_use = "the thread that is named has to be woken"]
    pub fn leaves_behind<N: Notification>(&mut self, n: &mut N) -> Option<N::Thread> {
        let tells = n.is_shared() && self.seen.pending && self.habits.keeps(Rule::NotifyOwner);
        if tells { n.other_owner() } else { None }
    }
}

#[cfg(test)]
mod tests;
