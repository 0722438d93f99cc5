//! Recovery: what happens when a command does not come back, or the controller breaks. A state machine like bring-up,
//! stepped for as long as the controller is in use.
//!
//! A command past its time-out is aborted, best effort. One that is still not back after a grace, a controller that is
//! fatal or breaks the protocol, and an admin queue that does not answer all lead to a reset: the queues are closed, the
//! controller is stopped, every command is taken back, and the controller is brought up again. Buffers return only once
//! CSTS.RDY = 0 has been seen; otherwise they are leaked. Every wait has a deadline.

use std::collections::HashMap;

use nvme::{Cid, CqSlots, QueueId, SqSlots, Sqe, Status, admin};
use units::Nanos;

use crate::multipath::{Verdict, verdict};
use crate::properties::{Accesses, PollTiming, Properties, StatusPoll};
use crate::stop::{StepTimer, StopSequence, StopStatus};
use crate::{
    AdminCommand, AdminReply, Answer, Bringup, BringupAsk, BringupConfig, BringupError, Command, Expired, Inventory, PropertyError,
    ProtocolViolation, Purpose, QueuePair, QueueSizes, Stage, Ticket,
};

/// How patient to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// An I/O command older than this is aborted.
    pub command_timeout: Nanos,
    /// One that is older by this much more leads to a reset. So does an admin command of this age, and so does a look at CSTS that is
    /// not answered for so long.
    pub grace: Nanos,
    /// How often bring-up is tried after a reset before the controller is given up.
    pub attempts: u32,
    /// The longest between two looks at CSTS.
    pub health_interval: Nanos,
    /// How long a controller that does not answer, gone or unwilling to stop, is waited for before it is given up. Zero: it is
    /// given up at once. Worth while where there are other paths meanwhile.
    pub lost_patience: Nanos,
}

/// Between two looks at the status of a controller that does not answer.
const LOST_POLL_INTERVAL: Nanos = Nanos::from_millis(10);

/// Why the controller is reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetCause {
    /// A command did not come back, aborted or not.
    #[error("command {} on queue {queue} did not complete for {waited}", command.cid)]
    Unanswered {
        /// Its queue.
        queue: QueueId,
        /// The command.
        command: Command,
        /// Its age.
        waited: Nanos,
    },
    /// CSTS.CFS.
    #[error("the controller reports a fatal error (CSTS.CFS, CSTS {csts:#010x})")]
    Fatal {
        /// CSTS.
        csts: u32,
    },
    /// The registers read as all ones.
    #[error("the controller is gone: its registers read as all ones")]
    Gone,
    /// CC.EN or CSTS.RDY became 0 although nobody asked for it.
    #[error("the controller stopped by itself (CSTS {csts:#010x})")]
    Stopped {
        /// CSTS.
        csts: u32,
    },
    /// A look at CSTS failed.
    #[error("the controller's status cannot be had: {0}")]
    Property(#[from] PropertyError),
    /// The controller broke the protocol.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// Somebody asked for it.
    #[error("a reset was asked for")]
    Asked,
}

impl ResetCause {
    /// Whether the controller has left something unanswered, so that it may not answer a reset either.
    pub fn is_silence(&self) -> bool {
        matches!(self, ResetCause::Unanswered { .. } | ResetCause::Property(PropertyError::NoAnswer { .. }))
    }
}

/// The controller is given up. Every command has been taken back; whatever waits is to fail with this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dead {
    /// It was removed.
    #[error("the controller is gone: its registers read as all ones")]
    Gone,
    /// It could not be stopped. The buffers of its commands are leaked, because it may still write to them.
    #[error(
        "the controller does not stop: CSTS.RDY is still 1 after {waited}, and no reset of its function helped (reset because: {cause})"
    )]
    NotStopped {
        /// For how long.
        waited: Nanos,
        /// Why it was to be stopped.
        cause: ResetCause,
    },
    /// Nobody can say whether it stops. The buffers of its commands are leaked.
    #[error("the controller cannot be stopped: {error} (reset because: {cause})")]
    Property {
        /// What it did not answer, or refused.
        error: PropertyError,
        /// Why it was to be stopped.
        cause: ResetCause,
    },
    /// It stopped, but did not come up again.
    #[error("the controller does not come up again after a reset (reset because: {cause}): {error}")]
    NotBroughtUp {
        /// Why it was reset.
        cause: ResetCause,
        /// What the last attempt said.
        error: BringupError,
    },
}

/// What becomes of the buffers of the commands that a reset takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// The controller has provably stopped: they are the host's again.
    Returned,
    /// It may still write to them: they have to be leaked, and counted.
    Leaked,
}

/// What recovery asks of its executor. Each is to be carried out before the next step.
#[derive(Clone, Debug, PartialEq)]
pub enum RecoveryAsk {
    /// Step again when something happened, and at `until` at the latest.
    Wait {
        /// When.
        until: Nanos,
    },
    /// [`crate::Exclusive::begin_abort`] this command; if that says true, post `sqe` on the admin queue as
    /// [`crate::Purpose::Abort`]. When that has completed call [`crate::Exclusive::end_abort`] and
    /// [`Recovery::abort_ended`]. If it says false, or no admin tag is free, only the latter two, at once.
    Abort {
        /// The queue of the command.
        queue: QueueId,
        /// The command.
        command: Command,
        /// The Abort.
        sqe: Sqe,
    },
    /// [`crate::Exclusive::close`] every queue pair, the admin one too. Requests wait, completions are still taken.
    Close(ResetCause),
    /// The controller does not answer, and is waited for. Commands inside may still be carried out: nothing is taken back and no
    /// buffer returned yet. `Abandon` follows when it has come back and stopped, or when backoff is at an end.
    Lost(Dead),
    /// [`crate::Exclusive::abandon`] every queue pair and keep the commands, of which none will complete, until `Restored`
    /// or `Dead`. If the buffers are returned, [`crate::Exclusive::reopen`] the admin pair for the bring-up that follows.
    Abandon(Buffers),
    /// As [`BringupAsk::Admin`].
    Admin(AdminCommand),
    /// As [`BringupAsk::Rings`]; only when bring-up was configured to make new queues.
    Rings {
        /// The queue.
        id: QueueId,
        /// Its sizes.
        sizes: QueueSizes,
    },
    /// The controller is up again: [`crate::Exclusive::reopen`] the I/O pairs, and post again what [`RetryPolicy`] says.
    Restored(Box<Inventory>),
    /// The controller is given up. Said from now on.
    Dead(Dead),
}

/// How often a request is posted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// At most this often, after resets and after statuses that invite it, taken together.
    pub limit: u8,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Post it again: it is not known to have been carried out, and doing so twice is as good as once.
    Again,
    /// It fails, and its buffer returns.
    Fail,
    /// It fails, and its buffer is leaked.
    FailLeaked,
}

impl RetryPolicy {
    /// After a reset took the request back. `idempotent`: carrying it out twice is as good as once, which holds for
    /// Read, Write and Flush as long as the caller has not been answered.
    pub fn after_reset(&self, buffers: Buffers, retries: u8, idempotent: bool) -> Fate {
        match buffers {
            Buffers::Leaked => Fate::FailLeaked,
            Buffers::Returned if idempotent && retries < self.limit => Fate::Again,
            Buffers::Returned => Fate::Fail,
        }
    }

    /// After the controller answered with an error. Again only for statuses that speak of circumstances rather than of
    /// the command or the medium, and without Do Not Retry (Base 4.2.3).
    pub fn after_status(&self, status: Status, retries: u8, idempotent: bool) -> Fate {
        let passes = verdict(status) == Verdict::Again;
        if passes && idempotent && retries < self.limit { Fate::Again } else { Fate::Fail }
    }
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Recovery {
    config: RecoveryConfig,
    bringup: BringupConfig,
    state: RecoveryState,
    aborts_allowed: u32,
    aborts: u32,
    /// Since when the controller has not answered, and is waited for.
    lost_since: Option<Nanos>,
    /// For stopping.
    accesses: Accesses,
    step_timer: StepTimer,
    /// Attempts at bringing up since the last success, and what the last one said.
    attempts: u32,
    error: Option<BringupError>,
}

#[derive(Clone, Debug)]
enum RecoveryState {
    Running(StatusPoll),
    /// A reset is due; closing comes first.
    ResetDue(ResetCause),
    Stopping {
        cause: ResetCause,
        stop: StopSequence,
    },
    /// Waiting for a controller that does not answer.
    Lost {
        cause: ResetCause,
        dead: Dead,
        status_poll: StatusPoll,
    },
    /// Stopped, and the commands have been taken back.
    Stopped {
        cause: ResetCause,
    },
    BringingUp {
        cause: ResetCause,
        bringup: Box<Bringup>,
    },
    /// To be said once everything has been taken back.
    Dead(Dead),
}

impl Recovery {
    /// Watches over a controller. `bringup` says how to bring it up again, usually with the queues of `inventory`.
    pub fn new(config: RecoveryConfig, bringup: BringupConfig, inventory: &Inventory) -> Recovery {
        let aborts_allowed = inventory.limits.map_or(1, |limits| limits.aborts);
        let (state, accesses, step_timer) = (RecoveryState::Running(StatusPoll::default()), Accesses::default(), StepTimer::default());
        Recovery { config, bringup, state, aborts_allowed, aborts: 0, lost_since: None, accesses, step_timer, attempts: 0, error: None }
    }

    /// Goes on as far as it can. `watch` has looked at every queue pair just now. Time for which it is stepped later than it asked for
    /// counts towards no deadline of a reset.
    pub fn step(&mut self, now: Nanos, properties: &impl Properties, watch: &Watch) -> RecoveryAsk {
        let overrun = self.step_timer.overrun(now);
        if let RecoveryState::Stopping { stop, .. } = &mut self.state {
            stop.extend(overrun);
        }
        let ask = loop {
            if let Some(ask) = self.advance(now, properties, watch) {
                break ask;
            }
        };
        if let RecoveryAsk::Wait { until } = ask {
            self.step_timer.schedule(until);
        }
        ask
    }

    /// The controller broke the protocol: what [`crate::Reaped::violation`] said.
    pub fn violated(&mut self, violation: ProtocolViolation) {
        match &mut self.state {
            // What is told of I/O queues meanwhile is of before the reset.
            RecoveryState::BringingUp { bringup, .. } if violation.queue() == QueueId::ADMIN => bringup.violated(violation),
            _ => self.request_reset(ResetCause::Violation(violation)),
        }
    }

    /// Resets the controller at the next step.
    pub fn reset(&mut self) {
        self.request_reset(ResetCause::Asked);
    }

    /// Waits no longer for a controller that does not answer, now or later: a host that closes it has no use for its return.
    pub fn lose_patience(&mut self) {
        self.config.lost_patience = Nanos::ZERO;
    }

    fn request_reset(&mut self, cause: ResetCause) {
        // While a reset is under way already this changes nothing.
        if self.is_watching() {
            self.state = RecoveryState::ResetDue(cause);
        }
    }

    /// An Abort that was asked for has completed, or was not posted.
    pub fn abort_ended(&mut self) {
        self.aborts = self.aborts.saturating_sub(1);
    }

    /// The answer to an admin command that was asked for.
    pub fn completed(&mut self, reply: &AdminReply) {
        if let RecoveryState::BringingUp { bringup, .. } = &mut self.state {
            bringup.completed(reply);
        }
    }

    /// The answer to an access that was under way. One that nobody waits for is ignored.
    pub fn answered(&mut self, ticket: Ticket, answer: Answer) {
        match &mut self.state {
            RecoveryState::Running(status_poll) | RecoveryState::Lost { status_poll, .. } => status_poll.answered(ticket, answer),
            RecoveryState::Stopping { .. } => self.accesses.answered(ticket, answer),
            RecoveryState::BringingUp { bringup, .. } => bringup.answered(ticket, answer),
            RecoveryState::ResetDue(_) | RecoveryState::Stopped { .. } | RecoveryState::Dead(_) => {}
        }
    }

    /// The memory of a queue pair that was asked for.
    pub fn rings(&mut self, sq: u64, cq: u64) {
        if let RecoveryState::BringingUp { bringup, .. } = &mut self.state {
            bringup.rings(sq, cq);
        }
    }

    /// Whether the controller is in use: neither being reset nor given up.
    pub fn is_watching(&self) -> bool {
        matches!(self.state, RecoveryState::Running(_))
    }

    /// Since when the controller has not answered, if it is waited for at this moment. Nothing is sent to it.
    pub fn lost_since(&self) -> Option<Nanos> {
        self.lost_since.filter(|_| matches!(self.state, RecoveryState::Lost { .. }))
    }

    fn advance(&mut self, now: Nanos, properties: &impl Properties, watch: &Watch) -> Option<RecoveryAsk> {
        // Each arm puts back the state that is next.
        match std::mem::replace(&mut self.state, RecoveryState::Running(StatusPoll::default())) {
            RecoveryState::Running(status_poll) => return self.check_health(now, properties, status_poll, watch),
            RecoveryState::ResetDue(cause) => {
                self.state = RecoveryState::Stopping { cause: cause.clone(), stop: StopSequence::Start };
                return Some(RecoveryAsk::Close(cause));
            }
            RecoveryState::Stopping { cause, mut stop } => {
                match stop.step(&mut self.accesses.round(now, self.bringup.admin_timeout, properties)) {
                    StopStatus::Again => self.state = RecoveryState::Stopping { cause, stop },
                    StopStatus::Wait(until) => {
                        self.state = RecoveryState::Stopping { cause, stop };
                        return Some(RecoveryAsk::Wait { until });
                    }
                    StopStatus::Stopped => {
                        (self.aborts, self.lost_since) = (0, None);
                        self.state = RecoveryState::Stopped { cause };
                        return Some(RecoveryAsk::Abandon(Buffers::Returned));
                    }
                    StopStatus::TimedOut(waited) => {
                        let dead = Dead::NotStopped { waited, cause: cause.clone() };
                        return self.enter_lost(now, cause, dead);
                    }
                    StopStatus::Gone => return self.enter_lost(now, cause, Dead::Gone),
                    StopStatus::Failed(error) => {
                        let dead = Dead::Property { error, cause: cause.clone() };
                        return self.enter_lost(now, cause, dead);
                    }
                }
            }
            RecoveryState::Lost { cause, dead, status_poll } => {
                return Some(self.wait_for_return(now, properties, status_poll, cause, dead));
            }
            RecoveryState::Stopped { cause } => match self.error.take().filter(|_| self.attempts >= self.config.attempts) {
                Some(error) => self.state = RecoveryState::Dead(Dead::NotBroughtUp { cause, error }),
                None => {
                    self.attempts += 1;
                    self.state = RecoveryState::BringingUp { cause, bringup: Box::new(Bringup::new(self.bringup.clone())) };
                }
            },
            RecoveryState::BringingUp { cause, mut bringup } => {
                let asked = bringup.step(now, properties);
                self.state = RecoveryState::BringingUp { cause: cause.clone(), bringup };
                return self.handle_bringup(asked, cause);
            }
            RecoveryState::Dead(dead) => {
                self.state = RecoveryState::Dead(dead.clone());
                return Some(RecoveryAsk::Dead(dead));
            }
        }
        None
    }

    fn handle_bringup(&mut self, asked: BringupAsk, cause: ResetCause) -> Option<RecoveryAsk> {
        match asked {
            BringupAsk::Wait { until } => Some(RecoveryAsk::Wait { until }),
            BringupAsk::Admin(command) => Some(RecoveryAsk::Admin(command)),
            // There is nothing on the other queue pairs.
            BringupAsk::ReopenAdmin => Some(RecoveryAsk::Abandon(Buffers::Returned)),
            BringupAsk::Rings { id, sizes } => Some(RecoveryAsk::Rings { id, sizes }),
            BringupAsk::Ready(inventory) => {
                self.attempts = 0;
                self.state = RecoveryState::Running(StatusPoll::default());
                Some(RecoveryAsk::Restored(inventory))
            }
            BringupAsk::Failed(error) => {
                // However far it came: stopped first, and then either tried again or given up.
                self.error = Some(error);
                self.state = RecoveryState::ResetDue(cause);
                None
            }
        }
    }

    /// The controller does not answer: it is waited for, which is said once, or given up.
    fn enter_lost(&mut self, now: Nanos, cause: ResetCause, dead: Dead) -> Option<RecoveryAsk> {
        if self.config.lost_patience == Nanos::ZERO {
            return Some(self.give_up(dead));
        }
        (self.attempts, self.error) = (0, None);
        // Its status may well be had while another access is refused again and again.
        let first = if matches!(dead, Dead::Property { .. }) { now + LOST_POLL_INTERVAL } else { now };
        self.state = RecoveryState::Lost { cause, dead: dead.clone(), status_poll: StatusPoll::starting_at(first) };
        let reported = self.lost_since.replace(self.lost_since.unwrap_or(now)).is_some();
        (!reported).then_some(RecoveryAsk::Lost(dead))
    }

    /// Once its status can be read again the controller is stopped like any other.
    fn wait_for_return(
        &mut self,
        now: Nanos,
        properties: &impl Properties,
        mut status_poll: StatusPoll,
        cause: ResetCause,
        dead: Dead,
    ) -> RecoveryAsk {
        let over = self.lost_since.unwrap_or(now) + self.config.lost_patience;
        if now >= over {
            return self.give_up(dead);
        }
        let again = now + LOST_POLL_INTERVAL;
        let until = match status_poll.poll(now, self.poll_timing(LOST_POLL_INTERVAL), properties) {
            Ok((Some(csts), _)) if !csts.is_gone() => {
                self.state = RecoveryState::Stopping { cause, stop: StopSequence::Start };
                return RecoveryAsk::Wait { until: now };
            }
            Ok((Some(_), _)) => again,
            Ok((None, until)) => until,
            Err(_) => {
                status_poll = StatusPoll::starting_at(again);
                again
            }
        };
        self.state = RecoveryState::Lost { cause, dead, status_poll };
        RecoveryAsk::Wait { until: until.min(over) }
    }

    fn poll_timing(&self, interval: Nanos) -> PollTiming {
        PollTiming { timeout: self.config.grace, interval }
    }

    /// Nobody can say whether the controller still writes to memory.
    fn give_up(&mut self, dead: Dead) -> RecoveryAsk {
        self.aborts = 0;
        self.state = RecoveryState::Dead(dead);
        RecoveryAsk::Abandon(Buffers::Leaked)
    }

    fn check_health(
        &mut self,
        now: Nanos,
        properties: &impl Properties,
        mut status_poll: StatusPoll,
        watch: &Watch,
    ) -> Option<RecoveryAsk> {
        let polled = status_poll.poll(now, self.poll_timing(self.config.health_interval), properties);
        let next_poll = polled.map_or(now, |(_, until)| until);
        self.state = match polled.map(|(csts, _)| csts) {
            Err(error) => RecoveryState::ResetDue(ResetCause::Property(error)),
            Ok(Some(csts)) if csts.is_gone() => RecoveryState::ResetDue(ResetCause::Gone),
            Ok(Some(csts)) if csts.cfs() => RecoveryState::ResetDue(ResetCause::Fatal { csts: csts.into_bits() }),
            Ok(Some(csts)) if !csts.rdy() => RecoveryState::ResetDue(ResetCause::Stopped { csts: csts.into_bits() }),
            Ok(_) => match watch.overdue(now, &self.config) {
                Some((queue, command, waited)) => RecoveryState::ResetDue(ResetCause::Unanswered { queue, command, waited }),
                None => RecoveryState::Running(status_poll),
            },
        };
        if !self.is_watching() {
            return None;
        }
        if let Some(late) = watch.to_abort()
            && self.aborts < self.aborts_allowed
        {
            self.aborts += 1;
            let (queue, command) = (late.queue, late.expired.command);
            let sqe = admin::Abort { sq: queue, cid: command.cid }.to_sqe();
            return Some(RecoveryAsk::Abort { queue, command, sqe });
        }
        let until = watch.next_deadline(now, &self.config).min(now + self.config.health_interval).min(next_poll);
        Some(RecoveryAsk::Wait { until })
    }
}

/// The commands past their time-out, over all the queue pairs of a controller. Kept, so that looking allocates rarely.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    late: Vec<LateCommand>,
    /// When the next command that is in flight now will be past its time-out.
    next: Option<Nanos>,
    scratch: Vec<Expired>,
    /// When each queue pair was last looked at.
    last_scan: HashMap<QueueId, Nanos>,
    /// What was in flight then, since when it counts, and since when its Abort has been answered.
    known: HashMap<(QueueId, Cid), (Command, Nanos, Option<Nanos>)>,
    /// Made while a pair is looked at: what is in flight now.
    present: Vec<(Command, Nanos, Option<Nanos>)>,
}

/// How long a command is waited for once its Abort has been answered and it was looked for again: a controller that says
/// "aborted" has posted its completion (Base 2.1, 5.1.1), and one that says "not aborted" has nothing else to offer than a reset.
const ABORTED_GRACE: Nanos = Nanos::from_secs(1);

/// A command past its time-out. Its own word of when it was posted stays as it is, because an Abort names the command by all of it.
#[derive(Clone, Copy, Debug)]
struct LateCommand {
    queue: QueueId,
    expired: Expired,
    /// Since when it counts.
    since: Nanos,
    /// When its Abort was first seen to be answered.
    aborted: Option<Nanos>,
}

impl LateCommand {
    /// When waiting for it ends.
    fn due(&self, config: &RecoveryConfig) -> Nanos {
        let due = self.since + if self.queue == QueueId::ADMIN { config.grace } else { config.command_timeout + config.grace };
        self.aborted.map_or(due, |at| due.min(at + ABORTED_GRACE.min(config.grace)))
    }
}

impl Watch {
    /// Has looked at nothing.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// Forgets what it saw.
    pub fn clear(&mut self) {
        self.late.clear();
        self.next = None;
    }

    /// Looks at a queue pair, without a lock. The tokens of queue 0, the admin queue, have to be those of [`Purpose`].
    pub fn look<S: SqSlots, C: CqSlots>(&mut self, pair: &QueuePair<S, C>, now: Nanos, config: &RecoveryConfig) {
        let admin = pair.id() == QueueId::ADMIN;
        let timeout = if admin { config.grace } else { config.command_timeout };
        self.scratch.clear();
        pair.expired(now, Nanos::ZERO, &mut self.scratch);
        let before = self.last_scan.insert(pair.id(), now);
        self.present.clear();
        for expired in &self.scratch {
            if admin && Purpose::from_token(expired.command.token).may_wait_for_ever() {
                continue;
            }
            let command = expired.command;
            let (since, aborted) = match self.known.get(&(pair.id(), command.cid)) {
                Some(&(known, since, aborted)) if known == command => (since, aborted),
                _ => (believable(command.posted_at, before, now), None),
            };
            let aborted = aborted.or((expired.stage == Stage::Aborted).then_some(now));
            self.present.push((command, since, aborted));
            let expires = since + timeout;
            if expires <= now {
                self.late.push(LateCommand { queue: pair.id(), expired: *expired, since, aborted });
            } else {
                self.next = Some(self.next.unwrap_or(Nanos::MAX).min(expires));
            }
        }
        self.known.retain(|(queue, _), _| *queue != pair.id());
        self.known.extend(self.present.iter().map(|&known| ((pair.id(), known.0.cid), known)));
    }

    /// A command past its time-out that no Abort has been sent for.
    fn to_abort(&self) -> Option<&LateCommand> {
        self.late.iter().find(|late| late.queue != QueueId::ADMIN && late.expired.stage == Stage::InFlight)
    }

    /// A command that no longer may be waited for, and how long it has been.
    fn overdue(&self, now: Nanos, config: &RecoveryConfig) -> Option<(QueueId, Command, Nanos)> {
        let late = self.late.iter().find(|late| late.due(config) <= now)?;
        Some((late.queue, late.expired.command, now - late.since))
    }

    /// When to look again: a command posted after this look cannot be past its time-out earlier.
    fn next_deadline(&self, now: Nanos, config: &RecoveryConfig) -> Nanos {
        let due = self.late.iter().map(|late| late.due(config));
        due.chain(self.next).min().unwrap_or(Nanos::MAX).min(now + config.command_timeout.min(config.grace))
    }
}

/// Since when a command counts that is seen for the first time, at `now`. The thread that posts says when that was, and may have another
/// clock. A command that was not there at the last look (`before`) was not posted before it, and none is posted after `now`. A wrong word
/// would make a command late that is not, or keep it for ever.
pub fn believable(posted_at: Nanos, before: Option<Nanos>, now: Nanos) -> Nanos {
    if posted_at > now || before.is_some_and(|before| posted_at < before) { now } else { posted_at }
}

#[cfg(all(test, not(loom)))]
mod tests;
