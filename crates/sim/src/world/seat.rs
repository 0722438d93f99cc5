//! What a keeper knows of a controller that is one of several paths.

use std::cell::Cell;
use std::rc::Rc;

use driver::multipath::{Link, Standing};
use driver::{AdminReply, Events, Inventory, Reading};
use nvme::log::ana::AnaLog;
use nvme::log::lid;
use units::Nanos;

/// What a keeper knows of its path.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) standing: Standing,
    pub(super) events: Events,
    /// The namespace's ANA group.
    group: u32,
    pub(super) keep_alive: Nanos,
    /// When the next Keep Alive is due.
    pub(super) keep_alive_at: Nanos,
    /// The controller is cut off from the host's memory, as by an IOMMU.
    pub(super) cut: Rc<Cell<bool>>,
}

impl Seat {
    /// Of a controller that has come up.
    pub(super) fn new(inventory: &Inventory, cut: Rc<Cell<bool>>, now: Nanos) -> Seat {
        let group = inventory.namespaces.first().map_or(0, |namespace| namespace.ana_group);
        let standing = Standing::NEVER_UP.with_link(Link::Live);
        let mut seat = Seat { standing, events: Events::default(), group, keep_alive: Nanos::ZERO, keep_alive_at: Nanos::MAX, cut };
        seat.up(inventory, now);
        seat
    }

    pub(super) fn up(&mut self, inventory: &Inventory, now: Nanos) {
        self.events = Events::new(inventory);
        self.keep_alive = inventory.keep_alive;
        if self.keep_alive > Nanos::ZERO {
            self.keep_alive_at = now;
        }
        if inventory.subsystem.ana_transition.is_some() {
            self.events.read(Reading::Log(lid::ANA));
        }
    }

    /// A log page has been read.
    pub(super) fn log_answered(&mut self, page: u64, reply: &AdminReply) {
        self.events.was_read();
        if reply.status.is_success()
            && page == u64::from(lid::ANA)
            && let Ok(log) = AnaLog::from_bytes(reply.page)
            && let Some(ana) = log.state_of(self.group)
        {
            self.standing.ana = ana;
        }
    }
}
