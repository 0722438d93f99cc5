//! A controller's life after it is attached: bring-up, use, recovery, shutdown. `driver`'s state machines say what is to
//! be done, in this order; here it is done.

mod asks;
mod moderating;
mod opening;
mod orphans;
mod path;
mod recovering;
mod seeing;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::SyncSender;

use driver::{
    Abandoned, AdminCommand, AdminReply, Bringup, BringupConfig, Events, Inventory, Purpose, Reading, Recovery, RecoveryAsk,
    RecoveryConfig, Shutdown, ShutdownAsk, WantedQueues, Watch,
};
use hw::EventFd;
use nvme::{QueueId, Status, Vector};
use units::Nanos;

use crate::admin::{Admin, Rings};
use crate::device::{Description, OpenOptions};
use crate::error::OpenError;
use crate::hw_queue::HwQueue;
use crate::link::Link;
use crate::looker::Looker;
use crate::moderation::Moderation;
use crate::namespace::Namespace;
use asks::{Asks, lock};
pub(crate) use asks::{Control, Reporter};
use moderating::MODERATION;
use opening::vector_of;
use seeing::Power;
pub(crate) use seeing::Sizes;

/// Between two looks at CSTS of a controller that does nothing.
const HEALTH_EVERY: Nanos = Nanos::from_secs(1);

/// The same where requests could go another way meanwhile.
const PATH_HEALTH_EVERY: Nanos = Nanos::from_millis(10);

/// An admin command that takes longer is not answered any more, however patient the caller is with I/O ...
const ADMIN_TIMEOUT: Nanos = Nanos::from_secs(10);

/// ... and however impatient: as long as any controller may take to become ready (CAP.TO, Base 3.1.4.1).
const ADMIN_TIMEOUT_MIN: Nanos = Nanos::from_millis(500);

/// What a new device is made of.
pub(crate) struct Opened {
    pub queues: Vec<Arc<HwQueue>>,
    pub namespaces: Vec<Namespace>,
    pub sizes: Sizes,
    pub control: Control,
    pub description: Description,
    pub inventory: Inventory,
}

/// What a turn ended with.
pub(crate) enum Turn {
    /// Nothing to do until then.
    Until(Nanos),
    /// The controller has been shut down, or was never up.
    Ended,
}

enum Life {
    BringingUp(Box<Bringup>, SyncSender<Result<Opened, OpenError>>, Option<Control>),
    Live(Box<Recovery>),
    /// In the end somebody may be waiting to hear why the device was not opened.
    ShuttingDown(Box<Shutdown>, Option<Refusal>),
    Ended,
}

/// Why a device is not opened, and who is to know.
struct Refusal {
    tell: SyncSender<Result<Opened, OpenError>>,
    error: OpenError,
}

/// Owns a controller's admin queue and carries out what its state machines ask.
pub(crate) struct Keeper {
    link: Arc<Link>,
    options: OpenOptions,
    asks: Arc<Asks>,
    admin: Admin,
    rings: Vec<Rings>,
    queues: Vec<Arc<HwQueue>>,
    inventory: Inventory,
    life: Life,
    watch: Watch,
    events: Events,
    moderation: Moderation,
    /// Taken back by a reset, until it is known what becomes of them.
    abandoned: Vec<(usize, Vec<Abandoned>)>,
    orphans: Vec<(Arc<HwQueue>, Looker)>,
    /// When the next Keep Alive is due.
    keep_alive_at: Nanos,
    /// For whoever asks how large the namespaces are now.
    sizes: Sizes,
    /// Commands past their time-out have been announced, and are given time until then.
    reminded_until: Nanos,
    /// What the controller last said of its power.
    power: Option<Power>,
    /// Its path has been up before; and it is back, though not yet in use.
    has_been_up: bool,
    returning: bool,
}

impl Keeper {
    pub(crate) fn new(
        link: Arc<Link>,
        options: &OpenOptions,
        control: Control,
        tell: SyncSender<Result<Opened, OpenError>>,
    ) -> Result<Keeper, OpenError> {
        let admin = Admin::new(&link, options.pool_bytes)?;
        let wanted = options.hardware_queues.clamp(1, options.software_queues.max(1));
        let vectors = (0..wanted).map(|n| Some(vector_of(&link, n, wanted).0)).collect();
        let config = bringup_config(&link, &admin, WantedQueues::New { depth: options.depth, vectors }, admin_timeout(options));
        if let Some(bell) = link.vectors().bell(Vector(0)) {
            bell.arm();
        }
        Ok(Keeper {
            link,
            options: options.clone(),
            asks: control.0.clone(),
            admin,
            rings: Vec::new(),
            queues: Vec::new(),
            inventory: Inventory::default(),
            life: Life::BringingUp(Box::new(Bringup::new(config)), tell, Some(control)),
            watch: Watch::new(),
            events: Events::default(),
            moderation: Moderation::default(),
            abandoned: Vec::new(),
            orphans: Vec::new(),
            keep_alive_at: Nanos::MAX,
            sizes: Sizes::default(),
            reminded_until: Nanos::ZERO,
            power: None,
            has_been_up: false,
            returning: false,
        })
    }

    /// What the admin vector's messages signal.
    pub(crate) fn vector(&self) -> Option<&EventFd> {
        self.link.vectors().eventfd(Vector(0))
    }

    /// The controller cannot be looked after.
    pub(crate) fn refuse(&mut self, error: OpenError) {
        if let Life::BringingUp(_, tell, _) = &self.life {
            _ = tell.send(Err(error));
        }
        self.life = Life::Ended;
    }

    /// Takes what the admin queue has and steps the state machine at work.
    pub(crate) fn turn(&mut self, now: Nanos) -> Turn {
        self.take_replies(now);
        self.take_answers(now);
        let until = match self.life {
            Life::BringingUp(..) => self.bring_up(now),
            Life::Live(_) => self.live(now),
            Life::ShuttingDown(..) => self.shut_down(now),
            Life::Ended => return Turn::Ended,
        };
        match self.life {
            Life::Ended => Turn::Ended,
            _ => Turn::Until(until.min(self.link.properties().next_answer())),
        }
    }

    fn take_replies(&mut self, now: Nanos) {
        let violation = self.admin.reap(&self.link);
        for completed in self.admin.taken() {
            match Purpose::from_token(completed.token) {
                Purpose::Sequence => {
                    let page = self.admin.take_page(Purpose::Sequence);
                    let reply = AdminReply { status: completed.status, result: completed.result, page };
                    match &mut self.life {
                        Life::BringingUp(bringup, ..) => bringup.completed(&reply),
                        Life::Live(recovery) => recovery.completed(&reply),
                        Life::ShuttingDown(shutdown, _) => shutdown.completed(&reply),
                        Life::Ended => {}
                    }
                }
                Purpose::Abort { queue, cid } => self.abort_ended(queue, cid, now),
                Purpose::AsyncEvent => self.event_came(completed.status, completed.result),
                Purpose::Own(MODERATION) => self.moderated(completed.status),
                Purpose::Own(number) => self.was_read(Reading::from_number(number), completed.status),
                Purpose::KeepAlive => {}
            }
        }
        if let (Some(violation), Life::Live(recovery)) = (violation, &mut self.life) {
            recovery.violated(violation);
        }
    }

    fn take_answers(&mut self, now: Nanos) {
        for (ticket, answer) in self.link.properties().answers(now) {
            match &mut self.life {
                Life::BringingUp(bringup, ..) => bringup.answered(ticket, answer),
                Life::Live(recovery) => recovery.answered(ticket, answer),
                Life::ShuttingDown(shutdown, _) => shutdown.answered(ticket, answer),
                Life::Ended => {}
            }
        }
    }

    fn event_came(&mut self, status: Status, result: u32) {
        if let Some(event) = self.events.happened(status, result) {
            tracing::warn!(kind = event.event_type(), info = event.info(), log = event.lid(), "asynchronous event");
            lock(&self.asks.health).heard(&event);
        }
    }

    /// Something that whoever uses the controller may want to know.
    fn note(&self, what: String) {
        tracing::warn!("{what}");
        lock(&self.asks.health).note(what);
    }

    fn queue(&self, id: QueueId) -> Option<&Arc<HwQueue>> {
        self.queues.iter().find(|queue| queue.pair.id() == id)
    }

    fn post(&mut self, command: AdminCommand, now: Nanos) {
        // A sequence has one command out at a time; if it cannot be posted its deadline passes, and says so.
        if !self.admin.post(&self.link, command, Purpose::Sequence, now) {
            tracing::warn!("an admin command could not be posted");
        }
    }

    fn admin_timeout(&self) -> Nanos {
        admin_timeout(&self.options)
    }

    fn recovery_config(&self) -> RecoveryConfig {
        let command_timeout = self.options.timeout;
        RecoveryConfig {
            command_timeout,
            grace: self.grace(),
            attempts: 3,
            health_interval: if self.link.seat().is_some() { PATH_HEALTH_EVERY } else { HEALTH_EVERY },
            // Meanwhile there are other paths.
            lost_patience: if self.link.seat().is_some() { Nanos::MAX } else { Nanos::ZERO },
        }
    }

    /// How long a command may be overdue. Where requests could go another way meanwhile, an admin command, Keep Alive for one, that is
    /// not answered within the keep-alive time-out tells that the controller hangs.
    fn grace(&self) -> Nanos {
        let keep_alive = self.inventory.keep_alive;
        match self.link.seat() {
            Some(_) if keep_alive > Nanos::ZERO => keep_alive.clamp(ADMIN_TIMEOUT_MIN, self.admin_timeout()),
            _ => self.admin_timeout(),
        }
    }

    /// How to bring the controller up again: with the queues that there are.
    fn again(&self) -> BringupConfig {
        bringup_config(&self.link, &self.admin, WantedQueues::Again(self.inventory.queues.clone()), self.admin_timeout())
    }

    fn live(&mut self, now: Nanos) -> Nanos {
        let Life::Live(recovery) = &mut self.life else { return now };
        if self.asks.closing.load(Acquire) {
            recovery.lose_patience();
        }
        if self.asks.reset.swap(false, Relaxed) {
            recovery.reset();
        }
        for violation in lock(&self.asks.violations).drain(..) {
            tracing::warn!(%violation, "protocol violation");
            recovery.violated(violation);
        }
        let mut until = self.sweep(now).min(self.look_after_path(now));
        let reminded = self.remind(now);
        if now < reminded {
            return until.min(reminded);
        }
        loop {
            self.watch.clear();
            self.watch.look(&self.admin.pair, now, &self.recovery_config());
            for queue in &self.queues {
                self.watch.look(&queue.pair, now, &self.recovery_config());
            }
            let Life::Live(recovery) = &mut self.life else { return now };
            let ask = recovery.step(now, self.link.properties(), &self.watch);
            match ask {
                RecoveryAsk::Wait { until: next } => {
                    let watching = recovery.is_watching();
                    until = until.min(next);
                    if watching {
                        self.look_after_events(now);
                        until = until.min(self.moderate(now));
                        if self.may_shut_down() {
                            let shutdown = Box::new(Shutdown::new(&self.inventory, self.admin_timeout()));
                            self.life = Life::ShuttingDown(shutdown, None);
                            return self.shut_down(now);
                        }
                    }
                    return until;
                }
                RecoveryAsk::Dead(dead) => {
                    self.give_up(&dead.to_string());
                    return until;
                }
                ask => self.recover(ask, now),
            }
        }
    }

    fn look_after_events(&mut self, now: Nanos) {
        while let Some((command, purpose)) = self.events.next_command() {
            if !self.admin.post(&self.link, command, purpose, now) {
                self.events.not_posted(purpose);
                break;
            }
        }
    }

    fn may_shut_down(&self) -> bool {
        self.asks.closing.load(Acquire) && self.orphans.is_empty() && self.queues.iter().all(|queue| queue.pair.in_flight() == 0)
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        loop {
            let Life::ShuttingDown(shutdown, _) = &mut self.life else { return now };
            match shutdown.step(now, self.link.properties()) {
                ShutdownAsk::Wait { until } => return until,
                ShutdownAsk::Admin(command) => self.post(command, now),
                ShutdownAsk::Stopped => self.end(),
                ShutdownAsk::Failed(error) => {
                    tracing::error!(%error, "the controller did not shut down; its rings are leaked");
                    self.leak_rings();
                    self.end();
                }
            }
        }
    }

    /// The last thing that happens to a controller. If it never came up its opener is told why.
    fn end(&mut self) {
        if let Life::ShuttingDown(_, Some(Refusal { tell, error })) = std::mem::replace(&mut self.life, Life::Ended) {
            _ = tell.send(Err(error));
        }
    }
}

fn admin_timeout(options: &OpenOptions) -> Nanos {
    options.timeout.clamp(ADMIN_TIMEOUT_MIN, ADMIN_TIMEOUT)
}

fn bringup_config(link: &Link, admin: &Admin, queues: WantedQueues, admin_timeout: Nanos) -> BringupConfig {
    let (admin_sq, admin_cq) = admin.addrs;
    let keep_alive = link.seat().map_or(Nanos::ZERO, |seat| seat.board.keep_alive);
    BringupConfig { admin_sq, admin_cq, admin_sizes: Admin::SIZES, queues, admin_timeout, keep_alive }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        for queue in &self.queues {
            queue.fail();
        }
    }
}
