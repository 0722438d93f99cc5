//! Whether a controller works.

use driver::{Dead, ResetCause};
use thiserror::Error;

/// Whether the controller works, and how often it has failed. Each occurrence is one of [`Device::events`](crate::Device::events).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Resets so far.
    pub resets: u32,
    /// Commands that were aborted because they took too long.
    pub aborts: u32,
    /// Why the controller was last reset.
    pub last_reset: Option<ResetCause>,
    /// Why the controller was given up; every request fails.
    pub dead: Option<GivenUp>,
    /// Entries and microseconds that the controller's Interrupt Coalescing holds back, for `coalesce`, `dim`, `vic` and `adaptive`.
    pub held_back: Option<(u32, u32)>,
    /// The controller refuses Interrupt Coalescing: those three modes are `interrupt` on it.
    pub coalescing_refused: bool,
}

/// Why a device was given up: every request fails, and none of it comes back.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GivenUp {
    /// The controller is gone, does not stop, or does not come up again.
    #[error(transparent)]
    Controller(#[from] Dead),
    /// The thread that looks after it has panicked, which is an error in Reap.
    #[error("what looks after it has panicked")]
    Panicked,
    /// Of several paths: each has been given up, in their order.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    AllPaths(Vec<GivenUp>),
}

impl GivenUp {
    /// Why all of a device's controllers are given up: the only one's reason, or each path's.
    pub(crate) fn of_all(mut all: Vec<GivenUp>) -> GivenUp {
        match all.pop() {
            Some(only) if all.is_empty() => only,
            last => GivenUp::AllPaths(all.into_iter().chain(last).collect()),
        }
    }
}

impl Health {
    /// Of both together.
    pub(crate) fn and(self, other: Health) -> Health {
        Health {
            resets: self.resets + other.resets,
            aborts: self.aborts + other.aborts,
            last_reset: other.last_reset.or(self.last_reset),
            dead: other.dead.or(self.dead),
            held_back: self.held_back.or(other.held_back),
            coalescing_refused: self.coalescing_refused | other.coalescing_refused,
        }
    }
}
