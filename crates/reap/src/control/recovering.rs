//! A controller's bad days: aborts, resets, what becomes of the commands that a reset took back, and the end.

use std::sync::atomic::Ordering::Acquire;

use completion::WEIGHT;
use driver::{AdminCommand, Buffers, Events, Inventory, Purpose, RecoveryAsk};
use nvme::{Cid, QueueId};
use units::Nanos;

use super::{Keeper, Life, lock};
use crate::hw_queue::HwQueue;
use crate::request::{How, Outcome, Token};

/// How long a controller has for commands that were announced only at their time-out.
const REMINDED: Nanos = Nanos::from_millis(100);

impl Keeper {
    /// What is late through no fault of the controller's: commands whose thread computes for longer than their time-out, and has
    /// not announced them, or not taken what became of them; or was never told. They are announced, or taken for their owner,
    /// before anything worse. Until when the controller has to be given time for it.
    pub(super) fn remind(&mut self, now: Nanos) -> Nanos {
        let (mut expired, mut taken, mut announced) = (Vec::new(), Vec::new(), 0);
        for queue in &self.queues {
            expired.clear();
            queue.pair.expired(now, self.options.timeout, &mut expired);
            if expired.is_empty() {
                continue;
            }
            announced += queue.commit();
            if queue.pair.pending() {
                taken.reserve(WEIGHT as usize);
                queue.take_for_owners(&mut taken);
            }
        }
        // Now and then: whoever goes on posting must not keep a controller from being reset.
        if announced > 0 && now >= self.reminded_until + self.options.timeout {
            self.reminded_until = now + REMINDED;
        }
        self.reminded_until
    }

    pub(super) fn recover(&mut self, ask: RecoveryAsk, now: Nanos) {
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
                self.path_resets(&cause);
            }
            RecoveryAsk::Lost(dead) => self.path_lost(&dead),
            RecoveryAsk::Abandon(buffers) => self.abandon(buffers),
            RecoveryAsk::Admin(command) => self.post(command, now),
            RecoveryAsk::Restored(inventory) => self.restore(*inventory, now),
            RecoveryAsk::Rings { .. } | RecoveryAsk::Wait { .. } | RecoveryAsk::Dead(_) => {}
        }
    }

    /// An Abort has completed, whatever it says.
    pub(super) fn abort_ended(&mut self, queue: QueueId, cid: Cid, now: Nanos) {
        if let Some(queue) = self.queue(queue) {
            queue.pair.end_abort(cid);
            queue.serve_line(now);
            look_again(queue);
        }
        if let Life::Live(recovery) = &mut self.life {
            recovery.abort_ended();
        }
    }

    fn abandon(&mut self, buffers: Buffers) {
        self.admin.pair.abandon();
        self.events.forget();
        self.returning = false;
        self.moderation.forget(&self.queues);
        lock(&self.asks.health).held_back = None;
        for (n, queue) in self.queues.iter().enumerate() {
            self.abandoned.push((n, queue.pair.abandon()));
        }
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
    pub(super) fn give_up(&mut self, why: &str) {
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

    /// The controller may still write to its rings: nobody else may ever have that memory.
    pub(super) fn leak_rings(&mut self) {
        std::mem::forget(std::mem::take(&mut self.rings));
        self.admin.leak_rings();
    }
}

/// The CQ lock was held without reaping: a thread may have found it busy, and gone to sleep.
fn look_again(queue: &HwQueue) {
    if queue.pair.pending() {
        queue.softs.iter().for_each(|soft| soft.tell());
    }
}
