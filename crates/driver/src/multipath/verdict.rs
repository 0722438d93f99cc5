//! What a status says about the path, as against the command.

use nvme::Status;

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
