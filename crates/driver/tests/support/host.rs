//! A minimal executor of this crate's state machines, in virtual time.

use std::collections::{BTreeMap, HashMap};

use nvme::{QueueId, Sqe, Status, Vector};
use units::Nanos;

use super::Pair;
use super::controller::{Controller, MemRegisters};
use super::wire::{Plan, Wire};
use crate::*;

pub const SECOND: Nanos = Nanos::from_secs(1);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done(Status),
    Lost { leaked: bool },
}

#[derive(Debug)]
pub struct Host {
    pub controller: Controller,
    /// Access to the controller's properties.
    pub wire: Wire,
    pub now: Nanos,
    /// After each wait neither host nor controller runs for this time.
    pub stands_still: Nanos,
    pub admin: Pair,
    pub io: BTreeMap<QueueId, Pair>,
    pub recovery: Option<Recovery>,
    /// How often each request was posted again.
    pub waiting: HashMap<u64, u8>,
    pub ended: HashMap<u64, Vec<End>>,
    pub causes: Vec<ResetCause>,
    pub aborts: u32,
    /// How often the controller was lost.
    pub losses: u32,
    pub dead: Option<Dead>,
    pub policy: RetryPolicy,
    taken_back: Vec<(u64, Buffers)>,
    /// The last violation on the admin queue.
    violation: Option<ProtocolViolation>,
    page: u64,
    pub config: RecoveryConfig,
}

pub fn admin_sizes() -> QueueSizes {
    QueueSizes { sq_entries: 16, cq_entries: 16, tags: 15 }
}

pub fn recovery_config() -> RecoveryConfig {
    RecoveryConfig {
        command_timeout: SECOND,
        grace: Nanos::from_millis(500),
        attempts: 3,
        health_interval: SECOND,
        lost_timeout: Nanos::ZERO,
    }
}

impl Host {
    pub fn new(controller: Controller) -> (Host, BringupConfig) {
        let (sq_at, cq_at, sq, cq) = controller.memory.rings(admin_sizes());
        let admin = QueuePair::new(QueueId::ADMIN, admin_sizes(), sq, cq).unwrap();
        let config = BringupConfig {
            admin_sq: sq_at,
            admin_cq: cq_at,
            admin_sizes: admin_sizes(),
            queues: WantedQueues::New { depth: 8, vectors: vec![Some(Vector(1)), None] },
            admin_timeout: SECOND,
            keep_alive: Nanos::ZERO,
            quiesce_time: Nanos::ZERO,
            doorbells: None,
        };
        let page = controller.memory.page();
        let wire = Wire::new(controller.registers.clone(), Plan::default());
        let host = Host {
            controller,
            wire,
            now: Nanos::from_secs(100),
            stands_still: Nanos::ZERO,
            admin,
            io: BTreeMap::new(),
            recovery: None,
            waiting: HashMap::new(),
            ended: HashMap::new(),
            causes: Vec::new(),
            aborts: 0,
            losses: 0,
            dead: None,
            policy: RetryPolicy { limit: 2 },
            taken_back: Vec::new(),
            violation: None,
            page,
            config: recovery_config(),
        };
        (host, config)
    }

    pub fn registers(&self) -> MemRegisters {
        self.controller.registers.clone()
    }

    fn post_admin(&self, command: AdminCommand) {
        self.wire.assert_settled();
        let mut sqe = command.sqe;
        sqe.prp1 = if command.needs_page { self.page } else { sqe.prp1 };
        let mut sq = self.admin.lock_sq();
        sq.post(sqe, Purpose::Sequence.to_token(), self.now).expect("an admin tag");
        sq.commit(&self.controller.doorbells);
    }

    /// Advances the time until `until`, or until the controller has completed an admin command or
    /// an access.
    fn sleep(&mut self, until: Nanos) -> (Vec<Completed>, Vec<(Ticket, Answer)>) {
        let mut out = Vec::with_capacity(32);
        let mut tick = Nanos::from_micros(50);
        loop {
            self.controller.step(self.now);
            let answers = self.wire.come(self.now);
            let reaped = self.admin.reap(&self.controller.doorbells, 32, &mut out);
            self.violation = reaped.violation.map(|violation| *violation);
            assert!(
                self.violation.is_none() || !self.controller.script.astray.is_empty(),
                "the scripted admin queue is correct"
            );
            if !out.is_empty()
                || self.violation.is_some()
                || !answers.is_empty()
                || self.now >= until
            {
                self.now += self.stands_still;
                return (out, answers);
            }
            self.now = (self.now + tick).min(until).min(self.wire.next());
            tick = (tick + tick).min(Nanos::from_millis(100));
        }
    }

    fn reply<'a>(completed: &Completed, page: &'a [u8]) -> AdminReply<'a> {
        AdminReply { status: completed.status, result: completed.result, page }
    }

    pub fn bring_up(&mut self, config: BringupConfig) -> Result<Inventory, BringupError> {
        let mut bringup = Bringup::new(config.clone());
        let wire = self.wire.clone();
        for _ in 0..20_000 {
            match bringup.step(self.now, &wire) {
                BringupAction::Wait { until } => {
                    let (completed, answers) = self.sleep(until);
                    answers
                        .into_iter()
                        .for_each(|(ticket, answer)| bringup.answered(ticket, answer));
                    for completed in completed {
                        bringup.completed(&Host::reply(
                            &completed,
                            &self.controller.memory.read(self.page),
                        ));
                    }
                    if let Some(violation) = self.violation.take() {
                        bringup.violated(violation);
                    }
                }
                BringupAction::Admin(command) => self.post_admin(command),
                BringupAction::ReopenAdmin => {
                    assert!(
                        !self.controller.runs(),
                        "the admin queue is reopened although the controller runs"
                    );
                    self.admin.exclusive().abandon();
                    self.admin.exclusive().reopen();
                }
                BringupAction::Rings { id, sizes } => {
                    let (sq_at, cq_at, sq, cq) = self.controller.memory.rings(sizes);
                    self.io.insert(id, QueuePair::new(id, sizes, sq, cq).unwrap());
                    bringup.rings(sq_at, cq_at);
                }
                BringupAction::Ready(inventory) => {
                    let again = BringupConfig {
                        queues: WantedQueues::Existing(inventory.queues.clone()),
                        ..config
                    };
                    self.recovery = Some(Recovery::new(self.config, again, &inventory));
                    return Ok(*inventory);
                }
                BringupAction::Failed(error) => return Err(error),
            }
        }
        panic!("bring-up does not end: {:?}", bringup.phase());
    }

    pub fn shut_down(&mut self, inventory: &Inventory) -> Result<(), ShutdownError> {
        let mut shutdown = Shutdown::new(inventory, SECOND);
        let wire = self.wire.clone();
        for _ in 0..10_000 {
            match shutdown.step(self.now, &wire) {
                ShutdownAction::Wait { until } => {
                    let (completed, answers) = self.sleep(until);
                    if self.violation.take().is_some() {
                        shutdown.violated();
                    }
                    answers
                        .into_iter()
                        .for_each(|(ticket, answer)| shutdown.answered(ticket, answer));
                    completed
                        .iter()
                        .for_each(|completed| shutdown.completed(&Host::reply(completed, &[])));
                }
                ShutdownAction::Admin(command) => self.post_admin(command),
                ShutdownAction::Stopped => return Ok(()),
                ShutdownAction::Failed(error) => return Err(error),
            }
        }
        panic!("shutdown does not end");
    }

    /// Posts a request, or retries it. False: no tag.
    pub fn submit(&mut self, token: u64) -> bool {
        let queue = QueueId(1 + token as u16 % self.io.len() as u16);
        let mut sq = self.io[&queue].lock_sq();
        let posted = sq
            .post(Sqe { opcode: nvme::opcode::io::READ, ..Sqe::default() }, token, self.now)
            .is_ok();
        sq.commit(&self.controller.doorbells);
        posted
    }

    pub fn reap(&mut self) {
        let mut out = Vec::with_capacity(64);
        for pair in self.io.values() {
            if let Some(violation) = pair.reap(&self.controller.doorbells, 64, &mut out).violation
                && let Some(recovery) = &mut self.recovery
            {
                recovery.violated(*violation);
            }
        }
        for completed in out {
            let retries = self.waiting.get(&completed.token).copied().unwrap_or(0);
            let again = !completed.status.is_success()
                && self.policy.after_status(completed.status, retries, true)
                    == RetryDecision::Retry;
            if !(again && self.try_again(completed.token, retries)) {
                self.end(completed.token, End::Done(completed.status));
            }
        }
    }

    fn try_again(&mut self, token: u64, retries: u8) -> bool {
        self.waiting.insert(token, retries + 1);
        self.submit(token)
    }

    pub fn end(&mut self, token: u64, end: End) {
        self.waiting.remove(&token);
        self.ended.entry(token).or_default().push(end);
    }

    /// Steps recovery once. Time advances only if nothing else is to be done, until `limit` at
    /// most.
    pub fn housekeep(&mut self, properties: &impl Properties, limit: Nanos) {
        self.controller.step(self.now);
        self.reap();
        let mut watch = TimeoutScan::new();
        watch.scan(&self.admin, self.now, &self.config);
        self.io.values().for_each(|pair| watch.scan(pair, self.now, &self.config));
        let Some(recovery) = &mut self.recovery else { return };
        match recovery.step(self.now, properties, &watch) {
            RecoveryAction::Wait { until } => {
                let (completed, answers) = self.sleep(until.min(limit));
                if let Some(recovery) = &mut self.recovery {
                    answers
                        .into_iter()
                        .for_each(|(ticket, answer)| recovery.answered(ticket, answer));
                }
                completed.iter().for_each(|completed| self.answered(completed));
                if let (Some(recovery), Some(violation)) =
                    (&mut self.recovery, self.violation.take())
                {
                    recovery.violated(violation);
                }
            }
            RecoveryAction::Abort { queue, command, sqe } => {
                self.aborts += 1;
                let token = Purpose::Abort { queue, cid: command.cid }.to_token();
                let posted = self.io[&queue].exclusive().begin_abort(&command) && {
                    let mut sq = self.admin.lock_sq();
                    let posted = sq.post(sqe, token, self.now).is_ok();
                    sq.commit(&self.controller.doorbells);
                    posted
                };
                if !posted {
                    self.io[&queue].exclusive().end_abort(command.cid);
                    recovery.abort_ended();
                }
            }
            RecoveryAction::Close(cause) => {
                self.causes.push(cause);
                self.io.values().chain([&self.admin]).for_each(|pair| pair.exclusive().close());
            }
            RecoveryAction::Lost(_) => self.losses += 1,
            RecoveryAction::Abandon(buffers) => {
                for pair in self.io.values() {
                    self.taken_back.extend(
                        pair.exclusive().abandon().iter().map(|command| (command.token, buffers)),
                    );
                }
                self.admin.exclusive().abandon();
                self.admin.exclusive().reopen();
                if buffers == Buffers::Returned {
                    assert!(
                        !self.controller.runs(),
                        "buffers returned although the controller runs"
                    );
                }
            }
            RecoveryAction::Admin(command) => self.post_admin(command),
            RecoveryAction::Rings { .. } => unreachable!("the queues are known"),
            RecoveryAction::Restored(_) => {
                self.io.values().for_each(|pair| pair.exclusive().reopen());
                for (token, buffers) in std::mem::take(&mut self.taken_back) {
                    let retries = self.waiting.get(&token).copied().unwrap_or(0);
                    let again =
                        self.policy.after_reset(buffers, retries, true) == RetryDecision::Retry;
                    if !(again && self.try_again(token, retries)) {
                        self.end(token, End::Lost { leaked: false });
                    }
                }
            }
            RecoveryAction::Dead(dead) => {
                self.dead = Some(dead);
                for (token, buffers) in std::mem::take(&mut self.taken_back) {
                    self.end(token, End::Lost { leaked: buffers == Buffers::Leaked });
                }
            }
        }
    }

    fn answered(&mut self, completed: &Completed) {
        let Some(recovery) = &mut self.recovery else { return };
        match Purpose::from_token(completed.token) {
            Purpose::Abort { queue, cid } => {
                self.io[&queue].exclusive().end_abort(cid);
                recovery.abort_ended();
            }
            Purpose::Sequence => {
                recovery.completed(&Host::reply(completed, &self.controller.memory.read(self.page)))
            }
            _ => {}
        }
    }

    /// Runs until this time, or until the controller is dead.
    pub fn run_until(&mut self, until: Nanos) {
        let wire = self.wire.clone();
        self.run_until_with(until, &wire);
    }

    /// The same with other properties.
    pub fn run_until_with(&mut self, until: Nanos, properties: &impl Properties) {
        for _ in 0..200_000 {
            if self.now >= until || self.dead.is_some() {
                return;
            }
            self.housekeep(properties, until);
        }
        panic!("recovery does not let time pass");
    }
}
