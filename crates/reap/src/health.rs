//! The health of a controller: resets, aborts, and why it failed.

use driver::{Dead, ResetCause};
use thiserror::Error;

/// The controller's health. Each change is also one of [`Device::events`](crate::Device::events).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Resets so far.
    pub resets: u32,
    /// Commands that were aborted because they took too long.
    pub aborts: u32,
    /// Why the controller was last reset.
    pub last_reset: Option<ResetCause>,
    /// Why the controller failed for good; every request fails then.
    pub dead: Option<PermanentFailure>,
    /// Interrupt Coalescing that is set: entries and microseconds, for
    /// `coalesce`, `dim`, `vic` and `adaptive`.
    pub coalescing: Option<(u32, u32)>,
    /// The controller refuses Interrupt Coalescing: those modes are `interrupt` on it.
    pub coalescing_refused: bool,
}

/// Why a device failed for good: every request fails, and it does not recover.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PermanentFailure {
    /// The controller was removed, does not stop, or does not come up again.
    #[error(transparent)]
    Controller(#[from] Dead),
    /// Its controller task has panicked, which is a bug in Reap.
    #[error("its controller task has panicked, which is a bug in Reap")]
    Panicked,
    /// Every path has failed; the reasons in their order.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    AllPaths(Vec<PermanentFailure>),
}

impl PermanentFailure {
    /// The reason for a device: its only controller's, or those of all paths.
    pub(crate) fn of_all(mut all: Vec<PermanentFailure>) -> PermanentFailure {
        // One controller: its own reason, not a list of one.
        match all.pop() {
            Some(only) if all.is_empty() => only,
            last => PermanentFailure::AllPaths(all.into_iter().chain(last).collect()),
        }
    }
}

impl Health {
    /// The sum of `self` and `other`.
    pub(crate) fn and(self, other: Health) -> Health {
        Health {
            resets: self.resets + other.resets,
            aborts: self.aborts + other.aborts,
            // Of several controllers any one reason will do; counts are summed.
            last_reset: other.last_reset.or(self.last_reset),
            dead: other.dead.or(self.dead),
            coalescing: self.coalescing.or(other.coalescing),
            coalescing_refused: self.coalescing_refused | other.coalescing_refused,
        }
    }
}
