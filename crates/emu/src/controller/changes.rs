//! The slow variant of a controller's step: with changes from outside ([`Change`]), injected
//! faults, or a lost path to the host.

use std::sync::Arc;

use nvme::regs::{self, Csts};
use nvme::{Registers, Status};
use units::Nanos;

use super::external::{External, Hold, Link};
use super::life::Life;
use super::{Controller, Step};
use crate::io::Fetched;
use crate::logs::ControllerEvent;
use crate::queues::FetchedCommand;
use crate::schedule::Due;
use crate::subsystem::{Change, Loss, Mailbox};
use crate::{FaultInjector, FaultPlan, Injected, Port};

impl<P: Port> Controller<P> {
    /// Connects the controller to a subsystem's [`crate::PathControl`].
    pub(crate) fn listen_to(&mut self, mailbox: Arc<Mailbox>) {
        self.external.mailbox = Some(mailbox);
    }

    /// Applies a change at `now`, or at the first step after that.
    pub fn change(&mut self, at: Nanos, change: Change) {
        self.external.expect(at, change);
    }

    /// Whether commands can complete in the step that fetches them.
    pub(super) fn set_instant(&mut self) {
        let profile = &self.config.profile;
        self.instant = profile.is_instant()
            && !profile.moves_data
            && self.external.delay == Nanos::ZERO
            && self.external.hold == Hold::None
            && self.external.faults.is_none();
    }

    /// Assigns namespaces to ANA groups, and applies the groups' states.
    pub(super) fn place_in_groups(&mut self) {
        let Controller { store, ana, .. } = self;
        for namespace in store.iter_mut() {
            let Some(ana) = ana.as_mut() else {
                // ANAGRPID is reserved without ANA reporting.
                namespace.ana_group = 0;
                continue;
            };
            namespace.ana_group = namespace.ana_group.max(1);
            ana.include(namespace.ana_group);
            let refusal = ana.state(namespace.ana_group).and_then(nvme::AnaState::refusal);
            namespace.refusal = refusal.unwrap_or(Status::SUCCESS);
        }
    }

    /// A step with changes, with faults, or with a lost path.
    #[cold]
    pub(super) fn step_with_changes(&mut self, now: Nanos) -> Step {
        for (at, change) in
            self.external.mailbox.as_ref().map(|mailbox| mailbox.take()).unwrap_or_default()
        {
            // Other threads fill the mailbox; from here on only this thread handles the change.
            self.external.expect(at, change);
        }
        let mut worked = false;
        while let Some((at, change)) = self.external.take_due(now) {
            tracing::debug!(controller = self.config.controller_id, %at, %change, "an external change");
            self.apply_change(now, change);
            worked = true;
        }
        let faults = self.external.faults.clone();
        if let Some(faults) = &faults {
            // Delayed messages are sent before the step, so that they precede those that the step
            // sends.
            faults.advance(now, &self.port);
        }
        let mut step = match self.external.link {
            Link::Up => self.step_connected(now),
            Link::Lost(loss) => self.step_disconnected(now, Some(loss)),
            Link::NeedsReset => self.step_disconnected(now, None),
        };
        // A change may have effects in the next step, so the owner must not sleep.
        step.worked |= worked;
        let late = faults.map_or(Nanos::MAX, |faults| faults.next());
        step.next = step.next.into_iter().chain((late != Nanos::MAX).then_some(late)).min();
        step
    }

    fn apply_change(&mut self, now: Nanos, change: Change) {
        match change {
            Change::Ana { group, state } => {
                if self
                    .ana
                    .as_ref()
                    .is_none_or(|ana| group.is_some_and(|group| ana.state(group).is_none()))
                {
                    tracing::warn!(
                        controller = self.config.controller_id,
                        ?group,
                        "there is no such ANA group to change"
                    );
                }
                let changed = self.ana.as_mut().is_some_and(|ana| ana.set(group, state));
                if changed {
                    self.place_in_groups();
                }
                if changed && self.features.events().ana_change() {
                    self.events.raise(ControllerEvent::AnaChanged);
                }
            }
            Change::Lost(loss) => self.lose_path(loss),
            Change::Back => self.restore_path(),
            Change::ExceedCqt(exceeds) => self.external.exceeds_cqt = exceeds,
            Change::Resize { nsid, blocks } => {
                if self.resize(nsid, blocks).is_none() {
                    tracing::warn!(controller = self.config.controller_id, %nsid, "there is no such namespace to resize");
                }
            }
            Change::Wire(_) => tracing::warn!("a controller has no connections of its own"),
            Change::Media { nsid, fault } => self.store.inject_fault(nsid, fault),
            Change::PowerLost => {
                self.store.lose_power();
                self.lose_path(Loss::Gone);
                self.lose_power();
            }
            Change::Fail => self.fail_because("asked to"),
            Change::ResetTakes(time) => self.set_reset_time(now, time),
            Change::Fault { fault, times } => {
                let faults = self
                    .external
                    .faults
                    .get_or_insert_with(|| FaultInjector::new(FaultPlan::new()));
                faults.expect(fault, times);
                self.interrupts.inject(faults.clone());
            }
            Change::Delay(delay) => self.external.delay = delay,
            Change::Hold(op) => self.external.hold = op.map_or(Hold::All, Hold::Only),
            Change::Release => {
                self.external.hold = Hold::None;
                for due in std::mem::take(&mut self.external.held) {
                    self.schedule.push(Due { at: due.at.max(now), ..due });
                }
            }
        }
        self.set_instant();
    }

    /// Sets the time to follow CC.EN, also for a transition in progress.
    fn set_reset_time(&mut self, now: Nanos, time: Nanos) {
        self.external.reset_takes = Some(time);
        self.config.ready_delay = time;
        self.life = match self.life {
            Life::Starting(_) => Life::Starting(now + time),
            Life::Stopping(_) => Life::Stopping(now + time),
            life => life,
        };
    }

    /// The changes in force, as changes that reproduce them.
    pub fn circumstances(&self) -> Vec<Change> {
        let External { link, delay, hold, reset_takes, faults, .. } = &self.external;
        let mut changes = Vec::new();
        if let Link::Lost(loss) = *link {
            changes.push(Change::Lost(loss));
        }
        if self.external.exceeds_cqt {
            changes.push(Change::ExceedCqt(true));
        }
        if *delay > Nanos::ZERO {
            changes.push(Change::Delay(*delay));
        }
        match *hold {
            Hold::None => {}
            Hold::All => changes.push(Change::Hold(None)),
            Hold::Only(op) => changes.push(Change::Hold(Some(op))),
        }
        changes.extend(reset_takes.map(Change::ResetTakes));
        let expected = faults.iter().flat_map(FaultInjector::expected);
        changes.extend(expected.map(|(fault, times)| Change::Fault { fault, times }));
        changes.extend(self.ana.iter().flat_map(|states| states.changed(self.config.ana.as_ref())));
        changes
    }

    /// The injected faults so far, in order ([`crate::Config::faults`]).
    pub fn injected(&self) -> Vec<Injected> {
        self.external.faults.as_ref().map(FaultInjector::injected).unwrap_or_default()
    }

    /// Handles the loss of the path: the data of writes in service are copied, because host memory
    /// will be out of reach; other commands will have no effect.
    fn lose_path(&mut self, loss: Loss) {
        // A second loss keeps the data of the first: host memory has been out of reach since then.
        if self.external.link == Link::Up {
            let Controller { commands, store, port, early, .. } = &mut *self;
            let inside = commands.iter().filter(|(_, command)| command.request.op.changes_blocks());
            let data = |command: &FetchedCommand| match early.take(command.order) {
                Some(Fetched::Bytes(bytes)) => Some(bytes),
                Some(_) => None,
                None => store.take_data(&command.request, port).ok(),
            };
            let taken =
                inside.scan(data, |data, (_, command)| Some((command.order, data(command))));
            self.external.taken = taken.filter_map(|(order, data)| Some((order, data?))).collect();
        }
        self.external.link = Link::Lost(loss);
        self.external.silent_at = self.keep_alive + self.config.quiesce_time;
    }

    /// Handles the return of the path. A disabled controller is not affected; any other controller
    /// reports CSTS.CFS.
    fn restore_path(&mut self) {
        let Link::Lost(loss) = self.external.link else { return };
        self.external.link = Link::Up;
        if loss == Loss::Gone {
            // The host read all ones in the meantime; restore the register before it is compared
            // with the last value seen.
            self.port.registers().write32(regs::CC, self.cc.into_bits());
        }
        self.power_on();
        if matches!(self.life, Life::Ready | Life::Starting(_) | Life::ShuttingDown(_)) {
            // The host may have sent these commands again on another path, so none of them may be
            // executed now.
            self.external.link = Link::NeedsReset;
            self.set_status(self.csts.with_rdy(true).with_cfs(true));
        }
    }

    /// A step without access to the host. `loss` is `None` once the path is restored and the host
    /// has to reset the controller.
    fn step_disconnected(&mut self, now: Nanos, loss: Option<Loss>) -> Step {
        let mut worked = false;
        match loss {
            Some(loss) => self.hide(loss),
            None => {
                worked = self.poll_registers(now);
                if self.external.link == Link::Up {
                    let next = self.next_change().unwrap_or(Nanos::MAX).min(self.external.next);
                    return Step { worked, next: (next != Nanos::MAX).then_some(next) };
                }
            }
        }
        // From `silent_at` on the controller must not execute commands; `exceed-cqt` lets it
        // continue while it has writes to execute.
        let exceeds = self.external.exceeds_cqt && !self.external.taken.is_empty();
        let silent_at = if exceeds { Nanos::MAX } else { self.external.silent_at };
        while let Some(due) = self.schedule.pop(now.min(silent_at)) {
            if let Some(command) = self.commands.remove(due.slot, due.order) {
                self.complete_disconnected(&command);
            }
            worked = true;
        }
        let silent_at =
            if self.external.taken.is_empty() { self.external.silent_at } else { silent_at };
        if now >= silent_at {
            self.logs.controller_failed(Status::KEEP_ALIVE_TIMER_EXPIRED);
            self.fail_because("the host did not send Keep Alive in time");
            worked = true;
        }
        let own = self.schedule.next().unwrap_or(Nanos::MAX).min(silent_at);
        let next = own.min(self.external.next);
        Step { worked, next: (next != Nanos::MAX).then_some(next) }
    }

    /// Completes a command whose host is out of reach: a write is executed with the data saved,
    /// others have no effect.
    fn complete_disconnected(&mut self, command: &FetchedCommand) {
        let Some(data) = self.external.taken.remove(&command.order) else { return };
        match self.store.change_taken(&command.request, &data) {
            Ok(()) => self.logs.count(command.request.op, command.request.bytes),
            Err(status) => tracing::debug!(%status, "a write of a lost path failed"),
        }
    }

    /// Sets the registers to what a host reads over a lost path. Checked at each step, as registers
    /// are plain memory that the host may have written.
    fn hide(&self, loss: Loss) {
        let registers = self.port.registers();
        if loss == Loss::Gone && !Csts::from_bits(registers.read32(regs::CSTS)).is_gone() {
            registers.write64(regs::CAP, u64::MAX);
            registers.write32(regs::VS, u32::MAX);
            registers.write32(regs::CSTS, u32::MAX);
        }
        if loss == Loss::Gone && registers.read32(regs::CC) != u32::MAX {
            registers.write32(regs::CC, u32::MAX);
        }
    }
}
