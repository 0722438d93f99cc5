//! When to look: one policy per queue, dispatched by an enum, asked once per batch.

mod adaptive;
mod custom;
mod hybrid;
mod interrupt;
mod irq_poll;
mod poll;
mod submit_check;
mod suspend;
mod work;

use units::Nanos;

use crate::{Batch, Check, Decisions, Done, Mode, Plan, Preset, Route, Seen, Tuning};
use adaptive::Adaptive;
use custom::Custom;
use hybrid::{Estimate, Hybrid};
use suspend::Suspend;
pub use work::WEIGHT;

/// When to look at one queue.
#[derive(Clone, Debug)]
pub struct Policy {
    mode: Mode,
    /// The same as a word: compared for each plan.
    word: u32,
    check: Check,
    rule: Rule,
    /// Facts of the mode.
    masks: bool,
    stays_armed_alone: bool,
    /// Whether the rule does anything with a batch's class and with records: `adaptive` decides the latter for each look.
    records: bool,
    /// Whether the rule may look after a commit, by itself or for the mode's `+submit-check`.
    checks: bool,
    /// What `adaptive` has learnt of device and machine, while another mode is in force.
    learnt: Option<Box<Adaptive>>,
    /// Policies of the program's own, of modes that the queue was in before.
    earlier: Vec<Custom>,
}

/// What a preset's queue does. Presets that differ in placement, delivery or moderation only share a rule.
#[derive(Clone, Debug)]
enum Rule {
    Interrupt,
    IrqPoll,
    Hybrid(Box<Hybrid>),
    Suspend(Suspend),
    Poll,
    Adaptive(Box<Adaptive>),
    Custom(Box<Custom>),
}

impl Policy {
    /// The policy of a mode, with the default [`Tuning`]. It knows of nothing in flight.
    pub fn new(mode: Mode) -> Policy {
        Policy::with(mode, &Tuning::default())
    }

    /// The policy of a mode for this user on this machine. It knows of nothing in flight.
    pub fn with(mode: Mode, tuning: &Tuning) -> Policy {
        let rule = match mode.preset() {
            Preset::Interrupt | Preset::Threaded | Preset::Posted => Rule::Interrupt,
            Preset::Coalesce | Preset::Dim | Preset::Vic => Rule::Interrupt,
            Preset::KernelIopoll | Preset::KernelHybridIopoll | Preset::KernelSqpoll => Rule::Interrupt,
            Preset::IrqPoll => Rule::IrqPoll,
            Preset::HybridMean => Rule::Hybrid(Box::new(Hybrid::new(Estimate::Mean))),
            Preset::HybridMin => Rule::Hybrid(Box::new(Hybrid::new(Estimate::Min))),
            Preset::Suspend => Rule::Suspend(Suspend::default()),
            Preset::Poll => Rule::Poll,
            Preset::Adaptive => Rule::Adaptive(Box::new(Adaptive::new(tuning))),
            Preset::Custom(id) => {
                id.make(tuning).map_or(Rule::Interrupt, |rule| Rule::Custom(Box::new(Custom { id, facts: id.facts(), rule })))
            }
        };
        let (masks, stays_armed_alone) = (mode.masks(), mode.preset().stays_armed_alone());
        let check = submit_check::after_commit(mode);
        let (records, checks) = match &rule {
            Rule::Custom(custom) => (custom.facts.records, custom.facts.checks),
            Rule::Hybrid(_) | Rule::Adaptive(_) => (true, false),
            _ => (false, check != Check::No),
        };
        Policy { mode, word: mode.into(), check, rule, masks, stays_armed_alone, records, checks, learnt: None, earlier: Vec::new() }
    }

    /// Takes over what `adaptive`, or a policy of the program's own, has learnt of device and machine under an earlier policy of the same
    /// queue, whatever their modes are: it is kept until it is of use again.
    pub fn inherit(&mut self, earlier: Policy) {
        self.earlier = earlier.earlier;
        let learnt = match earlier.rule {
            Rule::Adaptive(rule) => Some(rule),
            Rule::Custom(custom) => {
                self.earlier.push(*custom);
                earlier.learnt
            }
            _ => earlier.learnt,
        };
        match (&mut self.rule, learnt) {
            (Rule::Adaptive(rule), Some(learnt)) => rule.inherit(*learnt),
            (Rule::Custom(custom), learnt) => {
                self.learnt = learnt;
                if let Some(at) = self.earlier.iter().position(|earlier| earlier.id == custom.id) {
                    custom.rule.inherit(self.earlier.swap_remove(at).rule.as_any());
                }
            }
            (_, learnt) => self.learnt = learnt,
        }
    }

    /// The mode that it carries out.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// [`Policy::mode`] as a word: what a cell that is switched at run time compares.
    #[inline]
    pub fn word(&self) -> u32 {
        self.word
    }

    /// Where a batch goes that is about to be committed, `batch.in_flight` counting it as in flight already. To the lane that is
    /// only looked at if looking is what this policy does anyway.
    #[inline]
    pub fn route(&self, now: Nanos, batch: &Batch) -> Route {
        match &self.rule {
            Rule::Poll | Rule::Hybrid(_) => Route::Poll,
            Rule::Adaptive(rule) => rule.route(),
            Rule::Custom(custom) => custom.rule.route(now, batch),
            Rule::Interrupt | Rule::IrqPoll | Rule::Suspend(_) => Route::Notify,
        }
    }

    /// Tells of a batch whose doorbell has just been rung; answers whether to look at once.
    #[inline]
    pub fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        match &mut self.rule {
            Rule::Hybrid(rule) => rule.submitted(now, batch),
            Rule::Adaptive(rule) => rule.submitted(now, batch),
            Rule::Custom(custom) => return custom.submitted(now, batch),
            _ => {}
        }
        self.check
    }

    /// Whether [`Policy::submitted`] does anything with [`Batch::class`]; if not, it need not be found out.
    #[inline]
    pub fn wants_class(&self) -> bool {
        self.records
    }

    /// Whether the next commit may be followed by a look.
    #[inline]
    pub fn looks_on_commit(&self) -> bool {
        self.checks
    }

    /// Whether a look that finds something may come before it is asked: it would plan nothing else, and is told of nothing by being asked.
    #[inline]
    pub fn looks_first(&self) -> bool {
        match &self.rule {
            Rule::Poll => true,
            Rule::Adaptive(rule) => rule.looks_first(),
            _ => false,
        }
    }

    /// Whether it looks, and does nothing else, whenever its thread is back from a sleep: then that need not be planned either.
    #[inline]
    pub fn looks_when_woken(&self) -> bool {
        matches!(self.rule, Rule::Interrupt)
    }

    /// Whether [`Policy::completed`] does anything with the records of the look that comes; if not, they need not be made.
    #[inline]
    pub fn wants_done(&self) -> bool {
        match &self.rule {
            Rule::Adaptive(rule) => rule.wants_done(),
            _ => self.records,
        }
    }

    /// Whether, of the records of one look, the last says it all: the others need not be made.
    #[inline]
    pub fn wants_last_alone(&self) -> bool {
        matches!(&self.rule, Rule::Adaptive(_))
    }

    /// Tells of the commands that a look took.
    #[inline]
    pub fn completed(&mut self, done: &[Done]) {
        match &mut self.rule {
            Rule::Hybrid(rule) => rule.completed(done),
            Rule::Adaptive(rule) => rule.completed(done),
            Rule::Custom(custom) => custom.rule.completed(done),
            _ => {}
        }
    }

    /// What to do next, given what the last step has seen.
    #[inline]
    pub fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        match &mut self.rule {
            Rule::Interrupt => interrupt::next(seen),
            Rule::IrqPoll => irq_poll::next(seen),
            Rule::Hybrid(rule) => rule.next(now, seen),
            Rule::Suspend(rule) => rule.next(now, seen),
            Rule::Poll => poll::next(now, seen),
            Rule::Adaptive(rule) => rule.next(now, seen),
            Rule::Custom(custom) => custom.next(now, seen),
        }
    }

    /// Whether a nap that is over and has brought nothing would be followed by another nap, or by a sleep. Where the kernel can
    /// do so, it may then go on until the first completion.
    #[inline]
    pub fn dozes(&self) -> bool {
        match &self.rule {
            Rule::Suspend(_) => true,
            Rule::Adaptive(rule) => rule.gathers(),
            _ => false,
        }
    }

    /// Whether [`Seen::cycle`] means anything to it; if not, it need not be measured.
    pub fn weighs_sleeps(&self) -> bool {
        match &self.rule {
            Rule::Adaptive(_) => true,
            Rule::Custom(custom) => custom.facts.weighs_sleeps,
            _ => false,
        }
    }

    /// For how many entries the device may hold this queue's messages back: its commands in flight are so many that nobody is later for it.
    /// 0: none. Asked for by `adaptive` and by policies of a program's own, which are told in [`Seen::held`] what came of it.
    #[inline]
    pub fn holds(&self) -> u16 {
        match &self.rule {
            Rule::Adaptive(rule) => rule.holds(),
            Rule::Custom(custom) if custom.facts.holds => custom.rule.holds(),
            _ => 0,
        }
    }

    /// How often `adaptive` decided what; `None` in every other mode.
    pub fn decisions(&self) -> Option<&Decisions> {
        match &self.rule {
            Rule::Adaptive(rule) => Some(rule.decisions()),
            _ => None,
        }
    }

    /// Whether the notification is kept masked while the thread is awake, unless [`Policy::stays_armed`].
    #[inline]
    pub fn masks(&self) -> bool {
        self.masks
    }

    /// Whether a notification that is armed may stay so, with so many in flight, although the thread is awake or about to carry
    /// out `plan`: it sleeps as soon as it has looked. An executor that asks after each wake-up and for each plan, and masks
    /// as soon as the answer is no, may block without arming and without the look after it: since it was armed each entry
    /// has sent its message, and signals are sticky.
    #[inline]
    pub fn stays_armed(&self, plan: Plan, in_flight: u32) -> bool {
        let held = matches!(&self.rule, Rule::Adaptive(rule) if rule.sleeps_under_hold());
        (held || in_flight <= 1) && !matches!(plan, Plan::Spin { .. } | Plan::Nap { .. }) && self.stays_armed_alone
    }
}

#[cfg(test)]
mod tests;
