//! Bring-up of a controller: enable it, create its queues, and hand it to the thread that opens the
//! device. If that fails, the controller is shut down again.

use std::sync::Arc;

use driver::{BringupAction, EventRequests, Inventory, Recovery, Shutdown};
use driver::{QueueMap, SplitError, Splitter};
use units::Nanos;

use super::{ControllerPhase, ControllerTask, OpenFailure};
use crate::error::{OpenError, OptionsError};
use crate::namespace::Namespace;
use crate::shared::controller::{Description, NamespaceSizes, Opened};
use crate::shared::hw_queue::{HwQueue, MAX_USERS};
use crate::shared::queue_shared::QueueShared;
use crate::transport::{MAX_TRANSFER, RingPair, Rings, Transport};

impl ControllerTask {
    /// Steps the bring-up. Returns when to step again.
    pub(super) fn bring_up(&mut self, now: Nanos) -> Nanos {
        loop {
            let ControllerPhase::BringingUp(bringup, ..) = &mut self.phase else { return now };
            match bringup.step(now, self.controller.properties()) {
                BringupAction::Wait { until } => return until,
                BringupAction::Admin(command) => self.post(command, now),
                BringupAction::ReopenAdmin => {
                    // The controller is disabled: an attempt that has failed may have left commands
                    // behind.
                    self.admin.pair.exclusive().abandon();
                    self.admin.reclaim_page();
                    self.admin.pair.exclusive().reopen();
                }
                BringupAction::Rings { sizes, .. } => match Rings::new(&self.controller, sizes) {
                    Ok(rings) => {
                        let (sq, cq) = rings.addrs();
                        self.rings.push(rings);
                        if let ControllerPhase::BringingUp(bringup, ..) = &mut self.phase {
                            bringup.rings(sq, cq);
                        }
                    }
                    Err(error) => {
                        let (bytes, queues) = (self.options.pool_bytes, self.options.hardware());
                        return self.fail_open(OpenError::from_alloc(error, bytes, queues), now);
                    }
                },
                BringupAction::Ready(inventory) => return self.open(*inventory, now),
                BringupAction::Failed(error) => {
                    return self.fail_open(OpenError::Bringup(error), now);
                }
            }
        }
    }

    /// Bring-up has failed, or no namespace can be used. The controller may be enabled, so it is
    /// shut down before its memory is freed. The opener gets the error after that.
    fn fail_open(&mut self, error: OpenError, now: Nanos) -> Nanos {
        let ControllerPhase::BringingUp(_, reply, _) = &self.phase else { return now };
        let failure = OpenFailure { reply: reply.clone(), error };
        let shutdown = Box::new(Shutdown::new(&self.inventory, self.admin_timeout()));
        self.phase = ControllerPhase::ShuttingDown(shutdown, Some(failure));
        self.shut_down(now)
    }

    /// The controller is up: makes the hardware queues, and hands all parts to the opener.
    fn open(&mut self, inventory: Inventory, now: Nanos) -> Nanos {
        self.inventory = inventory;
        // Before the first command is built: how commands are built depends on the inventory, for
        // example on whether the controller supports SGLs.
        self.controller.learn(&self.inventory);
        if let Err(error) = self.make_queues() {
            return self.fail_open(error, now);
        }
        let recovery =
            Box::new(Recovery::new(self.recovery_config(), self.again(), &self.inventory));
        let ControllerPhase::BringingUp(_, reply, control) =
            std::mem::replace(&mut self.phase, ControllerPhase::Live(recovery))
        else {
            return now;
        };
        self.events = EventRequests::new(&self.inventory);
        self.sizes = NamespaceSizes::of(&self.inventory.namespaces, self.controller.number());
        self.path_up(now);
        if let Some(control) = control {
            let (description, inventory, namespaces) =
                (self.description(), self.inventory.clone(), self.namespaces());
            let (transport, queues, sizes) =
                (Transport::Ring(self.controller.clone()), self.queues.clone(), self.sizes.clone());
            let opened = Opened { transport, queues, namespaces, sizes, control, description };
            // If the opener does not wait any more, the handle is dropped here, which closes the
            // device.
            _ = reply.send(Ok((opened, inventory)));
        }
        now
    }

    fn make_queues(&mut self) -> Result<(), OpenError> {
        // The granted pairs: first the interrupt queues, then the poll queues of the first hardware
        // queues.
        let granted = self.inventory.queues.len();
        // If the application has not set the number of queues: fewer hardware queues, each with
        // both pairs.
        let both = self.controller.has_poll_queues()
            && self.options.software_queues.is_none()
            && self.options.hardware_queues.is_none();
        let count = if both { (granted / 2).max(1) } else { granted }.min(self.options.hardware());
        let map =
            QueueMap::new(self.options.software_over(count), count).map_err(OptionsError::from)?;
        let too_small = || OpenError::PoolTooSmall {
            bytes: self.options.pool_bytes,
            queues: self.options.hardware(),
        };
        let prp = self.controller.prp_table();
        let rings_of = |n: usize| {
            let (layout, rings) = self.inventory.queues.get(n).zip(self.rings.get(n))?;
            Some(rings.pair(&self.controller, layout.id, layout.sizes).ok_or_else(too_small))
        };
        let mut queues = Vec::with_capacity(count);
        for n in 0..count {
            let sharing = map.software_of(n).len();
            if sharing > MAX_USERS {
                return Err(OptionsError::Shared { queues: sharing, most: MAX_USERS }.into());
            }
            let first = rings_of(n).ok_or_else(too_small)??;
            let pair = RingPair::new(
                first,
                self.controller.vector_of(n, count),
                self.controller.clone(),
                prp.clone(),
            );
            let polled = rings_of(count + n)
                .transpose()?
                .map(|pair| RingPair::polled(pair, self.controller.clone(), prp.clone()));
            // A place in the inbox for each command that can be in flight: a user may have all
            // tags.
            let parts = pair.tags() + polled.as_ref().map_or(0, RingPair::tags);
            let user = |_| QueueShared::new(pair.id().0, parts, self.options.mode).map(Arc::new);
            let users = (0..sharing).map(user).collect::<Result<_, _>>();
            let users =
                users.map_err(|source| OpenError::System { what: "software queues", source })?;
            let queue = HwQueue::new(pair, polled, users, self.shared.reporter.clone());
            queues.push(Arc::new(
                queue.map_err(|source| OpenError::System { what: "hardware queues", source })?,
            ));
        }
        self.queues = queues;
        self.controller.notes().iter().for_each(|note| self.note(note.clone()));
        let without = self.queues.iter().filter(|queue| queue.polled.is_none()).count();
        if self.controller.has_poll_queues() && without > 0 {
            self.note(format!(
                "{without} of {count} hardware queues have no poll queue, because the controller has too few queue pairs: polled I/O causes interrupts"
            ));
        }
        Ok(())
    }

    /// The namespaces that can be used.
    pub(super) fn namespaces(&self) -> Vec<Namespace> {
        let usable = |ns: &driver::Namespace| {
            Some(Namespace::new(
                ns.nsid,
                self.splitter(ns)?.ok()?,
                ns.blocks,
                self.controller.number(),
            ))
        };
        self.inventory.namespaces.iter().filter_map(usable).collect()
    }

    /// How requests to a namespace are split. An error if a block is larger than a command may move
    /// (MDTS).
    fn splitter(&self, ns: &driver::Namespace) -> Option<Result<Splitter, SplitError>> {
        self.inventory.limits.map(|limits| ns.splitter(&limits, MAX_TRANSFER.into()))
    }

    pub(super) fn description(&self) -> Description {
        let model = &self.inventory.model;
        let unfit = |ns: &driver::Namespace| {
            Some(format!("namespace {}: {}", ns.nsid, self.splitter(ns)?.err()?))
        };
        let unfit = self.inventory.namespaces.iter().filter_map(unfit);
        Description {
            uri: String::new(),
            model: model.model.clone(),
            serial: model.serial.clone(),
            firmware: model.firmware.clone(),
            version: self.inventory.version.to_string(),
            hardware_queues: self.queues.len(),
            depth: self.queues.first().map_or(0, |queue| queue.tags()),
            refused: self.inventory.refused.iter().map(ToString::to_string).chain(unfit).collect(),
        }
    }
}
