//! The keeper of a controller: its admin queue, and what watches over it. What it does is in `keeping.rs`.

use std::cell::Cell;
use std::rc::Rc;

use completion::{Coalesce, Moderator};
use driver::multipath::{Link, Standing};
use driver::{AdminCommand, AdminReply, Buffers, Completed, Events, Inventory, ProtocolViolation, Purpose, Reading};
use driver::{Recovery, RecoveryConfig, Watch};
use nvme::log::ana::AnaLog;
use nvme::log::lid;
use units::Nanos;

use crate::SimError;
use crate::hw_queue::Pair;
use crate::port::{HostBar, Memory};

/// The admin queue and what watches over the controller.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) admin: Pair,
    /// Bus address of the page that admin commands return data in.
    pub(super) page: u64,
    pub(super) memory: Memory,
    pub(super) recovery: Option<(Recovery, RecoveryConfig)>,
    pub(super) watch: Watch,
    replies: Vec<Completed>,
    pub(super) taken_back: Vec<(u64, Buffers)>,
    /// The thread was told of entries that nobody had told it of, and is given time to take them.
    pub(super) patience: bool,
    pub(super) resets: u32,
    pub(super) aborts: u32,
    pub(super) missed: u64,
    /// The controller is one of several paths, and is watched.
    pub(super) seat: Option<Seat>,
    /// What the device holds back is this one's to decide, and what it last proposed.
    pub(super) moderator: Option<Moderator>,
    pub(super) proposed: Option<Coalesce>,
    /// Since when, and how many completions and messages there had been.
    pub(super) rates_since: (Nanos, u64, u64),
}

/// Room for the admin queue's entries.
const REPLIES: usize = 64;

impl Keeper {
    pub(super) fn new(admin: Pair, page: u64, memory: Memory) -> Keeper {
        let replies = Vec::with_capacity(REPLIES);
        let (watch, taken_back) = (Watch::new(), Vec::new());
        Keeper {
            admin,
            page,
            memory,
            recovery: None,
            watch,
            replies,
            taken_back,
            patience: false,
            resets: 0,
            aborts: 0,
            missed: 0,
            seat: None,
            moderator: None,
            proposed: None,
            rates_since: (Nanos::ZERO, 0, 0),
        }
    }

    /// Whether there is something for it on the admin queue.
    pub(super) fn is_called(&self) -> bool {
        self.admin.pending()
    }

    /// Whether a sequence is under way, so that registers may change.
    pub(super) fn is_busy(&self) -> bool {
        self.recovery.as_ref().is_some_and(|(recovery, _)| !recovery.is_watching())
    }

    pub(super) fn violated(&mut self, violation: ProtocolViolation) -> Result<(), SimError> {
        match &mut self.recovery {
            Some((recovery, _)) => recovery.violated(violation),
            None => return Err(violation.into()),
        }
        Ok(())
    }

    /// Posts an admin command. False: no tag, or the queue is closed.
    pub(super) fn post(&self, command: AdminCommand, purpose: Purpose, now: Nanos, bells: &HostBar) -> bool {
        let mut sqe = command.sqe;
        if command.page {
            sqe.prp1 = self.page;
        }
        let mut sq = self.admin.lock_sq();
        let posted = sq.post(sqe, purpose.to_token(), now).is_ok();
        sq.commit(bells);
        posted
    }

    /// Takes the entries of the admin queue and hands each to `f`, with the page.
    pub(super) fn replies(&mut self, bells: &HostBar, mut f: impl FnMut(Purpose, &AdminReply)) -> Option<ProtocolViolation> {
        let violation = self.admin.reap(bells, REPLIES as u32, &mut self.replies).violation.map(|violation| *violation);
        let mut page = [0; 4096];
        // The page was allocated at bring-up.
        self.memory.read(self.page, &mut page).unwrap_or_default();
        for completed in self.replies.drain(..) {
            let reply = AdminReply { status: completed.status, result: completed.result, page: &page };
            f(Purpose::from_token(completed.token), &reply);
        }
        violation
    }
}

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
