//! The keeper: what the housekeeping thread does for a controller, carried out in virtual time. It runs elsewhere and
//! costs this CPU nothing; the admin queue is its own.

use driver::{AdminCommand, AdminReply, Buffers, Completed, ProtocolViolation, Purpose, Recovery, RecoveryAsk, RecoveryConfig, Watch};
use units::Nanos;

use super::*;
use crate::lane::Pair;
use crate::port::Memory;

/// The admin queue and what watches over the controller.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) admin: Pair,
    /// Bus address of the page that admin commands return data in.
    pub(super) page: u64,
    pub(super) memory: Memory,
    pub(super) recovery: Option<(Recovery, RecoveryConfig)>,
    watch: Watch,
    replies: Vec<Completed>,
    taken_back: Vec<(u64, Buffers)>,
    /// The thread was told of entries that nobody had told it of, and is given time to take them.
    patience: bool,
    pub(super) resets: u32,
    pub(super) aborts: u32,
    pub(super) missed: u64,
}

/// How long the thread has to take entries that a time-out found.
const PATIENCE: Nanos = Nanos::from_millis(1);

/// Room for the admin queue's entries.
const REPLIES: usize = 64;

impl Keeper {
    pub(super) fn new(admin: Pair, page: u64, memory: Memory) -> Keeper {
        let replies = Vec::with_capacity(REPLIES);
        let (watch, taken_back) = (Watch::new(), Vec::new());
        Keeper { admin, page, memory, recovery: None, watch, replies, taken_back, patience: false, resets: 0, aborts: 0, missed: 0 }
    }

    /// Whether there is something for it on the admin queue.
    pub(super) fn is_called(&self) -> bool {
        self.admin.pending()
    }

    pub(super) fn violated(&mut self, violation: ProtocolViolation) -> Result<(), SimError> {
        match &mut self.recovery {
            Some((recovery, _)) => recovery.violated(violation),
            None => return Err(violation.into()),
        }
        Ok(())
    }

    /// Posts an admin command. False: no tag, or the queue is closed.
    pub(super) fn post(&self, command: AdminCommand, purpose: Purpose, now: Nanos, bells: &HostBar) -> bool {
        let mut sqe = command.sqe;
        if command.page {
            sqe.prp1 = self.page;
        }
        let mut sq = self.admin.lock_sq();
        let posted = sq.post(sqe, purpose.to_token(), now).is_ok();
        sq.commit(bells);
        posted
    }

    /// Takes the entries of the admin queue and hands each to `f`, with the page.
    pub(super) fn replies(&mut self, bells: &HostBar, mut f: impl FnMut(Purpose, &AdminReply)) -> Option<ProtocolViolation> {
        let violation = self.admin.reap(bells, REPLIES as u32, &mut self.replies).violation;
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

impl<P: Bus> World<P> {
    /// The keeper's turn: replies first, then whatever recovery asks for, until it asks to wait.
    pub(super) fn keep(&mut self) -> Result<(), SimError> {
        self.take_replies();
        if self.keeper.recovery.is_none() {
            return Ok(());
        }
        for _ in 0..STEPS_AT_ONCE {
            if self.remind() {
                return Ok(());
            }
            if let Some(until) = self.recover()? {
                let at = until.max(self.now + Nanos(1));
                self.keeper_ticket = Some(self.events.schedule(at, Event::Keeper));
                self.forward_writes();
                return Ok(());
            }
        }
        Err(SimError::Livelock { at: self.now, seed: self.scenario.seed })
    }

    fn take_replies(&mut self) {
        let lanes = &self.thread.lanes;
        let Some((mut recovery, config)) = self.keeper.recovery.take() else {
            self.keeper.replies(&self.bells, |_, _| {});
            return;
        };
        let violation = self.keeper.replies(&self.bells, |purpose, reply| match purpose {
            Purpose::Sequence => recovery.completed(reply),
            Purpose::Abort { queue, cid } => {
                lanes.iter().filter(|lane| lane.pair.id() == queue).for_each(|lane| {
                    lane.pair.end_abort(cid);
                });
                recovery.abort_ended();
            }
            Purpose::AsyncEvent | Purpose::KeepAlive | Purpose::Own(_) => {}
        });
        if let Some(violation) = violation {
            recovery.violated(violation);
        }
        self.keeper.recovery = Some((recovery, config));
    }

    /// If entries wait past the time-out although nobody was told of them, tells the thread, once, before anything worse.
    fn remind(&mut self) -> bool {
        let Some((recovery, config)) = &self.keeper.recovery else { return false };
        let late = |lane: &&Lane| {
            let mut expired = Vec::new();
            if lane.pair.pending() {
                lane.pair.expired(self.now, config.command_timeout, &mut expired);
            }
            !expired.is_empty()
        };
        let missed = if recovery.is_watching() { self.thread.lanes.iter().filter(late).count() as u64 } else { 0 };
        if missed == 0 || std::mem::replace(&mut self.keeper.patience, true) {
            self.keeper.patience = missed > 0;
            return false;
        }
        self.keeper.missed += missed;
        self.keeper_ticket = Some(self.events.schedule(self.now + PATIENCE, Event::Keeper));
        self.poke();
        true
    }

    /// One step of recovery. `Some`: nothing to do until then.
    fn recover(&mut self) -> Result<Option<Nanos>, SimError> {
        let (now, keeper) = (self.now, &mut self.keeper);
        let Some((recovery, config)) = &mut keeper.recovery else { return Ok(Some(Nanos::MAX)) };
        keeper.watch.clear();
        keeper.watch.look(&keeper.admin, now, config);
        for lane in &self.thread.lanes {
            keeper.watch.look(&lane.pair, now, config);
        }
        match recovery.step(now, &self.bells, &keeper.watch) {
            RecoveryAsk::Wait { until } => return Ok(Some(until)),
            RecoveryAsk::Abort { queue, command, sqe } => {
                let Some(lane) = self.thread.lanes.iter().find(|lane| lane.pair.id() == queue) else { return Ok(None) };
                let purpose = Purpose::Abort { queue, cid: command.cid };
                let begun = lane.pair.begin_abort(&command);
                if !(begun && keeper.post(AdminCommand { sqe, page: false }, purpose, now, &self.bells)) {
                    lane.pair.end_abort(command.cid);
                    if let Some((recovery, _)) = &mut keeper.recovery {
                        recovery.abort_ended();
                    }
                } else {
                    keeper.aborts += 1;
                }
            }
            RecoveryAsk::Close(_) => {
                keeper.resets += 1;
                self.thread.lanes.iter().map(|lane| &lane.pair).chain([&keeper.admin]).for_each(Pair::close);
            }
            RecoveryAsk::Abandon(buffers) => {
                for lane in &self.thread.lanes {
                    keeper.taken_back.extend(lane.pair.abandon().iter().map(|command| (command.token, buffers)));
                }
                keeper.admin.abandon();
                if buffers == Buffers::Returned {
                    keeper.admin.reopen();
                }
            }
            RecoveryAsk::Admin(command) => {
                // Without a tag the reply never comes, and bring-up fails by its own deadline.
                keeper.post(command, Purpose::Sequence, now, &self.bells);
            }
            RecoveryAsk::Rings { .. } | RecoveryAsk::Lost(_) => {}
            RecoveryAsk::Restored(_) => {
                self.thread.lanes.iter().for_each(|lane| lane.pair.reopen());
                self.return_commands()?;
            }
            RecoveryAsk::Dead(_) => {
                self.thread.give_up();
                self.return_commands()?;
                return Ok(Some(Nanos::MAX));
            }
        }
        self.forward_writes();
        Ok(None)
    }

    fn return_commands(&mut self) -> Result<(), SimError> {
        let taken_back = std::mem::take(&mut self.keeper.taken_back);
        for (token, buffers) in taken_back {
            self.thread.taken_back(token, buffers)?;
        }
        self.poke();
        Ok(())
    }
}
