//! The keeper of a controller: its admin queue, and what watches over it. It does what the engine's housekeeping thread does, in virtual
//! time; it runs elsewhere and costs these CPUs nothing.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use completion::{Coalesce, Moderator, PACE, Rates};
use driver::multipath::{Link, PathSnapshot};
use driver::{AdminCommand, AdminReply, Buffers, Completed, Events, Inventory, ProtocolViolation, Purpose, Reading};
use driver::{Recovery, RecoveryAction, RecoveryConfig, ResetCause, TimeoutScan};
use nvme::admin::SetFeatures;
use nvme::features::{InterruptCoalescing, fid};
use nvme::log::ana::AnaLog;
use nvme::log::lid;

use super::tasks::Task;
use super::*;
use crate::host::sw_queue::SwQueue;
use crate::hw_queue::Pair;
use crate::port::Memory;

/// How long the thread has to take entries that a time-out found.
const RECHECK_TIME: Nanos = Nanos::from_millis(1);

/// The moderator's commands, by a number that is no log page's.
const SET_COALESCING: u64 = 256;

/// The admin queue and what watches over the controller.
#[derive(Debug)]
pub(super) struct ControllerTask {
    pub(super) admin: Pair,
    /// Bus address of the page that admin commands return data in.
    pub(super) page: u64,
    pub(super) memory: Memory,
    pub(super) recovery: Option<(Recovery, RecoveryConfig)>,
    pub(super) watch: TimeoutScan,
    replies: Vec<Completed>,
    pub(super) cancelled: Vec<(u64, Buffers)>,
    /// The thread was told of entries that nobody had told it of, and is given time to take them.
    pub(super) rechecked: bool,
    pub(super) resets: u32,
    pub(super) aborts: u32,
    pub(super) missed: u64,
    /// The controller is one of several paths, and is watched.
    pub(super) path: Option<PathState>,
    /// What the device holds back is this one's to decide, and what it last proposed.
    pub(super) moderator: Option<Moderator>,
    pub(super) proposed: Option<Coalesce>,
    /// Since when, and how many completions and messages there had been.
    pub(super) rates_since: (Nanos, u64, u64),
}

/// Room for the admin queue's entries.
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

    /// Whether there is something for it on the admin queue.
    pub(super) fn has_replies(&self) -> bool {
        self.admin.pending()
    }

    /// Whether a sequence is under way, so that registers may change.
    pub(super) fn is_busy(&self) -> bool {
        self.recovery.as_ref().is_some_and(|(recovery, _)| !recovery.is_running())
    }

    pub(super) fn violated(&mut self, violation: ProtocolViolation) -> Result<(), SimError> {
        match &mut self.recovery {
            Some((recovery, _)) => recovery.violated(violation),
            None => return Err(violation.into()),
        }
        Ok(())
    }

    /// Posts an admin command. False: no tag, or the queue is closed.
    pub(super) fn post(&self, command: AdminCommand, purpose: Purpose, now: Nanos, bar: &HostBar) -> bool {
        let mut sqe = command.sqe;
        if command.page {
            sqe.prp1 = self.page;
        }
        let mut sq = self.admin.lock_sq();
        let posted = sq.post(sqe, purpose.to_token(), now).is_ok();
        sq.commit(bar);
        posted
    }

    /// Takes the entries of the admin queue and hands each to `f`, with the page.
    pub(super) fn replies(&mut self, bar: &HostBar, mut f: impl FnMut(Purpose, &AdminReply)) -> Option<ProtocolViolation> {
        let violation = self.admin.reap(bar, REPLIES as u32, &mut self.replies).violation.map(|violation| *violation);
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
pub(super) struct PathState {
    pub(super) snapshot: PathSnapshot,
    pub(super) events: Events,
    /// The namespace's ANA group.
    group: u32,
    pub(super) keep_alive: Nanos,
    /// When the next Keep Alive is due.
    pub(super) keep_alive_at: Nanos,
    /// The controller is cut off from the host's memory, as by an IOMMU.
    pub(super) dma_blocked: Rc<Cell<bool>>,
}

impl PathState {
    /// Of a controller that has come up.
    pub(super) fn new(inventory: &Inventory, dma_blocked: Rc<Cell<bool>>, now: Nanos) -> PathState {
        let group = inventory.namespaces.first().map_or(0, |namespace| namespace.ana_group);
        let snapshot = PathSnapshot::NEVER_UP.with_link(Link::Live);
        let mut path =
            PathState { snapshot, events: Events::default(), group, keep_alive: Nanos::ZERO, keep_alive_at: Nanos::MAX, dma_blocked };
        path.up(inventory, now);
        path
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
    /// The keeper's turn: replies first, then whatever recovery asks for, until it asks to wait.
    pub(super) fn run_controller_task(&mut self, n: usize) -> Result<(), SimError> {
        if self.take_replies(n) {
            self.publish_path_state(n);
        }
        if self.devices[n].control.recovery.is_none() {
            self.forward_writes(n);
            return Ok(());
        }
        for _ in 0..STEPS_AT_ONCE {
            if self.recheck_late_queues(n) {
                return Ok(());
            }
            if let Some(until) = self.recover(n)? {
                let until = until.min(self.post_path_commands(n));
                let at = if until == Nanos::MAX { until } else { until.max(self.now + Nanos(1)) };
                self.calendar.set(self.sources.controller_tasks + n, at);
                self.forward_writes(n);
                return Ok(());
            }
        }
        Err(SimError::Livelock(self.moment()))
    }

    /// Whether they told that the path stands otherwise.
    fn take_replies(&mut self, n: usize) -> bool {
        let Attached { control, bar, queues, .. } = &mut self.devices[n];
        let queues = &self.queues[queues.clone()];
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
                queues.iter().flat_map(HwQueue::pairs).filter(|pair| pair.id() == queue).for_each(|pair| pair.exclusive().end_abort(cid));
                if let Some((recovery, _)) = &mut recovery {
                    recovery.abort_ended();
                }
            }
            Purpose::Own(SET_COALESCING) => {
                if let (Some(moderator), Some(setting)) = (&mut moderator, proposed) {
                    if reply.status.is_success() { moderator.confirmed(setting) } else { moderator.refused() }
                }
            }
            Purpose::Own(page) => {
                if let Some(path) = &mut path {
                    path.log_answered(page, reply);
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
            recovery.violated(violation);
        }
        let held_back = moderator.as_ref().map_or(0, |moderator| moderator.in_force().entries().into());
        let stands = path.as_ref().map(|path| path.snapshot);
        (control.recovery, control.moderator, control.path) = (recovery, moderator, path);
        let queues = self.devices[n].queues.clone();
        self.queues[queues].iter_mut().for_each(|queue| queue.coalescing = held_back);
        stands != before
    }

    /// If entries wait past the time-out although nobody was told of them, has them looked at, once, before anything worse.
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
        let missed: Vec<usize> = if recovery.is_running() { queues.clone().filter(late).collect() } else { Vec::new() };
        if missed.is_empty() || std::mem::replace(&mut control.rechecked, true) {
            control.rechecked = !missed.is_empty();
            return false;
        }
        control.missed += missed.len() as u64;
        self.calendar.set(self.sources.controller_tasks + n, self.now + RECHECK_TIME);
        missed.into_iter().for_each(|queue| self.kick(queue));
        true
    }

    /// One step of recovery. `Some`: nothing to do until then.
    fn recover(&mut self, n: usize) -> Result<Option<Nanos>, SimError> {
        let now = self.now;
        let Attached { control, bar, queues, .. } = &mut self.devices[n];
        let pairs = || self.queues[queues.clone()].iter().flat_map(HwQueue::pairs);
        let Some((recovery, config)) = &mut control.recovery else { return Ok(Some(Nanos::MAX)) };
        control.watch.clear();
        control.watch.scan(&control.admin, now, config);
        pairs().for_each(|pair| control.watch.scan(pair, now, config));
        match recovery.step(now, bar, &control.watch) {
            RecoveryAction::Wait { until } => return Ok(Some(until)),
            RecoveryAction::Abort { queue, command, sqe } => {
                let Some(pair) = pairs().find(|pair| pair.id() == queue) else { return Ok(None) };
                let purpose = Purpose::Abort { queue, cid: command.cid };
                let begun = pair.exclusive().begin_abort(&command);
                if !(begun && control.post(AdminCommand { sqe, page: false }, purpose, now, bar)) {
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
                pairs().chain([&control.admin]).for_each(|pair| pair.exclusive().close());
                self.path_resets(n, &cause)?;
            }
            RecoveryAction::Abandon(buffers) => {
                for pair in pairs() {
                    control.cancelled.extend(pair.exclusive().abandon().iter().map(|command| (command.token, buffers)));
                }
                control.admin.exclusive().abandon();
                if buffers == Buffers::Returned {
                    control.admin.exclusive().reopen();
                }
                if let Some(moderator) = &mut control.moderator {
                    moderator.reset();
                }
                control.proposed = None;
                if buffers == Buffers::Returned {
                    self.path_stopped(n)?;
                }
            }
            RecoveryAction::Admin(command) => {
                // Without a tag the reply never comes, and bring-up fails by its own deadline.
                control.post(command, Purpose::Sequence, now, bar);
            }
            RecoveryAction::Rings { .. } => {}
            RecoveryAction::Lost(_) => self.path_lost(n)?,
            RecoveryAction::Restored(inventory) => {
                pairs().for_each(|pair| pair.exclusive().reopen());
                self.return_commands(n)?;
                if let Some(path) = &mut self.devices[n].control.path {
                    path.up(&inventory, now);
                    self.set_link(n, Link::Live);
                }
            }
            RecoveryAction::Dead(_) => {
                // Nothing is posted to it any more.
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

    pub(super) fn return_commands(&mut self, n: usize) -> Result<(), SimError> {
        let cancelled = std::mem::take(&mut self.devices[n].control.cancelled);
        for (token, buffers) in cancelled {
            let task = crate::requests::Token::from_word(token).task();
            if let Some(thread) = self.tasks.get_mut(task).and_then(Task::thread_mut) {
                thread.cancelled(token, buffers, self.now)?;
            }
        }
        for queue in self.devices[n].queues.clone() {
            (0..self.queues[queue].users.len()).for_each(|user| self.poke(self.queues[queue].users[user]));
        }
        Ok(())
    }

    /// The mode may want another moderator, or none: then nothing is to be held back any more.
    pub(super) fn change_moderator(&mut self, n: usize) {
        if self.devices[n].control.proposed.is_some_and(|setting| setting != Coalesce::OFF) {
            self.set_coalescing(n, Coalesce::OFF);
        }
        self.devices[n].control.moderator = self.mode.moderation().map(Moderator::new);
        self.set_moderator(n);
    }

    /// The moderator, if there is one, is asked once per pace.
    pub(super) fn set_moderator(&mut self, n: usize) {
        let at = if self.devices[n].control.moderator.is_some() { self.now + PACE } else { Nanos::MAX };
        self.calendar.set(self.sources.moderators + n, at);
    }

    /// Asks the moderator, and sends the device what it says.
    pub(super) fn moderate(&mut self, n: usize) {
        let queues = self.devices[n].queues.clone();
        let finished: u64 = self.queues[queues.clone()].iter().flat_map(HwQueue::pairs).map(|pair| pair.counters().finished).sum();
        let in_flight = self.queues[queues.clone()].iter().map(HwQueue::in_flight).sum();
        let asked = self.requested_threshold(queues);
        let (now, messages) = (self.now, self.devices[n].vectors.messages());
        let control = &mut self.devices[n].control;
        let (since, completions, sent) = std::mem::replace(&mut control.rates_since, (now, finished, messages));
        let (elapsed, completions, messages) = (now - since, finished - completions, messages - sent);
        let rates = Rates { elapsed, completions, messages, in_flight, asked };
        let control = &mut self.devices[n].control;
        if let Some(setting) = control.moderator.as_mut().and_then(|moderator| moderator.tick(now, &rates)) {
            self.set_coalescing(n, setting);
        }
        self.set_moderator(n);
    }

    /// For how many entries all the policies of these queues that have something in flight would have messages held back.
    fn requested_threshold(&self, queues: Range<usize>) -> u16 {
        let busy = |sw_queue: &&SwQueue| queues.contains(&sw_queue.queue) && sw_queue.in_flight(&self.queues[sw_queue.queue]) > 0;
        let sw_queues = self.tasks.iter().filter_map(Task::thread).flat_map(|thread| &thread.sw_queues).filter(busy);
        sw_queues.map(|sw_queue| sw_queue.waiter.hold).min().unwrap_or(0)
    }

    fn set_coalescing(&mut self, n: usize, setting: Coalesce) {
        let value = InterruptCoalescing::new().with_thr(setting.thr()).with_time(setting.time());
        let sqe = SetFeatures::new(fid::INTERRUPT_COALESCING, value).to_sqe();
        let Attached { control, bar, .. } = &mut self.devices[n];
        control.proposed = Some(setting);
        control.post(AdminCommand { sqe, page: false }, Purpose::Own(SET_COALESCING), self.now, bar);
        self.forward_writes(n);
    }

    // What the keeper of one of several paths does for the threads that send by it.

    /// A reset begins: nothing more is sent this way. A controller that has left something unanswered may not answer the reset
    /// either: it counts as lost until it has.
    fn path_resets(&mut self, n: usize, cause: &ResetCause) -> Result<(), SimError> {
        let Some(path) = &mut self.devices[n].control.path else { return Ok(()) };
        path.keep_alive_at = Nanos::MAX;
        if cause.is_unanswered() {
            return self.path_lost(n);
        }
        self.set_link(n, Link::Resetting);
        Ok(())
    }

    /// The controller does not answer: it is kept away from the host's memory, so that all requests can be given back.
    fn path_lost(&mut self, n: usize) -> Result<(), SimError> {
        let Some(path) = &self.devices[n].control.path else { return Ok(()) };
        path.dma_blocked.set(true);
        self.return_in_flight(n)?;
        self.set_link(n, Link::Lost);
        Ok(())
    }

    /// The controller has stopped: nothing that was sent to it will be carried out any more.
    fn path_stopped(&mut self, n: usize) -> Result<(), SimError> {
        let Some(path) = &mut self.devices[n].control.path else { return Ok(()) };
        path.events.forget();
        path.dma_blocked.set(false);
        self.return_in_flight(n)?;
        self.set_link(n, Link::Connecting);
        Ok(())
    }

    /// Every command that is in flight ends.
    fn return_in_flight(&mut self, n: usize) -> Result<(), SimError> {
        let Attached { control, queues, .. } = &mut self.devices[n];
        for pair in self.queues[queues.clone()].iter().flat_map(HwQueue::pairs) {
            control.cancelled.extend(pair.exclusive().abandon().iter().map(|command| (command.token, driver::Buffers::Returned)));
        }
        self.return_commands(n)
    }

    fn set_link(&mut self, n: usize, link: Link) {
        if let Some(path) = &mut self.devices[n].control.path {
            path.snapshot = path.snapshot.with_link(link);
        }
        self.publish_path_state(n);
    }

    /// Every thread that sends by the path is told how it stands.
    pub(super) fn publish_path_state(&mut self, n: usize) {
        let Some(snapshot) = self.devices[n].control.path.as_ref().map(|path| path.snapshot) else { return };
        for task in 0..self.plan.threads.len() {
            if !self.targets[task].contains(&n) {
                continue;
            }
            if let Some(multipath) = self.tasks[task].thread_mut().and_then(|thread| thread.app.multipath.as_mut()) {
                multipath.path_changed(n, snapshot);
            }
            self.poke(task);
        }
    }

    /// While the controller is in use: requests for events, log pages, Keep Alive. When to come again.
    pub(super) fn post_path_commands(&mut self, n: usize) -> Nanos {
        let now = self.now;
        let Attached { control, bar, .. } = &mut self.devices[n];
        let Some(mut path) = control.path.take() else { return Nanos::MAX };
        if !control.is_busy() {
            while let Some((command, purpose)) = path.events.next_command(now) {
                if !control.post(command, purpose, now, bar) {
                    path.events.not_posted(purpose);
                    break;
                }
            }
            if now >= path.keep_alive_at {
                control.post(AdminCommand { sqe: nvme::admin::keep_alive(), page: false }, Purpose::KeepAlive, now, bar);
                path.keep_alive_at = now + Nanos(path.keep_alive.0 / 4);
            }
        }
        let until = path.keep_alive_at.min(path.events.until(now));
        control.path = Some(path);
        until
    }
}
