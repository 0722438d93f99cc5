//! How a thread goes to sleep over all its queues without losing a wake-up: arm every queue, check
//! every queue, block. The engine runs these steps on threads, the simulator in virtual time.
//!
//! ```text
//!   each queue   take the notification role if the plan is Sleep,
//!                else release it                                        Waiter::register
//!   Arm          each masked queue whose plan is Sleep                  Waiter::arm
//!   (fence)
//!   Check        the same queues; an entry ends the sleep               Waiter::recheck
//!   Block        until a notification, a wake-up, or the plan's instant
//!   each queue   record why the thread woke; mask, unless the
//!                notification stays armed                              Waiter::wakes, mask_or_keep
//! ```
//!
//! Entries may be posted and other threads may run between any two steps: in the simulator each
//! step takes time.

/// One step of going to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepStep {
    /// Unmask notifications; the executor's fence follows.
    Arm,
    /// Check the queues once more.
    Check,
    /// Block, or return to the caller.
    Block,
}

/// The steps of going to sleep, in order (invariant 1 of docs/architecture.md): an entry posted
/// before [`SleepStep::Arm`] has raised no notification, so [`SleepStep::Check`] must find it.
pub const SLEEP: &[SleepStep] = &[SleepStep::Arm, SleepStep::Check, SleepStep::Block];

/// A rule that [`crate::Waiter`] follows so that no wake-up is lost. Negative tests break one at a
/// time and expect a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Poll after a switch to another completion mode: entries that were posted while the old mode
    /// masked the notification have raised none.
    PollAfterSwitch,
    /// Arm again before a sleep if a notification that had stayed armed has been masked since.
    RearmAfterMask,
    /// Release the notification role when the thread stops waiting on a shared queue.
    HandOffRole,
    /// While commands are on a poll queue, nap until an instant instead of sleeping until a
    /// notification: their completions raise none.
    NapOnPollQueue,
    /// Wake the thread that has the notification role when entries remain.
    NotifyOwner,
}

/// Which steps are carried out and which rules are followed: all, except in negative tests.
pub trait Ablation {
    /// The steps of going to sleep, in order.
    #[inline]
    fn sleep(&self) -> &'static [SleepStep] {
        SLEEP
    }

    /// Whether this rule is followed.
    #[inline]
    fn keeps(&self, _: Rule) -> bool {
        true
    }
}

/// Every step is carried out and every rule is followed: zero-sized, and its calls compile to
/// constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoAblation;

impl Ablation for NoAblation {}

/// The result of one step of going to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// Number of notifications that were unmasked.
    Armed(u64),
    /// Number of queues that were checked; all were empty.
    Empty(u64),
    /// Number of queues that were checked; at least one has an entry, so the thread masks again and
    /// polls.
    Found(u64),
    /// All steps are done: block.
    Block,
}

/// Carries out one step of going to sleep on these queues: the one with index `n` in [`SLEEP`].
/// `arm` unmasks a queue's notification if needed, and returns whether it did. `look` checks the
/// queue and records the result for the policy; `None`: no check is needed.
#[inline]
pub fn sleep_step<Q>(
    ablation: &impl Ablation,
    n: usize,
    queues: impl Iterator<Item = Q>,
    mut arm: impl FnMut(Q) -> bool,
    look: impl FnMut(Q) -> Option<bool>,
) -> StepResult {
    match ablation.sleep().get(n) {
        Some(SleepStep::Arm) => StepResult::Armed(queues.map(|queue| u64::from(arm(queue))).sum()),
        Some(SleepStep::Check) => {
            let (mut looked, mut found) = (0, false);
            // No early exit: each queue's policy needs its own result.
            for seen in queues.filter_map(look) {
                looked += 1;
                found |= seen;
            }
            if found { StepResult::Found(looked) } else { StepResult::Empty(looked) }
        }
        Some(SleepStep::Block) | None => StepResult::Block,
    }
}
