//! Recovery: command time-outs, Abort, controller reset, and giving a controller up. A state
//! machine like bring-up, stepped for as long as the controller is in use.
//!
//! ```text
//!                time-out: Abort (best effort)
//!   Running --------------------------------------------> Running
//!      | grace over, CFS, removed, protocol violation, reset requested
//!      v
//!   ResetDue --Close--> Stopping --Abandon(Returned)--> Stopped --> BringingUp --Restored--> Running
//!      ^                 |    ^                                         |
//!      |   does not stop |    | answers again                           | failed: stop, try again
//!      |                 v    |                                         |
//!      |                  Lost --------patience over---> Dead           |
//!      +----------------------------------------------------------------+--attempts used up--> Dead
//! ```
//!
//! Buffers return to the host only once CSTS.RDY = 0 has been seen. If that never happens they are
//! leaked, because the controller may still write to them. Every wait has a deadline.

use std::collections::HashMap;

use nvme::{Cid, CqSlots, QueueId, SqSlots, Sqe, Status, admin};
use units::Nanos;

use crate::multipath::{Disposition, disposition};
use crate::properties::{Accesses, PollTiming, Properties, StatusPoll};
use crate::stop::{StepTimer, StopSequence, StopStatus};
use crate::{
    AdminCommand, AdminReply, Answer, Bringup, BringupAction, BringupConfig, BringupError,
    CommandState, Expired, Inventory, OutstandingCommand, PropertyError, ProtocolViolation,
    Purpose, QueuePair, QueueSizes, Ticket,
};

/// Time-outs and limits of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// An I/O command older than this is aborted.
    pub command_timeout: Nanos,
    /// A command that is this much older than `command_timeout` causes a reset. So does an admin
    /// command of this age, and a CSTS read that is not answered for this long.
    pub grace: Nanos,
    /// Maximum bring-up attempts after a reset; then the controller is given up.
    pub attempts: u32,
    /// Maximum interval between two polls of CSTS.
    pub health_interval: Nanos,
    /// How long to wait for a controller that does not answer, is gone, or does not stop, before it
    /// is given up. Zero, which is useful if there are other paths: it is given up at once.
    pub lost_timeout: Nanos,
}

/// Interval of CSTS polls while the controller is lost.
const LOST_POLL_INTERVAL: Nanos = Nanos::from_millis(10);

/// Why the controller is reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetCause {
    /// A command did not complete, aborted or not.
    #[error("command {} on queue {queue} did not complete for {waited}", command.cid)]
    Unanswered {
        /// Its queue.
        queue: QueueId,
        /// The command.
        command: OutstandingCommand,
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
    /// CC.EN or CSTS.RDY became 0 without a request from this host.
    #[error("the controller stopped by itself (CSTS {csts:#010x})")]
    Stopped {
        /// CSTS.
        csts: u32,
    },
    /// Reading CSTS failed.
    #[error("the controller's status cannot be read: {0}")]
    Property(#[from] PropertyError),
    /// The controller broke the protocol.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// A connection to it has ended.
    #[error("a connection to the controller has ended")]
    Disconnected,
    /// The host requested it.
    #[error("a reset was requested")]
    Requested,
}

impl ResetCause {
    /// Whether the controller left a command or an access unanswered, so that it may not react to a
    /// reset either.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self,
            ResetCause::Unanswered { .. } | ResetCause::Property(PropertyError::NoAnswer { .. })
        )
    }
}

/// The controller is given up. Every command has been taken back; waiting requests must fail with
/// this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dead {
    /// The controller was removed.
    #[error("the controller is gone: its registers read as all ones")]
    Gone,
    /// The controller could not be stopped. The buffers of its commands are leaked, because it may
    /// still write to them.
    #[error(
        "the controller does not stop: CSTS.RDY is still 1 after {waited}, and a reset of its PCI function did not help (reset because: {cause})"
    )]
    NotStopped {
        /// The time waited.
        waited: Nanos,
        /// Why it was being stopped.
        cause: ResetCause,
    },
    /// It is unknown whether the controller has stopped. The buffers of its commands are leaked.
    #[error("the controller cannot be stopped: {error} (reset because: {cause})")]
    Property {
        /// The access that failed.
        error: PropertyError,
        /// Why it was being stopped.
        cause: ResetCause,
    },
    /// The controller stopped, but bring-up failed.
    #[error(
        "the controller does not come up again after a reset (reset because: {cause}): {error}"
    )]
    NotBroughtUp {
        /// Why it was reset.
        cause: ResetCause,
        /// The error of the last attempt.
        error: BringupError,
    },
}

/// What happens to the buffers of the commands that a reset takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// The controller has provably stopped: the buffers belong to the host again.
    Returned,
    /// The controller may still write to them: they must be leaked, and counted.
    Leaked,
}

/// An action for the executor, to be carried out before the next step.
#[derive(Clone, Debug, PartialEq)]
pub enum RecoveryAction {
    /// Step again when an event occurs, and at `until` at the latest.
    Wait {
        /// When.
        until: Nanos,
    },
    /// Abort a command: call [`crate::Exclusive::begin_abort`]; if it returns true, post `sqe` on
    /// the admin queue as [`crate::Purpose::Abort`]. When the Abort has completed, call
    /// [`crate::Exclusive::end_abort`] and [`Recovery::abort_ended`]. If `begin_abort` returns
    /// false, or there is no free admin tag, call only the latter two, at once.
    Abort {
        /// The queue of the command.
        queue: QueueId,
        /// The command.
        command: OutstandingCommand,
        /// The Abort.
        sqe: Sqe,
    },
    /// [`crate::Exclusive::close`] every queue pair, including the admin one. New requests wait;
    /// completions are still reaped.
    Close(ResetCause),
    /// The controller does not answer, and recovery waits for it. Its commands may still be
    /// executed: no command is taken back and no buffer returned yet. `Abandon` follows when it has
    /// come back and stopped, or when the wait has timed out.
    Lost(Dead),
    /// [`crate::Exclusive::abandon`] every queue pair and keep the commands, none of which will
    /// complete, until `Restored` or `Dead`. If the buffers are returned,
    /// [`crate::Exclusive::reopen`] the admin pair for the bring-up that follows.
    Abandon(Buffers),
    /// As [`BringupAction::Admin`].
    Admin(AdminCommand),
    /// As [`BringupAction::Rings`]; only if bring-up was configured to create new queues.
    Rings {
        /// The queue.
        id: QueueId,
        /// Its sizes.
        sizes: QueueSizes,
    },
    /// The controller is ready again: [`crate::Exclusive::reopen`] the I/O pairs, and post the
    /// commands again that [`RetryPolicy`] allows.
    Restored(Box<Inventory>),
    /// The controller is given up. Every later step returns this too.
    Dead(Dead),
}

/// Limits how often a request is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum retries of a request, after resets and after error statuses together.
    pub limit: u8,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Post it again: executing it twice has the same effect as once.
    Retry,
    /// Fail it, and return its buffer.
    Fail,
    /// Fail it, and leak its buffer.
    FailLeaked,
}

impl RetryPolicy {
    /// Decides for a request that a reset took back. `idempotent`: executing the request twice has
    /// the same effect as once, which holds for Read, Write and Flush until the caller has the
    /// result.
    pub fn after_reset(&self, buffers: Buffers, retries: u8, idempotent: bool) -> RetryDecision {
        match buffers {
            // The old controller may still write to the buffer: a retry would share it.
            Buffers::Leaked => RetryDecision::FailLeaked,
            // The controller has stopped, so the first attempt cannot be executed later.
            Buffers::Returned if idempotent && retries < self.limit => RetryDecision::Retry,
            Buffers::Returned => RetryDecision::Fail,
        }
    }

    /// Decides for a request that completed with an error. It is retried only for statuses that
    /// describe circumstances rather than the command or the medium, and without Do Not Retry (Base
    /// 4.2.3).
    pub fn after_status(&self, status: Status, retries: u8, idempotent: bool) -> RetryDecision {
        let passes = disposition(status) == Disposition::Retry;
        if passes && idempotent && retries < self.limit {
            RetryDecision::Retry
        } else {
            RetryDecision::Fail
        }
    }
}

/// The recovery state machine.
#[derive(Clone, Debug)]
pub struct Recovery {
    config: RecoveryConfig,
    bringup: BringupConfig,
    state: RecoveryState,
    aborts_allowed: u32,
    aborts: u32,
    /// Since when the controller has been lost. Kept while a returning controller is being stopped.
    lost_since: Option<Nanos>,
    /// Property accesses of [`StopSequence`].
    accesses: Accesses,
    step_timer: StepTimer,
    /// Bring-up attempts since the last success, and the error of the last one.
    attempts: u32,
    error: Option<BringupError>,
}

#[derive(Clone, Debug)]
enum RecoveryState {
    Running(StatusPoll),
    /// A reset is due; the queues are closed first.
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
    /// Stopped, and every command has been taken back.
    Stopped {
        cause: ResetCause,
    },
    BringingUp {
        cause: ResetCause,
        bringup: Box<Bringup>,
    },
    /// Given up; every command has been taken back.
    Dead(Dead),
}

impl Recovery {
    /// Monitors a controller. `bringup` configures bring-up after a reset, usually with the queues
    /// of `inventory`.
    pub fn new(config: RecoveryConfig, bringup: BringupConfig, inventory: &Inventory) -> Recovery {
        // ACL: more Aborts than that would be rejected (Base 5.1.1).
        let aborts_allowed = inventory.limits.map_or(1, |limits| limits.aborts);
        let (state, accesses, step_timer) = (
            RecoveryState::Running(StatusPoll::default()),
            Accesses::default(),
            StepTimer::default(),
        );
        Recovery {
            config,
            bringup,
            state,
            aborts_allowed,
            aborts: 0,
            lost_since: None,
            accesses,
            step_timer,
            attempts: 0,
            error: None,
        }
    }

    /// Advances as far as possible. `watch` must have scanned every queue pair just before. If the
    /// executor steps later than it was asked to, the excess counts towards no deadline of a reset.
    pub fn step(
        &mut self,
        now: Nanos,
        properties: &impl Properties,
        watch: &TimeoutScan,
    ) -> RecoveryAction {
        let overrun = self.step_timer.overrun(now);
        if let RecoveryState::Stopping { stop, .. } = &mut self.state {
            stop.extend(overrun);
        }
        let ask = loop {
            if let Some(ask) = self.advance(now, properties, watch) {
                break ask;
            }
        };
        if let RecoveryAction::Wait { until } = ask {
            self.step_timer.schedule(until);
        }
        ask
    }

    /// The controller broke the protocol ([`crate::Reaped::violation`]).
    pub fn violated(&mut self, violation: ProtocolViolation) {
        match &mut self.state {
            // A violation reported for an I/O queue now is from before the reset.
            RecoveryState::BringingUp { bringup, .. } if violation.queue() == QueueId::ADMIN => {
                bringup.violated(violation)
            }
            _ => self.request_reset(ResetCause::Violation(violation)),
        }
    }

    /// Resets the controller at the next step.
    pub fn reset(&mut self) {
        self.request_reset(ResetCause::Requested);
    }

    /// A connection to the controller has ended: resets it at the next step, which finds out
    /// whether it still answers.
    pub fn disconnected(&mut self) {
        self.request_reset(ResetCause::Disconnected);
    }

    /// Stops waiting for a lost controller, now and later: a host that closes the device has no use
    /// for it.
    pub fn fail_pending(&mut self) {
        self.config.lost_timeout = Nanos::ZERO;
    }

    fn request_reset(&mut self, cause: ResetCause) {
        // No effect while a reset is in progress.
        if self.is_running() {
            self.state = RecoveryState::ResetDue(cause);
        }
    }

    /// A requested Abort has completed, or was not posted.
    pub fn abort_ended(&mut self) {
        self.aborts = self.aborts.saturating_sub(1);
    }

    /// The reply to a requested admin command.
    pub fn completed(&mut self, reply: &AdminReply) {
        if let RecoveryState::BringingUp { bringup, .. } = &mut self.state {
            bringup.completed(reply);
        }
    }

    /// The value of a property access in progress. Ignored if the access is no longer pending.
    pub fn answered(&mut self, ticket: Ticket, answer: Answer) {
        match &mut self.state {
            RecoveryState::Running(status_poll) | RecoveryState::Lost { status_poll, .. } => {
                status_poll.answered(ticket, answer)
            }
            RecoveryState::Stopping { .. } => self.accesses.answered(ticket, answer),
            RecoveryState::BringingUp { bringup, .. } => bringup.answered(ticket, answer),
            RecoveryState::ResetDue(_) | RecoveryState::Stopped { .. } | RecoveryState::Dead(_) => {
            }
        }
    }

    /// The ring memory of the queue pair that [`RecoveryAction::Rings`] named.
    pub fn rings(&mut self, sq: u64, cq: u64) {
        if let RecoveryState::BringingUp { bringup, .. } = &mut self.state {
            bringup.rings(sq, cq);
        }
    }

    /// Whether the controller is in use: neither being reset nor given up.
    pub fn is_running(&self) -> bool {
        matches!(self.state, RecoveryState::Running(_))
    }

    /// Since when the controller has been lost, if recovery is waiting for it now. Nothing is sent
    /// to it.
    pub fn lost_since(&self) -> Option<Nanos> {
        self.lost_since.filter(|_| matches!(self.state, RecoveryState::Lost { .. }))
    }

    fn advance(
        &mut self,
        now: Nanos,
        properties: &impl Properties,
        watch: &TimeoutScan,
    ) -> Option<RecoveryAction> {
        // The state is moved out so that each arm owns its cause. Each arm stores the next state.
        match std::mem::replace(&mut self.state, RecoveryState::Running(StatusPoll::default())) {
            RecoveryState::Running(status_poll) => {
                return self.check_health(now, properties, status_poll, watch);
            }
            RecoveryState::ResetDue(cause) => {
                self.state =
                    RecoveryState::Stopping { cause: cause.clone(), stop: StopSequence::Start };
                return Some(RecoveryAction::Close(cause));
            }
            RecoveryState::Stopping { cause, mut stop } => {
                match stop.step(&mut self.accesses.round(
                    now,
                    self.bringup.admin_timeout,
                    properties,
                )) {
                    StopStatus::Again => self.state = RecoveryState::Stopping { cause, stop },
                    StopStatus::Wait(until) => {
                        self.state = RecoveryState::Stopping { cause, stop };
                        return Some(RecoveryAction::Wait { until });
                    }
                    StopStatus::Stopped => {
                        // The reset has ended the Aborts in flight.
                        (self.aborts, self.lost_since) = (0, None);
                        self.state = RecoveryState::Stopped { cause };
                        return Some(RecoveryAction::Abandon(Buffers::Returned));
                    }
                    StopStatus::TimedOut(waited) => {
                        let dead = Dead::NotStopped { waited, cause: cause.clone() };
                        return self.enter_lost(now, cause, dead);
                    }
                    // A removed controller may come back: it is given up at once only if
                    // `lost_timeout` is zero.
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
            RecoveryState::Stopped { cause } => {
                match self.error.take().filter(|_| self.attempts >= self.config.attempts) {
                    Some(error) => {
                        self.state = RecoveryState::Dead(Dead::NotBroughtUp { cause, error })
                    }
                    None => {
                        self.attempts += 1;
                        self.state = RecoveryState::BringingUp {
                            cause,
                            bringup: Box::new(Bringup::new(self.bringup.clone())),
                        };
                    }
                }
            }
            RecoveryState::BringingUp { cause, mut bringup } => {
                let asked = bringup.step(now, properties);
                self.state = RecoveryState::BringingUp { cause: cause.clone(), bringup };
                return self.handle_bringup(asked, cause);
            }
            RecoveryState::Dead(dead) => {
                self.state = RecoveryState::Dead(dead.clone());
                return Some(RecoveryAction::Dead(dead));
            }
        }
        None
    }

    fn handle_bringup(
        &mut self,
        asked: BringupAction,
        cause: ResetCause,
    ) -> Option<RecoveryAction> {
        match asked {
            BringupAction::Wait { until } => Some(RecoveryAction::Wait { until }),
            BringupAction::Admin(command) => Some(RecoveryAction::Admin(command)),
            // The other queue pairs are empty: abandoning them again does nothing.
            BringupAction::ReopenAdmin => Some(RecoveryAction::Abandon(Buffers::Returned)),
            BringupAction::Rings { id, sizes } => Some(RecoveryAction::Rings { id, sizes }),
            BringupAction::Ready(inventory) => {
                self.attempts = 0;
                self.state = RecoveryState::Running(StatusPoll::default());
                Some(RecoveryAction::Restored(inventory))
            }
            BringupAction::Failed(error) => {
                // The controller may be enabled, in whatever phase bring-up failed, so it is
                // stopped before the next attempt.
                self.error = Some(error);
                self.state = RecoveryState::ResetDue(cause);
                None
            }
        }
    }

    /// The controller does not answer: waits for it and reports that once, or gives it up.
    fn enter_lost(&mut self, now: Nanos, cause: ResetCause, dead: Dead) -> Option<RecoveryAction> {
        if self.config.lost_timeout == Nanos::ZERO {
            return Some(self.give_up(dead));
        }
        // A controller that comes back gets all its attempts.
        (self.attempts, self.error) = (0, None);
        // Delay the first poll: CSTS may be readable while another property keeps failing, and the
        // machine would alternate between the two states without a pause.
        let first =
            if matches!(dead, Dead::Property { .. }) { now + LOST_POLL_INTERVAL } else { now };
        self.state = RecoveryState::Lost {
            cause,
            dead: dead.clone(),
            status_poll: StatusPoll::starting_at(first),
        };
        // `lost_since` is already set if the controller came back and was lost again while
        // stopping: the wait counts from the first loss.
        let reported = self.lost_since.replace(self.lost_since.unwrap_or(now)).is_some();
        (!reported).then_some(RecoveryAction::Lost(dead))
    }

    /// Polls CSTS. Once it can be read the controller is stopped like any other.
    fn wait_for_return(
        &mut self,
        now: Nanos,
        properties: &impl Properties,
        mut status_poll: StatusPoll,
        cause: ResetCause,
        dead: Dead,
    ) -> RecoveryAction {
        let over = self.lost_since.unwrap_or(now) + self.config.lost_timeout;
        if now >= over {
            return self.give_up(dead);
        }
        let again = now + LOST_POLL_INTERVAL;
        let until = match status_poll.poll(now, self.poll_timing(LOST_POLL_INTERVAL), properties) {
            Ok((Some(csts), _)) if !csts.is_gone() => {
                self.state = RecoveryState::Stopping { cause, stop: StopSequence::Start };
                return RecoveryAction::Wait { until: now };
            }
            Ok((Some(_), _)) => again,
            Ok((None, until)) => until,
            // A failed read means that the controller is still lost: poll again after the interval.
            Err(_) => {
                status_poll = StatusPoll::starting_at(again);
                again
            }
        };
        self.state = RecoveryState::Lost { cause, dead, status_poll };
        RecoveryAction::Wait { until: until.min(over) }
    }

    fn poll_timing(&self, interval: Nanos) -> PollTiming {
        PollTiming { timeout: self.config.grace, interval }
    }

    /// Gives the controller up. It is unknown whether it still writes to memory.
    fn give_up(&mut self, dead: Dead) -> RecoveryAction {
        self.aborts = 0;
        self.state = RecoveryState::Dead(dead);
        RecoveryAction::Abandon(Buffers::Leaked)
    }

    fn check_health(
        &mut self,
        now: Nanos,
        properties: &impl Properties,
        mut status_poll: StatusPoll,
        watch: &TimeoutScan,
    ) -> Option<RecoveryAction> {
        // CSTS is polled before commands are checked: it tells the cause more exactly than a
        // time-out.
        let polled =
            status_poll.poll(now, self.poll_timing(self.config.health_interval), properties);
        // An error needs a step at once.
        let next_poll = polled.map_or(now, |(_, until)| until);
        self.state = match polled.map(|(csts, _)| csts) {
            Err(error) => RecoveryState::ResetDue(ResetCause::Property(error)),
            Ok(Some(csts)) if csts.is_gone() => RecoveryState::ResetDue(ResetCause::Gone),
            Ok(Some(csts)) if csts.cfs() => {
                RecoveryState::ResetDue(ResetCause::Fatal { csts: csts.into_bits() })
            }
            // Another host, a firmware update or a power loss has disabled the controller.
            Ok(Some(csts)) if !csts.rdy() => {
                RecoveryState::ResetDue(ResetCause::Stopped { csts: csts.into_bits() })
            }
            Ok(_) => match watch.overdue(now, &self.config) {
                Some((queue, command, waited)) => {
                    RecoveryState::ResetDue(ResetCause::Unanswered { queue, command, waited })
                }
                None => RecoveryState::Running(status_poll),
            },
        };
        if !self.is_running() {
            return None;
        }
        // One Abort per step: `watch` is scanned anew before the next.
        if let Some(late) = watch.to_abort()
            && self.aborts < self.aborts_allowed
        {
            self.aborts += 1;
            let (queue, command) = (late.queue, late.expired.command);
            let sqe = admin::Abort { sq: queue, cid: command.cid }.to_sqe();
            return Some(RecoveryAction::Abort { queue, command, sqe });
        }
        let until = watch
            .next_deadline(now, &self.config)
            .min(now + self.config.health_interval)
            .min(next_poll);
        Some(RecoveryAction::Wait { until })
    }
}

/// The commands past their time-out, over all queue pairs of a controller. Kept between scans, so
/// that they rarely allocate.
#[derive(Clone, Debug, Default)]
pub struct TimeoutScan {
    late: Vec<LateCommand>,
    /// When the next command in flight reaches its time-out.
    next: Option<Nanos>,
    scratch: Vec<Expired>,
    /// When each queue pair was last scanned.
    last_scan: HashMap<QueueId, Nanos>,
    /// The commands in flight at the last scan, each with the time from which its time-out counts,
    /// and the time when its Abort was first seen completed.
    known: HashMap<(QueueId, Cid), (OutstandingCommand, Nanos, Option<Nanos>)>,
    /// As `known`, for the queue pair being scanned.
    present: Vec<(OutstandingCommand, Nanos, Option<Nanos>)>,
}

/// How long to wait for a command after its Abort has completed. A controller that reports
/// "aborted" has posted the command's completion (Base 2.1, 5.1.1); after "not aborted" only a
/// reset is left.
const ABORTED_GRACE: Nanos = Nanos::from_secs(1);

/// A command past its time-out. `expired` keeps the posted time, even if implausible, because an
/// Abort identifies the command by it.
#[derive(Clone, Copy, Debug)]
struct LateCommand {
    queue: QueueId,
    expired: Expired,
    /// The time from which its time-out counts.
    since: Nanos,
    /// When its Abort was first seen completed.
    aborted: Option<Nanos>,
}

impl LateCommand {
    /// When the command causes a reset.
    fn due(&self, config: &RecoveryConfig) -> Nanos {
        let due = self.since
            + if self.queue == QueueId::ADMIN {
                config.grace
            } else {
                config.command_timeout + config.grace
            };
        // An answered Abort can only shorten the wait.
        self.aborted.map_or(due, |at| due.min(at + ABORTED_GRACE.min(config.grace)))
    }
}

impl TimeoutScan {
    /// The results before the first scan: there are no late commands.
    pub fn new() -> TimeoutScan {
        TimeoutScan::default()
    }

    /// Clears the results of the last scan. Call it before scanning all queue pairs.
    pub fn clear(&mut self) {
        self.late.clear();
        self.next = None;
    }

    /// Scans a queue pair, without a lock. Tokens of queue 0, the admin queue, must be those of
    /// [`Purpose`].
    pub fn scan<S: SqSlots, C: CqSlots>(
        &mut self,
        pair: &QueuePair<S, C>,
        now: Nanos,
        config: &RecoveryConfig,
    ) {
        let admin = pair.id() == QueueId::ADMIN;
        // Admin commands are never aborted, so the grace period is all they get.
        let timeout = if admin { config.grace } else { config.command_timeout };
        self.scratch.clear();
        // All commands in flight are listed, not only late ones: when a command is first seen
        // limits how early it can have been posted.
        pair.expired(now, Nanos::ZERO, &mut self.scratch);
        let before = self.last_scan.insert(pair.id(), now);
        self.present.clear();
        for expired in &self.scratch {
            // An Asynchronous Event Request has no time-out.
            if admin && Purpose::from_token(expired.command.token).has_no_timeout() {
                continue;
            }
            let command = expired.command;
            let (since, aborted) = match self.known.get(&(pair.id(), command.cid)) {
                // The whole command is compared: its CID may have been reused since the last scan.
                Some(&(known, since, aborted)) if known == command => (since, aborted),
                _ => (clamp_posted_at(command.posted_at, before, now), None),
            };
            // The grace period after an Abort counts from when it was first seen completed.
            let aborted = aborted.or((expired.state == CommandState::Aborted).then_some(now));
            self.present.push((command, since, aborted));
            let expires = since + timeout;
            if expires <= now {
                self.late.push(LateCommand { queue: pair.id(), expired: *expired, since, aborted });
            } else {
                self.next = Some(self.next.unwrap_or(Nanos::MAX).min(expires));
            }
        }
        // All entries of this queue pair are replaced, so that completed commands are removed.
        self.known.retain(|(queue, _), _| *queue != pair.id());
        self.known.extend(self.present.iter().map(|&known| ((pair.id(), known.0.cid), known)));
    }

    /// A command past its time-out without an Abort. Admin commands are not aborted: a reset
    /// follows.
    fn to_abort(&self) -> Option<&LateCommand> {
        self.late.iter().find(|late| {
            late.queue != QueueId::ADMIN && late.expired.state == CommandState::InFlight
        })
    }

    /// A command that causes a reset, and its age.
    fn overdue(
        &self,
        now: Nanos,
        config: &RecoveryConfig,
    ) -> Option<(QueueId, OutstandingCommand, Nanos)> {
        let late = self.late.iter().find(|late| late.due(config) <= now)?;
        Some((late.queue, late.expired.command, now - late.since))
    }

    /// When to scan again: a command posted after this scan cannot reach its time-out earlier.
    fn next_deadline(&self, now: Nanos, config: &RecoveryConfig) -> Nanos {
        let due = self.late.iter().map(|late| late.due(config));
        due.chain(self.next)
            .min()
            .unwrap_or(Nanos::MAX)
            .min(now + config.command_timeout.min(config.grace))
    }
}

/// The time from which the time-out of a command counts that is first seen at `now`. The posting
/// thread reports `posted_at`, possibly from another clock. A command that the last scan (at
/// `before`) did not see was not posted before that scan, nor after `now`: an implausible time is
/// replaced by `now`. Otherwise a wrong clock would time out a command early, or never.
pub fn clamp_posted_at(posted_at: Nanos, before: Option<Nanos>, now: Nanos) -> Nanos {
    if posted_at > now || before.is_some_and(|before| posted_at < before) { now } else { posted_at }
}

#[cfg(all(test, not(loom)))]
mod tests;
