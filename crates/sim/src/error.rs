//! How a run can fail.

use completion::{Mode, Plan};
use driver::{BringupError, ProtocolViolation};
use units::Nanos;
use workload::Misfit;

/// How a run can fail. All but [`SimError::Unfit`], [`SimError::Misfit`], [`SimError::BringUp`], [`SimError::Unmeasured`] and
/// [`SimError::Stopped`] are broken invariants.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The scenario does not go together.
    #[error("the scenario cannot be run: {0}")]
    Unfit(String),
    /// The job does not fit the device.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The controller did not come up.
    #[error(transparent)]
    BringUp(#[from] BringupError),
    /// Nothing will ever happen again, and commands are in flight: a lost wake-up.
    #[error("standstill {0}")]
    Standstill(Moment),
    /// More virtual time than the scenario allows.
    #[error("not done within the limit: {0}")]
    TooLong(Moment),
    /// Nothing was measured.
    #[error(
        "nothing was measured: the jobs were done {0}, and every one was still in its start delay or its ramp; shorten `ramp`, or have \
         them run for longer"
    )]
    Unmeasured(Moment),
    /// The caller has stopped it ([`Scenario::run_unless`](crate::Scenario::run_unless)).
    #[error("stopped before the jobs were done, {0}")]
    Stopped(Moment),
    /// A command completed twice, or one that was never posted.
    #[error("a completion for command {token:#x}, which is not in flight (law 3)")]
    NotOnce {
        /// What it was posted with.
        token: u64,
    },
    /// The thread left the library with commands in flight, and the policies neither arm their queues nor say when it is back.
    #[error("a thread leaves the library and the policies plan {0:?}")]
    LeftUnarmed(Plan),
    /// The controller broke the protocol and the scenario has no recovery.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// Virtual time stands still.
    #[error("steps are taken for ever without any time passing, {0}")]
    Livelock(Moment),
}

/// How far a run had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after {at} (seed {seed}, mode {mode}), {in_flight} commands in flight, entries on {pending} queues")]
pub struct Moment {
    /// Virtual time since the start.
    pub at: Nanos,
    /// The scenario's seed.
    pub seed: u64,
    /// The mode in force.
    pub mode: Mode,
    /// Commands in flight.
    pub in_flight: u32,
    /// Queues on which entries wait.
    pub pending: usize,
}
