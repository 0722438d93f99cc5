//! A controller's life after it is attached: bring-up, use, recovery, shutdown. `driver`'s state machines say what is to
//! be done, in this order; here it is done.

mod opening;
mod path;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use completion::{Mode, Policy};
use driver::{
    Abandoned, AdminCommand, AdminReply, Bringup, BringupConfig, Buffers, Inventory, ProtocolViolation, Purpose, Recovery, RecoveryAsk,
    RecoveryConfig, Shutdown, ShutdownAsk, WantedQueues, Watch,
};
use hw::EventFd;
use nvme::{QueueId, Vector};
use units::Nanos;

use crate::admin::{Admin, Rings};
use crate::device::{Description, OpenOptions};
use crate::error::OpenError;
use crate::events::Events;
use crate::housekeeping::Housekeeper;
use crate::hw_queue::HwQueue;
use crate::link::Link;
use crate::looker::Looker;
use crate::moderation::Moderation;
use crate::namespace::Namespace;
use crate::request::{How, Outcome, Token};
use opening::vector_of;

/// How often abandoned software queues are looked at while something of theirs is in flight.
const SWEEP_EVERY: Nanos = Nanos::from_millis(1);

/// Between two looks at CSTS of a controller that does nothing.
const HEALTH_EVERY: Nanos = Nanos::from_secs(1);

/// The same where requests could go another way meanwhile.
const PATH_HEALTH_EVERY: Nanos = Nanos::from_millis(10);

/// An admin command that takes longer is not answered any more, however patient the caller is with I/O ...
const ADMIN_TIMEOUT: Nanos = Nanos::from_secs(10);

/// ... and however impatient: as long as any controller may take to become ready (CAP.TO, Base 3.1.4.1).
const ADMIN_TIMEOUT_MIN: Nanos = Nanos::from_millis(500);

/// The token of moderators' commands; log pages have numbers of one byte.
const MODERATION: u64 = 1 << 8;

/// Whether the controller works, and what has happened to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Resets so far.
    pub resets: u32,
    /// Commands that were aborted because they took too long.
    pub aborts: u32,
    /// Why the controller was last reset.
    pub last_reset: Option<String>,
    /// Why the controller was given up; every request fails.
    pub dead: Option<String>,
    /// Asynchronous events so far, by what they said.
    pub events: Vec<String>,
    /// Entries and microseconds that the controller's Interrupt Coalescing holds back, for `coalesce`, `dim` and `vic`.
    pub held_back: Option<(u32, u32)>,
    /// The controller refuses Interrupt Coalescing: those three modes are `interrupt` on it.
    pub coalescing_refused: bool,
}

impl Health {
    /// Of both together.
    pub(crate) fn and(self, other: Health) -> Health {
        Health {
            resets: self.resets + other.resets,
            aborts: self.aborts + other.aborts,
            last_reset: other.last_reset.or(self.last_reset),
            dead: other.dead.or(self.dead),
            events: self.events.into_iter().chain(other.events).collect(),
            held_back: self.held_back.or(other.held_back),
            coalescing_refused: self.coalescing_refused | other.coalescing_refused,
        }
    }
}

/// What a new device is made of.
pub(crate) struct Opened {
    pub queues: Vec<Arc<HwQueue>>,
    pub namespaces: Vec<Namespace>,
    pub control: Control,
    pub description: Description,
    pub inventory: Inventory,
}

/// The handle by which others reach a controller's keeper. Dropping the last one of a device closes it.
pub(crate) struct Control(Arc<Asks>);

struct Asks {
    housekeeper: Arc<Housekeeper>,
    health: Mutex<Health>,
    reset: AtomicBool,
    /// A moderated queue that was idle is not any more.
    stirred: AtomicBool,
    closing: AtomicBool,
    violations: Mutex<Vec<ProtocolViolation>>,
    /// Software queues that were dropped with requests in flight, and those that were taken, in order.
    changes: Mutex<Vec<Change>>,
}

/// A software queue changes hands.
enum Change {
    Orphaned(Arc<HwQueue>, u8),
    Taken(Arc<HwQueue>, u8),
}

/// The part of [`Control`] that queues hold: it reports, and keeps nothing open.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<Asks>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(crate) fn new(housekeeper: Arc<Housekeeper>) -> Control {
        Control(Arc::new(Asks {
            housekeeper,
            health: Mutex::default(),
            reset: AtomicBool::new(false),
            stirred: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            violations: Mutex::default(),
            changes: Mutex::default(),
        }))
    }

    pub(crate) fn health(&self) -> Health {
        lock(&self.0.health).clone()
    }

    pub(crate) fn kick(&self) {
        self.0.housekeeper.kick();
    }

    pub(crate) fn ask_reset(&self) {
        self.0.reset.store(true, Release);
        self.0.housekeeper.kick();
    }

    /// Another mode was asked for: the controller may have to be told.
    pub(crate) fn mode_asked(&self) {
        self.0.housekeeper.kick();
    }

    /// A software queue without a thread: what it has in flight is reaped until there is nothing left.
    pub(crate) fn orphan(&self, queue: &Arc<HwQueue>, me: u8) {
        if queue.softs[usize::from(me)].open() > 0 {
            lock(&self.0.changes).push(Change::Orphaned(queue.clone(), me));
            self.0.housekeeper.kick();
        }
    }

    /// A software queue has a thread, which looks after whatever the last one left in flight.
    pub(crate) fn taken(&self, queue: &Arc<HwQueue>, me: u8) {
        lock(&self.0.changes).push(Change::Taken(queue.clone(), me));
        self.0.housekeeper.kick();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.0.closing.store(true, Release);
        self.0.housekeeper.kick();
    }
}

impl Reporter {
    /// Something has completed on a moderated queue that was idle.
    #[cold]
    pub(crate) fn stirred(&self) {
        self.0.stirred.store(true, Release);
        self.0.housekeeper.kick();
    }

    /// The controller broke the protocol on some queue.
    #[cold]
    pub(crate) fn violated(&self, violation: ProtocolViolation) {
        lock(&self.0.violations).push(violation);
        self.0.housekeeper.kick();
    }
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
        let until = match self.life {
            Life::BringingUp(..) => self.bring_up(now),
            Life::Live(_) => self.live(now),
            Life::ShuttingDown(..) => self.shut_down(now),
            Life::Ended => return Turn::Ended,
        };
        match self.life {
            Life::Ended => Turn::Ended,
            _ => Turn::Until(until),
        }
    }

    fn take_replies(&mut self, now: Nanos) {
        let violation = self.admin.reap(&self.link);
        for completed in self.admin.taken() {
            match Purpose::from_token(completed.token) {
                Purpose::Sequence => {
                    let page = self.admin.take_page();
                    let reply = AdminReply { status: completed.status, result: completed.result, page };
                    match &mut self.life {
                        Life::BringingUp(bringup, ..) => bringup.completed(&reply),
                        Life::Live(recovery) => recovery.completed(&reply),
                        Life::ShuttingDown(shutdown, _) => shutdown.completed(&reply),
                        Life::Ended => {}
                    }
                }
                Purpose::Abort { queue, cid } => {
                    if let Some(queue) = self.queue(queue) {
                        queue.pair.end_abort(cid);
                        queue.serve_line(now);
                        look_again(queue);
                    }
                    if let Life::Live(recovery) = &mut self.life {
                        recovery.abort_ended();
                    }
                }
                Purpose::AsyncEvent => self.events.happened(completed.status, completed.result),
                Purpose::Own(MODERATION) => {
                    self.moderation.answered(completed.status, &self.queues);
                    let mut health = lock(&self.asks.health);
                    (health.held_back, health.coalescing_refused) = (self.moderation.held_back(), self.moderation.refused);
                }
                Purpose::Own(_) => {
                    let page = self.admin.take_page();
                    if let (Purpose::Own(id), Some(seat)) = (Purpose::from_token(completed.token), self.link.seat())
                        && completed.status.is_success()
                    {
                        path::log_read(seat, id, page);
                    }
                    self.events.log_read();
                }
                Purpose::KeepAlive => {}
            }
        }
        if let (Some(violation), Life::Live(recovery)) = (violation, &mut self.life) {
            recovery.violated(violation);
        }
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
            grace: self.admin_timeout(),
            attempts: 3,
            health_interval: if self.link.seat().is_some() { PATH_HEALTH_EVERY } else { HEALTH_EVERY },
            // Meanwhile there are other paths.
            lost_patience: if self.link.seat().is_some() { Nanos::MAX } else { Nanos::ZERO },
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
        loop {
            self.watch.clear();
            self.watch.look(&self.admin.pair, now, &self.recovery_config());
            for queue in &self.queues {
                self.watch.look(&queue.pair, now, &self.recovery_config());
            }
            let Life::Live(recovery) = &mut self.life else { return now };
            let ask = recovery.step(now, self.link.registers(), &self.watch);
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

    fn recover(&mut self, ask: RecoveryAsk, now: Nanos) {
        match ask {
            RecoveryAsk::Abort { queue, command, sqe } => {
                let Some(pair) = self.queue(queue).cloned() else { return };
                let begun = pair.pair.begin_abort(&command);
                let purpose = Purpose::Abort { queue, cid: command.cid };
                let posted = begun && self.admin.post(&self.link, AdminCommand { sqe, page: false }, purpose, now);
                if posted {
                    lock(&self.asks.health).aborts += 1;
                } else {
                    pair.pair.end_abort(command.cid);
                    pair.serve_line(now);
                    if let Life::Live(recovery) = &mut self.life {
                        recovery.abort_ended();
                    }
                }
                look_again(&pair);
            }
            RecoveryAsk::Close(cause) => {
                tracing::warn!(%cause, "resetting the controller");
                let mut health = lock(&self.asks.health);
                health.resets += 1;
                health.last_reset = Some(cause.to_string());
                drop(health);
                self.admin.pair.close();
                self.queues.iter().for_each(|queue| queue.pair.close());
                self.path_resets();
            }
            RecoveryAsk::Lost(dead) => self.path_lost(&dead),
            RecoveryAsk::Abandon(buffers) => self.abandon(buffers),
            RecoveryAsk::Admin(command) => self.post(command, now),
            RecoveryAsk::Restored(inventory) => self.restore(*inventory, now),
            RecoveryAsk::Rings { .. } | RecoveryAsk::Wait { .. } | RecoveryAsk::Dead(_) => {}
        }
    }

    fn abandon(&mut self, buffers: Buffers) {
        self.admin.pair.abandon();
        self.events.forget();
        self.moderation.forget();
        lock(&self.asks.health).held_back = None;
        for (n, queue) in self.queues.iter().enumerate() {
            self.abandoned.push((n, queue.pair.abandon()));
        }
        if buffers == Buffers::Returned {
            self.admin.take_page();
            self.admin.pair.reopen();
            self.path_stopped();
        } else {
            self.return_abandoned(How::Lost);
            self.leak_rings();
        }
    }

    /// Everything that the reset took back goes to its owner, who posts it again or fails it.
    fn return_abandoned(&mut self, how: How) {
        for (n, commands) in self.abandoned.drain(..) {
            let Some(queue) = self.queues.get(n) else { continue };
            for command in &commands {
                let token = Token(command.token);
                queue.give(token.soft(), Outcome { token, posted_at: command.posted_at, how });
            }
            queue.softs.iter().for_each(|soft| soft.tell());
        }
    }

    fn restore(&mut self, inventory: Inventory, now: Nanos) {
        self.events = Events::new(&inventory);
        self.inventory = inventory;
        tracing::info!("the controller is up again");
        for queue in &self.queues {
            queue.pair.reopen();
        }
        self.return_abandoned(How::Requeue);
        for queue in &self.queues {
            queue.serve_line(now);
        }
        self.path_up(now);
    }

    /// The controller is lost: whatever waits or is yet to come fails.
    fn give_up(&mut self, why: &str) {
        let mut health = lock(&self.asks.health);
        let known = health.dead.is_some();
        if !known {
            tracing::error!(why, "the controller is given up");
            health.dead = Some(why.to_owned());
        }
        drop(health);
        if !known {
            // After a stop the buffers are the host's again.
            self.return_abandoned(How::Dead);
            self.queues.iter().for_each(|queue| queue.fail());
        }
        if self.asks.closing.load(Acquire) && self.orphans.is_empty() {
            self.life = Life::Ended;
        }
    }

    /// What moderators want of the controller. When to come again.
    fn moderate(&mut self, now: Nanos) -> Nanos {
        if self.asks.stirred.swap(false, Acquire) {
            self.moderation.stir();
        }
        if let Some(command) = self.moderation.next(now, &self.link, &self.queues)
            && !self.admin.post(&self.link, command, Purpose::Own(MODERATION), now)
        {
            self.moderation.not_posted();
        }
        self.moderation.until(&self.queues)
    }

    fn look_after_events(&mut self, now: Nanos) {
        while let Some((command, purpose)) = self.events.next() {
            if !self.admin.post(&self.link, command, purpose, now) {
                self.events.not_posted(purpose);
                break;
            }
        }
        let mut health = lock(&self.asks.health);
        self.events.tell(&mut health.events);
    }

    /// Reaps for software queues that have no thread. When to come again.
    fn sweep(&mut self, now: Nanos) -> Nanos {
        for change in lock(&self.asks.changes).drain(..) {
            match change {
                Change::Orphaned(queue, me) => self.orphans.push((queue, Looker::new(me, Policy::new(Mode::POLL)))),
                Change::Taken(queue, me) => {
                    let taken = &queue.softs[usize::from(me)];
                    self.orphans.retain(|(orphan, looker)| !std::ptr::eq(looker.soft_of(orphan), &**taken));
                }
            }
        }
        if self.asks.closing.load(Acquire) && self.orphans.is_empty() {
            // Futures may have outlived every queue.
            for queue in &self.queues {
                for me in (0..queue.softs.len()).filter(|&me| queue.softs[me].open() > 0) {
                    self.orphans.push((queue.clone(), Looker::new(me as u8, Policy::new(Mode::POLL))));
                }
            }
        }
        self.orphans.retain_mut(|(queue, looker)| {
            let soft = looker.soft_of(queue);
            let found = looker.look(queue, soft, u32::MAX).is_some();
            looker.take_wakers().into_iter().for_each(std::task::Waker::wake);
            if found || looker.seen.pending {
                // Somebody may have taken the queue meanwhile, and sleep because this look was faster than his.
                soft.tell();
            }
            soft.open() > 0
        });
        if self.orphans.is_empty() { Nanos::MAX } else { now + SWEEP_EVERY }
    }

    fn may_shut_down(&self) -> bool {
        self.asks.closing.load(Acquire) && self.orphans.is_empty() && self.queues.iter().all(|queue| queue.pair.in_flight() == 0)
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        loop {
            let Life::ShuttingDown(shutdown, _) = &mut self.life else { return now };
            match shutdown.step(now, self.link.registers()) {
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

    /// The controller may still write to its rings: nobody else may ever have that memory.
    fn leak_rings(&mut self) {
        std::mem::forget(std::mem::take(&mut self.rings));
        self.admin.leak_rings();
    }

    /// The last thing that happens to a controller. If it never came up its opener is told why.
    fn end(&mut self) {
        if let Life::ShuttingDown(_, Some(Refusal { tell, error })) = std::mem::replace(&mut self.life, Life::Ended) {
            _ = tell.send(Err(error));
        }
    }
}

/// The CQ lock was held without reaping: a thread may have found it busy, and gone to sleep.
fn look_again(queue: &HwQueue) {
    if queue.pair.pending() {
        queue.softs.iter().for_each(|soft| soft.tell());
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
