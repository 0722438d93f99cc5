//! Errors of a run: an inconsistent scenario, a job or controller that does not fit it, or a broken
//! invariant of the engine.

use completion::{Mode, Plan};
use driver::{BringupError, ProtocolViolation};
use units::Nanos;
use workload::JobError;

/// Why a run failed. All but [`SimError::Unfit`], [`SimError::JobError`], [`SimError::BringUp`],
/// [`SimError::Unmeasured`] and [`SimError::Stopped`] are broken invariants.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The scenario is inconsistent.
    #[error("the scenario cannot be run: {0}")]
    Unfit(String),
    /// The job cannot run on the device.
    #[error(transparent)]
    JobError(#[from] JobError),
    /// The controller could not be brought up.
    #[error(transparent)]
    BringUp(#[from] BringupError),
    /// No timer is set, and commands are in flight: a wake-up was lost.
    #[error("standstill {0}")]
    Standstill(Moment),
    /// The run took more virtual time than the scenario allows.
    #[error("not done within the limit: {0}")]
    TooLong(Moment),
    /// Nothing was measured: all jobs ended in their start delay or ramp.
    #[error(
        "nothing was measured: all jobs ended {0}, in their start delay or ramp; shorten `ramp`, or let them run longer"
    )]
    Unmeasured(Moment),
    /// The caller stopped the run ([`Scenario::run_unless`](crate::Scenario::run_unless)).
    #[error("stopped before the jobs were done, {0}")]
    Stopped(Moment),
    /// A command completed twice, or there is a completion for a command that was never posted.
    #[error("a completion for command {token:#x}, which is not in flight (invariant 3)")]
    NotOnce {
        /// The command's token.
        token: u64,
    },
    /// The application left the library (it computes) with commands in flight, but the policies
    /// neither arm the queues nor plan a nap, so that completions could be missed for ever.
    #[error("a thread leaves the library with commands in flight, and the policies plan {0:?}")]
    LeftUnarmed(Plan),
    /// The controller violated the protocol, and the scenario has no recovery.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// Too many steps at one instant.
    #[error("livelock: steps repeat without progress of virtual time, {0}")]
    Livelock(Moment),
}

/// The state of a run that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "after {at} (seed {seed}, mode {mode}), {in_flight} commands in flight, unreaped entries on {pending} queues"
)]
pub struct Moment {
    /// Virtual time since the start.
    pub at: Nanos,
    /// The scenario's seed.
    pub seed: u64,
    /// The mode in force.
    pub mode: Mode,
    /// Commands in flight.
    pub in_flight: u32,
    /// Queues with entries that were not reaped.
    pub pending: usize,
}
