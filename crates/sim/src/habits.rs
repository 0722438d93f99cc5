//! How executors keep the laws, as data, so that tests can break it.

use completion::{Rule, SleepStep};

/// The habits of a run's executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// What going to sleep consists of.
    pub(crate) sleep: &'static [SleepStep],
    /// Taking a mask off because of a switch of mode is followed by a look, too.
    pub(crate) looks_after_switch: bool,
    /// A thread that masks a notification that had stayed armed arms it before the next sleep.
    pub(crate) knows_its_mask: bool,
    /// The handler of posted interrupts looks once more after it has cleared the outstanding bit.
    pub(crate) posted_looks_again: bool,
    /// A party that releases a completion queue's lock looks after those who found it busy.
    pub(crate) releases_look: bool,
    /// A notification is followed although the look before it found the lock held.
    pub(crate) hears_anew: bool,
    /// A thread that stops waiting on a shared queue hands its notification on.
    pub(crate) hands_on: bool,
    /// A thread that has commands out on a lane that cannot notify does not sleep.
    pub(crate) naps_in_silence: bool,
    /// Policies hear that somebody waits for a command.
    pub(crate) tells_urgent: bool,
    /// Writes inside a lost controller are sent again only when it can no longer carry them out.
    pub(crate) holds_writes: bool,
}

/// Every law is kept.
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
