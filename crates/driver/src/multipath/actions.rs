//! Configuration, actions and counters of a [`Failover`](super::Failover), and the classification
//! of error statuses.

use nvme::Status;
use units::Nanos;

use super::{PathId, RequestId};

/// Time-outs and limits of failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverConfig {
    /// How long a request waits for a usable path before it fails. If there is only one path, this
    /// also limits how long a write of unknown outcome is held, even if the controller's quiesce
    /// time (CQT) is longer.
    pub no_path_timeout: Nanos,
    /// Maximum number of waiting requests; further ones fail at once.
    pub no_path_limit: usize,
    /// Maximum number of retries of a request after error statuses. Retries after the loss of a
    /// path are not counted, nor are those after ANA statuses: a request that gets an ANA status
    /// fails when `no_path_timeout` has passed since its first failure.
    pub retries: u8,
    /// How long a write of unknown outcome is held at most if its controller reports no quiesce
    /// time (CQT). [`Nanos::MAX`]: for ever. The controller may still execute a write that fails
    /// because of this time-out, and so overwrite a later write.
    pub held_timeout: Nanos,
    /// Send a write of unknown outcome again at once instead of holding it. The controller of the
    /// lost path may then execute its copy long after the second one: **a later write to the same
    /// blocks can be undone**.
    pub unsafe_fast_failover: bool,
}

impl Default for FailoverConfig {
    /// A request waits up to 30 s for a path, any number of requests may wait, a request is retried
    /// four times, and a write of unknown outcome is held for ever.
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
        /// The time waited.
        waited: Nanos,
    },
    /// No path is usable, and `no_path_limit` requests wait already.
    #[error("no path is usable, and {waiting} requests wait for one already")]
    TooManyWaiting {
        /// How many requests wait.
        waiting: usize,
    },
    /// A write whose outcome is unknown.
    #[error(
        "path {path} was lost after the write had been sent, and the write could not be sent again within {waited}; the controller may have executed it, or may execute it later"
    )]
    OutcomeUnknown {
        /// The path.
        path: PathId,
        /// How long the write was held.
        waited: Nanos,
    },
    /// A Flush could not be sent on a path on which writes have completed that it covers.
    #[error(
        "writes that completed on path {path} cannot be flushed: the path has not been usable for {waited}"
    )]
    FlushBlocked {
        /// The path.
        path: PathId,
        /// The time waited.
        waited: Nanos,
    },
    /// Writes that were to be flushed may be lost.
    #[error(
        "the controller of path {path} lost its volatile cache before writes that completed on the path were flushed: these writes may be lost"
    )]
    CacheLost {
        /// The path.
        path: PathId,
    },
}

/// An action for the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the request on this path, and call [`super::Failover::ended`] when it has completed. A
    /// Flush may be sent on several paths at a time.
    Send {
        /// The request.
        request: RequestId,
        /// The token it was submitted with.
        token: u64,
        /// The path.
        path: PathId,
    },
    /// Complete the request with this status, which a controller has reported. It is not retried
    /// any more.
    Complete {
        /// The token it was submitted with.
        token: u64,
        /// Its status.
        status: Status,
    },
    /// Complete the request with a failure that no controller reported.
    Fail {
        /// The token it was submitted with.
        token: u64,
        /// Why.
        failure: Failure,
    },
    /// Read the ANA log page of this path, and call [`super::Failover::ana_changed`]: the status of
    /// a request indicated that an ANA state has changed.
    ReadAna(PathId),
    /// Reset this path: its ANA state has been Change for longer than ANATT, or its controller may
    /// still execute a write that has failed for the host.
    Reset(PathId),
}

/// Result of submitting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Send the request on this path now.
    Send {
        /// The request.
        request: RequestId,
        /// The path.
        path: PathId,
    },
    /// The request is queued: [`super::Failover::poll`] returns its actions.
    Queued,
    /// The request has failed.
    Refused(Failure),
}

/// Result of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionOutcome {
    /// The request has completed.
    Done {
        /// The token it was submitted with.
        token: u64,
        /// Its status.
        status: Status,
    },
    /// The request is not complete: [`super::Failover::poll`] returns its actions.
    Continues,
    /// The completion belongs to no request in flight on this path: the request was never sent on
    /// the path, or has been failed over from it.
    Stale,
}

/// Counters for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MultipathCounters {
    /// Requests sent again because of a status.
    pub retried: u64,
    /// Requests sent again because their path was lost or reset.
    pub failed_over: u64,
    /// Writes held until the controller of their path had stopped.
    pub held: u64,
    /// The longest time that a write was held.
    pub longest_hold: Nanos,
    /// Writes sent again without waiting ([`FailoverConfig::unsafe_fast_failover`]).
    pub unsafe_resends: u64,
    /// Requests that waited because no path was usable.
    pub waited: u64,
    /// The longest time from a request's first failure until it completed.
    pub longest_stall: Nanos,
    /// Requests that failed without a controller's status.
    pub failed: u64,
    /// Completions that belong to no request in flight.
    pub stale: u64,
}

impl MultipathCounters {
    /// The sum of each count, and the longer of each time.
    #[must_use]
    pub fn merged(self, other: MultipathCounters) -> MultipathCounters {
        MultipathCounters {
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

/// What an error status means for a request, as Linux's `enum nvme_disposition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Final, whether success or error: no path would do better.
    Complete,
    /// Retry on another path: the path failed, not the command.
    Failover,
    /// Retry on any path: the cause is transient.
    Retry,
}

/// Classifies a status (Base 4.2.3). Path-related statuses (type 3h, which includes ANA) are
/// [`Disposition::Failover`]. Aborts, Command Interrupted, Transient Transport Error and Namespace
/// Not Ready are [`Disposition::Retry`]: they say nothing about the command itself. Other errors,
/// such as media errors and invalid fields, would occur on any path, and are final. So is any error
/// with Do Not Retry, which is valid for every controller of the subsystem. Linux, in contrast,
/// retries every error without Do Not Retry, media errors included.
#[inline]
pub fn disposition(status: Status) -> Disposition {
    if status.is_success() || status.do_not_retry() {
        return Disposition::Complete;
    }
    if status.is_path_related() {
        return Disposition::Failover;
    }
    match status.kind() {
        Status::ABORT_REQUESTED
        | Status::ABORTED_POWER_LOSS
        | Status::ABORTED_SQ_DELETION
        | Status::COMMAND_INTERRUPTED
        | Status::TRANSIENT_TRANSPORT_ERROR
        | Status::NAMESPACE_NOT_READY => Disposition::Retry,
        _ => Disposition::Complete,
    }
}
