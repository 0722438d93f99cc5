//! Law 1, host side, in one place: whoever stops looking at queues arms their notifications, looks once more, and only
//! then blocks, leaves, or returns from its interrupt. Policies cannot arm.

/// The steps of going to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepStep {
    /// Allows notifications. In virtual time the fence is in the order of the steps.
    Arm,
    /// Looks once more.
    Look,
    /// Blocks, leaves, or is done.
    Block,
}

/// How an executor keeps law 1, as data, so that tests can break it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// What going to sleep consists of.
    pub(crate) sleep: &'static [SleepStep],
    /// Taking a mask off because of a switch of mode is followed by a look, too.
    pub(crate) looks_after_switch: bool,
    /// Whoever masks a notification that had stayed armed arms it before the next sleep.
    pub(crate) knows_its_mask: bool,
    /// The handler of posted interrupts looks once more after it has cleared the outstanding bit.
    pub(crate) posted_looks_again: bool,
    /// Whoever releases a completion queue's lock looks after those who found it busy.
    pub(crate) releases_look: bool,
    /// A notification is followed although the look before it found the lock held.
    pub(crate) hears_anew: bool,
    /// Whoever stops waiting on a shared queue hands its notification on.
    pub(crate) hands_on: bool,
    /// Policies hear that somebody waits for a command.
    pub(crate) tells_urgent: bool,
    /// Writes inside a lost controller are sent again only when it can no longer carry them out.
    pub(crate) holds_writes: bool,
}

/// What an entry posted before `Arm` did not signal, `Look` finds.
pub(crate) const LAWFUL: Habits = Habits {
    sleep: &[SleepStep::Arm, SleepStep::Look, SleepStep::Block],
    looks_after_switch: true,
    knows_its_mask: true,
    posted_looks_again: true,
    releases_look: true,
    hears_anew: true,
    hands_on: true,
    tells_urgent: true,
    holds_writes: true,
};

/// What a step of going to sleep came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many notifications were allowed.
    Armed(u64),
    /// So many queues were looked at, and all were empty.
    Empty(u64),
    /// So many were looked at, and one was not: back to work, masked again.
    Found(u64),
    /// Nothing is left to do but to block.
    Block,
}

/// A queue that is armed before its executor sleeps.
pub(crate) trait Armed {
    /// Whether it is: its policy sleeps and has kept it masked. Where nothing is ever masked, every entry has sent its
    /// message, and signals are sticky.
    fn is_to_arm(&self) -> bool;
    /// Allows its notification.
    fn arm(&self);
    /// Looks at it, and remembers for its policy what was seen.
    fn look(&mut self) -> bool;
}

/// Step `n` of going to sleep on these queues.
pub(crate) fn step<Q: Armed>(habits: &Habits, n: usize, queues: impl Iterator<Item = Q>) -> Step {
    match habits.sleep.get(n) {
        Some(SleepStep::Arm) => Step::Armed(queues.filter(Armed::is_to_arm).map(|queue| queue.arm()).count() as u64),
        Some(SleepStep::Look) => {
            let (mut looked, mut found) = (0, false);
            for mut queue in queues.filter(Armed::is_to_arm) {
                looked += 1;
                found |= queue.look();
            }
            if found { Step::Found(looked) } else { Step::Empty(looked) }
        }
        Some(SleepStep::Block) | None => Step::Block,
    }
}
