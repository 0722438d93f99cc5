//! How a thread goes to sleep over all its queues without losing a wake-up: arm every queue, check
//! every queue, block. The engine runs these steps on threads and the simulator in virtual time.
//!
//! ```text
//!   each queue   take the notification role if the plan is Sleep,
//!                else release it                                        Waiter::register
//!   Arm          each masked queue whose plan is Sleep                  Waiter::arm
//!   (fence)
//!   Check        the same queues; an entry ends the sleep               Waiter::recheck
//!   Block        until a notification, a wake-up, or the plan's instant
//!   each queue   record why the thread woke, and mask                  Waiter::wakes, mask_or_keep
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

/// The steps of going to sleep, in order (invariant 1): an entry posted before [`SleepStep::Arm`]
/// has sent no message, so [`SleepStep::Check`] must find it.
pub const SLEEP: &[SleepStep] = &[SleepStep::Arm, SleepStep::Check, SleepStep::Block];

/// A step of [`crate::Waiter`] that prevents a lost wake-up. Negative tests leave out one at a time
/// and expect a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Poll after a switch of mode, which may unmask the notification.
    PollAfterSwitch,
    /// Arm again before the next sleep after masking a notification that had stayed armed.
    RearmAfterMask,
    /// Release the notification role when the thread stops waiting on a shared queue.
    HandOffRole,
    /// Nap instead of sleeping while commands are on a poll queue.
    NapOnPollQueue,
    /// Wake the thread that has the notification role when entries remain.
    NotifyOwner,
}

/// Which steps a [`crate::Waiter`] carries out: all, but for negative tests.
pub trait Ablation {
    /// The steps of going to sleep, in order.
    #[inline]
    fn sleep(&self) -> &'static [SleepStep] {
        SLEEP
    }

    /// Whether this step is carried out.
    #[inline]
    fn keeps(&self, _: Rule) -> bool {
        true
    }
}

/// Every step is carried out: zero-sized, and its calls compile to constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoAblation;

impl Ablation for NoAblation {}

/// The result of one step of going to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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

/// Carries out step `n` of going to sleep on these queues. `arm` unmasks a queue's notification if
/// needed, and returns whether it did. `look` checks the queue and records the result for the
/// policy; `None`: no check is needed.
#[inline]
pub fn fall_asleep<Q>(
    ablation: &impl Ablation,
    n: usize,
    queues: impl Iterator<Item = Q>,
    mut arm: impl FnMut(Q) -> bool,
    look: impl FnMut(Q) -> Option<bool>,
) -> Step {
    match ablation.sleep().get(n) {
        Some(SleepStep::Arm) => Step::Armed(queues.map(|queue| u64::from(arm(queue))).sum()),
        Some(SleepStep::Check) => {
            let (mut looked, mut found) = (0, false);
            // No early exit: each queue's policy needs its own result.
            for seen in queues.filter_map(look) {
                looked += 1;
                found |= seen;
            }
            if found { Step::Found(looked) } else { Step::Empty(looked) }
        }
        Some(SleepStep::Block) | None => Step::Block,
    }
}
