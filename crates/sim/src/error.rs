//! How a run can fail.

use completion::{Mode, Plan};
use driver::{BringupError, ProtocolViolation};
use units::Nanos;
use workload::Misfit;

/// How a run can fail. All but [`SimError::Unfit`], [`SimError::Misfit`], [`SimError::BringUp`], [`SimError::Unmeasured`] and
/// [`SimError::Stopped`] are broken laws.
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
    #[error(
        "standstill at {at} (seed {seed}, mode {mode}): {in_flight} commands in flight, {pending} queues with entries that nobody looks at"
    )]
    Standstill {
        /// When.
        at: Nanos,
        /// The scenario's seed.
        seed: u64,
        /// The mode in force.
        mode: Mode,
        /// Commands in flight.
        in_flight: u32,
        /// Queues on which entries wait.
        pending: usize,
    },
    /// More virtual time than the scenario allows.
    #[error("not done after {limit} of virtual time (seed {seed}): {in_flight} commands in flight")]
    TooLong {
        /// The limit.
        limit: Nanos,
        /// The scenario's seed.
        seed: u64,
        /// Commands in flight.
        in_flight: u32,
    },
    /// Nothing was measured.
    #[error(
        "nothing was measured: the jobs were done after {after} (seed {seed}, mode {mode}), and every one was still in its start delay \
         or its ramp; shorten `ramp`, or have them run for longer"
    )]
    Unmeasured {
        /// Virtual time.
        after: Nanos,
        /// The scenario's seed.
        seed: u64,
        /// The mode in force.
        mode: Mode,
    },
    /// The caller has stopped it ([`Scenario::run_unless`](crate::Scenario::run_unless)).
    #[error("stopped at {at} of virtual time (seed {seed}), before the jobs were done")]
    Stopped {
        /// Virtual time.
        at: Nanos,
        /// The scenario's seed.
        seed: u64,
    },
    /// A command completed twice, or one that was never posted.
    #[error("a completion for command {token:#x}, which is not in flight (law 3)")]
    NotOnce {
        /// What it was posted with.
        token: u64,
    },
    /// The thread left the library with commands in flight, and the policies neither arm their queues nor say when it is back.
    #[error("at {at} the thread leaves the library and the policies plan {plan:?}")]
    LeftUnarmed {
        /// When.
        at: Nanos,
        /// What was planned.
        plan: Plan,
    },
    /// The controller broke the protocol and the scenario has no recovery.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// Virtual time stands still.
    #[error("at {at} the thread takes steps for ever without any time passing (seed {seed})")]
    Livelock {
        /// When.
        at: Nanos,
        /// The scenario's seed.
        seed: u64,
    },
}
