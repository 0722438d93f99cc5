//! How a thread goes to sleep over all its queues: arm all, look at all, block. The one place for
//! that order, which the engine walks on threads and the simulator in virtual time.
//!
//! ```text
//!   each queue   takes the look role if it sleeps, hands it on if not      Waiter::register
//!   Arm          each queue that sleeps on a masked notification           Waiter::arm
//!   Check        the same queues: something there ends it               Waiter::look_once_more
//!   Block        until a notification, a wake-up, or the plan's instant
//!   each queue   learns why it woke, and masks                           Waiter::wakes, Waiter::mask_or_keep
//! ```
//!
//! Between two steps anybody may come: an executor in virtual time lets each step take its time.

/// A step of going to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepStep {
    /// Allows notifications; the executor's fence follows.
    Arm,
    /// Looks once more.
    Check,
    /// Blocks, leaves, or is done.
    Block,
}

/// What going to sleep consists of, by law 1: what an entry posted before [`SleepStep::Arm`] did
/// not signal, [`SleepStep::Check`] finds.
pub const SLEEP: &[SleepStep] = &[SleepStep::Arm, SleepStep::Check, SleepStep::Block];

/// What a [`crate::Waiter`] does so that no wake-up is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A switch of mode, which may take a mask off, is followed by a look.
    LookAfterSwitch,
    /// A thread that masks a notification that had stayed armed arms it before the next sleep.
    RearmAfterMask,
    /// A thread that stops waiting on a shared queue hands its notification on.
    HandOn,
    /// A thread that has commands out on a lane that cannot notify naps where its policy sleeps.
    NapInSilence,
    /// A thread that goes away from entries that it knows of notifies the owner of the look.
    NotifyOwner,
}

/// The habits of a [`crate::Waiter`]: it keeps every rule unless a negative test says otherwise.
pub trait Habits {
    /// What going to sleep consists of.
    #[inline]
    fn sleep(&self) -> &'static [SleepStep] {
        SLEEP
    }

    /// Whether it keeps a rule.
    #[inline]
    fn keeps(&self, _: Rule) -> bool {
        true
    }
}

/// Keeps every law. It takes no room, and asking it costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lawful;

impl Habits for Lawful {}

/// What a step of going to sleep came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many notifications were allowed.
    Armed(u64),
    /// This many queues were looked at, and all were empty.
    Empty(u64),
    /// This many were looked at, and one was not: back to work, masked again.
    Found(u64),
    /// Nothing is left to do but to block.
    Block,
}

/// Step `n` of going to sleep on these queues. `arm` allows a queue's notification, if its thread
/// sleeps on one that is masked, and says whether it did. `look` looks once more, and remembers for
/// the policy what was seen; `None`: nothing can have been missed.
#[inline]
pub fn fall_asleep<Q>(
    habits: &impl Habits,
    n: usize,
    queues: impl Iterator<Item = Q>,
    mut arm: impl FnMut(Q) -> bool,
    look: impl FnMut(Q) -> Option<bool>,
) -> Step {
    match habits.sleep().get(n) {
        Some(SleepStep::Arm) => Step::Armed(queues.map(|queue| u64::from(arm(queue))).sum()),
        Some(SleepStep::Check) => {
            let (mut looked, mut found) = (0, false);
            for seen in queues.filter_map(look) {
                looked += 1;
                found |= seen;
            }
            if found { Step::Found(looked) } else { Step::Empty(looked) }
        }
        Some(SleepStep::Block) | None => Step::Block,
    }
}
