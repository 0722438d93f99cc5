//! The steps that keep the invariants, as data. A negative test leaves one out, and the run must
//! then fail with a broken invariant.

use completion::{Rule, SleepStep};

/// Which steps the executors of a run take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// The steps of going to sleep.
    pub(crate) sleep: &'static [SleepStep],
    /// Unmasking because of a mode switch is followed by a poll.
    pub(crate) looks_after_switch: bool,
    /// A thread that masks a notification which had stayed armed arms it before the next sleep.
    pub(crate) knows_its_mask: bool,
    /// The handler of posted interrupts polls once more after it has cleared the outstanding bit.
    pub(crate) posted_looks_again: bool,
    /// A party that releases a completion queue's lock polls for those that found it held.
    pub(crate) releases_look: bool,
    /// A notification causes a poll even if the poll before found the lock held.
    pub(crate) hears_anew: bool,
    /// A thread that stops waiting on a shared queue releases the notification role.
    pub(crate) hands_on: bool,
    /// A thread with commands on a poll queue naps instead of sleeping.
    pub(crate) naps_in_silence: bool,
    /// Policies are notified that the application waits for a command.
    pub(crate) tells_urgent: bool,
    /// Writes inside a lost controller are sent again only when it can no longer carry them out.
    pub(crate) holds_writes: bool,
}

/// All steps are taken.
pub(crate) const LAWFUL: Habits = Habits {
    sleep: completion::SLEEP,
    looks_after_switch: true,
    knows_its_mask: true,
    posted_looks_again: true,
    releases_look: true,
    hears_anew: true,
    hands_on: true,
    naps_in_silence: true,
    tells_urgent: true,
    holds_writes: true,
};

impl completion::Habits for Habits {
    fn sleep(&self) -> &'static [SleepStep] {
        self.sleep
    }

    fn keeps(&self, rule: Rule) -> bool {
        match rule {
            Rule::LookAfterSwitch => self.looks_after_switch,
            Rule::RearmAfterMask => self.knows_its_mask,
            Rule::HandOn => self.hands_on,
            Rule::NapInSilence => self.naps_in_silence,
            Rule::NotifyOwner => self.releases_look,
        }
    }
}
