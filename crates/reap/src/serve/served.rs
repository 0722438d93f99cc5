//! The controller that is served: its URI's, with what goes wrong on purpose.

use std::rc::Rc;

use device::{Change, Controller, FaultPlan, FaultyPort, Port, Step};
use units::Nanos;

use super::host::{GuestPort, Host, STRIDE};
use crate::error::OpenError;
use crate::link::embedded::{self, LATE_DOORBELL, Member, config};
use crate::uri::DeviceUri;

/// A controller with its port, of whatever kind.
pub(super) trait Served {
    /// One step of it.
    fn step(&mut self, now: Nanos) -> Step;
    /// As after power-on.
    fn reset(&mut self);
    /// Before the thread sleeps: whether the host has gone on meanwhile, so that it must not.
    fn arm(&mut self) -> bool;
    /// CSTS.CFS.
    fn fail(&mut self);
    /// Something happens to it at an instant.
    fn change(&mut self, at: Nanos, change: Change);
    /// What has happened to it and lasts.
    fn circumstances(&self) -> Vec<Change>;
    /// Commands that it has completed so far.
    fn completed(&self) -> u64;
}

impl<P: Port> Served for Controller<P> {
    fn step(&mut self, now: Nanos) -> Step {
        Controller::step(self, now)
    }

    fn reset(&mut self) {
        self.reset_function();
    }

    fn arm(&mut self) -> bool {
        self.arm_doorbells()
    }

    fn fail(&mut self) {
        Controller::fail(self);
    }

    fn change(&mut self, at: Nanos, change: Change) {
        Controller::change(self, at, change);
    }

    fn circumstances(&self) -> Vec<Change> {
        Controller::circumstances(self)
    }

    fn completed(&self) -> u64 {
        self.counters().completed
    }
}

/// One whose doorbells arrive late.
struct Late {
    controller: Controller<FaultyPort<GuestPort>>,
    port: FaultyPort<GuestPort>,
}

impl Served for Late {
    fn step(&mut self, now: Nanos) -> Step {
        self.port.advance(now);
        let mut step = self.controller.step(now);
        step.next = step.next.into_iter().chain(self.port.next_late()).min();
        step
    }

    fn reset(&mut self) {
        self.controller.reset_function();
    }

    fn arm(&mut self) -> bool {
        self.controller.arm_doorbells()
    }

    fn fail(&mut self) {
        self.controller.fail();
    }

    fn change(&mut self, at: Nanos, change: Change) {
        self.controller.change(at, change);
    }

    fn circumstances(&self) -> Vec<Change> {
        self.controller.circumstances()
    }

    fn completed(&self) -> u64 {
        self.controller.counters().completed
    }
}

/// The controller of `uri` on this host, by itself or one of a subsystem.
pub(super) fn controller(uri: &DeviceUri, host: &Rc<Host>, member: Option<Member<'_>>) -> Result<Box<dyn Served>, OpenError> {
    if let Some(word) = of_this_process(uri) {
        let what =
            format!("`{word}` says how a host in this process reaches the controller, and has no meaning for another one; leave it out");
        return Err(OpenError::Options(what));
    }
    let (mut config, port) = (config(uri)?, GuestPort(host.clone()));
    (config.shadow_doorbells, config.doorbell_stride) = (uri.shadow != Some(false), STRIDE);
    if !uri.late_doorbells {
        return Ok(Box::new(embedded::controller(config, uri, member, port)?));
    }
    let port = FaultyPort::new(port, FaultPlan::default().with_late_doorbells(LATE_DOORBELL, uri.seed));
    let controller = embedded::controller(config, uri, member, port.clone())?;
    Ok(Box::new(Late { controller, port }))
}

/// A parameter that has no meaning for a host of another process.
fn of_this_process(uri: &DeviceUri) -> Option<&'static str> {
    let parameters =
        [(!uri.masks, "masks=no"), (uri.owner, "reaper=owner"), (uri.late_properties, "properties=late"), (uri.own_thread, "thread=own")];
    parameters.into_iter().find_map(|(given, word)| given.then_some(word))
}
