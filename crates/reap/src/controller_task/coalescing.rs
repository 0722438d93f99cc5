//! Interrupt Coalescing of the controller, as the modes of its queues ask for it: `coalesce` (a
//! constant), `dim` and `vic` (adjusted to the load).
//!
//! Feature 08h (Base §5.1.25.2.2) holds for the whole controller, so vectors of queues in other
//! modes are exempted first, by feature 09h (Base §5.1.25.2.3). One Set Features command is in
//! flight at a time. If the controller rejects one, its queues run in `interrupt`.

use std::sync::Arc;

use completion::{Coalesce, Mode, Moderation, Moderator, PACE, Rates};
use driver::{AdminCommand, Purpose};
use nvme::admin::SetFeatures;
use nvme::features::{InterruptCoalescing, VectorConfig, fid};
use nvme::{Status, Vector};
use units::Nanos;

use super::ControllerTask;
use crate::shared::events::EventKind;
use crate::shared::hw_queue::HwQueue;
use crate::transport::RingController;

/// After this many ticks without a completion the timer stops, until a queue has completions again.
const IDLE_TICKS: u32 = 3;

/// Token of the Set Features commands. Bits 7:0 are log pages.
pub(super) const COALESCING: u64 = 1 << 8;

/// The state of a controller's Interrupt Coalescing.
#[derive(Default)]
pub(crate) struct Coalescing {
    /// The moderator of the first queue whose mode has one.
    moderator: Option<(Moderation, Moderator)>,
    /// The setting that the controller has confirmed; `None`: not known, as after a reset.
    in_force: Option<Coalesce>,
    /// Vectors that are exempt (feature 09h, CD).
    exempt: Vec<Vector>,
    /// The command in flight.
    command: Option<Setting>,
    /// The last tick, and the counts of completions and messages then.
    ticked: Nanos,
    completions: u64,
    messages: u64,
    /// Ticks in a row without a completion.
    pub idle: u32,
    /// The controller has rejected a command.
    pub refused: bool,
}

/// What a Set Features command sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Feature 08h.
    Coalesce(Coalesce),
    /// Feature 09h: whether the vector is exempt.
    Exempt(Vector, bool),
}

impl ControllerTask {
    /// Posts the next Set Features command. Returns when to step again.
    pub(super) fn step_coalescing(&mut self, now: Nanos) -> Nanos {
        if self.shared.reporter.take_queue_active() {
            self.coalescing.idle = 0;
        }
        // No tag: the setting is computed again at the next step.
        if let Some(command) = self.coalescing.next(now, &self.controller, &self.queues)
            && !self.admin.post(&self.controller, command, Purpose::Own(COALESCING), now)
        {
            self.coalescing.not_posted();
        }
        self.coalescing.until(&self.queues)
    }

    /// The command of [`ControllerTask::step_coalescing`] has completed.
    pub(super) fn coalescing_completed(&mut self, status: Status) {
        self.coalescing.completed(status, &self.queues);
        let mut health = self.shared.health();
        let refused_now = self.coalescing.refused && !health.coalescing_refused;
        (health.coalescing, health.coalescing_refused) =
            (self.coalescing.in_force(), self.coalescing.refused);
        // Before the event: it takes other locks, and wakes receivers that may read the health.
        drop(health);
        if refused_now {
            self.shared.reporter.push(EventKind::CoalescingRefused);
        }
    }
}

impl Coalescing {
    /// The setting in force, if it coalesces: entries, and microseconds.
    pub(crate) fn in_force(&self) -> Option<(u32, u32)> {
        let setting = self.in_force.filter(|&setting| setting != Coalesce::OFF)?;
        Some((setting.entries().into(), u32::from(setting.time()) * 100))
    }

    /// The next command, if a setting has to change. Must be followed by [`Coalescing::completed`]
    /// or [`Coalescing::not_posted`].
    fn next(
        &mut self,
        now: Nanos,
        controller: &RingController,
        queues: &[Arc<HwQueue>],
    ) -> Option<AdminCommand> {
        if self.command.is_some() {
            return None;
        }
        self.choose(queues);
        if self.refused {
            // A queue may have been switched since to a mode that needs coalescing.
            fall_back(queues);
            return None;
        }
        // Exemptions first: a setting must not reach queues that have not asked for it.
        let setting = self.exemption(queues).or_else(|| self.setting(now, controller, queues))?;
        self.command = Some(setting);
        let sqe = match setting {
            Setting::Coalesce(setting) => {
                let value =
                    InterruptCoalescing::new().with_thr(setting.thr()).with_time(setting.time());
                SetFeatures::new(fid::INTERRUPT_COALESCING, value).to_sqe()
            }
            Setting::Exempt(vector, exempt) => {
                let value = VectorConfig::new().with_iv(vector.0).with_cd(exempt);
                SetFeatures::new(fid::VECTOR_CONFIG, value).to_sqe()
            }
        };
        Some(AdminCommand { sqe, needs_page: false })
    }

    /// Chooses the moderator. The feature is the controller's, so of several modes the first
    /// queue's decides.
    fn choose(&mut self, queues: &[Arc<HwQueue>]) {
        let wanted = queues.iter().filter_map(|queue| moderation(queue)).next();
        if self.moderator.as_ref().map(|(moderation, _)| *moderation) != wanted {
            self.moderator = wanted.map(|moderation| {
                let mut moderator = Moderator::new(moderation);
                // The last moderator's setting is still in force.
                moderator.confirmed(self.in_force.unwrap_or(Coalesce::OFF));
                (moderation, moderator)
            });
            self.idle = 0;
        }
    }

    /// The first vector whose exemption has to change.
    fn exemption(&self, queues: &[Arc<HwQueue>]) -> Option<Setting> {
        // Nothing coalesces: exemptions do not matter.
        self.moderator.as_ref()?;
        queues.iter().find_map(|queue| {
            // Queues may share a vector: it is exempt only if none of them coalesces.
            let exempt = !queues.iter().any(|other| {
                other.pair.vector() == queue.pair.vector() && moderation(other).is_some()
            });
            (exempt != self.exempt.contains(&queue.pair.vector()))
                .then_some(Setting::Exempt(queue.pair.vector(), exempt))
        })
    }

    /// The next setting of feature 08h, if it has to change.
    fn setting(
        &mut self,
        now: Nanos,
        controller: &RingController,
        queues: &[Arc<HwQueue>],
    ) -> Option<Setting> {
        let Some((_, moderator)) = &mut self.moderator else {
            // The last queue has left its mode: switch coalescing off.
            let on = self.in_force.is_some_and(|setting| setting != Coalesce::OFF);
            return on.then_some(Setting::Coalesce(Coalesce::OFF));
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
        };
        (self.ticked, self.completions, self.messages) = (now, completions, messages);
        self.idle = if rates.completions == 0 { self.idle.saturating_add(1) } else { 0 };
        moderator.tick(now, &rates).map(Setting::Coalesce)
    }

    /// The command in flight has completed.
    fn completed(&mut self, status: Status, queues: &[Arc<HwQueue>]) {
        // `None` if a reset came before the completion.
        let Some(command) = self.command.take() else { return };
        if !status.is_success() {
            tracing::debug!(%status, ?command, "the controller has rejected Interrupt Coalescing");
            self.refused = true;
            if let Some((_, moderator)) = &mut self.moderator {
                moderator.refused();
            }
            fall_back(queues);
            return;
        }
        match command {
            Setting::Coalesce(setting) => {
                self.in_force = Some(setting);
                if let Some((_, moderator)) = &mut self.moderator {
                    moderator.confirmed(setting);
                }
            }
            Setting::Exempt(vector, true) => self.exempt.push(vector),
            Setting::Exempt(vector, false) => self.exempt.retain(|&exempt| exempt != vector),
        }
    }

    /// The command was not posted: there was no free tag on the admin queue.
    fn not_posted(&mut self) {
        self.command = None;
    }

    /// The controller was reset: features are at their defaults, and no command is in flight.
    pub(crate) fn forget(&mut self) {
        (self.in_force, self.command) = (None, None);
        self.exempt.clear();
        if let Some((_, moderator)) = &mut self.moderator {
            moderator.reset();
        }
    }

    /// When to step again.
    fn until(&self, queues: &[Arc<HwQueue>]) -> Nanos {
        let ticks =
            self.moderator.as_ref().is_some_and(|(moderation, _)| *moderation != Moderation::Fixed);
        let waits = self.moderator.is_some() && self.in_force.is_none();
        // A completion of the command in flight steps the task. A constant setting needs no timer.
        if self.command.is_some() || self.refused || !(ticks || waits) {
            return Nanos::MAX;
        }
        // Idle queues must not cost a wake-up every 10 ms. The first completion restarts the timer
        // (`QueueShared::idle`).
        if self.idle < IDLE_TICKS {
            return self.ticked + PACE;
        }
        let moderated = queues.iter().filter(|queue| moderation(queue).is_some());
        moderated.flat_map(|queue| &queue.users).for_each(|user| user.idle.arm());
        Nanos::MAX
    }
}

/// The moderation that the modes of a hardware queue ask for.
fn moderation(queue: &HwQueue) -> Option<Moderation> {
    queue.users.iter().find_map(|user| user.mode.requested().and_then(Mode::moderation))
}

/// Switches queues whose mode needs Interrupt Coalescing to `interrupt`.
fn fall_back(queues: &[Arc<HwQueue>]) {
    for user in queues.iter().flat_map(|queue| &queue.users) {
        let unfit = user.mode.requested().filter(|mode| mode.moderation().is_some());
        // Compare and exchange: a mode that the application requests at this moment stays.
        if unfit.is_some_and(|unfit| user.mode.replace_request(unfit, Mode::INTERRUPT)) {
            user.notice();
        }
    }
}
