//! The control plane of one controller: its admin queue, time-outs, recovery, interrupt coalescing
//! and, for a path, ANA and Keep Alive. In the library the housekeeping thread runs it. Here it
//! runs in virtual time and takes no CPU time.
//!
//! ```text
//! run_controller_task
//!   take_replies           admin completions -> recovery, coalescing, path state
//!   recheck_late_queues    first poll queues whose message may be lost
//!   recover                then Abort, reset, bring-up, as `driver::Recovery` says
//!   post_path_commands     log pages, Async Event Requests, Keep Alive
//! ```

use std::cell::Cell;
use std::rc::Rc;

use completion::{Coalesce, Moderator, PACE, Rates};
use driver::multipath::{Link, PathSnapshot};
use driver::{
    AdminCommand, AdminReply, Buffers, Completed, EventRequests, Inventory, ProtocolViolation,
    Purpose, Reading,
};
use driver::{Recovery, RecoveryAction, RecoveryConfig, ResetCause, TimeoutScan};
use nvme::admin::SetFeatures;
use nvme::features::{InterruptCoalescing, fid};
use nvme::log::ana::AnaLog;
use nvme::log::lid;

use super::tasks::Task;
use super::*;
use crate::hw_queue::Pair;
use crate::port::Memory;

/// How long threads have to reap entries that a time-out found, before their commands are aborted.
const RECHECK_TIME: Nanos = Nanos::from_millis(1);

/// The value of [`Purpose::Own`] for Set Features, Interrupt Coalescing. For Get Log Page the value
/// is the log page identifier, which is below 256.
const SET_COALESCING: u64 = 256;

/// The control plane of one controller.
#[derive(Debug)]
pub(super) struct ControllerTask {
    pub(super) admin: Pair,
    /// Bus address of the page that admin commands return data in.
    pub(super) page: u64,
    pub(super) memory: Memory,
    /// `None`: the scenario has no recovery, so a lost wake-up ends the run as a standstill.
    pub(super) recovery: Option<(Recovery, RecoveryConfig)>,
    pub(super) watch: TimeoutScan,
    replies: Vec<Completed>,
    pub(super) cancelled: Vec<(u64, Buffers)>,
    /// The threads of queues with late commands were woken to poll once more, and have
    /// [`RECHECK_TIME`] for that.
    pub(super) rechecked: bool,
    pub(super) resets: u32,
    pub(super) aborts: u32,
    pub(super) missed: u64,
    /// `Some` if the controller is one of several paths.
    pub(super) path: Option<PathState>,
    /// Decides on interrupt coalescing, in modes that have it.
    pub(super) moderator: Option<Moderator>,
    /// The coalescing setting that was sent to the controller last.
    pub(super) proposed: Option<Coalesce>,
    /// Instant of the moderator's last tick, and the numbers of completions and messages until
    /// then.
    pub(super) rates_since: (Nanos, u64, u64),
}

/// Maximum number of entries of the admin queue that one poll takes.
const REPLIES: usize = 64;

impl ControllerTask {
    pub(super) fn new(admin: Pair, page: u64, memory: Memory) -> ControllerTask {
        let replies = Vec::with_capacity(REPLIES);
        let (watch, cancelled) = (TimeoutScan::new(), Vec::new());
        ControllerTask {
            admin,
            page,
            memory,
            recovery: None,
            watch,
            replies,
            cancelled,
            rechecked: false,
            resets: 0,
            aborts: 0,
            missed: 0,
            path: None,
            moderator: None,
            proposed: None,
            rates_since: (Nanos::ZERO, 0, 0),
        }
    }

    /// Whether the admin completion queue has entries.
    pub(super) fn has_replies(&self) -> bool {
        self.admin.pending()
    }

    /// Whether bring-up or a reset is under way, so that registers may change.
    pub(super) fn is_busy(&self) -> bool {
        self.recovery.as_ref().is_some_and(|(recovery, _)| !recovery.is_running())
    }

    /// The controller violated the protocol: recovery resets it. Without recovery the run ends.
    pub(super) fn violated(&mut self, violation: ProtocolViolation) -> Result<(), SimError> {
        match &mut self.recovery {
            Some((recovery, _)) => recovery.violated(violation),
            None => return Err(violation.into()),
        }
        Ok(())
    }

    /// Posts an admin command. Returns false if no tag is free, or the queue is closed.
    pub(super) fn post(
        &self,
        command: AdminCommand,
        purpose: Purpose,
        now: Nanos,
        bar: &HostBar,
    ) -> bool {
        let mut sqe = command.sqe;
        if command.needs_page {
            sqe.prp1 = self.page;
        }
        let mut sq = self.admin.lock_sq();
        let posted = sq.post(sqe, purpose.to_token(), now).is_ok();
        sq.commit(bar);
        posted
    }

    /// Reaps the admin queue and hands each completion to `f`, with the data page.
    pub(super) fn replies(
        &mut self,
        bar: &HostBar,
        mut f: impl FnMut(Purpose, &AdminReply),
    ) -> Option<ProtocolViolation> {
        let violation = self
            .admin
            .reap(bar, REPLIES as u32, &mut self.replies)
            .violation
            .map(|violation| *violation);
        let mut page = [0; 4096];
        // Cannot fail: the page was allocated at bring-up.
        self.memory.read(self.page, &mut page).unwrap_or_default();
        for completed in self.replies.drain(..) {
            let reply =
                AdminReply { status: completed.status, result: completed.result, page: &page };
            f(Purpose::from_token(completed.token), &reply);
        }
        violation
    }
}

/// The state of a controller that is one of several paths.
#[derive(Debug)]
pub(super) struct PathState {
    pub(super) snapshot: PathSnapshot,
    pub(super) events: EventRequests,
    /// The namespace's ANA group.
    group: u32,
    /// The keep-alive time-out that was set on the controller. Zero: none.
    pub(super) keep_alive: Nanos,
    /// When the next Keep Alive is due.
    pub(super) keep_alive_at: Nanos,
    /// The controller's access to the host's memory is blocked, as by an IOMMU.
    pub(super) dma_blocked: Rc<Cell<bool>>,
}

impl PathState {
    /// The state of a controller that has come up.
    pub(super) fn new(inventory: &Inventory, dma_blocked: Rc<Cell<bool>>, now: Nanos) -> PathState {
        let group = inventory.namespaces.first().map_or(0, |namespace| namespace.ana_group);
        let snapshot = PathSnapshot::NEVER_UP.with_link(Link::Live);
        let mut path = PathState {
            snapshot,
            events: EventRequests::default(),
            group,
            keep_alive: Nanos::ZERO,
            keep_alive_at: Nanos::MAX,
            dma_blocked,
        };
        path.up(inventory, now);
        path
    }

    /// The controller has come up again: starts Async Event Requests and Keep Alive, and reads the
    /// ANA log page.
    pub(super) fn up(&mut self, inventory: &Inventory, now: Nanos) {
        self.events = EventRequests::new(inventory);
        self.keep_alive = inventory.keep_alive;
        if self.keep_alive > Nanos::ZERO {
            self.keep_alive_at = now;
        }
        if inventory.subsystem.ana_transition.is_some() {
            self.events.read(Reading::Log(lid::ANA));
        }
    }

    /// Get Log Page has completed.
    pub(super) fn log_completed(&mut self, page: u64, reply: &AdminReply) {
        self.events.read_completed();
        if reply.status.is_success()
            && page == u64::from(lid::ANA)
            && let Ok(log) = AnaLog::from_bytes(reply.page)
            && let Some(ana) = log.state_of(self.group)
        {
            self.snapshot.ana = ana;
        }
    }
}

impl World<'_> {
    /// Handles completions of admin commands, then takes steps of recovery until recovery waits.
    pub(super) fn run_controller_task(&mut self, n: usize) -> Result<(), SimError> {
        if self.take_replies(n) {
            self.publish_path_state(n);
        }
        // Writes, such as the doorbell of a coalescing command, still have to reach the controller.
        if self.devices[n].control.recovery.is_none() {
            self.forward_writes(n);
            return Ok(());
        }
        for _ in 0..STEPS_AT_ONCE {
            // First the threads of late queues get time to reap: a late completion costs less than
            // an Abort.
            if self.recheck_late_queues(n) {
                return Ok(());
            }
            if let Some(until) = self.recover(n)? {
                let until = until.min(self.post_path_commands(n));
                // Later than now, or virtual time would not advance.
                let at = if until == Nanos::MAX { until } else { until.max(self.now + Nanos(1)) };
                self.calendar.set(self.sources.controller_tasks + n, at);
                self.forward_writes(n);
                return Ok(());
            }
        }
        Err(SimError::Livelock(self.moment()))
    }

    /// Handles the completions of admin commands. Returns whether the state of the path has
    /// changed.
    fn take_replies(&mut self, n: usize) -> bool {
        let Attached { control, bar, queues, .. } = &mut self.devices[n];
        let queues = &self.queues[queues.clone()];
        // Taken out, because the closure below runs while the control structure is borrowed.
        let (mut moderator, proposed) = (control.moderator.take(), control.proposed);
        let (mut recovery, mut path) = (control.recovery.take(), control.path.take());
        let before = path.as_ref().map(|path| path.snapshot);
        let violation = control.replies(bar, |purpose, reply| match purpose {
            Purpose::Sequence => {
                if let Some((recovery, _)) = &mut recovery {
                    recovery.completed(reply);
                }
            }
            Purpose::Abort { queue, cid } => {
                // The CID is reserved until both the command and its Abort have completed.
                queues
                    .iter()
                    .flat_map(HwQueue::pairs)
                    .filter(|pair| pair.id() == queue)
                    .for_each(|pair| pair.exclusive().end_abort(cid));
                if let Some((recovery, _)) = &mut recovery {
                    recovery.abort_ended();
                }
            }
            Purpose::Own(SET_COALESCING) => {
                if let (Some(moderator), Some(setting)) = (&mut moderator, proposed) {
                    if reply.status.is_success() {
                        moderator.confirmed(setting)
                    } else {
                        moderator.refused()
                    }
                }
            }
            Purpose::Own(page) => {
                if let Some(path) = &mut path {
                    path.log_completed(page, reply);
                }
            }
            Purpose::AsyncEvent => {
                if let Some(path) = &mut path {
                    path.events.event_completed(reply.status, reply.result);
                }
            }
            Purpose::KeepAlive => {}
        });
        if let (Some((recovery, _)), Some(violation)) = (&mut recovery, violation) {
            // An impossible entry on the admin queue leads to a reset, as on any other queue.
            recovery.violated(violation);
        }
        let after = path.as_ref().map(|path| path.snapshot);
        (control.recovery, control.moderator, control.path) = (recovery, moderator, path);
        after != before
    }

    /// Has those queues polled whose commands have timed out although their entries are posted: the
    /// message was lost, or the thread was busy. Returns true if the threads get more time for
    /// that, which happens once for each time-out.
    fn recheck_late_queues(&mut self, n: usize) -> bool {
        let Attached { control, queues, .. } = &mut self.devices[n];
        let Some((recovery, config)) = &control.recovery else { return false };
        let late = |queue: &usize| {
            let (queue, mut expired) = (&self.queues[*queue], Vec::new());
            for pair in queue.pairs().filter(|pair| pair.pending()) {
                pair.expired(self.now, config.command_timeout, &mut expired);
            }
            !expired.is_empty()
        };
        // During a reset the queues are closed, and their commands come back without entries.
        let missed: Vec<usize> =
            if recovery.is_running() { queues.clone().filter(late).collect() } else { Vec::new() };
        // If the entries are still there after that time, recovery goes on to Abort.
        if missed.is_empty() || std::mem::replace(&mut control.rechecked, true) {
            control.rechecked = !missed.is_empty();
            return false;
        }
        control.missed += missed.len() as u64;
        self.calendar.set(self.sources.controller_tasks + n, self.now + RECHECK_TIME);
        // The kick wakes the queue's thread, which reaps the entries that the lost message should
        // have announced.
        missed.into_iter().for_each(|queue| self.kick(queue));
        true
    }

    /// One step of recovery. `Some`: recovery has nothing to do until this instant.
    fn recover(&mut self, n: usize) -> Result<Option<Nanos>, SimError> {
        let now = self.now;
        let Attached { control, bar, queues, .. } = &mut self.devices[n];
        let pairs = || self.queues[queues.clone()].iter().flat_map(HwQueue::pairs);
        let Some((recovery, config)) = &mut control.recovery else { return Ok(Some(Nanos::MAX)) };
        // Collected anew in each step: commands complete between two scans.
        control.watch.clear();
        control.watch.scan(&control.admin, now, config);
        pairs().for_each(|pair| control.watch.scan(pair, now, config));
        match recovery.step(now, bar, &control.watch) {
            RecoveryAction::Wait { until } => return Ok(Some(until)),
            RecoveryAction::Abort { queue, command, sqe } => {
                let Some(pair) = pairs().find(|pair| pair.id() == queue) else { return Ok(None) };
                let purpose = Purpose::Abort { queue, cid: command.cid };
                let begun = pair.exclusive().begin_abort(&command);
                // If the command has completed by now, or no admin tag is free, no Abort is sent.
                if !(begun
                    && control.post(AdminCommand { sqe, needs_page: false }, purpose, now, bar))
                {
                    pair.exclusive().end_abort(command.cid);
                    if let Some((recovery, _)) = &mut control.recovery {
                        recovery.abort_ended();
                    }
                } else {
                    control.aborts += 1;
                }
            }
            RecoveryAction::Close(cause) => {
                control.resets += 1;
                // From here on no doorbell is rung, but completions are still reaped.
                pairs().chain([&control.admin]).for_each(|pair| pair.exclusive().close());
                self.path_resets(n, &cause)?;
            }
            RecoveryAction::Abandon(buffers) => {
                for pair in pairs() {
                    control.cancelled.extend(
                        pair.exclusive().abandon().iter().map(|command| (command.token, buffers)),
                    );
                }
                control.admin.exclusive().abandon();
                // The admin queue's memory can be reused only after the controller has stopped.
                if buffers == Buffers::Returned {
                    control.admin.exclusive().reopen();
                }
                // A reset clears the controller's features, so coalescing is off again.
                if let Some(moderator) = &mut control.moderator {
                    moderator.reset();
                }
                control.proposed = None;
                if buffers == Buffers::Returned {
                    self.path_stopped(n)?;
                }
            }
            RecoveryAction::Admin(command) => {
                // If no tag is free, the command is not sent, and bring-up fails by its own
                // deadline.
                control.post(command, Purpose::Sequence, now, bar);
            }
            // Rings stay where they are: the simulated memory survives a reset.
            RecoveryAction::Rings { .. } => {}
            RecoveryAction::Lost(_) => self.path_lost(n)?,
            RecoveryAction::Restored(inventory) => {
                // The queues are opened before the commands are given back, because the threads
                // post them again at once.
                pairs().for_each(|pair| pair.exclusive().reopen());
                self.return_commands(n)?;
                if let Some(path) = &mut self.devices[n].control.path {
                    path.up(&inventory, now);
                    self.set_link(n, Link::Live);
                }
            }
            RecoveryAction::Dead(_) => {
                // From here on threads fail requests to this controller instead of posting them.
                for task in 0..self.plan.threads.len() {
                    let Some(thread) = self.tasks[task].thread_mut() else { continue };
                    for (target, dead) in thread.app.dead.iter_mut().enumerate() {
                        *dead |= self.targets[task].get(target) == Some(&n);
                    }
                }
                self.return_commands(n)?;
                return Ok(Some(Nanos::MAX));
            }
        }
        self.forward_writes(n);
        Ok(None)
    }

    /// Gives cancelled commands back to their threads, which post them again or end them.
    pub(super) fn return_commands(&mut self, n: usize) -> Result<(), SimError> {
        let cancelled = std::mem::take(&mut self.devices[n].control.cancelled);
        for (token, buffers) in cancelled {
            let task = crate::requests::CommandToken::from_word(token).task();
            if let Some(thread) = self.tasks.get_mut(task).and_then(Task::thread_mut) {
                thread.cancelled(token, buffers, self.now)?;
            }
        }
        // Threads without cancelled commands are woken too: they may wait for a tag of a queue that
        // was closed.
        for queue in self.devices[n].queues.clone() {
            (0..self.queues[queue].users.len())
                .for_each(|user| self.poke(self.queues[queue].users[user]));
        }
        Ok(())
    }

    /// The mode has changed: starts, replaces or stops the moderator.
    pub(super) fn change_moderator(&mut self, n: usize) {
        // Otherwise the coalescing of the old mode would stay in force in the new mode.
        if self.devices[n].control.proposed.is_some_and(|setting| setting != Coalesce::OFF) {
            self.set_coalescing(n, Coalesce::OFF);
        }
        self.devices[n].control.moderator = self.mode.moderation().map(Moderator::new);
        self.set_moderator(n);
    }

    /// Sets the moderator's timer: it decides once per pace.
    pub(super) fn set_moderator(&mut self, n: usize) {
        let at =
            if self.devices[n].control.moderator.is_some() { self.now + PACE } else { Nanos::MAX };
        self.calendar.set(self.sources.moderators + n, at);
    }

    /// Ticks the moderator, and sends the controller a new setting if there is one.
    pub(super) fn moderate(&mut self, n: usize) {
        let queues = self.devices[n].queues.clone();
        let finished: u64 = self.queues[queues.clone()]
            .iter()
            .flat_map(HwQueue::pairs)
            .map(|pair| pair.counters().finished)
            .sum();
        let in_flight = self.queues[queues].iter().map(HwQueue::in_flight).sum();
        let (now, messages) = (self.now, self.devices[n].vectors.messages());
        let control = &mut self.devices[n].control;
        let (since, completions, sent) =
            std::mem::replace(&mut control.rates_since, (now, finished, messages));
        let (elapsed, completions, messages) =
            (now - since, finished - completions, messages - sent);
        let rates = Rates { elapsed, completions, messages, in_flight };
        let control = &mut self.devices[n].control;
        if let Some(setting) =
            control.moderator.as_mut().and_then(|moderator| moderator.tick(now, &rates))
        {
            self.set_coalescing(n, setting);
        }
        self.set_moderator(n);
    }

    /// Sends the setting as Set Features, Interrupt Coalescing (Base §5.1.25.2.2).
    fn set_coalescing(&mut self, n: usize, setting: Coalesce) {
        let value = InterruptCoalescing::new().with_thr(setting.thr()).with_time(setting.time());
        let sqe = SetFeatures::new(fid::INTERRUPT_COALESCING, value).to_sqe();
        let Attached { control, bar, .. } = &mut self.devices[n];
        control.proposed = Some(setting);
        control.post(
            AdminCommand { sqe, needs_page: false },
            Purpose::Own(SET_COALESCING),
            self.now,
            bar,
        );
        self.forward_writes(n);
    }

    /// A reset begins: nothing more is sent on this path. A controller that has not completed a
    /// command may not respond to the reset either, so the path counts as lost until the controller
    /// is reset.
    fn path_resets(&mut self, n: usize, cause: &ResetCause) -> Result<(), SimError> {
        let Some(path) = &mut self.devices[n].control.path else { return Ok(()) };
        // A controller in reset takes no admin commands; bring-up starts the timer again.
        path.keep_alive_at = Nanos::MAX;
        if cause.is_unanswered() {
            return self.path_lost(n);
        }
        self.set_link(n, Link::Resetting);
        Ok(())
    }

    /// The controller does not respond. Its access to memory is blocked, so that all buffers can be
    /// given back.
    fn path_lost(&mut self, n: usize) -> Result<(), SimError> {
        let Some(path) = &self.devices[n].control.path else { return Ok(()) };
        // From here on the simulated controller's writes are discarded, as those of a device
        // without bus mastering.
        path.dma_blocked.set(true);
        self.return_in_flight(n)?;
        self.set_link(n, Link::Lost);
        Ok(())
    }

    /// The controller has stopped (CSTS.RDY = 0): it executes no command any more that was sent to
    /// it.
    fn path_stopped(&mut self, n: usize) -> Result<(), SimError> {
        let Some(path) = &mut self.devices[n].control.path else { return Ok(()) };
        path.events.forget();
        path.dma_blocked.set(false);
        self.return_in_flight(n)?;
        self.set_link(n, Link::Connecting);
        Ok(())
    }

    /// Cancels every command that is in flight.
    fn return_in_flight(&mut self, n: usize) -> Result<(), SimError> {
        let Attached { control, queues, .. } = &mut self.devices[n];
        for pair in self.queues[queues.clone()].iter().flat_map(HwQueue::pairs) {
            control.cancelled.extend(
                pair.exclusive()
                    .abandon()
                    .iter()
                    .map(|command| (command.token, driver::Buffers::Returned)),
            );
        }
        self.return_commands(n)
    }

    fn set_link(&mut self, n: usize, link: Link) {
        if let Some(path) = &mut self.devices[n].control.path {
            path.snapshot = path.snapshot.with_link(link);
        }
        self.publish_path_state(n);
    }

    /// Gives every thread that uses the path its new state, and wakes it.
    pub(super) fn publish_path_state(&mut self, n: usize) {
        let Some(snapshot) = self.devices[n].control.path.as_ref().map(|path| path.snapshot) else {
            return;
        };
        for task in 0..self.plan.threads.len() {
            if !self.targets[task].contains(&n) {
                continue;
            }
            if let Some(multipath) =
                self.tasks[task].thread_mut().and_then(|thread| thread.app.multipath.as_mut())
            {
                multipath.path_changed(n, snapshot);
            }
            self.poke(task);
        }
    }

    /// Posts Async Event Requests, Get Log Page and Keep Alive commands that are due, while the
    /// controller is up. Returns when the next command is due.
    pub(super) fn post_path_commands(&mut self, n: usize) -> Nanos {
        let now = self.now;
        let Attached { control, bar, .. } = &mut self.devices[n];
        let Some(mut path) = control.path.take() else { return Nanos::MAX };
        if !control.is_busy() {
            while let Some((command, purpose)) = path.events.next_command(now) {
                if !control.post(command, purpose, now, bar) {
                    // The event loop tries again when a reply has freed a tag.
                    path.events.not_posted(purpose);
                    break;
                }
            }
            if now >= path.keep_alive_at {
                control.post(
                    AdminCommand { sqe: nvme::admin::keep_alive(), needs_page: false },
                    Purpose::KeepAlive,
                    now,
                    bar,
                );
                // Four Keep Alive commands per time-out, so that the loss of one does not end the
                // association.
                path.keep_alive_at = now + Nanos(path.keep_alive.0 / 4);
            }
        }
        let until = path.keep_alive_at.min(path.events.until(now));
        control.path = Some(path);
        until
    }
}
