//! Time-outs, aborts and resets. `driver::Recovery` decides; this file carries it out on all queue
//! pairs.
//!
//! ```text
//!  late command ─► finish_late_work: ring the doorbell, reap    the thread may compute, a message may be lost
//!       │ still late
//!       ▼
//!     Abort ── still out 1 s after its completion ──► reset
//!              (also for CSTS.CFS, RDY = 0, all ones, a protocol violation)
//!
//!  reset:  Close     every pair: no doorbell is rung, completions are still reaped
//!          (stop)    CC.EN = 0, wait for CSTS.RDY = 0 (CAP.TO); else a function-level reset
//!          Abandon   every pair: take the commands back, each once; clear the rings
//!          (enable)  CC.EN = 1, create the queues again
//!          Restored  every pair: reopen; the commands go to the inboxes, and their queues post them again
//!
//!  buffers:  RDY = 0 seen → returned with their requests       else → leaked, and counted
//! ```
//!
//! Changes to a pair need both of its locks. They are only tried: if a thread holds one, the rest
//! of the pairs is done, and this pair at the next step, 50 µs later. So no doorbell of a closed
//! pair is rung late: it is rung under the submission lock, and the pair is closed under it.

use driver::multipath::Link as PathLink;
use driver::{
    AdminCommand, Buffers, Completed, Dead, EventRequests, Inventory, OutstandingCommand, Purpose,
    RecoveryAction, ResetCause,
};
use nvme::{Cid, QueueId, Status};
use units::Nanos;

use super::{ControllerPhase, ControllerTask, LOCK_RETRY};
use crate::request::{LOST, REQUEUED, REQUEUED_AS_ASKED, STOPPED};
use crate::shared::events::EventKind;
use crate::shared::hw_queue::HwQueue;
use crate::transport::HeldPair;

/// Time that a controller gets for commands whose doorbell was rung only at their time-out.
const LATE_GRACE: Nanos = Nanos::from_millis(100);

/// A late command is normally seen within this time. If not, its doorbell may have been rung long
/// after it was posted, or this thread had no CPU.
const LATE_TOLERANCE: Nanos = Nanos::from_millis(20);

impl ControllerTask {
    /// Rules out that late commands are the host's fault. A thread that computes may not have rung
    /// the doorbell, or not have reaped, and a message may be lost. So this function rings the
    /// doorbells, and reaps for the owners. Returns the time before which recovery must not act.
    pub(super) fn finish_late_work(&mut self, now: Nanos) -> Nanos {
        let (mut expired, mut announced, mut long_ago) = (Vec::new(), 0, false);
        for queue in &self.queues {
            expired.clear();
            queue
                .queue_pairs()
                .for_each(|pair| pair.expired(now, self.options.timeout, &mut expired));
            if expired.is_empty() {
                continue;
            }
            // Seen this late, `posted_at` may be an old clock read of the application's, or this
            // thread did not run.
            long_ago |= expired
                .iter()
                .any(|late| now - late.command.posted_at > self.options.timeout + LATE_TOLERANCE);
            announced += queue.try_commit();
            if queue.pending() {
                queue.reap_for_owners(&mut self.taken);
            }
        }
        // At most once per time-out: a thread that goes on posting late must not prevent a reset
        // for ever.
        if (announced > 0 || long_ago) && now >= self.late_grace_until + self.options.timeout {
            self.late_grace_until = now + LATE_GRACE;
        }
        self.late_grace_until
    }

    /// Carries out one request of the state machine. If a pair is locked by a thread, the request
    /// is kept in `deferred_ask`, and continued at the next step.
    pub(super) fn recover(&mut self, ask: RecoveryAction, now: Nanos) {
        let silent = matches!(&ask, RecoveryAction::Close(cause) if cause.is_unanswered());
        // What to do to each pair, with both of its locks held. Returns the commands that it takes
        // back.
        let verb: fn(&mut HeldPair<'_>) -> Vec<OutstandingCommand> = match &ask {
            RecoveryAction::Abort { .. } => return self.abort(ask, now),
            // Completions are still reaped: the controller may have carried the commands out.
            RecoveryAction::Close(_) if !(silent && self.early_return_status().is_some()) => {
                |held| {
                    held.close();
                    Vec::new()
                }
            }
            RecoveryAction::Lost(_) if self.early_return_status().is_none() => {
                return self.finish_ask(ask, now);
            }
            // A path of several that does not answer: its requests go to other paths now, not after
            // the reset.
            RecoveryAction::Close(_) | RecoveryAction::Lost(_) | RecoveryAction::Abandon(_) => {
                |held| held.abandon()
            }
            RecoveryAction::Restored(inventory) => {
                // Before the first pair is open to posting: `learn` sets how commands are built.
                // Repeated if some pair is deferred, which does no harm.
                self.controller.learn(inventory);
                |held| {
                    held.reopen();
                    Vec::new()
                }
            }
            _ => return self.finish_ask(ask, now),
        };
        if matches!(ask, RecoveryAction::Abandon(_)) {
            // Nothing may write to the rings while they are cleared.
            self.controller.tcp().into_iter().for_each(|tcp| tcp.disconnect_queues());
        }
        if self.pairs_left.is_empty() {
            self.pairs_left = self
                .queues
                .iter()
                .enumerate()
                .flat_map(|(n, queue)| queue.queue_pairs().map(move |pair| (n, pair.id())))
                .collect();
        }
        let (queues, abandoned) = (&self.queues, &mut self.abandoned);
        self.pairs_left.retain(|&(n, id)| {
            let pair =
                queues.get(n).and_then(|queue| queue.queue_pairs().find(|pair| pair.id() == id));
            // Locked by a thread that posts or reaps, for microseconds: again at the next step.
            let Some(mut held) = pair.and_then(|pair| pair.try_exclusive()) else { return true };
            let taken_back = verb(&mut held);
            if !taken_back.is_empty() {
                abandoned.push((n, taken_back));
            }
            drop(held);
            // A thread may have been notified of a CQE since, found the lock busy, and gone to
            // sleep.
            if pair.is_some_and(|pair| pair.recheck_pending()) {
                queues[n].notice_all();
            }
            false
        });
        match self.pairs_left.is_empty() {
            true => self.finish_ask(ask, now),
            false => self.deferred_ask = Some(ask),
        }
    }

    /// All pairs are done: the rest of the request.
    fn finish_ask(&mut self, ask: RecoveryAction, now: Nanos) {
        match ask {
            RecoveryAction::Close(cause) => {
                let mut health = self.shared.health();
                health.resets += 1;
                health.last_reset = Some(cause.clone());
                drop(health);
                self.shared.reporter.push(EventKind::Reset(cause.clone()));
                self.admin.pair.exclusive().close();
                self.give_back_cross_reset();
                self.path_resets(&cause);
            }
            RecoveryAction::Lost(dead) => self.path_lost(&dead),
            RecoveryAction::Abandon(buffers) => self.abandon(buffers),
            RecoveryAction::Admin(command) => self.post(command, now),
            RecoveryAction::Restored(inventory) => self.restore(*inventory, now),
            // Handled above, or never requested: bring-up after a reset uses the existing rings.
            RecoveryAction::Abort { .. }
            | RecoveryAction::Rings { .. }
            | RecoveryAction::Wait { .. }
            | RecoveryAction::Dead(_) => {}
        }
    }

    /// Posts the Abort of a command (Base §5.1.1).
    fn abort(&mut self, ask: RecoveryAction, now: Nanos) {
        let RecoveryAction::Abort { queue, command, sqe } = &ask else { return };
        let (queue, purpose) = (*queue, Purpose::Abort { queue: *queue, cid: command.cid });
        let Some(hardware) = self.queue(queue).cloned() else { return };
        let Some(mut held) = hardware
            .queue_pairs()
            .find(|pair| pair.id() == queue)
            .and_then(|pair| pair.try_exclusive())
        else {
            self.deferred_ask = Some(ask);
            return;
        };
        // Reserves the CID until both have completed. Otherwise the Abort could hit the next
        // command with it.
        let begun = held.begin_abort(command);
        if begun
            && self.admin.post(
                &self.controller,
                AdminCommand { sqe: *sqe, needs_page: false },
                purpose,
                now,
            )
        {
            self.shared.health().aborts += 1;
            self.shared.reporter.push(EventKind::TimedOut {
                queue: queue.0,
                requests: 1,
                after: self.options.timeout,
            });
        } else {
            // The command has just completed, or the admin queue is full: recovery decides again at
            // the next step.
            held.end_abort(command.cid);
            if let ControllerPhase::Live(recovery) = &mut self.phase {
                recovery.abort_ended();
            }
        }
        drop(held);
        self.repoll(&hardware);
    }

    /// An Abort has completed. Whether it says "aborted" does not matter: the command's own
    /// completion counts.
    pub(super) fn abort_ended(&mut self, queue: QueueId, cid: Cid) {
        self.ended_aborts.push((queue, cid));
        if let ControllerPhase::Live(recovery) = &mut self.phase {
            recovery.abort_ended();
        }
    }

    /// Frees the CIDs of commands whose Aborts have completed. Returns when to step again.
    pub(super) fn end_aborts(&mut self, now: Nanos) -> Nanos {
        for (queue, cid) in std::mem::take(&mut self.ended_aborts) {
            let Some(hardware) = self.queue(queue).cloned() else { continue };
            match hardware
                .queue_pairs()
                .find(|pair| pair.id() == queue)
                .and_then(|pair| pair.try_exclusive())
            {
                Some(mut held) => {
                    held.end_abort(cid);
                    drop(held);
                    self.repoll(&hardware);
                }
                // The lock is busy.
                None => self.ended_aborts.push((queue, cid)),
            }
        }
        if self.ended_aborts.is_empty() { Nanos::MAX } else { now + LOCK_RETRY }
    }

    /// All commands were taken back, after the controller has stopped or was given up.
    fn abandon(&mut self, buffers: Buffers) {
        // Their CIDs were freed with the pairs' commands.
        self.ended_aborts.clear();
        self.controller.forget_doorbells();
        self.admin.pair.exclusive().abandon();
        self.events.forget();
        self.forget_raw_command();
        self.returning = false;
        self.coalescing.forget();
        self.shared.health().coalescing = None;
        if buffers == Buffers::Returned {
            // CSTS.RDY = 0 was seen: the controller does not access memory any more. Requests wait
            // for the bring-up, unless there are other paths.
            self.admin.reclaim_page();
            self.admin.pair.exclusive().reopen();
            self.path_stopped();
        } else {
            // The controller may still access rings and buffers: neither may be used again.
            self.return_abandoned(LOST);
            self.leak_rings();
        }
    }

    /// Returns the commands that a reset has taken back to their queues' inboxes. The queues retry
    /// or fail them, as `status` says.
    pub(super) fn return_abandoned(&mut self, status: Status) {
        for (n, commands) in self.abandoned.drain(..) {
            let Some(queue) = self.queues.get(n) else { continue };
            for command in &commands {
                let &OutstandingCommand { cid, token, posted_at } = command;
                queue.deliver_one(&Completed { token, cid, status, result: 0, posted_at });
            }
            queue.notice_all();
        }
    }

    /// The controller is up again, and its pairs are open.
    fn restore(&mut self, inventory: Inventory, now: Nanos) {
        self.events = EventRequests::new(&inventory);
        let before = std::mem::replace(&mut self.inventory, inventory);
        self.shared.reporter.push(EventKind::Restored);
        let reconnected = std::mem::take(&mut self.reconnected);
        // Compare with the first inventory of a path, not with the last: several servers may have
        // answered since.
        let known =
            self.joined.as_ref().map_or(before.namespaces, |joined| joined.namespaces.clone());
        for was in &known {
            let same = |now: &&driver::Namespace| now.nsid == was.nsid && now.is_same_as(was);
            // 0: the namespace is gone or is another one. Its handles must not be used.
            let blocks = self.inventory.namespaces.iter().find(same).map_or(0, |now| now.blocks);
            if let Some(path_handle) = self.path_handle.as_ref().filter(|_| reconnected) {
                path_handle.set_reconnected_size(was.nsid, blocks);
            }
            self.set_size(was.nsid, blocks);
        }
        let asked = matches!(self.shared.health().last_reset, Some(ResetCause::Requested));
        self.return_abandoned(if asked { REQUEUED_AS_ASKED } else { REQUEUED });
        self.path_up(now);
        // Requests that could not be posted while the pairs were closed wait for this.
        self.queues.iter().for_each(|queue| queue.notice_all());
    }

    /// The controller is given up: requests that wait fail, now and later. Called again and again
    /// until the device is closed.
    pub(super) fn give_up(&mut self, why: Dead) {
        let mut health = self.shared.health();
        let known = health.dead.is_some();
        if !known {
            health.dead = Some(why.clone().into());
        }
        drop(health);
        if !known {
            self.shared.reporter.push(EventKind::PermanentFailure(why.into()));
            self.set_link(PathLink::Lost);
            // If the controller was not stopped, `abandon` has returned the commands as LOST
            // before.
            self.return_abandoned(STOPPED);
            self.users().for_each(|user| user.fail_all());
        }
        if self.is_unused() {
            self.phase = ControllerPhase::Ended;
        }
    }

    /// Takes back all commands, waiting for the pairs' locks. Only for the drop of a task, which is
    /// not stepped again. The wait is short: no thread runs the application's code with such a
    /// lock.
    pub(super) fn take_everything_back(&mut self) {
        self.controller.tcp().into_iter().for_each(|tcp| tcp.disconnect());
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

    /// Leaks the memory of all rings: the controller may still write to it.
    pub(super) fn leak_rings(&mut self) {
        std::mem::forget(std::mem::take(&mut self.rings));
        self.controller.leak_doorbells();
        self.admin.leak_rings();
    }

    /// Wakes the users of a pair if a CQE is visible. For the time after the pair's locks were held
    /// for something other than posting or reaping: a thread may have found them busy, and gone to
    /// sleep.
    fn repoll(&mut self, queue: &HwQueue) {
        queue.tags_returned();
        // `fold`, not `any`: each pair's check has a fence of its own.
        if queue
            .queue_pairs()
            .map(|pair| pair.recheck_pending())
            .fold(false, |any, more| any | more)
        {
            queue.notice_all();
        }
    }
}
