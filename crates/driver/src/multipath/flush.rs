//! What is kept of the Flushes of a queue.

use nvme::Status;
use units::Nanos;

use super::marks::Snapshot;
use super::{Failure, PathSet, RequestId};

/// A Flush under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Flush {
    /// Paths that it still has to be sent on.
    pub(super) need: PathSet,
    /// Paths that it is out on.
    pub(super) out: PathSet,
    /// Paths that it has to cover. It is sent on others out of courtesy, if that can be done now.
    pub(super) dirty: PathSet,
    /// It has succeeded somewhere.
    pub(super) done: bool,
    /// It waits in the ready list.
    pub(super) queued: bool,
    /// Since when a part has been waiting for its path.
    pub(super) parked: Nanos,
    /// Why it will fail once nothing is out any more.
    pub(super) failed: Option<Why>,
    pub(super) snapshot: Snapshot,
}

impl Flush {
    /// No controller has to be covered and none has been: any one will do.
    pub(super) fn wants_any(&self) -> bool {
        self.need.is_empty() && self.out.is_empty() && !self.done && self.failed.is_none()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Why {
    Status(Status),
    Failure(Failure),
}

/// The Flushes of a queue; entries are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushes {
    pub(super) list: Vec<Flush>,
    pub(super) free: Vec<u32>,
    /// In the order of submission.
    pub(super) open: Vec<RequestId>,
}
