//! Moderators at work: what the queues' modes ask of the controller's Interrupt Coalescing, carried out by the
//! housekeeping thread.
//!
//! Feature 08h holds for the whole controller, so that the vectors of queues in other modes are exempted by feature 09h
//! first. One command is out at a time. A controller that refuses is said to, and its moderated queues run in `interrupt`.

use std::sync::Arc;

use completion::{Coalesce, Mode, Moderator, PACE, Rates};
use driver::AdminCommand;
use nvme::admin::SetFeatures;
use nvme::features::{InterruptCoalescing, VectorConfig, fid};
use nvme::{Status, Vector};
use units::Nanos;

use crate::shared::hw_queue::HwQueue;
use crate::shared::queue_shared::QueueShared;
use crate::transport::RingController;

/// Ticks without a completion after which nobody ticks, until somebody has been woken by a moderated queue.
const IDLE_TICKS: u32 = 3;

/// The token of moderators' commands; log pages have numbers of one byte.
pub(super) const MODERATION: u64 = 1 << 8;

/// What a controller holds back, and why.
#[derive(Default)]
pub(crate) struct Moderation {
    /// Of the mode that asked first.
    moderator: Option<(completion::Moderation, Moderator)>,
    /// What the controller has been told.
    in_force: Option<Coalesce>,
    exempt: Vec<Vector>,
    out: Option<Out>,
    ticked: Nanos,
    completions: u64,
    messages: u64,
    pub idle: u32,
    /// The controller takes neither feature.
    pub refused: bool,
}

/// The command that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Coalesce(Coalesce),
    Exempt(Vector, bool),
}

impl Moderation {
    /// The setting in force, if it holds anything back: entries, and microseconds.
    pub(crate) fn held_back(&self) -> Option<(u32, u32)> {
        let setting = self.in_force.filter(|&setting| setting != Coalesce::OFF)?;
        Some((setting.entries().into(), u32::from(setting.time()) * 100))
    }

    /// The next command, if there is something to change. [`Moderation::answered`] or [`Moderation::not_posted`] follows.
    pub(crate) fn next(&mut self, now: Nanos, controller: &RingController, queues: &[Arc<HwQueue>]) -> Option<AdminCommand> {
        if self.out.is_some() {
            return None;
        }
        self.choose(queues);
        if self.refused {
            fall_back(queues);
            return None;
        }
        let out = self.exemption(queues).or_else(|| self.setting(now, controller, queues))?;
        self.out = Some(out);
        let sqe = match out {
            Out::Coalesce(setting) => {
                let value = InterruptCoalescing::new().with_thr(setting.thr()).with_time(setting.time());
                SetFeatures::new(fid::INTERRUPT_COALESCING, value).to_sqe()
            }
            Out::Exempt(vector, exempt) => {
                let value = VectorConfig::new().with_iv(vector.0).with_cd(exempt);
                SetFeatures::new(fid::VECTOR_CONFIG, value).to_sqe()
            }
        };
        Some(AdminCommand { sqe, page: false })
    }

    /// The moderator that the queues' modes ask for. Of several on one controller the first queue's.
    fn choose(&mut self, queues: &[Arc<HwQueue>]) {
        let wanted = queues.iter().filter_map(|queue| moderation(queue)).next();
        if self.moderator.as_ref().map(|(moderation, _)| *moderation) != wanted {
            self.moderator = wanted.map(|moderation| {
                let mut moderator = Moderator::new(moderation);
                moderator.confirmed(self.in_force.unwrap_or(Coalesce::OFF));
                (moderation, moderator)
            });
            self.idle = 0;
        }
    }

    /// A vector whose exemption has to change.
    fn exemption(&self, queues: &[Arc<HwQueue>]) -> Option<Out> {
        self.moderator.as_ref()?;
        queues.iter().find_map(|queue| {
            let exempt = !queues.iter().any(|other| other.pair.vector() == queue.pair.vector() && moderation(other).is_some());
            (exempt != self.exempt.contains(&queue.pair.vector())).then_some(Out::Exempt(queue.pair.vector(), exempt))
        })
    }

    fn setting(&mut self, now: Nanos, controller: &RingController, queues: &[Arc<HwQueue>]) -> Option<Out> {
        let Some((_, moderator)) = &mut self.moderator else {
            let held = self.in_force.is_some_and(|setting| setting != Coalesce::OFF);
            return held.then_some(Out::Coalesce(Coalesce::OFF));
        };
        if now < self.ticked + PACE {
            return None;
        }
        let moderated = || queues.iter().filter(|queue| moderation(queue).is_some());
        let completions: u64 = moderated().map(|queue| queue.pair.counters().finished).sum();
        let messages: u64 = moderated().map(|queue| controller.messages(queue.pair.vector())).sum();
        let rates = Rates {
            elapsed: now - self.ticked,
            completions: completions.saturating_sub(self.completions),
            messages: messages.saturating_sub(self.messages),
            in_flight: moderated().map(|queue| queue.pair.in_flight()).sum(),
            asked: moderated().filter(|queue| queue.pair.in_flight() > 0).map(|queue| asked(queue)).min().unwrap_or(0),
        };
        (self.ticked, self.completions, self.messages) = (now, completions, messages);
        self.idle = if rates.completions == 0 { self.idle.saturating_add(1) } else { 0 };
        moderator.tick(now, &rates).map(Out::Coalesce)
    }

    /// The controller's answer to the command that was out.
    pub(crate) fn answered(&mut self, status: Status, queues: &[Arc<HwQueue>]) {
        let Some(out) = self.out.take() else { return };
        if !status.is_success() {
            tracing::debug!(%status, ?out, "Interrupt Coalescing is refused");
            self.refused = true;
            if let Some((_, moderator)) = &mut self.moderator {
                moderator.refused();
            }
            fall_back(queues);
            return;
        }
        self.took(out);
        let held = self.in_force.map_or(0, |setting| u32::from(setting.entries()));
        for queue in queues {
            let held = if self.exempt.contains(&queue.pair.vector()) { 0 } else { held };
            queue.users.iter().for_each(|user| user.set_held(held));
        }
    }

    fn took(&mut self, out: Out) {
        match out {
            Out::Coalesce(setting) => {
                self.in_force = Some(setting);
                if let Some((_, moderator)) = &mut self.moderator {
                    moderator.confirmed(setting);
                }
            }
            Out::Exempt(vector, true) => self.exempt.push(vector),
            Out::Exempt(vector, false) => self.exempt.retain(|&exempt| exempt != vector),
        }
    }

    /// There was no room on the admin queue.
    pub(crate) fn not_posted(&mut self) {
        self.out = None;
    }

    /// The controller was reset: nothing is held back, nothing is exempt, and nothing is out.
    pub(crate) fn forget(&mut self, queues: &[Arc<HwQueue>]) {
        queues.iter().for_each(|queue| queue.users.iter().for_each(|user| user.set_held(0)));
        (self.in_force, self.out) = (None, None);
        self.exempt.clear();
        if let Some((_, moderator)) = &mut self.moderator {
            moderator.reset();
        }
    }

    /// When to come again. Idle queues are left alone, until something completes ([`QueueShared::idle`]).
    pub(crate) fn until(&self, queues: &[Arc<HwQueue>]) -> Nanos {
        let ticks = self.moderator.as_ref().is_some_and(|(asked, _)| *asked != completion::Moderation::Fixed);
        let waits = self.moderator.is_some() && self.in_force.is_none();
        if self.out.is_some() || self.refused || !(ticks || waits) {
            return Nanos::MAX;
        }
        if self.idle < IDLE_TICKS {
            return self.ticked + PACE;
        }
        let moderated = queues.iter().filter(|queue| moderation(queue).is_some());
        moderated.flat_map(|queue| &queue.users).for_each(|user| user.idle.arm());
        Nanos::MAX
    }
}

/// Which moderator the modes of a hardware queue ask for; where its policies would ask, only while they do.
fn moderation(queue: &HwQueue) -> Option<completion::Moderation> {
    let wanted = |user: &Arc<QueueShared>| {
        let moderation = user.mode.asked().and_then(Mode::moderation)?;
        (moderation != completion::Moderation::Asked || user.holds() > 1).then_some(moderation)
    };
    queue.users.iter().find_map(wanted)
}

/// For how many entries all policies of a hardware queue that have something in flight would have messages held back.
fn asked(queue: &HwQueue) -> u16 {
    queue.users.iter().filter(|user| user.open() > 0).map(|user| user.holds() as u16).min().unwrap_or(0)
}

/// Queues that ask for moderation where there is none get what there is.
fn fall_back(queues: &[Arc<HwQueue>]) {
    for user in queues.iter().flat_map(|queue| &queue.users) {
        let unfit =
            user.mode.asked().filter(|mode| mode.moderation().is_some_and(|moderation| moderation != completion::Moderation::Asked));
        // The application may ask for another at this moment, which stands.
        if unfit.is_some_and(|unfit| user.mode.ask_instead(unfit, Mode::INTERRUPT)) {
            user.notice();
        }
    }
}
