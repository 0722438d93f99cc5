//! When to look: one policy per queue, dispatched by an enum, asked once per batch.

mod hybrid_mean;
mod interrupt;
mod irq_poll;
mod poll;
mod submit_check;

use units::Nanos;

use crate::{Batch, Check, Done, Mode, Plan, Preset, Seen};
use hybrid_mean::HybridMean;

/// Entries that one look takes at most: the weight of NAPI and of irq_poll's users.
pub const WEIGHT: u32 = 64;

/// When to look at one queue.
#[derive(Clone, Debug)]
pub struct Policy {
    mode: Mode,
    check: Check,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Interrupt,
    IrqPoll,
    HybridMean(Box<HybridMean>),
    Poll,
}

impl Policy {
    /// The policy of a mode. It knows of nothing in flight.
    pub fn new(mode: Mode) -> Policy {
        let rule = match mode.preset() {
            Preset::Interrupt => Rule::Interrupt,
            Preset::IrqPoll => Rule::IrqPoll,
            Preset::HybridMean => Rule::HybridMean(Box::default()),
            Preset::Poll => Rule::Poll,
        };
        Policy { mode, check: submit_check::after_commit(mode), rule }
    }

    /// The mode that it carries out.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Tells of a batch whose doorbell has just been rung; answers whether to look at once.
    #[inline]
    pub fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        if let Rule::HybridMean(rule) = &mut self.rule {
            rule.submitted(now, batch);
        }
        self.check
    }

    /// Whether [`Policy::completed`] does anything with the records; if not, they need not be made.
    #[inline]
    pub fn wants_done(&self) -> bool {
        matches!(self.rule, Rule::HybridMean(_))
    }

    /// Tells of the commands that a look took.
    #[inline]
    pub fn completed(&mut self, done: &[Done]) {
        if let Rule::HybridMean(rule) = &mut self.rule {
            rule.completed(done);
        }
    }

    /// What to do next, given what the last step has seen.
    #[inline]
    pub fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        match &mut self.rule {
            Rule::Interrupt => interrupt::next(seen),
            Rule::IrqPoll => irq_poll::next(seen),
            Rule::HybridMean(rule) => rule.next(now, seen),
            Rule::Poll => poll::next(now, seen),
        }
    }

    /// Whether the notification is kept masked whenever the thread is awake.
    #[inline]
    pub fn masks(&self) -> bool {
        !matches!(self.rule, Rule::Interrupt)
    }
}

/// Whether a look is worth it without waiting: an entry is known to be there, or the thread was woken. Not while
/// another thread holds the lock: that one looks, and once more after it has released.
#[inline]
fn work_is_known(seen: &Seen) -> bool {
    (seen.pending | seen.woke.is_some()) & !seen.lock_busy
}

#[cfg(test)]
mod tests;
