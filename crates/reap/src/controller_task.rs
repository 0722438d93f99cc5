//! The task of a controller: bring-up, time-outs, reset, shutdown. The state machines of `driver`
//! decide what to do; this module carries it out. All tasks run on the housekeeping thread
//! (`housekeeping.rs`).
//!
//! ```text
//!            BringingUp ── Ready ──► Live ── closed, nothing in flight ──► ShuttingDown ──► Ended
//!                │                    │ ▲                                       ▲
//!                │                    └─┘ Recovery: abort, reset, bring-up      │
//!                └── Failed: the controller may be enabled, so stop it first ───┘
//! ```
//!
//! A task never waits: for a lock that a posting or reaping thread holds, or for a register of
//! another process, it returns, and is stepped again.

mod admin;
mod bring_up;
mod changes;
mod coalescing;
mod cross_reset;
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
    AdminCommand, AdminReply, AnaLogReader, Bringup, BringupConfig, Completed, EventRequests,
    Inventory, OutstandingCommand, Purpose, Reading, Recovery, RecoveryAction, RecoveryConfig,
    Shutdown, ShutdownAction, TimeoutScan, WantedQueues,
};
use hw::EventFd;
use nvme::{Cid, QueueId, Vector};
use units::Nanos;

use crate::error::OpenError;
use crate::health::PermanentFailure;
use crate::options::OpenOptions;
use crate::request::LOST;
use crate::shared::control::{Control, ControlShared, RawCommand};
use crate::shared::controller::{NamespaceSizes, Opened};
use crate::shared::events::EventKind;
use crate::shared::hw_queue::HwQueue;
use crate::shared::path_states::PathHandle;
use crate::shared::queue_shared::QueueShared;
use crate::transport::{RingController, Rings};
use admin::{Admin, Power};
use coalescing::{COALESCING, Coalescing};
use cross_reset::{CROSS_RESET, SentReset};

/// The interval between two reads of CSTS.
const HEALTH_EVERY: Nanos = Nanos::from_secs(1);

/// The same for a path: requests should move to another path soon.
const PATH_HEALTH_EVERY: Nanos = Nanos::from_millis(10);

/// The same over fabrics.
const FABRIC_HEALTH_EVERY: Nanos = Nanos::from_secs(3600);

/// Upper limit of the time-out of an admin command, however long the time-out of I/O is.
const ADMIN_TIMEOUT: Nanos = Nanos::from_secs(10);

/// Lower limit of the same time-out: one unit of CAP.TO, the time that a controller may take to
/// become ready (Base §3.1.4.1).
const ADMIN_TIMEOUT_MIN: Nanos = Nanos::from_millis(500);

/// When to step a task again that has found a queue pair locked.
const LOCK_RETRY: Nanos = Nanos::from_micros(50);

/// Token of a caller's admin command. Bits 7:0 are log pages, bit 8 is [`COALESCING`].
const RAW_COMMAND: u64 = 1 << 9;

/// The result of [`DeviceTask::step`].
pub(crate) enum TaskStatus {
    /// The task is to be stepped again at this time at the latest.
    Until(Nanos),
    /// The task has ended: the controller is shut down, or was never up.
    Ended,
}

/// What the housekeeping thread runs for a controller or a file.
pub(crate) trait DeviceTask: Send {
    /// An eventfd whose signals step the task, besides kicks.
    fn vector(&self) -> Option<&EventFd>;

    /// The task cannot be run: `error` is for the thread that opens the device.
    fn refuse(&mut self, error: OpenError);

    /// Does all work that is due. Must not block.
    fn step(&mut self, now: Nanos) -> TaskStatus;
}

enum ControllerPhase {
    BringingUp(Box<Bringup>, SyncSender<Result<(Opened, Inventory), OpenError>>, Option<Control>),
    Live(Box<Recovery>),
    /// With the error for the thread that opens the device, if bring-up has failed.
    ShuttingDown(Box<Shutdown>, Option<OpenFailure>),
    Ended,
}

/// Why a device could not be opened, and the channel to its opener.
struct OpenFailure {
    reply: SyncSender<Result<(Opened, Inventory), OpenError>>,
    error: OpenError,
}

/// Owns a controller's admin queue, and carries out what the state machines of `driver` ask for.
pub(crate) struct ControllerTask {
    controller: Arc<RingController>,
    /// For a path of a multipath device: where its state is published.
    path_handle: Option<PathHandle>,
    options: OpenOptions,
    shared: Arc<ControlShared>,
    admin: Admin,
    rings: Vec<Rings>,
    queues: Vec<Arc<HwQueue>>,
    inventory: Inventory,
    phase: ControllerPhase,
    /// Commands past their time-out, collected before each step of recovery.
    watch: TimeoutScan,
    events: EventRequests,
    /// The part of the ANA log page that has been read.
    ana: AnaLogReader,
    coalescing: Coalescing,
    /// Commands that a reset has taken back, by hardware queue. They are returned to their queues
    /// once the controller is up again or given up.
    abandoned: Vec<(usize, Vec<OutstandingCommand>)>,
    /// A step of recovery that was deferred because a thread held a pair's lock. Continued at the
    /// next step.
    deferred_ask: Option<RecoveryAction>,
    /// The pairs for which the step has not been done yet, each with the index of its hardware
    /// queue.
    pairs_left: Vec<(usize, QueueId)>,
    /// Aborts that have completed, whose CIDs are not free yet.
    ended_aborts: Vec<(QueueId, Cid)>,
    taken: Vec<Completed>,
    /// When the next Keep Alive is due.
    keep_alive_at: Nanos,
    /// A caller's admin command in flight.
    raw_command: Option<RawCommand>,
    /// A Cross-Controller Reset for another path, not known to be complete.
    cross_reset: Option<SentReset>,
    /// The current sizes of the namespaces, for the queues' threads.
    sizes: NamespaceSizes,
    /// No recovery before this time: late commands were announced just now.
    late_grace_until: Nanos,
    /// The last health log page's counts of power cycles.
    power: Option<Power>,
    /// The path has been up before.
    has_been_up: bool,
    /// The path is back, but not used before the health log page has been read.
    returning: bool,
    /// The inventory that was read when the path first came up. A controller that answers later
    /// must have the same.
    joined: Option<Box<Inventory>>,
    /// The connection is not the one that the controller had when it was last up.
    reconnected: bool,
    /// The event for invalid SQ heads was sent.
    reported_bad_heads: bool,
}

impl DeviceTask for ControllerTask {
    fn vector(&self) -> Option<&EventFd> {
        self.controller.eventfd(Vector(0))
    }

    fn refuse(&mut self, error: OpenError) {
        if let ControllerPhase::BringingUp(_, reply, _) = &self.phase {
            _ = reply.send(Err(error));
        }
        self.phase = ControllerPhase::Ended;
    }

    fn step(&mut self, now: Nanos) -> TaskStatus {
        self.take_replies();
        self.take_answers(now);
        self.take_server_events();
        let until = match self.phase {
            ControllerPhase::BringingUp(..) => self.bring_up(now),
            ControllerPhase::Live(_) => self.live(now),
            ControllerPhase::ShuttingDown(..) => self.shut_down(now),
            ControllerPhase::Ended => return TaskStatus::Ended,
        };
        match self.phase {
            ControllerPhase::Ended => TaskStatus::Ended,
            // The deadline of register accesses last: each step above may have started one.
            _ => TaskStatus::Until(until.min(self.controller.properties().next_answer())),
        }
    }
}

impl ControllerTask {
    pub(crate) fn new(
        controller: Arc<RingController>,
        path_handle: Option<PathHandle>,
        options: &OpenOptions,
        control: Control,
        reply: SyncSender<Result<(Opened, Inventory), OpenError>>,
    ) -> Result<ControllerTask, OpenError> {
        let admin = Admin::new(&controller, options.pool_bytes)?;
        let wanted = options.hardware().min(controller.max_queues());
        // Interrupt queues before poll queues: a controller may grant fewer queue pairs than are
        // asked for.
        let notifying = (0..wanted).map(|n| Some(controller.vector_of(n, wanted).0));
        let polled =
            std::iter::repeat_n(None, if controller.has_poll_queues() { wanted } else { 0 });
        let vectors = notifying.chain(polled).collect();
        let wanted = WantedQueues::New { depth: options.depth, vectors };
        let config = bringup_config(path_handle.as_ref(), &controller, &admin, wanted);
        // Never masked: the admin queue has few completions, and the eventfd ends the thread's
        // sleep.
        controller.arm(Vector(0));
        let reporter = control.reporter();
        controller.properties().set_notify(Arc::new(move || reporter.kick()));
        // No interrupts, no coalescing.
        let mut coalescing = Coalescing::default();
        coalescing.refused = controller.tcp().is_some();
        Ok(ControllerTask {
            controller,
            path_handle,
            options: options.clone(),
            shared: control.shared(),
            admin,
            rings: Vec::new(),
            queues: Vec::new(),
            inventory: Inventory::default(),
            phase: ControllerPhase::BringingUp(
                Box::new(Bringup::new(config)),
                reply,
                Some(control),
            ),
            watch: TimeoutScan::new(),
            events: EventRequests::default(),
            ana: AnaLogReader::default(),
            coalescing,
            abandoned: Vec::new(),
            deferred_ask: None,
            pairs_left: Vec::new(),
            ended_aborts: Vec::new(),
            taken: Vec::with_capacity(WEIGHT as usize),
            keep_alive_at: Nanos::MAX,
            raw_command: None,
            cross_reset: None,
            sizes: NamespaceSizes::default(),
            late_grace_until: Nanos::ZERO,
            power: None,
            has_been_up: false,
            returning: false,
            joined: None,
            reconnected: false,
            reported_bad_heads: false,
        })
    }

    fn take_replies(&mut self) {
        let violation = self.admin.reap(&self.controller);
        // Taken for the loop and put back, so that `dim` with its hundred commands per second does
        // not allocate.
        let taken = std::mem::take(&mut self.admin.taken);
        for completed in &taken {
            match Purpose::from_token(completed.token) {
                Purpose::Sequence => {
                    let page = self.admin.take_page(Purpose::Sequence);
                    let reply =
                        AdminReply { status: completed.status, result: completed.result, page };
                    match &mut self.phase {
                        ControllerPhase::BringingUp(bringup, ..) => bringup.completed(&reply),
                        ControllerPhase::Live(recovery) => recovery.completed(&reply),
                        ControllerPhase::ShuttingDown(shutdown, _) => shutdown.completed(&reply),
                        ControllerPhase::Ended => {}
                    }
                }
                Purpose::Abort { queue, cid } => self.abort_ended(queue, cid),
                Purpose::AsyncEvent => {
                    if let Some(event) =
                        self.events.event_completed(completed.status, completed.result)
                    {
                        self.shared.reporter.push(EventKind::Async(event));
                    }
                }
                Purpose::Own(COALESCING) => self.coalescing_completed(completed.status),
                Purpose::Own(RAW_COMMAND) => {
                    self.raw_command_completed(completed.status, completed.result)
                }
                Purpose::Own(CROSS_RESET) => {
                    self.cross_reset_completed(completed.status, completed.result)
                }
                Purpose::Own(number) => {
                    self.read_completed(Reading::from_number(number), completed.status)
                }
                Purpose::KeepAlive => {}
            }
        }
        self.admin.taken = taken;
        let Some(violation) = violation else { return };
        tracing::warn!(%violation, "protocol violation on the admin queue");
        match &mut self.phase {
            ControllerPhase::BringingUp(bringup, ..) => bringup.violated(violation),
            ControllerPhase::Live(recovery) => recovery.violated(violation),
            ControllerPhase::ShuttingDown(shutdown, _) => shutdown.violated(),
            ControllerPhase::Ended => {}
        }
    }

    fn take_answers(&mut self, now: Nanos) {
        for (ticket, answer) in self.controller.properties().answers(now) {
            match &mut self.phase {
                ControllerPhase::BringingUp(bringup, ..) => bringup.answered(ticket, answer),
                ControllerPhase::Live(recovery) => recovery.answered(ticket, answer),
                ControllerPhase::ShuttingDown(shutdown, _) => shutdown.answered(ticket, answer),
                ControllerPhase::Ended => {}
            }
        }
    }

    /// An event for an administrator.
    fn note(&self, what: String) {
        self.shared.reporter.push(EventKind::Note(what));
    }

    /// The software queues of all hardware queues of the controller.
    fn users(&self) -> impl Iterator<Item = &Arc<QueueShared>> {
        self.queues.iter().flat_map(|queue| &queue.users)
    }

    fn queue(&self, id: QueueId) -> Option<&Arc<HwQueue>> {
        self.queues.iter().find(|queue| queue.pairs().any(|pair| pair.id() == id))
    }

    fn post(&mut self, command: AdminCommand, now: Nanos) {
        // A sequence has one command in flight, so there is a tag. If not, its deadline ends the
        // sequence.
        if !self.admin.post(&self.controller, command, Purpose::Sequence, now) {
            tracing::warn!("an admin command could not be posted");
        }
    }

    /// The time-out of an admin command: that of I/O, within the two limits.
    fn admin_timeout(&self) -> Nanos {
        self.options.timeout.clamp(ADMIN_TIMEOUT_MIN, ADMIN_TIMEOUT)
    }

    fn recovery_config(&self) -> RecoveryConfig {
        let command_timeout = self.options.timeout;
        RecoveryConfig {
            command_timeout,
            grace: self.grace(),
            attempts: 3,
            health_interval: match (self.controller.tcp(), &self.path_handle) {
                // Each read is a command. Keep-alive finds a controller that has gone.
                (Some(_), _) => FABRIC_HEALTH_EVERY,
                (None, Some(_)) => PATH_HEALTH_EVERY,
                (None, None) => HEALTH_EVERY,
            },
            lost_timeout: match (self.controller.tcp(), &self.path_handle) {
                (Some(tcp), _) => tcp.uri().ctrl_loss_tmo,
                // Requests take other paths, so a lost controller can be waited for.
                (None, Some(_)) => Nanos::MAX,
                (None, None) => Nanos::ZERO,
            },
        }
    }

    /// How long a command may be overdue before a reset.
    fn grace(&self) -> Nanos {
        let keep_alive = self.inventory.keep_alive;
        match self.path_handle {
            // A path whose admin commands, such as Keep Alive, take longer than the keep-alive
            // time-out hangs.
            Some(_) if keep_alive > Nanos::ZERO => {
                keep_alive.clamp(ADMIN_TIMEOUT_MIN, self.admin_timeout())
            }
            _ => self.admin_timeout(),
        }
    }

    /// The configuration of a bring-up after a reset, with the existing queues.
    fn again(&self) -> BringupConfig {
        bringup_config(
            self.path_handle.as_ref(),
            &self.controller,
            &self.admin,
            WantedQueues::Existing(self.inventory.queues.clone()),
        )
    }

    fn live(&mut self, now: Nanos) -> Nanos {
        let ControllerPhase::Live(recovery) = &mut self.phase else { return now };
        if self.shared.is_closing() {
            // A lost controller is not waited for: no request needs it.
            recovery.fail_pending();
        }
        if self.shared.take_reset() {
            recovery.reset();
        }
        for violation in self.shared.reporter.violations().drain(..) {
            tracing::warn!(%violation, "protocol violation");
            recovery.violated(violation);
        }
        let swept = orphans::sweep(&self.queues, &mut self.taken);
        let swept = if swept { now + orphans::SWEEP_EVERY } else { Nanos::MAX };
        let mut until = swept.min(self.step_path(now)).min(self.end_aborts(now));
        // Before recovery sees the late commands: they may be late because a thread computes.
        let grace_until = self.finish_late_work(now);
        if now < grace_until {
            return until.min(grace_until);
        }
        loop {
            // Collected anew for each step: the last one may have aborted or taken back commands.
            self.watch.clear();
            self.watch.scan(&self.admin.pair, now, &self.recovery_config());
            let mut bad_heads = 0;
            for pair in self.queues.iter().flat_map(|queue| queue.queue_pairs()) {
                self.watch.scan(pair, now, &self.recovery_config());
                bad_heads += pair.counters().bad_heads;
            }
            // Real controllers report them. They do no harm, so once is enough.
            if bad_heads > 0 && !std::mem::replace(&mut self.reported_bad_heads, true) {
                self.note("the controller's completions name impossible SQ heads, which Reap does not use".to_owned());
            }
            let ControllerPhase::Live(recovery) = &mut self.phase else { return now };
            let ask = match self.deferred_ask.take() {
                Some(ask) => ask,
                None => recovery.step(now, self.controller.properties(), &self.watch),
            };
            match ask {
                RecoveryAction::Wait { until: next } => {
                    let (watching, lost_since) = (recovery.is_running(), recovery.lost_since());
                    until = until.min(next);
                    if let Some(since) = lost_since {
                        self.end_fence();
                        self.look_for_server(since);
                    }
                    if watching {
                        self.post_raw_command(now);
                        until = until.min(self.step_events(now)).min(self.step_coalescing(now));
                        if self.may_shut_down() {
                            let shutdown =
                                Box::new(Shutdown::new(&self.inventory, self.admin_timeout()));
                            self.phase = ControllerPhase::ShuttingDown(shutdown, None);
                            return self.shut_down(now);
                        }
                    }
                    return until;
                }
                RecoveryAction::Dead(dead) => {
                    self.give_up(dead);
                    self.refuse_raw_commands();
                    return until;
                }
                ask => {
                    self.recover(ask, now);
                    // Some pair's lock was busy. Waiting for it would keep other controllers
                    // waiting too.
                    if self.deferred_ask.is_some() {
                        return until.min(now + LOCK_RETRY);
                    }
                }
            }
        }
    }

    /// Posts Asynchronous Event Requests, and reads the log pages that events name. Returns when to
    /// step again.
    fn step_events(&mut self, now: Nanos) -> Nanos {
        while let Some((command, purpose)) = self.events.next_command(now) {
            if !self.admin.post(&self.controller, command, purpose, now) {
                self.events.not_posted(purpose);
                break;
            }
        }
        self.events.until(now)
    }

    fn may_shut_down(&self) -> bool {
        self.is_unused()
            && self.queues.iter().flat_map(|queue| queue.pairs()).all(|pair| pair.in_flight() == 0)
    }

    /// Whether the device is closing and no request is open.
    fn is_unused(&self) -> bool {
        // This step's sweep may be out of date: since then the last queue may have gone, with
        // completions in its inbox. So the open requests are counted again, after `is_closing`:
        // from then on no queue is taken.
        self.shared.is_closing() && self.users().all(|user| user.open() == 0)
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        loop {
            let ControllerPhase::ShuttingDown(shutdown, _) = &mut self.phase else { return now };
            match shutdown.step(now, self.controller.properties()) {
                ShutdownAction::Wait { until } => return until,
                ShutdownAction::Admin(command) => self.post(command, now),
                ShutdownAction::Stopped => self.end(),
                ShutdownAction::Failed(error) => {
                    tracing::error!(%error, "the controller did not shut down; its rings are leaked");
                    self.leak_rings();
                    self.end();
                }
            }
        }
    }

    /// Ends the task. If bring-up has failed, the opener gets the error now that the controller has
    /// stopped.
    fn end(&mut self) {
        if let ControllerPhase::ShuttingDown(_, Some(OpenFailure { reply, error })) =
            std::mem::replace(&mut self.phase, ControllerPhase::Ended)
        {
            _ = reply.send(Err(error));
        }
    }
}

fn bringup_config(
    path_handle: Option<&PathHandle>,
    controller: &RingController,
    admin: &Admin,
    queues: WantedQueues,
) -> BringupConfig {
    let (admin_sq, admin_cq) = admin.addrs;
    let keep_alive =
        path_handle.map_or(Nanos::ZERO, |path_handle| path_handle.path_states.keep_alive);
    let doorbells = controller.doorbell_pages();
    // ADMIN_TIMEOUT even if the time-out of I/O is short: a controller may be slow while it comes
    // up.
    let quiesce_time = controller.tcp().map_or(Nanos::ZERO, |tcp| tcp.uri().cqt);
    let admin_sizes = Admin::SIZES;
    BringupConfig {
        admin_sq,
        admin_cq,
        admin_sizes,
        queues,
        admin_timeout: ADMIN_TIMEOUT,
        keep_alive,
        quiesce_time,
        doorbells,
    }
}

impl Drop for ControllerTask {
    fn drop(&mut self) {
        // A step has panicked. The controller was not stopped, and may write to all memory that it
        // was given.
        if !matches!(self.phase, ControllerPhase::Ended) {
            self.shared.health().dead.get_or_insert(PermanentFailure::Panicked);
            self.shared.reporter.push(EventKind::PermanentFailure(PermanentFailure::Panicked));
            self.take_everything_back();
            self.return_abandoned(LOST);
            self.leak_rings();
        }
        self.refuse_raw_commands();
        self.users().for_each(|user| user.fail_all());
        // Ends futures whose queue has no thread: no other sweep follows.
        orphans::sweep(&self.queues, &mut self.taken);
    }
}

#[cfg(test)]
mod tests;
