//! A controller's bad days: aborts, resets, what becomes of the commands that a reset took back, and the end.

use std::sync::Arc;

use driver::{AdminCommand, Buffers, Events, Inventory, Purpose, RecoveryAsk};
use nvme::{Cid, QueueId};
use units::Nanos;

use super::{AGAIN, Keeper, Life};
use crate::link::{Held, Lane};
use crate::request::{How, Outcome, Token};
use crate::shared::hw_queue::HwQueue;

/// How long a controller has for commands that were announced at their time-out or after it.
const REMINDED: Nanos = Nanos::from_millis(100);

/// Overdue commands are seen within this time, where they were announced when their batch was submitted and this thread has its CPU.
const PUNCTUAL: Nanos = Nanos::from_millis(20);

impl Keeper {
    /// What is late through no fault of the controller's: commands whose thread computes for longer than their time-out, and has
    /// not announced them, or not taken what became of them; or was never told. They are announced, or taken for their owner,
    /// before anything worse. Until when the controller has to be given time for it.
    pub(super) fn remind(&mut self, now: Nanos) -> Nanos {
        let (mut expired, mut announced, mut long_ago) = (Vec::new(), 0, false);
        for queue in &self.queues {
            expired.clear();
            queue.lanes().for_each(|lane| lane.expired(now, self.options.timeout, &mut expired));
            if expired.is_empty() {
                continue;
            }
            // Seen so late: the batch's clock read was old when it was posted, or this thread was away.
            long_ago |= expired.iter().any(|late| now - late.command.posted_at > self.options.timeout + PUNCTUAL);
            announced += queue.lanes().map(Lane::try_commit).sum::<u32>();
            if queue.hint() {
                queue.take_for_owners(&mut self.taken);
            }
        }
        // Now and then: a thread that goes on posting must not keep a controller from being reset.
        if (announced > 0 || long_ago) && now >= self.reminded_until + self.options.timeout {
            self.reminded_until = now + REMINDED;
        }
        self.reminded_until
    }

    /// Carries out what recovery asks, or puts it off if some thread posts or reaps at this moment.
    pub(super) fn recover(&mut self, ask: RecoveryAsk, now: Nanos) {
        let queues = self.queues.clone();
        // None of what follows may find a thread in the middle of a batch.
        let Some(mut held) = hold(&queues) else {
            self.put_off = Some(ask);
            return;
        };
        match ask {
            RecoveryAsk::Abort { queue, command, sqe } => {
                let Some((n, lane)) = held.iter_mut().find(|(_, lane)| lane.id() == queue) else { return };
                let purpose = Purpose::Abort { queue, cid: command.cid };
                let begun = lane.begin_abort(&command);
                let posted = begun && self.admin.post(&self.link, AdminCommand { sqe, page: false }, purpose, now);
                if posted {
                    self.asks.health().aborts += 1;
                } else {
                    lane.end_abort(command.cid);
                    if let Life::Live(recovery) = &mut self.life {
                        recovery.abort_ended();
                    }
                }
                let n = *n;
                drop(held);
                look_again(&queues[n], now);
            }
            RecoveryAsk::Close(cause) => {
                tracing::warn!(%cause, "resetting the controller");
                let mut health = self.asks.health();
                health.resets += 1;
                health.last_reset = Some(cause.to_string());
                drop(health);
                self.admin.pair.close();
                held.iter_mut().for_each(|(_, lane)| lane.close());
                self.path_resets(&cause, held);
            }
            RecoveryAsk::Lost(dead) => self.path_lost(&dead, held),
            RecoveryAsk::Abandon(buffers) => self.abandon(buffers, held),
            RecoveryAsk::Admin(command) => self.post(command, now),
            RecoveryAsk::Restored(inventory) => {
                held.iter_mut().for_each(|(_, lane)| lane.reopen());
                drop(held);
                self.restore(*inventory, now);
            }
            RecoveryAsk::Rings { .. } | RecoveryAsk::Wait { .. } | RecoveryAsk::Dead(_) => {}
        }
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
            match hardware.lanes().find(|lane| lane.id() == queue).and_then(Lane::try_exclusive) {
                Some(mut held) => {
                    held.end_abort(cid);
                    drop(held);
                    look_again(&hardware, now);
                }
                None => self.ended_aborts.push((queue, cid)),
            }
        }
        if self.ended_aborts.is_empty() { Nanos::MAX } else { now + AGAIN }
    }

    /// Takes all commands back. Their CIDs, aborted ones too, are free.
    pub(super) fn take_back(&mut self, held: &mut [(usize, Held<'_>)]) {
        self.ended_aborts.clear();
        for (n, lane) in held {
            self.abandoned.push((*n, lane.abandon()));
        }
    }

    fn abandon(&mut self, buffers: Buffers, mut held: Vec<(usize, Held<'_>)>) {
        self.admin.pair.abandon();
        self.events.forget();
        self.returning = false;
        self.moderation.forget(&self.queues);
        self.asks.health().held_back = None;
        self.take_back(&mut held);
        drop(held);
        if buffers == Buffers::Returned {
            self.admin.take_page_back();
            self.admin.pair.reopen();
            self.path_stopped();
        } else {
            self.return_abandoned(How::Lost);
            self.leak_rings();
        }
    }

    /// Everything that the reset took back goes to its owner, who posts it again or fails it.
    pub(super) fn return_abandoned(&mut self, how: How) {
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
        let before = std::mem::replace(&mut self.inventory, inventory);
        tracing::info!("the controller is up again");
        for was in &before.namespaces {
            let same = |now: &&driver::Namespace| now.nsid == was.nsid && now.is_still(was);
            let blocks = self.inventory.namespaces.iter().find(same).map_or(0, |now| now.blocks);
            self.shows(was.nsid, blocks);
        }
        self.return_abandoned(How::Requeue);
        for queue in &self.queues {
            queue.serve_line(now);
        }
        self.path_up(now);
    }

    /// The controller is lost: whatever waits or is yet to come fails.
    pub(super) fn give_up(&mut self, why: &str) {
        let mut health = self.asks.health();
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
        if self.asks.is_closing() && self.orphans.is_empty() {
            self.life = Life::Ended;
        }
    }

    /// The controller may still write to its rings: nobody else may ever have that memory.
    pub(super) fn leak_rings(&mut self) {
        std::mem::forget(std::mem::take(&mut self.rings));
        self.admin.leak_rings();
    }
}

/// Every lane of the queues, each with its queue's number; `None`: some thread posts or reaps at this moment.
fn hold(queues: &[Arc<HwQueue>]) -> Option<Vec<(usize, Held<'_>)>> {
    let lanes = queues.iter().enumerate().flat_map(|(n, queue)| queue.lanes().map(move |lane| (n, lane)));
    lanes.map(|(n, lane)| Some((n, lane.try_exclusive()?))).collect()
}

/// A lane's locks were held without posting or reaping: a thread may have found them busy, and gone to sleep.
fn look_again(queue: &HwQueue, now: Nanos) {
    queue.serve_line(now);
    // Each of them, whatever the others say.
    if queue.lanes().map(Lane::look_again).fold(false, |any, more| any | more) {
        queue.softs.iter().for_each(|soft| soft.tell());
    }
}
