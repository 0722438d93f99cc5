//! What the housekeeping thread does for a controller, carried out in virtual time. It runs elsewhere and costs these CPUs nothing; the
//! admin queue is its own.

use std::ops::Range;

use completion::{Coalesce, Moderator, PACE, Rates};
use driver::{AdminCommand, Buffers, Purpose, RecoveryAsk};
use nvme::admin::SetFeatures;
use nvme::features::{InterruptCoalescing, fid};

use super::task::Task;
use super::*;
use crate::host::lane::Lane;
use crate::hw_queue::Pair;

/// How long the thread has to take entries that a time-out found.
const PATIENCE: Nanos = Nanos::from_millis(1);

/// The moderator's commands, by a number that is no log page's.
const PROPOSAL: u64 = 256;

impl World<'_> {
    /// The keeper's turn: replies first, then whatever recovery asks for, until it asks to wait.
    pub(super) fn keep(&mut self, n: usize) -> Result<(), SimError> {
        if self.take_replies(n) {
            self.tell_of_path(n);
        }
        if self.devices[n].keeper.recovery.is_none() {
            self.forward_writes(n);
            return Ok(());
        }
        for _ in 0..STEPS_AT_ONCE {
            if self.remind(n) {
                return Ok(());
            }
            if let Some(until) = self.recover(n)? {
                let until = until.min(self.look_after_path(n));
                let at = if until == Nanos::MAX { until } else { until.max(self.now + Nanos(1)) };
                self.calendar.set(self.sources.keepers + n, at);
                self.forward_writes(n);
                return Ok(());
            }
        }
        Err(self.livelock())
    }

    /// Whether they told that the path stands otherwise.
    fn take_replies(&mut self, n: usize) -> bool {
        let Attached { keeper, bells, queues, .. } = &mut self.devices[n];
        let queues = &self.queues[queues.clone()];
        let (mut moderator, proposed) = (keeper.moderator.take(), keeper.proposed);
        let (mut recovery, mut seat) = (keeper.recovery.take(), keeper.seat.take());
        let stood = seat.as_ref().map(|seat| seat.standing);
        let violation = keeper.replies(bells, |purpose, reply| match purpose {
            Purpose::Sequence => {
                if let Some((recovery, _)) = &mut recovery {
                    recovery.completed(reply);
                }
            }
            Purpose::Abort { queue, cid } => {
                queues.iter().flat_map(HwQueue::pairs).filter(|pair| pair.id() == queue).for_each(|pair| pair.end_abort(cid));
                if let Some((recovery, _)) = &mut recovery {
                    recovery.abort_ended();
                }
            }
            Purpose::Own(PROPOSAL) => {
                if let (Some(moderator), Some(setting)) = (&mut moderator, proposed) {
                    if reply.status.is_success() { moderator.confirmed(setting) } else { moderator.refused() }
                }
            }
            Purpose::Own(page) => {
                if let Some(seat) = &mut seat {
                    seat.log_answered(page, reply);
                }
            }
            Purpose::AsyncEvent => {
                if let Some(seat) = &mut seat {
                    seat.events.happened(reply.status, reply.result);
                }
            }
            Purpose::KeepAlive => {}
        });
        if let (Some((recovery, _)), Some(violation)) = (&mut recovery, violation) {
            recovery.violated(violation);
        }
        let held_back = moderator.as_ref().map_or(0, |moderator| moderator.in_force().entries().into());
        let stands = seat.as_ref().map(|seat| seat.standing);
        (keeper.recovery, keeper.moderator, keeper.seat) = (recovery, moderator, seat);
        let queues = self.devices[n].queues.clone();
        self.queues[queues].iter_mut().for_each(|queue| queue.held_back = held_back);
        stands != stood
    }

    /// If entries wait past the time-out although nobody was told of them, has them looked at, once, before anything worse.
    fn remind(&mut self, n: usize) -> bool {
        let Attached { keeper, queues, .. } = &mut self.devices[n];
        let Some((recovery, config)) = &keeper.recovery else { return false };
        let late = |queue: &usize| {
            let (queue, mut expired) = (&self.queues[*queue], Vec::new());
            for pair in queue.pairs().filter(|pair| pair.pending()) {
                pair.expired(self.now, config.command_timeout, &mut expired);
            }
            !expired.is_empty()
        };
        let missed: Vec<usize> = if recovery.is_watching() { queues.clone().filter(late).collect() } else { Vec::new() };
        if missed.is_empty() || std::mem::replace(&mut keeper.patience, true) {
            keeper.patience = !missed.is_empty();
            return false;
        }
        keeper.missed += missed.len() as u64;
        self.calendar.set(self.sources.keepers + n, self.now + PATIENCE);
        missed.into_iter().for_each(|queue| self.kick(queue));
        true
    }

    /// One step of recovery. `Some`: nothing to do until then.
    fn recover(&mut self, n: usize) -> Result<Option<Nanos>, SimError> {
        let now = self.now;
        let Attached { keeper, bells, queues, .. } = &mut self.devices[n];
        let pairs = || self.queues[queues.clone()].iter().flat_map(HwQueue::pairs);
        let Some((recovery, config)) = &mut keeper.recovery else { return Ok(Some(Nanos::MAX)) };
        keeper.watch.clear();
        keeper.watch.look(&keeper.admin, now, config);
        pairs().for_each(|pair| keeper.watch.look(pair, now, config));
        match recovery.step(now, bells, &keeper.watch) {
            RecoveryAsk::Wait { until } => return Ok(Some(until)),
            RecoveryAsk::Abort { queue, command, sqe } => {
                let Some(pair) = pairs().find(|pair| pair.id() == queue) else { return Ok(None) };
                let purpose = Purpose::Abort { queue, cid: command.cid };
                let begun = pair.begin_abort(&command);
                if !(begun && keeper.post(AdminCommand { sqe, page: false }, purpose, now, bells)) {
                    pair.end_abort(command.cid);
                    if let Some((recovery, _)) = &mut keeper.recovery {
                        recovery.abort_ended();
                    }
                } else {
                    keeper.aborts += 1;
                }
            }
            RecoveryAsk::Close(cause) => {
                keeper.resets += 1;
                pairs().chain([&keeper.admin]).for_each(Pair::close);
                self.path_resets(n, &cause)?;
            }
            RecoveryAsk::Abandon(buffers) => {
                for pair in pairs() {
                    keeper.taken_back.extend(pair.abandon().iter().map(|command| (command.token, buffers)));
                }
                keeper.admin.abandon();
                if buffers == Buffers::Returned {
                    keeper.admin.reopen();
                }
                if let Some(moderator) = &mut keeper.moderator {
                    moderator.reset();
                }
                keeper.proposed = None;
                if buffers == Buffers::Returned {
                    self.path_stopped(n)?;
                }
            }
            RecoveryAsk::Admin(command) => {
                // Without a tag the reply never comes, and bring-up fails by its own deadline.
                keeper.post(command, Purpose::Sequence, now, bells);
            }
            RecoveryAsk::Rings { .. } => {}
            RecoveryAsk::Lost(_) => self.path_lost(n)?,
            RecoveryAsk::Restored(inventory) => {
                pairs().for_each(|pair| pair.reopen());
                self.return_commands(n)?;
                self.path_up(n, &inventory);
            }
            RecoveryAsk::Dead(_) => {
                self.give_up(n);
                self.return_commands(n)?;
                return Ok(Some(Nanos::MAX));
            }
        }
        self.forward_writes(n);
        Ok(None)
    }

    /// Every thread is told that a controller is beyond help.
    fn give_up(&mut self, n: usize) {
        for task in 0..self.plan.threads.len() {
            let targets = self.targets[task].clone();
            let Some(thread) = self.tasks[task].thread_mut() else { continue };
            for (target, device) in targets.into_iter().enumerate() {
                if device == n {
                    thread.give_up(target);
                }
            }
        }
    }

    pub(super) fn return_commands(&mut self, n: usize) -> Result<(), SimError> {
        let taken_back = std::mem::take(&mut self.devices[n].keeper.taken_back);
        for (token, buffers) in taken_back {
            let task = crate::requests::Token::from_word(token).task();
            if let Some(thread) = self.tasks.get_mut(task).and_then(Task::thread_mut) {
                thread.taken_back(token, buffers, self.now)?;
            }
        }
        for queue in self.devices[n].queues.clone() {
            (0..self.queues[queue].users.len()).for_each(|user| self.poke(self.queues[queue].users[user]));
        }
        Ok(())
    }

    /// The mode may want another moderator, or none: then nothing is to be held back any more.
    pub(super) fn change_moderator(&mut self, n: usize) {
        if self.devices[n].keeper.proposed.is_some_and(|setting| setting != Coalesce::OFF) {
            self.propose(n, Coalesce::OFF);
        }
        self.devices[n].keeper.moderator = self.mode.moderation().map(Moderator::new);
        self.set_moderator(n);
    }

    /// The moderator, if there is one, is asked once per pace.
    pub(super) fn set_moderator(&mut self, n: usize) {
        let at = if self.devices[n].keeper.moderator.is_some() { self.now + PACE } else { Nanos::MAX };
        self.calendar.set(self.sources.moderators + n, at);
    }

    /// Asks the moderator, and sends the device what it says.
    pub(super) fn moderate(&mut self, n: usize) {
        let queues = self.devices[n].queues.clone();
        let finished: u64 = self.queues[queues.clone()].iter().flat_map(HwQueue::pairs).map(|pair| pair.counters().finished).sum();
        let in_flight = self.queues[queues.clone()].iter().map(HwQueue::in_flight).sum();
        let asked = self.asked(queues);
        let (now, messages) = (self.now, self.devices[n].vectors.messages());
        let keeper = &mut self.devices[n].keeper;
        let (since, completions, sent) = std::mem::replace(&mut keeper.rates_since, (now, finished, messages));
        let (elapsed, completions, messages) = (now - since, finished - completions, messages - sent);
        let rates = Rates { elapsed, completions, messages, in_flight, asked };
        let keeper = &mut self.devices[n].keeper;
        if let Some(setting) = keeper.moderator.as_mut().and_then(|moderator| moderator.tick(now, &rates)) {
            self.propose(n, setting);
        }
        self.set_moderator(n);
    }

    /// For how many entries all the policies of these queues that have something in flight would have messages held back.
    fn asked(&self, queues: Range<usize>) -> u16 {
        let busy = |lane: &&Lane| queues.contains(&lane.queue) && lane.in_flight(&self.queues[lane.queue]) > 0;
        let lanes = self.tasks.iter().filter_map(Task::thread).flat_map(|thread| &thread.lanes).filter(busy);
        lanes.map(|lane| lane.waiter.policy.holds()).min().unwrap_or(0)
    }

    fn propose(&mut self, n: usize, setting: Coalesce) {
        let value = InterruptCoalescing::new().with_thr(setting.thr()).with_time(setting.time());
        let sqe = SetFeatures::new(fid::INTERRUPT_COALESCING, value).to_sqe();
        let Attached { keeper, bells, .. } = &mut self.devices[n];
        keeper.proposed = Some(setting);
        keeper.post(AdminCommand { sqe, page: false }, Purpose::Own(PROPOSAL), self.now, bells);
        self.forward_writes(n);
    }
}
