//! Errors of a queue pair: no tag, an impossible size, and completions that no correct controller
//! posts.

use nvme::{Cid, QueueId};

/// The queue has no free tag, or is closed for a reset. Nothing was posted: the caller keeps the
/// request, and tries again after a completion or after the reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no free tag: every command slot of the queue is in use, or the queue is closed for a reset"
)]
pub struct NoTag;

/// A queue pair cannot have this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueSizeError {
    /// A ring has 2 to 65,536 entries (Base 3.3.1.4, MQES).
    #[error("{ring} of queue {id} with {entries} entries: a ring has 2 to 65536")]
    Ring {
        /// The queue.
        id: QueueId,
        /// "submission queue" or "completion queue".
        ring: &'static str,
        /// The size requested.
        entries: u32,
    },
    /// There is no tag, or with this number of them the rings could overrun or command identifiers
    /// would not be unique.
    #[error(
        "queue {id} with {tags} tags: it must have 1 to {max} (a ring of N entries holds N-1 commands, and a queue has at most 4095 tags)"
    )]
    Tags {
        /// The queue.
        id: QueueId,
        /// The number requested.
        tags: u32,
        /// The maximum for these rings.
        max: u32,
    },
}

/// The controller posted an entry that no correct controller posts. The queue takes no further
/// entries. The controller must be reset, because it is unknown which buffers it still writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// The command identifier is not in flight on this queue: never issued, or completed already.
    #[error(
        "queue {queue}: completion for command {cid:#06x}, which is not in flight (the slot was last used by {last:#06x}); reset the controller"
    )]
    UnknownCommand {
        /// The queue.
        queue: QueueId,
        /// The identifier in the entry.
        cid: u16,
        /// The identifier that the slot's current or last command has; FFFFh if there is no such
        /// slot.
        last: u16,
    },
    /// A second completion of a command whose Abort is still in flight.
    #[error("queue {queue}: second completion for command {cid}; reset the controller")]
    Duplicate {
        /// The queue.
        queue: QueueId,
        /// The identifier in the entry.
        cid: Cid,
    },
    /// More completions than commands announced by the SQ doorbell.
    #[error(
        "queue {queue}: completion for command {cid}, but no announced command is in flight; reset the controller"
    )]
    Unannounced {
        /// The queue.
        queue: QueueId,
        /// The identifier in the entry.
        cid: u16,
    },
    /// DW2.SQID names another submission queue (Base 4.2.1).
    #[error(
        "queue {queue}: completion for command {cid:#06x} names submission queue {named}; reset the controller"
    )]
    WrongQueue {
        /// The queue.
        queue: QueueId,
        /// The identifier in the entry.
        cid: u16,
        /// The SQID in the entry.
        named: u16,
    },
}

impl ProtocolViolation {
    /// The queue that the entry was posted to.
    pub fn queue(&self) -> QueueId {
        match *self {
            ProtocolViolation::UnknownCommand { queue, .. }
            | ProtocolViolation::Duplicate { queue, .. }
            | ProtocolViolation::Unannounced { queue, .. }
            | ProtocolViolation::WrongQueue { queue, .. } => queue,
        }
    }
}
