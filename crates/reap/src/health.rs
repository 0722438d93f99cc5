//! What has happened to a controller, for those who use it.

use driver::{Dead, ResetCause};
use nvme::admin::AsyncEvent;
use thiserror::Error;

/// Events that are kept.
const KEPT: usize = 64;

/// Whether the controller works, and what has happened to it.
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
    /// The latest asynchronous events, by what they said, and what came of them.
    pub events: Vec<String>,
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
    /// One more event.
    pub(crate) fn heard(&mut self, event: &AsyncEvent) {
        self.note(format!("type {} information {:#04x} (log page {:#04x})", event.event_type(), event.info(), event.lid()));
    }

    /// What came of an event, or was found out otherwise.
    pub(crate) fn note(&mut self, what: String) {
        self.events.push(what);
        let surplus = self.events.len().saturating_sub(KEPT);
        self.events.drain(..surplus);
    }

    /// Of both together.
    pub(crate) fn and(self, other: Health) -> Health {
        Health {
            resets: self.resets + other.resets,
            aborts: self.aborts + other.aborts,
            last_reset: other.last_reset.or(self.last_reset),
            dead: other.dead.or(self.dead),
            events: self.events.into_iter().chain(other.events).collect(),
            held_back: self.held_back.or(other.held_back),
            coalescing_refused: self.coalescing_refused | other.coalescing_refused,
        }
    }
}
