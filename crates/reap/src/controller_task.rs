//! A controller's life after it is attached: bring-up, use, recovery, shutdown. `driver`'s state machines say what is to
//! be done, in this order; here it is done.

mod admin;
mod bring_up;
mod changes;
mod coalescing;
mod file_task;
pub(crate) mod housekeeping;
pub(crate) mod open;
mod orphans;
mod path;
mod recovery;

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use completion::WEIGHT;
use driver::{
    AdminCommand, AdminReply, AnaPieces, Bringup, BringupConfig, Command, Completed, Events, Inventory, Purpose, Reading, Recovery,
    RecoveryAsk, RecoveryConfig, Shutdown, ShutdownAsk, WantedQueues, Watch,
};
use hw::EventFd;
use nvme::{Cid, QueueId, Status, Vector};
use units::Nanos;

use crate::error::OpenError;
use crate::health::GivenUp;
use crate::options::OpenOptions;
use crate::request::LOST;
use crate::shared::control::{Asks, Control, RawCommand};
use crate::shared::controller::{Opened, Sizes};
use crate::shared::events::EventKind;
use crate::shared::hw_queue::HwQueue;
use crate::shared::path_states::PathHandle;
use crate::shared::queue_shared::QueueShared;
use crate::transport::{RingController, Rings};
use admin::{Admin, Power};
use coalescing::{MODERATION, Moderation};

/// Between two looks at CSTS of a controller that does nothing.
const HEALTH_EVERY: Nanos = Nanos::from_secs(1);

/// The same where requests could go another way meanwhile.
const PATH_HEALTH_EVERY: Nanos = Nanos::from_millis(10);

/// An admin command that takes longer is not answered any more, however patient the caller is with I/O ...
const ADMIN_TIMEOUT: Nanos = Nanos::from_secs(10);

/// ... and however impatient: as long as any controller may take to become ready (CAP.TO, Base 3.1.4.1).
const ADMIN_TIMEOUT_MIN: Nanos = Nanos::from_millis(500);

/// The controller task never waits for a thread that posts or reaps: it comes again.
const AGAIN: Nanos = Nanos::from_micros(50);

/// The token of a caller's admin command; log pages have numbers of one byte, and moderators' commands the next bit.
const RAW_COMMAND: u64 = 1 << 9;

/// What a turn ended with.
pub(crate) enum Turn {
    /// Nothing to do until then.
    Until(Nanos),
    /// The controller has been shut down, or was never up.
    Ended,
}

/// What the housekeeping thread looks after: a controller, or a file.
pub(crate) trait Charge: Send {
    /// What tells of it, beside the thread's own wake-up.
    fn vector(&self) -> Option<&EventFd>;

    /// It cannot be looked after.
    fn refuse(&mut self, error: OpenError);

    /// Does what is due.
    fn turn(&mut self, now: Nanos) -> Turn;
}

enum Life {
    BringingUp(Box<Bringup>, SyncSender<Result<(Opened, Inventory), OpenError>>, Option<Control>),
    Live(Box<Recovery>),
    /// In the end somebody may be waiting to hear why the device was not opened.
    ShuttingDown(Box<Shutdown>, Option<Refusal>),
    Ended,
}

/// Why a device is not opened, and who is to know.
struct Refusal {
    tell: SyncSender<Result<(Opened, Inventory), OpenError>>,
    error: OpenError,
}

/// Owns a controller's admin queue and carries out what its state machines ask.
pub(crate) struct ControllerTask {
    controller: Arc<RingController>,
    /// Where it is one of several paths: who is to know of it.
    path_handle: Option<PathHandle>,
    options: OpenOptions,
    asks: Arc<Asks>,
    admin: Admin,
    rings: Vec<Rings>,
    queues: Vec<Arc<HwQueue>>,
    inventory: Inventory,
    life: Life,
    watch: Watch,
    events: Events,
    /// The ANA log, as far as it has been read.
    ana: AnaPieces,
    moderation: Moderation,
    /// Taken back by a reset, until it is known what becomes of them.
    abandoned: Vec<(usize, Vec<Command>)>,
    /// What could not be done because some thread posted or reaped at that moment: it is done first thing next turn.
    put_off: Option<RecoveryAsk>,
    /// The pairs that it has not been done to yet, each with its queue's number.
    to_do: Vec<(usize, QueueId)>,
    ended_aborts: Vec<(QueueId, Cid)>,
    taken: Vec<Completed>,
    /// Where commands are sent as bytes.
    /// When the next Keep Alive is due.
    keep_alive_at: Nanos,
    /// A caller's admin command that the controller has not answered.
    raw_command: Option<RawCommand>,
    /// For threads that ask how large the namespaces are now.
    sizes: Sizes,
    /// Commands past their time-out have been announced, and are given time until then.
    reminded_until: Nanos,
    /// What the controller last said of its power.
    power: Option<Power>,
    /// Its path has been up before; and it is back, though not yet in use.
    has_been_up: bool,
    returning: bool,
    /// What it was when its path came up first: what takes its place has to be the same.
    joined: Option<Box<Inventory>>,
    /// It is reached by another connection than when it was last up.
    reconnected: bool,
    /// An event says that SQ heads are wrong.
    told_of_heads: bool,
}

impl Charge for ControllerTask {
    /// What the admin vector's messages signal.
    fn vector(&self) -> Option<&EventFd> {
        self.controller.eventfd(Vector(0))
    }

    /// The controller cannot be looked after.
    fn refuse(&mut self, error: OpenError) {
        if let Life::BringingUp(_, tell, _) = &self.life {
            _ = tell.send(Err(error));
        }
        self.life = Life::Ended;
    }

    /// Takes what the admin queue has and steps the state machine at work.
    fn turn(&mut self, now: Nanos) -> Turn {
        self.take_replies();
        self.take_answers(now);
        self.hear_of_the_way();
        let until = match self.life {
            Life::BringingUp(..) => self.bring_up(now),
            Life::Live(_) => self.live(now),
            Life::ShuttingDown(..) => self.shut_down(now),
            Life::Ended => return Turn::Ended,
        };
        // After all that may have sent something.
        match self.life {
            Life::Ended => Turn::Ended,
            _ => Turn::Until(until.min(self.controller.properties().next_answer())),
        }
    }
}

impl ControllerTask {
    pub(crate) fn new(
        controller: Arc<RingController>,
        path_handle: Option<PathHandle>,
        options: &OpenOptions,
        control: Control,
        tell: SyncSender<Result<(Opened, Inventory), OpenError>>,
    ) -> Result<ControllerTask, OpenError> {
        let admin = Admin::new(&controller, options.pool_bytes)?;
        let wanted = options.hardware();
        let notifying = (0..wanted).map(|n| Some(controller.vector_of(n, wanted).0));
        let polled = std::iter::repeat_n(None, if controller.has_poll_queues() { wanted } else { 0 });
        let vectors = notifying.chain(polled).collect();
        let wanted = WantedQueues::New { depth: options.depth, vectors };
        let config = bringup_config(path_handle.as_ref(), &controller, &admin, wanted);
        controller.arm(Vector(0));
        let reporter = control.reporter();
        controller.properties().tell(Arc::new(move || reporter.kick()));
        Ok(ControllerTask {
            controller,
            path_handle,
            options: options.clone(),
            asks: control.asks(),
            admin,
            rings: Vec::new(),
            queues: Vec::new(),
            inventory: Inventory::default(),
            life: Life::BringingUp(Box::new(Bringup::new(config)), tell, Some(control)),
            watch: Watch::new(),
            events: Events::default(),
            ana: AnaPieces::default(),
            moderation: Moderation::default(),
            abandoned: Vec::new(),
            put_off: None,
            to_do: Vec::new(),
            ended_aborts: Vec::new(),
            taken: Vec::with_capacity(WEIGHT as usize),
            keep_alive_at: Nanos::MAX,
            raw_command: None,
            sizes: Sizes::default(),
            reminded_until: Nanos::ZERO,
            power: None,
            has_been_up: false,
            returning: false,
            joined: None,
            reconnected: false,
            told_of_heads: false,
        })
    }

    fn take_replies(&mut self) {
        let violation = self.admin.reap(&self.controller);
        // Out of its place for the loop, and back: a moderator's commands, a hundred a second, allocate nothing.
        let taken = std::mem::take(&mut self.admin.taken);
        for completed in &taken {
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
                Purpose::Abort { queue, cid } => self.abort_ended(queue, cid),
                Purpose::AsyncEvent => {
                    if let Some(event) = self.events.happened(completed.status, completed.result) {
                        self.asks.reporter.push(EventKind::Async(event));
                    }
                }
                Purpose::Own(MODERATION) => self.moderated(completed.status),
                Purpose::Own(RAW_COMMAND) => self.raw_command_completed(completed.status, completed.result),
                Purpose::Own(number) => self.was_read(Reading::from_number(number), completed.status),
                Purpose::KeepAlive => {}
            }
        }
        self.admin.taken = taken;
        let Some(violation) = violation else { return };
        tracing::warn!(%violation, "protocol violation on the admin queue");
        match &mut self.life {
            Life::BringingUp(bringup, ..) => bringup.violated(violation),
            Life::Live(recovery) => recovery.violated(violation),
            Life::ShuttingDown(shutdown, _) => shutdown.violated(),
            Life::Ended => {}
        }
    }

    fn take_answers(&mut self, now: Nanos) {
        for (ticket, answer) in self.controller.properties().answers(now) {
            match &mut self.life {
                Life::BringingUp(bringup, ..) => bringup.answered(ticket, answer),
                Life::Live(recovery) => recovery.answered(ticket, answer),
                Life::ShuttingDown(shutdown, _) => shutdown.answered(ticket, answer),
                Life::Ended => {}
            }
        }
    }

    /// Something that only a person can act on.
    fn note(&self, what: String) {
        self.asks.reporter.push(EventKind::Note(what));
    }

    /// The queues that post to its hardware queues.
    fn users(&self) -> impl Iterator<Item = &Arc<QueueShared>> {
        self.queues.iter().flat_map(|queue| &queue.users)
    }

    fn queue(&self, id: QueueId) -> Option<&Arc<HwQueue>> {
        self.queues.iter().find(|queue| queue.pairs().any(|pair| pair.id() == id))
    }

    fn post(&mut self, command: AdminCommand, now: Nanos) {
        // A sequence has one command out at a time; if it cannot be posted its deadline passes, and says so.
        if !self.admin.post(&self.controller, command, Purpose::Sequence, now) {
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
            health_interval: if self.path_handle.is_some() { PATH_HEALTH_EVERY } else { HEALTH_EVERY },
            // Meanwhile there are other paths.
            lost_patience: if self.path_handle.is_some() { Nanos::MAX } else { Nanos::ZERO },
        }
    }

    /// How long a command may be overdue. Where requests could go another way meanwhile, an admin command, Keep Alive for one, that is
    /// not answered within the keep-alive time-out tells that the controller hangs.
    fn grace(&self) -> Nanos {
        let keep_alive = self.inventory.keep_alive;
        match self.path_handle {
            Some(_) if keep_alive > Nanos::ZERO => keep_alive.clamp(ADMIN_TIMEOUT_MIN, self.admin_timeout()),
            _ => self.admin_timeout(),
        }
    }

    /// How to bring the controller up again: with the queues that there are.
    fn again(&self) -> BringupConfig {
        bringup_config(self.path_handle.as_ref(), &self.controller, &self.admin, WantedQueues::Again(self.inventory.queues.clone()))
    }

    fn live(&mut self, now: Nanos) -> Nanos {
        let Life::Live(recovery) = &mut self.life else { return now };
        if self.asks.is_closing() {
            recovery.lose_patience();
        }
        if self.asks.take_reset() {
            recovery.reset();
        }
        for violation in self.asks.reporter.violations().drain(..) {
            tracing::warn!(%violation, "protocol violation");
            recovery.violated(violation);
        }
        let swept = orphans::sweep(&self.queues, &mut self.taken);
        let swept = if swept { now + orphans::SWEEP_EVERY } else { Nanos::MAX };
        let mut until = swept.min(self.look_after_path(now)).min(self.end_aborts(now));
        let reminded = self.remind(now);
        if now < reminded {
            return until.min(reminded);
        }
        loop {
            self.watch.clear();
            self.watch.look(&self.admin.pair, now, &self.recovery_config());
            let mut bad_heads = 0;
            for pair in self.queues.iter().flat_map(|queue| queue.queue_pairs()) {
                self.watch.look(pair, now, &self.recovery_config());
                bad_heads += pair.counters().bad_heads;
            }
            if bad_heads > 0 && !std::mem::replace(&mut self.told_of_heads, true) {
                self.note("the controller's completions name impossible SQ heads, which Reap does not use".to_owned());
            }
            let Life::Live(recovery) = &mut self.life else { return now };
            let ask = match self.put_off.take() {
                Some(ask) => ask,
                None => recovery.step(now, self.controller.properties(), &self.watch),
            };
            match ask {
                RecoveryAsk::Wait { until: next } => {
                    let (watching, lost_since) = (recovery.is_watching(), recovery.lost_since());
                    until = until.min(next);
                    if let Some(since) = lost_since {
                        self.look_for_it(since);
                    }
                    if watching {
                        self.post_raw_command(now);
                        until = until.min(self.look_after_events(now)).min(self.moderate(now));
                        if self.may_shut_down() {
                            let shutdown = Box::new(Shutdown::new(&self.inventory, self.admin_timeout()));
                            self.life = Life::ShuttingDown(shutdown, None);
                            return self.shut_down(now);
                        }
                    }
                    return until;
                }
                RecoveryAsk::Dead(dead) => {
                    self.give_up(dead);
                    self.refuse_raw_commands();
                    return until;
                }
                ask => {
                    self.recover(ask, now);
                    if self.put_off.is_some() {
                        return until.min(now + AGAIN);
                    }
                }
            }
        }
    }

    /// Asks for events, and reads what they were about. When to come again.
    fn look_after_events(&mut self, now: Nanos) -> Nanos {
        while let Some((command, purpose)) = self.events.next_command(now) {
            if !self.admin.post(&self.controller, command, purpose, now) {
                self.events.not_posted(purpose);
                break;
            }
        }
        self.events.until(now)
    }

    fn may_shut_down(&self) -> bool {
        self.is_unused() && self.queues.iter().flat_map(|queue| queue.pairs()).all(|pair| pair.in_flight() == 0)
    }

    /// Whether nobody uses the controller, and nobody waits for a request: what this turn's sweep has seen may be old by now, since the
    /// last queue and the device may have gone after it, with completions in an inbox that only the next sweep takes out.
    fn is_unused(&self) -> bool {
        // In this order: once the device is closing no queue is taken any more.
        self.asks.is_closing() && self.users().all(|user| user.open() == 0)
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        loop {
            let Life::ShuttingDown(shutdown, _) = &mut self.life else { return now };
            match shutdown.step(now, self.controller.properties()) {
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

/// However impatient the caller is with I/O, a controller that is slow to answer while it comes up is not refused, nor given up.
fn bringup_config(path_handle: Option<&PathHandle>, controller: &RingController, admin: &Admin, queues: WantedQueues) -> BringupConfig {
    let (admin_sq, admin_cq) = admin.addrs;
    let keep_alive = path_handle.map_or(Nanos::ZERO, |path_handle| path_handle.path_states.keep_alive);
    let doorbells = controller.doorbell_pages();
    BringupConfig { admin_sq, admin_cq, admin_sizes: Admin::SIZES, queues, admin_timeout: ADMIN_TIMEOUT, keep_alive, doorbells }
}

/// Where its life has not ended, a turn has panicked: nobody stops the controller, which may write to whatever it was given.
impl Drop for ControllerTask {
    fn drop(&mut self) {
        if !matches!(self.life, Life::Ended) {
            self.asks.health().dead.get_or_insert(GivenUp::Panicked);
            self.asks.reporter.push(EventKind::GivenUp(GivenUp::Panicked));
            self.take_everything_back();
            self.return_abandoned(LOST);
            self.leak_rings();
        }
        self.refuse_raw_commands();
        self.users().for_each(|user| user.fail_all());
        // Futures that have outlived their queue end now, or never.
        orphans::sweep(&self.queues, &mut self.taken);
    }
}

#[cfg(test)]
mod tests;

impl ControllerTask {
    /// What moderators want of the controller. When to come again.
    pub(super) fn moderate(&mut self, now: Nanos) -> Nanos {
        if self.asks.reporter.take_stirred() {
            self.moderation.idle = 0;
        }
        if let Some(command) = self.moderation.next(now, &self.controller, &self.queues)
            && !self.admin.post(&self.controller, command, Purpose::Own(MODERATION), now)
        {
            self.moderation.not_posted();
        }
        self.moderation.until(&self.queues)
    }

    /// The controller has answered what [`ControllerTask::moderate`] sent.
    pub(super) fn moderated(&mut self, status: Status) {
        self.moderation.answered(status, &self.queues);
        let mut health = self.asks.health();
        let news = self.moderation.refused && !health.coalescing_refused;
        (health.held_back, health.coalescing_refused) = (self.moderation.held_back(), self.moderation.refused);
        drop(health);
        if news {
            self.asks.reporter.push(EventKind::CoalescingRefused);
        }
    }
}
