//! The steps that keep the invariants, as data. A negative test leaves one step out, and the run
//! must then fail with a broken invariant.

use completion::{Rule, SleepStep};

/// Which steps the executors of a run take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ablation {
    /// The steps of going to sleep.
    pub(crate) sleep: &'static [SleepStep],
    /// After a mode switch that unmasks a notification, the queue is polled.
    pub(crate) polls_after_switch: bool,
    /// A thread that masks a notification after leaving it armed while awake arms it again before
    /// its next sleep.
    pub(crate) rearms_after_mask: bool,
    /// The handler of posted interrupts polls once more after it has cleared the outstanding bit.
    pub(crate) posted_polls_again: bool,
    /// A thread or handler that releases a completion queue's lock has the queue polled again if
    /// another one found the lock held.
    pub(crate) polls_on_release: bool,
    /// A notification causes a poll even if the last poll found the lock held.
    pub(crate) clears_lock_busy: bool,
    /// A thread that stops waiting on a shared queue releases the notification role.
    pub(crate) hands_off_role: bool,
    /// A thread with commands on a poll queue naps instead of sleeping.
    pub(crate) naps_on_poll_queue: bool,
    /// Policies see that the application waits for each of its commands (urgent commands).
    pub(crate) reports_urgent: bool,
    /// Writes that were sent to a lost controller are retried on another path only when the lost
    /// controller can no longer execute them.
    pub(crate) delays_write_retry: bool,
}

/// All steps are taken.
pub(crate) const NO_ABLATION: Ablation = Ablation {
    sleep: completion::SLEEP,
    polls_after_switch: true,
    rearms_after_mask: true,
    posted_polls_again: true,
    polls_on_release: true,
    clears_lock_busy: true,
    hands_off_role: true,
    naps_on_poll_queue: true,
    reports_urgent: true,
    delays_write_retry: true,
};

impl completion::Ablation for Ablation {
    fn sleep(&self) -> &'static [SleepStep] {
        self.sleep
    }

    fn keeps(&self, rule: Rule) -> bool {
        match rule {
            Rule::PollAfterSwitch => self.polls_after_switch,
            Rule::RearmAfterMask => self.rearms_after_mask,
            Rule::HandOffRole => self.hands_off_role,
            Rule::NapOnPollQueue => self.naps_on_poll_queue,
            Rule::NotifyOwner => self.polls_on_release,
        }
    }
}
