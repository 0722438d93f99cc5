//! How an executor keeps the laws of waiting, as facts that tests can change: what is broken is caught, or the tests prove nothing.

/// A step of going to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepStep {
    /// Allows notifications; the executor's fence follows.
    Arm,
    /// Looks once more.
    Look,
    /// Blocks, leaves, or is done.
    Block,
}

/// What going to sleep consists of, by law 1: what an entry posted before [`SleepStep::Arm`] did not signal,
/// [`SleepStep::Look`] finds.
pub const SLEEP: &[SleepStep] = &[SleepStep::Arm, SleepStep::Look, SleepStep::Block];

/// The habits of a [`crate::Waiter`]. Each of them is lawful unless a broken twin says otherwise.
pub trait Habits {
    /// What going to sleep consists of.
    #[inline]
    fn sleep(&self) -> &'static [SleepStep] {
        SLEEP
    }

    /// A switch of mode, which may take a mask off, is followed by a look.
    #[inline]
    fn looks_after_switch(&self) -> bool {
        true
    }

    /// A thread that masks a notification that had stayed armed arms it before the next sleep.
    #[inline]
    fn knows_its_mask(&self) -> bool {
        true
    }

    /// A thread that stops waiting on a shared queue hands its notification on.
    #[inline]
    fn hands_on(&self) -> bool {
        true
    }

    /// A thread that has commands out on a lane that cannot notify naps where its policy sleeps.
    #[inline]
    fn naps_in_silence(&self) -> bool {
        true
    }

    /// A thread that goes away from entries that it knows of tells the owner of the look.
    #[inline]
    fn tells_owner(&self) -> bool {
        true
    }
}

/// Keeps every law. It takes no room, and asking it costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lawful;

impl Habits for Lawful {}
