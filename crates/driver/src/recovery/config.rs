//! How patient recovery is.

use units::Nanos;

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
