//! What can go wrong.

use nvme::{Cid, QueueId, Status};
use units::Nanos;

/// Something that goes wrong once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A message does not go out.
    LoseMessage,
    /// A message goes out this much later.
    DelayMessage(Nanos),
    /// A message goes out twice.
    DoubleMessage,
    /// An entry carries the CID of the command that completed before it on its queue; its own command never completes.
    StaleCid,
    /// An entry carries a CID that nobody used lately; its own command never completes.
    UnknownCid,
    /// An entry is posted twice, unless there is no room or the host has not taken any yet.
    DoubleEntry,
    /// An entry is stored with the wrong phase tag: the host never sees it, nor any after it on its queue.
    WrongPhase,
    /// A command ends with this status; what it did remains done.
    Status(Status),
    /// An entry is not posted: the command is carried out and never completes.
    SwallowEntry,
    /// A command is not carried out and never completes.
    SwallowCommand,
    /// CSTS.CFS: at this entry the controller fails, and is silent until the host resets it.
    Fatal,
}

/// What a fault happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    Message,
    Entry,
    Command,
}

impl Fault {
    pub(crate) fn occasion(self) -> Occasion {
        match self {
            Fault::LoseMessage | Fault::DelayMessage(_) | Fault::DoubleMessage => Occasion::Message,
            Fault::SwallowCommand => Occasion::Command,
            _ => Occasion::Entry,
        }
    }
}

/// A fault that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Which.
    pub fault: Fault,
    /// The submission queue and the command that it hit; a message has none.
    pub command: Option<(QueueId, Cid)>,
}
