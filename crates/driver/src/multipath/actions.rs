//! What a [`Failover`](super::Failover) is configured with, says and counts, and what a status says about the path.

use nvme::Status;
use units::Nanos;

use super::{PathId, RequestId};

/// How patient to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverConfig {
    /// How long a request waits while no path is usable before it fails.
    pub no_path_timeout: Nanos,
    /// How many requests wait so at most; further ones fail at once.
    pub no_path_limit: usize,
    /// How often a request is sent again because of a status. Paths that are lost do not count, and ANA's statuses count by
    /// time: they end a request that has been in trouble for `no_path_timeout`.
    pub retries: u8,
    /// How long a write whose outcome is unknown is held, if nothing says when its controller has come to rest.
    /// [`Nanos::MAX`]: for ever. A write that fails because of this may still be carried out, and may then undo a later one.
    pub held_timeout: Nanos,
    /// Send such a write again at once. It may then be carried out twice, the first time last: **a later write to the
    /// same blocks can be undone**.
    pub unsafe_fast_failover: bool,
}

impl Default for FailoverConfig {
    /// 30 s for a path, as many requests as there are; four retries; held for ever.
    fn default() -> FailoverConfig {
        FailoverConfig {
            no_path_timeout: Nanos::from_secs(30),
            no_path_limit: usize::MAX,
            retries: 4,
            held_timeout: Nanos::MAX,
            unsafe_fast_failover: false,
        }
    }
}

/// Why a request failed without a controller's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No path was usable for too long.
    #[error("no path was usable for {waited}")]
    NoPath {
        /// How long it waited.
        waited: Nanos,
    },
    /// No path is usable, and as many requests wait for one as may.
    #[error("no path is usable, and {waiting} requests wait for one already")]
    TooManyWaiting {
        /// How many.
        waiting: usize,
    },
    /// A write whose outcome is unknown.
    #[error(
        "path {path} was lost with the write inside, and for {waited} nothing has said that its controller has come to rest; the write may have been carried out, or may still be"
    )]
    Unsettled {
        /// The path.
        path: PathId,
        /// How long it was held.
        waited: Nanos,
    },
    /// A Flush that could not be sent where it was needed.
    #[error("writes that completed on path {path} cannot be flushed: the path has not been usable for {waited}")]
    NotCovered {
        /// The path.
        path: PathId,
        /// How long the Flush waited.
        waited: Nanos,
    },
    /// Writes that were to be flushed are gone.
    #[error("path {path} lost its volatile cache before writes that completed on it were flushed: they may be lost")]
    CacheLost {
        /// The path.
        path: PathId,
    },
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the request on this path, and say [`super::Failover::ended`] when its completion has come. A Flush may be sent on
    /// several paths at one time.
    Send {
        /// The request.
        request: RequestId,
        /// Its caller's name for it.
        token: u64,
        /// Where.
        path: PathId,
    },
    /// The request is over, with a status that a controller gave earlier.
    End {
        /// Its caller's name for it.
        token: u64,
        /// How.
        status: Status,
    },
    /// The request is over, without a controller's status.
    Fail {
        /// Its caller's name for it.
        token: u64,
        /// Why.
        failure: Failure,
    },
    /// Read the ANA log page of this path, and say [`super::Failover::ana_changed`]: a status told of a change.
    ReadAna(PathId),
    /// Reset this path: its ANA state has been Change for longer than ANATT, or it has a write inside that the host gave up.
    Reset(PathId),
}

/// What became of a request that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Send it on this path now.
    Send {
        /// The request.
        request: RequestId,
        /// Where.
        path: PathId,
    },
    /// [`super::Failover::poll`] will tell, now or later.
    Queued,
    /// It has failed.
    Refused(Failure),
}

/// What became of a request whose completion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is over.
    Done {
        /// Its caller's name for it.
        token: u64,
        /// How.
        status: Status,
    },
    /// It goes on: [`super::Failover::poll`] will tell.
    GoesOn,
    /// The completion is of no request that is out on this path: it has been taken back, or was never sent.
    Stale,
}

/// What happened, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent again because of a status.
    pub retried: u64,
    /// Requests sent again because their path was lost or reset.
    pub failed_over: u64,
    /// Writes that waited until the controller of their path, lost or being reset, had come to rest.
    pub held: u64,
    /// The longest that one waited so.
    pub longest_hold: Nanos,
    /// Writes that were sent again without waiting ([`FailoverConfig::unsafe_fast_failover`]).
    pub unsafe_resends: u64,
    /// Requests that had to wait because no path was usable.
    pub waited: u64,
    /// The longest from the first thing that went wrong with a request until it was over.
    pub longest_stall: Nanos,
    /// Requests that failed without a controller's status.
    pub failed: u64,
    /// Completions of no request that was out.
    pub stale: u64,
}

impl Counters {
    /// Of both together.
    #[must_use]
    pub fn and(self, other: Counters) -> Counters {
        Counters {
            retried: self.retried + other.retried,
            failed_over: self.failed_over + other.failed_over,
            held: self.held + other.held,
            longest_hold: self.longest_hold.max(other.longest_hold),
            unsafe_resends: self.unsafe_resends + other.unsafe_resends,
            waited: self.waited + other.waited,
            longest_stall: self.longest_stall.max(other.longest_stall),
            failed: self.failed + other.failed,
            stale: self.stale + other.stale,
        }
    }
}

/// What a completion means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is over, well or badly: no path would do better.
    Over,
    /// The path failed, not the command: another path may succeed.
    Elsewhere,
    /// Circumstances that pass: any path may succeed later, the same one too.
    Again,
}

/// Judges a status (Base 4.2.3). Path-related ones (type 3h, ANA's among them) are [`Verdict::Elsewhere`]. Aborts, interruptions and
/// transport errors are [`Verdict::Again`]: they say nothing of the command itself. Everything else, media errors
/// and invalid fields included, would be the same on any path. So would anything with Do Not Retry, which speaks for every
/// controller of the subsystem.
#[inline]
pub fn verdict(status: Status) -> Verdict {
    if status.is_success() || status.do_not_retry() {
        return Verdict::Over;
    }
    if status.is_path_related() {
        return Verdict::Elsewhere;
    }
    match status.kind() {
        Status::ABORT_REQUESTED
        | Status::ABORTED_POWER_LOSS
        | Status::ABORTED_SQ_DELETION
        | Status::COMMAND_INTERRUPTED
        | Status::TRANSIENT_TRANSPORT_ERROR
        | Status::NAMESPACE_NOT_READY => Verdict::Again,
        _ => Verdict::Over,
    }
}
