//! A controller's bad days: aborts, resets, what becomes of the commands that a reset took back, and the end.

use driver::multipath::Link as PathLink;
use driver::{AdminCommand, Buffers, Command, Completed, Dead, Events, Inventory, Purpose, RecoveryAsk, ResetCause};
use nvme::{Cid, QueueId, Status};
use units::Nanos;

use super::{AGAIN, ControllerTask, Life};
use crate::request::{LOST, REQUEUED, REQUEUED_AS_ASKED, STOPPED};
use crate::shared::events::EventKind;
use crate::shared::hw_queue::HwQueue;
use crate::transport::HeldPair;

/// How long a controller has for commands that were announced at their time-out or after it.
const REMINDED: Nanos = Nanos::from_millis(100);

/// Overdue commands are seen within this time, where they were announced when their batch was submitted and this thread has its CPU.
const PUNCTUAL: Nanos = Nanos::from_millis(20);

impl ControllerTask {
    /// What is late through no fault of the controller's: commands whose thread computes for longer than their time-out, and has
    /// not announced them, or not taken what became of them; or was never told. They are announced, or taken for their owner,
    /// before anything worse. Until when the controller has to be given time for it.
    pub(super) fn remind(&mut self, now: Nanos) -> Nanos {
        let (mut expired, mut announced, mut long_ago) = (Vec::new(), 0, false);
        for queue in &self.queues {
            expired.clear();
            queue.queue_pairs().for_each(|pair| pair.expired(now, self.options.timeout, &mut expired));
            if expired.is_empty() {
                continue;
            }
            // Seen so late: the batch's clock read was old when it was posted, or this thread was away.
            long_ago |= expired.iter().any(|late| now - late.command.posted_at > self.options.timeout + PUNCTUAL);
            announced += queue.try_commit();
            if queue.pending() {
                queue.take_for_owners(&mut self.taken);
            }
        }
        // Now and then: a thread that goes on posting must not keep a controller from being reset.
        if (announced > 0 || long_ago) && now >= self.reminded_until + self.options.timeout {
            self.reminded_until = now + REMINDED;
        }
        self.reminded_until
    }

    /// Carries out what recovery asks. What needs pairs that some thread has at this moment is put off, and gone on with.
    pub(super) fn recover(&mut self, ask: RecoveryAsk, now: Nanos) {
        let silent = matches!(&ask, RecoveryAsk::Close(cause) if cause.is_silence());
        let verb: fn(&mut HeldPair<'_>) -> Vec<Command> = match &ask {
            RecoveryAsk::Abort { .. } => return self.abort(ask, now),
            RecoveryAsk::Close(_) if !(silent && self.given_back().is_some()) => |held| {
                held.close();
                Vec::new()
            },
            RecoveryAsk::Lost(_) if self.given_back().is_none() => return self.recovered(ask, now),
            // What was in flight is given back.
            RecoveryAsk::Close(_) | RecoveryAsk::Lost(_) | RecoveryAsk::Abandon(_) => |held| held.abandon(),
            RecoveryAsk::Restored(inventory) => {
                // Before anybody posts. It may be said again: some pairs are put off.
                self.controller.learn(inventory);
                |held| {
                    held.reopen();
                    Vec::new()
                }
            }
            _ => return self.recovered(ask, now),
        };
        if self.to_do.is_empty() {
            self.to_do =
                self.queues.iter().enumerate().flat_map(|(n, queue)| queue.queue_pairs().map(move |pair| (n, pair.id()))).collect();
        }
        let (queues, abandoned) = (&self.queues, &mut self.abandoned);
        self.to_do.retain(|&(n, id)| {
            let pair = queues.get(n).and_then(|queue| queue.queue_pairs().find(|pair| pair.id() == id));
            let Some(mut held) = pair.and_then(|pair| pair.try_exclusive()) else { return true };
            let taken_back = verb(&mut held);
            if !taken_back.is_empty() {
                abandoned.push((n, taken_back));
            }
            drop(held);
            if pair.is_some_and(|pair| pair.look_again()) {
                queues[n].notice_all();
            }
            false
        });
        match self.to_do.is_empty() {
            true => self.recovered(ask, now),
            false => self.put_off = Some(ask),
        }
    }

    /// The pairs are as recovery wants them: whatever else there is to do.
    fn recovered(&mut self, ask: RecoveryAsk, now: Nanos) {
        match ask {
            RecoveryAsk::Close(cause) => {
                let mut health = self.asks.health();
                health.resets += 1;
                health.last_reset = Some(cause.clone());
                drop(health);
                self.asks.reporter.push(EventKind::Reset(cause.clone()));
                self.admin.pair.exclusive().close();
                self.path_resets(&cause);
            }
            RecoveryAsk::Lost(dead) => self.path_lost(&dead),
            RecoveryAsk::Abandon(buffers) => self.abandon(buffers),
            RecoveryAsk::Admin(command) => self.post(command, now),
            RecoveryAsk::Restored(inventory) => self.restore(*inventory, now),
            RecoveryAsk::Abort { .. } | RecoveryAsk::Rings { .. } | RecoveryAsk::Wait { .. } | RecoveryAsk::Dead(_) => {}
        }
    }

    fn abort(&mut self, ask: RecoveryAsk, now: Nanos) {
        let RecoveryAsk::Abort { queue, command, sqe } = &ask else { return };
        let (queue, purpose) = (*queue, Purpose::Abort { queue: *queue, cid: command.cid });
        let Some(hardware) = self.queue(queue).cloned() else { return };
        let Some(mut held) = hardware.queue_pairs().find(|pair| pair.id() == queue).and_then(|pair| pair.try_exclusive()) else {
            self.put_off = Some(ask);
            return;
        };
        let begun = held.begin_abort(command);
        if begun && self.admin.post(&self.controller, AdminCommand { sqe: *sqe, page: false }, purpose, now) {
            self.asks.health().aborts += 1;
            self.asks.reporter.push(EventKind::TimedOut { queue: queue.0, requests: 1, after: self.options.timeout });
        } else {
            held.end_abort(command.cid);
            if let Life::Live(recovery) = &mut self.life {
                recovery.abort_ended();
            }
        }
        drop(held);
        self.look_again(&hardware);
    }

    /// An Abort has completed, whatever it says.
    pub(super) fn abort_ended(&mut self, queue: QueueId, cid: Cid) {
        self.ended_aborts.push((queue, cid));
        if let Life::Live(recovery) = &mut self.life {
            recovery.abort_ended();
        }
    }

    /// Gives back the CIDs of commands whose Aborts have completed. When to come again.
    pub(super) fn end_aborts(&mut self, now: Nanos) -> Nanos {
        for (queue, cid) in std::mem::take(&mut self.ended_aborts) {
            let Some(hardware) = self.queue(queue).cloned() else { continue };
            match hardware.queue_pairs().find(|pair| pair.id() == queue).and_then(|pair| pair.try_exclusive()) {
                Some(mut held) => {
                    held.end_abort(cid);
                    drop(held);
                    self.look_again(&hardware);
                }
                None => self.ended_aborts.push((queue, cid)),
            }
        }
        if self.ended_aborts.is_empty() { Nanos::MAX } else { now + AGAIN }
    }

    fn abandon(&mut self, buffers: Buffers) {
        self.ended_aborts.clear();
        self.controller.forget_doorbells();
        self.admin.pair.exclusive().abandon();
        self.events.forget();
        self.forget_raw_command();
        self.returning = false;
        self.moderation.forget(&self.queues);
        self.asks.health().held_back = None;
        if buffers == Buffers::Returned {
            self.admin.take_page_back();
            self.admin.pair.exclusive().reopen();
            self.path_stopped();
        } else {
            self.return_abandoned(LOST);
            self.leak_rings();
        }
    }

    /// Everything that the reset took back goes to its owner, who posts it again or fails it.
    pub(super) fn return_abandoned(&mut self, status: Status) {
        for (n, commands) in self.abandoned.drain(..) {
            let Some(queue) = self.queues.get(n) else { continue };
            for command in &commands {
                let &Command { cid, token, posted_at } = command;
                queue.give(&Completed { token, cid, status, result: 0, posted_at });
            }
            queue.notice_all();
        }
    }

    fn restore(&mut self, inventory: Inventory, now: Nanos) {
        self.events = Events::new(&inventory);
        let before = std::mem::replace(&mut self.inventory, inventory);
        self.asks.reporter.push(EventKind::Restored);
        let reconnected = std::mem::take(&mut self.reconnected);
        // Where several servers have been there meanwhile, what counts is what the first one had.
        let known = self.joined.as_ref().map_or(before.namespaces, |joined| joined.namespaces.clone());
        for was in &known {
            let same = |now: &&driver::Namespace| now.nsid == was.nsid && now.is_still(was);
            let blocks = self.inventory.namespaces.iter().find(same).map_or(0, |now| now.blocks);
            if let Some(path_handle) = self.path_handle.as_ref().filter(|_| reconnected) {
                path_handle.returns_with(was.nsid, blocks);
            }
            self.shows(was.nsid, blocks);
        }
        let asked = matches!(self.asks.health().last_reset, Some(ResetCause::Asked));
        self.return_abandoned(if asked { REQUEUED_AS_ASKED } else { REQUEUED });
        self.path_up(now);
        // Requests may wait that could not be posted.
        self.queues.iter().for_each(|queue| queue.notice_all());
    }

    /// The controller is lost: whatever waits or is yet to come fails.
    pub(super) fn give_up(&mut self, why: Dead) {
        let mut health = self.asks.health();
        let known = health.dead.is_some();
        if !known {
            health.dead = Some(why.clone().into());
        }
        drop(health);
        if !known {
            self.asks.reporter.push(EventKind::GivenUp(why.into()));
            self.tell(PathLink::Lost);
            // After a stop the buffers are the host's again.
            self.return_abandoned(STOPPED);
            self.users().for_each(|user| user.fail_all());
        }
        if self.is_unused() {
            self.life = Life::Ended;
        }
    }

    /// At the end of a controller task alone, which cannot come again: it waits for threads that have a pair's locks. None of them runs the
    /// application's code meanwhile.
    pub(super) fn take_everything_back(&mut self) {
        for (n, queue) in self.queues.iter().enumerate() {
            for pair in queue.queue_pairs() {
                let mut held = loop {
                    match pair.try_exclusive() {
                        Some(held) => break held,
                        None => std::thread::yield_now(),
                    }
                };
                self.abandoned.push((n, held.abandon()));
            }
        }
    }

    /// The controller may still write to its rings: nobody else may ever have that memory.
    pub(super) fn leak_rings(&mut self) {
        std::mem::forget(std::mem::take(&mut self.rings));
        self.controller.leak_doorbells();
        self.admin.leak_rings();
    }

    /// A pair's locks were held without posting or reaping: a thread may have found them busy, and gone to sleep.
    fn look_again(&mut self, queue: &HwQueue) {
        queue.tags_returned();
        // Each of them, whatever the others say.
        if queue.queue_pairs().map(|pair| pair.look_again()).fold(false, |any, more| any | more) {
            queue.notice_all();
        }
    }
}
