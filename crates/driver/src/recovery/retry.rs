//! Whether a request that failed on its way is posted again.

use nvme::Status;

use super::Buffers;

/// How often a request is posted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// At most this often, after resets and after statuses that invite it, taken together.
    pub limit: u8,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Post it again: it is not known to have been carried out, and doing so twice is as good as once.
    Again,
    /// It fails, and its buffer returns.
    Fail,
    /// It fails, and its buffer is leaked.
    FailLeaked,
}

impl RetryPolicy {
    /// After a reset took the request back. `idempotent`: carrying it out twice is as good as once, which holds for
    /// Read, Write and Flush as long as the caller has not been answered.
    pub fn after_reset(&self, buffers: Buffers, retries: u8, idempotent: bool) -> Fate {
        match buffers {
            Buffers::Leaked => Fate::FailLeaked,
            Buffers::Returned if idempotent && retries < self.limit => Fate::Again,
            Buffers::Returned => Fate::Fail,
        }
    }

    /// After the controller answered with an error. Again only for statuses that speak of circumstances rather than of
    /// the command or the medium, and without Do Not Retry (Base 4.2.3).
    pub fn after_status(&self, status: Status, retries: u8, idempotent: bool) -> Fate {
        let circumstances = matches!(
            status.kind(),
            Status::ABORT_REQUESTED
                | Status::ABORTED_POWER_LOSS
                | Status::ABORTED_SQ_DELETION
                | Status::COMMAND_INTERRUPTED
                | Status::TRANSIENT_TRANSPORT_ERROR
                | Status::NAMESPACE_NOT_READY
        );
        if circumstances && !status.do_not_retry() && idempotent && retries < self.limit { Fate::Again } else { Fate::Fail }
    }
}
